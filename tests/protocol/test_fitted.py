"""The integers that parties compute with are those of the fits, and do not depend on the host."""

import numpy as np
import pytest

from hdcos.protocol import fit
from hdcos.protocol.fitted import FITTED
from hdcos.ring.cubic import fit_cubic, relu_cubic


@pytest.mark.parametrize("name", FITTED, ids=str)
def test_kept_integers_are_those_of_the_fit(name):
    function, bound_bits, terms = name
    kept, made = FITTED[name], getattr(fit, f"fit_{function}")(bound_bits, terms)
    assert getattr(fit, function)(bound_bits, terms) is kept
    assert (kept.period_bits, kept.harmonics) == (made.period_bits, made.harmonics)
    x = np.linspace(-(2.0**bound_bits), 2.0**bound_bits, 1001)
    # Another host's linear algebra may give other last bits, never another function.
    assert np.abs(kept(x) - made(x)).max() < 1e-4


def test_networks_take_kept_integers_only():
    for series in (fit.sigmoid(), fit.sigmoid(5, 40), fit.tanh(), fit.expm1()):
        assert any(series is kept for kept in FITTED.values())


def test_the_cubic_is_the_fit_rounded():
    assert np.abs(np.array(relu_cubic()) - fit_cubic()).max() <= 2**-20
    assert all(float(c * 2**20).is_integer() for c in relu_cubic())
