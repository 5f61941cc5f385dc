"""Least-squares fits of trigonometric series and of the cubic that stands in for ReLU.

Parties compute with the integers of `FITTED`, or with those of a closed form, the same on every host; any other fit is
made where a program is defined, and its integers travel with the program. So no two hosts compute with coefficients
that differ by a bit.

The closed form is of tanh and the sigmoid, for any period. Neighbours of alternating sign, sum over n of
(-1)^n tanh(x - n P / 2), make an odd function of period P. Its coefficients are 4 pi / (P sinh(pi^2 k / P)) for odd k.
On |x| <= P / 2 - 4 the neighbours add less than 1 - tanh 4 = 6.7e-4, and 7 P / 16 terms leave out less than 2.3e-4,
most of it where the neighbours add nothing. The sigmoid is 1/2 + tanh(x / 2) / 2: half the coefficients, twice the
period.
`decimal` rounds every operation and every exponential exactly as specified, whatever the host.

GELU, SiLU and Softplus are x/2 and an even function h, which is near |x|/2 far out. Neighbours of alternating sign of
its derivative make an odd function of period P in the same way, and its integral is a triangle wave with the corners of
h: cosines of odd k with coefficients 4/P times the integral of h(x) cos(w x), w = 2 pi k / P, which is
  GELU      -exp(-w^2 / 2) (1 + 1 / w^2)
  SiLU      -pi^2 cosh(pi w) / sinh(pi w)^2
  Softplus  -pi / (w sinh(pi w)),
and the constant is such that the series is right at 0. On |x| <= P / 2 - tail the neighbours add about as much as h(x)
differs from |x|/2 at x = tail; `BENT` has the largest error, that of the terms left out included.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Context, Decimal, localcontext
from functools import cache
from math import pi
from typing import NamedTuple

import numpy as np

from hdcos.errors import InputError
from hdcos.protocol.fourier import COEFFICIENT_SCALE, Series
from hdcos.protocol.intervals import INTERVALS
from hdcos.protocol.intervals import RELU_INTERVAL as RELU_INTERVAL
from hdcos.protocol.intervals import relu_cubic as relu_cubic
from hdcos.ring import Array

MAX_AMPLIFICATION = 4.0
"""Largest sum of |coefficients| over the function's own largest value: it multiplies every rounding error."""


def fit_series(
    function: Callable[[Array], Array], bound: float, period_bits: int, terms: int, *, odd: bool, ridge: float = 1e-12
) -> Series:
    """The series of `terms` harmonics closest to the function on [-bound, bound].

    An odd function takes odd sines only: with a period of 4 * bound its mirror image continues it smoothly.
    Other functions take all harmonics; what the series does in the rest of the period is left to the fit.
    """
    x = bound * np.cos(np.linspace(0, pi, 4001))  # denser towards the ends, where fits are worst
    y = function(x)
    harmonics = tuple(range(1, 2 * terms, 2)) if odd else tuple(range(1, terms + 1))
    angle = np.multiply.outer(x, 2 * pi * np.array(harmonics) / 2**period_bits)
    columns = [np.sin(angle)] if odd else [np.sin(angle), np.cos(angle), np.ones((len(x), 1))]
    basis = np.hstack(columns)
    normal = basis.T @ basis + ridge * len(x) * np.eye(basis.shape[1])
    solution = np.linalg.solve(normal, basis.T @ y)
    amplification = np.abs(solution).sum() / np.abs(y).max()
    if amplification > MAX_AMPLIFICATION:
        raise InputError(
            f"a fit of {terms} terms multiplies rounding errors by {amplification:.1f}, more than {MAX_AMPLIFICATION}: "
            f"use fewer terms, a longer period or a larger ridge"
        )
    units = np.rint(solution * 2**COEFFICIENT_SCALE).astype(int).tolist()
    sin = units[: len(harmonics)]
    cos = [0] * len(harmonics) if odd else units[len(harmonics) : 2 * len(harmonics)]
    constant = 0 if odd else units[-1]
    return Series(period_bits, harmonics, constant, tuple(cos), tuple(sin))


def series(function: str, interval: int | None = None) -> Series:
    """The series of a function on one of its INTERVALS, by default the narrowest; of a bent one, less x/2."""
    offered = INTERVALS[function]
    chosen = offered[0] if interval is None else interval
    if chosen not in offered:
        raise InputError(f"{function} has series up to {', '.join(map(str, offered))}, none up to {chosen}")
    if function in BENT:
        return even_part(function, chosen)
    return _KEPT[function, chosen] if (function, chosen) in _KEPT else saturating(function, chosen)


LOGITS = (56, 120)
"""The largest |x| of the sigmoids of losses."""


def loss_sigmoid(largest: int) -> Series:
    """The sigmoid of losses, for logits up to one of LOGITS.

    What was fitted on [-32, 32] is even around 32, a quarter of its period, as all sums of odd sines are: it stays
    saturated up to 56, and falls back only behind that.
    """
    return FITTED["sigmoid", 32, 40] if largest == LOGITS[0] else saturating("sigmoid", largest)


# fmt: off
FITTED: dict[tuple[str, int, int], Series] = {
    ("sigmoid", 8, 7): Series(
        5,
        tuple(range(1, 14, 2)),
        524288,
        (0,) * 7,
        (
            627102, 132633, 37813, 10947, 3217, 917, 274,
        ),
    ),
    ("sigmoid", 32, 40): Series(
        7,
        tuple(range(1, 80, 2)),
        524288,
        (0,) * 40,
        (
            664906, 214771, 121143, 79084, 54803, 39063, 28244, 20573, 15045, 11025, 8088, 5937, 4360, 3202, 2352,
            1728, 1269, 932, 685, 503, 370, 271, 199, 147, 108, 79, 58, 43, 31, 23, 17, 12, 9, 7, 5, 4, 3, 2, 1, 1,
        ),
        interval_bits=1,
    ),
    ("tanh", 4, 7): Series(
        4,
        tuple(range(1, 14, 2)),
        0,
        (0,) * 7,
        (
            1254204, 265266, 75626, 21894, 6434, 1835, 549,
        ),
    ),
    ("expm1", 4, 12): Series(
        4,
        tuple(range(1, 13)),
        16529770,
        (
            -10187116, -17557523, 13816473, 2258629, -10564595, 8227417, -2045749, -1963376, 2569706, -1515292,
            516338, -85348,
        ),
        (
            26985067, -10364371, -12971064, 15911030, -4115973, -7761914, 12008549, -9670228, 5269823, -1993554,
            486561, -59096,
        ),
    ),
    ("expm1", 6, 16): Series(
        4,
        tuple(range(1, 17)),
        85002572,
        (
            -123955036, 38812003, 21110993, -49431748, 56687995, -52375410, 42824695, -31941897, 21949433, -13901177,
            8065563, -4234138, 1968291, -780019, 244242, -49327,
        ),
        (
            109878166, -145207521, 129492300, -98840103, 69229085, -45398679, 27934371, -16026722, 8464814, -4029033,
            1664255, -550501, 111939, 13305, -23803, 9816,
        ),
        interval_bits=1,
    ),
}
# fmt: on
"""By function, largest |x| and number of terms: fits made once by `fit_series` and kept.

Hosts whose linear algebra differs in the last bit must not fit again. A coefficient that differs by one unit between
the parties would multiply a uniform share by it: garbage, not an error.
"""

_KEPT = {(function, bound): kept for (function, bound, _), kept in FITTED.items() if bound in INTERVALS[function]}
"""What was fitted: e^x - 1, and narrow intervals, on which neighbours would be felt. Others have a closed form."""


def fit_sigmoid(bound: int, terms: int) -> Series:
    odd = fit_tanh(bound, terms, lambda x: np.tanh(x / 2) / 2)
    return Series(odd.period_bits, odd.harmonics, 1 << (COEFFICIENT_SCALE - 1), odd.cos, odd.sin)


def fit_tanh(bound: int, terms: int, function: Callable[[Array], Array] = np.tanh) -> Series:
    return fit_series(function, bound, (4 * bound).bit_length() - 1, terms, odd=True)


def fit_expm1(bound: int, terms: int) -> Series:
    """In a period of 16: where x ends at 6, the last 4 are enough to come back from e^6."""
    return fit_series(np.expm1, bound, 4, terms, odd=False, ridge=1e-9)


PI = Decimal("3.14159265358979323846264338327950288419716939937510")
TAIL = {"tanh": 4, "sigmoid": 8}
"""How far before half its period a function's series ends: one more unit of tanh is e^2 times more exact."""


@cache
def saturating(function: str, interval: int) -> Series:
    """The series of tanh or the sigmoid on [-interval, interval], where interval + TAIL is a power of two."""
    period = 2 * (interval + TAIL[function])
    assert period & (period - 1) == 0
    stretch = TAIL[function] // TAIL["tanh"]
    terms = 7 * period // (16 * stretch)
    harmonics = tuple(range(1, 2 * terms, 2))
    sin = tuple(_coefficient(k, period // stretch, stretch) for k in harmonics)
    constant = 1 << (COEFFICIENT_SCALE - 1) if function == "sigmoid" else 0
    return Series(period.bit_length() - 1, harmonics, constant, (0,) * terms, sin, interval_bits=1)


def _coefficient(k: int, period: int, divisor: int) -> int:
    """4 pi / (P sinh(pi^2 k / P)) over a divisor, as an integer over 2**COEFFICIENT_SCALE."""
    with localcontext(Context(prec=50)):
        growth = (PI * PI * k / period).exp()
        value = 8 * PI / (period * divisor * (growth - 1 / growth))
        return int((value * (1 << COEFFICIENT_SCALE)).to_integral_value())


class Bend(NamedTuple):
    """The series of a bent function: where it ends before half its period, its terms, and its largest error."""

    tail: int
    terms: int
    """For each 32 of the period."""
    error: float
    """On the interval, in floats."""


BENT = {"gelu": Bend(4, 10, 1.2e-4), "silu": Bend(10, 8, 3.8e-4), "softplus": Bend(8, 7, 3.8e-4)}


@cache
def even_part(function: str, interval: int) -> Series:
    """The series of GELU, SiLU or Softplus less x/2 on [-interval, interval]; interval + tail is a power of two."""
    bend = BENT[function]
    period = 2 * (interval + bend.tail)
    assert period & (period - 1) == 0
    terms = bend.terms * period // 32
    harmonics = tuple(range(1, 2 * terms, 2))
    with localcontext(Context(prec=50)):
        factor = Decimal(4 << COEFFICIENT_SCALE) / period
        cos = tuple(int((factor * _bend(function, 2 * PI * k / period)).to_integral_value()) for k in harmonics)
        at_zero = int((Decimal(2).ln() * (1 << COEFFICIENT_SCALE)).to_integral_value()) if function == "softplus" else 0
    return Series(period.bit_length() - 1, harmonics, at_zero - sum(cos), cos, (0,) * terms, interval_bits=1)


def _bend(function: str, w: Decimal) -> Decimal:
    """The integral of h(x) cos(w x) over all x, in the sense that integrals of |x| cos(w x) have one."""
    if function == "gelu":
        return -(-w * w / 2).exp() * (1 + 1 / (w * w))
    growth = (PI * w).exp()
    sinh, cosh = (growth - 1 / growth) / 2, (growth + 1 / growth) / 2
    return -PI * PI * cosh / (sinh * sinh) if function == "silu" else -PI / (w * sinh)
