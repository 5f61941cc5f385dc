"""ReLU of a shared value, in two rounds by keys or three by tables; absolute values, maxima and clipping from it.

Computes  [x] -> [max(v, 0)], v = x / 2**drop, each party's share rounded. Of the same integers: |v|, max and min of
          two, the largest along the last axis, v times a slope where it is negative, v between two public numbers.
Offline   one RoundingMask, one SignTables or SignKeys, one RandomBit and one BitTimesMask per comparison.
Online    the rounds and bits of `sign`: the product with the sign is local. A maximum of n takes them log2 n times.
Error     none: exact for v, |v| < 2**(bits-2) (of two numbers, their difference). v is off from x / 2**drop by less
          than one unit. A slope is rounded to SLOPE_SCALE bits.
Security  that of `sign`: what is opened is D, under a mask m that is uniform and used once, then bits under uniform
          bits. r m and r a are dealt as fresh shares and never opened.

With D opened, v = E - m + t a in the whole ring, a the top of m (see opening), so r v = E r - [r m] + t [r a]; and
b = e ^ r makes b v = r v where e = 0, and v - r v where e = 1.
"""

from __future__ import annotations

from math import prod

import numpy as np

from hdcos.errors import InputError
from hdcos.offline import BitTimesMask
from hdcos.offline.bilinear import concatenate, stack
from hdcos.protocol import sign
from hdcos.protocol.lifted import Lifted, open_lifted
from hdcos.protocol.opening import Masked
from hdcos.protocol.party import Party
from hdcos.protocol.rounds import Price, Rounds
from hdcos.protocol.sign import BITS, DROP, TABLES, MaskedBit, check_bits, open_bit, public_bound, sign_bit
from hdcos.ring import modulo, packed_size
from hdcos.sharing import Public, Share

SLOPE_SCALE = 16


def relu(party: Party, x: Share, drop: int = DROP, bits: int = BITS, way: str = TABLES) -> Rounds[Share]:
    """max(v, 0)."""
    positive, _ = yield from split_at_zero(party, party.round(x, drop), bits, way)
    return positive


def split_at_zero(party: Party, v: Share, bits: int, way: str) -> Rounds[tuple[Share, Share]]:
    """max(v, 0) and v of an integer, both in the whole ring."""
    check_bits(bits, way)
    x = yield from open_lifted(party, v, 0, bits)
    b = yield from open_bit(party, (yield from sign_bit(party, x.D, bits, x.reference, way)))
    return times_bit(party, x, b), x.share(party)


def times_bit(party: Party, x: Lifted, b: MaskedBit) -> Share:
    """x where b is set, else zero, in the ring of b: local. Along a last axis of one, x serves all bits of b."""
    kind = BitTimesMask(tuple(b.opened.shape[1:]), b.reference, x.reference, x.bits, ring=b.bits)
    r_m, r_a = (field.astype(np.uint64, copy=False) for field in party.take(kind, x.shape[0]))
    product = x.E * b.mask - r_m + x.t * r_a
    e, whole = b.opened.astype(np.uint64, copy=False), x.share(party).words
    return Share(product + e * (whole - product - product), x.scale, b.bits)


def chosen(party: Party, d: Masked, b: MaskedBit) -> Share:
    """d where b is set, else zero, modulo 2**bits of d: r d = r D - [r m], and b = e ^ r. Local."""
    kind = BitTimesMask(d.shape[1:], b.reference, d.reference, d.bits, lifted=False)
    (r_m,) = party.take(kind, d.shape[0])
    product = d.opened * b.mask - r_m.astype(np.uint64, copy=False)
    e = b.opened.astype(np.uint64, copy=False)
    return Share(modulo(product + e * (d.share(party).words - product - product), d.bits), d.scale, d.bits)


def absolute(party: Party, x: Share, drop: int = DROP, bits: int = BITS, way: str = TABLES) -> Rounds[Share]:
    """|v|."""
    positive, v = yield from split_at_zero(party, party.round(x, drop), bits, way)
    return positive + positive - v


def leaky_relu(
    party: Party, x: Share, slope: float, drop: int = DROP, bits: int = BITS, way: str = TABLES
) -> Rounds[Share]:
    """v where it is positive, else v times a public slope; at SLOPE_SCALE more than v's scale."""
    positive, v = yield from split_at_zero(party, party.round(x, drop), bits, way)
    below = Public.of(slope, SLOPE_SCALE)
    return v * below + positive * Public(np.uint64(1 << SLOPE_SCALE) - below.words, SLOPE_SCALE)


def maximum(party: Party, x: Share, y: Share, drop: int = DROP, bits: int = BITS, way: str = TABLES) -> Rounds[Share]:
    """The larger of two: w + max(v - w, 0)."""
    v, w = party.round(x, drop), party.round(y, drop)
    return (yield from _larger(party, v, w, bits, way))


def minimum(party: Party, x: Share, y: Share, drop: int = DROP, bits: int = BITS, way: str = TABLES) -> Rounds[Share]:
    """The smaller of two: v - max(v - w, 0)."""
    v, w = party.round(x, drop), party.round(y, drop)
    positive, _ = yield from split_at_zero(party, v - w, bits, way)
    return v - positive


def _larger(party: Party, v: Share, w: Share, bits: int, way: str) -> Rounds[Share]:
    positive, _ = yield from split_at_zero(party, v - w, bits, way)
    return w + positive


def largest(party: Party, x: Share, drop: int = DROP, bits: int = BITS, way: str = TABLES) -> Rounds[Share]:
    """The largest along the last axis, by a tree: neighbours first, one that has none goes on to the next level."""
    if len(x.shape) < 2:
        raise InputError(f"the largest of each row is taken of at least two axes, got shape {x.shape}")
    v = party.round(x, drop)
    while (n := v.shape[-1]) > 1:
        even = n // 2 * 2
        winners = yield from _larger(party, v[..., 0:even:2], v[..., 1:even:2], bits, way)
        v = winners if n == even else _behind(winners, v[..., even:])
    return v.reshape(*v.shape[:-1])


def _behind(x: Share, y: Share) -> Share:
    return Share(concatenate([x.words, y.words], axis=-1), x.scale, min(x.bits, y.bits))


def clip(
    party: Party, x: Share, low: float, high: float, drop: int = DROP, bits: int = BITS, way: str = TABLES
) -> Rounds[Share]:
    """v, but at least `low` and at most `high`, public numbers rounded to v's scale.

    That is low + max(v - low, 0) - max(v - high, 0): two comparisons at once, each with an opening of its own.
    """
    if not low <= high:
        raise InputError(f"values are clipped to an interval, got {low} to {high}")
    v = party.round(x, drop)
    least, most = (public_bound(party, bound, v.scale, bits) for bound in (low, high))
    both = Share(stack((v - least).words, (v - most).words), v.scale, v.bits)
    above, _ = yield from split_at_zero(party, both, bits, way)
    return above[..., 0] - above[..., 1] + least


def price(shape: tuple[int, ...], bits: int = BITS, way: str = TABLES) -> Price:
    count = prod(shape)
    opened = Price(1, packed_size(count, bits), 2 * packed_size(count, 64 - bits), ("rounding_mask",))
    product = Price(0, 0, 8 * count + packed_size(count, 64 - bits), ("bit_times_mask",))
    return opened + sign.sign_price(shape, bits, way) + sign.bit_price(shape) + product


def largest_price(shape: tuple[int, ...], bits: int = BITS, way: str = TABLES) -> Price:
    total, n = Price(), shape[-1]
    while n > 1:
        total += price((*shape[:-1], n // 2), bits, way)
        n = (n + 1) // 2
    return total


def clip_price(shape: tuple[int, ...], bits: int = BITS, way: str = TABLES) -> Price:
    return price((*shape, 2), bits, way)
