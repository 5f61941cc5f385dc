"""Material row by row: how much is ordered, what is written down first, and who gets which mask until when."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from hdcos.errors import InputError, MaterialExhausted, MaterialReused, PolicyRefused
from hdcos.offline import Dealer, MaterialPool, Need, Plan
from hdcos.offline.kinds import Mask
from hdcos.party import allotment as module
from hdcos.party.allotment import CallerAllotment, MaterialAllotment, runs_of, split_runs

BLOCK = 4096
PLAN = Plan((Need(Mask((3,)), 1),))
AHEAD = 1000


class Clock:
    now = 1000.0

    def monotonic(self) -> float:
        return self.now


class Ledger:
    """What a store would write down."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, int, int]] = []

    def reserve(self, *entry) -> None:
        self.entries.append(entry)


@pytest.fixture
def clock(monkeypatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def allotment_of(filled: int, ordered: int = 0, name: str = "scope", pair_seed: bytes = bytes(32)) -> MaterialAllotment:
    pool = MaterialPool(name, PLAN, 0, Dealer().open(name, PLAN, 0))
    pool.order(filled + ordered)
    if filled:
        pool.fill(0, filled, None)
    return MaterialAllotment(pool, AHEAD, Ledger(), SimpleNamespace(material_s=1.0, pair_seed=pair_seed))


# ---- how much


def test_more_is_ordered_when_half_of_what_is_kept_ahead_is_gone(clock) -> None:
    allotment = allotment_of(0, AHEAD)
    assert allotment.wanted() == AHEAD
    allotment.allot(AHEAD // 2 - 1)
    assert allotment.wanted() == AHEAD
    allotment.allot(1)
    assert allotment.wanted() == AHEAD + AHEAD // 2


def test_more_is_kept_for_a_while(clock) -> None:
    allotment = allotment_of(10)
    allotment.boost(AHEAD + 5)
    assert (allotment.ahead, allotment.boosted, allotment.most_rows) == (AHEAD + 5, 5, AHEAD)
    clock.now += 599.5
    assert allotment.ahead == AHEAD + 5
    clock.now += 0.5
    assert (allotment.ahead, allotment.boosted) == (AHEAD, 0)
    allotment.boost(5)
    assert (allotment.ahead, allotment.boosted) == (AHEAD, 0)


def test_rows_are_allotted_in_order_as_long_as_their_material_comes(clock) -> None:
    allotment = allotment_of(6, 4)
    assert allotment.free == 6
    assert [allotment.allot(3), allotment.allot(4)] == [0, 3]
    assert (allotment.allotted, allotment.free) == (7, 0)
    with pytest.raises(MaterialExhausted, match="4 more rows"):
        allotment.allot(4)
    assert allotment.allot(3) == 7
    assert allotment.allotted == 10


def test_what_was_spent_is_not_free(clock) -> None:
    allotment = allotment_of(6)
    allotment.executions.take([(3, 1)])
    assert allotment.free == 2


def test_executions_are_written_down_in_blocks_before_they_are_promised(clock) -> None:
    allotment = allotment_of(3, 3 * BLOCK)
    entries = allotment._ledger.entries
    allotment.allot(1)
    assert entries == [("scope", 0, BLOCK)]
    allotment.allot(BLOCK - 1)
    assert len(entries) == 1
    allotment.allot(1)
    assert entries[1:] == [("scope", BLOCK, BLOCK)]
    allotment.reserve([(4 * BLOCK, 1)], "shares")
    assert entries[2:] == [("scope", 2 * BLOCK, 2 * BLOCK + 1)]
    allotment.reserve([(4, 1)], "shares")
    assert allotment.allotted == 4 * BLOCK + 1
    assert len(entries) == 3


# ---- masks


def test_masks_are_this_partys_shares_of_the_executions_they_name(clock) -> None:
    allotment = allotment_of(20)
    allotment.allot(4)
    numbers, share = allotment.hand_out(3, "me", 60.0)
    assert numbers == range(4, 7)
    assert np.array_equal(share, allotment.pool.uniform(0, 4, 3))
    assert np.array_equal(allotment.issue([9, 10], "me", 60.0), allotment.pool.uniform(0, 9, 2))
    assert allotment.allotted == 11
    for again in ([4], [6, 7], [10], [8, 9], [7, 8, 9]):
        with pytest.raises(MaterialReused, match="handed out before"):
            allotment.issue(again, "me", 60.0)
    allotment.issue([7, 8], "me", 60.0)


def test_masks_that_do_not_follow_each_other_or_do_not_exist_are_refused(clock) -> None:
    allotment = allotment_of(20)
    for numbers in ([1, 3], [2, 1], [1, 1]):
        with pytest.raises(InputError, match="one after another"):
            allotment.issue(numbers, "me", 60.0)
    most = 20 + 2 * AHEAD
    for numbers in ([-1], [-1, 0], [most], [most - 1, most]):
        with pytest.raises(InputError, match="do not exist"):
            allotment.issue(numbers, "me", 60.0)
    allotment.issue([most - 1], "me", 60.0)
    allotment.issue([0], "me", 60.0)


def test_a_client_holds_a_number_of_masks_until_they_are_used_or_expire(clock) -> None:
    allotment = allotment_of(5000)
    most = AHEAD // 2
    allotment.hand_out(most - 1, "eve", 60.0)
    with pytest.raises(PolicyRefused, match=f"{most - 1} masks"):
        allotment.hand_out(2, "eve", 60.0)
    allotment.hand_out(1, "eve", 90.0)
    allotment.hand_out(most, "victim", 60.0)
    with pytest.raises(PolicyRefused, match=f"{most} masks"):
        allotment.issue([4000], "eve", 60.0)
    clock.now += 59.5
    with pytest.raises(PolicyRefused):
        allotment.hand_out(1, "eve", 60.0)
    clock.now += 0.5
    allotment.hand_out(most - 1, "eve", 60.0)


def test_every_client_may_hold_a_few_masks(clock) -> None:
    allotment = allotment_of(600)
    allotment._ahead = 2
    allotment.hand_out(256, "me", 60.0)
    with pytest.raises(PolicyRefused):
        allotment.hand_out(1, "me", 60.0)


def test_a_mask_is_claimed_once_in_time_and_by_its_owner(clock) -> None:
    allotment = allotment_of(20)
    allotment.hand_out(6, "me", 60.0)
    for numbers, owner, said in (
        ([0, 1, 0], "me", "named twice"),
        ([0], "you", "not handed out to this client"),
        ([6], "me", "not handed out to this client"),
    ):
        with pytest.raises(MaterialReused, match=said):
            allotment.claim(numbers, owner)
    allotment.claim([0], "me")
    with pytest.raises(MaterialReused, match="used before"):
        allotment.claim([1, 0], "me")
    clock.now += 60.0
    allotment.claim([1], "me")
    clock.now += 0.1
    with pytest.raises(MaterialReused, match="expired"):
        allotment.claim([2], "me")


def test_material_is_kept_while_a_mask_or_a_request_may_need_it(clock) -> None:
    allotment = allotment_of(20)
    assert allotment.expired_before() == 0
    allotment.allot(2)
    assert allotment.expired_before() == 2
    allotment.hand_out(3, "me", 60.0)
    assert allotment.expired_before() == 2
    clock.now += 30.0
    allotment.claim([2, 3], "me")
    assert allotment.expired_before() == 2
    clock.now += 59.5
    assert allotment.expired_before() == 2
    clock.now += 0.5
    assert allotment.expired_before() == 4, "the request has run; the last mask expired less than a minute ago"
    clock.now += 29.5
    assert allotment.expired_before() == 4
    clock.now += 0.5
    assert allotment.expired_before() == 5


def test_claims_of_long_ago_are_forgotten(clock) -> None:
    allotment = allotment_of(20)
    allotment.hand_out(4, "me", 1000.0)
    for number in range(3):
        allotment.claim([number], "me")
        clock.now += 30.0
    assert [first for _, first in allotment._claimed] == [1, 2]
    allotment.expired_before()
    assert [first for _, first in allotment._claimed] == [2]


def test_what_is_burnt_is_written_down_and_gone(clock) -> None:
    allotment = allotment_of(20)
    allotment.hand_out(6, "me", 60.0)
    allotment.burn_before(1)
    assert allotment.pool.used == 1
    allotment.burn_before(4)
    assert (allotment.pool.used, allotment.allotted, sorted(allotment._held)) == (4, 6, [4, 5])
    with pytest.raises(MaterialReused):
        allotment.issue([3], "me", 60.0)
    allotment.burn_before(3)
    assert allotment._burnt == 4
    allotment.burn_before(10)
    assert (allotment.pool.used, allotment.allotted, allotment._held) == (10, 10, {})
    with pytest.raises(MaterialReused):
        allotment.issue([8], "me", 60.0)  # nobody had it, and nobody gets it any more
    allotment.burn_before(BLOCK + 1)
    assert allotment._ledger.entries == [("scope", 0, BLOCK), ("scope", BLOCK, BLOCK)]


# ---- names of masks


def test_only_ids_that_were_made_for_this_material_name_a_mask(clock) -> None:
    allotment = allotment_of(2)
    numbers = [0, 9, 10, 255, 16**12 - 1]
    ids = [allotment.mask_id(number) for number in numbers]
    assert allotment.numbers(ids) == numbers
    assert ids[3].startswith("ff.")
    others = [allotment_of(2, name="other"), allotment_of(2, pair_seed=bytes(31) + b"x")]
    wrong = [other.mask_id(9) for other in others]
    wrong += [ids[0].replace("0.", "1.", 1), ids[1][:-1], ids[1] + "0", "9", "", ".", "9."]
    wrong += [f"{text}.{allotment._tag(text)}" for text in ("-1", " 1", "1" * 13, "", "+1", "1_0", "\u0661")]
    for text in wrong:
        with pytest.raises(MaterialReused, match="another model, version or session"):
            allotment.numbers([ids[0], text])


def test_a_tag_is_too_long_to_be_guessed(clock) -> None:
    assert len(allotment_of(2).mask_id(1).partition(".")[2]) == 24


def test_numbers_become_runs_in_their_order() -> None:
    assert runs_of([]) == ()
    assert runs_of([3, 4, 5, 9, 1, 2, 2]) == ((3, 3), (9, 1), (1, 2), (2, 1))


# ---- the one caller of a cluster on its machine


def caller_allotment(filled: int = 20) -> CallerAllotment:
    pool = MaterialPool("scope", PLAN, 0, Dealer().open("scope", PLAN, 0))
    pool.fill(0, filled, None)
    return CallerAllotment(pool, 1.0)


def test_a_caller_gets_each_input_mask_once() -> None:
    allotment = caller_allotment()
    assert (allotment.issue(0, 4) == allotment.pool.uniform(0, 0, 4)).all()
    for start in (0, 3):
        with pytest.raises(MaterialReused, match=f"row {start} was handed out"):
            allotment.issue(start, 1)
    assert (allotment.issue(4, 1) == allotment.pool.uniform(0, 4, 1)).all()


def test_a_caller_gets_no_mask_of_a_row_that_was_run() -> None:
    allotment = caller_allotment()
    allotment.take([(0, 8)])
    with pytest.raises(MaterialReused, match="row 7 was handed out"):
        allotment.issue(7, 1)
    assert len(allotment.issue(8, 1)) == 1


@pytest.mark.parametrize("rows", [0, (1 << 24) + 1])
def test_a_caller_gets_a_sensible_number_of_masks(rows) -> None:
    with pytest.raises(InputError, match="cannot be handed out at once"):
        caller_allotment().issue(0, rows)
    most = CallerAllotment(SimpleNamespace(used=0, uniform=lambda position, start, count: (position, start, count)), 1)
    assert most.issue(5, 1 << 24) == (0, 5, 1 << 24)


def test_rows_come_masked_exactly_if_their_masks_were_handed_out() -> None:
    allotment = caller_allotment()
    allotment.issue(0, 5)
    allotment.reserve([(0, 5)], "masked")
    allotment.reserve([(5, 3)], "shares")
    with pytest.raises(MaterialReused, match="cannot come as shares"):
        allotment.reserve([(4, 2)], "shares")
    with pytest.raises(InputError, match="rows 4 to 6 were not handed out"):
        allotment.reserve([(4, 2)], "masked")
    with pytest.raises(MaterialExhausted):
        allotment.reserve([(5, 16)], "shares")
    assert len(allotment.take([(0, 5)]).take(PLAN.needs[0].kind, 5)[0]) == 5
    assert allotment.pool.used == 5


def test_masked_rows_are_run_in_any_order_and_each_once() -> None:
    """Threads of a caller fetch masks one after the other and come as they come."""
    allotment, like = caller_allotment(), MaterialPool("scope", PLAN, 0, Dealer().open("scope", PLAN, 0))
    like._root = allotment.pool._root
    like.fill(0, 20, None)
    expected = like.begin(20).take(PLAN.needs[0].kind, 20)[0]
    allotment.issue(0, 12)
    for first, count in ((8, 4), (0, 3), (3, 5)):
        allotment.reserve([(first, count)], "masked")
        taken = allotment.take([(first, count)]).take(PLAN.needs[0].kind, count)[0]
        assert (taken == expected[first : first + count]).all()
        for ask in (lambda run: allotment.reserve(run, "masked"), allotment.take):
            with pytest.raises(MaterialReused, match="was used before"):
                ask([(first + count - 1, 1)])
    assert allotment.pool.used == 12


def test_what_a_caller_passes_over_is_burnt_unless_its_mask_was_handed_out() -> None:
    allotment = caller_allotment()
    allotment.issue(0, 4)
    allotment.take([(10, 2)])
    assert allotment.pool.used == 12
    for passed in range(4, 10):
        with pytest.raises(MaterialReused, match="was used before"):
            allotment.take([(passed, 1)])
    assert len(allotment.take([(0, 4)]).take(PLAN.needs[0].kind, 4)[0]) == 4
    assert not allotment._executions._blocks  # nothing that nobody can ask for is kept


def test_masks_that_will_not_be_used_keep_no_material() -> None:
    allotment = caller_allotment()
    allotment.issue(0, 8)
    allotment.take([(10, 2)])
    assert allotment._executions._blocks
    allotment.burn_before(8)
    assert not allotment._executions._blocks
    with pytest.raises(MaterialReused, match="was used before"):
        allotment.take([(0, 8)])


def test_runs_are_cut_into_parts() -> None:
    assert split_runs([(10, 4), (20, 3)], [1, 4, 2]) == [[(10, 1)], [(11, 3), (20, 1)], [(21, 2)]]
    assert split_runs([(10, 4), (20, 3)], [4, 0, 3]) == [[(10, 4)], [], [(20, 3)]]
    assert split_runs([], []) == []
