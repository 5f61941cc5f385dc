"""What work cost, read off the parties' meters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hdcos.link import Count

Pair = tuple[int, int]
Counters = Mapping[str, Any]
"""One party's counters of one phase, or of one step."""


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
    def of(cls, sides: Sequence[Counters], way: str = "sent", seconds: Callable[..., float] = max) -> PhaseCost:
        zero, one = sides
        return cls(
            max(zero["rounds"], one["rounds"]),
            (zero[f"bytes_{way}"], one[f"bytes_{way}"]),
            (zero[f"wire_bytes_{way}"], one[f"wire_bytes_{way}"]),
            seconds(zero["seconds"], one["seconds"]),
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
    """Everything since the last reset, or what one job took."""

    online: PhaseCost
    offline: PhaseCost
    layers: tuple[StepCost, ...] = ()
    """By step, where the parties tell steps apart."""

    @classmethod
    def of(cls, sides: Sequence[Mapping[str, Any]], before: Sequence[Mapping[str, Any]] = ({}, {})) -> Cost:
        """What two parties counted, less what they had counted before."""
        spent = [_less(now, then) for now, then in zip(sides, before, strict=True)]
        steps = [side.get("steps", {}) for side in spent]
        return cls(
            # The online phase starts when both parties hold the input: the party that started last saw all of it.
            PhaseCost.of([side["online"] for side in spent], seconds=min),
            PhaseCost.of([side["offline"] for side in spent], "received"),
            tuple(
                StepCost(name, PhaseCost.of([side[name] for side in steps]))
                for name in steps[0]
                if any(steps[0][name].values())
            ),
        )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def _less(now: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """Counters since an earlier reading, however deep they lie."""
    return {
        key: _less(value, before.get(key, {})) if isinstance(value, Mapping) else value - before.get(key, 0)
        for key, value in now.items()
    }


def add_side_by_side(counted: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Counters of workers of one party that work at the same time: bytes add up, rounds and seconds do not."""
    first = counted[0]
    return {
        key: add_side_by_side([item[key] for item in counted if key in item])
        if isinstance(value, Mapping)
        else (max if key in ("rounds", "seconds") else sum)(item[key] for item in counted)
        for key, value in first.items()
    }


def counts_to_json(counts: Mapping[str, Count]) -> dict[str, Any]:
    return {name: asdict(count) for name, count in counts.items()}


def counts_from_json(record: Mapping[str, Any]) -> dict[str, Count]:
    from hdcos.link import Count  # only nodes read counts back; a client does without their links

    return {name: Count(**values) for name, values in record.items()}
