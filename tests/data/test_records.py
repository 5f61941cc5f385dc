"""Rows with ids, read piece by piece, and answers written piece by piece."""

from __future__ import annotations

import gzip

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hdcos.data import records
from hdcos.data.answers import open_writer
from hdcos.data.records import read_records
from hdcos.errors import InputError

ROWS = 10
NAMES = [f"C-{number}, Zoë" for number in range(ROWS)]
X = np.arange(3.0 * ROWS).reshape(ROWS, 3)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(records, "PIECE_ROWS", 4)


def write(folder, kind: str):
    path = folder / f"rows{kind}"
    if kind == ".parquet":
        columns = {"id": NAMES, "a": X[:, 0], "b": X[:, 1].astype(int), "class": ["yes", "no"] * 5, "c": X[:, 2]}
        pq.write_table(pa.table(columns), path)
        return path
    lines = ["id,a,b,class,c"]
    classes = ["yes", "no"] * 5
    lines += [f'"{n}",{x[0]},{x[1]:.0f},{y},{x[2]}' for n, x, y in zip(NAMES, X, classes, strict=True)]
    text = "\n".join(lines) + "\n"
    path.write_bytes(gzip.compress(text.encode()) if kind.endswith(".gz") else text.encode())
    return path


@pytest.mark.parametrize("kind", [".csv", ".csv.gz", ".parquet"])
def test_ids_and_labels_come_as_text_and_the_rest_as_numbers(tmp_path, kind) -> None:
    pieces = list(read_records(write(tmp_path, kind), ["id"], ["b"], "class"))
    assert [len(piece) for piece in pieces] == [4, 4, 2]
    assert [text for piece in pieces for text in piece.texts["id"]] == NAMES
    assert [text for piece in pieces for text in piece.texts["class"]] == ["yes", "no"] * 5
    assert all(piece.table.columns == ("a", "c") for piece in pieces)
    np.testing.assert_array_equal(np.concatenate([piece.table.x for piece in pieces]), X[:, [0, 2]])
    if not kind.endswith(".gz"):
        assert pieces[-1].done == 1.0


def test_columns_without_names_have_numbers(tmp_path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("7,1.5,0\n8,2.5,1\n")
    (piece,) = read_records(path, ["0"], label="-1")
    assert (piece.texts, piece.table.columns) == ({"0": ["7", "8"], "-1": ["0", "1"]}, None)
    assert piece.table.x.tolist() == [[1.5], [2.5]]


def test_other_formats_have_no_ids(tmp_path) -> None:
    np.savez(tmp_path / "rows.npz", x=X, y=np.arange(ROWS))
    (piece,) = read_records(tmp_path / "rows.npz", label="y")
    assert piece.texts["y"][:2] == ["0", "1"]
    with pytest.raises(InputError, match="no columns with names"):
        next(read_records(tmp_path / "rows.npz", ["id"]))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"texts": ["who"]}, "no column 'who'; it has"),
        ({"texts": ["id"], "label": "id"}, "asked for twice"),
        ({"texts": ["id"], "leave_out": ["a", "b", "c"], "label": "class"}, "no features"),
        ({}, "id.*(is not a number|does not hold numbers)"),
    ],
)
@pytest.mark.parametrize("kind", [".csv", ".parquet"])
def test_what_is_wrong_is_named(tmp_path, kind, options, words) -> None:
    with pytest.raises(InputError, match=words):
        list(read_records(write(tmp_path, kind), **options))


def test_the_line_of_a_bad_cell_is_named_in_a_later_piece_too(tmp_path) -> None:
    path = write(tmp_path, ".csv")
    path.write_text(path.read_text().replace("21.0", "many"))
    pieces = read_records(path, ["id"], label="class")
    next(pieces)
    with pytest.raises(InputError, match=r"line 9, column a: 'many' is not a number"):
        list(pieces)


# ---- answers


@pytest.mark.parametrize("kind", [".csv", ".parquet"])
def test_answers_are_written_in_pieces(tmp_path, kind) -> None:
    path = tmp_path / f"answers{kind}"
    with open_writer(path, ["id", "label", "logit"]) as writer:
        for part in np.array_split(np.arange(ROWS), 3):
            writer.write([[NAMES[n] for n in part], part, X[part, 0] / 3])
        assert not path.exists(), "it is not there before it is whole"
    if kind == ".csv":
        found = next(read_records(path, ["id"]))
        assert path.read_text().startswith("id,label,logit\n")
        read = [text for piece in read_records(path, ["id"]) for text in piece.texts["id"]]
        numbers = np.concatenate([piece.table.x for piece in read_records(path, ["id"])])
        assert found.table.columns == ("label", "logit")
    else:
        table = pq.read_table(path)
        read = table["id"].to_pylist()
        numbers = np.stack([table["label"].to_numpy(), table["logit"].to_numpy()], axis=1)
    assert read == NAMES
    np.testing.assert_allclose(numbers, np.stack([np.arange(ROWS), X[:, 0] / 3], axis=1), rtol=1e-5)
    assert [item.name for item in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("shape", [(), (1,), (3,)])
def test_an_array_grows_in_its_file(tmp_path, shape) -> None:
    values = np.random.default_rng(0).normal(size=(2500, *shape))
    with open_writer(tmp_path / "found.npy", ["logit"]) as writer:
        for start in range(0, 2500, 999):
            writer.write([values[start : start + 999]])
    np.testing.assert_array_equal(np.load(tmp_path / "found.npy", allow_pickle=False), values)


@pytest.mark.parametrize("kind", [".csv", ".parquet", ".npy"])
def test_what_is_cut_off_leaves_the_old_file(tmp_path, kind) -> None:
    path = tmp_path / f"answers{kind}"
    path.write_text("old")
    with pytest.raises(KeyError), open_writer(path, ["logit"]) as writer:
        writer.write([X[:, 0]])
        raise KeyError
    assert path.read_text() == "old"
    assert [item.name for item in tmp_path.iterdir()] == [path.name]


def test_an_array_has_no_room_for_ids(tmp_path) -> None:
    with pytest.raises(InputError, match="numbers alone"), open_writer(tmp_path / "found.npy", ["id"]) as writer:
        writer.write([NAMES])
