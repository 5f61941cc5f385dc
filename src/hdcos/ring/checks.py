"""What the kernels accept, and the errors they raise."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from hdcos.errors import InputError
from hdcos.ring.blank import Blank
from hdcos.ring.trig import MAX_BITS, SPLIT_SCALE

Words = npt.NDArray[np.uint64]
Compact = npt.NDArray[np.unsignedinteger[Any]]
Signed = npt.NDArray[np.int64]

UINT64 = np.dtype(np.uint64)
_COMPACT = tuple(np.dtype(kind) for kind in (np.uint8, np.uint16, np.uint32, np.uint64))


def compact_dtype(bits: int) -> np.dtype[Any]:
    """The smallest unsigned dtype that holds values of `bits` bits."""
    check_width(bits)
    return _COMPACT[(bits > 8) + (bits > 16) + (bits > 32)]


def check_width(bits: int) -> None:
    if not 1 <= bits <= 64:
        raise InputError(f"a width must be 1 to 64 bits, got {bits}")


def check_trig(bits: int, scale: int) -> None:
    if not 1 <= bits <= MAX_BITS or not 0 <= scale <= SPLIT_SCALE:
        raise InputError(
            f"phases have 1 to {MAX_BITS} bits and tables a scale of 0 to {SPLIT_SCALE}, "
            f"got {bits} bits and scale {scale}"
        )


def words(x: Any, name: str, ndim: int | None = None) -> Any:
    """C-contiguous ring words, or the Blank itself."""
    if not isinstance(x, np.ndarray | Blank) or x.dtype != UINT64:
        raise InputError(f"{name} must be an array of uint64, got {described(x)}")
    if ndim is not None and x.ndim != ndim:
        raise InputError(f"{name} must have {ndim} dimensions, got shape {x.shape}")
    return x if isinstance(x, Blank) or x.flags.c_contiguous else np.ascontiguousarray(x)


def compact(x: Any, bits: int, name: str) -> Any:
    """C-contiguous values in the compact dtype of `bits`, or a Blank of it; wider dtypes lose high bits."""
    kind = compact_dtype(bits)
    if not isinstance(x, np.ndarray | Blank) or x.dtype.kind != "u":
        raise InputError(f"{name} must be an array of unsigned integers, got {described(x)}")
    if x.dtype != kind:
        x = x.astype(kind)
    return x if isinstance(x, Blank) or x.flags.c_contiguous else np.ascontiguousarray(x)


def same_shape(**arrays: Any) -> None:
    shapes = {tuple(x.shape) for x in arrays.values()}
    if len(shapes) > 1:
        listed = ", ".join(f"{name} {tuple(x.shape)}" for name, x in arrays.items())
        raise InputError(f"shapes must be equal: {listed}")


def described(x: Any) -> str:
    if isinstance(x, np.ndarray | Blank):
        return f"{x.dtype} of shape {x.shape}"
    return type(x).__name__


def is_blank(*arrays: Any) -> bool:
    return any(isinstance(x, Blank) for x in arrays)
