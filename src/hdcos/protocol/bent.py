"""Functions that are near 0 far to the left and near x far to the right, in one round: GELU, SiLU, Softplus.

Computes  [x] -> [x/2 + S(x)], S a trigonometric series that is right on an interval, coefficients public.
Offline   one TrigPair per element with the cosines and sines of each harmonic; one RoundingMask where x is rounded.
Online    1 round: `phase_bits` per element each way; where x has to be rounded for the sum, `bits` beside them.
Error     that of the series on its interval (`fit.BENT`), that of `fourier`, and half a unit of x if it is rounded.
Security  the only messages are this party's shares of d = x - r modulo one period and, where x is rounded, of
          D = x / 2**drop + 2**(bits-2) + m modulo 2**bits. r and m are uniform there, unrelated, and each used once:
          what is opened is uniform whatever x is.

Such a function is x/2 and an even one, which is near |x|/2: a triangle wave with round corners, whose series has few
terms. x/2 itself is free, as long as x fits the ring beside the series.
"""

from __future__ import annotations

from hdcos.protocol import fourier, opening
from hdcos.protocol.cosine import Precision
from hdcos.protocol.fourier import Series
from hdcos.protocol.party import Party
from hdcos.protocol.rounds import Price, Rounds, together
from hdcos.sharing import Public, Share


def bent(party: Party, x: Share, series: Series, precision: Precision, drop: int = 0, bits: int = 0) -> Rounds[Share]:
    """x/2 plus the series of x; with `bits`, of x / 2**drop that is opened in as many and lifted."""
    (value,) = yield from bent_with(party, x, (series,), precision, drop, bits)
    return value


def bent_with_slope(
    party: Party, x: Share, series: Series, precision: Precision, drop: int = 0, bits: int = 0
) -> Rounds[tuple[Share, Share]]:
    """The function and its derivative, 1/2 plus that of the series, from the same openings."""
    value, slope = yield from bent_with(party, x, (series, series.slope), precision, drop, bits)
    return value, slope + party.constant(Public.of(0.5, slope.scale))


def bent_with(
    party: Party, x: Share, several: tuple[Series, ...], precision: Precision, drop: int, bits: int
) -> Rounds[list[Share]]:
    """The sum of x/2 and the first series, and the others as they are."""
    made = fourier.series_of(party, x, several, precision)
    if bits:
        x, results = yield from together(opening.round_lift(party, x, drop, bits), made)
    else:
        results = yield from made
    scale = result_scale(x.scale, precision)
    return [x.rescaled(x.scale + 1).raised(scale) + results[0].raised(scale), *results[1:]]


def result_scale(scale: int, precision: Precision) -> int:
    """Of the result, for x at a scale behind its rounding."""
    return max(scale + 1, precision.scale)


def price(shape: tuple[int, ...], series: Series, phase_bits: int, bits: int = 0) -> Price:
    alone = fourier.price(shape, series, phase_bits)
    if not bits:
        return alone
    rounded = opening.price(shape, bits, lift=True)
    return Price(
        1,
        alone.online_bytes + rounded.online_bytes,
        alone.offline_bytes + rounded.offline_bytes,
        rounded.material + alone.material,
    )
