"""How a kernel is called: which implementation is in use, and what it accepts.

HDCOS_KERNELS=reference chooses the reference; HDCOS_ISA=baseline, v3 or v4 caps the instruction set. Any Blank among
the arguments of a kernel makes the result a Blank of the shape and dtype the real call would have.
"""

from __future__ import annotations

import ctypes
import os
import warnings
from collections.abc import Callable, Iterable
from functools import cache, wraps
from typing import Any, ParamSpec

import numpy as np

from hdcos.errors import InputError
from hdcos.ring.device import DEVICES, contiguous, find_device
from hdcos.ring.trig import MAX_BITS, SPLIT_SCALE
from hdcos.ring.types import Blank

P = ParamSpec("P")

UINT8, UINT64 = np.dtype(np.uint8), np.dtype(np.uint64)
_ARRAYS, _NESTED = (np.ndarray, Blank), (tuple, list)
_COMPACT = {bits: np.min_scalar_type(2**bits - 1) for bits in range(1, 65)}


class SlowKernels(RuntimeWarning):
    """The compiled kernels are missing; plain NumPy computes the same words, many times slower."""


def backend() -> str:
    """The kernels in use, such as "native x86-64-v4" or "reference"."""
    native = _native()
    return native.name if native else "reference"


def keep_memory() -> None:
    """Keep freed memory in the process; for programs that compute for long, called once at their start.

    Arrays of megabytes otherwise come as fresh pages each time, which costs more than computing on them.
    """
    if _native():
        import hdcos.ring._native as compiled

        compiled.keep_memory()


def return_memory() -> None:
    """Give the system back the pages that nothing is left on. They come back one fault at a time if they are wanted
    again: for moments when they will not be."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc; other libraries see to it by themselves
    if trim is not None:
        trim(0)


@cache
def streaming() -> Any:
    """The compiled kernels and `expand`, if they and this processor have vector AES: those that read key streams."""
    native = _native()
    return native if native and native.has_keystream else None


@cache
def aes_implementation() -> Any:
    """The module or object whose AES functions compute: those of the reference where no instruction does it."""
    found = implementation()
    if getattr(found, "has_aes", True):
        return found
    from hdcos.ring import reference

    return reference


@cache
def implementation() -> Any:
    """The module or object whose functions compute; warns once where nothing was compiled."""
    native = _native()
    if native:
        return native
    if os.environ.get("HDCOS_KERNELS") != "reference":
        warnings.warn(
            "hdcos was installed without its compiled kernels and will be many times slower. "
            "Install a C++ compiler and the Python headers, then reinstall hdcos from source.",
            SlowKernels,
            stacklevel=3,
        )
    from hdcos.ring import reference

    return reference


def implementation_for(*arrays: Any) -> Any:
    """Whose functions compute with these arrays: those of this machine, or of the device that one of them lies on."""
    if not DEVICES:
        return implementation()
    device = find_device(arrays)
    return implementation() if device is None else device.kernels


@cache
def _native() -> Any:
    """The compiled kernels of the instruction set that was asked for, or None."""
    choice, level = os.environ.get("HDCOS_KERNELS", "native"), os.environ.get("HDCOS_ISA")
    if choice not in ("native", "reference"):
        raise InputError(f"HDCOS_KERNELS must be native or reference, got {choice!r}")
    if choice == "reference":
        return None
    try:
        import hdcos.ring._native as compiled
    except ImportError:
        return None
    levels = compiled.levels()
    if level is not None and level not in levels:
        raise InputError(f"this host runs kernels for {', '.join(levels)}, not for {level}")
    return compiled.Kernels(level or levels[-1])


@cache
def _compiled(name: str) -> Callable[..., Any] | None:
    return getattr(_native(), name, None)


def kernel(check: Callable[P, tuple[tuple[Any, ...], Any]]) -> Callable[P, Any]:
    """A kernel from its check, which gives the arguments as implementations take them, and the result of a plan.

    The compiled kernel, if there is one, sees the arguments as they are. It refuses what does not fit as any function
    refuses arguments, by a TypeError, before it computes anything. What it refuses goes to `check`, which explains what
    is wrong, or converts: checks that pass need no Python. Arrays of a device have its kernels called.
    """
    name = check.__name__

    def compute(*arguments: P.args, **options: P.kwargs) -> Any:
        checked, planned = check(*arguments, **options)
        return planned if has_blank(checked) else getattr(implementation_for(*checked), name)(*checked)

    @wraps(check)
    def called(*arguments: P.args, **options: P.kwargs) -> Any:
        compiled = _compiled(name)
        if compiled is None or (DEVICES and find_device(arguments) is not None):
            return compute(*arguments, **options)
        try:
            return compiled(*arguments, **options)
        except TypeError:
            return compute(*arguments, **options)

    return called


def has_blank(arguments: Iterable[Any]) -> bool:
    """Whether there is a Blank among arguments, or in the tuples and lists among them."""
    for x in arguments:  # noqa: SIM110 - three times as fast as any()
        if type(x) is Blank or (isinstance(x, _NESTED) and has_blank(x)):
            return True
    return False


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


def check_words(x: Any, name: str, ndim: int | None = None) -> Any:
    """C-contiguous ring words, or the Blank itself."""
    if type(x) is np.ndarray and x.dtype is UINT64 and x.flags.c_contiguous and ndim in (None, x.ndim):
        return x
    if not is_array(x) or x.dtype != UINT64:
        raise InputError(f"{name} must be an array of uint64, got {describe(x)}")
    if ndim is not None and x.ndim != ndim:
        raise InputError(f"{name} must have {ndim} dimensions, got shape {x.shape}")
    return x if isinstance(x, Blank) else contiguous(x)


def check_compact(x: Any, bits: int, name: str) -> Any:
    """C-contiguous values in the compact dtype of `bits`, or a Blank of it; wider dtypes lose high bits."""
    kind = compact_dtype(bits)
    if type(x) is np.ndarray and x.dtype is kind and x.flags.c_contiguous:
        return x
    if not is_array(x) or (x.dtype is not kind and x.dtype.kind != "u"):
        raise InputError(f"{name} must be an array of unsigned integers, got {describe(x)}")
    if x.dtype is not kind and x.dtype != kind:
        x = x.astype(kind)
    return x if isinstance(x, Blank) else contiguous(x)


def check_target(out: Any, shape: tuple[int, ...], name: str) -> None:
    """Refuse what ring words of this shape cannot be written to."""
    if check_words(out, name) is not out:
        raise InputError(f"{name} must be C-contiguous")
    if out.shape != shape:
        raise InputError(f"{name} must have shape {shape}, got {out.shape}")
    if isinstance(out, np.ndarray) and not out.flags.writeable:
        raise InputError(f"{name} cannot be written to")


def check_same_shape(**arrays: Any) -> None:
    if len({x.shape for x in arrays.values()}) > 1:
        listed = ", ".join(f"{name} {x.shape}" for name, x in arrays.items())
        raise InputError(f"shapes must be equal: {listed}")


def is_array(x: Any) -> bool:
    """Whether this is an array of this machine or of a device, or a Blank."""
    return isinstance(x, _ARRAYS) or type(x) in DEVICES


def describe(x: Any) -> str:
    return f"{x.dtype} of shape {x.shape}" if is_array(x) else type(x).__name__
