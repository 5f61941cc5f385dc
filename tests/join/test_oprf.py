"""The loops of a join: compiled ones against their specification, and what each side of the function knows."""

from __future__ import annotations

import numpy as np
import pytest

from chi_square import p_value
from hdcos.errors import FrameError
from hdcos.join import reference
from hdcos.join.matching import bins_each, choose_bins
from hdcos.join.oprf import Receiver, Sender, loops
from hdcos.join.reference import ITEM_BYTES, ROW_BYTES, VALUE_BYTES, code_words
from hdcos.offline.ot import reference as transfers
from hdcos.offline.ot.session import loops as transfer_loops

SALT = bytes(range(32))


def random_bytes(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, np.uint8)


def schedules(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Keys as the compiled loops and as the specification want them."""
    return transfer_loops().key_schedule(keys.reshape(-1)), transfers.key_schedule(keys)


def test_the_compiled_loops_compute_what_is_specified() -> None:
    zero, one, code = (schedules(random_bytes(seed, count, 16)) for seed, count in ((1, 512), (2, 512), (3, 4)))
    items, secret, salt, person = (random_bytes(4, 256, 16), *(random_bytes(5, n) for n in (64, 32, 16)))
    made = loops().mask(zero[0], one[0], code[0], items, 5)
    expected = reference.mask(zero[1], one[1], code[1], items, 5)
    for mine, theirs in zip(made, expected, strict=True):
        assert np.array_equal(mine, theirs)
    u = random_bytes(6, 256, ROW_BYTES)
    q = loops().unmask(one[0], secret, u, 7)
    assert np.array_equal(q, reference.unmask(one[1], secret, u, 7))
    bins = np.random.default_rng(7).integers(0, 256, 100, np.uint64)
    compiled = loops().evaluate(q, secret, code[0], items[:100], bins, salt, person)
    assert np.array_equal(compiled, reference.evaluate(q, secret, code[1], items[:100], bins, salt, person))
    for width, size in ((16, 16), (64, 12), (96, 64), (1, 1)):
        rows = random_bytes(width, 20, width)
        hashed = loops().hash_rows(rows, bins[:20], salt, person, size)
        assert np.array_equal(hashed, reference.hash_rows(rows, bins[:20], salt, person, size))


@pytest.mark.parametrize(("items", "each", "fits"), [(900, 384, True), (40, 128, True), (400, 128, False)])
def test_a_table_holds_each_item_in_one_of_its_bins_or_says_that_it_cannot(items, each, fits) -> None:
    bins = choose_bins(random_bytes(items, items, ITEM_BYTES), each)
    assert all(((bins[:, part] // each) == part).all() for part in range(3))
    tables = np.full((2, 3 * each), -1, np.int64)
    done = [place(bins, table, 11, 1000) for place, table in zip((loops().place, reference.place), tables, strict=True)]
    assert done == [fits, fits]
    assert np.array_equal(*tables)
    if fits:
        taken = np.flatnonzero(tables[0] >= 0)
        assert sorted(tables[0][taken]) == list(range(items))
        assert all(place in bins[tables[0][place]] for place in taken)


def started() -> tuple[Receiver, Sender]:
    receiver, sender = Receiver(SALT), Sender(SALT)
    sender.start(receiver.message)
    receiver.start(sender.message)
    return receiver, sender


def test_the_sender_computes_the_receivers_values_of_the_same_items_and_others_of_others() -> None:
    receiver, sender = started()
    items, others = random_bytes(1, 384, ITEM_BYTES), random_bytes(2, 384, ITEM_BYTES)
    u, values = receiver.rows(items, 128)
    q = np.zeros((512, ROW_BYTES), np.uint8)
    q[128:] = sender.rows(u, 128)
    bins = np.arange(128, 512, dtype=np.uint64)
    assert np.array_equal(sender.values(q, items, bins), values)
    assert not (sender.values(q, others, bins) == values).all(1).any()
    assert not (sender.values(q, items[::-1], bins) == values).all(1).any()
    with pytest.raises(FrameError, match="rows of 128 bins"):
        sender.rows(u[:100], 0)


@pytest.mark.usefixtures("ideal_transfers")
def test_what_the_sender_sees_is_uniform_whatever_the_items_are() -> None:
    """Equal items in all bins and random ones: no byte of the rows, nor the sum of neighbours, can be told apart."""
    receiver, _ = started()
    same = np.zeros((2048, ITEM_BYTES), np.uint8)
    for number, items in enumerate((same, random_bytes(3, 2048, ITEM_BYTES))):
        u, _ = receiver.rows(items, 2048 * number)
        assert p_value(np.bincount(u.reshape(-1), minlength=256)) > 1e-6
        assert p_value(np.bincount((u[1:] ^ u[:-1]).reshape(-1), minlength=256)) > 1e-6
        assert len(np.unique(u, axis=0)) == len(u)


@pytest.mark.usefixtures("ideal_transfers")
def test_what_the_receiver_sees_of_other_items_is_uniform() -> None:
    receiver, sender = started()
    u, _ = receiver.rows(random_bytes(4, 2048, ITEM_BYTES), 0)
    q = sender.rows(u, 0)
    values = sender.values(q, np.zeros((2048, ITEM_BYTES), np.uint8), np.arange(2048, dtype=np.uint64))
    assert values.shape == (2048, VALUE_BYTES)
    assert p_value(np.bincount(values.reshape(-1), minlength=256)) > 1e-6
    assert len(np.unique(values, axis=0)) == len(values)


def test_code_words_are_far_apart() -> None:
    items = np.arange(2000, dtype=np.uint64).repeat(2).view(np.uint8).reshape(-1, ITEM_BYTES)
    words = code_words(random_bytes(5, 4, 16), items)
    distances = np.unpackbits(words[1:] ^ words[:-1], axis=1).sum(1)
    assert distances.min() > 128
    assert abs(distances.mean() - 256) < 3


def test_tables_have_room_and_whole_groups_of_bins() -> None:
    for rows in (1, 1000, 10**5, 10**6 + 1):
        each = bins_each(rows)
        assert each % 128 == 0
        assert 3 * each >= 1.27 * rows
        assert each >= 1024
