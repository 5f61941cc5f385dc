"""Columns with names: tables as people have them, and the order in which a network takes their columns.

A table is anything with `columns` and `to_numpy()`: a DataFrame of pandas or polars, or what `hdcos.data.read_table`
returns. Columns that have names are found by them; columns without, and plain arrays, are taken by position.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from hdcos.errors import InputError, ModelError
from hdcos.ring import Array

Names = tuple[str, ...]


class Table(Protocol):
    """What DataFrames have in common."""

    @property
    def columns(self) -> Any: ...

    def to_numpy(self) -> Any: ...


Rows = npt.ArrayLike | Table
"""What people pass as rows."""
MOST_CHARACTERS, MOST_BYTES = 200, 1 << 20
"""Of one name, and of all names of a network: they are stored and sent along with it."""
SHOWN = 20
"""Names that an error lists of each side."""


def check_names(names: Any, count: int) -> Names | None:
    """Names for this many columns, or none; ModelError where they could not tell the columns apart."""
    if names is None:
        return None
    if isinstance(names, str) or not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise ModelError(f"the names of features are a list of strings, got {type(names).__name__}")
    if len(names) != count:
        raise ModelError(f"{count} features cannot have {len(names)} names")
    for name in names:
        if not name.strip() or len(name) > MOST_CHARACTERS or not name.isprintable():
            raise ModelError(
                f"{name[:50]!r} is no name of a feature: a name has 1 to {MOST_CHARACTERS} printable characters"
            )
    if (size := sum(len(name.encode()) for name in names)) > MOST_BYTES:
        raise ModelError(f"the names of features take {size} bytes, at most {MOST_BYTES} are kept: shorten them")
    twice, times = Counter(names).most_common(1)[0]
    if times > 1:
        raise ModelError(f"two features are called {twice!r}: rename one of them")
    return tuple(names)


def is_table(x: Any) -> bool:
    return hasattr(x, "columns") and callable(getattr(x, "to_numpy", None))


def column_names(x: Any) -> Names | None:
    """The names of a table's columns; none for plain arrays and for tables whose columns are merely numbered."""
    given = list(x.columns) if is_table(x) and x.columns is not None else []
    named = [name for name in given if isinstance(name, str)]
    if not named:
        return None
    if len(named) < len(given):
        other = next(name for name in given if not isinstance(name, str))
        raise InputError(f"some columns of the table have names, but one is called {other!r}: give it a name too")
    try:
        return check_names(named, len(named))
    except ModelError as error:
        raise InputError(f"the table's columns: {error}") from None


def numbers(x: Any) -> Any:
    """What a table holds as an array of numbers; anything else as it is."""
    if not is_table(x):
        return x
    values = np.asarray(x.to_numpy())
    if values.dtype.kind in "fiub":
        return values
    parts = [_column(x, name) for name in x.columns]  # columns of several types
    return np.stack(parts, axis=1) if parts else values


def _column(table: Any, name: Any) -> Array:
    try:
        return np.asarray(table[name].to_numpy(), dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"column {name!r} does not hold numbers only: make numbers of it, or leave it out") from None


def order(have: Names, wanted: Names, owner: str, taker: str = "the network") -> list[int]:
    """Where the wanted columns stand in a table; InputError lists both sides if they are not the same."""
    places = {name: position for position, name in enumerate(have)}
    known = set(wanted)
    missing, unknown = [name for name in wanted if name not in places], [name for name in have if name not in known]
    if missing or unknown:
        faults = [f"lacks {quote(missing)}"] * bool(missing) + [f"has unknown {quote(unknown)}"] * bool(unknown)
        raise InputError(
            f"{owner} {' and '.join(faults)}: {taker} takes the columns {quote(wanted)}, {owner} has {quote(have)}. "
            f"Rename, add or leave out columns"
        )
    return [places[name] for name in wanted]


def quote(names: Sequence[str]) -> str:
    rest = len(names) - SHOWN
    return "[" + ", ".join(map(repr, names[:SHOWN])) + (f" and {rest} more" if rest > 0 else "") + "]"
