"""Least-squares fits of trigonometric series and of the cubic that stands in for ReLU.

Parties compute with the integers of `fitted`, the same on every host; any other fit is made by whoever defines a
program, and its integers travel with the program. So no two hosts compute with coefficients that differ by a bit.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import pi

import numpy as np

from hdcos.errors import InputError
from hdcos.protocol.fitted import FITTED
from hdcos.protocol.fourier import COEFFICIENT_SCALE, Series
from hdcos.ring import Array
from hdcos.ring.cubic import RELU_INTERVAL as RELU_INTERVAL
from hdcos.ring.cubic import relu_cubic as relu_cubic

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


@cache
def sigmoid(bound_bits: int = 3, terms: int = 7) -> Series:
    """1 / (1 + e^-x) on [-2**bound_bits, 2**bound_bits]: largest error 1.2e-4 on [-8, 8] with 7 terms."""
    return FITTED.get(("sigmoid", bound_bits, terms)) or fit_sigmoid(bound_bits, terms)


def fit_sigmoid(bound_bits: int, terms: int) -> Series:
    odd = fit_series(lambda x: np.tanh(x / 2) / 2, 2.0**bound_bits, bound_bits + 2, terms, odd=True)
    return Series(odd.period_bits, odd.harmonics, 1 << (COEFFICIENT_SCALE - 1), odd.cos, odd.sin)


@cache
def tanh(bound_bits: int = 2, terms: int = 7) -> Series:
    """tanh on [-2**bound_bits, 2**bound_bits]."""
    return FITTED.get(("tanh", bound_bits, terms)) or fit_tanh(bound_bits, terms)


def fit_tanh(bound_bits: int, terms: int) -> Series:
    return fit_series(np.tanh, 2.0**bound_bits, bound_bits + 2, terms, odd=True)


@cache
def expm1(bound_bits: int = 2, terms: int = 12) -> Series:
    """e^x - 1 on [-2**bound_bits, 2**bound_bits]."""
    return FITTED.get(("expm1", bound_bits, terms)) or fit_expm1(bound_bits, terms)


def fit_expm1(bound_bits: int, terms: int) -> Series:
    return fit_series(np.expm1, 2.0**bound_bits, bound_bits + 2, terms, odd=False, ridge=1e-9)
