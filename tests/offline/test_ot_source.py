"""Two parties that make material over a real TLS link: prices, agreement, and everything that goes wrong on the way."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

import numpy as np
import pytest

from hdcos.errors import FrameError, HandshakeError, HdcosError, InputError, MaterialExhausted, MaterialReused, PeerLost
from hdcos.link import Kind, Link, Listener, Meter, connect
from hdcos.offline import FusedTrig, Mask, MaskProduct, MaterialPool, Need, Plan, Reference, RoundingMask, TrigPair
from hdcos.offline.ot import OtSource, traffic
from hdcos.testing.ot_pair import joined, wrong
from tls_pair import identities

PLAN = Plan((Need(Mask((8,)), 3), Need(TrigPair((50,), 16, 16), 3), Need(RoundingMask((8,), 26), 3)))


@contextmanager
def parties(timeout_s: float = 5.0) -> Iterator[tuple[OtSource, OtSource]]:
    """Both ends; each dials again after a failure."""
    zero, one = identities()
    with Listener(one, {zero.certificate: "party0"}, link_timeout_s=timeout_s) as listener:
        dials = [0, 0]

        def dial(rank: int) -> Callable[[Meter], tuple[Link, bytes]]:
            def dialled(meter: Meter) -> tuple[Link, bytes]:
                dials[rank] += 1
                name = hashlib.sha256(b"%d" % dials[rank]).digest()
                if rank == 1:
                    return listener.accept(timeout_s, meter), name
                allowed = {one.certificate: "party1"}
                port = listener.port
                link = connect(zero, allowed, "127.0.0.1", port, timeout_s, link_timeout_s=timeout_s, meter=meter)
                return link, name

            return dialled

        sources = OtSource(dial(0), 0), OtSource(dial(1), 1)
        try:
            yield sources
        finally:
            for source in sources:
                source.leave()


def both(*work: Callable[[], object]) -> list[HdcosError | None]:
    """Run both parties' work at the same time; what each raised."""

    def caught(task: Callable[[], object]) -> HdcosError | None:
        try:
            task()
        except HdcosError as error:
            return error
        return None

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(caught, work))


Sources = tuple[OtSource, OtSource]


def fill(sources: Sources, pools: list[MaterialPool], executions: int = 1) -> list[HdcosError | None]:
    return both(*(partial(source.fill, pool, executions) for source, pool in zip(sources, pools, strict=True)))


def opened(sources: Sources, name: str, plan: Plan = PLAN) -> list[MaterialPool]:
    return [source.open(name, plan) for source in sources]


def assert_right(pools: list[MaterialPool], plan: Plan = PLAN, executions: int = 1) -> None:
    values = joined(plan, [pool.begin(executions) for pool in pools], executions)
    assert wrong(plan, values, executions) == 0


def test_planned_traffic_is_metered_traffic_and_what_the_kernel_counted() -> None:
    with parties() as sources:
        pools = opened(sources, "work")
        assert fill(sources, pools, 7) == [None, None]
        planned = traffic(PLAN, 7)
        for source in sources:
            offline = source.meter.snapshot().phases["offline"]
            assert offline.bytes_sent == offline.bytes_received == planned.bytes // 2
            assert offline.rounds == planned.exchanges
            total = source.meter.snapshot().total
            assert source.link.os_counters() == (total.wire_bytes_sent, total.wire_bytes_received)
        assert_right(pools, executions=7)


def test_a_trig_pair_and_a_fused_unit_cost_less_than_half_of_what_was_allowed() -> None:
    pairs = Plan((Need(TrigPair((1000,), 16, 16), 1),))
    assert traffic(pairs).bytes / 1000 <= 440
    weights = Plan((Need(Mask((1000,)), 1),))
    fused = Plan((Need(FusedTrig((1000,), 16, 16, Reference(0, "model", whole=True)), 1),))
    assert traffic(fused, 1, {"model": weights}).bytes / 1000 <= 2100
    assert traffic(fused, 64, {"model": weights}).bytes / 64_000 <= 1500


def test_material_comes_in_chunks_over_several_fills_and_refers_to_other_scopes() -> None:
    with parties() as sources:
        model = Plan((Need(Mask((4, 3)), 1),))
        work = Plan((Need(Mask((4,)), 1), Need(MaskProduct("matmul", (3,), Reference(0), Reference(0, "m", True)), 1)))
        weights, pools = opened(sources, "m", model), opened(sources, "work", work)
        assert fill(sources, weights) == [None, None]
        for _ in range(3):
            assert fill(sources, pools, 5) == [None, None]
        masks = joined(model, [pool.begin(1) for pool in weights])
        values = joined(work, [pool.begin(15) for pool in pools], 15)
        assert wrong(work, values, 15, {"m": masks[0]}) == 0


def test_a_link_that_has_carried_enough_is_replaced_between_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hdcos.offline.ot.source.LINK_BYTES", 100_000)
    monkeypatch.setattr("hdcos.offline.ot.estimate.CHUNK_BYTES", 200_000)
    with parties() as sources:
        pools = opened(sources, "work")
        assert both(*(partial(getattr, source, "link") for source in sources)) == [None, None]
        before = [source.link for source in sources]
        assert fill(sources, pools, 7) == [None, None]
        for source, link in zip(sources, before, strict=True):
            assert link.closed
            assert source._link is not link
        assert_right(pools, executions=7)


def test_a_peer_that_wants_something_else_is_refused_by_name_on_both_sides() -> None:
    with parties() as sources:
        pools = opened(sources, "work")
        zero, one = both(lambda: sources[0].fill(pools[0], 3), lambda: sources[1].fill(pools[1], 4))
        assert isinstance(zero, HandshakeError)
        assert isinstance(one, HandshakeError)
        assert "executions" in str(zero)
        other = [sources[0].open("other", PLAN), sources[1].open("another", PLAN)]
        zero, one = fill(sources, other)
        assert isinstance(zero, HandshakeError)
        assert "another" in str(zero)
        plans = [sources[0].open("same", PLAN), sources[1].open("same", Plan(PLAN.needs[:-1]))]
        zero, one = fill(sources, plans)
        assert isinstance(zero, HandshakeError)
        assert isinstance(one, HandshakeError)
        # Nothing of all that is in a pool, and the parties can go on with a new link.
        assert [pool.filled for pool in (*pools, *other, *plans)] == [0] * 6
        assert fill(sources, pools) == [None, None]
        assert_right(pools)


def test_a_peer_that_sends_nonsense_for_base_transfers_is_refused_and_the_next_link_is_fine() -> None:
    with parties() as sources:
        pools = opened(sources, "work")
        dial = sources[1]._dial

        def lying(meter: Meter) -> tuple[Link, bytes]:
            link, name = dial(meter)
            sources[1]._dial = dial
            exchange = link.exchange
            link.exchange = lambda buffers, steps=(): exchange([bytes(steps[0][1])], steps)  # type: ignore[method-assign]
            return link, name

        sources[1]._dial = lying
        zero, one = fill(sources, pools)
        assert isinstance(zero, FrameError)
        assert "no point" in str(zero)
        assert one is not None
        assert fill(sources, pools) == [None, None]
        assert_right(pools)


def test_a_peer_that_lost_count_of_executions_is_refused() -> None:
    with parties() as sources:
        pools = opened(sources, "work")
        pools[1]._filled = 2
        zero, one = fill(sources, pools)
        assert isinstance(zero, MaterialReused)
        assert isinstance(one, MaterialReused)
        assert "2 executions were made here, of which 0 are used, and 0 there" in str(one)


def test_a_chunk_that_only_one_side_kept_is_given_up_and_made_again() -> None:
    """The link broke while the last chunk was confirmed."""
    with parties() as sources:
        pools = opened(sources, "work")
        assert fill(sources, pools, 2) == [None, None]
        confirm = sources[1]._confirm

        def cut(link: Link, digest: bytes) -> None:
            link.send(Kind.MATERIAL, digest)
            time.sleep(0.2)
            link._transport.close()
            raise PeerLost("cut")

        sources[1]._confirm = cut  # type: ignore[method-assign]
        zero, one = fill(sources, pools, 3)
        assert zero is None
        assert isinstance(one, PeerLost)
        assert [pool.filled for pool in pools] == [5, 2]
        sources[1]._confirm = confirm  # type: ignore[method-assign]
        sources[0].link.close()
        assert fill(sources, pools, 4) == [None, None]
        assert [pool.filled for pool in pools] == [6, 6]
        assert_right(pools, executions=6)


def test_a_chunk_that_was_used_is_not_given_up() -> None:
    with parties() as sources:
        pools = opened(sources, "work")
        assert fill(sources, pools, 2) == [None, None]
        pools[0].begin(2)
        pools[1]._filled = 0
        zero, one = fill(sources, pools, 2)
        assert isinstance(zero, MaterialReused)
        assert isinstance(one, MaterialReused)


@pytest.mark.parametrize("exchange", [1, 2, 3, 4])
def test_a_peer_that_stops_mid_extension_costs_the_chunk_and_nothing_else(exchange: int) -> None:
    with parties() as sources:
        pools = opened(sources, "work")
        assert fill(sources, pools) == [None, None]
        drawn = [pool.own(1, PLAN.needs[1].kind.fields()[0], 1, 1) for pool in pools]
        _interrupt(sources[1].link, exchange, lambda link: link._transport.close())
        zero, one = fill(sources, pools, 2)
        assert isinstance(zero, PeerLost)
        assert one is not None
        assert [pool.filled for pool in pools] == [1, 1]
        assert_right(pools)
        for pool in pools:
            with pytest.raises(MaterialExhausted):
                pool.begin(1)
        # Made again, with other numbers: nothing of the lost chunk is used.
        assert fill(sources, pools, 2) == [None, None]
        for pool, before in zip(pools, drawn, strict=True):
            assert (pool.own(1, PLAN.needs[1].kind.fields()[0], 1, 1) != before).mean() > 0.9
        assert_right(pools, executions=2)


def test_a_peer_that_falls_silent_is_lost_in_time() -> None:
    with parties(timeout_s=0.5) as sources:
        pools = opened(sources, "work")
        assert fill(sources, pools) == [None, None]
        silence = threading.Event()
        _interrupt(sources[1].link, 2, lambda link: silence.wait(5))
        with ThreadPoolExecutor(1) as pool:
            other = pool.submit(lambda: both(lambda: sources[1].fill(pools[1], 1)))
            (error,) = both(lambda: sources[0].fill(pools[0], 1))
            silence.set()
            other.result()
        assert isinstance(error, PeerLost)
        assert "within 0.5 s" in str(error)
        assert [pool.filled for pool in pools] == [1, 1]


def test_a_replayed_frame_is_refused_on_both_sides() -> None:
    with parties() as sources:
        pools = opened(sources, "work")
        assert fill(sources, pools) == [None, None]

        def replay(link: Link) -> None:
            link._frames_sent -= 1

        _interrupt(sources[1].link, 2, replay)
        zero, one = fill(sources, pools)
        assert isinstance(zero, FrameError)
        assert "repeated" in str(zero)
        assert isinstance(one, FrameError)
        assert [pool.filled for pool in pools] == [1, 1]


def test_a_message_of_the_wrong_length_is_refused_on_both_sides() -> None:
    with parties() as sources:
        pools = opened(sources, "work")
        assert fill(sources, pools) == [None, None]
        link = sources[1].link
        exchange = link.exchange
        link.exchange = lambda buffers, steps=(): exchange([*buffers, bytes(8)])  # type: ignore[method-assign]
        zero, one = fill(sources, pools)
        assert isinstance(zero, FrameError)
        assert isinstance(one, FrameError)
        assert [pool.filled for pool in pools] == [1, 1]


def test_one_flipped_bit_of_one_transfer_is_caught_by_joining_both_shares() -> None:
    """Outside the semi-honest model: the parties cannot see it. Where the choice bit is 0 the message does not count,
    so that the bit is flipped in one chunk after the other; each is as likely to be caught as not."""
    plan = Plan((Need(Mask((4,)), 1), Need(MaskProduct("multiply", (4,), Reference(0), Reference(0)), 1)))
    with parties() as sources:
        pools = opened(sources, "work", plan)
        assert fill(sources, pools) == [None, None]
        assert_right(pools, plan)
        link = sources[1].link
        exchange, calls = link.exchange, []

        def flipping(buffers, steps=()):
            calls.append(1)
            if len(calls) % 2 == 0:  # the second exchange answers what the chooser sent in the first
                buffers = [np.array(buffers[0]), *buffers[1:]]
                buffers[0][0] ^= 1
            return exchange(buffers, steps)

        link.exchange = flipping  # type: ignore[method-assign]
        caught = 0
        for _ in range(40):
            assert fill(sources, pools) == [None, None]
            caught += wrong(plan, joined(plan, [pool.begin(1) for pool in pools]))
        assert 5 <= caught <= 35


def test_scopes_open_once_and_only_what_is_open_is_filled() -> None:
    source = OtSource(lambda meter: pytest.fail("nothing to dial for"), 0)
    pool = source.open("work", PLAN)
    with pytest.raises(MaterialReused, match="before"):
        source.open("work", PLAN)
    with pytest.raises(MaterialReused, match="made by the parties"):
        pool.fill(0, 1, None)
    source.fill(pool, 0)
    source.close("work")
    with pytest.raises(InputError, match="no material is open"):
        source.fill(pool, 1)
    source.close("work")
    source.leave()


def _interrupt(link: Link, number: int, act: Callable[[Link], object]) -> None:
    """Do something to a link right before one of its next exchanges."""
    exchange, calls = link.exchange, []

    def counted(buffers, steps=()):
        calls.append(1)
        if len(calls) == number:
            act(link)
        return exchange(buffers, steps)

    link.exchange = counted  # type: ignore[method-assign]
