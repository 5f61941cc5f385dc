"""A set of numbers that mostly follow each other, kept as runs: it grows with its gaps, not with its members."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator


class Numbers:
    """Numbers that were added, above a floor that only rises; everything below the floor counts as added."""

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
