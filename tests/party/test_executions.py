"""Sets of numbers that are kept as runs."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from hdcos.party.allotment import Numbers

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
