"""What work cost at the two parties of a remote cluster, as they metered it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Counts = Mapping[str, Mapping[str, Any]]
"""One party's counters by phase."""


@dataclass(frozen=True)
class Spent:
    """One phase. Pairs are [party 0, party 1]; offline, what the dealer sent to that party."""

    rounds: int
    bytes_sent: tuple[int, int]
    wire_bytes_sent: tuple[int, int]
    seconds: float

    @classmethod
    def of(cls, sides: Sequence[Mapping[str, Any]], way: str) -> Spent:
        zero, one = sides
        return cls(
            max(zero["rounds"], one["rounds"]),
            (zero[f"bytes_{way}"], one[f"bytes_{way}"]),
            (zero[f"wire_bytes_{way}"], one[f"wire_bytes_{way}"]),
            max(zero["seconds"], one["seconds"]),
        )


@dataclass(frozen=True)
class Cost:
    online: Spent
    offline: Spent

    @classmethod
    def of(cls, parties: Sequence[Counts]) -> Cost:
        online, offline = ([counts[phase] for counts in parties] for phase in ("online", "offline"))
        return cls(Spent.of(online, "sent"), Spent.of(offline, "received"))
