"""What work cost, read off the parties' meters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hdcos.link import Count

Pair = tuple[int, int]


@dataclass(frozen=True)
class PhaseCost:
    """One phase. Pairs are [party 0, party 1].

    `bytes_sent` is payload without frame headers, `wire_bytes_sent` everything on the sockets. Online they count
    what a party sent to the other; offline what was sent to that party, by the dealer or, without one, by the other.
    """

    rounds: int = 0
    bytes_sent: Pair = (0, 0)
    wire_bytes_sent: Pair = (0, 0)
    seconds: float = 0.0

    @classmethod
    def of(cls, counts: Sequence[Count], *, received: bool = False) -> PhaseCost:
        zero, one = counts
        if received:
            payload = (zero.bytes_received, one.bytes_received)
            wire = (zero.wire_bytes_received, one.wire_bytes_received)
        else:
            payload = (zero.bytes_sent, one.bytes_sent)
            wire = (zero.wire_bytes_sent, one.wire_bytes_sent)
        return cls(max(zero.rounds, one.rounds), payload, wire, max(zero.seconds, one.seconds))

    def __sub__(self, before: PhaseCost) -> PhaseCost:
        def less(now: Pair, then: Pair) -> Pair:
            return now[0] - then[0], now[1] - then[1]

        return PhaseCost(
            self.rounds - before.rounds,
            less(self.bytes_sent, before.bytes_sent),
            less(self.wire_bytes_sent, before.wire_bytes_sent),
            self.seconds - before.seconds,
        )


@dataclass(frozen=True)
class StepCost:
    """One named step of the online phase: a layer, say.

    Material is dealt for whole executions, so `offline` is not metered by step and stays zero; `hdcos cost MODEL`
    plans it by layer.
    """

    name: str
    online: PhaseCost
    offline: PhaseCost = PhaseCost()


@dataclass(frozen=True)
class Cost:
    """Everything since the last reset."""

    online: PhaseCost
    offline: PhaseCost
    layers: tuple[StepCost, ...] = ()

    def since(self, before: Cost) -> Cost:
        """What came on top; without the layers, which are not told apart by time."""
        return Cost(self.online - before.online, self.offline - before.offline)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def counts_to_json(counts: Mapping[str, Count]) -> dict[str, Any]:
    return {name: asdict(count) for name, count in counts.items()}


def counts_from_json(record: Mapping[str, Any]) -> dict[str, Count]:
    return {name: Count(**values) for name, values in record.items()}
