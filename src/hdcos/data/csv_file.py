"""CSV files of numbers, with or without a line of names; what is wrong in one is named by its line and column.

Numbers are read by NumPy at once. Only where that fails the file is read again, cell by cell, to find the place.
"""

from __future__ import annotations

import csv
import io
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn, TextIO

import numpy as np
import numpy.typing as npt

from hdcos.data.folder import opened
from hdcos.errors import InputError

Array = npt.NDArray[Any]
Header = list[str] | None


def read_csv(path: Path) -> tuple[Header, Array]:
    """The names of the columns, if the first line has them, and the numbers."""
    with _text(path) as text:
        header = _header(path, text)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # NumPy warns of files without rows: they are refused here
                values = np.loadtxt(text, np.float64, delimiter=",", comments=None, ndmin=2, quotechar='"')
        except UnicodeDecodeError:
            raise
        except ValueError as error:
            _explain(path, str(error))
    if not len(values):
        raise InputError(f"{path} has a line of names, but no rows")
    if not np.isfinite(values).all():
        _explain(path, "a number is not finite")
    return header, values


@contextmanager
def _text(path: Path) -> Iterator[TextIO]:
    try:
        with opened(path) as stream, io.TextIOWrapper(stream, encoding="utf-8-sig", newline="") as text:
            yield text
    except UnicodeDecodeError:
        raise InputError(f"{path} is not a CSV file: it is not text in UTF-8") from None
    except csv.Error as error:
        raise InputError(f"{path} is not a CSV file: {error}") from None


def _header(path: Path, text: TextIO) -> Header:
    """The names in the first line; None, and nothing read, if it holds numbers."""
    first = next(csv.reader(io.StringIO(text.readline())), [])
    if not first:
        raise InputError(f"{path} is empty, or its first line is: a table has a row of numbers in each line")
    if all(_is_number(cell) for cell in first):
        text.seek(0)
        return None
    names = list[str]()
    known = set[str]()
    for number, name in enumerate(cell.strip() for cell in first):
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


def _explain(path: Path, otherwise: str) -> NoReturn:
    """InputError with the line and the column of the first cell that is no number."""
    with _text(path) as text:
        header = _header(path, text)
        skipped, width = (0 if header is None else 1), None if header is None else len(header)
        rows = csv.reader(text)
        for row in rows:
            line = rows.line_num + skipped
            width = len(row) if width is None else width
            if row and len(row) != width:
                raise InputError(f"{path}, line {line}: {len(row)} cells, where the lines before have {width}")
            for number, cell in enumerate(row):
                if not _is_number(cell) or not math.isfinite(float(cell)):
                    column = header[number] if header is not None else str(number + 1)
                    raise InputError(
                        f"{path}, line {line}, column {column}: {_shown(cell)} is not a number that can be used; "
                        f"fill it in, or leave the row or the column out"
                    )
    raise InputError(f"{path} is not a table of numbers: {otherwise}")


def _shown(cell: str) -> str:
    text = cell.strip()
    return repr(text if len(text) <= 40 else text[:40] + "...") if text else "an empty cell"


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
