"""Answers on their way into a file, piece by piece: CSV, Parquet or NPY, or CSV to the terminal.

A file is written beside its place and renamed when the last row is in it: whatever is there under its name is whole.
Memory holds a piece, however many rows there are.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO, Protocol, cast

import numpy as np
from numpy.lib import format as npy

from hdcos.data.files import pyarrow
from hdcos.data.tables import Array
from hdcos.errors import InputError
from hdcos.files import replace_whole

FORMATS = (".csv", ".parquet", ".pq", ".npy")
Column = Sequence[str] | Array
"""Of a piece: texts or numbers."""


class Writer(Protocol):
    """Takes answers piece by piece."""

    def write(self, columns: Sequence[Column]) -> None: ...
    def finish(self) -> None:
        """That was all; or it broke off, and nothing of it will be kept."""


def check_format(path: Path) -> None:
    """Before anything is computed: this is a format that answers are written in."""
    if path.suffix.lower() not in FORMATS:
        raise InputError(f"{path} is neither a .csv nor a .parquet nor a .npy file")
    if path.suffix.lower() in (".parquet", ".pq"):
        pyarrow()


@contextmanager
def open_writer(path: Path, names: Sequence[str], header: bool = True) -> Iterator[Writer]:
    """A writer of columns with these names; the file is there when the block has ended well, and not before."""
    check_format(path)
    kind = path.suffix.lower()
    with replace_whole(path) as file:
        if kind == ".csv":
            text = io.TextIOWrapper(file, "utf-8", newline="", write_through=True)
            writer: Writer = CsvWriter(text, names, header)
        else:
            writer = NpyWriter(file) if kind == ".npy" else ParquetWriter(file, names)
        try:
            yield writer
        finally:
            writer.finish()


class CsvWriter:
    """Lines of text; numbers with as many digits as an answer has. The names come with the first of them: what is read
    as it comes, such as a terminal, shows none where there are no answers."""

    def __init__(self, target: IO[str], names: Sequence[str], header: bool = True) -> None:
        self._target, self._lines = target, csv.writer(target, lineterminator="\n")
        self._header = [names] if header else []

    def write(self, columns: Sequence[Column]) -> None:
        self._lines.writerows(self._header)
        self._header = []
        self._lines.writerows(zip(*map(_cells, columns), strict=True))

    def finish(self) -> None:
        self.write([])
        self._target.flush()


def _cells(column: Column) -> Sequence[str]:
    if not isinstance(column, np.ndarray):
        return column
    return [str(value) if column.dtype.kind in "iu" else f"{value:.6g}" for value in column.tolist()]


class ParquetWriter:
    """One row group for each piece; the types are those of the first."""

    def __init__(self, file: BinaryIO, names: Sequence[str]) -> None:
        self._arrow = pyarrow()
        self._file, self._names, self._writer = file, list(names), cast(Any, None)

    def write(self, columns: Sequence[Column]) -> None:
        table = self._arrow.table(dict(zip(self._names, map(self._arrow.array, columns), strict=True)))
        if self._writer is None:
            self._writer = self._arrow.parquet.ParquetWriter(self._file, table.schema)
        self._writer.write_table(table)

    def finish(self) -> None:
        if self._writer is not None:
            self._writer.close()


class NpyWriter:
    """One array of numbers. Its length is written when it is known: NumPy leaves room for it in the header."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._rows, self._row, self._dtype = file, 0, (), np.dtype(np.float64)

    def write(self, columns: Sequence[Column]) -> None:
        arrays = [column for column in columns if isinstance(column, np.ndarray)]
        if len(arrays) != len(columns):
            raise InputError("an NPY file holds numbers alone: write ids and class names to a .csv or .parquet file")
        block = arrays[0] if len(arrays) == 1 else np.stack(arrays, axis=1)
        if not self._rows:
            self._row, self._dtype = block.shape[1:], block.dtype
            self._head()
        self._file.write(np.ascontiguousarray(block, self._dtype).tobytes())
        self._rows += len(block)

    def finish(self) -> None:
        self._file.seek(0)
        self._head()
        self._file.seek(0, os.SEEK_END)

    def _head(self) -> None:
        known = {"descr": npy.dtype_to_descr(self._dtype), "fortran_order": False, "shape": (self._rows, *self._row)}
        npy.write_array_header_1_0(self._file, known)
