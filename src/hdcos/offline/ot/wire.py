"""Talking without a socket: a generator yields what it sends in an exchange and is resumed with what the peer sent.

Both sides of an exchange send the same number of bytes, as on the parties' online link; the shorter is padded with
zeros.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, TypeVar

from hdcos.generators import drive
from hdcos.link import Link
from hdcos.ring import Array

T = TypeVar("T")
Sent = tuple[Sequence[Any], int]
"""Buffers, and how many bytes the exchange has each way."""
Talk = Generator[Sent, Array, T]


def padded(buffers: Sequence[Any], size: int) -> list[Any]:
    missing = size - sum(memoryview(buffer).nbytes for buffer in buffers)
    return [*buffers, bytes(missing)] if missing else list(buffers)


def over_link(talk: Talk[T], link: Link, step: str) -> T:
    """Run one side over a link."""
    return drive(talk, lambda sent: link.exchange(padded(*sent), ((step, sent[1]),)))
