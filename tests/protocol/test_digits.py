"""Results of single functions are rounded where docs/security.md says: at the size of their error, phases included."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from hdcos.protocol import cosine, growing_cos
from hdcos.protocol.catalogue import FUNCTIONS, Call, Function
from hdcos.protocol.plan import plan
from hdcos.ring import Array, decode, encode
from hdcos.sharing import join
from hdcos.testing.pair import deal as deal_by_dealer
from hdcos.testing.pair import share_pair, simulate

EQUAL = 2000
INSIDE = (0.3, 1.1, -2.0)
PHASE_BITS = (16, 22, 26, 32, 36, 40)
MOST_PHASE_BITS = 40
"""That a client may ask for."""
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


def cases() -> Iterator[tuple[str, dict[str, int]]]:
    """Every function, with phases of every width that it takes."""
    for name, function in sorted(FUNCTIONS.items()):
        if "phase_bits" not in function.parameters:
            yield name, {}
            continue
        most = function.input_scale + function.parameters.get("series", {"period_bits": MOST_PHASE_BITS})["period_bits"]
        yield from ((name, {"phase_bits": bits}) for bits in PHASE_BITS if bits <= most)


def points(function: Function) -> tuple[float, ...]:
    """Some inputs, and the ends of the interval on which the error is quoted."""
    return *INSIDE, *(function.interval or ())


@pytest.mark.parametrize(("name", "parameters"), list(cases()), ids=str)
def test_the_last_digit_is_as_large_as_the_spread_of_equal_evaluations(name: str, parameters: dict[str, int]) -> None:
    if name in EXCEPTIONS:
        return
    for x in points(FUNCTIONS[name]):
        inputs = INPUTS.get(name, lambda x: (_equal(x),))(x)
        results, digit = evaluate(name, FUNCTIONS[name], *inputs, **parameters)
        # Twice the error on each side, and the last digit is at least half of the error.
        assert results.max() - results.min() <= 4.0 * digit, x
        assert results.std() <= digit, x


def stated(name: str, phase_bits: int, x: float) -> float:
    if name == "growing_cos":
        return growing_cos.error_bound(abs(x), 0, phase_bits)
    return cosine.error_bound(phase_bits)


@pytest.mark.parametrize("phase_bits", PHASE_BITS)
@pytest.mark.parametrize("name", ["cos", "sin", "growing_cos"])
def test_functions_of_an_angle_are_off_by_no_more_than_is_stated(name: str, phase_bits: int) -> None:
    function = FUNCTIONS[name]
    for x in points(function):
        results, digit = evaluate(name, function, _equal(x), phase_bits=phase_bits)
        given = decode(encode(np.asarray(x), function.input_scale), function.input_scale)
        # As an angle in turns x is off besides by the rounding of 1 / (2 pi), the same every time.
        turned = 2 * np.pi * abs(x) * 2.0 ** (function.input_scale - 63)
        bound = stated(name, phase_bits, x) + turned * max(1.0, abs(x))
        assert np.abs(results - function.meaning(given)).max() <= bound
    assert stated(name, phase_bits, function.interval[1]) / 2 <= digit <= stated(name, phase_bits, function.interval[1])


@pytest.mark.parametrize("drop", [4, 10])
def test_what_is_dropped_of_a_factor_coarsens_the_last_digit(drop: int) -> None:
    """x cos x, where x itself is rounded to 2**drop units besides."""
    for x in points(FUNCTIONS["growing_cos"]):
        results, digit = evaluate("growing_cos", FUNCTIONS["growing_cos"], _equal(x), drop=drop)
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
