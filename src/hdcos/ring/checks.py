"""What the kernels accept, and the errors they raise."""

from __future__ import annotations

from typing import Any

import numpy as np

from hdcos.errors import InputError
from hdcos.ring.blank import Blank
from hdcos.ring.trig import MAX_BITS, SPLIT_SCALE

UINT8, UINT64 = np.dtype(np.uint8), np.dtype(np.uint64)
ARRAYS = (np.ndarray, Blank)
MOST_WINDOW = 1 << 16
_COMPACT = {bits: np.min_scalar_type(2**bits - 1) for bits in range(1, 65)}


def compact_dtype(bits: int) -> np.dtype[Any]:
    """The smallest unsigned dtype that holds values of `bits` bits."""
    kind = _COMPACT.get(bits)
    if kind is None:
        raise InputError(f"a width must be 1 to 64 bits, got {bits}")
    return kind


def check_trig(bits: int, scale: int) -> None:
    if not 1 <= bits <= MAX_BITS or not 0 <= scale <= SPLIT_SCALE:
        raise InputError(
            f"phases have 1 to {MAX_BITS} bits and tables a scale of 0 to {SPLIT_SCALE}, "
            f"got {bits} bits and scale {scale}"
        )


def check_opening(drop: int, bits: int) -> None:
    if drop < 0 or bits < 1 or drop + bits > 64:
        raise InputError(f"dropping {drop} bits and keeping {bits} does not fit 64")


def words(x: Any, name: str, ndim: int | None = None) -> Any:
    """C-contiguous ring words, or the Blank itself."""
    if type(x) is np.ndarray and x.dtype is UINT64 and x.flags.c_contiguous and ndim in (None, x.ndim):
        return x
    if not isinstance(x, ARRAYS) or x.dtype != UINT64:
        raise InputError(f"{name} must be an array of uint64, got {described(x)}")
    if ndim is not None and x.ndim != ndim:
        raise InputError(f"{name} must have {ndim} dimensions, got shape {x.shape}")
    return x if isinstance(x, Blank) or x.flags.c_contiguous else np.ascontiguousarray(x)


def target(out: Any, shape: tuple[int, ...], name: str) -> None:
    """Refuse what ring words of this shape cannot be written to."""
    if words(out, name) is not out:
        raise InputError(f"{name} must be C-contiguous")
    if out.shape != shape:
        raise InputError(f"{name} must have shape {shape}, got {out.shape}")
    if isinstance(out, np.ndarray) and not out.flags.writeable:
        raise InputError(f"{name} cannot be written to")


def compact(x: Any, bits: int, name: str) -> Any:
    """C-contiguous values in the compact dtype of `bits`, or a Blank of it; wider dtypes lose high bits."""
    kind = compact_dtype(bits)
    if type(x) is np.ndarray and x.dtype is kind and x.flags.c_contiguous:
        return x
    if not isinstance(x, ARRAYS) or (x.dtype is not kind and x.dtype.kind != "u"):
        raise InputError(f"{name} must be an array of unsigned integers, got {described(x)}")
    if x.dtype is not kind and x.dtype != kind:
        x = x.astype(kind)
    return x if isinstance(x, Blank) or x.flags.c_contiguous else np.ascontiguousarray(x)


def same_shape(**arrays: Any) -> None:
    shapes = [x.shape for x in arrays.values()]
    if shapes.count(shapes[0]) != len(shapes):
        listed = ", ".join(f"{name} {x.shape}" for name, x in arrays.items())
        raise InputError(f"shapes must be equal: {listed}")


def described(x: Any) -> str:
    if isinstance(x, ARRAYS):
        return f"{x.dtype} of shape {x.shape}"
    return type(x).__name__


def is_blank(*arrays: Any) -> bool:
    for x in arrays:  # noqa: SIM110 - three times as fast as any()
        if type(x) is Blank:
            return True
    return False
