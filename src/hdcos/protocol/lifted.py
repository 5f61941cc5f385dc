"""A value opened once, rounded and lifted, that then enters elementwise products without another round.

Computes  [x] -> Lifted; Lifted x, Masked w -> [x * w]; Lifted x, phase of y -> [x cos y], [x sin y].
Offline   one LiftedMask per element of x; per product LiftedTimesMask or LiftedTimesTrig: every dealt product is
          needed twice, with m and with its top bit b.
Online    1 round for the opening, `bits` per element each way; the products are local.
Error     less than one unit of the opened scale, once. |x| < 2**(drop + bits - 2) ring units.
Security  the only message is this party's half of D = x / 2**drop + 2**(bits-2) + m modulo 2**bits; m is uniform
          there and masks this opening alone. Each product is a fresh sharing.

x = E - m + t b with E and t public (see opening), so
x w = D_w x - m_w x,  m_w x = E m_w - [m m_w] + t [b m_w];
x C = E C - [m C] + t [b C]  for C = cos r and sin r, and cos y = cos d cos r - sin d sin r.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

from hdcos.offline import LiftedMask, LiftedTimesMask, LiftedTimesTrig, Reference
from hdcos.protocol.masked import Masked
from hdcos.protocol.opening import Openable, open_liftable
from hdcos.protocol.party import Party
from hdcos.protocol.price import Price
from hdcos.protocol.rounds import Rounds
from hdcos.ring import Array, packed_size, trig_combine
from hdcos.sharing import Share


@dataclass(frozen=True, eq=False)
class Lifted:
    """x = E - m + t b in the whole ring; E and t are public, m and b shared."""

    E: Array = field(repr=False)
    t: Array = field(repr=False)
    m: Array = field(repr=False)
    b: Array = field(repr=False)
    scale: int
    reference: Reference

    def share(self, party: Party) -> Share:
        words = self.t * self.b - self.m
        return Share(words + self.E if party.rank == 0 else words, self.scale)


@dataclass(frozen=True, eq=False)
class Phase:
    """An opened phase d = y - r with this party's halves of cos r and sin r, kept for the backward pass."""

    d: Array = field(repr=False)
    cos_r: Array = field(repr=False)
    sin_r: Array = field(repr=False)
    bits: int
    scale: int
    reference: Reference


def open_lifted(party: Party, x: Openable, drop: int, bits: int, *, whole: bool = False) -> Rounds[Lifted]:
    """x / 2**drop, ready for products; one mask per row, or one for the `whole` tensor."""
    reference = party.next_reference(whole=whole)
    if whole:
        mask, m, b = party.take_one(LiftedMask(x.shape, bits))
    else:
        mask, m, b = party.take(LiftedMask(x.shape[1:], bits), x.shape[0])
    E, t = yield from open_liftable(party, x, mask, drop, bits)
    return Lifted(E, t, m, b, x.scale - drop, reference)


def times_masked(party: Party, x: Lifted, w: Masked) -> Share:
    """x * w element by element; one of the two may serve all rows of the other."""
    words = w.opened * x.share(party).words
    rows, *shape = words.shape
    m_w, b_w = party.take(LiftedTimesMask(tuple(shape), x.reference, w.reference), rows)
    words = words - (x.E * w.mask.words - m_w + x.t * b_w)
    return Share(words, x.scale + w.scale)


@dataclass(frozen=True, eq=False)
class TrigProduct:
    """[x cos r] and [x sin r]: from here x times any a cos y + b sin y is local."""

    phase: Phase
    cos: Array = field(repr=False)
    sin: Array = field(repr=False)
    scale: int

    def combined(self, cos_factor: int, sin_factor: int, shift: int, scale: int) -> Share:
        """x (a cos y + b sin y) with public integers a and b over 2**shift, at a scale the caller worked out."""
        phase = self.phase
        cos, sin = self.cos[..., None], self.sin[..., None]
        words: Array = trig_combine(
            phase.d, cos, sin, phase.bits, phase.scale, [cos_factor], [sin_factor], [1], coefficient_shift=shift
        )
        return Share(words, scale)


def times_trig(party: Party, x: Lifted, phase: Phase) -> TrigProduct:
    """x with the phase of y."""
    rows, *shape = x.E.shape
    kind = LiftedTimesTrig(tuple(shape), x.reference, phase.reference)
    m_cos, m_sin, b_cos, b_sin = party.take(kind, rows)
    cos = x.E * phase.cos_r - m_cos + x.t * b_cos
    sin = x.E * phase.sin_r - m_sin + x.t * b_sin
    return TrigProduct(phase, cos, sin, x.scale + phase.scale)


def price(shape: tuple[int, ...], bits: int) -> Price:
    count = prod(shape)
    return Price(1, packed_size(count, bits), 16 * count, ("lifted_mask",))
