"""The file that a join leaves with each owner: which rows of its table are joined, in the order that both owners have.

It names the join by an id that both owners have, and the parties keep it with the data set that is uploaded: rows of
two owners are put side by side only where they come from the same join (`hdcos.party.dataset`). Rows are taken from the
file that was joined, or from one with the same ids in the same order, whatever became of its other columns.

Security  the file stays with its owner. It holds row numbers, and a hash of the table's ids.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from hdcos.checks import check_id
from hdcos.data.tables import PIECE_ROWS, Table
from hdcos.errors import InputError
from hdcos.files import read_text
from hdcos.join.ids import Ids, read_ids
from hdcos.ring import Array
from hdcos.tables.preparation import PreparedRows

FORMAT = "hdcos joined rows 1"
IN_MEMORY = 1 << 28
"""Bytes of rows that are put in order in memory; more go through a file without a name."""


@dataclass(frozen=True)
class JoinedRows:
    """Rows of a table, in the order of a join."""

    join: str
    """The id of the join, the same with both owners."""
    rules: str
    """A digest of how ids are compared, the same with both owners."""
    columns: tuple[str, ...]
    """That make up an id in this owner's table."""
    ignore_case: bool
    total: int
    """Rows of the table."""
    ids: str
    """A hash of the table's ids."""
    take: tuple[int, ...] | Array = field(repr=False)
    """The numbers of the joined rows, from 0."""

    def __len__(self) -> int:
        return len(self.take)

    @classmethod
    def of(cls, ids: Ids, join: str, places: Array) -> JoinedRows:
        rules = ids.rules
        return cls(join, rules.digest, ids.columns, rules.ignore_case, ids.total, ids.fingerprint, ids.rows[places])

    def encode(self) -> bytes:
        known = {name: value for name, value in asdict(self).items() if name != "take"}
        record = {"format": FORMAT, "rows": len(self), **known, "take": np.asarray(self.take).tolist()}
        return json.dumps(record).encode() + b"\n"

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> JoinedRows:
        what = "a file of joined rows, which `hdcos join` makes"
        try:
            record = json.loads(read_text(path, what))
        except (ValueError, RecursionError) as error:
            if isinstance(error, InputError):
                raise
            record = None
        if not isinstance(record, dict) or record.get("format") != FORMAT:
            raise InputError(f"{path} is not {what}")
        try:
            take, total = np.array(record["take"], np.int64), record["total"]
            if take.ndim != 1 or not 0 < len(take) == record["rows"] or type(total) is not int:
                raise ValueError("rows")
            if take.min() < 0 or take.max() >= total or len(np.unique(take)) != len(take):
                raise ValueError("rows")
            known = [record[name] for name in ("rules", "ids")]
            columns, ignore_case = tuple(record["columns"]), record["ignore_case"]
            if not all(isinstance(text, str) for text in (*known, *columns)) or type(ignore_case) is not bool:
                raise ValueError("columns")
            return cls(check_id(record["join"], "join"), known[0], columns, ignore_case, total, known[1], take)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise InputError(f"{path} is a damaged file of joined rows ({error}): join again") from None

    def check(self, file: str | os.PathLike[str]) -> None:
        """InputError unless the file has the rows that were joined."""
        found = read_ids(Path(file), self.columns, self.ignore_case, drop_empty=True, first=True)
        if found.fingerprint != self.ids:
            raise InputError(
                f"{file} does not have the rows that were joined: {found.total} rows now, {self.total} then, or other "
                f"ids. Name the file that was joined, or join again with the other owner (`hdcos join`)"
            )

    def arrange(self, pieces: Iterable[tuple[Array, Array | None]]) -> Iterator[tuple[Array, Array | None]]:
        """The joined rows, and their labels if they come with some, of all rows that come in pieces."""
        place = np.full(self.total, -1, np.int64)
        place[np.asarray(self.take)] = np.arange(len(self))
        rows: Array | None = None
        labels: Array | None = None
        done = 0
        for x, y in pieces:
            x, y = np.asarray(x), None if y is None else np.asarray(y)
            if rows is None:
                rows = _room((len(self), *x.shape[1:]), x.dtype)
                labels = None if y is None else _room((len(self), *y.shape[1:]), y.dtype)
            if done + len(x) > self.total:
                raise InputError(f"more than the {self.total} rows that were joined")
            here = place[done : done + len(x)]
            wanted = here >= 0
            rows[here[wanted]] = x[wanted]
            if labels is not None and y is not None:
                labels[here[wanted]] = y[wanted]
            done += len(x)
        if rows is None or done != self.total:
            raise InputError(f"{done} rows came, {self.total} were joined")
        for start in range(0, len(self), PIECE_ROWS):
            piece = slice(start, start + PIECE_ROWS)
            yield rows[piece], None if labels is None else labels[piece]

    def pieces(self, tables: Iterable[Table | PreparedRows]) -> Iterator[PreparedRows | tuple[Table, Array | None]]:
        """The joined rows of a table that is read, or prepared, piece by piece, as `Cluster.upload` takes them."""
        came: list[Table | PreparedRows] = []

        def rows() -> Iterator[tuple[Array, Array | None]]:
            for table in tables:
                came[:] = came or [table]
                yield table.x, table.y

        for x, y in self.arrange(rows()):
            first = came[0]
            if isinstance(first, PreparedRows):
                yield replace(first, x=x, y=y)
            else:
                yield Table(x, None, first.columns), y


def _room(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """An array, in a file that no folder lists where it is large."""
    size = int(np.prod(shape)) * dtype.itemsize
    if size <= IN_MEMORY:
        return np.empty(shape, dtype)
    with tempfile.TemporaryFile(prefix="hdcos-join-") as file:
        return np.memmap(file, dtype, "w+", shape=shape)
