"""Executions by number, each handed out once; and sets of numbers that are kept as runs."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdcos.errors import MaterialReused
from hdcos.offline import Dealer, Mask, MaterialPool, Need, Plan
from hdcos.party.allotment import Executions, Numbers
from hdcos.ring.device import device_of

PLAN = Plan((Need(Mask((3,)), 2), Need(Mask((2,)), 1)))

run = st.tuples(st.integers(0, 60), st.integers(1, 8))


@given(st.lists(st.tuples(st.sampled_from(["add", "raise"]), run), max_size=40), run)
def test_runs_hold_what_a_set_would_hold(steps, asked) -> None:
    numbers, known = Numbers(), set()
    for what, (first, count) in steps:
        if what == "add":
            numbers.add(first, first + count)
            known |= set(range(first, first + count))
        else:
            numbers.raise_floor(first)
            known |= set(range(first))
    first, count = asked
    assert numbers.meets(first, first + count) == bool(known & set(range(first, first + count)))
    runs = list(numbers)
    assert all(left[1] < right[0] for left, right in pairwise(runs))
    assert set(range(numbers.floor)) | {number for low, high in runs for number in range(low, high)} == known


def test_what_comes_in_order_is_one_run() -> None:
    numbers = Numbers()
    for first in range(0, 100_000, 10):
        numbers.add(first, first + 10)
    assert list(numbers) == [(0, 100_000)]
    numbers.raise_floor(5)
    assert numbers.floor == 100_000
    assert list(numbers) == []


def executions_of(*chunks: int, plan: Plan = PLAN, device: Any = None) -> Executions:
    pool = MaterialPool("scope", plan, 0, Dealer().open("scope", plan, 0), device=device)
    for count in chunks:
        pool.fill(pool.filled, count, None)
    return Executions(pool, 0.1)


@pytest.mark.parametrize("seed", range(5))
def test_executions_are_had_in_any_order_and_each_is_itself(seed: int) -> None:
    random, executions = np.random.default_rng(seed), executions_of(7, 1, 20, 12)
    expected = [executions.pool.uniform(position, 0, 40) for position in (0, 1)]
    borders = [0, *sorted(random.choice(np.arange(1, 40), 9, replace=False).tolist()), 40]
    runs = random.permutation([(first, end - first) for first, end in pairwise(borders)]).tolist()
    for some in (runs[:4], runs[4:5], runs[5:]):
        numbers = np.concatenate([np.arange(first, first + count) for first, count in some])
        allocation = executions.take([(first, count) for first, count in some])
        double = (2 * numbers[:, None] + [0, 1]).ravel()
        assert (allocation.take(PLAN.needs[0].kind, 2 * len(numbers))[0] == expected[0][double]).all()
        assert (allocation.take(PLAN.needs[1].kind, len(numbers))[0] == expected[1][numbers]).all()
        allocation.finish()
    assert not executions._blocks, "what was handed out is not kept"


def test_no_execution_is_handed_out_twice() -> None:
    executions = executions_of(10)
    executions.take([(2, 3)])
    for first, count in ((2, 1), (4, 1), (0, 3), (4, 3), (0, 9)):
        with pytest.raises(MaterialReused, match=f"one of {count} executions from {first} was used before"):
            executions.take([(first, count)])
    for runs in ([], [(5, 2), (6, 1)], [(6, 1), (5, 2)], [(7, 1), (7, 1)]):
        with pytest.raises(MaterialReused, match="asked for twice, or none was"):
            executions.take(runs)
    executions.take([(6, 1), (5, 1)])
    executions.take([(0, 2)])
    executions.take([(7, 3)])


def test_what_is_burnt_is_dropped_and_never_handed_out() -> None:
    executions = executions_of(4, 6)
    executions.burn_before(0)
    assert executions.pool.used == 0
    executions.burn_before(2)
    assert executions.pool.used == 2
    with pytest.raises(MaterialReused, match="used before"):
        executions.take([(1, 1)])
    executions.take([(8, 1)])
    executions.burn_before(4)
    assert [(block.first, block.count, block.left) for block in executions._blocks] == [(4, 5, 4)]
    with pytest.raises(MaterialReused, match="used before"):
        executions.take([(3, 1)])
    executions.take([(4, 1)])
    executions.burn_before(8)
    assert not executions._blocks
    executions.burn_before(50)
    assert executions.pool.used == 10


def test_a_plan_without_material_has_executions_too() -> None:
    executions = executions_of(2, 3, plan=Plan(()))
    allocation = executions.take([(1, 3)])
    allocation.finish()
    assert len(allocation.pieces) == 1
    executions.take([(0, 1), (4, 1)]).finish()
    with pytest.raises(MaterialReused):
        executions.take([(4, 1)])


def test_what_a_plan_without_material_handed_out_is_not_kept() -> None:
    executions = executions_of(2, 3, 4, plan=Plan(()))
    for number in (0, 2, 1, 8, *range(3, 8)):
        executions.take([(number, 1)]).finish()
    assert not executions._blocks


def test_executions_beside_a_border_lie_in_one_piece() -> None:
    """So they need no copy, and can be looked at before they are taken."""
    executions = executions_of(4, 6)
    expected = executions.pool.uniform(1, 0, 10)
    executions.take([(9, 1)])
    for first in (3, 4):
        allocation = executions.take([(first, 1)])
        assert len(allocation.pieces) == 1
        assert (allocation.peek(1)[0] == expected[first]).all()


def test_executions_say_on_which_device_they_lie(device: Any) -> None:
    """A party puts rows beside its material."""
    allocation = executions_of(4, 6, device=device).take([(3, 2)])
    assert allocation.device is device
    assert device_of(allocation.take(PLAN.needs[0].kind, 4)[0]) is device
