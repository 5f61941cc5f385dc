"""The public kernels: validate, then plan (Blanks) or compute; those in loops try the compiled kernel first.

Any Blank among the arrays makes the result a Blank of the shape and dtype the real call would have.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import Any

import numpy as np

from hdcos.errors import FrameError, InputError
from hdcos.ring import checks
from hdcos.ring.backend import compiled_first, implementation
from hdcos.ring.blank import Blank
from hdcos.ring.trig import MAX_BITS
from hdcos.ring.types import HadamardGradient, HadamardLayer, Opening, Pool

_LITTLE = sys.byteorder == "little"


def matmul(a: Any, b: Any, out: Any = None) -> Any:
    """(n, d) times (d, k) modulo 2**64; `out` is where the product goes."""
    a, b = checks.words(a, "a", 2), checks.words(b, "b", 2)
    if a.shape[1] != b.shape[0]:
        raise InputError(f"cannot multiply shapes {a.shape} and {b.shape}")
    shape = (a.shape[0], b.shape[1])
    if out is None:
        return Blank(shape) if checks.is_blank(a, b) else implementation().matmul(a, b)
    checks.target(out, shape, "out")
    if checks.is_blank(a, b, out):
        return Blank(shape)
    if np.may_share_memory(out, a) or np.may_share_memory(out, b):
        out[...] = implementation().matmul(a, b)
        return out
    return implementation().matmul(a, b, out)


def conv2d(x: Any, weight: Any, stride: int = 1, padding: int = 0) -> Any:
    """Cross-correlation of (n, c, h, w) with (o, c, kh, kw) modulo 2**64."""
    x, weight = checks.words(x, "x", 4), checks.words(weight, "weight", 4)
    n, channels, *size = x.shape
    outputs, inputs, *window = weight.shape
    if stride < 1 or padding < 0:
        raise InputError(f"stride must be positive and padding not negative, got {stride} and {padding}")
    shape = [(length + 2 * padding - span) // stride + 1 for length, span in zip(size, window, strict=True)]
    if channels != inputs or 0 in window or min(shape) < 1:
        raise InputError(f"cannot convolve {x.shape} with {weight.shape} at padding {padding}")
    if checks.is_blank(x, weight):
        return Blank((n, outputs, *shape))
    return implementation().conv2d(x, weight, stride, padding)


@compiled_first
def walsh_hadamard(x: Any, out: Any = None) -> Any:
    """x times the unnormalised Sylvester-Hadamard matrix along the last axis; `out` may be x itself."""
    x = checks.words(x, "x")
    if x.ndim == 0 or x.shape[-1] < 1 or x.shape[-1] & (x.shape[-1] - 1):
        raise InputError(f"the last axis must be a power of two, got shape {x.shape}")
    if out is not None:
        checks.target(out, x.shape, "out")
    if checks.is_blank(x, out):
        return Blank(x.shape)
    if out is not None and x is not out and np.may_share_memory(x, out):
        x = x.copy()
    return implementation().walsh_hadamard(x, out)


@compiled_first
def round_open(x: Any, mask: Any, drop: int, bits: int, ties_up: bool = True) -> Any:
    """((x + half) >> drop) + mask modulo 2**bits, in the compact dtype of `bits`.

    Half is 2**(drop-1), or one less to round ties down; nothing is added where nothing is dropped.
    """
    x = checks.words(x, "x")
    checks.check_opening(drop, bits)
    if mask is not None:
        mask = checks.compact(mask, bits, "mask")
        if x.shape != mask.shape:
            checks.same_shape(x=x, mask=mask)
    if checks.is_blank(x, mask):
        return Blank(x.shape, checks.compact_dtype(bits))
    return implementation().round_open(x, mask, drop, bits, ties_up)


def pack(values: Any, bits: int) -> Any:
    """The low `bits` bits of each value as a little-endian bit stream; a view where the layouts agree."""
    values = checks.compact(values, bits, "values")
    if isinstance(values, Blank):
        return Blank(packed_size(values.size, bits), np.uint8)
    if _LITTLE and bits == 8 * values.itemsize:
        return values.reshape(-1).view(checks.UINT8)
    return implementation().pack(values.reshape(-1), bits)


def unpack(buffer: Any, count: int, bits: int) -> Any:
    """The `count` values that pack wrote; a view where the layouts agree."""
    kind = checks.compact_dtype(bits)
    if count < 0:
        raise InputError(f"a count cannot be negative, got {count}")
    buffer = _packed(buffer, count, bits)
    if isinstance(buffer, Blank):
        return Blank(count, kind)
    if _LITTLE and bits == 8 * kind.itemsize:
        values = buffer.view(kind)
        return values if values.flags.aligned else values.copy()
    return implementation().unpack(buffer, count, bits)


@compiled_first
def unpack_sum(buffer: Any, values: Any, bits: int) -> Any:
    """Values plus the packed ones, modulo 2**bits, in the shape of the values."""
    values = checks.compact(values, bits, "values")
    buffer = _packed(buffer, values.size, bits)
    if checks.is_blank(buffer, values):
        return Blank(values.shape, values.dtype)
    return implementation().unpack_sum(buffer, values, bits)


def _packed(buffer: Any, count: int, bits: int) -> Any:
    """The bytes of `count` packed values; FrameError where they cannot be that."""
    if not isinstance(buffer, checks.ARRAYS):
        buffer = np.frombuffer(buffer, checks.UINT8)
    if buffer.dtype != checks.UINT8 or buffer.ndim != 1:
        raise InputError(f"packed values are a row of uint8, got {checks.described(buffer)}")
    if buffer.size != packed_size(count, bits):
        raise FrameError(f"{count} values of {bits} bits take {packed_size(count, bits)} bytes, got {buffer.size}")
    if isinstance(buffer, Blank):
        return buffer
    buffer = np.ascontiguousarray(buffer)
    rest = count * bits % 8
    if rest and int(buffer[-1]) >> rest:
        raise FrameError(f"the padding after {count} values of {bits} bits is not zero")
    return buffer


def modulo(values: Any, bits: int) -> Any:
    """Values modulo 2**bits, in their own dtype."""
    if bits >= 8 * values.dtype.itemsize:
        return values
    return values & values.dtype.type((1 << bits) - 1)


def packed_size(count: int, bits: int) -> int:
    """Bytes that `count` values of `bits` bits take."""
    return (count * bits + 7) // 8


def trig_words(phase: Any, bits: int, scale: int) -> tuple[Any, Any]:
    """2**scale times cos and sin of phase / 2**bits turns, as int64 that is the same on every host."""
    checks.check_trig(bits, scale)
    phase = checks.compact(phase, bits, "phase")
    if isinstance(phase, Blank):
        return Blank(phase.shape, np.int64), Blank(phase.shape, np.int64)
    cos, sin = implementation().trig_words(phase, bits, scale)
    return cos, sin


def dither(x: Any, coins: Any, drop: int) -> Any:
    """Signed x over 2**drop as ring words, rounded with noise whose distribution does not depend on x.

    Each word of `coins` is four uniform 16-bit numbers. Shortened to `drop` bits, their sum is added before rounding:
    one such number makes the mean of the result right for every x, each further one makes one more moment of the error
    the same for every x. Here the first four are; the standard deviation is 0.65 of a unit, the error below 2.5.
    """
    if not 1 <= drop <= 16:
        raise InputError(f"1 to 16 bits can be dropped by dithering, not {drop}")
    coins = checks.words(coins, "coins")
    if not isinstance(x, checks.ARRAYS) or x.dtype != np.int64:
        raise InputError(f"an array of int64 expected, got {checks.described(x)}")
    checks.same_shape(x=x, coins=coins)
    if checks.is_blank(x, coins):
        return Blank(x.shape)
    return implementation().dither(np.ascontiguousarray(x), coins, drop)


def table_phase(phase: Any, bits: int) -> tuple[Any, int]:
    """A phase as tables take it, and its bits: of more than 32 bits the upper 32, rounded."""
    if bits <= MAX_BITS:
        return phase, bits
    kind = checks.compact_dtype(MAX_BITS)
    if isinstance(phase, Blank):
        return Blank(phase.shape, kind), MAX_BITS
    drop = bits - MAX_BITS
    return ((phase + np.uint64(1 << (drop - 1))) >> np.uint64(drop)).astype(kind), MAX_BITS


@compiled_first
def trig_combine(
    phase: Any,
    cos_share: Any,
    sin_share: Any,
    bits: int,
    scale: int,
    cos_coefficients: Any,
    sin_coefficients: Any,
    harmonics: Any,
    *,
    coefficient_shift: int = 0,
) -> Any:
    """Sum over k of (a cos kd + b sin kd) C + (b cos kd - a sin kd) S, with d = phase / 2**bits turns.

    With C = cos kr and S = sin kr of each harmonic k this is the sum of a cos kx + b sin kx at x = d + r.
    The two factors in brackets are rounded to `coefficient_shift` bits fewer, ties up, before they multiply.
    """
    checks.check_trig(bits, scale)
    if not 0 <= coefficient_shift < 64:
        raise InputError(f"coefficients can be shifted by 0 to 63 bits, got {coefficient_shift}")
    phase = checks.compact(phase, bits, "phase")
    cos_share, sin_share = checks.words(cos_share, "cos_share"), checks.words(sin_share, "sin_share")
    series = [_integers(x) for x in (cos_coefficients, sin_coefficients, harmonics)]
    checks.same_shape(cos_coefficients=series[0], sin_coefficients=series[1], harmonics=series[2])
    expected = (*phase.shape, *series[2].shape)
    if cos_share.shape != expected or sin_share.shape != expected:
        raise InputError(f"shares of shape {expected} expected, got {cos_share.shape} and {sin_share.shape}")
    if checks.is_blank(phase, cos_share, sin_share, *series):
        return Blank(phase.shape)
    return implementation().trig_combine(phase, cos_share, sin_share, bits, scale, *series, coefficient_shift)


def rotate(
    phase: Any,
    a: Any,
    b: Any,
    bits: int,
    scale: int,
    cosine: bool = True,
    sine: bool = True,
    out: tuple[Any, Any] = (None, None),
) -> tuple[Any, Any]:
    """(cos d * a - sin d * b, sin d * a + cos d * b) at d = phase / 2**bits turns; None if not asked for.

    `out` is where the two go, None for a new array; a result may take the place of a or b.
    """
    checks.check_trig(bits, scale)
    phase, a, b = checks.compact(phase, bits, "phase"), checks.words(a, "a"), checks.words(b, "b")
    if not phase.shape == a.shape == b.shape:
        checks.same_shape(phase=phase, a=a, b=b)
    if out[0] is not None or out[1] is not None:
        for target in out:
            if target is not None:
                checks.target(target, a.shape, "out")
        a, b = _apart(a, out), _apart(b, out)
    if checks.is_blank(phase, a, b, *out):
        return Blank(a.shape) if cosine else None, Blank(a.shape) if sine else None
    cos, sin = implementation().rotate(phase, a, b, bits, scale, cosine, sine, *out)
    return cos, sin


def _apart(x: Any, targets: tuple[Any, Any]) -> Any:
    """x, or a copy of it where a target overlaps it without being it."""
    if isinstance(x, Blank) or not any(t is not None and t is not x and np.may_share_memory(x, t) for t in targets):
        return x
    return x.copy()


def _integers(x: Any) -> Any:
    """A row of int64."""
    if not isinstance(x, Blank):
        x = np.asarray(x)
    if x.dtype.kind not in "iu" or x.ndim != 1:
        raise InputError(f"a row of integers expected, got {checks.described(x)}")
    return x if isinstance(x, Blank) else np.ascontiguousarray(x, dtype=np.int64)


@compiled_first
def hadamard_cos(layer: HadamardLayer) -> Any:
    """(rows, outputs) words of a layer; the kernel holds a few rows at a time."""
    layer = _checked(layer)
    if checks.is_blank(layer.phase, layer.a, layer.b, layer.bias, *layer.weight):
        return Blank((layer.a.shape[0], layer.outputs))
    return implementation().hadamard_cos(layer)


@compiled_first
def hadamard_cos_open(layer: HadamardLayer, opening: Opening) -> Any:
    """round_open(hadamard_cos(layer), *opening), the words never leaving the cache."""
    layer = _checked(layer)
    mask, drop, bits, ties_up = opening
    checks.check_opening(drop, bits)
    shape = (layer.a.shape[0], layer.outputs)
    if mask is not None:
        mask = checks.compact(mask, bits, "mask")
        if mask.shape != shape:
            raise InputError(f"a mask of shape {shape} expected, got {mask.shape}")
    if checks.is_blank(layer.phase, layer.a, layer.b, layer.bias, mask, *layer.weight):
        return Blank(shape, checks.compact_dtype(bits))
    return implementation().hadamard_cos_open(layer, Opening(mask, drop, bits, ties_up))


@compiled_first
def hadamard_back(gradient: HadamardGradient, opening: Opening) -> tuple[Any, Any, Any]:
    """The steps of bias and weight, and the message of the layer before; see `reference.hadamard_back`."""
    g, (mask, drop, bits, ties_up) = gradient, opening
    checks.check_trig(g.phase_bits, g.scale)
    checks.check_opening(drop, bits)
    opened, b = checks.compact(g.opened, g.opened_bits, "opened"), checks.words(g.b, "b", 2)
    phase, weight = checks.compact(g.phase, g.phase_bits, "phase"), checks.words(g.weight, "weight", 1)
    terms = [checks.words(term, "term", 2) for term in g.terms]
    mask = checks.compact(mask, bits, "mask")
    rows, units = phase.shape
    fits = opened.shape == b.shape and b.shape[0] == rows and units <= b.shape[1]
    fits = fits and len(terms) == 12 and {term.shape for term in terms} == {phase.shape}
    if not fits or weight.shape != (units,) or mask.shape != (rows, g.size) or not 17 <= g.opened_bits <= 62:
        raise InputError(f"a gradient of shape {b.shape} and a mask of {mask.shape} do not fit {units} units")
    if g.size < max(1, units) or g.size & (g.size - 1):
        raise InputError(f"size must be a power of two and at least {units}, got {g.size}")
    if checks.is_blank(opened, b, phase, weight, mask, *terms):
        return Blank(b.shape[1]), Blank(units), Blank((rows, g.size), checks.compact_dtype(bits))
    g = g._replace(opened=opened, b=b, phase=phase, weight=weight, terms=terms)
    total, steps, message = implementation().hadamard_back(g, Opening(mask, drop, bits, ties_up))
    return total, steps, message


def _checked(layer: HadamardLayer) -> HadamardLayer:
    """A layer whose arrays fit, its pooling as four numbers."""
    checks.check_trig(layer.bits, layer.scale)
    phase, weight, bias = checks.compact(layer.phase, layer.bits, "phase"), layer.weight, layer.bias
    a, b = checks.words(layer.a, "a", 2), checks.words(layer.b, "b", 2)
    if not phase.shape == a.shape == b.shape:
        checks.same_shape(phase=phase, a=a, b=b)
    pool = _check_layer(a.shape[1], layer.size, layer.outputs, None if layer.pool is None else tuple(layer.pool))
    if bias is not None:
        bias = checks.words(bias, "bias")
        if bias.shape != (layer.outputs,):
            raise InputError(f"a bias of shape {(layer.outputs,)} expected, got {bias.shape}")
    if weight:
        weight = [checks.words(part, "weight") for part in weight]
        if [part.shape for part in weight] != [a.shape[1:], a.shape, a.shape]:
            raise InputError(f"a weight for units of shape {a.shape} expected, got {[part.shape for part in weight]}")
    return layer._replace(phase=phase, a=a, b=b, bias=bias, pool=pool, weight=weight)


@lru_cache(1024)
def _check_layer(units: int, size: int, outputs: int, pool: Pool | None) -> Pool:
    """The pooling as four numbers, a window of 1 where there is none."""
    if pool is not None and len(pool) != 4:
        raise InputError(f"pool is channels, height, width and window, got {pool}")
    channels, height, width, window = pool or (units, 1, 1, 1)
    fits = 1 <= window < checks.MOST_WINDOW and min(channels, height, width) >= 0
    if not fits or height % window or width % window:
        raise InputError(f"cannot sum {channels} x {height} x {width} over blocks of {window} x {window}")
    if channels * height * width != units:
        raise InputError(f"pooling {channels} x {height} x {width} does not fit {units} units")
    if size < 1 or size & (size - 1) or size < units // window**2:
        raise InputError(f"size must be a power of two and at least {units // window**2}, got {size}")
    if not 1 <= outputs <= size:
        raise InputError(f"1 to {size} outputs can be kept, got {outputs}")
    return channels, height, width, window
