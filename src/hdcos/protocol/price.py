"""What a protocol says it costs, written down beside it and compared with the plan and the meter."""

from __future__ import annotations

from dataclasses import dataclass


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
