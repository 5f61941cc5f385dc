"""The sign of a shared value, in two rounds by keys or three by tables; comparisons with public and shared numbers.

Computes  [x] -> [b], b = 1 where v >= 0 and else 0; v is x / 2**drop, each party's share rounded. `sign` is 2 b - 1.
Offline   one Mask, one SignTables or SignKeys, one RandomBit per element.
Online    by keys ("dcf") 2 rounds, bits + 1 bits per element each way; by tables 3, and two bits for each block of
          about five bits but the first.
Error     none: the sign is exactly that of v, for |v| < 2**(bits-2). v is off from x / 2**drop by less than one unit.
Security  D = v + 2**(bits-2) + m modulo 2**bits is opened under m, uniform there. By tables, bits of the comparison are
          opened under those of SignTables.mask, uniform and shared by XOR; what is looked up at D are shares. By keys
          nothing is opened: each party evaluates its own at D, and one key alone says nothing of m, as long as AES
          under a public key looks random (seeds of 125 bits; each row of values has a public key of its own, so that
          guesses at seeds of one row are wasted on all others).
          b is opened under RandomBit.mask, a uniform bit. All masks are used once and unrelated, so whatever is opened
          is uniform and independent of v and of all else that was opened.

With m' = m + 2**(bits-2), D - m' = v, so v >= 0 exactly if b = 1 ^ top(D) ^ top(m') ^ [low(D) < low(m')] is set
(`ring.comparison`). With b shared by XOR and e = b ^ r opened, b = e + (1 - 2 e) r, where r is shared by sums: the
lowest bits of such shares are shares by XOR.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

import numpy as np

from hdcos.errors import InputError, ModelError
from hdcos.offline import Mask, RandomBit, Reference, SignKeys, SignTables
from hdcos.protocol.opening import open_shifted
from hdcos.protocol.party import Party
from hdcos.protocol.rounds import Price, Rounds
from hdcos.ring import (
    Array,
    modulo,
    packed_size,
    sign_blocks,
    sign_combine,
    sign_lookup,
    sign_products,
    sign_rules,
)
from hdcos.ring.comparison import dcf_levels
from hdcos.sharing import Public, Share

TABLES, KEYS = WAYS = ("tables", "dcf")
BITS, DROP = 20, 4


@dataclass(frozen=True, eq=False)
class MaskedBit:
    """A bit b with e = b ^ r known to both parties and r shared by sums, modulo 2**bits."""

    opened: Array = field(repr=False)
    mask: Array = field(repr=False)
    bits: int
    reference: Reference

    def share(self, party: Party) -> Share:
        """b as a share: e + (1 - 2 e) r."""
        e = self.opened.astype(np.uint64, copy=False)
        words = self.mask - (e * self.mask << np.uint64(1))
        return Share(words + e if party.rank == 0 else words, 0, self.bits)


def sign_bit(party: Party, D: Array, bits: int, mask: Reference, way: str) -> Rounds[Array]:
    """b, shared by XOR, of what was opened as D under the mask at an address: see `open_shifted`."""
    rows, *shape = D.shape
    if way == KEYS:
        root, cipher, words = party.take(SignKeys(tuple(shape), bits, mask), rows)
        return party.below(cipher, root, words, D, bits)
    if way != TABLES:
        raise ModelError(f"signs are taken by {' or '.join(WAYS)}, not by {str(way)[:40]!r}")
    kind, public = SignTables(tuple(shape), bits, mask), party.rank == 0
    r, *tables, products = party.take(kind, rows)
    first, asked = sign_lookup(D, tables, r, bits, public)
    opened = yield from party.open_bits(asked, kind.mask_bits)
    share: Array = sign_combine(opened, r, products, first, sign_rules(len(tables)), public)
    return share


def open_bit(party: Party, bit: Array, ring: int = 64) -> Rounds[MaskedBit]:
    """A bit that is shared by XOR, opened under a random one."""
    rows, *shape = bit.shape
    reference = party.next_reference()
    (mask,) = party.take(RandomBit(tuple(shape), ring), rows)
    e = yield from party.open_bits(bit ^ modulo(mask, 1).astype(np.uint8), 1)
    return MaskedBit(e, mask.astype(np.uint64, copy=False), ring, reference)


def masked_sign(party: Party, v: Share, bits: int, way: str, ring: int = 64) -> Rounds[MaskedBit]:
    """Whether an integer is not negative, as a bit modulo 2**ring."""
    check_bits(bits, way)
    reference = party.next_reference()
    (mask,) = party.take(Mask(v.shape[1:], bits), len(v))
    D = yield from open_shifted(party, v, mask, 0, bits)
    return (yield from open_bit(party, (yield from sign_bit(party, D, bits, reference, way)), ring))


def check_bits(bits: int, way: str) -> None:
    """Refuse what cannot be compared before anything is taken."""
    if way not in WAYS:
        raise ModelError(f"signs are taken by {' or '.join(WAYS)}, not by {str(way)[:40]!r}")
    if way == TABLES:
        sign_blocks(bits)
    elif not 2 <= bits <= 63:
        raise InputError(f"a comparison opens 2 to 63 bits, not {bits}")


def sign(party: Party, x: Share, drop: int = DROP, bits: int = BITS, way: str = TABLES) -> Rounds[Share]:
    """1 where v >= 0, and -1 where it is negative."""
    b = yield from not_negative(party, party.round(x, drop), bits, way)
    return b + b - party.constant(Public(np.ones((), np.uint64)))


def at_least(
    party: Party, x: Share, threshold: float, drop: int = DROP, bits: int = BITS, way: str = TABLES
) -> Rounds[Share]:
    """1 where v >= threshold, a public number, rounded to v's scale; else 0."""
    v = party.round(x, drop)
    return (yield from not_negative(party, v - public_bound(party, threshold, v.scale, bits), bits, way))


def public_bound(party: Party, value: float, scale: int, bits: int) -> Share:
    """A public number to compare with: as far from zero as the values may be, so that differences are in range."""
    most = 2.0 ** (bits - 3 - scale)
    if not abs(value) <= most:
        raise InputError(
            f"values of {bits} bits at scale {scale} are compared with numbers up to {most:g}, not {value}"
        )
    return party.constant(Public.of(value, scale))


def greater_equal(
    party: Party, x: Share, y: Share, drop: int = DROP, bits: int = BITS, way: str = TABLES
) -> Rounds[Share]:
    """1 where v >= w for the rounded shares of x and y; else 0."""
    difference = party.round(x, drop) - party.round(y, drop)
    return (yield from not_negative(party, difference, bits, way))


def not_negative(party: Party, v: Share, bits: int, way: str) -> Rounds[Share]:
    """b of an integer."""
    return (yield from masked_sign(party, v, bits, way)).share(party)


def sign_price(shape: tuple[int, ...], bits: int, way: str) -> Price:
    """From an opened D to b, shared by XOR."""
    count = prod(shape)
    if way == KEYS:
        words = 16 * (shape[0] + count * (dcf_levels(bits) + 1))
        return Price(0, 0, words, ("sign_keys",), common_bytes=words)
    widths = sign_blocks(bits)
    dealt = [*(1 << width for width in widths), len(sign_products(len(widths))) + 1]
    offline = sum(packed_size(count, each) for each in dealt)
    return Price(1, packed_size(count, 2 * len(widths) - 2), offline, ("sign_tables",))


def bit_price(shape: tuple[int, ...], ring: int = 64) -> Price:
    """From b, shared by XOR, to b."""
    count = prod(shape)
    return Price(1, packed_size(count, 1), packed_size(count, ring), ("random_bit",))


def price(shape: tuple[int, ...], bits: int = BITS, way: str = TABLES, ring: int = 64) -> Price:
    opened = Price(1, packed_size(prod(shape), bits), 0, ("mask",))
    return opened + sign_price(shape, bits, way) + bit_price(shape, ring)
