"""Tables of features and labels from the files people have: CSV, NPY, NPZ, IDX and Parquet.

CSV, Parquet   one row each; the label's column by name, or by number where a CSV file has no header. The names of the
               other columns go with the table
NPY            features alone
NPZ            arrays `x` and `y`, or those named
IDX            features in one file, labels in another

What is wrong in a CSV file is named by its line and column: NumPy reads the numbers at once, and only where that fails
the file is read again, cell by cell, to find the place.
"""

from __future__ import annotations

import csv
import io
import math
import os
import struct
import warnings
import zipfile
import zlib
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NoReturn, TextIO

import numpy as np
import numpy.typing as npt

from hdcos.data.files import open_file, pyarrow
from hdcos.data.images import read_idx
from hdcos.errors import DataMissing, InputError
from hdcos.files import name_errors

Array = npt.NDArray[Any]
Header = list[str] | None
PIECE_ROWS = 1 << 14
"""That are read at once from files that may be larger than memory."""
SEPARATORS = (";", "\t", "|")
"""What stands between cells in files that are called CSV, where that is no comma."""
BROKEN = (ValueError, EOFError, zipfile.BadZipFile, zlib.error, MemoryError, struct.error, KeyError)
"""What NumPy raises for files that are truncated, damaged or something else."""


@dataclass(frozen=True)
class Table:
    """Rows of features, the label of each if there are labels, and the names of the columns if the file has them."""

    x: Array
    y: Array | None
    columns: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.x)

    def to_numpy(self) -> Array:
        """The rows alone: with `columns` what DataFrames offer, so that networks find the columns by name."""
        return self.x


def read_table(path: str | Path, label: str | int | None = None, features: str | None = None) -> Table:
    """The table in a file; `label` names its column, its array or its own IDX file, by the file's format."""
    place, kind = find(path)
    with name_errors(place, "a table"):
        return check_piece(place, _read(place, kind, label, features))


def find(path: str | os.PathLike[str]) -> tuple[Path, str]:
    """A file that is there, and its format by its name."""
    place = Path(path)
    if not place.exists():
        raise DataMissing(f"there is no data file {place}: check its name")
    if place.is_dir():
        raise InputError(f"{place} is a folder, not a table: name a file in it")
    suffixes = [suffix.lower() for suffix in place.suffixes]
    return place, suffixes[-2] if suffixes[-1:] == [".gz"] and len(suffixes) > 1 else "".join(suffixes[-1:])


def read_pieces(
    path: str | os.PathLike[str],
    label: str | int | None = None,
    features: str | None = None,
    leave_out: Sequence[str] = (),
) -> Iterator[Table]:
    """The table in a file, piece by piece: CSV, Parquet and NPY files may be larger than memory.

    Columns of CSV and Parquet files that are left out, such as ids, need not hold numbers.
    """
    place, kind = find(path)
    with name_errors(place, "a table"):
        done = 0
        for piece in _read_pieces(place, kind, label, features, tuple(leave_out)):
            yield check_piece(place, piece, done)
            done += len(piece)
        if not done:
            raise InputError(f"{place} is not a table of numbers: it has no rows")


def _read_pieces(
    path: Path, kind: str, label: str | int | None, features: str | None, left_out: tuple[str, ...]
) -> Iterator[Table]:
    if left_out and kind not in (".csv", ".parquet", ".pq"):
        raise InputError(f"{path} has no columns with names, of which {', '.join(left_out)} could be left out")
    if kind == ".csv":
        for header, values in _read_csv(path, PIECE_ROWS, left_out):
            yield _split(path, values, label, header)
    elif kind in (".parquet", ".pq"):
        yield from _read_parquet(path, label, PIECE_ROWS, left_out)
    elif kind == ".npy":
        whole = _check_shape(path, _read_numpy(path, kind, label, "x", mapped=True))
        yield from (Table(whole.x[start : start + PIECE_ROWS], None) for start in range(0, len(whole), PIECE_ROWS))
    else:
        yield _read(path, kind, label, features)


def _read(path: Path, kind: str, label: str | int | None, features: str | None) -> Table:
    if kind == ".csv":
        ((header, values),) = _read_csv(path)
        return _split(path, values, label, header)
    if kind in (".npy", ".npz"):
        return _read_numpy(path, kind, label, features or "x")
    if kind in (".parquet", ".pq"):
        (table,) = _read_parquet(path, label)
        return table
    if kind in (".idx", "") or "ubyte" in path.name:
        return _read_images(path, None if label is None else str(label))
    raise InputError(f"{path} is none of the formats CSV, NPY, NPZ, IDX and Parquet, by its name")


def _check_shape(path: Path, table: Table) -> Table:
    x = table.x
    if x.ndim < 2 or x.dtype.kind not in "iubf" or not x.size:
        raise InputError(f"{path} is not a table of numbers: it holds {x.dtype} of shape {x.shape}")
    return table


def check_piece(path: Path, table: Table, first: int = 0) -> Table:
    """Numbers in rows, a label for each if there are labels; else InputError says what the file holds."""
    x, y = _check_shape(path, table).x, table.y
    if y is not None and (y.dtype.kind not in "iubf" or y.shape[:1] != x.shape[:1]):
        raise InputError(f"{path}: {len(x)} rows cannot have labels of {y.dtype} and shape {y.shape}")
    for values, what in ((x, "column"), (y, "label")):
        if values is not None and values.dtype.kind == "f" and not np.isfinite(values).all():
            row, *rest = np.argwhere(~np.isfinite(values))[0].tolist()
            name = table.columns[rest[0]] if what == "column" and table.columns and rest else rest
            raise InputError(f"{path}, row {first + row} (from 0), {what} {name}: the number is missing or not finite")
    return table


def _split(path: Path, values: Array, label: str | int | None, header: Header) -> Table:
    """Features and labels of a table, by the label's name or number."""
    if header is not None and len(values) and len(header) != values.shape[1]:
        raise InputError(f"{path}: the first line names {len(header)} columns, its rows have {values.shape[1]}")
    if label is None:
        return Table(values, None, None if header is None else tuple(header))
    if isinstance(label, str) and header is None and label.removeprefix("-").isdecimal():
        label = int(label)  # as commands pass it
    if isinstance(label, str):
        if header is None or label not in header:
            raise InputError(f"{path} has no column {label!r}; it has {header or 'no header: give its number'}")
        label = header.index(label)
    if not -values.shape[1] <= label < values.shape[1]:
        raise InputError(f"{path} has {values.shape[1]} columns, there is no number {label}")
    columns = None if header is None else tuple(np.delete(header, label).tolist())
    return Table(np.delete(values, label, axis=1), values[:, label], columns)


# ---- NumPy, IDX, Parquet


def _read_numpy(path: Path, kind: str, label: str | int | None, features: str, mapped: bool = False) -> Table:
    """The one array of an NPY file, or the arrays of an NPZ file that hold features and labels."""
    if kind == ".npy" and label is not None:
        raise InputError(f"{path} holds one array: labels need another format, such as NPZ with arrays x and y")
    try:
        with path.open("rb") as file:
            found = np.load(path, mmap_mode="r", allow_pickle=False) if mapped else np.load(file, allow_pickle=False)
            if isinstance(found, np.ndarray):
                if kind == ".npz":
                    raise InputError(f"{path} is not an NPZ file: it holds one array. Name it .npy")
                return Table(found, None)
            if kind == ".npy":
                found.close()
                raise InputError(f"{path} is not an NPY file: it is an archive. Name it .npz if it is one of NumPy's")
            labels = "y" if label is None else str(label)
            for name in [features] if label is None else [features, labels]:
                if name not in found:
                    raise InputError(f"{path} has no array {name!r}; it has {sorted(found)}")
            return Table(found[features], found.get(labels))
    except InputError:
        raise
    except BROKEN as error:
        what = "an NPY file" if kind == ".npy" else "an NPZ file of plain arrays"
        raise InputError(f"{path} is not {what}, or is cut off: {error}") from error


def _read_images(path: Path, label: str | None) -> Table:
    x = read_idx(path)
    if x.dtype == np.uint8 and x.ndim > 1:
        x = x / 255.0
    if label is None:
        return Table(x, None)
    with name_errors(path.parent / label, f"an IDX file with the labels of {path.name}"):
        return Table(x, read_idx(path.parent / label))


def _read_parquet(
    path: Path, label: str | int | None, at_once: int | None = None, left_out: tuple[str, ...] = ()
) -> Iterator[Table]:
    arrow = pyarrow()
    try:
        if at_once is None:
            tables = iter([arrow.parquet.read_table(path)])
        else:
            batches = arrow.parquet.ParquetFile(path).iter_batches(at_once)
            tables = (arrow.Table.from_batches([batch]) for batch in batches)
        for table in tables:
            names = [name for name in table.column_names if name not in left_out]
            yield _split(path, np.stack([_column(path, table, name) for name in names], axis=1), label, names)
    except InputError:
        raise
    except (ValueError, TypeError, NotImplementedError) as error:
        raise InputError(f"{path} is not a Parquet file, or is cut off: {error}") from error


def _column(path: Path, table: Any, name: str) -> Array:
    try:
        return np.asarray(table.column(name).to_numpy(), dtype=np.float64)
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(f"{path}, column {name}: it does not hold numbers only: {error}") from error


# ---- CSV


def _read_csv(path: Path, at_once: int | None = None, left_out: tuple[str, ...] = ()) -> Iterator[tuple[Header, Array]]:
    """The names of the columns, if the first line has them, and the numbers, of this many lines at once or of all."""
    width = 0
    with open_text(path) as (text, _):
        header, taken, texts = read_header(path, text), None, list[int]()
        if left_out:
            texts = [number for number, name in enumerate(header or ()) if name in left_out]
            taken = [number for number, name in enumerate(header or ()) if name not in left_out]
            header = [name for name in header or () if name not in left_out]
            if not taken:
                raise InputError(f"{path} has no columns with names but {', '.join(left_out)}, which are left out")
        pieces: Iterable[Any] = [text] if at_once is None else iter(lambda: list(islice(text, at_once)), [])
        for lines in pieces:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", UserWarning)  # NumPy warns of lines without rows
                    values = np.loadtxt(
                        lines, np.float64, delimiter=",", comments=None, ndmin=2, quotechar='"', usecols=taken
                    )
            except UnicodeDecodeError:
                raise
            except ValueError as error:
                explain(path, str(error), texts)
            if not len(values):
                continue
            if not np.isfinite(values).all() or width not in (0, values.shape[1]):
                explain(path, "a number is not finite, or a line has other cells than those before", texts)
            width = values.shape[1]
            yield header, values
    if not width:
        raise InputError(f"{path} has a line of names, but no rows")


@contextmanager
def open_text(path: Path) -> Iterator[tuple[TextIO, BinaryIO]]:
    """The text of a file, and the stream of bytes that it is read from."""
    try:
        with open_file(path) as stream, io.TextIOWrapper(stream, encoding="utf-8-sig", newline="") as text:
            yield text, stream
    except UnicodeDecodeError:
        raise InputError(f"{path} is not a CSV file: it is not text in UTF-8") from None
    except csv.Error as error:
        raise InputError(f"{path} is not a CSV file: {error}") from None


def read_header(path: Path, text: TextIO) -> Header:
    """The names in the first line; None, and nothing read, if it holds numbers."""
    first = next(csv.reader(io.StringIO(text.readline())), [])
    if not first:
        raise InputError(f"{path} is empty, or its first line is: a table has a row of numbers in each line")
    if all(_is_number(cell) for cell in first):
        text.seek(0)
        return None
    names = list[str]()
    known = set[str]()
    for number, name in enumerate(cell.strip() for cell in first):
        if not name:
            raise InputError(
                f"{path}: column {number + 1} has no name in the first line; give it one, or leave the column out "
                f"(pandas writes its index so, unless told index=False)"
            )
        if name in known:
            raise InputError(f"{path}: two columns are called {name!r}; rename one of them")
        names.append(name)
        known.add(name)
    return names


def other_separator(names: Sequence[str] | None) -> str:
    """What to add to an error about a file whose first line is one name, if other separators than commas are in it."""
    if names is None or len(names) != 1:
        return ""
    found = next((each for each in SEPARATORS if each in names[0]), None)
    return "" if found is None else f": the file seems to be separated by {found!r}, write it with commas"


def explain(path: Path, otherwise: str, texts: Container[int] = ()) -> NoReturn:
    """InputError with the line and the column of the first cell that is no number, but for columns of text."""
    with open_text(path) as (text, _):
        header = read_header(path, text)
        skipped, width = (0 if header is None else 1), None if header is None else len(header)
        rows = csv.reader(text)
        for row in rows:
            line = rows.line_num + skipped
            width = len(row) if width is None else width
            if row and len(row) != width:
                hint = other_separator(header)
                raise InputError(f"{path}, line {line}: {len(row)} cells, where the lines before have {width}{hint}")
            for number, cell in enumerate(row):
                if number not in texts and (not _is_number(cell) or not math.isfinite(float(cell))):
                    column = header[number] if header is not None else str(number + 1)
                    if hint := other_separator(header):
                        raise InputError(f"{path}, line {line}, column {column}: {_quote(cell)} is not a number{hint}")
                    raise InputError(
                        f"{path}, line {line}, column {column}: {_quote(cell)} is not a number that can be used; "
                        f"fill it in, leave the row or the column out, or declare what the columns are (`hdcos "
                        f"columns {path}` makes a guess)"
                    )
    raise InputError(f"{path} is not a table of numbers: {otherwise}")


def _quote(cell: str) -> str:
    text = cell.strip()
    return repr(text if len(text) <= 40 else text[:40] + "...") if text else "an empty cell"


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
