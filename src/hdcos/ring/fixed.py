"""Real numbers to ring words and back.

The word of v at scale s is round(v * 2**s), ties to even, modulo 2**64.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from hdcos.errors import InputError, RangeError
from hdcos.ring.types import Blank, Compact, Signed, Words


def encode(values: npt.ArrayLike | Blank, scale_bits: int, bits: int = 64) -> Words:
    """Ring words of real values; `bits` is the signed range that must hold them."""
    _check_scale(scale_bits, bits)
    if isinstance(values, Blank):
        return Blank(values.shape, np.uint64)  # type: ignore[return-value]
    reals = np.asarray(values)
    if reals.dtype.kind in "biu":
        return _encode_integers(reals, scale_bits, bits)
    if reals.dtype.kind != "f":
        raise InputError(f"numbers expected, got an array of {reals.dtype} and shape {reals.shape}")
    if not np.isfinite(reals).all():
        raise InputError(f"an array of shape {reals.shape} contains NaN or infinity")
    with np.errstate(over="ignore"):
        scaled = np.rint(np.ldexp(reals.astype(np.float64), scale_bits))
    if scaled.size and np.abs(scaled).max() >= 2.0 ** (bits - 1):
        raise _too_large(float(np.abs(reals).max()), scale_bits, bits)
    return np.ascontiguousarray(scaled.astype(np.int64)).view(np.uint64)


def _encode_integers(integers: npt.NDArray[Any], scale_bits: int, bits: int) -> Words:
    largest = max(abs(int(integers.max())), abs(int(integers.min()))) if integers.size else 0
    if largest << scale_bits >= 1 << (bits - 1):
        raise _too_large(largest, scale_bits, bits)
    return np.ascontiguousarray(integers.astype(np.int64) << scale_bits).view(np.uint64)


def decode(words: Compact | Blank, scale_bits: int, bits: int = 64) -> npt.NDArray[np.float64]:
    """Real values of ring words, read as signed numbers of `bits` bits."""
    _check_scale(scale_bits, bits)
    if isinstance(words, Blank):
        return Blank(words.shape, np.float64)  # type: ignore[return-value]
    if not isinstance(words, np.ndarray) or words.dtype.kind != "u":
        raise InputError(f"ring words expected, got {getattr(words, 'dtype', type(words).__name__)}")
    signed = (words.astype(np.uint64) << np.uint64(64 - bits)).view(np.int64) >> np.int64(64 - bits)
    return np.ldexp(signed.astype(np.float64), -scale_bits)


def _check_scale(scale_bits: int, bits: int) -> None:
    if not 0 <= scale_bits < 64 or not 1 <= bits <= 64:
        raise InputError(f"scale must be 0..63 and bits 1..64, got scale {scale_bits} and bits {bits}")


def _too_large(largest: float, scale_bits: int, bits: int) -> RangeError:
    return RangeError(
        f"largest magnitude {largest:.6g} does not fit: scale {scale_bits} in {bits} bits "
        f"holds magnitudes below {2.0 ** (bits - 1 - scale_bits):.6g}; make the values smaller"
    )


def centred_sum(coins: Words, bits: int = 16) -> Signed:
    """The sum of four uniform numbers of up to 16 bits, which each coin is, less its mean."""
    numbers = np.ascontiguousarray(coins).astype("<u8").view("<u2").reshape(*coins.shape, 4).astype(np.int64)
    total: Signed = (numbers >> (16 - bits)).sum(axis=-1) - 2 * ((1 << bits) - 1)
    return total
