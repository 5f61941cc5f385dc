"""An upload on its way: bytes that come in their order, in the file that becomes a data set.

What comes row by row is written once: each group of rows at the place that it has in an Arrow file, with room before
it for what Arrow says of it. When all have come, that room, the beginning and the footer are filled, and the file is a
data set as it is (`finish`). What comes with all features first, or in rows that are longer than a group should be, has
no such places: it lies as it came and is written once more, and so is what is kept on another disk or far away
(`groups`).

Bytes are hashed as they come, all of them for the client and each group for the file: nothing is read again, unless the
process was started again meanwhile.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from array import array
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any, BinaryIO

import numpy as np

from hdcos.errors import StorageFull
from hdcos.files import full_disk_named
from hdcos.party.arrow import Shape, group_starts, write_groups
from hdcos.ring import Array
from hdcos.secure.training.shuffle import BLOCK_BYTES

READ_BYTES = 1 << 20
UNBOUNDED = 1 << 62
FOOTER_BYTES = 64
"""Of a footer for each group, and more than that."""


@dataclass(frozen=True)
class Spacing:
    """Where the bytes of an upload lie in its file: groups of them, each after some room."""

    head: int = 0
    stride: int = UNBOUNDED
    """From the beginning of a group to that of the next one."""
    group: int = UNBOUNDED
    """Bytes of a group."""

    def place(self, offset: int) -> int:
        """Where the byte with this number lies."""
        number, behind = divmod(offset, self.group)
        return self.head + number * self.stride + behind

    def length(self, count: int) -> int:
        """Of a file that holds as many bytes."""
        return self.place(count - 1) + 1 if count else 0

    def held(self, length: int) -> int:
        """Bytes in a file of this length."""
        number, behind = divmod(max(0, length - self.head), self.stride)
        return number * self.group + min(behind, self.group)

    def room(self, count: int) -> int:
        """That a whole file with as many bytes takes, or a little more."""
        groups = -(-count // self.group) if self.head else 0
        return count + groups * (self.stride - self.group + FOOTER_BYTES) + 2 * self.head

    def spans(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """The bytes from one number to another, cut where groups end."""
        while start < end:
            until = min(end, start - start % self.group + self.group)
            yield start, until
            start = until


AS_IT_CAME = Spacing()


@lru_cache(64)
def spacing_of(features: int, width: int) -> Spacing:
    """Of rows in an Arrow file: tried with two groups, since all are alike. Of longer rows they would be too large."""
    group = Shape(1, features, width).group
    if 8 * group * width > BLOCK_BYTES:
        return AS_IT_CAME
    shape = Shape(2 * group, features, width)
    first, second = group_starts(shape)
    return Spacing(first, second - first, 8 * group * width)


class _Around:
    """A file whose groups are there: what is written, but for these."""

    closed = False

    def __init__(self, file: BinaryIO, spacing: Spacing, count: int) -> None:
        self._file, self._spacing, self._count, self._at = file, spacing, count, 0

    def write(self, content: Any) -> int:
        view = memoryview(content).cast("B")
        end = self._at + len(view)
        while self._at < end:
            there, until = self._next(self._at)
            until = min(until, end)
            piece, view = view[: until - self._at], view[until - self._at :]
            if not there:
                self._file.seek(self._at)
                self._file.write(piece)
            self._at = until
        return len(memoryview(content).cast("B"))

    def _next(self, at: int) -> tuple[bool, int]:
        """Whether a byte belongs to a group, and where that changes."""
        spacing = self._spacing
        if at < spacing.head:
            return False, spacing.head
        number, behind = divmod(at - spacing.head, spacing.stride)
        left = min(spacing.group, self._count - number * spacing.group)
        if behind < left:
            return True, at - behind + left
        last = (number + 1) * spacing.group >= self._count
        return False, UNBOUNDED if last else spacing.head + (number + 1) * spacing.stride

    def tell(self) -> int:
        return self._at

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        """It is its owner's to be closed."""


class Part:
    """The file of one upload. Who uses it holds its lock."""

    def __init__(self, path: Path, widths: Sequence[int], spacing: Spacing) -> None:
        self.path, self.spacing, self.lock = path, spacing, Lock()
        self._widths = widths
        """Words of a row that lie together: all, or its features and its targets."""
        self._seen, self._hash = 0, hashlib.sha256()
        self._checksums, self._checksum = array("L"), 0
        """Of whole groups, and of what has come of the next one."""

    def write(self, here: int, content: bytes) -> None:
        """Keep what follows the bytes that are here, or nothing if there is no room for all of it."""
        spacing = self.spacing
        try:
            with full_disk_named(self.path), self.path.open("r+b") as file:
                for start, end in spacing.spans(here, here + len(content)):
                    file.seek(spacing.place(start))
                    file.write(memoryview(content)[start - here : end - here])
        except StorageFull:
            os.truncate(self.path, spacing.length(here))
            raise

    def note(self, here: int, content: bytes) -> None:
        """Hash what has just been written, if all before it was hashed."""
        if self._seen == here:
            self._take_in(content)

    def digest(self, count: int) -> str:
        """The hash of all that is here."""
        with self.path.open("rb") as file:
            for start, end in self.spacing.spans(self._seen, count):
                for first in range(start, end, READ_BYTES):
                    file.seek(self.spacing.place(first))
                    self._take_in(file.read(min(READ_BYTES, end - first)))
        return self._hash.hexdigest()

    def _take_in(self, content: bytes) -> None:
        view, first = memoryview(content), self._seen
        self._hash.update(view)
        for start, end in self.spacing.spans(first, first + len(view)):
            self._checksum = zlib.crc32(view[start - first : end - first], self._checksum)
            if end % self.spacing.group == 0:
                self._checksums.append(self._checksum)
                self._checksum = 0
        self._seen += len(view)

    def finish(self, shape: Shape) -> None:
        """Make the file a data set, on the disk; done again, it is what it was. Its digest was asked for before."""
        sums = [*self._checksums, self._checksum][: shape.groups]
        nothing = np.zeros(shape.group * shape.width, np.uint64)
        groups = ((nothing[: shape.length(number) * shape.width], known) for number, known in enumerate(sums))
        with full_disk_named(self.path), self.path.open("r+b") as file:
            write_groups(_Around(file, self.spacing, 8 * shape.rows * shape.width), shape, groups)
            file.flush()
            os.fsync(file.fileno())

    def groups(self, shape: Shape) -> Iterator[Array]:
        """The rows of a whole upload, group by group."""
        with ExitStack() as stack:
            files = [stack.enter_context(self.path.open("rb")) for _ in self._widths]
            starts = [0, 8 * shape.rows * self._widths[0]][: len(files)]
            for number in range(shape.groups):
                rows, pieces = shape.length(number), []
                for file, width, first in zip(files, self._widths, starts, strict=True):
                    file.seek(self.spacing.place(first + 8 * number * shape.group * width))
                    pieces.append(np.fromfile(file, "<u8", rows * width).reshape(rows, width))
                yield np.hstack(pieces)
