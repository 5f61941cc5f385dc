"""Which loops are in use: compiled ones where the processor has AES instructions, else the reference."""

from __future__ import annotations

from functools import cache
from typing import Any

from hdcos.ring import backend


@cache
def loops() -> Any:
    """The module whose functions compute; HDCOS_KERNELS=reference chooses the reference."""
    from hdcos.offline.ot import reference

    if backend() == "reference":
        return reference
    from hdcos.offline.ot import native

    return native if native.available() else reference
