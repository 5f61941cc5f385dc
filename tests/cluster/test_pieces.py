"""Rows from arrays, files and iterators reach the parties as the same words, a piece at a time."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pandas as pd
import pytest

import hdcos
from hdcos import nn
from hdcos.cluster import pieces
from hdcos.cluster.cluster import Cluster
from hdcos.cluster.transport import split_words
from hdcos.data import tables
from hdcos.errors import DataMissing, InputError, RangeError
from hdcos.ring import decode
from hdcos.secure.training.plan import INPUT_SCALE, TARGET_SCALE

GENERATOR = np.random.default_rng(2)
X = np.round(GENERATOR.uniform(-1, 1, (1000, 3)), 6)
Y = GENERATOR.integers(0, 2, 1000)
NAMES = ("age", "size", "pulse")


class Recorder:
    """A transport that joins what the parties would get."""

    has_dealer, keeps_checkpoints, timeout_s = True, False, 1.0

    def __init__(self) -> None:
        self.record, self.sizes, self.words = {}, [], []

    def upload(self, name, version, record, pieces) -> int:
        self.record = dict(record)
        for zero, one in pieces:
            assert zero["rows"].tobytes() != one["rows"].tobytes()
            self.sizes.append(zero["rows"].nbytes)
            self.words.append(zero["rows"] + one["rows"])
        return sum(map(len, self.words))


def uploaded(*rows, **options):
    recorder = Recorder()
    count = Cluster(recorder).upload(*rows, name="d", **options)
    words = np.concatenate(recorder.words)
    assert count == len(words)
    return recorder, words


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(pieces, "PIECE_BYTES", 4000)
    monkeypatch.setattr(tables, "PIECE_ROWS", 300)


@pytest.fixture
def files(tmp_path):
    table = pd.DataFrame(X, columns=NAMES).assign(sick=Y)
    table.to_csv(tmp_path / "t.csv", index=False)
    table.to_csv(tmp_path / "t.csv.gz", index=False)
    table.to_parquet(tmp_path / "t.parquet")
    np.save(tmp_path / "x.npy", X)
    np.savez(tmp_path / "t.npz", x=X, y=Y)
    return tmp_path


def test_arrays_files_and_pieces_become_the_same_words(files) -> None:
    record, wanted = uploaded(X, Y)
    assert np.abs(decode(wanted[:, :3], INPUT_SCALE) - X).max() <= 2.0 ** -(INPUT_SCALE + 1)
    assert np.array_equal(decode(wanted[:, 3], TARGET_SCALE), Y)
    assert record.record == {"features": 3, "outputs": 1, "rows": 1000}
    assert max(record.sizes) <= 4000, "a piece at a time"
    named = {"features": 3, "outputs": 1, "columns": list(NAMES)}
    for name in ("t.csv", "t.csv.gz", "t.parquet"):
        found, words = uploaded(files / name, label="sick")
        assert np.array_equal(words, wanted), name
        assert found.record == named
    assert np.array_equal(uploaded(str(files / "t.npz"), label="y")[1], wanted)
    assert np.array_equal(uploaded(files / "x.npy")[1], wanted[:, :3])
    assert np.array_equal(uploaded(np.load(files / "x.npy", mmap_mode="r"), Y)[1], wanted)
    parts = [(X[start : start + 130], Y[start : start + 130]) for start in range(0, 1000, 130)]
    found, words = uploaded(iter(parts))
    assert np.array_equal(words, wanted)
    assert found.record == {"features": 3, "outputs": 1}
    frames = pd.read_csv(files / "t.csv", chunksize=77)
    assert np.array_equal(uploaded((frame[list(NAMES)], frame["sick"]) for frame in frames)[1], wanted)
    turned = (
        frame[[*NAMES[number % 2 :], *NAMES[: number % 2]]]
        for number, frame in enumerate([pd.DataFrame(X[:500], columns=NAMES), pd.DataFrame(X[500:], columns=NAMES)])
    )
    assert np.array_equal(uploaded(turned)[1], wanted[:, :3]), "columns are found by their names in every piece"


@pytest.mark.parametrize(
    ("given", "options", "said"),
    [
        (lambda: iter([]), {}, "these are none"),
        (lambda: iter([(X, Y, Y)]), {}, "not 3 things"),
        (lambda: iter([X[:5], X[:5, :2]]), {}, "piece 2 of the rows has 2 features, the first has 3"),
        (lambda: iter([(X, Y), X]), {}, "piece 2 of the rows has no labels, unlike the first"),
        (lambda: iter([X, pd.DataFrame(X, columns=NAMES)]), {}, "columns with names, unlike the first"),
        (lambda: iter([(X, Y[:-1])]), {}, "1000 rows and 999 labels"),
        (lambda: X, {"label": "sick"}, "say what a file holds"),
        (lambda: np.zeros((0, 3)), {}, r"at least one row, got shape \(0, 3\)"),
        (lambda: np.zeros(3), {}, "a table of at least one row"),
        (lambda: X, {"loss": "hinge"}, "no loss is called 'hinge'"),
    ],
)
def test_what_cannot_be_a_data_set_is_named(given, options, said) -> None:
    with pytest.raises(InputError, match=said):
        uploaded(given(), **options)


def test_labels_come_once(files) -> None:
    with pytest.raises(InputError, match="the labels of a file are in it"):
        uploaded(files / "t.csv", Y)
    with pytest.raises(InputError, match="pieces bring their labels"):
        uploaded(iter([X]), Y)
    with pytest.raises(DataMissing, match="no data file"):
        uploaded(files / "none.csv")


def test_a_later_row_that_cannot_be_used_is_told_by_its_place(files) -> None:
    wrong = X.copy()
    wrong[777, 1] = 1e300
    with pytest.raises(RangeError, match="rows 750 to 874: largest magnitude 1e"):
        uploaded(wrong, Y)
    lines = (files / "t.csv").read_text().splitlines()
    lines[950] = "1,2,x,0"
    (files / "t.csv").write_text("\n".join(lines))
    with pytest.raises(InputError, match=r"t\.csv, line 951, column pulse: 'x'"):
        uploaded(files / "t.csv", label="sick")
    lines[950] = "1,2,3,0,5"
    (files / "t.csv").write_text("\n".join(lines))
    with pytest.raises(InputError, match=r"t\.csv, line 951: 5 cells"):
        uploaded(files / "t.csv", label="sick")
    table = pd.DataFrame(X, columns=NAMES)
    table.loc[901, "size"] = np.nan
    table.to_parquet(files / "gap.parquet")
    with pytest.raises(InputError, match=r"row 901 \(from 0\), column size"):
        uploaded(files / "gap.parquet")


def test_memory_does_not_grow_with_what_is_uploaded(monkeypatch) -> None:
    monkeypatch.setattr(pieces, "PIECE_BYTES", 1 << 20)

    def peak(rows: int) -> int:
        stream = pieces.encode_stream((np.zeros((10_000, 20)) for _ in range(rows // 10_000)), None, 1, None)
        tracemalloc.start()
        for words in stream.words:
            split_words({"rows": words})
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    assert peak(400_000) < 1.2 * peak(40_000)


def test_training_on_a_file_is_training_on_its_rows(files) -> None:
    model = nn.models.mlp([3, 8, 1])
    options = {"epochs": 2, "batch_size": 100, "lr": 0.5, "seed": 4, "progress": False}
    with hdcos.local() as cluster:
        assert cluster.upload(files / "t.csv", label="sick", name="file") == 1000
        assert cluster.datasets()[0]["rows"] == 1000
        direct = cluster.fit(model, X, Y, **options).predict(X)
        assert np.abs(cluster.fit(model, "file", **options).predict(X) - direct).max() < 0.02
        with pytest.raises(RangeError):
            cluster.upload(iter([X, 1e300 * X]), name="file")
        assert [item["rows"] for item in cluster.datasets() if item["name"] == "file"] == [1000], "the older one stays"
        blocks = cluster.fit(model, "file", shuffle="blocks", **options)
        assert blocks.predict(X).shape == (1000, 1)
        with pytest.raises(InputError, match="not by 'none'"):
            cluster.fit(model, "file", shuffle="none", **options)
