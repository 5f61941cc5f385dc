"""The Hadamard layer after a cosine, as one kernel, with or without the rounding that opens its result.

z = cos d * a - sin d * b at the public phase d, padded with zeros; y = H z + bias, the first `outputs` of it.
The kernel holds a few rows at a time. Blanks are planned as in kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from hdcos.errors import InputError
from hdcos.ring import checks
from hdcos.ring.backend import compiled_first, implementation
from hdcos.ring.blank import Blank
from hdcos.ring.checks import Pool


@compiled_first
def hadamard_cos(
    phase: Any,
    a: Any,
    b: Any,
    bits: int,
    scale: int,
    size: int,
    outputs: int,
    bias: Any = None,
    pool: Pool | None = None,
    weight: Sequence[Any] = (),
) -> Any:
    """(rows, outputs) words of H z + bias for phase, a and b of shape (rows, units).

    H is the unnormalised Sylvester-Hadamard matrix of `size`, a power of two. With pool = (channels, height,
    width, window) the units are images, summed over window x window blocks before they are padded. With weight =
    (D, w_a, w_b), one D for all rows, a and b become D a - w_a and D b - w_b first.
    """
    phase, a, b, bias, whole, weight = _checked(phase, a, b, bits, scale, size, outputs, bias, pool, weight)
    if checks.is_blank(phase, a, b, bias, *weight):
        return Blank((a.shape[0], outputs))
    return implementation().hadamard_cos(phase, a, b, bits, scale, size, outputs, bias, whole, weight)


@compiled_first
def hadamard_cos_open(
    phase: Any,
    a: Any,
    b: Any,
    bits: int,
    scale: int,
    size: int,
    outputs: int,
    bias: Any,
    pool: Pool | None,
    mask: Any,
    drop: int,
    opened_bits: int,
    ties_up: bool = True,
    weight: Sequence[Any] = (),
) -> Any:
    """round_open(hadamard_cos(...), mask, drop, opened_bits, ties_up), the words never leaving the cache."""
    phase, a, b, bias, whole, weight = _checked(phase, a, b, bits, scale, size, outputs, bias, pool, weight)
    checks.check_opening(drop, opened_bits)
    shape = (a.shape[0], outputs)
    if mask is not None:
        mask = checks.compact(mask, opened_bits, "mask")
        if mask.shape != shape:
            raise InputError(f"a mask of shape {shape} expected, got {mask.shape}")
    if checks.is_blank(phase, a, b, bias, mask, *weight):
        return Blank(shape, checks.compact_dtype(opened_bits))
    opening = mask, drop, opened_bits, ties_up
    return implementation().hadamard_cos_open(phase, a, b, bits, scale, size, outputs, bias, whole, *opening, weight)


@compiled_first
def hadamard_back(
    opened: Any,
    b: Any,
    opened_bits: int,
    with_public: bool,
    phase: Any,
    terms: Sequence[Any],
    weight: Any,
    step: tuple[int, int],
    slope: tuple[int, int],
    phase_bits: int,
    scale: int,
    size: int,
    mask: Any,
    drop: int,
    bits: int,
    ties_up: bool,
) -> tuple[Any, Any, Any]:
    """From a layer's opened gradient x to the message of the layer before; see `reference.hadamard_back`.

    x, opened as D in `opened_bits` (17 to 62) bits, is (rows, width); the units, at most `width` of them, are the
    activations of the layer before, whose transform has `size`.
    """
    checks.check_trig(phase_bits, scale)
    checks.check_opening(drop, bits)
    opened, b = checks.compact(opened, opened_bits, "opened"), checks.words(b, "b", 2)
    phase, weight = checks.compact(phase, phase_bits, "phase"), checks.words(weight, "weight", 1)
    terms = [checks.words(term, "term", 2) for term in terms]
    mask = checks.compact(mask, bits, "mask")
    rows, units = phase.shape
    fits = opened.shape == b.shape and b.shape[0] == rows and units <= b.shape[1]
    fits = fits and len(terms) == 12 and {term.shape for term in terms} == {phase.shape}
    if not fits or weight.shape != (units,) or mask.shape != (rows, size) or not 17 <= opened_bits <= 62:
        raise InputError(f"a gradient of shape {b.shape} and a mask of {mask.shape} do not fit {units} units")
    if size < max(1, units) or size & (size - 1):
        raise InputError(f"size must be a power of two and at least {units}, got {size}")
    if checks.is_blank(opened, b, phase, weight, mask, *terms):
        return Blank(b.shape[1]), Blank(units), Blank((rows, size), checks.compact_dtype(bits))
    opening = mask, drop, bits, ties_up
    lifted = opened, b, opened_bits, with_public
    made = implementation().hadamard_back(*lifted, phase, terms, weight, step, slope, phase_bits, scale, size, *opening)
    return made[0], made[1], made[2]


def _checked(
    phase: Any,
    a: Any,
    b: Any,
    bits: int,
    scale: int,
    size: int,
    outputs: int,
    bias: Any,
    pool: Pool | None,
    weight: Sequence[Any],
) -> tuple[Any, Any, Any, Any, Pool, Sequence[Any]]:
    checks.check_trig(bits, scale)
    phase, a, b = checks.compact(phase, bits, "phase"), checks.words(a, "a", 2), checks.words(b, "b", 2)
    if not phase.shape == a.shape == b.shape:
        checks.same_shape(phase=phase, a=a, b=b)
    whole = _check_layer(a.shape[1], size, outputs, pool if pool is None else tuple(pool))
    if bias is not None:
        bias = checks.words(bias, "bias")
        if bias.shape != (outputs,):
            raise InputError(f"a bias of shape {(outputs,)} expected, got {bias.shape}")
    if weight:
        weight = [checks.words(part, "weight") for part in weight]
        if [part.shape for part in weight] != [a.shape[1:], a.shape, a.shape]:
            raise InputError(f"a weight for units of shape {a.shape} expected, got {[part.shape for part in weight]}")
    return phase, a, b, bias, whole, weight


@lru_cache(1024)
def _check_layer(units: int, size: int, outputs: int, pool: Pool | None) -> Pool:
    """The pooling as four numbers, a window of 1 where there is none."""
    if pool is not None and len(pool) != 4:
        raise InputError(f"pool is channels, height, width and window, got {pool}")
    channels, height, width, window = pool or (units, 1, 1, 1)
    if window < 1 or min(channels, height, width) < 0 or height % window or width % window:
        raise InputError(f"cannot sum {channels} x {height} x {width} over blocks of {window} x {window}")
    if channels * height * width != units:
        raise InputError(f"pooling {channels} x {height} x {width} does not fit {units} units")
    if size < 1 or size & (size - 1) or size < units // window**2:
        raise InputError(f"size must be a power of two and at least {units // window**2}, got {size}")
    if not 1 <= outputs <= size:
        raise InputError(f"1 to {size} outputs can be kept, got {outputs}")
    return channels, height, width, window
