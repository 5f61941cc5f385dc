"""Tables with ids, piece by piece: the columns that are features as numbers, others as the text they are.

Files that are larger than memory are read PIECE_ROWS rows at a time; what is wrong with a row is said when it is read.
Ids and labels may be any text. CSV and Parquet files have columns with names; NPY, NPZ and IDX files have none, so that
nothing of them can be left out, and the labels of NPZ and IDX files are where `hdcos.data.read_table` finds them.
"""

from __future__ import annotations

import csv
import os
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from hdcos.data.files import pyarrow
from hdcos.data.tables import (
    Array,
    Table,
    check_piece,
    explain,
    find,
    open_text,
    other_separator,
    read_header,
    read_pieces,
)
from hdcos.errors import InputError
from hdcos.files import name_errors

Texts = dict[str, list[str]]
PIECE_ROWS = 1 << 12
"""That are read at once: few enough that progress is seen."""


@dataclass(frozen=True)
class Records:
    """Some rows of a file."""

    table: Any
    """Their features: a Table, or the rows that a preparation made."""
    texts: Texts = field(default_factory=dict)
    """The columns that were asked for as text, by name."""
    done: float | None = None
    """The part of the file that has been read, if that can be told."""

    def __len__(self) -> int:
        return len(self.table)


def read_records(
    path: str | os.PathLike[str],
    texts: Sequence[str] = (),
    leave_out: Sequence[str] = (),
    label: str | None = None,
    features: str | None = None,
) -> Iterator[Records]:
    """The rows of a file, piece by piece, without the columns that are read as `texts` or left out.

    Where columns have no names, `label` says where the labels are, which then come as text as well.
    """
    place, kind = find(path)
    named = [*texts, *leave_out, *([] if label is None else [label])]
    if twice := sorted({name for name in named if named.count(name) > 1}):
        raise InputError(f"{place}: the column {twice[0]!r} is asked for twice: an id, a label or neither")
    with name_errors(place, "a table"):
        if kind == ".csv":
            yield from _csv(place, named, texts if label is None else [*texts, label])
        elif kind in (".parquet", ".pq"):
            yield from _parquet(place, named, texts if label is None else [*texts, label])
        elif texts or leave_out:
            raise InputError(f"{place} has no columns with names: ids are in CSV and Parquet files")
        else:
            done = 0
            for piece in read_pieces(place, label, features):
                done += len(piece)
                known: Texts = {} if label is None or piece.y is None else {label: [f"{y:.17g}" for y in piece.y]}
                yield Records(Table(piece.x, None, piece.columns), known)


def _places(path: Path, header: Sequence[str], names: Sequence[str]) -> list[int]:
    missing = [name for name in names if name not in header]
    if missing:
        raise InputError(f"{path} has no column {missing[0]!r}; it has {list(header)}{other_separator(header)}")
    return [header.index(name) for name in names]


def _csv(path: Path, named: Sequence[str], texts: Sequence[str]) -> Iterator[Records]:
    """Numbers by NumPy, texts by the csv module, of the same lines; blank lines are no rows to either."""
    size, first = path.stat().st_size, 0
    with open_text(path) as (text, raw):
        header = read_header(path, text)
        names = header if header is not None else _numbered(path, named)
        skipped = set(_places(path, names, named))
        wanted = _places(path, names, texts)
        for lines in iter(lambda: list(islice(text, PIECE_ROWS)), []):
            rows = [line for line in lines if line.strip()]
            if not rows:
                continue
            cells = list(csv.reader(rows)) if skipped else []
            if cells and (len(cells) != len(rows) or any(len(row) != len(names) for row in cells)):
                explain(path, "a line has more or fewer cells than the first", skipped)
            columns = [number for number in range(len(names)) if number not in skipped]
            if not columns:
                raise InputError(f"{path} has no features: every column of it is an id, a label or left out")
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", UserWarning)
                    wanted_columns = columns if skipped else None
                    values = np.loadtxt(
                        rows, delimiter=",", comments=None, ndmin=2, quotechar='"', usecols=wanted_columns
                    )
            except ValueError as error:
                explain(path, str(error), skipped)
            if not np.isfinite(values).all() or values.shape[1] != len(columns):
                explain(path, "a number is not finite, or a line has more or fewer cells than the first", skipped)
            table = Table(values, None, tuple(names[number] for number in columns) if header is not None else None)
            known = {name: [row[place].strip() for row in cells] for name, place in zip(texts, wanted, strict=True)}
            done = min(1.0, raw.tell() / size) if size and path.suffix != ".gz" else None
            yield Records(check_piece(path, table, first), known, done)
            first += len(values)
    if not first:
        raise InputError(f"{path} has a line of names, but no rows")


def _numbered(path: Path, named: Sequence[str]) -> list[str]:
    """Columns without names are named by their numbers, from 0, or from -1 for the last."""
    with open_text(path) as (text, _):
        width = len(next(csv.reader([text.readline()])))
    for name in named:
        if not name.removeprefix("-").isdecimal():
            raise InputError(f"{path} has no column {name!r}: its first line has no names, so give the column's number")
    names = [str(number) for number in range(width)]
    for name in named:
        if name.startswith("-") and int(name) >= -width:
            names[int(name)] = name
    return names


def _parquet(path: Path, named: Sequence[str], texts: Sequence[str]) -> Iterator[Records]:
    arrow = pyarrow()
    try:
        with arrow.parquet.ParquetFile(path) as file:
            names, rows, first = list(file.schema_arrow.names), file.metadata.num_rows, 0
            _places(path, names, named)
            kept = tuple(name for name in names if name not in named)
            if not kept:
                raise InputError(f"{path} has no features: every column of it is an id, a label or left out")
            for batch in file.iter_batches(PIECE_ROWS):
                if not batch.num_rows:
                    continue
                values = np.stack([_numbers(path, batch, name) for name in kept], axis=1)
                known = {name: [text_of(value) for value in batch.column(name).to_pylist()] for name in texts}
                table = check_piece(path, Table(values, None, kept), first)
                first += len(values)
                yield Records(table, known, first / rows)
            if not first:
                raise InputError(f"{path} is not a table of numbers: it has no rows")
    except arrow.ArrowException as error:
        raise InputError(f"{path} is not a Parquet file, or is cut off: {error}") from error


def _numbers(path: Path, batch: Any, name: str) -> Array:
    try:
        return np.asarray(batch.column(name).to_numpy(zero_copy_only=False), dtype=np.float64)
    except (ValueError, TypeError) as error:
        raise InputError(f"{path}, column {name}: it does not hold numbers only: {error}") from error


def text_of(value: Any) -> str:
    """A cell of a table as an id: nothing where there is none, and numbers in full."""
    return "" if value is None else f"{value:.17g}" if isinstance(value, float) else str(value)
