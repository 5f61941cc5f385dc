"""Which rows each step takes: public, drawn the same by all, each row at most once an epoch."""

from __future__ import annotations

import numpy as np
import pytest

from hdcos.errors import InputError
from hdcos.secure.training.permutation import Permutation
from hdcos.secure.training.shuffle import LISTED, MIXED, Epoch, batches, block_rows, check_shuffle, order_words
from tests.chi_square import p_value


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


@pytest.mark.parametrize("size", [*range(1, 40), 255, 256, 257, 1000, 4096, 65_536, 99_999, 1 << 20])
def test_an_order_that_is_not_listed_has_every_row_once(size) -> None:
    order = Permutation([7, size], size).at(np.arange(size))
    assert np.array_equal(np.sort(order), np.arange(size))


def test_rows_go_to_all_places_alike_and_neighbours_to_any_distance() -> None:
    """Of 10^5 rows: where they go, how far apart neighbours come to lie, and where one row goes under many keys."""
    size, cells = 100_000, 50
    order = Permutation([11, 0], size).at(np.arange(size))
    parts = np.arange(size) * cells // size
    assert p_value(np.bincount(parts * cells + order * cells // size, minlength=cells * cells)) > 1e-3
    gaps = (order[1::2] - order[::2]) % size
    assert p_value(np.bincount(gaps * cells // size, minlength=cells)) > 1e-3
    first = np.array([Permutation([11, epoch], size).at(np.arange(2))[1] for epoch in range(3000)])
    assert p_value(np.bincount(first * 20 // size, minlength=20)) > 1e-3


def test_many_rows_are_shuffled_without_a_list_and_otherwise_in_each_epoch() -> None:
    rows, batch = LISTED + 12_345, 1 << 16
    epochs = [Epoch(3, number, rows, batch) for number in (0, 1)]
    found = [np.concatenate([epoch.take(step) for step in range(epoch.steps)]) for epoch in epochs]
    for order in found:
        assert len(np.unique(order)) == len(order) == rows // batch * batch
        assert order.min() >= 0
        assert order.max() < rows
    assert (found[0] == found[1]).mean() < 1e-4
    again = Epoch(3, 1, rows, batch)  # as a resumed run and the other party ask
    assert np.array_equal(again.take(5), found[1][5 * batch : 6 * batch])
    assert not again._drawn


def test_the_order_takes_no_more_memory_for_more_rows() -> None:
    assert order_words(LISTED, "rows", False) == LISTED // 2
    assert order_words(10**9, "rows", False) < LISTED // 2
    assert order_words(10**7, "blocks", False) == order_words(10**9, "blocks", False) < 10**6
    assert order_words(10**6, "rows", True) == 3_500_000
    with pytest.raises(InputError, match="'rows' or 'blocks', not by 'columns'"):
        check_shuffle("columns")
