"""The integers that parties compute with are those of the fits, and do not depend on the host."""

import hashlib

import numpy as np
import pytest
from scipy.special import erf

from hdcos.errors import InputError
from hdcos.protocol import fit
from hdcos.protocol.fit import FITTED, MAX_AMPLIFICATION
from hdcos.protocol.fourier import COEFFICIENT_SCALE
from hdcos.protocol.intervals import INTERVALS, fit_cubic, relu_cubic

FUNCTIONS = {"tanh": np.tanh, "sigmoid": lambda x: 0.5 + 0.5 * np.tanh(x / 2), "expm1": np.expm1}
EVEN = {
    "gelu": lambda x: x * erf(x / np.sqrt(2)) / 2,
    "silu": lambda x: x * np.tanh(x / 2) / 2,
    "softplus": lambda x: np.logaddexp(x / 2, -x / 2),
}
"""Bent functions less x/2."""
OFFERED = [(function, interval) for function in FUNCTIONS for interval in INTERVALS[function]]
BENT = [(function, interval) for function in EVEN for interval in INTERVALS[function]]


@pytest.mark.parametrize("name", FITTED, ids=str)
def test_kept_integers_are_those_of_the_fit(name):
    function, bound, terms = name
    kept, made = FITTED[name], getattr(fit, f"fit_{function}")(bound, terms)
    assert (kept.period_bits, kept.harmonics) == (made.period_bits, made.harmonics)
    x = np.linspace(-bound, bound, 1001)
    # Another host's linear algebra may give other last bits, never another function.
    assert np.abs(kept(x) - made(x)).max() < 1e-4


def test_functions_take_kept_integers_where_nothing_is_said():
    for series in (fit.loss_sigmoid(56), *map(fit.series, FUNCTIONS)):
        assert any(series is kept for kept in FITTED.values())


@pytest.mark.parametrize(("function", "interval"), OFFERED)
def test_every_series_is_its_function_on_its_interval_and_multiplies_errors_little(function, interval):
    series, exact = fit.series(function, interval), FUNCTIONS[function]
    x = np.linspace(-interval, interval, 20_001)
    assert np.abs(series(x) - exact(x)).max() <= 6e-4 * max(1.0, exact(interval) / 10)
    assert interval <= 2 ** (series.period_bits - series.interval_bits)
    assert sum(map(abs, series.cos + series.sin)) <= MAX_AMPLIFICATION * exact(interval) * 2**COEFFICIENT_SCALE


@pytest.mark.parametrize(("function", "interval"), BENT)
def test_every_bent_function_is_within_its_stated_error_everywhere_on_its_interval(function, interval):
    series, stated = fit.series(function, interval), fit.BENT[function].error
    x = np.linspace(-interval, interval, 20_001)
    off = np.abs(series(x) - EVEN[function](x)).max()
    assert 0.5 * stated < off < stated, "stated neither too small nor far too large"
    assert np.abs(series(np.zeros(1)) - EVEN[function](np.zeros(1))) < 2**-20, "right at zero"
    assert interval <= 2 ** (series.period_bits - series.interval_bits)
    assert sum(map(abs, series.cos)) <= MAX_AMPLIFICATION * EVEN[function](interval) * 2**COEFFICIENT_SCALE


def test_integers_in_closed_form_are_the_same_on_every_host():
    bent = [(s.period_bits, s.constant, s.cos) for s in (fit.series(*each) for each in BENT)]
    assert (
        hashlib.sha256(repr(bent).encode()).hexdigest()
        == "532407437a8233f2e567d07a1a837f90d6f1b0a4bdb32f7df9b3d5a4b7331b95"
    )
    closed = [fit.series(f, i) for f, i in OFFERED if (f, i) not in {(f, bound) for f, bound, _ in FITTED}]
    digest = hashlib.sha256(repr([(s.period_bits, s.constant, s.sin) for s in closed]).encode()).hexdigest()
    assert len(closed) == 10
    assert digest == "d4ab2e794ec07ada3b4254bd3b0d36ea93e331bfcbaf4a58c055203d9db1edaf"


def test_an_interval_without_a_series_is_refused_with_those_there_are():
    with pytest.raises(InputError, match=r"tanh has series up to 4, 12, 28, 60, 124, 252, none up to 16"):
        fit.series("tanh", 16)


def test_the_cubic_is_the_fit_rounded():
    assert np.abs(np.array(relu_cubic()) - fit_cubic()).max() <= 2**-20
    assert all(float(c * 2**20).is_integer() for c in relu_cubic())
