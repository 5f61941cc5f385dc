"""Cosine and sine of a shared angle, in one round.

Computes  [x] -> [cos x], [sin x]. Angles are in turns; one turn is 2**x.scale ring units.
Offline   one TrigPair per element: [r], [cos r], [sin r], r uniform over a turn of 2**phase_bits steps.
Online    1 round, `phase_bits` per element each way.
Error     |error| <= 2 pi / 2**phase_bits + precision.rounding, always: a ring wrap is a whole number of turns.
Security  the only message is this party's share of d = x - r modulo one turn; r is uniform there and used
          once, so d is uniform whatever x is.

cos x = cos d cos r - sin d sin r,  sin x = sin d cos r + cos d sin r,  with d public.
"""

from __future__ import annotations

from math import pi, prod

import numpy as np

from hdcos.errors import InputError
from hdcos.offline import TrigPair
from hdcos.offline.kinds import RING_BITS
from hdcos.protocol.hadamard import HadamardCosine
from hdcos.protocol.party import Party
from hdcos.protocol.precision import Precision, even
from hdcos.protocol.rounds import Price, Rounds
from hdcos.ring import Array, packed_size, rotate, table_phase
from hdcos.sharing import Share

PHASE_BITS = 16
Angle = Share | HadamardCosine
INVERSE_TURN = 0x28BE60DB9391054A7F09D5F47D4D3770
"""2**128 / (2 pi), rounded: radians to turns."""


def trig_scale(phase_bits: int) -> int:
    """The scale of tables and dealt cosines: it costs no traffic, so rounding noise lies far below a phase step."""
    return min(30, max(24, phase_bits + 6))


def to_turns(x: Share, scale: int = 62) -> Share:
    """An angle in radians as an angle in turns, by a public factor: local, exact to 2**-(scale - x.scale) relative."""
    factor_scale = scale - x.scale
    if factor_scale < 8:
        raise InputError(f"an angle at scale {x.scale} leaves no room for turns at scale {scale}")
    factor = (INVERSE_TURN + (1 << (127 - factor_scale))) >> (128 - factor_scale)
    return (x * factor).rescaled(scale)


def cos_sin(party: Party, x: Share, phase_bits: int = PHASE_BITS) -> Rounds[tuple[Share, Share]]:
    """Cosine and sine from the same opening; the sine is what a backward pass needs."""
    bits = even(phase_bits, trig_scale(phase_bits))
    d, cos_r, sin_r = yield from open_phase(party, x, bits)
    cos, sin = rotate(*_looked_up(d, cos_r, sin_r, bits))
    return Share(cos, bits.scale), Share(sin, bits.scale)


def cos(party: Party, x: Angle, precision: Precision | None = None) -> Rounds[Share]:
    """The cosine alone."""
    bits = precision or even(PHASE_BITS, trig_scale(PHASE_BITS))
    d, cos_r, sin_r = yield from open_phase(party, x, bits)
    words, _ = rotate(*_looked_up(d, cos_r, sin_r, bits), sine=False)
    return Share(words, bits.scale)


def sin(party: Party, x: Share, precision: Precision | None = None) -> Rounds[Share]:
    """The sine alone."""
    bits = precision or even(PHASE_BITS, trig_scale(PHASE_BITS))
    d, cos_r, sin_r = yield from open_phase(party, x, bits)
    _, words = rotate(*_looked_up(d, cos_r, sin_r, bits), cosine=False)
    return Share(words, bits.scale)


def _looked_up(d: Array, cos_r: Array, sin_r: Array, bits: Precision) -> tuple[Array, Array, Array, int, int]:
    """What `rotate` takes."""
    phase, phase_bits = table_phase(d, bits.phase_bits)
    return phase, cos_r, sin_r, phase_bits, bits.table


def open_phase(
    party: Party,
    x: Angle,
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
    minus_r, cos_r, sin_r = party.take(kind, len(x))
    d = yield from party.open(x, minus_r, x.scale - phase_bits, phase_bits, within, periodic=True)
    return d, cos_r.astype(np.uint64, copy=False), sin_r.astype(np.uint64, copy=False)


def error_bound(phase_bits: int) -> float:
    """The largest error of cos and sin: the phase is off by less than one step, four rounded factors by half a unit."""
    return float(2 * pi / 2**phase_bits + 1.5 / 2 ** trig_scale(phase_bits))


def price(shape: tuple[int, ...], phase_bits: int = PHASE_BITS) -> Price:
    count = prod(shape)
    return Price(1, packed_size(count, phase_bits), 16 * count, ("trig_pair",))
