"""The cells of one column, as a declaration reads them: numbers, truths, days or texts, and which of them are missing.

A column comes as an Arrow array: of texts from a CSV file, of any type from Parquet and DataFrames. What cannot be read
is an InputError with the row, the column, the cell, and what to do; columns of another type than declared are one too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from hdcos.errors import InputError
from hdcos.ring import Array
from hdcos.tables.columns import Column

TRUE, FALSE = ("true", "t", "yes", "y", "1"), ("false", "f", "no", "n", "0")
DAY_US = 86_400_000_000
SHOWN = 40
"""Characters of a cell that an error quotes."""


def pyarrow() -> Any:
    """pyarrow, with what is needed of it; InputError says how to get it."""
    try:
        import pyarrow as pa
        import pyarrow.compute
    except ImportError:
        raise InputError("tables with declared columns need pyarrow: pip install 'hdcos[tables]'") from None
    return pa


@dataclass(frozen=True)
class Cells:
    """One column of a piece of a table, and where it is from."""

    array: Any
    """An Arrow array, without chunks."""
    column: Column
    missing_cells: tuple[str, ...]
    where: str
    """The file, or what else the table is."""
    first: int
    """The number of its first row in the whole table."""

    def numbers(self) -> Array:
        """As numbers, NaN where they are missing."""
        pa, kind = pyarrow(), self._kind
        if kind == "text":
            return self._cast(self._texts(), pa.float64(), "a number")
        if kind not in ("whole", "real"):
            self._refuse_type("numbers")
        return self._finite(self.array.cast(pa.float64(), safe=False))

    def truths(self) -> Array:
        """As 1.0 and 0.0, NaN where they are missing."""
        pa, kind = pyarrow(), self._kind
        if kind == "truth":
            return self._to_numpy(self.array.cast(pa.int8()).cast(pa.float64()))
        if kind in ("whole", "real"):
            found = self._finite(self.array.cast(pa.float64(), safe=False))
            self._refuse(~np.isnan(found) & (found != 0) & (found != 1), "true or false (1 or 0)")
            return found
        if kind != "text":
            self._refuse_type("true and false")
        texts = pa.compute.utf8_lower(self._texts())
        places = self._to_numpy(pa.compute.index_in(texts, value_set=pa.array(TRUE + FALSE)).cast(pa.float64()))
        self._refuse(np.isnan(places) & self._present(texts), f"true or false (one of {', '.join(TRUE + FALSE)})")
        return np.where(np.isnan(places), np.nan, (places < len(TRUE)).astype(np.float64))

    def days(self) -> Array:
        """As days since 1970, NaN where they are missing."""
        pa, kind = pyarrow(), self._kind
        moment = pa.timestamp("us")
        if kind == "text":
            texts = self._texts()
            if self.column.format:
                read = pa.compute.strptime(texts, self.column.format, "us", error_is_null=True)
                self._refuse(self._present(texts) & ~self._present(read), f"a date as {self.column.format!r} has it")
            else:
                try:
                    read = texts.cast(moment)
                except pa.ArrowInvalid:
                    self._find(texts, moment, "a date such as 2024-12-31; other dates need `format`")
        elif kind == "date":
            zone = self.array.type.tz if pa.types.is_timestamp(self.array.type) else None
            read = self.array.cast(pa.timestamp("us", zone), safe=False)  # with a zone or not, it is Greenwich's time
        else:
            self._refuse_type("dates")
        return self._to_numpy(read.cast(pa.int64()).cast(pa.float64(), safe=False)) / DAY_US

    def texts(self) -> Any:
        """As an Arrow array of texts, null where they are missing: whole numbers without a point, truths as words."""
        pa, kind = pyarrow(), self._kind
        if kind == "text":
            return self._texts()
        if kind == "other":
            self._refuse_type("texts, numbers or dates")
        if kind == "real":
            reals = self._finite(self.array.cast(pa.float64(), safe=False))
            return pa.array([_written(value) for value in reals.tolist()], pa.string())
        return self.array.cast(pa.string())

    # ---- what the column is

    @property
    def _kind(self) -> str:
        pa = pyarrow()
        kind, types = self.array.type, pa.types
        if types.is_null(kind) or types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
            return "text"
        if types.is_boolean(kind):
            return "truth"
        if types.is_integer(kind):
            return "whole"
        if types.is_floating(kind) or types.is_decimal(kind):
            return "real"
        return "date" if types.is_date(kind) or types.is_timestamp(kind) else "other"

    def _texts(self) -> Any:
        """Texts without space around them, null where they stand for nothing."""
        pa = pyarrow()
        trimmed = pa.compute.utf8_trim_whitespace(self.array.cast(pa.string()))
        nothing = pa.compute.is_in(trimmed, value_set=pa.array(self.missing_cells, pa.string()))
        return pa.compute.if_else(nothing, pa.scalar(None, pa.string()), trimmed)

    def _cast(self, texts: Any, kind: Any, what: str) -> Array:
        pa = pyarrow()
        try:
            return self._finite(texts.cast(kind))
        except pa.ArrowInvalid:
            self._find(texts, kind, what)

    def _finite(self, array: Any) -> Array:
        found = self._to_numpy(array)
        self._refuse(np.isinf(found), "a finite number")
        return found

    @staticmethod
    def _to_numpy(array: Any) -> Array:
        return np.asarray(array.to_numpy(zero_copy_only=False), dtype=np.float64)

    @staticmethod
    def _present(array: Any) -> Array:
        return np.asarray(array.is_valid().to_numpy(zero_copy_only=False), dtype=bool)

    # ---- what is wrong with it

    def _find(self, texts: Any, kind: Any, what: str) -> NoReturn:
        """InputError with the first cell that cannot be read."""
        pa = pyarrow()
        for row, text in enumerate(texts):
            try:
                text.cast(kind)
            except pa.ArrowInvalid:
                self.refuse_row(row, what)
        raise InputError(f"{self.where}, column {self.column.name!r}: a cell is not {what}")

    def _refuse(self, wrong: Array, what: str) -> None:
        if wrong.any():
            self.refuse_row(int(wrong.argmax()), what)

    def refuse_row(self, row: int, what: str) -> NoReturn:
        self.refuse(row, f"{self.quote(row)} is not {what}. Correct the cell, or leave the row out")

    def refuse(self, row: int, why: str) -> NoReturn:
        raise InputError(f"{self.where}, row {self.first + row} (from 0), column {self.column.name!r}: {why}")

    def quote(self, row: int) -> str:
        text = str(self.array[row].as_py())
        return repr(text if len(text) <= SHOWN else text[:SHOWN] + "...")

    def _refuse_type(self, what: str) -> NoReturn:
        raise InputError(
            f"{self.where}, column {self.column.name!r}: it is declared as {self.column.kind}, which takes {what}, and "
            f"holds {self.array.type}. Convert the column, or change its kind in [columns]"
        )


def _written(value: float) -> str | None:
    """A number of a category as people write it."""
    if np.isnan(value):
        return None
    return str(int(value)) if value.is_integer() else repr(value)
