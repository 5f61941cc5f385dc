"""Which kernels are in use: compiled for this processor, or the reference.

HDCOS_KERNELS=reference chooses the reference; HDCOS_ISA=baseline, v3 or v4 caps the instruction set.
"""

from __future__ import annotations

import os
import warnings
from functools import cache
from typing import TYPE_CHECKING, Any

from hdcos.errors import InputError

if TYPE_CHECKING:
    from hdcos.ring.native import Native


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
    native = _native()
    if native:
        native.keep_memory()


@cache
def streaming() -> Native | None:
    """The compiled kernels, if they and this processor have vector AES: those that read key streams."""
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
            "Install a C++ compiler and the Python headers, then reinstall hdcos.",
            SlowKernels,
            stacklevel=3,
        )
    from hdcos.ring import reference

    return reference


@cache
def _native() -> Native | None:
    choice = os.environ.get("HDCOS_KERNELS", "native")
    if choice not in ("native", "reference"):
        raise InputError(f"HDCOS_KERNELS must be native or reference, got {choice!r}")
    if choice == "reference":
        return None
    try:
        from hdcos.ring.native import Native
    except ImportError:
        return None
    return Native(os.environ.get("HDCOS_ISA"))
