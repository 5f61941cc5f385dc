"""The place of the largest of each row, in three rounds by keys or four by tables: a label that nobody sees a score of.

Computes  [x], rows of k -> [the first place where v is largest], v = x / 2**drop, each party's share rounded once.
Offline   up to MOST_AT_ONCE classes one Mask, SignTables or SignKeys and RandomBit for each of k (k - 1) / 2 pairs, and
          a CountTable for each class. Above, by a tree: the material of a maximum, one Mask and BitTimesMask more.
Online    the rounds of `sign` and one more, for all pairs at once. By a tree the rounds of `sign` log2 k times.
Error     none: exact for v, differences below 2**(bits-2). Ties go to the lower place.
Security  signs of differences as in `sign`, every pair under masks of its own. Counts of wins are opened modulo a power
          of two under a mask that is uniform there, and used once; so are places in the tree. The result is a fresh
          sharing. Scores, differences, signs and counts are opened under masks or not at all.

Shares are rounded *before* they are subtracted: v_i >= v_j of integers is a total order, so somebody wins against all
others. Were each difference rounded for itself, i could win against j, j against l and l against i.

With b_ij = [v_i >= v_j] for i < j, class i wins w_i = sum of b_ij over j > i plus that of 1 - b_hi over h < i; the
winner has k - 1. D_i = w_i + s_i is opened, and the dealt table of class i, read at D_i, is 1 where D_i - s_i = k - 1.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from hdcos.errors import InputError
from hdcos.offline import CountTable
from hdcos.offline.bilinear import concatenate
from hdcos.offline.sign_kinds import MOST_CLASSES
from hdcos.protocol import relu, sign
from hdcos.protocol.lifted import open_lifted
from hdcos.protocol.opening import open_masked
from hdcos.protocol.party import Party
from hdcos.protocol.relu import chosen, times_bit
from hdcos.protocol.rounds import Price, Rounds, together
from hdcos.protocol.sign import BITS, DROP, TABLES, check_bits, masked_sign, open_bit, sign_bit
from hdcos.ring import Array, matmul, packed_size, pick
from hdcos.ring.device import constant_beside
from hdcos.sharing import Public, Share

MOST_AT_ONCE = 32


def argmax(party: Party, x: Share, drop: int = DROP, bits: int = BITS, way: str = TABLES) -> Rounds[Share]:
    """The place of the largest of each row, modulo a power of two above twice the number of places."""
    if len(x.shape) != 2 or not 2 <= x.shape[1] <= MOST_CLASSES:
        raise InputError(f"the largest is found among 2 to {MOST_CLASSES} numbers of each row, got shape {x.shape}")
    check_bits(bits, way)
    v = party.round(x, drop)
    if x.shape[1] <= MOST_AT_ONCE:
        return (yield from _by_counts(party, v, bits, way))
    return (yield from _by_tree(party, v, bits, way))


def label_bits(classes: int) -> int:
    """Of a label as a signed number."""
    return (classes - 1).bit_length() + 1


@cache
def _pairs(classes: int) -> tuple[Array, Array]:
    """The places i < j of all pairs."""
    left, right = np.triu_indices(classes, 1)
    return left, right


@cache
def _wins(classes: int) -> Array:
    """What each pair's bit adds to the wins of each class, as ring words: 1 for i, and -1 for j."""
    left, right = _pairs(classes)
    added = np.zeros((len(left), classes), np.int64)
    added[np.arange(len(left)), left] = 1
    added[np.arange(len(left)), right] = -1
    return added.view(np.uint64)


def _by_counts(party: Party, v: Share, bits: int, way: str) -> Rounds[Share]:
    """All pairs in one batch, then the class that won against all others."""
    rows, classes = v.shape
    left, right = (constant_beside(each, v.words) for each in _pairs(classes))
    difference = Share(v.words[:, left] - v.words[:, right], v.scale, v.bits)
    count_bits, ring = label_bits(classes) - 1, label_bits(classes)
    won = (yield from masked_sign(party, difference, bits, way, count_bits)).share(party)
    # 1 - b for each of the h < i: i times one in all.
    count = Share(matmul(won.words, constant_beside(_wins(classes), won.words)), 0, count_bits)
    count = count + party.constant(Public(np.arange(classes, dtype=np.uint64)))
    mask, table = party.take(CountTable((classes,), count_bits, classes - 1, ring), rows)
    D = yield from party.open(count, mask, 0, count_bits, periodic=True)
    winner = pick(table, D).astype(np.uint64, copy=False)
    places = constant_beside(np.arange(classes, dtype=np.uint64), winner)
    return Share((winner * places).sum(axis=1, dtype=np.uint64), 0, ring)


def _by_tree(party: Party, v: Share, bits: int, way: str) -> Rounds[Share]:
    """Neighbours first; the places of the winners are chosen by the same bits."""
    ring = label_bits(v.shape[1])
    place = party.constant(Public(np.arange(v.shape[1], dtype=np.uint64)))
    place = Share(v.words * np.uint64(0) + place.words, 0, ring)
    while (n := v.shape[1]) > 1:
        even = n // 2 * 2
        left, right = (v[:, start:even:2] for start in (0, 1))
        moved = place[:, 0:even:2] - place[:, 1:even:2]
        x, d = yield from together(open_lifted(party, left - right, 0, bits), open_masked(party, moved))
        b = yield from open_bit(party, (yield from sign_bit(party, x.D, bits, x.reference, way)))
        larger = right + times_bit(party, x, b)
        where = place[:, 1:even:2] + chosen(party, d, b)
        if n == even:
            v, place = larger, where
        else:
            v = Share(concatenate([larger.words, v.words[:, even:]], axis=1), v.scale, v.bits)
            place = Share(concatenate([where.words, place.words[:, even:]], axis=1), 0, ring)
    return place.reshape(len(place))


def price(shape: tuple[int, ...], bits: int = BITS, way: str = TABLES) -> Price:
    rows, classes = shape
    ring = label_bits(classes)
    if classes > MOST_AT_ONCE:
        return _tree_price(rows, classes, bits, way)
    compared = sign.price((rows, classes * (classes - 1) // 2), bits, way, ring - 1)
    tables = packed_size((rows * classes) << (ring - 1), ring)
    return compared + Price(1, packed_size(rows * classes, ring - 1), tables, ("count_table",))


def _tree_price(rows: int, classes: int, bits: int, way: str) -> Price:
    total, ring = Price(), label_bits(classes)
    while classes > 1:
        count = rows * (classes // 2)
        one = relu.price((rows, classes // 2), bits, way)
        names = (one.material[0], "mask", *one.material[1:], "bit_times_mask")
        size = packed_size(count, ring)
        total += Price(one.rounds, one.online_bytes + size, one.offline_bytes + size, names, one.common_bytes)
        classes = (classes + 1) // 2
    return total
