"""Which rows each step takes: public, drawn the same by all, each row at most once an epoch."""

from __future__ import annotations

import numpy as np
import pytest

from hdcos.errors import InputError
from hdcos.secure.training.shuffle import MIXED, Epoch, batches, block_rows, check_shuffle, order_words


@pytest.mark.parametrize(("seed", "epoch", "rows", "batch"), [(0, 0, 10, 3), (7, 2, 1000, 256), (2**40, 5, 70_001, 50)])
def test_all_rows_are_shuffled_as_they_always_were(seed, epoch, rows, batch) -> None:
    """A run that an earlier release began goes on with the batches it would have drawn."""
    order = np.random.default_rng([seed, epoch]).permutation(rows)
    wanted = [order[start : start + batch] for start in range(0, rows - batch + 1, batch)]
    found = batches(seed, epoch, rows, batch)
    assert len(found) == len(wanted)
    assert all(np.array_equal(one, other) for one, other in zip(found, wanted, strict=True))


@pytest.mark.parametrize(
    ("rows", "batch", "block"),
    [(1000, 7, 4), (MIXED * 8 + 3, 100, 8), (5 * MIXED * 16 + 1, 333, 16), (50, 50, 1024), (3, 2, 1)],
)
def test_blocks_hold_every_row_once_and_a_step_can_be_asked_for_alone(rows, batch, block) -> None:
    found = batches(3, 1, rows, batch, block)
    assert [len(one) for one in found] == [batch] * (rows // batch)
    taken = np.concatenate(found)
    assert len(np.unique(taken)) == len(taken)
    assert taken.min() >= 0
    assert taken.max() < rows
    for step in (len(found) - 1, 0, len(found) // 2):  # as a resumed run asks
        assert np.array_equal(Epoch(3, 1, rows, batch, block).take(step), found[step])


def test_rows_of_a_block_are_close_in_time_and_mixed_with_others() -> None:
    rows, block = 100 * MIXED, 4
    order = np.concatenate(batches(0, 0, rows, MIXED * block, block))
    place = np.empty(rows, np.int64)
    place[order] = np.arange(rows)
    spans = np.ptp(place.reshape(-1, block), axis=1)
    assert spans.max() < MIXED * block, "blocks that are mixed with each other are read together, and once"
    assert np.median(spans) > MIXED, "rows that lie together do not come together"
    other = np.concatenate(batches(0, 1, rows, MIXED * block, block))
    assert (order == other).mean() < 0.01, "every epoch has an order of its own"


def test_all_rows_get_their_turn_where_some_sit_out() -> None:
    seen = np.unique(np.concatenate([np.concatenate(batches(5, epoch, 103, 20, 4)) for epoch in range(60)]))
    assert len(seen) == 103, "the last block is shorter, and comes as often as others"


@pytest.mark.parametrize(("width", "rows"), [(1, 1024), (29, 1024), (128, 1024), (129, 512), (794, 128), (1 << 24, 1)])
def test_a_block_is_a_power_of_two_of_rows_and_at_most_a_megabyte(width, rows) -> None:
    assert block_rows(width) == rows


def test_the_order_of_blocks_takes_no_more_memory_for_more_rows() -> None:
    assert order_words(10**7, "rows", False) == 5 * 10**6
    assert order_words(10**7, "blocks", False) == order_words(10**9, "blocks", False) < 10**6
    assert order_words(10**6, "rows", True) == 3_500_000
    with pytest.raises(InputError, match="'rows' or 'blocks', not by 'columns'"):
        check_shuffle("columns")
