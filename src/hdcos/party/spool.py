"""Rows that come piece by piece and are kept for as long as the process lives: in memory, many of them in a file.

The file has no name: nobody else can open it, and it is gone when the process is, however that ends.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import IO

import numpy as np

from hdcos.files import full_disk_named
from hdcos.party.mapped import MappedRows, MappedWords
from hdcos.party.rows import HeldRows, RowSource
from hdcos.ring import Array

HELD_BYTES = 1 << 26
"""Rows that take more than this go to a file, in the folder for temporary files (TMPDIR)."""


class Spool:
    """Rows of one width."""

    def __init__(self, width: int) -> None:
        self._width, self.rows = width, 0
        self._held: list[Array] = []
        self._file: IO[bytes] | None = None

    def add(self, words: Array) -> None:
        self.rows += len(words)
        self._held.append(words)
        if 8 * self.rows * self._width > HELD_BYTES:
            self._write()

    def _write(self) -> None:
        with full_disk_named(Path(tempfile.gettempdir()) / "rows"):
            if self._file is None:
                self._file = tempfile.TemporaryFile()  # noqa: SIM115
            for words in self._held:
                self._file.write(np.ascontiguousarray(words).data)
            self._file.flush()
        self._held = []

    def source(self) -> RowSource:
        """All rows that came."""
        if self._file is None:
            return HeldRows(np.concatenate(self._held))
        with self._file as file:
            return MappedRows(MappedWords(file), 0, (self.rows, self._width))
