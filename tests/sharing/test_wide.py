"""Shares of wide numbers: they add up, with all carries, and each alone is uniform whatever the number is."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chi_square import p_value
from hdcos.errors import InputError
from hdcos.sharing.wide import BITS, add_wide, check_wide, join_wide, split_wide

NUMBERS = st.lists(st.integers(-(1 << (BITS - 5)), 1 << (BITS - 5)), min_size=3, max_size=3)


@given(st.lists(NUMBERS, min_size=1, max_size=8))
def test_sums_of_shares_are_shares_of_sums(owners) -> None:
    shares = [split_wide(numbers) for numbers in owners]
    zero, one = (add_wide(side) for side in zip(*shares, strict=True))
    assert join_wide(zero, one) == [sum(column) for column in zip(*owners, strict=True)]


@pytest.mark.parametrize("number", [0, -1, (1 << (BITS - 1)) - 1])
def test_every_share_of_any_number_is_uniform(number) -> None:
    for share in split_wide([number] * 2000):
        for place in range(0, 64, 9):  # the lowest byte and the highest, and some between
            counts = np.bincount(share.view(np.uint8).reshape(-1, 64)[:, place], minlength=256)
            assert p_value(counts) > 1e-6


def test_what_is_no_share_is_refused() -> None:
    with pytest.raises(InputError, match="does not fit"):
        split_wide([1 << (BITS - 1)])
    for words in (None, np.zeros((2, 7), np.uint64), np.zeros((3, 8), np.uint64), np.zeros((2, 8))):
        with pytest.raises(InputError, match="a share of 2 numbers"):
            check_wide(words, 2)
    with pytest.raises(InputError, match="have shapes"):
        join_wide(np.zeros((1, 8), np.uint64), np.zeros((2, 8), np.uint64))
