"""Criteo's display advertising challenge: did a user click?

File        criteo/train.txt, with or without .gz: no header, tabs between fields; the label, 13 integers, 26 categories
            of eight hexadecimal digits each; an empty field is a missing value
Integers    log(1 + x); missing ones and those below 0 count as 0
Categories  each value has a row in its feature's embedding table, of 6 * cardinality^(1/4) numbers; missing values and
            those that the vocabulary lacks share row 0
A network's input is the integers, then the embeddings: its width follows from the vocabulary.

Under two-party computation clients embed their rows themselves, with tables that are public to them (docs/security.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hdcos.data.files import locate, open_file
from hdcos.errors import InputError

INTEGERS, CATEGORIES = 13, 26
MISSING = -1
NAME = "criteo/train.txt"
ORIGIN = "train.txt of Criteo's Kaggle Display Advertising Challenge dataset (its terms forbid passing it on)"
PIECE_ROWS = 100_000

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class CriteoRows:
    """Rows as read: labels (n,), integers as log(1 + x) (n, 13), categories as numbers (n, 26), MISSING where empty."""

    labels: Array
    integers: Array
    categories: Array

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, rows: Array | slice) -> CriteoRows:
        return CriteoRows(self.labels[rows], self.integers[rows], self.categories[rows])


@dataclass(frozen=True)
class Vocabulary:
    """The known values of every category, rising."""

    known: tuple[Array, ...]

    @classmethod
    def of(cls, rows: CriteoRows, min_count: int = 1) -> Vocabulary:
        """All values that occur at least `min_count` times."""
        known = []
        for column in rows.categories.T:
            values, counts = np.unique(column[column != MISSING], return_counts=True)
            known.append(values[counts >= min_count])
        return cls(tuple(known))

    @property
    def sizes(self) -> tuple[int, ...]:
        """The numbers in an embedding of each category."""
        return tuple(embedding_size(len(values)) for values in self.known)

    @property
    def width(self) -> int:
        """The features of an embedded row."""
        return INTEGERS + sum(self.sizes)

    def indices(self, rows: CriteoRows) -> Array:
        """Each value's row in its table, (n, 26); 0 for values that are missing or not known."""
        columns = [_find_rows(values, column) for values, column in zip(self.known, rows.categories.T, strict=True)]
        return np.stack(columns, axis=1)


def embedding_size(cardinality: int) -> int:
    """6 * cardinality^(1/4), rounded down, at least 1."""
    return max(1, int(6 * cardinality**0.25))


def embed(integers: Array, indices: Array, tables: Sequence[Array]) -> Array:
    """Rows of numbers (n, width): what a client computes before it masks its input."""
    parts = [table[column] for table, column in zip(tables, indices.T, strict=True)]
    return np.concatenate([integers, *parts], axis=1)


def criteo(rows: int | None = None) -> CriteoRows:
    """The rows of the file, or the first `rows`."""
    return read_criteo(locate(NAME, ORIGIN), rows)


def read_criteo(path: Path, rows: int | None = None) -> CriteoRows:
    """The rows of a file in Criteo's format."""
    pieces = []
    with open_file(path) as stream:
        lines, number = islice(stream, rows), 0
        while piece := list(islice(lines, PIECE_ROWS)):
            pieces.append(_parse(path, number, piece))
            number += len(piece)
    if not pieces:
        raise InputError(f"{path} has no rows")
    return CriteoRows(*(np.concatenate(parts) for parts in zip(*pieces, strict=True)))


def split(rows: CriteoRows) -> tuple[CriteoRows, CriteoRows, CriteoRows]:
    """80 % for training, 10 % for validation, 10 % for testing, in the order of RandomState(0).permutation."""
    order = np.random.RandomState(0).permutation(len(rows))
    first, second = (len(rows) * share // 10 for share in (8, 9))
    return rows[order[:first]], rows[order[first:second]], rows[order[second:]]


def _parse(path: Path, first: int, lines: Iterable[bytes]) -> tuple[Array, Array, Array]:
    labels, integers, categories = [], [], []
    for number, line in enumerate(lines, first):
        fields = line.rstrip(b"\r\n").split(b"\t")
        if len(fields) != 1 + INTEGERS + CATEGORIES or fields[0] not in (b"0", b"1"):
            raise InputError(
                f"{path}: row {number} (from 0) has {len(fields)} fields and the label {fields[0][:8]!r}; there should "
                f"be {1 + INTEGERS + CATEGORIES}, and 0 or 1"
            )
        try:
            integers.append([int(field) if field else 0 for field in fields[1 : 1 + INTEGERS]])
            categories.append([int(field, 16) if field else MISSING for field in fields[1 + INTEGERS :]])
        except ValueError as error:
            raise InputError(f"{path}: row {number} (from 0): {error}") from None
        labels.append(fields[0] == b"1")
    logs = np.log1p(np.maximum(np.array(integers, dtype=np.float64), 0)).astype(np.float32)
    return np.array(labels, dtype=np.int64), logs, np.array(categories, dtype=np.int64)


def _find_rows(values: Array, column: Array) -> Array:
    if not len(values):
        return np.zeros(len(column), dtype=np.int64)
    place = np.minimum(np.searchsorted(values, column), len(values) - 1)
    return np.where(values[place] == column, place + 1, 0)
