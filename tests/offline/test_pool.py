"""Is all material consumed exactly once? A repeated, skipped or missing item is an error, not a wrong number."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from hdcos.errors import (
    DataMissing,
    FrameError,
    HandshakeError,
    InputError,
    MaterialExhausted,
    MaterialReused,
    PeerLost,
)
from hdcos.offline import Dealer, Mask, MaterialPool, Need, Plan, Reference, TrigPair
from hdcos.offline.kinds import MaskProduct

PLAN = Plan((Need(TrigPair((8,), 16, 16), 1), Need(Mask((8,), 20), 1)))


def opened(plan: Plan = PLAN, name: str = "test") -> tuple[Dealer, MaterialPool, MaterialPool]:
    dealer = Dealer()
    return dealer, *(MaterialPool(name, plan, rank, dealer.open(name, plan, rank)) for rank in (0, 1))


def deal(dealer: Dealer, zero: MaterialPool, one: MaterialPool, executions: int) -> None:
    start = one.filled
    zero.fill(start, executions, None)
    one.fill(start, executions, dealer.deal(one.name, start, executions))


def test_any_batches_that_sum_to_n_consume_what_was_dealt_for_n() -> None:
    dealer, zero, one = opened()
    deal(dealer, zero, one, 10)
    deal(dealer, zero, one, 7)
    pieces = []
    for batch in (1, 4, 6, 5, 1):
        allocations = zero.begin(batch), one.begin(batch)
        for need in PLAN.needs:
            fields = [allocation.take(need.kind, batch) for allocation in allocations]
            if need.kind.name == "trig_pair":
                pieces.append(fields[0][1] + fields[1][1])
        for allocation in allocations:
            allocation.finish()
    assert sum(len(piece) for piece in pieces) == 17
    assert zero.available == one.available == 0

    # A second pair of pools from the same roots gives the same values in one piece: batching changed nothing.
    whole0 = MaterialPool("test", PLAN, 0, zero._root)
    whole0.fill(0, 17, None)
    (_, cos0, _) = whole0.begin(17).take(PLAN.needs[0].kind, 17)
    assert cos0.shape == (17, 8)


@pytest.mark.parametrize("units", [1, 3])
def test_chunks_and_batches_of_any_sizes_meet_in_order(monkeypatch, units) -> None:
    """Whatever the pieces material arrives and lies in, execution i is execution i."""
    from hdcos.offline import pool as module

    generator = np.random.default_rng(0)
    for slab_bytes in (1, 700, 5000, 1 << 26):
        monkeypatch.setattr(module, "SLAB_BYTES", slab_bytes)
        dealer, zero, one = opened(Plan((Need(TrigPair((8,), 16, 16), units), Need(Mask((8,), 20), units))))
        expected = zero.uniform(0, 0, 60)
        for pool in (zero, one):
            pool.order(60)
        seen = []
        while zero.used < 60:
            if zero.filled < 60:
                deal(dealer, zero, one, int(min(60 - zero.filled, generator.integers(1, 9))))
            if zero.available and generator.random() < 0.7:
                allocation = zero.begin(int(generator.integers(1, zero.available + 1)))
                seen.extend(piece[0][0] for piece in allocation._pieces)
        assert (np.concatenate(seen) == expected).all()


def test_a_uniform_field_is_read_from_anywhere() -> None:
    _, zero, _ = opened(Plan((Need(Mask((8,), 20), 3),)))
    assert (zero.uniform(0, 5, 4) == zero.uniform(0, 0, 9)[15:]).all()


def test_more_than_is_available_is_exhausted_and_nothing_is_lost() -> None:
    dealer, zero, one = opened()
    deal(dealer, zero, one, 3)
    with pytest.raises(MaterialExhausted, match="4 executions of test needed, 3 available"):
        zero.begin(4)
    zero.begin(3)
    with pytest.raises(MaterialExhausted, match="0 available"):
        zero.begin(1)


def test_a_used_execution_is_never_handed_out_again() -> None:
    dealer, zero, one = opened()
    deal(dealer, zero, one, 5)
    zero.begin(2, start=0)
    with pytest.raises(MaterialReused, match="execution 1 asked for, 2 are used"):
        zero.begin(1, start=1)
    assert zero.used == 2


def test_executions_one_party_never_began_are_burnt_so_that_both_stay_together() -> None:
    dealer, zero, one = opened()
    deal(dealer, zero, one, 5)
    zero.begin(2, start=0)  # party 1 failed before it could begin these
    allocation0, allocation1 = zero.begin(1, start=2), one.begin(1, start=2)
    _, cos0, sin0 = allocation0.take(PLAN.needs[0].kind, 1)
    _, cos1, sin1 = allocation1.take(PLAN.needs[0].kind, 1)
    norm = (cos0 + cos1).astype(np.int64) ** 2 + (sin0 + sin1).astype(np.int64) ** 2
    assert np.abs(norm / 2**32 - 1).max() < 1e-4
    assert one.used == 3


def test_a_position_is_taken_once_in_order_and_as_planned() -> None:
    dealer, zero, one = opened()
    deal(dealer, zero, one, 4)
    allocation = zero.begin(1)
    with pytest.raises(MaterialReused, match="position 0"):
        allocation.take(PLAN.needs[1].kind, 1)
    with pytest.raises(MaterialReused, match="not 2 x"):
        allocation.take(PLAN.needs[0].kind, 2)
    allocation.take(PLAN.needs[0].kind, 1)
    with pytest.raises(MaterialReused, match="only 1 of 2"):
        allocation.finish()
    allocation.take(PLAN.needs[1].kind, 1)
    allocation.finish()
    with pytest.raises(MaterialReused, match="all are taken"):
        allocation.take(PLAN.needs[1].kind, 1)


def test_a_repeated_or_skipped_chunk_is_refused() -> None:
    dealer, zero, one = opened()
    deal(dealer, zero, one, 2)
    with pytest.raises(MaterialReused, match="executions from 0 arrived, next expected is 2"):
        one.fill(0, 2, np.zeros(256, np.uint8))
    with pytest.raises(MaterialReused, match="from 5 arrived"):
        one.fill(5, 1, np.zeros(128, np.uint8))
    with pytest.raises(MaterialReused, match="next to deal is 2"):
        dealer.deal("test", 3, 1)


def test_a_chunk_lost_on_the_way_is_dealt_again_as_it_was() -> None:
    dealer, zero, one = opened()
    lost = dealer.deal("test", 0, 3)
    again = dealer.deal("test", 0, 3)
    assert (lost == again).all()
    zero.fill(0, 3, None)
    one.fill(0, 3, again)


@pytest.mark.parametrize("executions", [0, -1])
def test_a_pool_never_runs_backwards(executions: int) -> None:
    dealer, zero, one = opened()
    deal(dealer, zero, one, 5)
    zero.begin(2)
    with pytest.raises(InputError, match="cannot be begun"):
        zero.begin(executions, start=2)
    with pytest.raises(MaterialReused):
        zero.fill(5, executions, None)
    assert zero.used == 2


def test_a_chunk_that_is_too_short_or_too_long_is_refused_and_leaves_the_pool_as_it_was() -> None:
    dealer, _, one = opened()
    corrections = dealer.deal("test", 0, 1)
    for wrong in (corrections[:-1], np.append(corrections, np.uint8(0)), None):
        with pytest.raises(FrameError):
            one.fill(0, 1, wrong)
    assert one.filled == 0
    one.fill(0, 1, corrections)


def test_what_was_ordered_is_expected_until_it_has_come_or_failed() -> None:
    dealer, zero, one = opened()
    with pytest.raises(InputError, match="-1 executions cannot be ordered"):
        zero.order(-1)
    zero.order(0)
    zero.order(4)
    deal(dealer, zero, one, 3)
    assert (zero.filled, zero.expected, zero.available) == (3, 4, 3)
    zero.order(2)
    assert zero.expected == 6
    zero.check(0, 6)
    with pytest.raises(MaterialExhausted):
        zero.check(0, 7)
    with pytest.raises(InputError):
        zero.check(0, 0)
    zero.fail(PeerLost("dealer is gone"))
    assert zero.expected == 3
    zero.check(1, 2)
    with pytest.raises(PeerLost, match="dealer is gone"):
        zero.check(0, 4)
    with pytest.raises(PeerLost, match="dealer is gone"):
        zero.begin(4)
    zero.order(1)
    zero.check(0, 4)
    with pytest.raises(MaterialExhausted):
        zero.check(0, 5)
    zero.begin(2)
    with pytest.raises(MaterialReused):
        zero.check(1, 1)
    assert (zero.used, zero.available) == (2, 1)


def test_fields_are_seen_before_they_are_taken_and_taken_once() -> None:
    dealer, zero, one = opened()
    deal(dealer, zero, one, 2)
    allocation = zero.begin(2)
    (mask,) = allocation.peek(1)
    assert mask.shape == (2, 8)
    assert allocation.position == 0
    allocation.take(PLAN.needs[0].kind, 2)
    assert allocation.position == 1
    assert (allocation.take(PLAN.needs[1].kind, 2)[0] == mask).all()


def test_what_is_made_of_fields_is_made_once_when_they_come_or_when_they_are_taken() -> None:
    def sum_up(fields, earlier):
        return fields[0], fields[1] + fields[2]

    root, taken = Dealer().open("test", PLAN, 0), []
    for told in ({}, {0: sum_up}):
        pool = MaterialPool("test", PLAN, 0, root, told)
        pool.fill(0, 3, None)
        taken.append(pool.begin(3).take(PLAN.needs[0].kind, 3, sum_up))
    assert [len(fields) for fields in taken] == [2, 2]
    assert all((now == before).all() for now, before in zip(*taken, strict=True))


def test_material_lies_in_one_piece_that_is_dropped_when_it_is_spent() -> None:
    dealer, zero, one = opened()
    zero.order(6)
    for count in (1, 2, 3):
        deal(dealer, zero, one, count)
    assert [(slab.capacity, slab.filled) for slab in zero._slabs] == [(6, 6)]
    assert len(one._slabs) == 3, "what was not ordered lies as it came"
    assert len(zero.begin(4).pieces) == 1
    assert [slab.spent for slab in zero._slabs] == [4]
    zero.begin(2)
    assert not zero._slabs
    for _ in range(3):
        one.begin(2)
    assert not one._slabs


def test_a_piece_that_is_not_full_yet_stays() -> None:
    dealer, zero, one = opened()
    zero.order(4)
    deal(dealer, zero, one, 2)
    zero.begin(2)
    assert [(slab.capacity, slab.filled, slab.spent) for slab in zero._slabs] == [(4, 2, 2)]
    deal(dealer, zero, one, 1)
    zero.begin(1)
    deal(dealer, zero, one, 5)
    assert [slab.filled for slab in zero._slabs] == [3, 5]
    zero.begin(1)
    assert [(slab.capacity, slab.spent) for slab in zero._slabs] == [(5, 1)]


@pytest.mark.parametrize("singly", [False, True])
def test_pieces_have_room_for_what_was_ordered_within_their_size(monkeypatch, singly) -> None:
    from hdcos.offline import pool as module

    dealer = Dealer()
    pool = MaterialPool("test", PLAN, 0, dealer.open("test", PLAN, 0), singly=singly)
    pool.order(100)
    pool.fill(0, 1, None)
    size = sum(field.nbytes for fields in pool._slabs[0].positions for field in fields) // pool._slabs[0].capacity
    assert pool._slabs[0].capacity == (1 if singly else 100)
    monkeypatch.setattr(module, "SLAB_BYTES", 7 * size)
    other = MaterialPool("other", PLAN, 0, dealer.open("other", PLAN, 0), singly=singly)
    other.order(100)
    other.fill(0, 2, None)
    assert other._slabs[0].capacity == (2 if singly else 7)
    other.fill(2, 20, None)
    assert [slab.capacity for slab in other._slabs] == [2 if singly else 7, 20]


def test_ordered_material_is_waited_for() -> None:
    _, zero, _ = opened()
    zero.order(1)
    threading.Timer(0.1, zero.fill, (0, 1, None)).start()
    started = time.monotonic()
    zero.begin(1, timeout_s=20)
    assert zero.used == 1
    assert time.monotonic() - started < 10, "those who wait are told"


def test_a_plan_without_material_is_filled_and_begun() -> None:
    _, zero, _ = opened(Plan(()))
    zero.fill(0, 3, None)
    zero.begin(2).finish()
    assert (zero.used, zero.available) == (2, 1)


def test_waiting_ends_with_the_reason_when_the_dealer_is_lost() -> None:
    _, zero, _ = opened()
    zero.order(1)
    threading.Timer(0.1, zero.fail, (PeerLost("dealer is gone"),)).start()
    started = time.monotonic()
    with pytest.raises(PeerLost, match="dealer is gone"):
        zero.begin(1, timeout_s=10)
    assert time.monotonic() - started < 5


def test_waiting_ends_when_its_time_is_up() -> None:
    _, zero, _ = opened()
    zero.order(1)
    with pytest.raises(PeerLost, match=r"within 0\.05 s"):
        zero.begin(1, timeout_s=0.05)


def test_half_a_minute_is_waited_unless_another_time_is_given(monkeypatch) -> None:
    waited: list[float] = []
    monkeypatch.setattr(threading.Condition, "wait_for", lambda self, ready, timeout: waited.append(timeout))
    _, zero, _ = opened()
    zero.order(1)
    with pytest.raises(PeerLost, match="within 30 s"):
        zero.begin(1)
    assert waited == [30]


def test_a_scope_is_opened_once_by_each_party_with_one_plan() -> None:
    dealer, *_ = opened()
    with pytest.raises(MaterialReused, match="party 0 has opened"):
        dealer.open("test", PLAN, 0)
    other = Plan(PLAN.needs[:1])
    dealer.open("second", PLAN, 0)
    with pytest.raises(HandshakeError, match="planned different material"):
        dealer.open("second", other, 1)


def test_a_closed_scope_deals_nothing_and_cannot_be_opened_again() -> None:
    dealer, *_ = opened()
    dealer.close("test", 0)
    assert len(dealer.deal("test", 0, 1))  # the other party still needs it
    dealer.close("test", 1)
    with pytest.raises(DataMissing, match="no material is open"):
        dealer.deal("test", 0, 1)
    with pytest.raises(MaterialReused):
        dealer.open("test", PLAN, 1)


def test_an_unreasonable_order_is_refused() -> None:
    dealer, *_ = opened()
    for executions in (0, -1, 1 << 40):
        with pytest.raises(InputError, match="cannot be dealt at once"):
            dealer.deal("test", 0, executions)


def test_a_reference_that_points_ahead_or_does_not_fit_is_refused() -> None:
    for needs in (
        (Need(MaskProduct("multiply", (2,), Reference(1), Reference(1)), 1), Need(Mask((2,)), 1)),
        (Need(Mask((2,)), 3), Need(MaskProduct("multiply", (2,), Reference(0), Reference(0)), 2)),
    ):
        with pytest.raises(InputError, match="position"):
            opened(Plan(needs))


def test_roots_and_streams_of_two_scopes_differ() -> None:
    _, zero, _ = opened(name="a")
    _, other, _ = opened(name="b")
    zero.fill(0, 1, None)
    other.fill(0, 1, None)
    kind = PLAN.needs[0].kind
    assert not (zero.begin(1).take(kind, 1)[1] == other.begin(1).take(kind, 1)[1]).any()


def test_what_precompute_replaces_is_not_kept_alive() -> None:
    """All fields of a chunk are expanded into one piece of memory: one that is kept must not keep the others."""
    plan = Plan((Need(TrigPair((1000,), 16, 16), 1),))
    dealer = Dealer()
    precomputes = {0: lambda fields, earlier: (fields[0], fields[1] + fields[2])}
    for rank in (0, 1):
        pool = MaterialPool("test", plan, rank, dealer.open("test", plan, rank), precomputes, singly=True)
        pool.fill(0, 4, dealer.deal("test", 0, 4) if rank else None)
        (slab,) = pool._slabs
        for field in slab.positions[0]:
            assert field.base is None
