"""Run a protocol over a link: the only place where rounds become messages."""

from __future__ import annotations

from collections.abc import Iterable
from time import perf_counter
from typing import TypeVar

from hdcos.generators import drive
from hdcos.link import Link
from hdcos.protocol.rounds import Message, Reply, Rounds
from hdcos.ring import Array, pack

T = TypeVar("T")


def packed_parts(message: Message) -> list[Array]:
    """Each part as bytes; a part starts on a byte of its own."""
    return [pack(part.values, part.bits) for part in message]


def cut(sizes: Iterable[int], payload: Array) -> Reply:
    """The peer's payload as parts of these sizes."""
    parts, start = [], 0
    for size in sizes:
        parts.append(payload[start : start + size])
        start += size
    return tuple(parts)


def run(protocol: Rounds[T], link: Link) -> T:
    """Drive a protocol to its result, one exchange per round; local work is booked on the step it prepares."""
    step, started = "local", perf_counter()

    def exchange(message: Message) -> Reply:
        nonlocal step, started
        buffers = packed_parts(message)
        steps = [(part.step or "round", buffer.nbytes) for part, buffer in zip(message, buffers, strict=True)]
        step = steps[0][0]
        reply = cut((size for _, size in steps), link.exchange(buffers, steps, perf_counter() - started))
        started = perf_counter()
        return reply

    result = drive(protocol, exchange)
    link.meter.worked(step, perf_counter() - started)
    return result
