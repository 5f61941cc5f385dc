"""Two clinics that never were: the tables of the tutorial. `python -m hdcos.data.clinics FOLDER` writes them.

FOLDER/north, FOLDER/south     one folder for each owner, with
    patients.csv               what it has measured of its patients, and whether they are sick
    test.csv                   the same of others, which it keeps to itself
    new.csv                    patients with an id, of whom nobody knows yet

Both have the same columns, in another order. Who is sick follows from two of them, and each clinic has seen only people
on one side of the first: what it learns alone is of little use to the other. Numbers are scaled to a size of about 1.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

COLUMNS = {"north": ["age", "weight", "pressure", "pulse"], "south": ["pulse", "age", "pressure", "weight"]}
FIRST_ID = {"north": 1000, "south": 2000}
SIZES = {"patients": 400, "test": 100, "new": 20}
NOISE = 0.05

Array = npt.NDArray[Any]


def write_clinics(folder: Path, seed: int = 0) -> dict[str, Array]:
    """The tables of both clinics; returns who is sick among the new patients of each, which no file says."""
    generator, truth = np.random.default_rng([seed, 0xC11]), dict[str, Array]()
    for clinic, columns in COLUMNS.items():
        place, first = folder / clinic, FIRST_ID[clinic]
        place.mkdir(parents=True, exist_ok=True)
        for name, rows in SIZES.items():
            known = {column: generator.uniform(-1, 1, rows) for column in ("weight", "pressure", "pulse")}
            known["age"] = generator.uniform(*((-1, 0) if clinic == "north" else (0, 1)), rows)
            sick = known["pressure"] + known["age"] + NOISE * generator.standard_normal(rows) > 0
            table = [[f"{known[column][row]:.4f}" for column in columns] for row in range(rows)]
            if name == "new":
                truth[clinic] = sick
                _write(place / "new.csv", ["id", *columns], [[str(first + n), *row] for n, row in enumerate(table)])
            else:
                labelled = [[*row, str(int(is_sick))] for row, is_sick in zip(table, sick, strict=True)]
                _write(place / f"{name}.csv", [*columns, "sick"], labelled)
    return truth


def _write(path: Path, header: list[str], rows: list[list[str]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([header, *rows])


if __name__ == "__main__":
    write_clinics(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
