"""What a protocol is: a generator that yields what it sends and is resumed with what the peer sent, as packed bytes.

A *round* is one simultaneous exchange. `yield` is the only way to talk, so a reader counts rounds by counting
yields; `yield from` composes in sequence and `together` runs protocols side by side in the same rounds. A protocol
writes its price beside itself, which tests compare with the plan and the meter.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from hdcos.generators import advance, relay
from hdcos.ring import Array, packed_size, unpack, unpack_sum

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Part:
    """Values of `bits` bits each that travel in one round; `step` names what they belong to."""

    values: Array = field(repr=False)
    bits: int
    step: str = ""

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
    received: Array = unpack(theirs, values.size, bits).reshape(values.shape)
    return received


def joined(values: Array, bits: int) -> Rounds[Array]:
    """Send values to the peer and get the sums of both, modulo 2**bits: one round."""
    (theirs,) = yield (Part(values, bits),)
    sums: Array = unpack_sum(theirs, values, bits)
    return sums


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


@dataclass(frozen=True)
class Price:
    """Rounds between the parties, payload bytes each way, and payload bytes from the dealer to party 1."""

    rounds: int = 0
    online_bytes: int = 0
    offline_bytes: int = 0
    material: tuple[str, ...] = ()

    def __add__(self, other: Price) -> Price:
        return Price(
            self.rounds + other.rounds,
            self.online_bytes + other.online_bytes,
            self.offline_bytes + other.offline_bytes,
            self.material + other.material,
        )
