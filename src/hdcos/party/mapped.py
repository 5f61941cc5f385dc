"""Words of a file that is mapped into memory: rows are copied from there, and nothing else is read.

Pages that were looked at would stay, as many as the operating system likes: they are the file's, and it takes them back
when it needs room. So that the memory of a party says what it needs, and not how large its files are, they are given
back after every KEPT_BYTES.
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from typing import IO

import numpy as np

from hdcos.ring import Array

KEPT_BYTES = 1 << 26
AROUND_BYTES = 1 << 16
"""What Linux maps around a page that is looked at, if it is in memory anyway."""


class MappedWords:
    """A file as words; it must not become shorter while it is mapped."""

    def __init__(self, file: IO[bytes]) -> None:
        self.content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.content.madvise(mmap.MADV_RANDOM)
        self.words: Array = np.frombuffer(self.content, np.uint64, len(self.content) // 8)
        self._touched = 0

    @property
    def resident_words(self) -> int:
        return min(self.words.size, KEPT_BYTES // 8)

    def take(self, starts: Array, width: int) -> Array:
        """This many words from each of these places on."""
        windows = np.lib.stride_tricks.as_strided(self.words, (self.words.size - width + 1, width), (8, 8))
        taken = np.empty((len(starts), width), np.uint64)
        at_once = max(1, KEPT_BYTES // (AROUND_BYTES + 8 * width))
        for first in range(0, len(starts), at_once):
            piece = slice(first, first + at_once)
            self._look_at(len(taken[piece]) * (AROUND_BYTES + 8 * width))
            taken[piece] = windows[starts[piece]]
        return taken

    def read(self, start: int, count: int) -> memoryview:
        """Words that lie together, to be looked at once and now."""
        page = 8 * start // mmap.PAGESIZE * mmap.PAGESIZE
        self.content.madvise(mmap.MADV_WILLNEED, page, 8 * (start + count) - page)
        self._look_at(8 * count)
        return self.words[start : start + count].data

    def _look_at(self, size: int) -> None:
        """Give back what was looked at before, if there would be too much with this many bytes more."""
        if self._touched + size > KEPT_BYTES:
            self.content.madvise(mmap.MADV_DONTNEED)  # of a file: they are read again when they are wanted
            self._touched = 0
        self._touched += size


@dataclass(frozen=True)
class MappedRows:
    """Rows that lie one after another in a mapped file."""

    file: MappedWords
    start: int
    """The word that the first one begins with."""
    shape: tuple[int, int]

    @property
    def resident_words(self) -> int:
        return self.file.resident_words

    def take(self, rows: Array) -> Array:
        return self.file.take(self.start + rows.astype(np.int64) * self.shape[1], self.shape[1])
