"""Sums over rows that a preparation is made of, exact, and how those of several owners become one.

Computes  for each column that is standardised, or whose missing cells become its mean: how many cells are not missing,
          their sum and, if it is standardised, the sum of their squares; for each category with `least`, the rows of
          every agreed value; and one random number, the salt of the preparation's digest.
Error     none: cells are summed as exact fixed-point numbers of SCALE fraction bits (an owner's sum is rounded once, to
          2**-SCALE), so that owners who add their sums get, bit for bit, what one owner of all rows would have got.
Security  an owner's sums leave it as additive shares (`sharing.wide`), each of which is uniform alone. The parties add
          those of all owners and give the totals to these owners alone.

          Each party learns who contributed, when, how many numbers, and a digest of the declaration.
          Each owner learns the totals: the count, the mean and the deviation of every column listed above over all
          owners' rows, and the rows of agreed values that `least` asks for. It can subtract what it contributed itself.
          Between two owners that is the other one's count, mean and deviation: inherent, whatever the protocol. Of
          three or more, each learns the sum over the others, and those who put their knowledge together the last one's.
          Totals that are computed again, with one row more, tell that row: owners should agree on a preparation once.
          They are exact: of a column with many digits, who has a list of possible cells may find out which of them add
          up to the total. Round such a column first.

          Therefore an owner with fewer than LEAST_ROWS rows, or with fewer cells than that in one of these columns, is
          refused before anything leaves it.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from hdcos.errors import InputError
from hdcos.ring import Array
from hdcos.tables.cells import Cells, pyarrow
from hdcos.tables.columns import BOOLEAN, CATEGORY, DATE, LABEL, Column, Columns

SCALE = 224
LARGEST_CELL = 1e36
"""The squares of 2**47 such cells fit the 512 bits of a sum."""
LEAST_ROWS = 10
SALT_BITS = 256
COUNT, SUM, SQUARES = "count", "sum", "squares"
_SPLITTER = float((1 << 27) + 1)


@dataclass(frozen=True)
class Term:
    """One number of the statistics: what is summed of which column."""

    column: str
    what: str
    """`count`, `sum`, `squares`, or "=" and a value of a category."""


def terms(columns: Columns) -> list[Term]:
    """What is summed, in the order in which numbers are sent, behind the salt: it follows from the declaration."""
    found = []
    for column in columns:
        if column.needs_mean:
            found += [Term(column.name, what) for what in (COUNT, SUM, *([SQUARES] if column.scaled else []))]
        if column.least:
            found += [Term(column.name, f"={value}") for value in column.values or ()]
    return found


@dataclass(frozen=True)
class Statistics:
    """The numbers of one owner, or their totals."""

    columns: Columns
    rows: int
    """Of this owner; not sent."""
    numbers: tuple[int, ...]
    """The salt, then one for each term; sums over 2**SCALE."""

    @classmethod
    def of(cls, columns: Columns, pieces: Iterable[Any]) -> Statistics:
        """Those of the rows in pieces of a table."""
        wanted = terms(columns)
        totals, rows = [0] * len(wanted), 0
        for piece in pieces:
            rows += len(piece.table)
            known: dict[str, dict[str, int]] = {}
            for place, term in enumerate(wanted):
                if term.column not in known:
                    column = columns[term.column]
                    cells = Cells(piece.array(column.name), column, columns.missing_cells, piece.where, piece.first)
                    known[term.column] = _sums(cells)
                totals[place] += known[term.column][term.what]
        return cls(columns, rows, (secrets.randbits(SALT_BITS), *totals))

    def check_sharing(self) -> None:
        """Before it leaves the owner: InputError where totals could tell single rows."""
        if self.rows < LEAST_ROWS:
            raise InputError(
                f"statistics of {self.rows} rows would tell the other owners too much of each: at least {LEAST_ROWS} "
                f"rows are needed"
            )
        for term, number in zip(terms(self.columns), self.numbers[1:], strict=True):
            if term.what == COUNT and 0 < number < LEAST_ROWS:
                raise InputError(
                    f"column {term.column!r} is filled in {number} of your rows alone, and its mean would tell the "
                    f"other owners too much of them: agree on another way, as missing = 'constant' and scale = 'none', "
                    f"or leave it out"
                )

    def total(self, numbers: Sequence[int]) -> Statistics:
        """What the same statistics are over all owners."""
        if len(numbers) != len(self.numbers):
            raise InputError(f"{len(numbers)} totals came where {len(self.numbers)} belong to this declaration")
        return Statistics(self.columns, 0, tuple(numbers))

    @property
    def salt(self) -> str:
        return f"{self.numbers[0]:x}"

    def moments(self, column: Column) -> tuple[float, float]:
        """The mean and the deviation of a column; a deviation of 1 where all cells are the same."""
        known = dict(self._of(column))
        count = known[COUNT]
        if count <= 0:
            raise InputError(
                f"column {column.name!r} is missing in every row, so it has no mean: declare it as ignored"
            )
        mean = Fraction(known[SUM], count << SCALE)
        variance = Fraction(known.get(SQUARES, 0), count << SCALE) - mean**2
        return float(mean), float(variance) ** 0.5 if variance > 0 else 1.0

    def rows_of_values(self, column: Column) -> dict[str, int]:
        """How many rows have each value of a category with `least`."""
        return {what[1:]: number for what, number in self._of(column) if what.startswith("=")}

    def _of(self, column: Column) -> Iterator[tuple[str, int]]:
        for term, number in zip(terms(self.columns), self.numbers[1:], strict=True):
            if term.column == column.name:
                yield term.what, number


def read_numbers(cells: Cells) -> Array:
    """The cells of a column that is a number, within its limits; NaN where they are missing."""
    column = cells.column
    if column.kind == BOOLEAN:
        return cells.truths()
    found = cells.days() if column.kind == DATE else cells.numbers()
    too_large = np.abs(found) > LARGEST_CELL
    if too_large.any():
        cells.refuse_row(int(too_large.argmax()), f"a number that can be used: it is larger than {LARGEST_CELL:g}")
    if column.kind == LABEL and np.isnan(found).any():
        cells.refuse(int(np.isnan(found).argmax()), "the label is missing. Fill it in, or leave the row out")
    return found if column.limits is None else np.clip(found, *column.limits)


def _sums(cells: Cells) -> dict[str, int]:
    if cells.column.kind == CATEGORY:
        pa = pyarrow()
        texts, values = cells.texts(), cells.column.values or ()
        places = pa.compute.index_in(texts, value_set=pa.array(values, pa.string())).drop_null()
        counts = np.bincount(np.asarray(places.to_numpy(zero_copy_only=False), dtype=np.int64), minlength=len(values))
        return {f"={value}": int(count) for value, count in zip(values, counts, strict=True)}
    found = read_numbers(cells)
    present = found[~np.isnan(found)]
    return {COUNT: len(present), SUM: exact_sum(present), SQUARES: exact_squares(present)}


# ---- exact sums


def exact_sum(values: Array) -> int:
    """The sum of numbers over 2**SCALE, exact but for what is smaller than that.

    Numbers are whole numbers of 53 bits at their exponents; parts of 27 and 26 bits of those with one exponent are
    added as floats, which is exact for up to 2**26 of them.
    """
    total = 0
    for start in range(0, len(values), 1 << 26):
        fractions, exponents = np.frexp(values[start : start + (1 << 26)])
        if not len(fractions):
            continue
        least = int(exponents.min())
        places = exponents - least
        highs = np.floor(fractions * 2.0**26)
        high = np.bincount(places, weights=highs)
        low = np.bincount(places, weights=fractions * 2.0**53 - highs * 2.0**27)
        for place in np.flatnonzero((high != 0) | (low != 0)).tolist():
            shift = least + place - 53 + SCALE
            part = (int(high[place]) << 27) + int(low[place])
            total += part << shift if shift >= 0 else part >> -shift
    return total


def exact_squares(values: Array) -> int:
    """The sum of squares likewise: a square is its rounded value and what rounding took off it (Dekker, Veltkamp)."""
    squares = values * values
    scaled = _SPLITTER * values
    high = scaled - (scaled - values)
    low = values - high
    rest = ((high * high - squares) + 2.0 * high * low) + low * low
    return exact_sum(squares) + exact_sum(rest)
