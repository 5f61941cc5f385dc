"""The file of results: one JSON object per line and run, appended as each cell is done."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any

from hdcos.errors import InputError
from hdcos.files import read_text
from paper.cells import Cell

Row = dict[str, Any]
ALWAYS = {
    *("experiment", "dataset", "activation", "structure", "optimizer", "depth", "lr", "seed", "epochs"),
    *("train_rows", "test_rows", "metric", "value"),
}
"""What every row has."""
Key = tuple[Any, ...]
"""A cell's fields and the epochs: what a run is, whichever experiment asked for it."""


def read(path: Path) -> list[Row]:
    """All rows of the file; none where there is no file."""
    if not path.exists():
        return []
    rows = []
    for number, line in enumerate(read_text(path, "a file of results").splitlines(), 1):
        try:
            row = json.loads(line)
            if not isinstance(row, dict) or not set(row) >= ALWAYS:
                raise ValueError(f"an object with {', '.join(sorted(ALWAYS))} is expected")
            rows.append(row)
        except ValueError as error:
            raise InputError(
                f"line {number} of {path} is not a result in JSON: {error}. Delete it; its run is then made again."
            ) from error
    return rows


def done(path: Path, experiment: str, *names: str) -> set[tuple[Any, ...]]:
    """These fields of the rows that an experiment has in the file."""
    return {tuple(row[name] for name in names) for row in read(path) if row["experiment"] == experiment}


def is_training(row: Row) -> bool:
    """Whether the row is a trained model's; other experiments have rows of their own kind in the same file."""
    return row["lr"] is not None


def key(row: Row) -> Key:
    return (*astuple(cell_of(row)), row["epochs"])


def cell_of(row: Row) -> Cell:
    """The cell of a run; a field that is younger than the row has its default."""
    return Cell(**{name: row[name] for name in Cell.__dataclass_fields__ if name in row})


def finished(rows: Iterable[Row], rates: Sequence[float], trials: int) -> set[Key]:
    """The cells of which every run at these learning rates and with this many seeds is there."""
    seen: dict[Key, set[tuple[float, int]]] = {}
    for row in filter(is_training, rows):
        seen.setdefault(key(row), set()).add((row["lr"], row["seed"]))
    wanted = {(rate, seed) for rate in rates for seed in range(trials)}
    return {k for k, runs in seen.items() if wanted <= runs}


def append(path: Path, rows: Iterable[Row]) -> None:
    """Add rows at the end, all in one write that is on disk when this returns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write("".join(json.dumps(row) + "\n" for row in rows))
        file.flush()
        os.fsync(file.fileno())
