"""tanh and the sigmoid as series of any period, in closed form: the same integers on every host, and no fit.

Neighbours of alternating sign, sum over n of (-1)^n tanh(x - n P / 2), make an odd function of period P. Its
coefficients are 4 pi / (P sinh(pi^2 k / P)) for odd k. On |x| <= P / 2 - 4 the neighbours add less than
1 - tanh 4 = 6.7e-4, and 7 P / 16 terms leave out less than 2.3e-4, most of it where the neighbours add nothing.
The sigmoid is 1/2 + tanh(x / 2) / 2: half the coefficients, twice the period.

`decimal` rounds every operation and every exponential exactly as specified, whatever the host.
"""

from __future__ import annotations

from decimal import Context, Decimal, localcontext

from hdcos.protocol.fourier import COEFFICIENT_SCALE, Series

PI = Decimal("3.14159265358979323846264338327950288419716939937510")
TAIL = {"tanh": 4, "sigmoid": 8}
"""How far before half its period a function's series ends: one more unit of tanh is e^2 times more exact."""


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
