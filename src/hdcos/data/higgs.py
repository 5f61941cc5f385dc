"""HIGGS (Baldi, Sadowski and Whiteson, Nature Communications 5:4308): signal against background events.

File     higgs/higgs-sample.csv or, where that is not there, higgs/HIGGS.csv, all of UCI's; with or without .gz:
         no header; the label, then 28 features, in UCI's order
"""

from __future__ import annotations

import io
from contextlib import suppress
from pathlib import Path

import numpy as np
import numpy.typing as npt

from hdcos.data.files import locate, open_file
from hdcos.errors import DataMissing, InputError

FEATURES = 28
ORIGIN = "HIGGS.csv.gz of the UCI Machine Learning Repository (data set 280)"


def higgs(rows: int | None = None) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Features (n, 28), the single-precision numbers of the original, and labels: 1 signal, 0 background.

    `rows` reads only that many, from the beginning.
    """
    path = _path()
    try:
        with open_file(path) as stream, io.TextIOWrapper(stream, encoding="ascii") as text:
            first = text.readline()
            if not first.strip():
                raise InputError(f"{path} does not begin with a row of numbers")
            if first.count(",") != FEATURES:
                raise InputError(f"{path} should have {FEATURES + 1} columns, its first row has {first.count(',') + 1}")
            text.seek(0)
            table = np.loadtxt(text, np.float32, delimiter=",", comments=None, ndmin=2, max_rows=rows)
    except InputError:
        raise
    except ValueError as error:
        raise InputError(f"{path} is not a table of numbers: {error}") from error
    broken = np.flatnonzero(~np.isfinite(table).all(axis=1) | ((table[:, 0] != 0) & (table[:, 0] != 1)))
    if broken.size:
        raise InputError(
            f"{path}: row {broken[0]} (from 0) has a label other than 0 and 1, or a number that is not finite"
        )
    return table[:, 1:].astype(np.float64), table[:, 0].astype(np.int64)


def _path() -> Path:
    with suppress(DataMissing):
        return locate("higgs/higgs-sample.csv")
    return locate("higgs/HIGGS.csv", ORIGIN)
