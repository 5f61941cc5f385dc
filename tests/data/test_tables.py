"""Tables from CSV, NPZ, IDX and Parquet files: the same numbers, and kind errors."""

import gzip
import struct

import numpy as np
import pytest

from hdcos.data import read_table
from hdcos.errors import DataMissing, InputError

X = np.array([[1.5, -2.0, 3.25], [0.0, 4.0, 5.0]])
Y = np.array([1, 0])


def idx(array, code):
    return struct.pack(">BBBB", 0, 0, code, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


@pytest.fixture
def files(tmp_path):
    rows = [f"{a},{b},{label},{c}" for (a, b, c), label in zip(X, Y, strict=True)]
    (tmp_path / "named.csv").write_text("\n".join(["age,size,sick,pulse", *rows]) + "\n")
    (tmp_path / "bare.csv").write_text("\n".join(rows) + "\n")
    (tmp_path / "packed.csv.gz").write_bytes(gzip.compress((tmp_path / "named.csv").read_bytes()))
    np.savez(tmp_path / "table.npz", x=X, y=Y, other=X + 1)
    import pyarrow
    from pyarrow import parquet

    columns = {"age": X[:, 0], "size": X[:, 1], "sick": Y, "pulse": X[:, 2]}
    parquet.write_table(pyarrow.table(columns), tmp_path / "table.parquet")
    (tmp_path / "images-idx3-ubyte").write_bytes(idx(np.full((2, 2, 2), 255, np.uint8), 8))
    (tmp_path / "labels-idx1-ubyte").write_bytes(idx(Y.astype(np.uint8), 8))
    return tmp_path


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("named.csv", "sick"),
        ("bare.csv", 2),
        ("bare.csv", "2"),
        ("bare.csv", -2),
        ("packed.csv.gz", "sick"),
        ("table.parquet", "sick"),
    ],
)
def test_rows_and_labels_come_apart(files, name, label):
    table = read_table(files / name, label)
    np.testing.assert_array_equal(table.x, X)
    np.testing.assert_array_equal(table.y, Y)


@pytest.mark.parametrize("name", ["named.csv", "packed.csv.gz", "table.parquet"])
def test_a_table_knows_the_names_of_its_columns(files, name):
    assert read_table(files / name, "sick").columns == ("age", "size", "pulse")
    assert read_table(files / name).columns == ("age", "size", "sick", "pulse")
    assert read_table(files / "bare.csv", 2).columns is None
    assert read_table(files / "table.npz").columns is None


def test_npz_files_hold_arrays_by_name(files):
    table = read_table(files / "table.npz")
    np.testing.assert_array_equal(table.x, X)
    np.testing.assert_array_equal(table.y, Y)
    with pytest.raises(InputError, match=r"no array 'none'; it has \['other', 'x', 'y'\]"):
        read_table(files / "table.npz", "none")
    np.testing.assert_array_equal(read_table(files / "table.npz", "y", "other").x, X + 1)


def test_idx_files_come_in_pairs_and_bytes_become_numbers_up_to_one(files):
    table = read_table(files / "images-idx3-ubyte", "labels-idx1-ubyte")
    assert table.x.shape == (2, 2, 2)
    assert (table.x == 1.0).all()
    np.testing.assert_array_equal(table.y, Y)


def test_a_table_may_lack_labels(files):
    assert read_table(files / "bare.csv").y is None
    assert read_table(files / "bare.csv").x.shape == (2, 4)


@pytest.mark.parametrize(
    ("name", "content", "label", "words"),
    [
        ("x.csv", "", None, "empty"),
        ("x.csv", "a,b\n1,two\n", "a", "line 2, column b: 'two' is not a number.*`hdcos columns"),
        ("x.csv", "1,2\n\n3,\n", 0, "line 3, column 2: an empty cell"),
        ("x.csv", "a,b\n1,2\n3\n", "a", "line 3: 1 cells, where the lines before have 2"),
        ("x.csv", "a,b\n1,nan\n", "a", "line 2, column b: 'nan'"),
        ("x.csv", "a,b\n", "a", "no rows"),
        ("x.csv", "a,b\n1,2\n", "c", "no column 'c'"),
        ("x.csv", "1,2\n", "c", "no header"),
        ("x.csv", "1,2\n", 2, "no number 2"),
        ("x.csv", "a,b,a\n1,2,3\n", "b", "two columns are called 'a'"),
        ("x.csv", ",a,b\n0,1,2\n", "b", "column 1 has no name.*index=False"),
        ("x.csv", "a,b\n1,2,3\n", "b", "names 2 columns, its rows have 3"),
        ("x.npz", "not a zip", None, "NPZ"),
        ("x.parquet", "not parquet", None, "Parquet"),
        ("x.xlsx", "sheet", None, "none of the formats"),
    ],
)
def test_other_files_are_refused_by_name(tmp_path, name, content, label, words):
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=words):
        read_table(tmp_path / name, label)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DataMissing, match=r"there\.csv"):
        read_table(tmp_path / "there.csv")


def test_an_npz_without_the_array_says_what_it_has(files):
    with pytest.raises(InputError, match=r"'z'.*other"):
        read_table(files / "table.npz", features="z")
