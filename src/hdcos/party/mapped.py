"""Words of a file that is mapped into memory: rows are copied from there, and nothing else is read.

Pages that were looked at would stay, as many as the operating system likes: they are the file's, and it takes them back
when it needs room. So that the memory of a party says what it needs, and not how large its files are, pages of large
files are given back after every KEPT_BYTES.

Single rows of a large file are not looked at but read by compiled code, a call of the system for each: Linux maps
sixteen pages around one that is looked at, and takes note of each of them, which costs four times as much when the file
is larger than the caches of the processor. Without compiled code they are copied in the order in which they lie.
"""

from __future__ import annotations

import mmap
import os
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import IO

import numpy as np

from hdcos.ring import Array, backend

KEPT_BYTES = 1 << 23
AROUND_BYTES = 1 << 16
"""What Linux maps around a page that is looked at, if it is in memory anyway; more where it keeps larger pieces."""


ReadRows = Callable[[int, Array, Array], None]


@cache
def _compiled() -> ReadRows | None:
    """What reads rows of a file from these words on; None where nothing is compiled."""
    if backend() == "reference":
        return None
    import hdcos.ring._native as native

    found: ReadRows = native.read_rows
    return found


class MappedWords:
    """A file as words; it must not become shorter while it is mapped."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = os.dup(file.fileno())
        weakref.finalize(self, os.close, self._file)
        self.content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.content.madvise(mmap.MADV_RANDOM)
        self.words: Array = np.frombuffer(self.content, np.uint64, len(self.content) // 8)

    @property
    def resident_words(self) -> int:
        return min(self.words.size, KEPT_BYTES // 8)

    def take(self, starts: Array, width: int) -> Array:
        """This many words from each of these places on."""
        read = _compiled()
        if read is not None and len(self.content) > KEPT_BYTES:
            order = np.argsort(starts)
            rows = np.empty((len(starts), width), np.uint64)
            read(self._file, np.ascontiguousarray(starts[order], np.int64), rows)
            taken = np.empty_like(rows)
            taken[order] = rows
            return taken
        windows = np.lib.stride_tricks.as_strided(self.words, (self.words.size - width + 1, width), (8, 8))
        taken, order = np.empty((len(starts), width), np.uint64), np.argsort(starts)
        at_once = max(1, KEPT_BYTES // (AROUND_BYTES + 8 * width))
        for first in range(0, len(order), at_once):
            piece = order[first : first + at_once]
            with self.looking(int(starts[piece[0]]), int(starts[piece[-1]]) + width):
                taken[piece] = windows[starts[piece]]
        return taken

    @contextmanager
    def looking(self, start: int, end: int) -> Iterator[memoryview]:
        """The words from one place to another; their pages are given back at the end, unless the file is small."""
        try:
            yield self.words[start:end].data
        finally:
            if len(self.content) > KEPT_BYTES:  # of a file: they are read again when they are wanted
                self._advise(mmap.MADV_DONTNEED, 8 * start - AROUND_BYTES, 8 * end + AROUND_BYTES)

    def fetch(self, start: int, end: int) -> None:
        """Have words read that are wanted all."""
        self._advise(mmap.MADV_WILLNEED, 8 * start, 8 * end)

    def _advise(self, advice: int, begin: int, end: int) -> None:
        begin = max(0, begin) // mmap.PAGESIZE * mmap.PAGESIZE
        self.content.madvise(advice, begin, min(len(self.content), end) - begin)


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
