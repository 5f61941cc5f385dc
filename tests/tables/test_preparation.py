"""Tables become features: right, the same from every kind of file and ever after, and what does not fit is named."""

from __future__ import annotations

import datetime
import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet
from sklearn.compose import ColumnTransformer
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from hdcos.errors import InputError
from hdcos.tables import Columns, Preparation, prepare_together, reading

DECLARED = {
    "who": "id",
    "age": {"kind": "numeric", "missing": "mean"},
    "income": {"kind": "numeric", "missing": "indicator", "limits": [0, 100]},
    "city": {"kind": "category", "values": ["Basel", "Bern", "Chur"], "unseen": "other", "missing": "indicator"},
    "member": {"kind": "boolean", "missing": "constant", "fill": False},
    "since": {"kind": "date", "missing": "mean"},
    "note": "ignored",
    "churned": {"kind": "label", "classes": ["no", "yes"]},
}
TABLE = pd.DataFrame(
    {
        "who": ["a", "b", "c", "d"],
        "age": [20.0, 40.0, None, 60.0],
        "income": [10.0, None, 1000.0, 30.0],
        "city": ["Bern", "Genf", None, "Basel"],
        "member": pd.array([True, None, False, True], dtype="boolean"),
        "since": [datetime.date(2020, 1, day) for day in (1, 3, 5, 7)],
        "note": ["x", "y", "z", ""],
        "churned": ["yes", "no", "no", "yes"],
    }
)
NAMES = [
    *("age", "income", "income missing", "city=Basel", "city=Bern", "city=Chur", "city other", "city missing"),
    *("member", "since"),
]


@pytest.fixture(scope="module")
def fitted():
    return Preparation.fit(TABLE, DECLARED)


def test_features_are_what_is_declared(fitted) -> None:
    assert fitted.names == NAMES
    ages = np.array([20.0, 40, 40, 60])
    incomes = np.array([10.0, 140 / 3, 100, 30])
    deviation = np.std([10.0, 100, 30])
    expected = np.stack(
        [
            (ages - 40) / np.std([20, 40, 60]),
            (incomes - 140 / 3) / deviation,
            *np.array([[0, 1, 0, 0], [0, 0, 0, 1], [1, 0, 0, 0], [0, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]]),
            [1, 0, 0, 1],
            np.array([-3, -1, 1, 3]) / np.sqrt(5),
        ],
        axis=1,
    )
    rows = fitted.rows(TABLE, labels=True)
    np.testing.assert_allclose(rows.x, expected, atol=1e-12)
    assert rows.y.tolist() == [1, 0, 0, 1]
    assert fitted.name_labels([0, 1, 1]) == ["no", "yes", "yes"]
    assert fitted.ids(TABLE) == [("a",), ("b",), ("c",), ("d",)]
    assert (fitted.outputs, fitted.regression) == (1, False)


def test_files_and_tables_give_the_same_features(fitted, tmp_path) -> None:
    TABLE.to_csv(tmp_path / "t.csv", index=False)
    TABLE.to_csv(tmp_path / "t.csv.gz", index=False)
    TABLE.to_parquet(tmp_path / "t.parquet")
    arrow = pa.Table.from_pandas(TABLE, preserve_index=False)
    categorical = TABLE.assign(city=TABLE["city"].astype("category"))
    for source in (
        *(tmp_path / "t.csv", str(tmp_path / "t.csv.gz"), tmp_path / "t.parquet", arrow, categorical),
        arrow.to_pydict(),
        iter([TABLE[:1], arrow.slice(1)]),
        [TABLE[:3], TABLE[3:][TABLE.columns[::-1]]],
        TABLE[TABLE.columns[::-1]],
    ):
        np.testing.assert_array_equal(fitted.apply(source), fitted.apply(TABLE))


def test_a_prediction_needs_neither_label_nor_id(fitted) -> None:
    wanted = TABLE.drop(columns=["who", "note", "churned"])
    np.testing.assert_array_equal(fitted.apply(wanted), fitted.apply(TABLE))
    with pytest.raises(InputError, match="lacks the label 'churned'"):
        fitted.rows(wanted, labels=True)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda t: t.drop(columns="age"), r"lacks \['age'\]"),
        (lambda t: t.assign(height=1), r"has unknown \['height'\]"),
        (lambda t: t.rename(columns={"age": "Age"}), r"lacks \['age'\] and has unknown \['Age'\]"),
        (lambda t: t.assign(age=["20", "forty", "", "1"]), r"row 1 \(from 0\), column 'age': 'forty' is not a number"),
        (lambda t: t.assign(age=[True, False, True, True]), "declared as numeric, which takes numbers, and holds bool"),
        (lambda t: t.assign(age=t["since"]), "which takes numbers, and holds date32"),
        (lambda t: t.assign(age=[1, 2, np.inf, 0]), "row 2 .*'inf' is not a finite number"),
        (lambda t: t.assign(age=[1, 2, 3, 1e40]), "larger than 1e"),
        (lambda t: t.assign(member=["yes", "no", "perhaps", "1"]), "row 2 .*'perhaps' is not true or false"),
        (lambda t: t.assign(member=[0, 1, 2, 0]), "row 2 .*'2' is not true or false"),
        (lambda t: t.assign(since="2020-13-01"), "row 0 .*is not a date such as"),
        (lambda t: t.assign(since=[1, 2, 3, 4]), "which takes dates, and holds int64"),
        (lambda t: t.assign(city=[["a"], ["b"], [], []]), "which takes texts"),
    ],
)
def test_rows_that_do_not_fit_are_refused_by_name(fitted, change, said) -> None:
    with pytest.raises(InputError, match=said):
        fitted.apply(change(TABLE))


def test_gaps_unseen_values_and_classes_are_refused_where_nothing_is_declared_for_them() -> None:
    declared = {"x": "numeric", "c": "category", "y": "label"}
    strict = Preparation.fit({"x": [1.0, 2.0], "c": ["a", "b"], "y": ["n", "p"]}, declared)
    assert strict.columns["c"].values == ("a", "b")
    for table, said in (
        ({"x": [1.0, None], "c": ["a", "a"]}, r"row 1 \(from 0\), column 'x': the cell is empty"),
        ({"x": [1.0, 2.0], "c": ["", "a"]}, r"row 0 \(from 0\), column 'c': the cell is empty"),
        ({"x": [1.0, 2.0], "c": ["a", "z"]}, r"row 1 .*'z' is none of the values \['a', 'b'\]"),
    ):
        with pytest.raises(InputError, match=said):
            strict.apply(table)
    with pytest.raises(InputError, match=r"the label 'q' is none of the classes \['n', 'p'\]"):
        strict.rows({"x": [1.0], "c": ["a"], "y": ["q"]}, labels=True)


def test_features_are_those_of_scikit_learn() -> None:
    generator = np.random.default_rng(5)
    table = pd.DataFrame(
        {
            "a": generator.normal(1e6, 3.0, 500),
            "b": generator.exponential(1e-9, 500),
            "c": generator.choice(["x", "y", "z w"], 500),
        }
    )
    theirs = ColumnTransformer([("n", StandardScaler(), ["a", "b"]), ("c", OneHotEncoder(sparse_output=False), ["c"])])
    declared = {"a": "numeric", "b": {"kind": "numeric", "clip": 100.0}, "c": "category"}
    found = Preparation.fit(table, declared).apply(table)
    np.testing.assert_allclose(found, theirs.fit_transform(table), atol=1e-8)


def test_dates_have_parts_and_rare_values_become_other() -> None:
    declared = {
        "day": {"kind": "date", "parts": ["month", "weekday", "hour"], "format": "%d.%m.%Y %H:%M"},
        "c": {"kind": "category", "values": ["a", "b"], "unseen": "other", "least": 2},
    }
    table = {"day": ["01.04.2024 06:00", "07.07.2024 12:00", "01.01.2024 00:00"], "c": ["a", "a", "b"]}
    made = Preparation.fit(table, declared)
    assert made.names[-2:] == ["c=a", "c other"]
    found = made.apply(table)
    sunday = 2 * np.pi * 6 / 7
    np.testing.assert_allclose(found[0], [0, 1, 1, 0, 0, 1, 1, 0], atol=1e-12)
    np.testing.assert_allclose(found[1, :6], [-1, 0, np.cos(sunday), np.sin(sunday), -1, 0], atol=1e-12)
    assert found[2, -2:].tolist() == [0, 1]


def test_hashed_values_have_buckets_and_are_never_unseen() -> None:
    made = Preparation.fit({"c": [f"v{i}" for i in range(50)]}, {"c": {"kind": "category", "buckets": 8}})
    found = made.apply({"c": ["never seen", "v1"]})
    assert found.shape == (2, 8)
    assert (found.sum(1) == 1).all()
    assert all(value not in made.to_json() for value in ("v1", "v49"))


def test_numbers_as_categories_are_the_same_from_every_type() -> None:
    made = Preparation.fit({"c": [1, 2, 10]}, {"c": "category"})
    assert made.names == ["c=1", "c=2", "c=10"]
    for column in ([2, 1], [2.0, 1.0], ["2", " 1 "]):
        assert made.apply({"c": column}).tolist() == [[0, 1, 0], [1, 0, 0]]


def test_a_regression_is_learned_standardised_and_told_in_its_own_unit() -> None:
    table = {"x": [1.0, 2.0, 4.0], "price": [100.0, 300.0, 500.0]}
    made = Preparation.fit(table, {"x": "numeric", "price": {"kind": "label", "regression": True}})
    rows = made.rows(table, labels=True)
    np.testing.assert_allclose(rows.y, np.array([-1, 0, 1]) * np.sqrt(1.5))
    np.testing.assert_allclose(made.unscale(rows.y), table["price"])
    with pytest.raises(InputError, match="has no classes"):
        made.name_labels([0])
    with pytest.raises(InputError, match="the label is missing"):
        made.rows({"x": [1.0], "price": [None]}, labels=True)


def test_a_file_of_a_preparation_is_read_as_it_was_or_refused(fitted, tmp_path) -> None:
    fitted.save(tmp_path / "p.json")
    assert (tmp_path / "p.json").stat().st_mode & 0o777 == 0o600
    again = Preparation.load(tmp_path / "p.json")
    assert (again.digest, again.names) == (fitted.digest, fitted.names)
    np.testing.assert_array_equal(again.apply(TABLE), fitted.apply(TABLE))
    record = json.loads(fitted.to_json())
    record["moments"]["age"][0] += 1
    for text, said in (
        (json.dumps(record), "was changed after it was made"),
        (fitted.to_json()[:-9], "damaged"),
        ("[]", "damaged"),
        ("[" * 100_000, "damaged"),
        (json.dumps({**record, "owners": float("inf")}), "damaged"),
        (json.dumps({**record, "version": 99}), "newer hdcos"),
        (json.dumps({**record, "moments": {}}), "does not say what it knows of"),
        (json.dumps({**record, "format": "other"}), "its format is 'other'"),
    ):
        (tmp_path / "p.json").write_text(text)
        with pytest.raises(InputError, match=rf"p\.json: .*{said}"):
            Preparation.load(tmp_path / "p.json")


def test_a_digest_is_salted(fitted) -> None:
    again = Preparation.fit(TABLE, DECLARED)
    assert again.agrees(fitted)
    assert again.digest != fitted.digest
    assert not Preparation.fit(TABLE[:3], DECLARED).agrees(fitted)


def test_columns_of_two_owners_are_prepared_side_by_side() -> None:
    table = {"who": ["a", "b"], "x": [1.0, 3.0], "c": ["u", "v"]}
    left = Preparation.fit({"who": ["a", "b"], "x": [1.0, 3.0]}, {"who": "id", "x": "numeric"})
    right = Preparation.fit({"who": ["a", "b"], "c": ["u", "v"]}, {"who": "id", "c": "category"})
    (rows,) = prepare_together([left, right], table)
    assert rows.columns == ("x", "c=u", "c=v")
    assert rows.x.tolist() == [[-1, 1, 0], [1, 0, 1]]
    assert rows.digests == (left.digest, right.digest)
    with pytest.raises(InputError, match=r"\['x', 'c'\] are declared.*--preparation.*--leave-out"):
        next(prepare_together([left, right], {**table, "z": [0, 0]}))
    with pytest.raises(InputError, match="do not belong together: two features are called 'x'"):
        next(prepare_together([left, left], table))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"1,2\n3,4\n", "begins with numbers"),
        (b"a,a\n1,2\n", "two columns are called 'a'"),
        (b"a,\n1,2\n", "column 2 has no name"),
        (b"a,b\n1,2\n3\n", "damaged, cut off"),
        (b"a,b\n", "has no rows"),
        (b"a,b\n1,\xff\n", "damaged, cut off"),
    ],
)
def test_files_that_are_no_tables_are_named(tmp_path, content, said) -> None:
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(InputError, match=rf"t\.csv.*{said}"):
        Preparation.fit(tmp_path / "t.csv", {"a": "numeric", "b": "numeric"})


def test_a_column_may_have_other_separators_in_its_name(tmp_path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("dose | mg\n3\n4.5\n")
    (piece,) = reading.read_pieces(path)
    assert piece.table.to_pydict() == {"dose | mg": ["3", "4.5"]}
    path.write_text("dose|weight\n3|70\n")
    with pytest.raises(InputError, match="seems to be separated by"):
        list(reading.read_pieces(path))


def test_what_is_no_table_is_refused(tmp_path) -> None:
    (tmp_path / "t.npy").write_bytes(b"x")
    (tmp_path / "t.parquet").write_bytes(b"PAR1 and nothing more")
    for source, said in (
        (tmp_path / "t.npy", "read from CSV and Parquet"),
        (tmp_path / "t.parquet", "damaged, cut off"),
        (tmp_path / "none.csv", "there is no data file"),
        (np.zeros((2, 2)), "ndarray is no table with named columns"),
        (pd.DataFrame(np.zeros((2, 2))), "a column of the table is called 0"),
        (iter([TABLE]), "more than once"),
    ):
        with pytest.raises((InputError, FileNotFoundError), match=said):
            Preparation.fit(source, DECLARED)


def test_what_cannot_be_fitted_says_what_to_declare() -> None:
    with pytest.raises(InputError, match="'x' is missing in every row"):
        Preparation.fit({"x": pa.nulls(3, pa.float64())}, {"x": {"kind": "numeric", "missing": "mean"}})
    with pytest.raises(InputError, match=r"no row has a value in the columns \['c'\]"):
        Preparation.fit({"c": ["", "?"]}, {"c": {"kind": "category", "missing": "indicator"}})
    with pytest.raises(InputError, match="more than 1000 different values"):
        Preparation.fit({"c": [f"v{i}" for i in range(1001)]}, {"c": "category"})
    with pytest.raises(InputError, match="declares no feature"):
        Preparation.fit({"c": [1]}, {"c": "id"})
    with pytest.raises(InputError, match="names that cannot be used"):
        Preparation.fit({"c": ["a\tb"]}, {"c": "category"})


CELLS = st.one_of(st.none(), st.floats(-1e6, 1e6), st.integers(-(10**6), 10**6).map(float))


@settings(max_examples=25)
@given(st.lists(CELLS, min_size=1, max_size=30), st.lists(st.sampled_from(["u", "v", "Ω ß", "", None]), min_size=1))
def test_csv_parquet_and_memory_agree_on_any_cells(tmp_path_factory, numbers, texts) -> None:
    rows = min(len(numbers), len(texts))
    table = pa.table({"n": pa.array(numbers[:rows], pa.float64()), "t": pa.array(texts[:rows], pa.string())})
    declared = Columns.of(
        {
            "n": {"kind": "numeric", "missing": "indicator", "fill": 0},
            "t": {"kind": "category", "values": ["u", "v"], "unseen": "other", "missing": "indicator"},
        }
    )
    folder = tmp_path_factory.getbasetemp()
    parquet.write_table(table, folder / "any.parquet")
    table.to_pandas().to_csv(folder / "any.csv", index=False)
    if table["n"].null_count == rows:
        return
    made = Preparation.fit(table, declared)
    found = made.apply(table)
    assert np.isfinite(found).all()
    assert np.abs(found).max() <= 8
    assert (found[:, 2:].sum(1) == 1).all()
    np.testing.assert_array_equal(made.apply(folder / "any.parquet"), found)
    np.testing.assert_allclose(made.apply(folder / "any.csv"), found, atol=1e-12)


def test_features_are_made_of_as_many_rows_at_once_as_memory_is_meant_for(monkeypatch) -> None:
    made = Preparation.fit({"street": ["a", "b"]}, {"street": {"kind": "category", "buckets": 64}})
    monkeypatch.setattr(reading, "MOST_CELLS", 640)
    table = {"street": [f"number {row}" for row in range(25)]}
    pieces = list(made.pieces(table))
    assert [len(piece) for piece in pieces] == [10, 10, 5]
    assert np.array_equal(np.concatenate([piece.x for piece in pieces]), made.apply(table))
    with pytest.raises(InputError, match=r"row 25 .*column 'street'.*empty"):
        list(made.pieces({"street": [*table["street"], None]}))
