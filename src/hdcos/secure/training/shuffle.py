"""Which rows each step of an epoch takes: a fresh public shuffle, cut into whole batches; what is left over sits out.

"rows"    all rows are shuffled as one, and are read from everywhere. Up to LISTED of them are listed in their order,
          4 bytes a row; of more any part of the order is computed when it is asked for (`permutation`).
"blocks"  blocks of rows that lie together come in a shuffled order, and 64 of them at a time are shuffled row by row.
          Reads every block once an epoch: for data sets that are far away, or on slow disks. Rows are mixed with those
          of the same 64 blocks alone, so rows that were sorted in some way should be shuffled once before they are
          uploaded.

Security  the order depends on the seed, the epoch and sizes, which are public: the same for both parties and for
          training in plaintext. Both parties hash the rows of every step with what they mean by it.
"""

from __future__ import annotations

from bisect import bisect
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np

from hdcos.errors import InputError
from hdcos.ring import Array
from hdcos.secure.training.permutation import Permutation

SHUFFLES = ("rows", "blocks")
LISTED = 1 << 20
"""Rows whose order is a list, the one that earlier releases drew."""
MIXED = 64
"""Blocks whose rows are shuffled with each other."""
MOST_ROWS, BLOCK_BYTES = 1024, 1 << 20
"""Of a block."""


def block_rows(width: int) -> int:
    """Rows of a block, where a row has this many words: a power of two, so that blocks of all widths fit each other."""
    return int(min(MOST_ROWS, 1 << (max(1, BLOCK_BYTES // (8 * max(1, width))).bit_length() - 1)))


def check_shuffle(shuffle: str) -> str:
    if shuffle not in SHUFFLES:
        raise InputError(f"rows are shuffled by {' or '.join(map(repr, SHUFFLES))}, not by {shuffle!r}")
    return shuffle


def order_words(rows: int, shuffle: str, moved: bool) -> int:
    """Words that the order of an epoch takes in memory, and how each of its images is moved if they are."""
    if shuffle == "blocks":
        order = 4 * MIXED * MOST_ROWS
    else:
        order = rows // 2 if rows <= LISTED else Permutation.words(rows)
    return order + 3 * rows * moved


@dataclass
class Epoch:
    """The order of the rows in one epoch, drawn as far as it is asked for."""

    seed: int
    number: int
    rows: int
    batch: int
    block: int = 0
    """Rows of a block; 0 shuffles all rows as one."""
    _drawn: dict[int, Array] = field(default_factory=dict, repr=False)
    """The order within the last two windows."""
    _unlisted: Permutation | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.block:
            count = -(-self.rows // self.block)
            order = np.random.default_rng([self.seed, self.number]).permutation(count)
            self._windows = [order[start : start + MIXED] for start in range(0, count, MIXED)]
            short = count * self.block - self.rows
            lengths = [self.block * len(blocks) - short * bool((blocks == count - 1).any()) for blocks in self._windows]
            self._starts = list(accumulate(lengths, initial=0))
        elif self.rows > LISTED:
            self._unlisted = Permutation([self.seed, self.number], self.rows)
        else:
            self._windows, self._starts = [np.zeros(1, np.int64)], [0, self.rows]

    @property
    def steps(self) -> int:
        return self.rows // self.batch

    def take(self, step: int) -> Array:
        """The rows of a step."""
        first, last = step * self.batch, (step + 1) * self.batch
        if self._unlisted is not None:
            return self._unlisted.at(np.arange(first, last))
        begin, end = bisect(self._starts, first) - 1, bisect(self._starts, last - 1) - 1
        parts = [
            self._window(index)[max(0, first - self._starts[index]) : last - self._starts[index]]
            for index in range(begin, end + 1)
        ]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _window(self, index: int) -> Array:
        """The rows of some blocks, shuffled with each other."""
        if index not in self._drawn:
            key = [self.seed, self.number]
            if self.block:
                key += [2, index]  # how images move is drawn from [seed, epoch, 1]
                order = (self._windows[index][:, None] * self.block + np.arange(self.block)).reshape(-1)
                order = order[order < self.rows]
            else:
                order = np.arange(self.rows, dtype=np.uint32)
            np.random.default_rng(key).shuffle(order)
            self._drawn = {known: self._drawn[known] for known in (index - 1,) if known in self._drawn} | {index: order}
        return self._drawn[index]


def batches(seed: int, epoch: int, rows: int, batch: int, block: int = 0) -> list[Array]:
    """The rows of each step of an epoch."""
    order = Epoch(seed, epoch, rows, batch, block)
    return [order.take(step).astype(np.int64) for step in range(order.steps)]
