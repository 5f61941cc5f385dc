"""Bytes of a TLS connection moved by compiled code (cpp/pump.cpp), without Python's lock.

Python's ssl takes and gives one record of 16 kB a call, and its lock changes hands around each: a party that receives
material while it exchanges rounds then waits for its own threads more often than for anything else. The pump moves a
whole frame in one call.

Security  the connection is the one that Python's ssl has made: it chose the version, showed and verified certificates
          and holds the keys. The pump calls SSL_read and SSL_write of the same OpenSSL on the same connection, and
          moves what they take and give through the same two memory buffers. It never sees a key.

The address of OpenSSL's connection is no public attribute. It is the second field of `_ssl._SSLSocket` in every CPython
that is named here, and before it is used OpenSSL must say that it belongs to this object and reads from this buffer.
Where anything is otherwise (another Python, an OpenSSL that is part of the interpreter) there is no pump, and
`link.tls` moves the bytes itself.
"""

from __future__ import annotations

import _ssl
import ssl
import sys
import sysconfig
from collections.abc import Sequence
from functools import cache
from typing import Any, Protocol

from hdcos.ring.backend import backend

OLDEST, NEWEST = (3, 11), (3, 13)
"""Versions of CPython with which the pump was tried."""
ALL, SILENT, ENDED, FAILED, BROKEN, INTERRUPTED, BUSY = range(7)
"""Why a call returned: `Moved` of cpp/pump.h."""


class Pump(Protocol):
    """What cpp/pump.h has. It belongs to one thread at a time, as the link does; another that comes is told BUSY."""

    sent: int
    taken: int
    """Bytes handed to the operating system, and taken from it."""
    end_error: int
    """Of the socket, where it has ended; 0 if the peer closed it."""
    cut_error: int
    """Why nothing more can be sent, if so."""
    reason: str
    """Of TLS, where it is broken."""

    def queue(self, buffers: Sequence[Any]) -> int:
        """Send these next, and some of them now: ALL, or BUSY if none of them will be."""

    def read(self, view: memoryview, whole: bool, timeout_s: float | None) -> tuple[int, int]:
        """Why it returned, and how many bytes came: all that were asked for, or some. Sends meanwhile."""

    def flush(self, timeout_s: float | None) -> int:
        """Send all that is queued; why it returned."""

    def close(self) -> None:
        """From any thread: when this returns, nobody touches the socket any more, whose number may become another's."""


def open_pump(tls: ssl.SSLObject, incoming: ssl.MemoryBIO, socket: int, spin: int) -> Pump | None:
    """The pump of a connection whose handshake is done; None where there cannot be one."""
    connection = getattr(tls, "_sslobj", None)
    if connection is None or backend() == "reference" or not _is_known():
        return None
    import hdcos.ring._native as compiled

    made: Pump | None = compiled.open_pump(_ssl.__file__, connection, incoming, socket, spin)
    return made


@cache
def _is_known() -> bool:
    """Whether objects of this Python's `_ssl` have the fields that the pump takes them to have."""
    known = sys.implementation.name == "cpython" and OLDEST <= sys.version_info[:2] <= NEWEST
    return (
        known and hasattr(_ssl, "__file__") and not any(sysconfig.get_config_vars("Py_GIL_DISABLED", "Py_TRACE_REFS"))
    )
