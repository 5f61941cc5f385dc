"""Run a protocol over a link: the only place where rounds become messages."""

from __future__ import annotations

from time import perf_counter
from typing import TypeVar

from hdcos.link import Link
from hdcos.protocol.rounds import Message, Reply, Rounds
from hdcos.ring import Array, pack, unpack

T = TypeVar("T")


def packed_parts(message: Message) -> list[Array]:
    """Each part as bytes; a part starts on a byte of its own."""
    return [pack(part.values, part.bits) for part in message]


def unpacked_parts(message: Message, payload: Array) -> Reply:
    """The peer's parts, which have the same shapes and widths as one's own."""
    values, start = [], 0
    for part in message:
        end = start + part.packed_bytes
        values.append(unpack(payload[start:end], part.values.size, part.bits).reshape(part.values.shape))
        start = end
    return tuple(values)


def run(protocol: Rounds[T], link: Link) -> T:
    """Drive a protocol to its result, one exchange per round; local work is booked on the step it prepares."""
    reply: Reply | None = None
    step = "local"
    while True:
        started = perf_counter()
        try:
            message = protocol.send(reply)  # type: ignore[arg-type]
        except StopIteration as finished:
            link.meter.worked(step, perf_counter() - started)
            result: T = finished.value
            return result
        buffers = packed_parts(message)
        steps = [(part.step or "round", part.packed_bytes) for part in message]
        step = steps[0][0]
        link.meter.worked(step, perf_counter() - started)
        reply = unpacked_parts(message, link.exchange(buffers, steps))
