"""Open a shared value: under a mask, rounding it on the way, or to both parties.

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

from dataclasses import dataclass, field, replace
from math import prod

import numpy as np

from hdcos.errors import InputError
from hdcos.offline import Mask, Reference, RoundingMask
from hdcos.protocol.party import Openable, Party
from hdcos.protocol.rounds import Price, Rounds, swap_sum
from hdcos.ring import Array, compact_dtype, modulo, packed_size
from hdcos.sharing import Public, Share


@dataclass(eq=False)
class Masked:
    """x with D = x + m known to both parties and m shared; `reference` is the mask's address."""

    opened: Array = field(repr=False)
    mask: Share
    reference: Reference

    def part(self, start: int, shape: tuple[int, ...]) -> Masked:
        """One of the tensors that were masked side by side, as one whole row."""
        end = start + prod(shape)
        mask = Share(self.mask.words[start:end].reshape(shape), self.scale, self.bits)
        reference = Reference.of(self.reference.position, True, start=start, shape=shape)
        return Masked(self.opened[start:end].reshape(shape), mask, reference)

    def terms(self) -> tuple[Masked, ...]:
        """A weight of several terms as one whole row for each; one of a single term as it is."""
        if len(self.shape) == 1:
            return (self,)
        width, first = self.shape[1], self.reference.start
        return tuple(
            Masked(
                self.opened[term],
                Share(self.mask.words[term], self.scale, self.bits),
                replace(self.reference, start=first + term * width, shape=(width,)),
            )
            for term in range(self.shape[0])
        )

    def of_scope(self, scope: str) -> Masked:
        """The same value for programs of other scopes: its mask is addressed by its own scope's name."""
        return replace(self, reference=Reference(self.reference.position, scope, whole=True))

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.opened.shape)

    @property
    def bits(self) -> int:
        return self.mask.bits

    @property
    def scale(self) -> int:
        return self.mask.scale

    def share(self, party: Party) -> Share:
        """D - [m]: the value as a share again, modulo 2**bits."""
        words = self.opened - self.mask.words if party.rank == 0 else np.uint64(0) - self.mask.words
        return Share(words, self.scale, self.bits)


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
    return lift_parts((yield from open_shifted(party, x, mask, drop, bits)), bits)


def open_shifted(party: Party, x: Openable, mask: Array, drop: int, bits: int) -> Rounds[Array]:
    """D = x / 2**drop + 2**(bits-2) + mask modulo 2**bits, which can be lifted."""
    shifted = mask + mask.dtype.type(1 << (bits - 2)) if party.rank == 0 else mask
    return party.open(x, shifted, drop, bits, bits - 2)


def lift_parts(D: Array, bits: int) -> tuple[Array, Array]:
    """E = D - 2**(bits-2), and t, which is 2**bits where D's top bit is clear, else 0."""
    words = D.astype(np.uint64, copy=False)
    t = (np.uint64(1) - (words >> np.uint64(bits - 1))) << np.uint64(bits)
    return words - np.uint64(1 << (bits - 2)), t


def price(shape: tuple[int, ...], bits: int, *, lift: bool = False) -> Price:
    count = prod(shape)
    if not lift:
        return Price(1, packed_size(count, bits), 0, ("mask",))
    return Price(1, packed_size(count, bits), 2 * packed_size(count, 64 - bits), ("rounding_mask",))


def reveal(party: Party, x: Share) -> Rounds[Public]:
    """The secret itself, as words modulo 2**x.bits: 1 round, x.bits per element each way, and no material.

    Security: both parties learn x, and nothing else: given x, the peer's share is determined by one's own. Only for
    values that are meant to be public, to the last bit: the low bits of an approximate result are noise that depends on
    masks, so such a result is rounded to well above its noise first.
    """
    mine = modulo(x.words, x.bits).astype(compact_dtype(x.bits))
    opened = yield from swap_sum(mine, x.bits)
    return Public(opened.astype(np.uint64, copy=False), x.scale)


def reveal_price(shape: tuple[int, ...], bits: int = 64) -> Price:
    return Price(rounds=1, online_bytes=packed_size(prod(shape), bits))
