"""The ids of a table, as two owners compare them.

An id is the text of one or more columns of a row. Each text is brought to Unicode's form NFC and loses white space at
both ends; with `ignore_case` it is case-folded, too. Numbers of Parquet files are their decimal digits, dates are
written as 2026-01-31. The texts of several columns are put together with their lengths, so that ("ab", "c") and ("a",
"bc") differ. What goes on from here is a digest of 16 bytes for each row.

A row whose id is empty in one of the columns, and all but the first row of an id that comes twice, have no partner that
anybody could name: they are an error that says where they are, unless the owner decided to leave them out.

Security  everything here stays with the owner: digests are hashed once more with a salt of the session before they are
          used (`hdcos.join.matching`). Errors name row numbers, never ids.
"""

from __future__ import annotations

import csv
import datetime
import hashlib
import io
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hdcos.data.files import open_file, pyarrow
from hdcos.data.tables import PIECE_ROWS, find
from hdcos.errors import InputError
from hdcos.files import name_errors
from hdcos.ring import Array

DIGEST_BYTES = 16
SHOWN = 5
"""Row numbers in an error."""
Cells = Sequence[Sequence[str]]
"""The texts of one column each."""


@dataclass(frozen=True)
class Rules:
    """What both owners must do alike."""

    columns: int
    """How many make up an id; each owner has its own names for them."""
    ignore_case: bool = False

    def __str__(self) -> str:
        count = "one id column" if self.columns == 1 else f"{self.columns} id columns"
        return f"{count}, case {'ignored' if self.ignore_case else 'kept'}"

    @property
    def digest(self) -> str:
        return hashlib.sha256(f"hdcos ids 1, {self.columns}, {self.ignore_case}".encode()).hexdigest()


@dataclass(frozen=True)
class Ids:
    """The ids of a file's rows, those that are to be joined."""

    rules: Rules
    columns: tuple[str, ...]
    total: int
    """Rows of the file."""
    fingerprint: str
    """Of the ids of all rows in order: a file with another one has other rows."""
    rows: Array = field(repr=False)
    """The numbers, from 0, of the rows that are to be joined."""
    digests: Array = field(repr=False)
    """Theirs, (rows, 16)."""

    def __len__(self) -> int:
        return len(self.rows)


def normalise(text: str, ignore_case: bool = False) -> str:
    """A text as it is compared."""
    if not text.isascii():
        text = unicodedata.normalize("NFC", text)
    text = text.strip()
    if ignore_case:
        text = text.casefold()
        if not text.isascii():
            text = unicodedata.normalize("NFC", text)
    return text


def read_ids(
    file: str | Path,
    columns: Sequence[str],
    ignore_case: bool = False,
    drop_empty: bool = False,
    first: bool = False,
) -> Ids:
    """The ids of a CSV or Parquet file. Without `drop_empty` and `first`, empty ones and duplicates are an error."""
    path, names = Path(file), tuple(columns)
    if not names or len(set(names)) != len(names):
        raise InputError("name the columns that make up an id, each once (--id COLUMN)")
    hashed, empty = list[bytes](), list[int]()
    with name_errors(path, "a table"):
        for cells in _pieces(path, names):
            _digest(cells, ignore_case, hashed, empty)
    if not hashed:
        raise InputError(f"{path} has no rows")
    digests = np.frombuffer(b"".join(hashed), np.uint8).reshape(-1, DIGEST_BYTES)
    fingerprint = hashlib.sha256(digests.data).hexdigest()
    kept, told = np.ones(len(digests), bool), ", ".join(names)
    if empty:
        if not drop_empty:
            raise InputError(
                f"{path}: {_count(empty)} no id, the column {told} is empty there: {_listed(empty)}. Fill the ids in, "
                f"or leave these rows out (--drop-empty)"
            )
        kept[empty] = False
    rows = np.flatnonzero(kept)
    again = rows[_later(digests[rows])]
    if len(again):
        if not first:
            raise InputError(
                f"{path}: {_count(again)} an id ({told}) that an earlier row has: {_listed(again)}. Add a column that "
                f"tells them apart (--id), or take the first row of each id (--first)"
            )
        kept[again] = False
        rows = np.flatnonzero(kept)
    if not len(rows):
        raise InputError(f"{path}: no row has an id in the column {told}")
    rules = Rules(len(names), ignore_case)
    return Ids(rules, names, len(digests), fingerprint, rows, np.ascontiguousarray(digests[rows]))


def _digest(cells: Cells, ignore_case: bool, hashed: list[bytes], empty: list[int]) -> None:
    """Add the digests of a piece, and the numbers of its rows that have no id."""
    for texts in zip(*cells, strict=True):
        encoded = [normalise(text, ignore_case).encode("utf-8", "surrogatepass") for text in texts]
        if not all(encoded):
            empty.append(len(hashed))
        whole = b"".join([len(each).to_bytes(4, "little") + each for each in encoded])
        hashed.append(hashlib.blake2b(whole, digest_size=DIGEST_BYTES, person=b"hdcos.join.id").digest())


def _later(digests: Array) -> Array:
    """The places of digests that came before."""
    words = digests.view("<u8")
    order = np.lexsort((words[:, 1], words[:, 0]))  # stable: the first of equals stays first
    same = (words[order[1:]] == words[order[:-1]]).all(1)
    return np.sort(order[1:][same])


def _count(rows: Sequence[int] | Array) -> str:
    return "1 row has" if len(rows) == 1 else f"{len(rows)} rows have"


def _listed(rows: Sequence[int] | Array) -> str:
    shown = ", ".join(str(int(row)) for row in rows[:SHOWN])
    return f"row{'' if len(rows) == 1 else 's'} {shown}{' and so on' if len(rows) > SHOWN else ''} (from 0)"


# ---- files


def _pieces(path: Path, names: tuple[str, ...]) -> Iterator[Cells]:
    _, kind = find(path)
    if kind == ".csv":
        return _csv(path, names)
    if kind in (".parquet", ".pq"):
        return _parquet(path, names)
    raise InputError(f"{path} has no columns with names: ids are read from CSV and Parquet files")


def _csv(path: Path, names: tuple[str, ...]) -> Iterator[Cells]:
    try:
        with open_file(path) as stream, io.TextIOWrapper(stream, encoding="utf-8-sig", newline="") as text:
            lines = csv.reader(text)
            header = [cell.strip() for cell in next(lines, [])]
            places = _places(path, names, header)
            rows = list[list[str]]()
            for row in lines:
                if not row:  # as tables are read: a line without anything is no row
                    continue
                if len(row) != len(header):
                    found = f"{len(row)} cells, the first line has {len(header)}"
                    raise InputError(f"{path}, line {lines.line_num}: {found}")
                rows.append(row)
                if len(rows) == PIECE_ROWS:
                    yield [[each[place] for each in rows] for place in places]
                    rows = []
            yield [[each[place] for each in rows] for place in places]
    except UnicodeDecodeError:
        raise InputError(f"{path} is not a CSV file: it is not text in UTF-8") from None
    except csv.Error as error:
        raise InputError(f"{path} is not a CSV file: {error}") from None


def _parquet(path: Path, names: tuple[str, ...]) -> Iterator[Cells]:
    arrow = pyarrow()
    try:
        file = arrow.parquet.ParquetFile(path)
    except ValueError as error:  # ArrowInvalid is one
        raise InputError(f"{path} is not a Parquet file, or is cut off: {error}") from error
    _places(path, names, list(file.schema_arrow.names))
    for batch in file.iter_batches(PIECE_ROWS, columns=list(names)):
        yield [[_text(path, name, value) for value in batch.column(name).to_pylist()] for name in names]


def _places(path: Path, names: tuple[str, ...], header: list[str]) -> list[int]:
    for name in names:
        if header.count(name) != 1:
            what = "no column" if name not in header else "more than one column"
            raise InputError(f"{path} has {what} {name!r}; its columns are {', '.join(map(repr, header[:20]))}")
    return [header.index(name) for name in names]


def _text(path: Path, name: str, value: Any) -> str:
    """A cell of a Parquet file as the same cell of a CSV file would be."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        if value != value:  # pandas writes gaps so
            return ""
        if value.is_integer():  # and numbers beside gaps
            return str(int(value))
    elif isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    elif type(value) is datetime.date:
        return value.isoformat()
    raise InputError(
        f"{path}, column {name}: a value of type {type(value).__name__} cannot be an id; write the column as text or "
        f"as whole numbers"
    )
