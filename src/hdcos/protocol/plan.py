"""Plan a program from shapes alone: its material, rounds and bytes, before anything runs.

The very generator that will run is driven with Blanks, arrays that have a shape and no values. Nothing is
estimated: what it takes and yields is what it will take and yield.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from hdcos.generators import drive
from hdcos.offline import Kind, Need, Plan
from hdcos.offline.material import Fields, Precompute
from hdcos.protocol.party import Party
from hdcos.protocol.rounds import Message, Reply, Rounds
from hdcos.ring import Blank, compact_dtype
from hdcos.sharing import Share

Program = Callable[..., Rounds[Any]]
T = TypeVar("T")


@dataclass(frozen=True)
class Planned:
    """What one execution will cost: rounds, payload bytes each way, its material, and the result's shape."""

    rounds: int
    online_bytes: int
    material: Plan
    result: Any
    steps: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Rounds and bytes of each named step; a merged round counts for each step in it."""
    precompute: dict[int, Precompute] = field(default_factory=dict)
    """What to make of the material of some positions as soon as it arrives."""

    @property
    def offline_bytes(self) -> int:
        """From the dealer to party 1."""
        return self.material.dealt_bytes(1)

    @property
    def common_bytes(self) -> int:
        """Those of them that party 0 is sent too."""
        return self.material.dealt_bytes(1, 0)


def blank_share(shape: tuple[int, ...], scale: int, bits: int = 64) -> Share:
    """A share of which only the shape, the scale and the ring are known."""
    return Share(Blank(shape), scale, bits)  # type: ignore[arg-type]


class Planner:
    """Drives protocols over shapes, one after the other: a source of Blanks that notes what is taken and sent."""

    def __init__(self, rank: int = 0) -> None:
        self.device = None
        self.party = Party(rank, self)
        self.frames: list[int] = []
        """Payload bytes of each round."""
        self.steps: dict[str, tuple[int, int]] = {}
        self.needs: list[Need] = []
        self.precompute: dict[int, Precompute] = {}
        self._taken: list[Fields] = []

    @property
    def position(self) -> int:
        return len(self.needs)

    def take(self, kind: Kind, units: int, precompute: Precompute | None = None) -> Fields:
        fields: Fields = tuple(Blank((units, *item.shape), compact_dtype(item.bits)) for item in kind.fields())  # type: ignore[misc]
        if precompute is not None:
            self.precompute[self.position] = precompute
            fields = precompute(fields, self._taken.__getitem__)
        self.needs.append(Need(kind, units))
        self._taken.append(fields)
        return fields

    def drive(self, protocol: Rounds[T]) -> T:
        """The protocol's result, made of Blanks."""
        return drive(protocol, self._answer)

    def _answer(self, message: Message) -> Reply:
        sizes: dict[str, int] = {}
        for part in message:
            sizes[part.step] = sizes.get(part.step, 0) + part.packed_bytes
        for step, size in sizes.items():
            known = self.steps.get(step, (0, 0))
            self.steps[step] = (known[0] + 1, known[1] + size)
        self.frames.append(sum(sizes.values()))
        return tuple(Blank(part.packed_bytes, np.uint8) for part in message)  # type: ignore[misc]


def plan(program: Program, *inputs: Any, rank: int = 0, **parameters: Any) -> Planned:
    """Drive program(party, *inputs, **parameters) over shapes; shares among the inputs may be blank."""
    planner = Planner(rank)
    result = planner.drive(program(planner.party, *inputs, **parameters))
    frames, material = planner.frames, Plan(tuple(planner.needs))
    return Planned(len(frames), sum(frames), material, result, planner.steps, planner.precompute)
