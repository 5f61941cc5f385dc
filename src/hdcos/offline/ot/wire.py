"""Talking without a socket: a generator yields what it sends in an exchange and is resumed with what the peer sent.

Both sides of an exchange send the same number of bytes, as on the parties' online link; the shorter is padded with
zeros.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, TypeVar

import numpy as np

from hdcos.errors import HandshakeError
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
    answer: Array | None = None
    while True:
        try:
            buffers, size = talk.send(answer)  # type: ignore[arg-type]
        except StopIteration as finished:
            result: T = finished.value
            return result
        answer = link.exchange(padded(buffers, size), ((step, size),))


def in_lockstep(zero: Talk[Any], one: Talk[Any]) -> tuple[Any, Any]:
    """Run both sides against each other in one thread: for tests."""
    talks, answers = (zero, one), [None, None]
    while True:
        results: list[Any] = []
        payloads: list[Array] = []
        for talk, answer in zip(talks, answers, strict=True):
            try:
                buffers, size = talk.send(answer)  # type: ignore[arg-type]
            except StopIteration as finished:
                results.append(finished.value)
            else:
                joined = b"".join(bytes(memoryview(buffer).cast("B")) for buffer in padded(buffers, size))
                payloads.append(np.frombuffer(bytearray(joined), np.uint8))
        if len(results) == 2:
            return results[0], results[1]
        if results or payloads[0].size != payloads[1].size:
            raise HandshakeError("the two sides do not mean the same exchange")
        answers = [payloads[1], payloads[0]]  # type: ignore[list-item]
