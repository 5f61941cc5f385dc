"""Comparisons that keep their bits: ReLU and the largest of a window, with what their gradients are multiplied by.

Computes  [v] of integers -> [max(v, 0)], [v] and whether v > 0 (`positive`); rows of n, a power of two -> the largest
          of each and, for every number, whether it is that, ties going to the first (`winners`); whether both of two
          bits are set (`both`).
Offline   `positive`: the material of relu. `winners`: one Mask, SignTables or SignKeys, RandomBit and BitTimesMask per
          comparison; from the second level on a BitProduct per number, and between levels a RandomBit of one bit.
Online    `positive`: the rounds and bits of relu. `winners`: those of `sign` log2 n times; bits of paths travel along.
Error     none: exact for v (of the largest, for differences), -2**(bits-2) < v <= 2**(bits-2).
Security  every value that is compared is opened under a mask of its own, and b as e = b ^ r under a random bit of its
          own: see sign. A bit is opened once. What is kept of it, e and shares of r, then enters products as a masked
          weight does: r m and r s are dealt as fresh shares for every one, and nothing of them is opened. The product
          of two bits is shared by XOR and masks nothing; it is opened under a random bit of its own.

v > 0 is v - 1 >= 0, and max(v, 0) = b (v - 1) + b. With p = e ^ r and q = f ^ s, p q = e f ^ e s ^ f r ^ r s.

The largest is found by a tree: two neighbours at a time, their difference modulo 2**bits, and the larger of both is the
second plus b times the difference. A number is the largest if its side won at every level: a product of as many bits.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from hdcos.errors import InputError
from hdcos.offline import BitProduct, Mask
from hdcos.offline.bilinear import stack
from hdcos.protocol import opening, sign
from hdcos.protocol.lifted import open_lifted
from hdcos.protocol.opening import Masked, open_shifted
from hdcos.protocol.party import Party
from hdcos.protocol.relu import chosen, times_bit
from hdcos.protocol.rounds import Price, Rounds, together
from hdcos.protocol.sign import TABLES, MaskedBit, check_bits, open_bit, sign_bit
from hdcos.ring import Array, modulo, packed_size
from hdcos.sharing import Public, Share


def positive(
    party: Party, v: Share, bits: int, way: str = TABLES, ring: int = 64
) -> Rounds[tuple[Share, Share, MaskedBit]]:
    """max(v, 0) modulo 2**ring, v in the whole ring, and whether v is positive, as a bit modulo 2**ring."""
    check_bits(bits, way)
    one = party.constant(Public(np.ones((), np.uint64))).words
    x = yield from open_lifted(party, Share(v.words - one, v.scale, v.bits), 0, bits)
    b = yield from open_bit(party, (yield from sign_bit(party, x.D, bits, x.reference, way)), ring)
    above = Share(times_bit(party, x, b).words + b.share(party).words, x.scale, ring)
    return above, Share(x.share(party).words + one, x.scale), b


def winners(party: Party, v: Share, bits: int, way: str = TABLES) -> Rounds[tuple[Share, Array]]:
    """The largest along the last axis, which becomes one of one number, modulo 2**bits; which it is, shared by XOR."""
    n = v.shape[-1]
    if len(v.shape) < 2 or n < 2 or n & (n - 1):
        raise InputError(f"the largest is chosen among 2, 4, 8 and so on along the last axis, got shape {v.shape}")
    check_bits(bits, way)
    v, b = yield from _larger(party, v, bits, way)
    path, opened = _sides(b, n), True
    won = path.by_xor(party)
    while v.shape[-1] > 1:
        if opened:
            v, b = yield from _larger(party, v, bits, way)
        else:
            (v, b), path = yield from together(_larger(party, v, bits, way), open_bit(party, won, 1))
        won, opened = both(party, path, _sides(b, n)), False
    return v, won


def _larger(party: Party, v: Share, bits: int, way: str) -> Rounds[tuple[Share, MaskedBit]]:
    """Of every two neighbours the larger, modulo 2**bits, and whether it is the first."""
    left, right = v[..., 0::2], v[..., 1::2]
    reference = party.next_reference()
    (mask,) = party.take(Mask(left.shape[1:], bits), len(v))
    D = yield from open_shifted(party, left - right, mask, 0, bits)
    b = yield from open_bit(party, (yield from sign_bit(party, D, bits, reference, way)), bits)
    unshifted = D.astype(np.uint64, copy=False) - np.uint64(1 << (bits - 2))
    difference = Masked(unshifted, Share(mask.astype(np.uint64, copy=False), v.scale, bits), reference)
    return right + chosen(party, difference, b), b


def _sides(b: MaskedBit, n: int) -> MaskedBit:
    """For each of n numbers whether its side won, where b says that of the first one."""
    opened, mask = stack(b.opened, b.opened ^ np.uint8(1)), stack(b.mask, b.mask)
    *rows, nodes = b.opened.shape
    both_sides = replace(b, opened=opened.reshape(*rows, 2 * nodes), mask=mask.reshape(*rows, 2 * nodes))
    return serving(both_sides, n // (2 * nodes))


def serving(b: MaskedBit, times: int) -> MaskedBit:
    """Each bit several times in a row, along the last axis: the same bits under the same masks, opened no more."""
    if times == 1:
        return b
    *rows, count = b.opened.shape
    opened, mask = (stack(*(x,) * times).reshape(*rows, count * times) for x in (b.opened, b.mask))
    return replace(b, opened=opened, mask=mask)


def both(party: Party, p: MaskedBit, q: MaskedBit) -> Array:
    """Whether both bits are set, shared by XOR: local."""
    (product,) = party.take(BitProduct(tuple(p.opened.shape[1:]), p.reference, q.reference), p.opened.shape[0])
    r, s = (modulo(bit.mask, 1).astype(np.uint8) for bit in (p, q))
    share: Array = (p.opened & s) ^ (q.opened & r) ^ product
    return share ^ (p.opened & q.opened) if party.rank == 0 else share


def positive_price(shape: tuple[int, ...], bits: int, way: str = TABLES, ring: int = 64) -> Price:
    count = prod(shape)
    product = Price(0, 0, packed_size(count, ring) + packed_size(count, ring - bits), ("bit_times_mask",))
    opened = opening.price(shape, bits, lift=True)
    return opened + sign.sign_price(shape, bits, way) + sign.bit_price(shape, ring) + product


def winners_price(shape: tuple[int, ...], bits: int, way: str = TABLES) -> Price:
    """Without the opening of which number it is."""
    *rows, n = shape
    total, level, size = Price(), n // 2, packed_size(prod(shape), 1)
    while level:
        count = prod(rows) * level
        one = sign.price((count,), bits, way, bits) + Price(0, 0, packed_size(count, bits), ("bit_times_mask",))
        if level < n // 4:  # the bits of the level before are opened along with the first round
            names = (one.material[0], "random_bit", *one.material[1:])
            one = Price(one.rounds, one.online_bytes + size, one.offline_bytes + size, names)
        total += one + (Price(0, 0, size, ("bit_product",)) if level < n // 2 else Price())
        level //= 2
    return total
