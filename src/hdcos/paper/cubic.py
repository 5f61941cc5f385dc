"""The cubic that stands in for ReLU, without the protocols beside which hdcos.protocol.fit has it."""

from __future__ import annotations

from functools import cache

import numpy as np


@cache
def relu_cubic() -> tuple[float, float, float, float]:
    """The coefficients of hdcos.protocol.fit.relu_cubic, from the constant up; a test compares them."""
    x = np.linspace(-4.0, 6.0, 4001)
    cubic = -1 / 128
    c = np.polynomial.Polynomial.fit(x, np.maximum(x, 0) - cubic * x**3, 2).convert().coef
    return float(c[0]), float(c[1]), float(c[2]), cubic
