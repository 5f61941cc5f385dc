"""Which kernels are in use: compiled for this processor, or the reference.

HDCOS_KERNELS=reference chooses the reference; HDCOS_ISA=baseline, v3 or v4 caps the instruction set.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from functools import cache, wraps
from typing import Any, ParamSpec, TypeVar

from hdcos.errors import InputError

P = ParamSpec("P")
T = TypeVar("T")


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


@cache
def streaming() -> Any:
    """The compiled kernels and `expand`, if they and this processor have vector AES: those that read key streams."""
    native = _native()
    return native if native and native.has_keystream else None


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


def compiled_first(validated: Callable[P, T]) -> Callable[P, T]:
    """A kernel whose compiled form, if there is one, sees the arguments as they are.

    It refuses what does not fit as any function refuses arguments, by a TypeError, before it computes anything. What it
    refuses goes to `validated`, which explains what is wrong, or converts, or plans: checks that pass need no Python.
    """
    name = validated.__name__

    @wraps(validated)
    def kernel(*arguments: P.args, **options: P.kwargs) -> T:
        compiled = _compiled(name)
        if compiled is None:
            return validated(*arguments, **options)
        try:
            made: T = compiled(*arguments, **options)
        except TypeError:
            return validated(*arguments, **options)
        return made

    return kernel


@cache
def _compiled(name: str) -> Callable[..., Any] | None:
    return getattr(_native(), name, None)


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
