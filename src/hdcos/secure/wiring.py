"""Which stage reads which value: a network cut into chains, and stages put back in the order of its layers.

A value that several layers read, or that is joined with others, stands between chains. Within a chain every layer alone
reads the one before it, so scales and units can be chosen for what follows; between chains a value is itself, in the
whole ring, so that anybody can read it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from hdcos import nn
from hdcos.nn.joins import Join
from hdcos.nn.limits import last_reads
from hdcos.secure.stages import Stage

T = TypeVar("T")
Reads = tuple[tuple[int, ...], ...]
"""For each stage the values it reads: 0 is the input, i + 1 what stage i gave."""


@dataclass(frozen=True)
class Chain:
    """Layers that follow each other, from one value to another; those that do nothing are left out."""

    source: int
    layers: tuple[int, ...]
    end: int
    alone: bool
    """Whether nobody else reads its source."""


def cut(model: nn.Network) -> list[Chain | int]:
    """The chains of a network and the numbers of the layers that join, each behind all that it reads."""
    readers: list[list[int]] = [[] for _ in model.shapes]
    for index, reads in enumerate(model.inputs):
        for number in reads:
            readers[number].append(index)
    joins = [isinstance(layer, Join) for layer in model.layers]

    def continues(number: int) -> bool:
        """Whether a value is inside a chain."""
        inner = 0 < number < len(model.layers) and len(readers[number]) == 1
        return inner and not joins[number - 1] and not joins[readers[number][0]]

    made: list[Chain | int] = []
    for index, (source, *_) in enumerate(model.inputs):
        if joins[index]:
            made.append(index)
        elif not continues(source):
            members = [index]
            while continues(members[-1] + 1):
                members.append(readers[members[-1] + 1][0])
            kept = tuple(number for number in members if not isinstance(model.layers[number], nn.Identity))
            made.append(Chain(source, kept, members[-1] + 1, len(readers[source]) == 1))
    return made


class Wiring:
    """Stages as they are made, chain by chain, and what each reads; value 0 is the input."""

    def __init__(self) -> None:
        self._stages: list[tuple[int, Stage, tuple[int, ...]]] = []

    def add(self, stage: Stage, *reads: int) -> int:
        """The number of what the stage gives."""
        after = max((self._stages[number - 1][0] for number in reads if number), default=0)
        self._stages.append((max(after, stage_layer(stage)), stage, reads))
        return len(self._stages)

    def finish(self) -> tuple[tuple[Stage, ...], Reads]:
        """The stages in the order of their layers, which `nn.limits` counts memory by; no reads for a mere chain."""
        order = sorted(range(len(self._stages)), key=lambda place: self._stages[place][0])  # equal ones stay in order
        numbers = {0: 0, **{old + 1: new + 1 for new, old in enumerate(order)}}
        reads = tuple(tuple(numbers[number] for number in self._stages[place][2]) for place in order)
        chain = all(each == (index,) for index, each in enumerate(reads))
        return tuple(self._stages[place][1] for place in order), () if chain else reads


def stage_layer(stage: Stage) -> int:
    """The layer that a stage belongs to: its name begins with it."""
    return int(stage.name.split()[0])


class Values(Generic[T]):
    """What stages gave, as long as another will read it."""

    def __init__(self, count: int, reads: Reads, first: T) -> None:
        self._reads: Sequence[tuple[int, ...]] = reads or [(index,) for index in range(count)]
        self._last = last_reads(self._reads)
        self._known = {0: first}
        self.newest = first

    def read(self, index: int) -> list[T]:
        """What a stage reads; what none reads after it is let go."""
        values = [self._known[number] for number in self._reads[index]]
        for number in set(self._reads[index]):
            if self._last[number] == index:
                del self._known[number]
        return values

    def keep(self, index: int, value: T) -> None:
        """What a stage gave."""
        self._known[index + 1] = self.newest = value
