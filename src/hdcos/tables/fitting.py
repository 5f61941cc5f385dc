"""What one owner finds out of its own rows: the values of its categories, and the statistics of its numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from hdcos.errors import InputError
from hdcos.nn.columns import quote
from hdcos.tables.cells import Cells, pyarrow
from hdcos.tables.columns import CATEGORY, IGNORED, LABEL, Column, Columns
from hdcos.tables.reading import Piece, Source, read_pieces
from hdcos.tables.statistics import Statistics

MOST_VALUES = 1000
"""Of a category whose values are not declared."""


LEAVE_OUT = f"leave out those that are not declared, or declare them as {IGNORED} and prepare again"


def check_columns(piece: Piece, *declared: Columns, more: Sequence[str] = (), remedy: str = LEAVE_OUT) -> None:
    """InputError unless a table has the columns that features are made of, and none that is not known."""
    names = piece.table.column_names
    features = [column.name for columns in declared for column in columns.features]
    known = {*more, *(name for columns in declared for name in columns.names)}
    missing = [name for name in features if name not in names]
    unknown = [name for name in names if name not in known]
    if missing or unknown:
        faults = [f"lacks {quote(missing)}"] * bool(missing) + [f"has unknown {quote(unknown)}"] * bool(unknown)
        raise InputError(
            f"{piece.where} {' and '.join(faults)}: the columns {quote(features)} are declared. Rename or add columns; "
            f"{remedy}"
        )


def measure(columns: Columns, source: Source) -> Statistics:
    """The statistics of one owner's rows, which must have all declared features, and the label if one is declared."""

    def checked() -> Iterator[Piece]:
        for piece in read_pieces(source):
            check_columns(piece, columns)
            check_label(piece, columns)
            yield piece

    return Statistics.of(columns, checked())


def check_label(piece: Piece, columns: Columns) -> None:
    if columns.label is not None and columns.label.name not in piece.table.column_names:
        raise InputError(f"{piece.where} lacks the label {columns.label.name!r}, which is declared: add the column")


def _is_open(column: Column) -> bool:
    """Whether its values, or classes, are yet to be found in rows."""
    if column.kind == LABEL:
        return column.classes is None and not column.regression
    return column.kind == CATEGORY and column.values is None and not column.buckets


def require_agreed(columns: Columns) -> None:
    """InputError unless all values and classes are declared: several owners must mean the same ones."""
    for column in columns:
        if _is_open(column):
            remedy = "list its `classes`" if column.kind == LABEL else "list its `values`, or hash them (buckets = 64),"
            raise InputError(
                f"column {column.name!r} has the values that rows happen to have: owners who prepare together must "
                f"{remedy} in [columns]"
            )


def complete(columns: Columns, source: Source) -> Columns:
    """The declaration with the values and classes that the rows have, where it does not say which."""
    pa = pyarrow()
    found: dict[str, set[str]] = {column.name: set() for column in columns if _is_open(column)}
    where = ""
    for piece in read_pieces(source) if found else ():
        where = piece.where
        check_columns(piece, columns)
        check_label(piece, columns)
        for name in found:
            cells = Cells(piece.array(name), columns[name], columns.missing_cells, piece.where, piece.first)
            found[name] |= set(pa.compute.unique(cells.texts().drop_null()).to_pylist())
            if len(found[name]) > MOST_VALUES:
                raise InputError(
                    f"{piece.where}, column {name!r}: more than {MOST_VALUES} different values. Hash them (buckets = "
                    f"64), or declare the column as id or {IGNORED}"
                )
    if empty := [name for name, values in found.items() if not values]:
        raise InputError(f"{where}: no row has a value in the columns {quote(empty)}: declare them as {IGNORED}")
    return Columns(tuple(_with_values(column, found.get(column.name)) for column in columns), columns.missing_cells)


def _with_values(column: Column, found: set[str] | None) -> Column:
    if found is None:
        return column
    values = tuple(sorted(found, key=_by_number))
    return replace(column, classes=values) if column.kind == LABEL else replace(column, values=values)


def _by_number(text: str) -> tuple[float, str]:
    """Numbers in their order, before texts in theirs."""
    try:
        return float(text), text
    except ValueError:
        return float("inf"), text
