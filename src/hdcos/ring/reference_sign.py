"""The sign of an opened value in plain NumPy: the specification of the kernels behind `hdcos.ring.comparison`.

Both ways compute one party's share, by XOR, of b = 1 ^ top(D) ^ top(m) ^ [low(D) < low(m)], where D is public, m is
known to nobody, and low is all but the top of their `bits` bits. D - m, as a signed number, is negative where b = 0.

*Tables.* low(D) and low(m) in blocks, the highest first; the table of a block has bit x set where x is below m's block.
Below means: below in the first block, or equal there and below in the second, and so on.

*Distributed comparison function* (Boyle, Chandran, Gilboa, Gupta, Ishai, Kumar and Rathee, EUROCRYPT 2021). A binary
tree over all low(D): a node is a seed of 125 bits and a bit t, equal at both parties but on the path to low(m), where
seeds are unrelated and t differs. Children come from H(x) = P(x) ^ x, where P is AES-128 under a public key, another
one for each row of values (`cipher`), and x the seed with the side in its lowest bit: bit 0 of H is the child's t, bit
1 its value, bits from the third on its seed.
A word for each level, which both parties have, corrects seeds where t is set, and in its low three bits t on either
side and the value. Values along a path add up to what is wanted where it leaves that of low(m). The last seven levels
are one word with a bit for each of 128 leaves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from hdcos.ring.comparison import LEAF_BITS, dcf_levels, sign_blocks
from hdcos.ring.types import Compact, Words

Bits = npt.NDArray[np.uint8]

_ONE, _SEED = np.uint64(1), np.uint64(~7 % 2**64)


def sign_lookup(D: Compact, tables: Sequence[Compact], masks: Bits, bits: int, with_public: bool) -> tuple[Bits, Bits]:
    """What tables say at D: 1 ^ top(D) ^ below of the first block; and equal and below of the others, masked.

    The bits that are to be opened are equal of block 1, below and equal of block 2, and so on to below of the last.
    """
    words, before = D.astype(np.uint64), np.uint64(with_public)
    first = before & (~words >> np.uint64(bits - 1))
    asked, left = masks.astype(np.uint64), bits - 1
    for block, (table, width) in enumerate(zip(tables, sign_blocks(bits), strict=True)):
        left -= width
        x = (words >> np.uint64(left)) & np.uint64((1 << width) - 1)
        below = (table.astype(np.uint64) >> x) & _ONE
        # The bit before the first is 1: nothing is below zero, and so -1 is below everything.
        equal = below ^ (((table.astype(np.uint64) << _ONE) | before) >> x) & _ONE
        if block:
            asked ^= below << np.uint64(2 * block - 1)
        else:
            first ^= below
        if block + 1 < len(tables):
            asked ^= equal << np.uint64(2 * block)
    return first.astype(np.uint8), asked.astype(np.uint8)


def sign_combine(opened: Bits, masks: Bits, products: Compact, first: Bits, rules: Words, with_public: bool) -> Bits:
    """`first` and the parity of what the rule of the opened bits takes of masks, products and the constant 1."""
    word = masks.astype(np.uint64) | (products.astype(np.uint64) << np.uint64(rules.size.bit_length() - 1))
    word = (word | np.uint64(with_public << 63)) & rules[opened]
    for shift in (32, 16, 8, 4, 2, 1):
        word ^= word >> np.uint64(shift)
    result: Bits = first ^ (word & _ONE).astype(np.uint8)
    return result


def dcf_words(cipher: Words, root0: Words, root1: Words, mask: Compact, bits: int) -> Words:
    """The words of keys, (..., levels + 1, 2), from both parties' roots, (..., 2)."""
    point, levels = mask.astype(np.uint64).reshape(-1), dcf_levels(bits)
    words = np.empty((point.size, levels + 1, 2), np.uint64)
    top, value = (point >> np.uint64(bits - 1)) & _ONE, np.zeros_like(point)
    seeds = [_seed(root.reshape(-1, 2)) for root in (root0, root1)]
    t = [np.zeros_like(point), np.ones_like(point)]
    for level in range(levels):
        a = (point >> np.uint64(bits - 2 - level)) & _ONE
        children = [[_hash(cipher, seed, side) for side in (0, 1)] for seed in seeds]
        right = a.astype(bool)[:, None]
        keep: list[Words] = [np.where(right, sides[1], sides[0]) for sides in children]
        lose: list[Words] = [np.where(right, sides[0], sides[1]) for sides in children]
        correction: Words = lose[0] ^ lose[1]
        t_word = [(children[0][side] ^ children[1][side])[:, 0] & _ONE for side in (0, 1)]
        t_word = [t_word[0] ^ a ^ _ONE, t_word[1] ^ a]
        value_word = _value(correction) ^ value ^ top ^ a
        correction = _seed(correction)
        words[:, level] = correction
        words[:, level, 0] |= t_word[0] | (t_word[1] << _ONE) | (value_word << np.uint64(2))
        value = value ^ _value(keep[0]) ^ _value(keep[1]) ^ value_word
        kept_t = np.where(a.astype(bool), t_word[1], t_word[0])
        for party in (0, 1):
            seeds[party] = _seed(keep[party]) ^ correction * t[party][:, None]
            t[party] = (keep[party][:, 0] & _ONE) ^ (t[party] & kept_t)
    leaves = np.uint64(0) - (value ^ top)[:, None] ^ _ones_below(_leaf(point, bits))
    words[:, levels] = _hash(cipher, seeds[0], 2) ^ _hash(cipher, seeds[1], 2) ^ leaves
    return words.reshape(*mask.shape, levels + 1, 2)


def dcf_share(cipher: Words, root: Words, words: Words, D: Compact, bits: int, with_public: bool) -> Bits:
    """One party's share of b; the first party is the one `with_public`, whose t is 0 at the root."""
    x, levels = D.astype(np.uint64).reshape(-1), dcf_levels(bits)
    corrections, seed = words.reshape(x.size, levels + 1, 2), _seed(root.reshape(-1, 2))
    t = np.full(x.size, not with_public, np.uint64)
    value = (_ONE ^ (x >> np.uint64(bits - 1))) & np.uint64(with_public)
    for level in range(levels):
        side = (x >> np.uint64(bits - 2 - level)) & _ONE
        node, word = _hash(cipher, seed, side), corrections[:, level]
        value ^= _value(node) ^ (t & (word[:, 0] >> np.uint64(2)))
        seed = _seed(node ^ word * t[:, None])
        t = (node[:, 0] ^ (t & (word[:, 0] >> side))) & _ONE
    leaves = _hash(cipher, seed, 2) ^ corrections[:, levels] * t[:, None]
    place = _leaf(x, bits)
    chosen = np.where(place >> np.uint64(6), leaves[:, 1], leaves[:, 0])
    share: Bits = ((value ^ (chosen >> (place & np.uint64(63)))) & _ONE).astype(np.uint8)
    return share.reshape(D.shape)


def _seed(blocks: Words) -> Words:
    """Blocks without the bits that are no part of a seed."""
    seeds: Words = blocks & np.array([_SEED, ~np.uint64(0)])
    return seeds


def _value(blocks: Words) -> Words:
    value: Words = (blocks[:, 0] >> _ONE) & _ONE
    return value


def _hash(cipher: Words, seed: Words, side: Any) -> Words:
    """P(x) ^ x for x the seed with a side, or 2 for the leaves, and P that of its row."""
    x = seed.copy()
    x[:, 0] |= np.asarray(side, np.uint64)
    rows = x.astype("<u8").reshape(len(cipher), len(x) // max(1, len(cipher)), 2)
    keys = (algorithms.AES(key.tobytes()) for key in cipher.astype("<u8"))
    made = [Cipher(key, modes.ECB()).encryptor().update(row.tobytes()) for key, row in zip(keys, rows, strict=True)]
    hashed: Words = np.frombuffer(b"".join(made), "<u8").reshape(-1, 2).astype(np.uint64) ^ x
    return hashed


def _leaf(x: Words, bits: int) -> Words:
    place: Words = x & np.uint64((1 << min(bits - 1, LEAF_BITS)) - 1)
    return place


def _ones_below(place: Words) -> Words:
    """128 bits, those before the place set."""
    part, upper = (_ONE << (place & np.uint64(63))) - _ONE, np.uint64(0) - (place >> np.uint64(6))
    ones: Words = np.stack([part | upper, part & upper], axis=1)
    return ones
