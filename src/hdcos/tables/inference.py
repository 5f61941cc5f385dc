"""A declaration guessed from a table: shown to its owner, who knows better, saves it and edits it.

A guess looks at the first LOOKED_AT rows. Numbers are numeric; texts are dates if all of them are, else a category of
the values that are there, of hashed buckets if there are more than MOST_VALUES, or an id if every row has its own. Gaps
get an indicator of their own.

Security  nothing leaves the owner. A declaration that owners agree on is shown to all of them: look at the `values`
          that were found here before you pass them on.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hdcos.errors import InputError
from hdcos.nn.columns import quote
from hdcos.tables.cells import FALSE, TRUE, Cells, pyarrow
from hdcos.tables.columns import BOOLEAN, CATEGORY, DATE, ID, LABEL, MISSING_CELLS, NUMERIC, Column, Columns
from hdcos.tables.reading import Piece, Source, read_pieces

LOOKED_AT = 100_000
MOST_VALUES = 32
BUCKETS = 64
MOST_CLASSES = 20
FEW_ROWS = 20
"""With fewer, texts that all differ may still be a category."""


def infer(source: Source, label: str | None = None) -> Columns:
    """A declaration of the columns of a table, of which one may be the label."""
    piece = _first_rows(source)
    names = list(piece.table.column_names)
    if label is not None and label not in names:
        raise InputError(f"{piece.where} has no column {label!r}; it has {quote(names)}")
    entries = {name: _label(piece, name) if name == label else _feature(piece, name) for name in names}
    return Columns.from_record({"columns": entries})


def _first_rows(source: Source) -> Piece:
    pa = pyarrow()
    tables, rows, where = [], 0, ""
    for piece in read_pieces(source):
        where = piece.where
        tables.append(piece.table.slice(0, LOOKED_AT - rows))
        rows += len(tables[-1])
        if rows >= LOOKED_AT:
            break
    return Piece(pa.concat_tables(tables, promote_options="permissive"), where, 0)


def _cells(piece: Piece, name: str, kind: str = CATEGORY) -> Cells:
    return Cells(piece.array(name), Column(name, kind), MISSING_CELLS, piece.where, 0)


def _feature(piece: Piece, name: str) -> Any:
    pa = pyarrow()
    cells = _cells(piece, name)
    try:
        texts = cells.texts()
    except InputError:
        return {"kind": "ignored"}  # lists, bytes and the like
    gaps = {"missing": "indicator"} if texts.null_count else {}
    kind = _plain_kind(piece, name, texts)
    if kind == NUMERIC and name.lower().replace("-", "_").split("_")[-1] == "id":
        kind = ID if len(texts.unique()) == len(texts) else NUMERIC
    if kind == ID:
        return ID
    if kind is not None:
        return {"kind": kind, **gaps}
    values = sorted(pa.compute.unique(texts.drop_null()).to_pylist())
    if not values:
        return {"kind": "ignored"}
    if len(values) == len(texts) and len(texts) >= FEW_ROWS:
        return ID
    if len(values) > MOST_VALUES or max(map(len, values)) > 100 or not all(value.isprintable() for value in values):
        return {"kind": CATEGORY, "buckets": BUCKETS, **gaps}
    return {"kind": CATEGORY, "values": values, "unseen": "other", **gaps}


def _plain_kind(piece: Piece, name: str, texts: Any) -> str | None:
    """Boolean, numeric or date, if every cell is one."""
    pa = pyarrow()
    lowered = set(pa.compute.unique(pa.compute.utf8_lower(texts.drop_null())).to_pylist())
    if not lowered:
        return None
    if lowered <= set(TRUE + FALSE) and len(lowered) == 2:
        return BOOLEAN
    for kind, read in ((NUMERIC, Cells.numbers), (DATE, Cells.days)):
        try:
            read(_cells(piece, name, kind))
            return kind
        except InputError:
            continue
    return None


def _label(piece: Piece, name: str) -> Any:
    """Classes, or a regression where there are more numbers than classes could be."""
    pa = pyarrow()
    texts = _cells(piece, name).texts()
    values = pa.compute.unique(texts.drop_null()).to_pylist()
    if not values:
        raise InputError(f"{piece.where}: the label {name!r} is missing in every row")
    try:
        numbers = _cells(piece, name, NUMERIC).numbers()
    except InputError:
        return {"kind": LABEL, "classes": sorted(values)}
    whole = bool((numbers[~np.isnan(numbers)] % 1 == 0).all())
    if not whole or len(values) > MOST_CLASSES:
        return {"kind": LABEL, "regression": True}
    return {"kind": LABEL, "classes": sorted(values, key=float)}
