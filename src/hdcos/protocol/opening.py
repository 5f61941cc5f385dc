"""Open a shared value under a mask, rounding it on the way.

Computes  [x] at scale s -> x / 2**drop at scale s - drop, as a Masked value modulo 2**bits (`open_masked`) or as
          a share in the whole ring (`round_lift`).
Offline   one Mask (or RoundingMask) per element.
Online    1 round, `bits` per element each way. drop + bits <= 64.
Error     unbiased and less than one unit of the new scale, always. `round_lift` needs |x| < 2**(drop + bits - 2)
          in ring units.
Security  the only message is this party's share of D = x / 2**drop + m modulo 2**bits; m is uniform there and
          masks this opening alone, so D is uniform whatever x is.

Each party drops the low bits of its own share: the shares' sum wraps by whole multiples of 2**64, which are
whole multiples of 2**bits after the shift. Party 0 rounds ties up and party 1 rounds them down, so that the
two errors cancel exactly in the mean: with x0 uniform, E[error] = 0 for every x and every drop.

Lift: let v = x / 2**drop + 2**(bits-2), which is in [0, 2**(bits-1)), and D = v + m modulo 2**bits. Then
v = D - m + 2**bits * [D < m], and D < m exactly if m's top bit is set and D's is not.
"""

from __future__ import annotations

from math import prod

import numpy as np

from hdcos.errors import InputError
from hdcos.offline import Mask, RoundingMask
from hdcos.protocol.masked import Masked
from hdcos.protocol.party import Openable, Party
from hdcos.protocol.rounds import Price, Rounds
from hdcos.ring import Array, packed_size
from hdcos.sharing import Share


def open_masked(
    party: Party, x: Share, drop: int = 0, bits: int | None = None, *, whole: bool = False
) -> Rounds[Masked]:
    """x / 2**drop under a fresh mask, modulo 2**bits; one mask per row, or one for the `whole` tensor."""
    bits = x.bits - drop if bits is None else bits
    reference = party.next_reference(whole=whole)
    if whole:
        (mask,) = party.take_one(Mask(x.shape, bits))
    else:
        (mask,) = party.take(Mask(x.shape[1:], bits), len(x))
    opened = yield from party.open(x, mask, drop, bits, bits - 1)
    return Masked(
        opened.astype(np.uint64, copy=False), Share(mask.astype(np.uint64, copy=False), x.scale - drop, bits), reference
    )


def round_lift(party: Party, x: Share, drop: int, bits: int) -> Rounds[Share]:
    """x / 2**drop as a share in the whole ring: truncation in one round that cannot fail."""
    if not 2 <= bits < 64:
        raise InputError(f"a lift opens 2 to 63 bits, not {bits}")
    mask, high, top = party.take(RoundingMask(x.shape[1:], bits), len(x))
    E, t = yield from open_liftable(party, x, mask, drop, bits)
    words = (high.astype(np.uint64, copy=False) << np.uint64(bits)) - mask + t * top.astype(np.uint64, copy=False)
    return Share(words + E if party.rank == 0 else words, x.scale - drop)


def open_liftable(party: Party, x: Openable, mask: Array, drop: int, bits: int) -> Rounds[tuple[Array, Array]]:
    """The public E and t of x / 2**drop = E - m + t b in the whole ring, where b is m's top bit."""
    return lifting((yield from open_shifted(party, x, mask, drop, bits)), bits)


def open_shifted(party: Party, x: Openable, mask: Array, drop: int, bits: int) -> Rounds[Array]:
    """D = x / 2**drop + 2**(bits-2) + mask modulo 2**bits, which can be lifted."""
    shifted = mask + mask.dtype.type(1 << (bits - 2)) if party.rank == 0 else mask
    return party.open(x, shifted, drop, bits, bits - 2)


def lifting(D: Array, bits: int) -> tuple[Array, Array]:
    """E = D - 2**(bits-2), and t, which is 2**bits where D's top bit is clear, else 0."""
    words = D.astype(np.uint64, copy=False)
    t = (np.uint64(1) - (words >> np.uint64(bits - 1))) << np.uint64(bits)
    return words - np.uint64(1 << (bits - 2)), t


def price(shape: tuple[int, ...], bits: int, *, lift: bool = False) -> Price:
    count = prod(shape)
    if not lift:
        return Price(1, packed_size(count, bits), 0, ("mask",))
    return Price(1, packed_size(count, bits), 2 * packed_size(count, 64 - bits), ("rounding_mask",))
