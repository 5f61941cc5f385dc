"""Where series are right: outside its interval a series folds back, because it is periodic and the function is not.

A small fixed family: a network names one of these, every host makes the same integers of it, and all that it says
about the rows it was chosen for is one of a few levels. Beside them, the cubic that stands in for ReLU. Plain numbers,
which the protocols and plaintext networks need alike.
"""

from __future__ import annotations

import numpy as np

INTERVALS: dict[str, tuple[int, ...]] = {
    "tanh": (4, 12, 28, 60, 124, 252),
    "sigmoid": (8, 24, 56, 120, 248, 504),
    "expm1": (4, 6),
    "gelu": (4, 12, 28, 60, 124),
    "silu": (6, 22, 54, 118),
    "softplus": (8, 24, 56, 120),
}
"""By function, the largest |x| of each of its series; the first is taken where nothing is said.

tanh and the sigmoid end where another doubling would add up coefficients to more than four times the function, e^x - 1
where its values would pass the 2**10 that networks reckon with. Those of GELU, SiLU and Softplus, whose coefficients
grow with the interval, end where tables of 21 bits are left for them.
"""

RELU_INTERVAL = (-4.0, 6.0)
RELU_CUBIC = (428945 / 2**20, 596649 / 2**20, 115154 / 2**20, -8192 / 2**20)
"""Coefficients from the constant up, kept as integers over 2**20: every host must compute with the same numbers."""


def relu_cubic() -> tuple[float, float, float, float]:
    """The cubic closest to ReLU on [-4, 6] in the least-squares sense, coefficients from the constant up.

    The interval is not symmetric on purpose: on a symmetric one ReLU is x/2 plus an even function, so the best
    cubic has no cubic term and degree 3 would buy nothing over degree 2. The cubic coefficient is -1/128, which few
    bits hold exactly, next to the best value of -0.0081; the others are the best ones beside it (`fit_cubic`).
    """
    return RELU_CUBIC


def fit_cubic() -> tuple[float, float, float, float]:
    """The fit that the coefficients were rounded from."""
    x = np.linspace(*RELU_INTERVAL, 4001)
    cubic = -1 / 128
    c = np.polynomial.Polynomial.fit(x, np.maximum(x, 0) - cubic * x**3, 2).convert().coef
    return float(c[0]), float(c[1]), float(c[2]), cubic
