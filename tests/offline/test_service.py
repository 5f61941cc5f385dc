"""A dealer behind a real TLS link: it answers by name, deals in order, and survives nonsense."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from hdcos.errors import FrameError, HdcosError, InputError, MaterialReused, PeerLost
from hdcos.link import Kind, Link
from hdcos.link.message import encode_message, request
from hdcos.offline import Dealer, Mask, MaterialPool, Need, Plan, Reference, SignKeys, TrigPair, material, source
from hdcos.offline.source import DealerClient, serve_dealer
from hdcos.ring import dcf_words
from tls_pair import tls_pair

PLAN = Plan((Need(TrigPair((1024,), 16, 16), 64),))


@contextmanager
def served(dealer: Dealer, rank: int, closing: bool = False):
    """A client of a dealer that serves in a thread."""
    with tls_pair() as (there, here):
        errors = []

        def serve() -> None:
            try:
                serve_dealer(dealer, there, rank, closing)
            except HdcosError as error:
                errors.append(error)

        thread = threading.Thread(target=serve)
        thread.start()
        yield DealerClient(lambda meter: here, rank)
        here.close()
        thread.join(10)
        assert not thread.is_alive()


def test_material_streams_in_chunks_and_costs_what_was_planned() -> None:
    dealer = Dealer()
    with served(dealer, 0) as zero, served(dealer, 1) as one, ThreadPoolExecutor(2) as threads:
        pools = [client.open("work", PLAN) for client in (zero, one)]
        assert len(list(PLAN.chunks(60))) > 3, "several chunks, some ahead of the answers"
        for future in [threads.submit(client.fill, pool, 60) for client, pool in zip((zero, one), pools, strict=True)]:
            future.result()
        assert [pool.available for pool in pools] == [60, 60]
        received = one.link.meter.snapshot().sections["offline"].bytes_received
        assert received == PLAN.dealt_bytes(60)
        assert zero.link.meter.snapshot().sections["offline"].bytes_received == 0
        allocations = [pool.begin(60) for pool in pools]
        (_, cos0, sin0), (_, cos1, sin1) = (allocation.take(PLAN.needs[0].kind, 60 * 64) for allocation in allocations)
        norm = ((cos0 + cos1).astype(np.int64) / 2**16) ** 2 + ((sin0 + sin1).astype(np.int64) / 2**16) ** 2
        assert np.abs(norm - 1).max() < 1e-4


def test_the_next_order_is_asked_for_before_the_last_chunk_is_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    dealer, said = Dealer(), list[str]()
    ask, fill = source._ask_to_deal, MaterialPool.fill

    def note_ask(link: Link, pool: MaterialPool, start: int, executions: int) -> None:
        said.append(f"ask {pool.name} {start} {executions}")
        ask(link, pool, start, executions)

    def note_fill(pool: MaterialPool, start: int, executions: int, corrections: Any) -> None:
        fill(pool, start, executions, corrections)
        said.append(f"fill {pool.name} {start} {executions}")

    monkeypatch.setattr(source, "_ask_to_deal", note_ask)
    with served(dealer, 0) as zero, served(dealer, 1) as one:
        first, second, mine = one.open("a", PLAN), one.open("b", PLAN), zero.open("a", PLAN)
        zero.open("b", PLAN)
        monkeypatch.setattr(MaterialPool, "fill", note_fill)
        orders = [(first, 20), (first, 2), (second, 3), (first, 1)]
        for place, (pool, executions) in enumerate(orders):
            one.fill(pool, executions, lambda place=place: dict(enumerate(orders)).get(place + 1))
        *whole, last = PLAN.chunks(20)
        assert whole
        assert said == [
            "ask a 0 20",
            *(f"fill a {start} {count}" for start, count in zip(np.cumsum([0, *whole[:-1]]), whole, strict=True)),
            "ask a 20 2",
            f"fill a {sum(whole)} {last}",
            "ask b 0 3",
            "fill a 20 2",
            "ask a 22 1",
            "fill b 0 3",
            "fill a 22 1",
        ]
        zero.fill(mine, 23)
        allocations = [pool.begin(23) for pool in (mine, first)]
        (_, cos0, sin0), (_, cos1, sin1) = (allocation.take(PLAN.needs[0].kind, 23 * 64) for allocation in allocations)
        norm = ((cos0 + cos1).astype(np.int64) / 2**16) ** 2 + ((sin0 + sin1).astype(np.int64) / 2**16) ** 2
        assert np.abs(norm - 1).max() < 1e-4


@pytest.mark.parametrize("instead", ["open", "another order", "lost"])
def test_what_was_asked_for_ahead_is_never_taken_for_something_else(instead: str) -> None:
    """Whatever comes instead of the order that was announced gets a link of its own."""
    dealer = Dealer()
    with served(dealer, 1) as one, served(dealer, 1) as other:
        links = [one.link, other.link]
        client = DealerClient(lambda meter: links.pop(0), 1)
        pools = [client.open(name, PLAN) for name in ("a", "b")]
        client.fill(pools[0], 2, lambda: (pools[1], 3))
        assert len(links) == 1
        if instead == "open":
            client.open("c", PLAN)
        elif instead == "another order":
            client.fill(pools[0], 1)
        else:
            client._link.close()
        assert len(links) == (1 if instead == "lost" else 0)
        client.fill(pools[1], 3)
        assert not links
        assert [pool.available for pool in pools] == [3 if instead == "another order" else 2, 3]


def test_a_dealer_remembers_of_a_link_the_scopes_that_are_open_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    dealer, closed = Dealer(), list[str]()
    close = dealer.close
    monkeypatch.setattr(dealer, "close", lambda name, rank: (closed.append(name), close(name, rank)))
    with served(dealer, 0, closing=True) as party:
        for number in range(20):
            party.open(f"scope {number}", PLAN)
            party.close(f"scope {number}")
        party.open("left", PLAN)
        assert closed == [f"scope {number}" for number in range(20)]
        closed.clear()
    assert closed == ["left"]
    assert dealer._scopes == {}


def test_keys_stream_to_both_parties_and_each_is_sent_its_own_bytes_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Common words are the same at both, at whatever time and in whatever order the parties ask for them."""
    plan = Plan((Need(TrigPair((8,), 16, 16), 4), Need(Mask((8,), 20), 4), Need(SignKeys((8,), 20, Reference(1)), 4)))
    monkeypatch.setattr(material, "CHUNK_BYTES", 3 * plan.packed_bytes(1))
    dealer = Dealer()
    with served(dealer, 0) as zero, served(dealer, 1) as one:
        pools = [client.open("work", plan) for client in (zero, one)]
        zero.fill(pools[0], 7)
        one.fill(pools[1], 2)
        one.fill(pools[1], 5)
        received = [client.link.meter.snapshot().sections["offline"].bytes_received for client in (zero, one)]
        assert received == [plan.dealt_bytes(7, 0), plan.dealt_bytes(2) + plan.dealt_bytes(5)]
        assert received == [7 * (32 * 13 + 4) * 16, 7 * (32 * 14 + 4) * 16]
        allocations = [pool.begin(7) for pool in pools]
        taken = [[allocation.take(need.kind, 28) for need in plan.needs] for allocation in allocations]
        (_, (mask0,), (root0, cipher0, words0)), (_, (mask1,), (root1, cipher1, words1)) = taken
        assert (words0 == words1).all()
        assert (cipher0 == cipher1).all()
        assert len(np.unique(cipher0, axis=0)) == 28
        assert not (root0 == root1).any()
        point = (mask0 + mask1 + np.uint32(1 << 18)) & np.uint32(2**20 - 1)
        assert (words0 == dcf_words(cipher0, root0, root1, point, 20)).all()
        for client, rank in ((zero, 0), (one, 1)):
            with pytest.raises(MaterialReused, match="next to deal is 7"):
                request(client.link, {"operation": "deal", "scope": "work", "start": 9, "executions": 1}, timeout_s=5)
            assert pools[rank].filled == 7


@pytest.mark.parametrize(
    "meta",
    [
        {},
        {"operation": "sing"},
        {"operation": "open", "scope": "x"},
        {"operation": "open", "scope": "x", "plan": [{"kind": "mask"}]},
        {"operation": "deal", "scope": "never opened", "start": 0, "executions": 1},
        {"operation": "deal", "scope": "x"},
        {"operation": "deal", "scope": "x", "start": "a", "executions": None},
        {"operation": "deal", "scope": [], "start": {}, "executions": []},
    ],
)
def test_nonsense_is_answered_by_name_and_the_dealer_goes_on(meta) -> None:
    with served(Dealer(), 1) as client:
        with pytest.raises(HdcosError):
            request(client.link, meta, timeout_s=5)
        client.open("after", PLAN)


def test_party_0_is_sent_no_corrections() -> None:
    dealer = Dealer()
    with served(dealer, 0) as client:
        client.open("work", PLAN)
        with pytest.raises(InputError, match="only party 1"):
            request(client.link, {"operation": "deal", "scope": "work", "start": 0, "executions": 1}, timeout_s=5)


@pytest.mark.parametrize(
    ("kind", "buffers", "complaint"),
    [
        (Kind.REPLY, encode_message({"time": 7}), "something else than material"),
        (Kind.MATERIAL, [bytes(PLAN.packed_bytes(1) - 1)], "bytes of material expected"),
        (Kind.MATERIAL, [bytes(PLAN.packed_bytes(1) + 1)], "at most .* are allowed here"),
    ],
)
def test_an_answer_to_another_question_is_refused(kind: Kind, buffers: list[bytes], complaint: str) -> None:
    with tls_pair() as (there, here):
        client = DealerClient(lambda meter: here, 1)
        pool = MaterialPool("work", PLAN, 1, bytes(32))

        def lie() -> None:
            there.receive(Kind.REQUEST)
            there.send(kind, *buffers)

        thread = threading.Thread(target=lie)
        thread.start()
        with pytest.raises(FrameError, match=complaint):
            client.fill(pool, 1)
        thread.join(5)
        assert pool.filled == 0
        assert here.closed


def test_one_request_brings_any_number_of_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(material, "CHUNK_BYTES", 3 * PLAN.packed_bytes(1))
    dealer = Dealer()
    with served(dealer, 0) as zero, served(dealer, 1) as one:
        pools = [client.open("work", PLAN) for client in (zero, one)]
        for client, pool in zip((zero, one), pools, strict=True):
            client.fill(pool, 8)
            client.fill(pool, 2)
        assert [pool.available for pool in pools] == [10, 10]
        assert list(PLAN.chunks(8)) == [3, 3, 2]


def test_a_dealer_that_fails_between_two_chunks_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(material, "CHUNK_BYTES", PLAN.packed_bytes(1))
    dealer = Dealer()
    deal = dealer.deal

    def deal_two(name: str, start: int, executions: int, rank: int):
        if start == 2:
            raise InputError("no more than two")
        return deal(name, start, executions, rank)

    monkeypatch.setattr(dealer, "deal", deal_two)
    with served(dealer, 1) as client:
        pool = client.open("work", PLAN)
        with pytest.raises(InputError, match="no more than two"):
            client.fill(pool, 5)
        assert pool.available == 2


def test_a_refused_order_leaves_the_link_as_it_was() -> None:
    dealer = Dealer()
    with served(dealer, 1) as client:
        with pytest.raises(PeerLost, match="no material is open"):
            client.fill(MaterialPool("unknown", PLAN, 1, bytes(32)), 10)
        pool = client.open("known", PLAN)
        with pytest.raises(MaterialReused, match="next to deal is 0"):
            request(client.link, {"operation": "deal", "scope": "known", "start": 5, "executions": 1}, timeout_s=5)
        client.fill(pool, 2)
        assert pool.available == 2
        assert not client.link.closed


def test_of_material_that_is_not_dealt_nothing_is_asked_for() -> None:
    plan = Plan((Need(Mask((4,)), 2),))
    dealer = Dealer()
    with served(dealer, 1) as client:
        pool = client.open("masks", plan)
        client.fill(pool, 3)
        assert pool.available == 3
        with pytest.raises(InputError, match="nothing of this material is dealt"):
            request(client.link, {"operation": "deal", "scope": "masks", "start": 0, "executions": 2**62}, timeout_s=5)


def test_a_dealer_that_was_started_again_loses_the_run_and_is_no_mistake_of_it() -> None:
    with served(Dealer(), 1) as before:
        pool = before.open("work", PLAN)
    with served(Dealer(), 1) as after, pytest.raises(PeerLost, match="started again"):
        after.fill(pool, 4)
