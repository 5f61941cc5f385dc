"""People that nobody asked: the columns, gaps and labels that a table of an organisation has."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pyarrow.parquet as parquet

from hdcos.data.synthetic import ADULT_LABEL, EDUCATION, GAPS, RICH, adult_like, write_columns

ROWS = 20_000
TABLE = adult_like(ROWS, seed=3)


def test_the_same_seed_gives_the_same_people_and_another_gives_others() -> None:
    again, other = adult_like(100, seed=3), adult_like(100, seed=4)
    assert all((again[name] == adult_like(100, seed=3)[name]).all() for name in ("id", "education", ADULT_LABEL))
    assert (again["capital_gain"] != other["capital_gain"]).any()


def test_gaps_are_as_often_as_promised_and_ids_are_different() -> None:
    for name, values in TABLE.items():
        missing = np.array([value is None or value != value for value in values.tolist()])
        assert abs(missing.mean() - GAPS.get(name, 0.0)) < 0.01, name
    assert len(set(TABLE["id"].tolist())) == ROWS
    assert set(TABLE["education"].tolist()) <= set(EDUCATION)
    assert abs(TABLE[ADULT_LABEL].mean() - RICH) < 0.001


def test_a_label_can_be_learnt_and_not_by_guessing_the_frequent_one() -> None:
    married = TABLE["marital_status"] == "married"
    level = np.array([EDUCATION.index(word) for word in TABLE["education"].tolist()])
    score = 0.42 * level + 1.9 * married + 0.35 * np.log1p(TABLE["capital_gain"])
    guess = score > np.quantile(score, 1 - RICH)
    assert (guess == TABLE[ADULT_LABEL]).mean() > (1 - RICH) + 0.03


def test_files_have_what_the_columns_have(tmp_path: Path) -> None:
    few = {name: values[:50] for name, values in TABLE.items()}
    write_columns(tmp_path / "people.csv", few, ["id", "age", "work"])
    with (tmp_path / "people.csv").open(newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["id", "age", "work"]
    assert [row[0] for row in rows] == few["id"].tolist()
    assert [row[2] or None for row in rows] == few["work"].tolist()
    assert np.array_equal([float(row[1] or "nan") for row in rows], few["age"], equal_nan=True)
    write_columns(tmp_path / "people.parquet", few)
    table = parquet.read_table(tmp_path / "people.parquet")
    assert table.column_names == list(few)
    assert table["work"].to_pylist() == few["work"].tolist()
    assert table["age"].null_count == np.isnan(few["age"]).sum()
    assert str(table.schema.field("owns_home").type) == "bool"
