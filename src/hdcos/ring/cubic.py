"""The cubic that stands in for ReLU: plain coefficients, needed by the protocols and by plaintext twins alike."""

from __future__ import annotations

from functools import cache

import numpy as np

RELU_INTERVAL = (-4.0, 6.0)


@cache
def relu_cubic() -> tuple[float, float, float, float]:
    """The cubic closest to ReLU on [-4, 6] in the least-squares sense, coefficients from the constant up.

    The interval is not symmetric on purpose: on a symmetric one ReLU is x/2 plus an even function, so the best
    cubic has no cubic term and degree 3 would buy nothing over degree 2. The cubic coefficient is -1/128, which few
    bits hold exactly, next to the best value of -0.0081; the others are the best ones beside it.
    """
    x = np.linspace(*RELU_INTERVAL, 4001)
    cubic = -1 / 128
    c = np.polynomial.Polynomial.fit(x, np.maximum(x, 0) - cubic * x**3, 2).convert().coef
    return float(c[0]), float(c[1]), float(c[2]), cubic
