"""Two clinics that never were: the tables of the tutorial. `python -m hdcos.data.clinics FOLDER` writes them.

FOLDER/north, FOLDER/south     one folder for each owner, with
    patients.csv               what it has measured of its patients, and whether they are sick
    test.csv                   the same of others, which it keeps to itself
    new.csv                    patients with an id, of whom nobody knows yet
FOLDER/north/people.csv        what one knows of people, by their numbers
FOLDER/south/stays.csv         what the other one knows of people, most of whom are the same, and whether they are sick
FOLDER/north/visitors.csv      new people of whom both are known

Of patients both have the same columns, in another order. Who is sick follows from two of them, and each clinic has seen
only people on one side of the first: what it learns alone is of little use to the other. Numbers are of a size of about
1. People are as tables of people are: with categories and gaps, in years and cities.
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
PEOPLE, SHARED, VISITORS = 360, 300, 40
CITIES, WARDS = ("Basel", "Bern", "Chur"), ("day", "night", "none")
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


def write_people(folder: Path, seed: int = 0) -> Array:
    """Two tables of people, of whom SHARED are in both; returns which of the visitors are sick, which no file says.

    It follows from the age, which one owner knows, and the pressure, which the other one does.
    """
    generator, rows = np.random.default_rng([seed, 0xB00C]), 2 * PEOPLE - SHARED + VISITORS
    numbers = generator.permutation(np.arange(10_000, 10_000 + rows))
    age, pressure = generator.integers(20, 90, rows), generator.normal(130, 15, rows).round()
    sick = (age - 55) / 20 + (pressure - 130) / 15 + 0.1 * generator.standard_normal(rows) > 0
    cities, wards = generator.choice(CITIES, rows), generator.choice(WARDS, rows)
    smokes = np.where(generator.random(rows) < 0.1, "", generator.choice(("yes", "no"), rows))
    known = [[f"P-{n}", str(a), s, c] for n, a, s, c in zip(numbers, age, smokes, cities, strict=True)]
    stays = [[f"{p:.0f}", w] for p, w in zip(pressure, wards, strict=True)]
    labels = ["yes" if each else "no" for each in sick]
    north, south = np.arange(PEOPLE), np.arange(PEOPLE - SHARED, 2 * PEOPLE - SHARED)
    visitors = np.arange(rows - VISITORS, rows)
    _write(folder / "north" / "people.csv", ["person", "age", "smoker", "city"], [known[n] for n in north])
    table = [[known[n][0], *stays[n], labels[n]] for n in generator.permutation(south)]
    _write(folder / "south" / "stays.csv", ["number", "pressure", "ward", "sick"], table)
    both = ["person", "age", "smoker", "city", "pressure", "ward"]
    _write(folder / "north" / "visitors.csv", both, [[*known[n], *stays[n]] for n in visitors])
    answer: Array = sick[visitors]
    return answer


def _write(path: Path, header: list[str], rows: list[list[str]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([header, *rows])


if __name__ == "__main__":
    place = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    write_clinics(place)
    write_people(place)
