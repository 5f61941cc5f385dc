"""Rows of this party's shares, wherever they lie: taken by their public numbers, without reading the others.

A row is words: its features, then its targets. Rows in memory, in mapped files and far away, and rows or columns of
several owners put together, all have `take`, so training knows no difference and nothing is joined before it is needed.

Security  which rows are taken is public (`secure.training.shuffle`). The words are one party's share and stay with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from hdcos.ring import Array


class RowSource(Protocol):
    """Rows of words."""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows, and words of a row."""

    @property
    def resident_words(self) -> int:
        """The most words that are kept in memory to take rows from."""

    def take(self, rows: Array) -> Array:
        """Copies of these rows, in this order."""


@dataclass(frozen=True)
class HeldRows:
    """Rows in memory."""

    words: Array = field(repr=False)

    @property
    def shape(self) -> tuple[int, int]:
        rows, width = self.words.shape
        return rows, width

    @property
    def resident_words(self) -> int:
        return self.words.size

    def take(self, rows: Array) -> Array:
        return self.words.take(rows, axis=0)


@dataclass(frozen=True)
class Stacked:
    """Rows of several sources, one after another."""

    parts: Sequence[RowSource]

    @property
    def shape(self) -> tuple[int, int]:
        return sum(part.shape[0] for part in self.parts), self.parts[0].shape[1]

    @property
    def resident_words(self) -> int:
        return sum(part.resident_words for part in self.parts)

    def take(self, rows: Array) -> Array:
        ends = np.cumsum([part.shape[0] for part in self.parts])
        owners = np.searchsorted(ends, rows, "right")
        taken = np.empty((len(rows), self.shape[1]), np.uint64)
        for index in np.unique(owners):
            mine = owners == index
            first = ends[index] - self.parts[index].shape[0]
            taken[mine] = self.parts[index].take(rows[mine] - first)
        return taken


@dataclass(frozen=True)
class SideBySide:
    """Rows whose columns come from several sources."""

    parts: Sequence[RowSource]

    @property
    def shape(self) -> tuple[int, int]:
        return self.parts[0].shape[0], sum(part.shape[1] for part in self.parts)

    @property
    def resident_words(self) -> int:
        return sum(part.resident_words for part in self.parts)

    def take(self, rows: Array) -> Array:
        return np.hstack([part.take(rows) for part in self.parts])


@dataclass(frozen=True)
class Picked:
    """Some columns of a source, in an order of their own."""

    source: RowSource
    places: Sequence[int]

    @property
    def shape(self) -> tuple[int, int]:
        return self.source.shape[0], len(self.places)

    @property
    def resident_words(self) -> int:
        return self.source.resident_words

    def take(self, rows: Array) -> Array:
        return self.source.take(rows).take(self.places, axis=1)


def pick(source: RowSource, places: Sequence[int]) -> RowSource:
    """These columns of a source; the source itself if that is what it has."""
    return source if list(places) == list(range(source.shape[1])) else Picked(source, places)
