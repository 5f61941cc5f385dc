"""A model's material by execution number: rows are allotted in order but may be used in any.

A client that was given the input masks of rows 7 and 8 may ask later than one that was given 9. So material is taken
out of the stock in order, what is not wanted yet is kept, and each execution is handed out once.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from hdcos.errors import MaterialReused
from hdcos.offline import Allocation, MaterialPool
from hdcos.offline.material import Fields

Run = tuple[int, int]
"""The first of some executions, and how many."""


class Numbers:
    """Numbers that were added, above a floor that only rises; everything below the floor counts as added.

    They mostly follow each other and are kept as runs: memory grows with the gaps, not with the members.
    """

    def __init__(self) -> None:
        self.floor = 0
        self._firsts: list[int] = []
        self._ends: list[int] = []

    def meets(self, first: int, end: int) -> bool:
        """Whether a number of [first, end) is in the set."""
        place = bisect_right(self._ends, first)
        return first < self.floor or (place < len(self._firsts) and self._firsts[place] < end)

    def add(self, first: int, end: int) -> None:
        """Put [first, end) in; runs that touch become one."""
        low, high = bisect_left(self._ends, first), bisect_right(self._firsts, end)
        if low < high:
            first, end = min(first, self._firsts[low]), max(end, self._ends[high - 1])
        self._firsts[low:high], self._ends[low:high] = [first], [end]

    def raise_floor(self, floor: int) -> None:
        """Everything below is in the set from now on."""
        self.floor = max(self.floor, floor)
        gone = bisect_right(self._ends, self.floor)
        del self._firsts[:gone], self._ends[:gone]
        if self._firsts and self._firsts[0] <= self.floor:
            self.floor = self._ends.pop(0)
            del self._firsts[0]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """The runs above the floor, as [first, end)."""
        return zip(self._firsts, self._ends, strict=True)


@dataclass
class _Block:
    """Executions [first, first + count) as they came out of the stock; `left` of them are not handed out yet."""

    first: int
    count: int
    pieces: list[Fields]
    left: int


class Executions:
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
        return Allocation(self.stock.plan, sum(count for _, count in runs), pieces, self.stock.precomputes)

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
