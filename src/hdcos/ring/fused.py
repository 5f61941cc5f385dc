"""The public kernels that do several things in one pass over memory: Hadamard layers, lifted values, pooled units.

Rows are (rows, units) words; an operand that serves all rows is (units,). A lifted operand x = E - m + t b may have
more units than the product, which takes the first ones, or one per window of `pool` = (channels, height, width,
window).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from hdcos.errors import InputError
from hdcos.ring.backend import (
    check_compact,
    check_opening,
    check_same_shape,
    check_trig,
    check_words,
    compact_dtype,
    implementation_for,
    kernel,
)
from hdcos.ring.types import Blank, HadamardGradient, HadamardLayer, Opening, Pool

MOST_WINDOW = 1 << 16


@kernel
def hadamard_cos(layer: HadamardLayer) -> Any:
    """(rows, outputs) words of a layer; the kernel holds a few rows at a time."""
    layer = _check_layer(layer)
    return (layer,), Blank((layer.a.shape[0], layer.outputs))


@kernel
def hadamard_cos_open(layer: HadamardLayer, opening: Opening) -> Any:
    """round_open(hadamard_cos(layer), *opening), the words never leaving the cache."""
    layer = _check_layer(layer)
    mask, drop, bits, ties_up = opening
    check_opening(drop, bits)
    shape = (layer.a.shape[0], layer.outputs)
    if mask is not None:
        mask = check_compact(mask, bits, "mask")
        if mask.shape != shape:
            raise InputError(f"a mask of shape {shape} expected, got {mask.shape}")
    return (layer, Opening(mask, drop, bits, ties_up)), Blank(shape, compact_dtype(bits))


@kernel
def hadamard_back(gradient: HadamardGradient, opening: Opening) -> Any:
    """The steps of bias and weight, and the message of the layer before; see `reference.hadamard_back`."""
    g, (mask, drop, bits, ties_up) = gradient, opening
    check_trig(g.phase_bits, g.scale)
    check_opening(drop, bits)
    opened, b = check_compact(g.opened, g.opened_bits, "opened"), check_words(g.b, "b", 2)
    phase, weight = check_compact(g.phase, g.phase_bits, "phase"), check_words(g.weight, "weight")
    terms = [check_words(term, "term", 2) for term in g.terms]
    mask = check_compact(mask, bits, "mask")
    (rows, units), count = phase.shape, len(terms) // 10
    fits = opened.shape == b.shape and b.shape[0] == rows and units <= b.shape[1] and _moves(count, b.shape[1])
    fits = fits and len(terms) == 2 + 10 * count and {term.shape for term in terms} == {phase.shape}
    fits = fits and weight.shape == ((units,) if count == 1 else (count, units))
    if not fits or mask.shape != (rows, g.size) or not 17 <= g.opened_bits <= 62:
        raise InputError(f"a gradient of shape {b.shape} and a mask of {mask.shape} do not fit {units} units")
    if g.size < max(1, units) or g.size & (g.size - 1):
        raise InputError(f"size must be a power of two and at least {units}, got {g.size}")
    g = g._replace(opened=opened, b=b, phase=phase, weight=weight, terms=terms)
    planned = Blank(b.shape[1]), Blank(weight.shape), Blank((rows, g.size), compact_dtype(bits))
    return (g, Opening(mask, drop, bits, ties_up)), planned


def _check_layer(layer: HadamardLayer) -> HadamardLayer:
    """A layer whose arrays fit, its pooling as four numbers."""
    check_trig(layer.bits, layer.scale)
    phase, weight, bias = check_compact(layer.phase, layer.bits, "phase"), layer.weight, layer.bias
    a, b = check_words(layer.a, "a", 2), check_words(layer.b, "b", 2)
    check_same_shape(phase=phase, a=a, b=b)
    pool = _check_sizes(a.shape[1], layer.size, layer.outputs, None if layer.pool is None else tuple(layer.pool))
    if bias is not None:
        bias = check_words(bias, "bias")
        if bias.shape != (layer.outputs,):
            raise InputError(f"a bias of shape {(layer.outputs,)} expected, got {bias.shape}")
    own = [a.shape[1:], a.shape, a.shape] if weight else [a.shape, a.shape]
    weight, more = ([check_words(part, "weight") for part in parts] for parts in (weight, layer.more))
    if weight and [part.shape for part in weight] != own:
        raise InputError(f"a weight for units of shape {a.shape} expected, got {[part.shape for part in weight]}")
    count = len(more) // len(own)
    if [part.shape for part in more] != own * count or not _moves(1 + count, layer.size):
        raise InputError(f"terms for units of shape {a.shape} expected, got {[part.shape for part in more]}")
    return layer._replace(phase=phase, a=a, b=b, bias=bias, pool=pool, weight=weight, more=more)


def _moves(terms: int, n: int) -> bool:
    """Whether entries of a row of n can change places by j ^ t for every one of these terms."""
    return terms == 1 or (1 < terms <= n and n & (n - 1) == 0)


@lru_cache(1024)
def _check_sizes(units: int, size: int, outputs: int, pool: Pool | None) -> Pool:
    """The pooling as four numbers, a window of 1 where there is none."""
    if pool is not None and len(pool) != 4:
        raise InputError(f"pool is channels, height, width and window, got {pool}")
    channels, height, width, window = _check_pool(pool or (units, 1, 1, 1))
    if channels * height * width != units:
        raise InputError(f"pooling {channels} x {height} x {width} does not fit {units} units")
    if size < 1 or size & (size - 1) or size < units // window**2:
        raise InputError(f"size must be a power of two and at least {units // window**2}, got {size}")
    if not 1 <= outputs <= size:
        raise InputError(f"1 to {size} outputs can be kept, got {outputs}")
    return channels, height, width, window


def _check_pool(pool: Sequence[int]) -> Pool:
    channels, height, width, window = pool
    fits = 1 <= window < MOST_WINDOW and min(channels, height, width) >= 0
    if not fits or height % window or width % window:
        raise InputError(f"cannot sum {channels} x {height} x {width} over blocks of {window} x {window}")
    return channels, height, width, window


def spread(x: Any, pool: Sequence[int]) -> Any:
    """One value per window of pooled units as one value per unit, along the last axis."""
    if not pool:
        return x
    x, (channels, height, width, window) = check_words(x, "x"), _check_pool(pool)
    units = channels * height * width
    if x.shape[-1] * window**2 != units:
        raise InputError(f"{x.shape[-1]} windows do not make {units} units")
    if isinstance(x, Blank):
        return Blank((*x.shape[:-1], units))
    return implementation_for(x).spread(x, (channels, height, width, window))


def pool_sum(x: Any, pool: Sequence[int]) -> Any:
    """Sums over the windows of pooled units, along the last axis."""
    if not pool:
        return x
    x, (channels, height, width, window) = check_words(x, "x"), _check_pool(pool)
    if x.shape[-1] != channels * height * width:
        raise InputError(f"{x.shape[-1]} units are not {channels} x {height} x {width}")
    if isinstance(x, Blank):
        return Blank((*x.shape[:-1], x.shape[-1] // window**2))
    return implementation_for(x).pool_sum(x, (channels, height, width, window))


@kernel
def lifted_times(E: Any, t: Any, factor: Any, m_factor: Any, b_factor: Any, pool: Sequence[int] = ()) -> Any:
    """[x C] = E [C] - [m C] + t [b C]."""
    lifted, factors, dealt, whole = _check_rows((E, t), (factor,), (m_factor, b_factor), pool)
    return (*lifted, *factors, *dealt, whole), Blank(dealt[0].shape)


@kernel
def lifted_product(
    lifted: Sequence[Any],
    opened: Any,
    mask: Any,
    m_mask: Any,
    b_mask: Any,
    with_public: bool,
    pool: Sequence[int] = (),
) -> Any:
    """[x w] = D [x] - (E [M] - [m M] + t [b M]) for w = D - M; `with_public` adds E to this party's share of x."""
    lifted, factors, dealt, whole = _check_rows(lifted, (opened, mask), (m_mask, b_mask), pool)
    return (lifted, *factors, *dealt, with_public, whole), Blank(dealt[0].shape)


@kernel
def lifted_sums(
    opened: Any, m: Any, b: Any, bits: int, with_public: bool, w_opened: Any, w_mask: Any, m_mask: Any, b_mask: Any
) -> Any:
    """Sums over rows of [x], opened as D in `bits` bits, and of [x w] for w = D_w - M, one pass over both."""
    if not 2 <= bits <= 62:
        raise InputError(f"a lifted value was opened in 2 to 62 bits, not {bits}")
    opened = check_compact(opened, max(bits, 17), "opened")
    m, b = check_words(m, "m", 2), check_words(b, "b", 2)
    factors = [check_words(x, "factor", 2) for x in (w_opened, w_mask, m_mask, b_mask)]
    shape = factors[0].shape
    if not opened.shape == m.shape == b.shape or m.shape[0] != shape[0] or m.shape[1] < shape[1]:
        raise InputError(f"lifted values of shape {m.shape} do not fit factors of {shape}")
    if {x.shape for x in factors} != {shape}:
        raise InputError(f"factors of shape {shape} expected, got {[x.shape for x in factors]}")
    return (opened, m, b, bits, with_public, *factors), (Blank(m.shape[1]), Blank(shape[1]))


def _check_rows(
    lifted: Sequence[Any], factors: Sequence[Any], dealt: Sequence[Any], pool: Sequence[int]
) -> tuple[tuple[Any, ...], tuple[Any, ...], tuple[Any, ...], Pool]:
    """The operands of a product of lifted values, and the pooling as four numbers."""
    shape = dealt[0].shape
    units = int(shape[-1])
    whole = _check_pool(pool) if pool else (units, 1, 1, 1)
    windows = units // whole[3] ** 2
    lifted = tuple(check_words(x[..., :windows], "lifted") for x in lifted)
    factors = tuple(check_words(x, "factor") for x in factors)
    dealt = tuple(check_words(x, "dealt") for x in dealt)
    if (
        any(x.shape not in (shape, shape[-1:]) for x in factors)
        or any(x.shape != shape for x in dealt)
        or len(shape) != 2
    ):
        raise InputError(f"factors of shape {shape} expected, got {[x.shape for x in (*factors, *dealt)]}")
    if any(x.shape not in ((shape[0], windows), (windows,)) for x in lifted):
        raise InputError(f"lifted values for {shape} expected, got {[x.shape for x in lifted]}")
    if len({x.shape for x in lifted}) != 1 or len({x.shape for x in factors}) != 1:
        raise InputError(f"operands differ in shape: {[x.shape for x in (*lifted, *factors)]}")
    if pool and pool[0] * pool[1] * pool[2] != units:
        raise InputError(f"pooling {tuple(pool)} does not fit {units} units")
    return lifted, factors, dealt, whole
