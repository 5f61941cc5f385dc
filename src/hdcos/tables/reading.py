"""Tables of any columns as they come: CSV and Parquet files, DataFrames, Arrow tables, mappings of names to columns.

Files are read piece by piece and may be larger than memory. Cells of a CSV file stay texts here: the declaration of
their column says what they are, so that no file's first rows decide over its last.
"""

from __future__ import annotations

import csv
import io
import os
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hdcos.data.files import open_file
from hdcos.data.records import text_of
from hdcos.data.tables import PIECE_ROWS, other_separator
from hdcos.errors import DataMissing, InputError
from hdcos.files import name_errors
from hdcos.tables.cells import pyarrow

BLOCK_BYTES = 1 << 23
"""Of a CSV file that are read at once."""
MOST_CELLS = 1 << 23
"""Of features that are made at once: 64 MiB."""
Source = Any
"""What people pass as a table: a path, a DataFrame, an Arrow table, a mapping; a list of such, or an iterator."""


@dataclass(frozen=True)
class Piece:
    """Some rows of a table, one after another."""

    table: Any
    """Of Arrow."""
    where: str
    first: int

    def array(self, name: str) -> Any:
        """A column, in one piece and without a dictionary."""
        pa = pyarrow()
        column = self.table.column(name).combine_chunks()
        if isinstance(column, pa.ChunkedArray):  # what several chunks, or none, become differs between releases
            column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
        return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column

    def copied(self, name: str) -> list[str]:
        """A column as the text that it is."""
        if name not in self.table.column_names:
            raise InputError(f"{self.where} has no column {name!r}; it has {list(self.table.column_names)}")
        return [text_of(value) for value in self.array(name).to_pylist()]


def read_pieces(source: Source, where: str = "") -> Iterator[Piece]:
    """A table, piece by piece; `where` is what errors call it. Of a list, one table after the other."""
    if isinstance(source, list | tuple) and source:
        for each in source:
            yield from read_pieces(each, where)
        return
    first, names = 0, None
    for table in _tables(source):
        name = where or (str(source) if isinstance(source, str | os.PathLike) else "the table")
        _check_names(name, list(table.column_names))
        if names is not None and table.column_names != names:
            raise InputError(f"{name}: rows from {first} on have other columns than those before")
        names = table.column_names
        if len(table):
            yield Piece(table, name, first)
        first += len(table)
    if not first:
        raise InputError(f"{where or source if isinstance(source, str | os.PathLike) else 'the table'} has no rows")


def narrow(pieces: Iterator[Piece], width: int) -> Iterator[Piece]:
    """Pieces in shorter ones, whose features fit into memory: a few cells may become a thousand features each."""
    rows = max(1, MOST_CELLS // max(1, width))
    for piece in pieces:
        for start in range(0, len(piece.table), rows):
            yield Piece(piece.table.slice(start, rows), piece.where, piece.first + start)


def _check_names(where: str, names: list[str]) -> None:
    if not names:
        raise InputError(f"{where} has no columns")
    empty = next((number for number, name in enumerate(names) if not name), None)
    if empty is not None:
        raise InputError(f"{where}: column {empty + 1} has no name: give it one, or leave the column out")
    twice, times = Counter(names).most_common(1)[0]
    if times > 1:
        raise InputError(f"{where}: two columns are called {twice!r}; rename one of them")


def _tables(source: Source) -> Iterator[Any]:
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        with name_errors(path, "a table"):
            yield from _read_file(path)
    elif isinstance(source, Iterator):
        for each in source:
            yield to_arrow(each)
    else:
        whole = to_arrow(source)
        for start in range(0, max(1, len(whole)), PIECE_ROWS):
            yield whole.slice(start, PIECE_ROWS)


def to_arrow(table: Any) -> Any:
    """A table in memory as one of Arrow's."""
    pa = pyarrow()
    try:
        if isinstance(table, pa.Table):
            return table
        if isinstance(table, pa.RecordBatch):
            return pa.Table.from_batches([table])
        if isinstance(table, Mapping):
            return pa.table(dict(table))
        if type(table).__module__.partition(".")[0] == "pandas":
            numbered = next((name for name in table.columns if not isinstance(name, str)), None)
            if numbered is not None:
                raise InputError(f"a column of the table is called {numbered!r}: give it a name that is a text")
            return pa.Table.from_pandas(table, preserve_index=False)
        if hasattr(table, "__arrow_c_stream__"):
            return pa.table(table)
        if getattr(table, "columns", None) and hasattr(table, "to_numpy"):
            rows = table.to_numpy()
            return pa.table({name: rows[:, place] for place, name in enumerate(table.columns)})
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, pa.ArrowKeyError) as error:
        raise InputError(f"the table cannot be read: {error}") from error
    raise InputError(
        f"a {type(table).__name__} is no table with named columns: pass a DataFrame, an Arrow table, or a file's path"
    )


# ---- files


def _read_file(path: Path) -> Iterator[Any]:
    if not path.exists():
        raise DataMissing(f"there is no data file {path}: check its name")
    suffixes = [suffix.lower() for suffix in path.suffixes]
    kind = suffixes[-2] if suffixes[-1:] == [".gz"] and len(suffixes) > 1 else "".join(suffixes[-1:])
    pa = pyarrow()
    try:
        if kind == ".csv":
            yield from _read_csv(path)
        elif kind in (".parquet", ".pq"):
            import pyarrow.parquet as parquet

            with parquet.ParquetFile(path) as file:
                for batch in file.iter_batches(PIECE_ROWS):
                    yield pa.Table.from_batches([batch])
        else:
            raise InputError(f"{path}: columns with names are read from CSV and Parquet files, by their names")
    except (pa.ArrowException, EOFError, zlib.error, csv.Error, UnicodeDecodeError) as error:
        raise InputError(f"{path} is damaged, cut off or something else than its name says: {error}") from error


def _read_csv(path: Path) -> Iterator[Any]:
    pa = pyarrow()
    import pyarrow.csv as arrow_csv

    with open_file(path) as stream, io.TextIOWrapper(stream, encoding="utf-8-sig", newline="") as text:
        line, following = text.readline(), text.readline()
    names = next(csv.reader([line]), [])
    if not any(name.strip() for name in names):
        raise InputError(f"{path} is empty, or its first line is: it has the names of the columns")
    if (hint := other_separator(names)) and other_separator([following]):
        raise InputError(f"{path} has one column{hint}")
    if all(_is_number(name) for name in names):
        raise InputError(f"{path} begins with numbers: its first line must have the names of the columns")
    with open_file(path) as stream:
        reader = arrow_csv.open_csv(
            stream,
            read_options=arrow_csv.ReadOptions(block_size=BLOCK_BYTES),
            parse_options=arrow_csv.ParseOptions(newlines_in_values=True),
            convert_options=arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False, null_values=[]
            ),
        )
        for batch in reader:
            yield pa.Table.from_batches([batch]).rename_columns([name.strip() for name in batch.schema.names])


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
