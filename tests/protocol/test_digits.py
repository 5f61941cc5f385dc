"""Results of single functions are rounded where docs/security.md says: at the size of their error, phases included."""

from __future__ import annotations

import numpy as np
import pytest

from hdcos.protocol.catalogue import FUNCTIONS, Call
from hdcos.ring import decode, encode
from hdcos.sharing import join
from hdcos.testing.pair import share_pair, simulate

APPROXIMATE = ("cos", "sin", "cos_paper", "sigmoid", "tanh", "expm1", "growing_cos")


@pytest.mark.parametrize("name", APPROXIMATE)
@pytest.mark.parametrize("x", [0.3, 1.1, -2.0])
def test_the_last_digit_is_as_large_as_the_spread_of_equal_evaluations(name: str, x: float) -> None:
    function, call = FUNCTIONS[name], Call.of(name)
    shares = share_pair(encode(np.full((500, 4), x), function.input_scale), function.input_scale)
    (zero, one), _ = simulate(call.program, shares)
    results = decode(join(zero.words, one.words, zero.bits), zero.scale, zero.bits)
    spread = (results.max() - results.min()) * 2.0**call.output_scale
    assert spread <= 4.0  # twice the error on each side, and the last digit is at least half of the error
    assert results.std() * 2.0**call.output_scale <= 1.0
