"""An activation and its derivative from one opening.

Computes  [y] -> [f(y)], [f'(y)], the latter in the whole ring at SLOPE_SCALE. In turns for cos, sin and growing_cos,
          where the derivative is by turns: 2 pi times that by radians.
Online    1 round, and one more where the derivative comes out at too high a scale (series, polyfit3, growing_cos).
Security  openings under fresh masks; see cosine, fourier, polynomial, growing_cos and opening.
"""

from __future__ import annotations

from math import pi

import numpy as np

from hdcos.protocol import fit
from hdcos.protocol.cosine import Phase, even, open_phase
from hdcos.protocol.fourier import series_of
from hdcos.protocol.growing_cos import growing_cos_parts
from hdcos.protocol.opening import round_lift
from hdcos.protocol.party import Party
from hdcos.protocol.polynomial import lifted_polynomials
from hdcos.protocol.rounds import Rounds
from hdcos.ring import rotate
from hdcos.secure.training.form import PHASE_BITS, SLOPE_SCALE, LinearBlock
from hdcos.sharing import Public, Share

FACTOR_BITS = 12
SERIES_PRECISION = even(PHASE_BITS, 13)
RANGE_BITS = 10
"""Values that enter a polynomial may reach 2**10 after diagonal layers, 2**8 after others: their ring is smaller."""
TWO_PI = round(2 * pi * 2**FACTOR_BITS)


def activate(party: Party, unit: LinearBlock, y: Share) -> Rounds[tuple[Share, Share | None]]:
    """f(y) and f'(y); no derivative where it is one."""
    name = unit.activation
    if name == "none":
        return y, None
    if name in ("cos", "sin"):
        phase = yield from open_phase(
            party, quarter_back(party, y) if name == "sin" else y, PHASE_BITS, unit.trig_scale
        )
        words, _ = rotate(phase.d, phase.cos_r, phase.sin_r, phase.bits, phase.scale, sine=False)
        return Share(words, 2 * phase.scale), slope_of(phase)
    if unit.series is not None:
        value, slope = yield from series_of(party, y, (unit.series, unit.series.slope), SERIES_PRECISION)
        return value, (yield from settled(party, slope, SLOPE_SCALE))
    if name == "growing_cos":
        x_cos, x_sin, cos = yield from growing_cos_parts(
            party, y, y.scale - 12, min(24, y.bits - y.scale + 12), PHASE_BITS, 12
        )
        # In turns x, z = 2 pi x cos(2 pi x) and dz/dx = 2 pi cos(2 pi x) - 4 pi^2 x sin(2 pi x).
        value = (x_cos * round(2 * pi * 2**10)).rescaled(x_cos.scale + 10)
        slope = cos.raised(x_sin.scale) * round(2 * pi * 2**10) - x_sin * round(4 * pi**2 * 2**10)
        return value, (yield from settled(party, slope.rescaled(x_sin.scale + 10), SLOPE_SCALE))
    if name == "square":
        polynomials, scale, coefficient_scale = ((0.0, 0.0, 1.0), (0.0, 2.0)), 12, 0
    else:
        cubic = fit.relu_cubic()
        derived = tuple(n * c for n, c in enumerate(cubic))[1:]
        polynomials, scale, coefficient_scale = (cubic, derived), 10, 7  # type: ignore[assignment]
    drop = y.scale - scale
    bits = min(scale + RANGE_BITS + 2, y.bits - drop)
    value, slope = yield from lifted_polynomials(party, y, polynomials, drop, bits, coefficient_scale)
    return value, (yield from settled(party, slope, SLOPE_SCALE))


def quarter_back(party: Party, y: Share) -> Share:
    """y less a quarter turn, whose cosine is the sine of y."""
    quarter = party.constant(Public.of(0.25, y.scale))
    return Share(y.words - quarter.words, y.scale, y.bits)


def slope_of(phase: Phase) -> Share:
    """d cos / dy = -2 pi sin y, for y in turns."""
    shift = phase.scale + FACTOR_BITS - (SLOPE_SCALE - phase.scale)
    return Share(phase.combine(phase.cos_r, phase.sin_r, 0, -TWO_PI, shift), SLOPE_SCALE)


def settled(party: Party, x: Share, scale: int) -> Rounds[Share]:
    """x in the whole ring at a scale: raised, or rounded in a round, as it needs."""
    if x.scale <= scale and x.bits == 64:
        return x.raised(scale)
    if x.scale <= scale:
        x = Share(x.words << np.uint64(scale - x.scale + 1), scale + 1, min(64, x.bits + scale - x.scale + 1))
    drop = x.scale - scale
    return (yield from round_lift(party, x, drop, min(56, x.bits - drop)))
