"""The bytes below a link: an ordered stream in both directions, and how one ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from hdcos.link.frame import Buffer


class LostError(Exception):
    """The connection ended or broke. The text is a verb phrase: "closed the connection"."""


class GoodbyeError(LostError):
    """The peer closed on purpose and said so."""


class SilentError(Exception):
    """Nothing moved for as long as the caller was ready to wait."""


class Transport(Protocol):
    """What a Link needs from the bytes below it: an ordered stream in both directions, used by one thread at a time.

    Two transports exist: TLS over TCP, and memory for tests.

    `queue` takes what is to be sent and may send some of it; `read` waits for at least one byte, and for more where
    the peer has announced that all of `view` will come, and sends meanwhile; `flush` returns when everything queued
    was handed to the operating system. A broken direction never hides bytes that arrived before the break: the peer's
    last words are read first.
    """

    @property
    def sent(self) -> int:
        """Bytes handed to the operating system so far."""

    @property
    def received(self) -> int:
        """Bytes taken from the operating system and consumed so far."""

    @property
    def unread(self) -> int:
        """Bytes taken from the operating system that nobody has asked for yet."""

    def queue(self, pieces: Iterator[Buffer]) -> None: ...

    def read(self, view: memoryview, timeout_s: float | None, announced: bool = False) -> int: ...

    def flush(self, timeout_s: float | None) -> None: ...

    def close(self, linger_s: float = 0.0) -> None:
        """Stop. With a linger, first let the peer read what was sent (for at most that long)."""

    def interrupt(self) -> None:
        """End the stream from any thread; a read that waits finds it closed."""

    def os_counters(self) -> tuple[int, int] | None: ...
