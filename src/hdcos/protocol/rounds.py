"""What a protocol is: a generator that yields what it sends and is resumed with what the peer sent, as packed bytes.

A *round* is one simultaneous exchange. `yield` is the only way to talk, so a reader counts rounds by counting
yields; `yield from` composes in sequence and `together` runs protocols side by side in the same rounds. A protocol
writes its price beside itself, which tests compare with the plan and the meter. `talk` is the only place where rounds
become messages.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from hdcos.generators import advance, drive, relay
from hdcos.ring import Array, pack, packed_size, unpack, unpack_sum
from hdcos.ring.device import device_of

if TYPE_CHECKING:
    from hdcos.link import Link

T = TypeVar("T")


@dataclass(eq=False)
class Part:
    """Values of `bits` bits each that travel in one round; `step` names what they belong to.

    What both parties' values mean together is their sum, or, `by_xor`, the sum of their bits.
    """

    values: Array = field(repr=False)
    bits: int
    step: str = ""
    by_xor: bool = False

    @property
    def packed_bytes(self) -> int:
        return packed_size(int(self.values.size), self.bits)


Message = tuple[Part, ...]
Reply = tuple[Array, ...]
"""The peer's parts as they came, which have the same shapes and widths as one's own."""
Rounds = Generator[Message, Reply, T]


def swap(values: Array, bits: int) -> Rounds[Array]:
    """Send values to the peer and get the peer's: one round."""
    (theirs,) = yield (Part(values, bits),)
    received: Array = unpack(theirs, values.size, bits, device_of(values)).reshape(values.shape)
    return received


def swap_sum(values: Array, bits: int) -> Rounds[Array]:
    """Send values to the peer and get the sums of both, modulo 2**bits: one round."""
    (theirs,) = yield (Part(values, bits),)
    sums: Array = unpack_sum(theirs, values, bits)
    return sums


def swap_xor(values: Array, bits: int) -> Rounds[Array]:
    """Send words of bits to the peer and get the XOR of both: one round."""
    (theirs,) = yield (Part(values, bits, by_xor=True),)
    both: Array = values ^ unpack(theirs, values.size, bits, device_of(values)).reshape(values.shape)
    return both


def together(*protocols: Rounds[Any]) -> Rounds[tuple[Any, ...]]:
    """Run independent protocols in lockstep: round i of each travels in one message."""
    results: dict[int, Any] = {}
    replies: list[tuple[int, Any]] = [(index, None) for index in range(len(protocols))]
    while True:
        merged: list[Part] = []
        ends: list[tuple[int, int]] = []
        for index, reply in replies:
            for message in advance(protocols[index], reply, partial(results.__setitem__, index)):
                merged += message
                ends.append((index, len(merged)))
        if not ends:
            return tuple(results[index] for index in range(len(protocols)))
        received = yield tuple(merged)
        start, replies = 0, []
        for index, end in ends:
            replies.append((index, received[start:end]))
            start = end


def named(step: str, protocol: Rounds[T]) -> Rounds[T]:
    """Put everything the protocol sends on the account of a named step."""

    def send(message: Message) -> Rounds[Reply]:
        return (yield tuple(replace(part, step=f"{step}/{part.step}".rstrip("/")) for part in message))

    return relay(protocol, send)


def pack_parts(message: Message) -> list[Array]:
    """Each part as bytes; a part starts on a byte of its own."""
    return [pack(part.values, part.bits) for part in message]


def cut_reply(sizes: Iterable[int], payload: Array) -> Reply:
    """The peer's payload as parts of these sizes."""
    parts, start = [], 0
    for size in sizes:
        parts.append(payload[start : start + size])
        start += size
    return tuple(parts)


def _empty(size: int) -> Array:
    return np.empty(size, np.uint8)


@dataclass(frozen=True, eq=False)
class Packed:
    """What a round sends as it travels: the bytes of each part, and the step that each is booked on."""

    buffers: list[Array] = field(repr=False)
    steps: list[tuple[str, int]]
    allocate: Callable[[int], Array] = _empty
    """Memory for the answer, which lies at its end."""


Talk = Generator[Packed, Array, T]
"""A protocol whose messages are packed: it is resumed with the peer's payload."""


def packed(protocol: Rounds[T]) -> Talk[T]:
    """A protocol whose parts are packed as they leave, and cut as they come."""

    def send(message: Message) -> Talk[Reply]:
        buffers = pack_parts(message)
        steps = [(part.step or "round", buffer.nbytes) for part, buffer in zip(message, buffers, strict=True)]
        device = device_of(message[0].values)
        allocate = _empty if device is None else device.room
        return cut_reply((size for _, size in steps), (yield Packed(buffers, steps, allocate)))

    return relay(protocol, send)


def talk(conversation: Talk[T], link: Link) -> T:
    """Have a conversation over a link, one exchange per round; local work is booked on its next step."""
    step, started = "local", perf_counter()

    def exchange(message: Packed) -> Array:
        nonlocal step, started
        step = message.steps[0][0]
        payload = link.exchange(message.buffers, message.steps, perf_counter() - started, message.allocate)
        started = perf_counter()
        return payload

    result = drive(conversation, exchange)
    link.meter.record_work(step, perf_counter() - started)
    return result


def run(protocol: Rounds[T], link: Link) -> T:
    """Drive a protocol to its result over a link."""
    return talk(packed(protocol), link)


@dataclass(frozen=True)
class Price:
    """Rounds between the parties, payload bytes each way, and payload bytes from the dealer."""

    rounds: int = 0
    online_bytes: int = 0
    offline_bytes: int = 0
    """To party 1."""
    material: tuple[str, ...] = ()
    common_bytes: int = 0
    """Those of them that party 0 is sent too."""

    def __add__(self, other: Price) -> Price:
        return Price(
            self.rounds + other.rounds,
            self.online_bytes + other.online_bytes,
            self.offline_bytes + other.offline_bytes,
            self.material + other.material,
            self.common_bytes + other.common_bytes,
        )
