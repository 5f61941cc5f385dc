"""Ids as owners compare them: what is the same, what is an error, and what an owner may decide to leave out."""

from __future__ import annotations

import datetime

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from hdcos.errors import DataMissing, InputError
from hdcos.join.ids import normalise, read_ids

E_ACUTE, E_COMBINED = "\u00e9", "e\u0301"


def csv(tmp_path, text: str, name: str = "t.csv"):
    path = tmp_path / name
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("one", "other", "ignore_case", "same"),
    [
        ("Anna", " Anna\t", False, True),
        ("Anna", "anna", False, False),
        ("Anna", "anna", True, True),
        (f"Ren{E_ACUTE}", f"Ren{E_COMBINED}", False, True),
        ("Straße", "STRASSE", True, True),
        ("Straße", "STRASSE", False, False),
        (f"REN{E_COMBINED.upper()}", f"ren{E_ACUTE}", True, True),
        ("7", "07", False, False),
    ],
)
def test_ids_are_compared_as_stated(one, other, ignore_case, same) -> None:
    assert (normalise(one, ignore_case) == normalise(other, ignore_case)) is same


def test_several_columns_are_told_apart_by_their_lengths(tmp_path) -> None:
    ids = read_ids(csv(tmp_path, "a,b\nab,c\na,bc\n"), ["a", "b"])
    assert ids.digests.shape == (2, 16)
    assert not np.array_equal(ids.digests[0], ids.digests[1])
    turned = read_ids(csv(tmp_path, "x,b,a\n0,c,ab\n0,bc,a\n"), ["a", "b"])  # wherever the columns are
    assert np.array_equal(ids.digests, turned.digests)
    assert ids.fingerprint == turned.fingerprint


def test_a_parquet_file_gives_the_ids_of_the_same_csv_file(tmp_path) -> None:
    days = [datetime.date(2026, 1, 31), datetime.date(1999, 12, 1), datetime.date(2000, 2, 29)]
    table = pyarrow.table({"name": ["a ", "b", "é"], "number": [3.0, 4.0, 5.0], "whole": [1, 2, 3], "day": days})
    parquet.write_table(table, tmp_path / "t.parquet")
    text = "name,number,whole,day\na,3,1,2026-01-31\nb,4,2,1999-12-01\né,5,3,2000-02-29\n"
    columns = ["name", "number", "whole", "day"]
    one, other = (read_ids(path, columns) for path in (tmp_path / "t.parquet", csv(tmp_path, text)))
    assert np.array_equal(one.digests, other.digests)


def test_empty_ids_are_named_by_their_rows_and_left_out_on_demand(tmp_path) -> None:
    path = csv(tmp_path, "id,x\na,1\n ,2\n\nb,3\n,4\n")
    with pytest.raises(InputError, match=r"2 rows have no id.*rows 1, 3 \(from 0\).*--drop-empty"):
        read_ids(path, ["id"])
    kept = read_ids(path, ["id"], drop_empty=True)
    assert (kept.rows.tolist(), kept.total, len(kept)) == ([0, 2], 4, 2)
    with pytest.raises(InputError, match="no row has an id"):
        read_ids(csv(tmp_path, "id,x\n,1\n"), ["id"], drop_empty=True)


def test_ids_that_come_twice_are_named_by_their_rows_not_by_the_ids(tmp_path) -> None:
    path = csv(tmp_path, "id\n" + "\n".join(f"secret{number % 9}" for number in range(30)))
    with pytest.raises(InputError, match=r"21 rows have an id .* rows 9, 10, 11, 12, 13 and so on .*--first") as caught:
        read_ids(path, ["id"])
    assert "secret" not in str(caught.value)
    assert read_ids(path, ["id"], first=True).rows.tolist() == list(range(9))
    assert read_ids(csv(tmp_path, "id\nA\na\n"), ["id"]).rows.tolist() == [0, 1]
    assert read_ids(csv(tmp_path, "id\nA\na\n"), ["id"], ignore_case=True, first=True).rows.tolist() == [0]


@pytest.mark.parametrize(
    ("text", "columns", "words"),
    [
        ("a,b\n1,2\n", ["c"], "no column 'c'; its columns are 'a', 'b'"),
        ("a,a\n1,2\n", ["a"], "more than one column 'a'"),
        ("a,b\n1,2\n3\n", ["a"], "line 3: 1 cells"),
        ("a,b\n", ["a"], "has no rows"),
        ("a,b\n1,2\n", [], "--id"),
        ("a,b\n1,2\n", ["a", "a"], "each once"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(tmp_path, text, columns, words) -> None:
    with pytest.raises(InputError, match=words):
        read_ids(csv(tmp_path, text), columns)


def test_files_without_columns_and_columns_without_ids_are_refused(tmp_path) -> None:
    np.save(tmp_path / "t.npy", np.zeros((2, 2)))
    with pytest.raises(InputError, match="CSV and Parquet"):
        read_ids(tmp_path / "t.npy", ["a"])
    with pytest.raises(DataMissing, match="no data file"):
        read_ids(tmp_path / "none.csv", ["a"])
    parquet.write_table(pyarrow.table({"a": [0.5, 1.0]}), tmp_path / "t.parquet")
    with pytest.raises(InputError, match="column a: a value of type float cannot be an id"):
        read_ids(tmp_path / "t.parquet", ["a"])
