"""Cosine and sine of a shared angle, in one round, and the phase that a backward pass keeps of it.

Computes  [x] -> [cos x], [sin x]. Angles are in turns; one turn is 2**x.scale ring units. A Phase is d = x - r with
          shares of cos r and sin r, and of their products with a weight's mask.
Offline   one TrigPair per element: [r], [cos r], [sin r], r uniform over a turn of 2**phase_bits steps; one FusedTrig
          where a Hadamard-Diagonal layer follows.
Online    1 round, `phase_bits` per element each way.
Error     |error| <= precision.angle + precision.rounding, always: a ring wrap is a whole number of turns.
Security  the only message is this party's share of d = x - r modulo one turn; r is uniform there and used
          once, so d is uniform whatever x is.

cos x = cos d cos r - sin d sin r,  sin x = sin d cos r + cos d sin r,  with d public.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import pi, prod
from typing import NamedTuple

import numpy as np

from hdcos.errors import InputError
from hdcos.offline import FusedTrig, Reference, TrigPair
from hdcos.offline.kinds import RING_BITS
from hdcos.offline.material import Shape
from hdcos.protocol.opening import Masked
from hdcos.protocol.party import Openable, Party
from hdcos.protocol.rounds import Price, Rounds
from hdcos.ring import Array, packed_size, rotate, spread, table_phase, trig_combine
from hdcos.ring.trig import DIRECT_BITS, MAX_BITS, SPLIT_ERROR
from hdcos.sharing import Share

PHASE_BITS = 16
INVERSE_TURN = 0x28BE60DB9391054A7F09D5F47D4D3770
"""2**128 / (2 pi), rounded: radians to turns."""


class Precision(NamedTuple):
    """How exactly a cosine is computed: bits of its phase, of the public table and of what is dealt.

    cos d comes from a table at `table` fraction bits, cos r was dealt at `dealt`, and the result has both. Whatever is
    rounded by something a party knows (the table's error at d, a party's own rounding of its share of the phase) must
    be small against noise that it does not know; `dither` makes the rounding of cos r that noise. docs/security.md has
    the law and the numbers. A phase of more than 32 bits is looked up by its upper 32.
    """

    phase_bits: int
    table: int
    dealt: int
    dither: bool = False

    @property
    def scale(self) -> int:
        """Fraction bits of the cosine."""
        return self.table + self.dealt

    @property
    def angle(self) -> float:
        """The largest error of an angle, in radians: a step of its phase. Of more than 32 bits d and r are looked up
        besides, each by half a step of these 32."""
        looked_up = 2.0**-MAX_BITS if self.phase_bits > MAX_BITS else 0.0
        return 2 * pi * (2.0**-self.phase_bits + looked_up)

    @property
    def rounding(self) -> float:
        """The largest error of a cosine that comes from rounded factors: 2.5 units of a dithered one, 1.5 of one
        that two parties made, half a unit of a table's; twice each, for cosine and sine, at right angles. Tables of
        many bits are off besides, that of d and that of r."""
        dealt = 3.75 if self.dither else 2.25
        tables = 2 * SPLIT_ERROR if self.phase_bits > DIRECT_BITS else 0.0
        return dealt * 2.0**-self.dealt + 0.75 * 2.0**-self.table + tables


def even(phase_bits: int, scale: int) -> Precision:
    """Table and dealt cosines at one scale, rounded to the nearest: for results that never meet a secret's owner."""
    return Precision(phase_bits, scale, scale)


def trig_scale(phase_bits: int) -> int:
    """The scale of tables and dealt cosines: it costs no traffic, so rounding noise lies far below a phase step."""
    return min(30, max(24, phase_bits + 6))


def to_turns(x: Share, scale: int = 62) -> Share:
    """An angle in radians as an angle in turns, by a public factor: local, off by x / 2**(scale - x.scale + 1)."""
    factor_scale = scale - x.scale
    if factor_scale < 8:
        raise InputError(f"an angle at scale {x.scale} leaves no room for turns at scale {scale}")
    factor = (INVERSE_TURN + (1 << (127 - factor_scale))) >> (128 - factor_scale)
    return (x * factor).rescaled(scale)


def cos_sin(party: Party, x: Share, phase_bits: int = PHASE_BITS) -> Rounds[tuple[Share, Share]]:
    """Cosine and sine from the same opening; the sine is what a backward pass needs."""
    bits = even(phase_bits, trig_scale(phase_bits))
    d, cos_r, sin_r = yield from open_angle(party, x, bits)
    cos, sin = rotate(*_look_up(d, cos_r, sin_r, bits))
    return Share(cos, bits.scale), Share(sin, bits.scale)


def cos(party: Party, x: Openable, precision: Precision | None = None) -> Rounds[Share]:
    """The cosine alone."""
    bits = precision or even(PHASE_BITS, trig_scale(PHASE_BITS))
    d, cos_r, sin_r = yield from open_angle(party, x, bits)
    words, _ = rotate(*_look_up(d, cos_r, sin_r, bits), sine=False)
    return Share(words, bits.scale)


def sin(party: Party, x: Share, precision: Precision | None = None) -> Rounds[Share]:
    """The sine alone."""
    bits = precision or even(PHASE_BITS, trig_scale(PHASE_BITS))
    d, cos_r, sin_r = yield from open_angle(party, x, bits)
    _, words = rotate(*_look_up(d, cos_r, sin_r, bits), cosine=False)
    return Share(words, bits.scale)


def _look_up(d: Array, cos_r: Array, sin_r: Array, bits: Precision) -> tuple[Array, Array, Array, int, int]:
    """What `rotate` takes."""
    phase, phase_bits = table_phase(d, bits.phase_bits)
    return phase, cos_r, sin_r, phase_bits, bits.table


def open_angle(
    party: Party,
    x: Openable,
    precision: Precision,
    harmonics: tuple[int, ...] = (1,),
    within: int | None = None,
    ring: int = RING_BITS,
) -> Rounds[tuple[Array, Array, Array]]:
    """d = x - r in steps of the turn, with this party's shares of cos kr and sin kr, modulo 2**ring."""
    phase_bits = precision.phase_bits
    if x.scale < phase_bits:
        raise InputError(f"an angle at scale {x.scale} has fewer than {phase_bits} bits to a turn")
    kind = TrigPair(x.shape[1:], phase_bits, precision.dealt, harmonics, ring, precision.dither)
    minus_r, cos_r, sin_r = party.take(kind, x.shape[0])
    d = yield from party.open(x, minus_r, x.scale - phase_bits, phase_bits, within, periodic=True)
    return d, cos_r.astype(np.uint64, copy=False), sin_r.astype(np.uint64, copy=False)


@dataclass(eq=False)
class Phase:
    """An opened phase d = y - r with this party's shares of cos r and sin r, both at `scale`."""

    d: Array = field(repr=False)
    cos_r: Array = field(repr=False)
    sin_r: Array = field(repr=False)
    bits: int
    scale: int
    reference: Reference

    def combine(self, cos: Array, sin: Array, cos_factor: int, sin_factor: int, shift: int) -> Array:
        """a (cos y) v + b (sin y) v from [v cos r] and [v sin r], with public integers a and b over 2**shift."""
        words: Array = trig_combine(
            self.d,
            cos[..., None],
            sin[..., None],
            self.bits,
            self.scale,
            [cos_factor],
            [sin_factor],
            [1],
            coefficient_shift=shift,
        )
        return words


@dataclass(eq=False)
class FusedPhase(Phase):
    """A phase with this party's shares of m_w cos r and m_w sin r, for the mask m_w of the next layer's weight."""

    products: Sequence[Array] = field(repr=False)
    """[m_w cos r] and [m_w sin r] of each term of the weight."""

    def weight_terms(self, weight: Masked, pool: Shape = ()) -> list[tuple[Array, Array, Array]]:
        """What makes [w cos r] = D_w [cos r] - [m_w cos r], and the sine alike: D_w and the two products, by term."""
        own = zip(weight.terms(), self.products[::2], self.products[1::2], strict=True)
        return [(spread(term.opened, pool), cos, sin) for term, cos, sin in own]


def open_phase(party: Party, y: Share, bits: int, scale: int) -> Rounds[Phase]:
    """The phase of turns, for a cosine that is used as a share."""
    reference = party.next_reference()
    minus_r, cos_r, sin_r = party.take(TrigPair(y.shape[1:], bits, scale), len(y))
    d = yield from party.open(y, minus_r, y.scale - bits, bits)
    return Phase(d, cos_r, sin_r, bits, scale, reference)


def open_fused_phase(
    party: Party, y: Openable, weight: Reference, bits: int, scale: int, pool: Shape = ()
) -> Rounds[FusedPhase]:
    """The phase of turns, with material for its product with the next layer's weight."""
    reference, terms = party.next_reference(), prod(weight.shape[:-1]) if weight.shape else 1
    kind = FusedTrig(y.shape[1:], bits, scale, weight, pool, terms=terms)
    minus_r, cos_r, sin_r, *products = party.take(kind, y.shape[0])
    d = yield from party.open(y, minus_r, y.scale - bits, bits)
    return FusedPhase(d, cos_r, sin_r, bits, scale, reference, products)


def error_bound(phase_bits: int) -> float:
    """The largest error of cos and sin of an angle in turns, with cosines from a dealer or from two parties."""
    precision = even(phase_bits, trig_scale(phase_bits))
    return precision.angle + precision.rounding


def price(shape: tuple[int, ...], phase_bits: int = PHASE_BITS) -> Price:
    count = prod(shape)
    return Price(1, packed_size(count, phase_bits), 16 * count, ("trig_pair",))
