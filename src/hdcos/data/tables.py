"""Tables of features and labels from the files people have: CSV, NPY, NPZ, IDX and Parquet.

CSV, Parquet   one row each; the label's column by name, or by number where a CSV file has no header. The names of the
               other columns go with the table
NPY            features alone
NPZ            arrays `x` and `y`, or those named
IDX            features in one file, labels in another
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hdcos.data.csv_file import read_csv
from hdcos.data.idx import read_idx
from hdcos.errors import DataMissing, InputError
from hdcos.reading import named

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
        raise DataMissing(f"there is no data file {place}: check its name")
    if place.is_dir():
        raise InputError(f"{place} is a folder, not a table: name a file in it")
    suffixes = [suffix.lower() for suffix in place.suffixes]
    kind = suffixes[-2] if suffixes[-1:] == [".gz"] and len(suffixes) > 1 else "".join(suffixes[-1:])
    with named(place, "a table"):
        return _checked(place, _read(place, kind, label, features))


def _read(path: Path, kind: str, label: str | int | None, features: str | None) -> Table:
    if kind == ".csv":
        header, values = read_csv(path)
        return _split(path, values, label, header)
    if kind == ".npy":
        return _npy(path, label)
    if kind == ".npz":
        return _npz(path, features or "x", None if label is None else str(label))
    if kind in (".parquet", ".pq"):
        return _parquet(path, label)
    if kind in (".idx", "") or "ubyte" in path.name:
        return _idx(path, None if label is None else str(label))
    raise InputError(f"{path} is none of the formats CSV, NPY, NPZ, IDX and Parquet, by its name")


def _checked(path: Path, table: Table) -> Table:
    """Numbers in rows, a label for each if there are labels; else InputError says what the file holds."""
    x, y = table.x, table.y
    if x.ndim < 2 or x.dtype.kind not in "iubf" or not x.size:
        raise InputError(f"{path} is not a table of numbers: it holds {x.dtype} of shape {x.shape}")
    if y is not None and (y.dtype.kind not in "iubf" or y.shape[:1] != x.shape[:1]):
        raise InputError(f"{path}: {len(x)} rows cannot have labels of {y.dtype} and shape {y.shape}")
    for values, what in ((x, "column"), (y, "label")):
        if values is not None and values.dtype.kind == "f" and not np.isfinite(values).all():
            row, *rest = np.argwhere(~np.isfinite(values))[0].tolist()
            name = table.columns[rest[0]] if what == "column" and table.columns and rest else rest
            raise InputError(f"{path}, row {row} (from 0), {what} {name}: the number is missing or not finite")
    return table


def _split(path: Path, values: Array, label: str | int | None, header: list[str] | None) -> Table:
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


BROKEN = (ValueError, EOFError, zipfile.BadZipFile, zlib.error, MemoryError, struct.error, KeyError)
"""What NumPy raises for files that are truncated, damaged or something else."""


def _npy(path: Path, label: str | int | None) -> Table:
    if label is not None:
        raise InputError(f"{path} holds one array: labels need another format, such as NPZ with arrays x and y")
    try:
        with path.open("rb") as file:
            values = np.load(file, allow_pickle=False)
    except BROKEN as error:
        raise InputError(f"{path} is not an NPY file, or is cut off: {error}") from error
    if not isinstance(values, np.ndarray):
        raise InputError(f"{path} is not an NPY file: it is an archive. Name it .npz if it is one of NumPy's")
    return Table(values, None)


def _npz(path: Path, features: str, label: str | None) -> Table:
    try:
        with path.open("rb") as file:
            arrays = np.load(file, allow_pickle=False)
            if isinstance(arrays, np.ndarray):
                raise InputError(f"{path} is not an NPZ file: it holds one array. Name it .npy")
            for name in [features] if label is None else [features, label]:
                if name not in arrays:
                    raise InputError(f"{path} has no array {name!r}; it has {sorted(arrays)}")
            return Table(arrays[features], arrays.get("y" if label is None else label))
    except InputError:
        raise
    except BROKEN as error:
        raise InputError(f"{path} is not an NPZ file of plain arrays, or is cut off: {error}") from error


def _idx(path: Path, label: str | None) -> Table:
    x = read_idx(path)
    if x.dtype == np.uint8 and x.ndim > 1:
        x = x / 255.0
    if label is None:
        return Table(x, None)
    with named(path.parent / label, f"an IDX file with the labels of {path.name}"):
        return Table(x, read_idx(path.parent / label))


def _parquet(path: Path, label: str | int | None) -> Table:
    try:
        import pyarrow.parquet as parquet
    except ImportError:
        raise InputError("Parquet files need pyarrow: pip install 'hdcos[parquet]'") from None
    try:
        table = parquet.read_table(path)
    except (ValueError, TypeError, NotImplementedError) as error:
        raise InputError(f"{path} is not a Parquet file, or is cut off: {error}") from error
    names = list(table.column_names)
    return _split(path, np.stack([_column(path, table, name) for name in names], axis=1), label, names)


def _column(path: Path, table: Any, name: str) -> Array:
    try:
        return np.asarray(table.column(name).to_numpy(), dtype=np.float64)
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(f"{path}, column {name}: it does not hold numbers only: {error}") from error
