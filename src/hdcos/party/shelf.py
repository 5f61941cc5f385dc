"""A model's material by execution number: rows are allotted in order but may be used in any.

A client that was given the input masks of rows 7 and 8 may ask later than one that was given 9. The shelf takes
material out of the stock in order, keeps what is not wanted yet, and hands out each execution once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from hdcos.errors import MaterialReused
from hdcos.offline import Allocation, MaterialPool
from hdcos.offline.material import Fields
from hdcos.party.numbers import Numbers

Run = tuple[int, int]
"""The first of some executions, and how many."""


@dataclass
class _Block:
    """Executions [first, first + count) as they came out of the stock; `left` of them are not handed out yet."""

    first: int
    count: int
    pieces: list[Fields]
    left: int


class Shelf:
    """Hands out the executions of a stock by number, each once."""

    def __init__(self, stock: MaterialPool, timeout_s: float) -> None:
        self.stock, self._timeout_s = stock, timeout_s
        self._blocks: deque[_Block] = deque()
        self._spent = Numbers()

    def take(self, runs: Sequence[Run]) -> Allocation:
        """The material of these executions, in this order. MaterialReused if one was handed out or burnt before."""
        ordered = sorted(runs)
        if not ordered or any(first + count > later for (first, count), (later, _) in pairwise(ordered)):
            raise MaterialReused(f"{self.stock.name}: an execution was asked for twice, or none was")
        for first, count in ordered:
            if self._spent.meets(first, first + count):
                raise MaterialReused(f"{self.stock.name}: one of {count} executions from {first} was used before")
        self._fetch(sum(ordered[-1]))
        for first, count in ordered:
            self._spent.add(first, first + count)  # from here on they are used, whatever becomes of them
        pieces = [piece for run in runs for piece in self._cut(*run)]
        return Allocation(self.stock.plan, sum(count for _, count in runs), pieces, self.stock.finished)

    def burn_before(self, number: int) -> None:
        """Drop everything below a number that was not handed out, what is still in the stock included."""
        self._spent.raise_floor(number)
        here = min(number, self.stock.filled) - self.stock.used
        if here > 0:
            self.stock.begin(here, timeout_s=self._timeout_s)
        while self._blocks and (self._blocks[0].first + self._blocks[0].count <= self._spent.floor):
            self._blocks.popleft()

    def _fetch(self, end: int) -> None:
        """Take executions out of the stock until all below `end` are here."""
        while (first := self.stock.used) < end:
            ration = self.stock.begin(end - first, first, self._timeout_s)
            for pieces in ration.pieces:
                count = len(pieces[0][0]) // self.stock.plan.needs[0].units
                self._blocks.append(_Block(first, count, pieces, count))
                first += count

    def _cut(self, first: int, count: int) -> Iterable[list[Fields]]:
        needs = self.stock.plan.needs
        for block in list(self._blocks):
            start, end = max(first, block.first), min(first + count, block.first + block.count)
            if start >= end:
                continue
            low, high = start - block.first, end - block.first
            yield [
                tuple(array[low * need.units : high * need.units] for array in fields)
                for need, fields in zip(needs, block.pieces, strict=True)
            ]
            block.left -= end - start
            if not block.left:
                self._blocks.remove(block)
