"""The public kernels that compute one thing: products, transforms, packing, openings and cosines.

Those under `kernel` return what implementations take and what a plan gets; see backend. The others are called with
views and in places that only Python can judge.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from hdcos.errors import FrameError, InputError
from hdcos.ring.backend import (
    UINT8,
    check_compact,
    check_opening,
    check_same_shape,
    check_target,
    check_trig,
    check_words,
    compact_dtype,
    describe,
    implementation,
    implementation_for,
    is_array,
    kernel,
)
from hdcos.ring.device import Device, contiguous, to_host
from hdcos.ring.trig import MAX_BITS
from hdcos.ring.types import Blank

_LITTLE = sys.byteorder == "little"


def matmul(a: Any, b: Any, out: Any = None) -> Any:
    """(n, d) times (d, k) modulo 2**64; `out` is where the product goes."""
    a, b = check_words(a, "a", 2), check_words(b, "b", 2)
    if a.shape[1] != b.shape[0]:
        raise InputError(f"cannot multiply shapes {a.shape} and {b.shape}")
    shape = (a.shape[0], b.shape[1])
    if out is not None:
        check_target(out, shape, "out")
    if Blank in (type(a), type(b), type(out)):
        return Blank(shape)
    if out is not None and (np.may_share_memory(out, a) or np.may_share_memory(out, b)):
        out[...] = implementation_for(a).matmul(a, b)
        return out
    return (implementation() if type(a) is np.ndarray else implementation_for(a)).matmul(a, b, out)


@kernel
def conv2d(x: Any, weight: Any, stride: int = 1, padding: int = 0, groups: int = 1, dilation: int = 1) -> Any:
    """Cross-correlation of (n, c, h, w) with (o, c / groups, kh, kw) modulo 2**64."""
    x, weight = check_words(x, "x", 4), check_words(weight, "weight", 4)
    n, channels, *size = x.shape
    outputs, inputs, *window = weight.shape
    if min(stride, groups, dilation) < 1 or padding < 0:
        raise InputError(
            f"stride, groups and dilation must be positive and padding not negative, got {stride}, {groups}, "
            f"{dilation} and {padding}"
        )
    spans = [dilation * (side - 1) + 1 for side in window]
    shape = [(length + 2 * padding - span) // stride + 1 for length, span in zip(size, spans, strict=True)]
    if channels != inputs * groups or outputs % groups or 0 in window or min(shape) < 1:
        raise InputError(f"cannot convolve {x.shape} with {weight.shape} at padding {padding}, {groups} groups")
    return (x, weight, stride, padding, groups, dilation), Blank((n, outputs, *shape))


@kernel
def walsh_hadamard(x: Any, out: Any = None) -> Any:
    """x times the unnormalised Sylvester-Hadamard matrix along the last axis; `out` may be x itself."""
    x = check_words(x, "x")
    if x.ndim == 0 or x.shape[-1] < 1 or x.shape[-1] & (x.shape[-1] - 1):
        raise InputError(f"the last axis must be a power of two, got shape {x.shape}")
    planned = Blank(x.shape)
    if out is not None:
        check_target(out, x.shape, "out")
        if x is not out and Blank not in (type(x), type(out)) and np.may_share_memory(x, out):
            x = x.copy()
    return (x, out), planned


@kernel
def round_open(x: Any, mask: Any, drop: int, bits: int, ties_up: bool = True) -> Any:
    """((x + half) >> drop) + mask modulo 2**bits, in the compact dtype of `bits`.

    Half is 2**(drop-1), or one less to round ties down; nothing is added where nothing is dropped.
    """
    x = check_words(x, "x")
    check_opening(drop, bits)
    if mask is not None:
        mask = check_compact(mask, bits, "mask")
        check_same_shape(x=x, mask=mask)
    return (x, mask, drop, bits, ties_up), Blank(x.shape, compact_dtype(bits))


def pack(values: Any, bits: int) -> Any:
    """The low `bits` bits of each value as a little-endian bit stream, a view where memory has that order already.

    Packed bytes are of this machine, wherever the values lie.
    """
    return to_host(pack_there(values, bits))


def pack_there(values: Any, bits: int) -> Any:
    """The same in the memory that the values lie in."""
    values = check_compact(values, bits, "values")
    if isinstance(values, Blank):
        return Blank(packed_size(values.size, bits), np.uint8)
    if type(values) is not np.ndarray:
        return implementation_for(values).pack(values.reshape(-1), bits)
    if _LITTLE and bits == 8 * values.itemsize:
        return values.reshape(-1).view(UINT8)
    return implementation().pack(values.reshape(-1), bits)


def unpack(buffer: Any, count: int, bits: int, device: Device | None = None) -> Any:
    """The `count` values that pack wrote; a view where memory has that order already; or on a device."""
    kind = compact_dtype(bits)
    if count < 0:
        raise InputError(f"a count cannot be negative, got {count}")
    buffer = _check_packed(buffer, count, bits)
    if isinstance(buffer, Blank):
        return Blank(count, kind)
    if device is not None:
        return device.kernels.unpack(buffer, count, bits)
    if _LITTLE and bits == 8 * kind.itemsize:
        values = buffer.view(kind)
        return values if values.flags.aligned else values.copy()
    return implementation().unpack(buffer, count, bits)


@kernel
def unpack_sum(buffer: Any, values: Any, bits: int) -> Any:
    """Values plus the packed ones, modulo 2**bits, in the shape of the values."""
    values = check_compact(values, bits, "values")
    return (_check_packed(buffer, values.size, bits), values, bits), Blank(values.shape, values.dtype)


def _check_packed(buffer: Any, count: int, bits: int) -> Any:
    """The bytes of `count` packed values; FrameError where they cannot be that."""
    if not is_array(buffer):
        buffer = np.frombuffer(buffer, UINT8)
    if buffer.dtype != UINT8 or buffer.ndim != 1:
        raise InputError(f"packed values are a row of uint8, got {describe(buffer)}")
    if buffer.size != packed_size(count, bits):
        raise FrameError(f"{count} values of {bits} bits take {packed_size(count, bits)} bytes, got {buffer.size}")
    if type(buffer) is not np.ndarray:  # who put them on a device has looked at their end
        return buffer
    buffer = np.ascontiguousarray(buffer)
    check_padding(buffer, count, bits)
    return buffer


def check_padding(buffer: Any, count: int, bits: int) -> None:
    """Refuse packed values whose last byte has more than them."""
    rest = count * bits % 8
    if rest and int(buffer[-1]) >> rest:
        raise FrameError(f"the padding after {count} values of {bits} bits is not zero")


def modulo(values: Any, bits: int) -> Any:
    """Values modulo 2**bits, in their own dtype."""
    if bits >= 8 * values.dtype.itemsize:
        return values
    return values & values.dtype.type((1 << bits) - 1)


def packed_size(count: int, bits: int) -> int:
    """Bytes that `count` values of `bits` bits take."""
    return (count * bits + 7) // 8


@kernel
def trig_words(phase: Any, bits: int, scale: int) -> Any:
    """2**scale times cos and sin of phase / 2**bits turns, as int64 that is the same on every host."""
    check_trig(bits, scale)
    phase = check_compact(phase, bits, "phase")
    return (phase, bits, scale), (Blank(phase.shape, np.int64), Blank(phase.shape, np.int64))


@kernel
def dither(x: Any, coins: Any, drop: int) -> Any:
    """Signed x over 2**drop as ring words, rounded with noise whose distribution does not depend on x.

    Each word of `coins` is four uniform 16-bit numbers. Shortened to `drop` bits, their sum is added before rounding:
    one such number makes the mean of the result right for every x, each further one makes one more moment of the error
    the same for every x. Here the first four are; the standard deviation is 0.65 of a unit, the error below 2.5.
    """
    if not 1 <= drop <= 16:
        raise InputError(f"1 to 16 bits can be dropped by dithering, not {drop}")
    coins = check_words(coins, "coins")
    if not is_array(x) or x.dtype != np.int64:
        raise InputError(f"an array of int64 expected, got {describe(x)}")
    check_same_shape(x=x, coins=coins)
    return (x if isinstance(x, Blank) else contiguous(x), coins, drop), Blank(x.shape)


def table_phase(phase: Any, bits: int) -> tuple[Any, int]:
    """A phase as tables take it, and its bits: of more than 32 bits the upper 32, rounded."""
    if bits <= MAX_BITS:
        return phase, bits
    kind = compact_dtype(MAX_BITS)
    if isinstance(phase, Blank):
        return Blank(phase.shape, kind), MAX_BITS
    drop = bits - MAX_BITS
    return ((phase + np.uint64(1 << (drop - 1))) >> np.uint64(drop)).astype(kind), MAX_BITS


@kernel
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
    check_trig(bits, scale)
    if not 0 <= coefficient_shift < 64:
        raise InputError(f"coefficients can be shifted by 0 to 63 bits, got {coefficient_shift}")
    phase = check_compact(phase, bits, "phase")
    cos_share, sin_share = check_words(cos_share, "cos_share"), check_words(sin_share, "sin_share")
    series = [_check_integers(x) for x in (cos_coefficients, sin_coefficients, harmonics)]
    check_same_shape(cos_coefficients=series[0], sin_coefficients=series[1], harmonics=series[2])
    expected = (*phase.shape, *series[2].shape)
    if cos_share.shape != expected or sin_share.shape != expected:
        raise InputError(f"shares of shape {expected} expected, got {cos_share.shape} and {sin_share.shape}")
    return (phase, cos_share, sin_share, bits, scale, *series, coefficient_shift), Blank(phase.shape)


def _check_integers(x: Any) -> Any:
    """A row of int64."""
    if not isinstance(x, Blank):
        x = np.asarray(x)
    if x.dtype.kind not in "iu" or x.ndim != 1:
        raise InputError(f"a row of integers expected, got {describe(x)}")
    return x if isinstance(x, Blank) else np.ascontiguousarray(x, dtype=np.int64)


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
    check_trig(bits, scale)
    phase, a, b = check_compact(phase, bits, "phase"), check_words(a, "a"), check_words(b, "b")
    if not phase.shape == a.shape == b.shape:
        check_same_shape(phase=phase, a=a, b=b)
    if out[0] is not None or out[1] is not None:
        for target in out:
            if target is not None:
                check_target(target, a.shape, "out")
        a, b = _keep_apart(a, out), _keep_apart(b, out)
    if Blank in (type(phase), type(a), type(b), type(out[0]), type(out[1])):
        return Blank(a.shape) if cosine else None, Blank(a.shape) if sine else None
    cos, sin = implementation_for(phase).rotate(phase, a, b, bits, scale, cosine, sine, *out)
    return cos, sin


def _keep_apart(x: Any, targets: tuple[Any, Any]) -> Any:
    """x, or a copy of it where a target overlaps it without being it."""
    if isinstance(x, Blank) or not any(t is not None and t is not x and np.may_share_memory(x, t) for t in targets):
        return x
    return x.copy()
