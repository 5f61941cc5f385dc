"""Results of single functions are rounded where docs/security.md says: at the size of their error, phases included."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from hdcos.protocol.catalogue import FUNCTIONS, Call, Function
from hdcos.protocol.plan import plan
from hdcos.ring import Array, decode, encode
from hdcos.sharing import join
from hdcos.testing.pair import deal as deal_by_dealer
from hdcos.testing.pair import share_pair, simulate

EQUAL = 2000
Inputs = Callable[[float], tuple[Array, ...]]


def _equal(x: float) -> Array:
    return np.full((EQUAL // 4, 4), x)


INPUTS: dict[str, Inputs] = {
    **{name: lambda x: (_equal(x), _equal(0.7)) for name in ("multiply", "greater_equal", "maximum", "minimum")},
    "matmul": lambda x: (_equal(x), np.full((4, 4), 0.7)),
    "conv2d": lambda x: (np.full((EQUAL, 1, 2, 2), x), np.full((1, 1, 2, 2), 0.7)),
    "argmax": lambda x: (_equal(x) + np.arange(4),),
}
"""Of functions that take more than one tensor of any shape, or that equal numbers make a matter of chance."""
EXCEPTIONS: dict[str, str] = {}
"""Functions whose results need not be rounded at their error, each with the reason."""


def evaluate(name: str, function: Function, *inputs: Array, **parameters: float) -> tuple[Array, float]:
    """Results before the noise and the rounding with which they leave, and the worth of the last digit then."""
    call = Call.of(name, **parameters)
    shares = [share_pair(encode(x, function.input_scale), function.input_scale) for x in inputs]
    planned = [plan(call.program, *(pair[rank] for pair in shares), rank=rank) for rank in (0, 1)]
    material, allocations = planned[0].material, None
    if any(need.kind.dealer_only for need in material.needs):
        allocations = deal_by_dealer(material, precomputes=[each.precompute for each in planned])
    (zero, one), _ = simulate(call.program, *shares, allocations=allocations)
    results = decode(join(zero.words, one.words, zero.bits), zero.scale, zero.bits)
    return results, 2.0 ** -min(zero.scale, call.output_scale)


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
@pytest.mark.parametrize("x", [0.3, 1.1, -2.0])
def test_the_last_digit_is_as_large_as_the_spread_of_equal_evaluations(name: str, x: float) -> None:
    if name in EXCEPTIONS:
        return
    results, digit = evaluate(name, FUNCTIONS[name], *INPUTS.get(name, lambda x: (_equal(x),))(x))
    # Twice the error on each side, and the last digit is at least half of the error.
    assert results.max() - results.min() <= 4.0 * digit
    assert results.std() <= digit


@pytest.mark.parametrize("slope", [0.01, 0.25, 3.0, -40.0, 500.3])
def test_a_slope_makes_the_last_digit_as_coarse_as_what_it_multiplies(slope: float) -> None:
    """Of a value that is off by a unit, and by the rounding of the slope where the value is large."""
    function = FUNCTIONS["leaky_relu"]
    for x in (-60.03, -0.3, 0.3):
        results, digit = evaluate("leaky_relu", function, _equal(x), slope=slope)
        assert np.abs(results - function.meaning(np.asarray(x), slope=slope)).max() <= 2.0 * digit
        assert results.max() - results.min() <= 4.0 * digit


def test_exceptions_are_functions_that_there_are() -> None:
    assert EXCEPTIONS.keys() | INPUTS.keys() <= FUNCTIONS.keys()
