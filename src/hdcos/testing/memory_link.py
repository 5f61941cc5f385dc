"""Two links joined in memory, for tests only: plaintext, no certificates.

Never a production link: with a dealer, whoever knows the masks and sees the openings knows everything, so
what the parties say to each other must be encrypted. Here both ends live in one process and there is nobody
to hide from.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

from hdcos.link.base import Link
from hdcos.link.frame import Buffer
from hdcos.link.transport import LostError, SilentError


class _Pipe:
    """One direction: bytes that were written and not yet read."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.closed = False
        self.ready = threading.Condition()


class MemoryTransport:
    """One end of two pipes. Usable from two threads, one per end."""

    def __init__(self, inward: _Pipe, outward: _Pipe) -> None:
        self._in, self._out = inward, outward
        self.sent = 0
        self.received = 0
        self.unread = 0
        self._broken = False

    def queue(self, pieces: Iterator[Buffer]) -> None:
        out = self._out
        with out.ready:
            for piece in pieces:
                if out.closed:
                    self._broken = True
                    return
                out.data += piece
                self.sent += len(piece)
            out.ready.notify()

    def read(self, view: memoryview, timeout_s: float | None, announced: bool = False) -> int:
        pipe = self._in
        with pipe.ready:
            if not pipe.ready.wait_for(lambda: pipe.data or pipe.closed, timeout_s):
                raise SilentError
            if not pipe.data:
                raise LostError("closed the connection")
            size = min(len(view), len(pipe.data))
            view[:size] = pipe.data[:size]
            del pipe.data[:size]
        self.received += size
        return size

    def flush(self, timeout_s: float | None) -> None:
        if self._broken:
            raise LostError("closed the connection")

    def close(self, linger_s: float = 0.0) -> None:
        for pipe in (self._in, self._out):
            with pipe.ready:
                pipe.closed = True
                pipe.ready.notify()

    def interrupt(self) -> None:
        self.close()

    def os_counters(self) -> tuple[int, int] | None:
        return None


def memory_transports() -> tuple[MemoryTransport, MemoryTransport]:
    """Two joined transports."""
    there, back = _Pipe(), _Pipe()
    return MemoryTransport(back, there), MemoryTransport(there, back)


def memory_pair(names: tuple[str, str] = ("party 0", "party 1"), timeout_s: float | None = 30.0) -> tuple[Link, Link]:
    """The link of party 0 and the link of party 1, each talking to the other."""
    first, second = memory_transports()
    return Link(first, names[1], timeout_s=timeout_s), Link(second, names[0], timeout_s=timeout_s)
