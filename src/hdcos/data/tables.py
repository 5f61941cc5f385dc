"""Tables of features and labels from the files people have: CSV, NPY, NPZ, IDX and Parquet.

CSV, Parquet   one row each; the label's column by name, or by number where a CSV file has no header. The names of the
               other columns go with the table
NPY            features alone
NPZ            arrays `x` and `y`, or those named
IDX            features in one file, labels in another
"""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hdcos.data.folder import opened
from hdcos.data.idx import read_idx
from hdcos.errors import DataMissing, InputError

Array = npt.NDArray[Any]


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
    place = Path(path)
    if not place.exists():
        raise DataMissing(f"there is no data file {place}")
    suffixes = [suffix.lower() for suffix in place.suffixes]
    kind = suffixes[-2] if suffixes[-1:] == [".gz"] and len(suffixes) > 1 else "".join(suffixes[-1:])
    if kind == ".csv":
        return _csv(place, label)
    if kind == ".npy":
        return _npy(place, label)
    if kind == ".npz":
        return _npz(place, features or "x", "y" if label is None else str(label))
    if kind in (".parquet", ".pq"):
        return _parquet(place, label)
    if kind in (".idx", "") or "ubyte" in place.name:
        return _idx(place, None if label is None else str(label))
    raise InputError(f"{place} is none of the formats CSV, NPY, NPZ, IDX and Parquet, by its name")


def _csv(path: Path, label: str | int | None) -> Table:
    with opened(path) as stream, io.TextIOWrapper(stream, encoding="utf-8-sig", newline="") as text:
        first = next(csv.reader(io.StringIO(text.readline())), [])
        if not first:
            raise InputError(f"{path} is empty")
        header = None if all(_is_number(cell) for cell in first) else _header(path, first)
        if header is None:
            text.seek(0)
        try:
            values = np.loadtxt(text, np.float64, delimiter=",", comments=None, ndmin=2)
        except ValueError as error:
            raise InputError(f"{path} is not a table of numbers: {error}") from error
    return _split(path, values, label, header)


def _header(path: Path, cells: list[str]) -> list[str]:
    names = list[str]()
    known = set[str]()
    for number, name in enumerate(cell.strip() for cell in cells):
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


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _split(path: Path, values: Array, label: str | int | None, header: list[str] | None) -> Table:
    """Features and labels of a table, by the label's name or number."""
    if header is not None and len(values) and len(header) != values.shape[1]:
        raise InputError(f"{path}: the first line names {len(header)} columns, its rows have {values.shape[1]}")
    if label is None:
        return Table(values, None, None if header is None else tuple(header))
    if isinstance(label, str):
        if header is None or label not in header:
            raise InputError(f"{path} has no column {label!r}; it has {header or 'no header: give its number'}")
        label = header.index(label)
    if not -values.shape[1] <= label < values.shape[1]:
        raise InputError(f"{path} has {values.shape[1]} columns, there is no number {label}")
    columns = None if header is None else tuple(np.delete(header, label).tolist())
    return Table(np.delete(values, label, axis=1), values[:, label], columns)


def _npy(path: Path, label: str | int | None) -> Table:
    if label is not None:
        raise InputError(f"{path} holds one array: labels need another format")
    try:
        values = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise InputError(f"{path} is not an NPY file: {error}") from error
    if values.ndim < 2 or values.dtype.kind not in "iubf":
        raise InputError(f"{path} is not a table of numbers: it holds {values.dtype} of shape {values.shape}")
    return Table(values, None)


def _npz(path: Path, features: str, label: str) -> Table:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            if features not in arrays:
                raise InputError(f"{path} has no array {features!r}; it has {sorted(arrays)}")
            return Table(arrays[features], arrays.get(label))
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"{path} is not an NPZ file of plain arrays: {error}") from error


def _idx(path: Path, label: str | None) -> Table:
    x = read_idx(path)
    if x.dtype == np.uint8 and x.ndim > 1:
        x = x / 255.0
    return Table(x, None if label is None else read_idx(path.parent / label))


def _parquet(path: Path, label: str | int | None) -> Table:
    try:
        import pyarrow.parquet as parquet
    except ImportError:
        raise InputError("Parquet files need pyarrow: pip install 'hdcos[parquet]'") from None
    try:
        table = parquet.read_table(path)
        values = np.stack([np.asarray(column.to_numpy(), dtype=np.float64) for column in table.columns], axis=1)
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"{path} is not a Parquet table of numbers: {error}") from error
    return _split(path, values, label, list(table.column_names))
