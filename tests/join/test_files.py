"""From two files to two files of joined rows, and the rows of a table in their order."""

from __future__ import annotations

import json
from contextlib import contextmanager

import numpy as np
import pytest

from hdcos.data.tables import read_pieces
from hdcos.errors import InputError, PeerLost
from hdcos.join import files, rows
from hdcos.join.files import join_file
from hdcos.join.rows import JoinedRows
from hdcos.link import Link
from join.owners import joined, plain_join, write_table

pytestmark = pytest.mark.usefixtures("ideal_transfers")
LETTERS = ["a", "\u00e9", "e\u0301", "\u00df", "\u2126", "\u65e5", "\U0001f600", "Z"]


def random_table(path, generator: np.random.Generator) -> None:
    """Ids with gaps, duplicates, white space and letters of many kinds, few enough that two tables share some."""
    numbers = generator.integers(0, 60, generator.integers(20, 80))
    texts = [f"{LETTERS[number % 8]}{number // 8}" + " " * int(generator.integers(0, 2)) for number in numbers]
    write_table(path, ["" if generator.random() < 0.1 else text for text in texts])


@pytest.mark.parametrize("seed", range(4))
def test_a_join_of_files_is_the_plain_join_of_their_ids(tmp_path, seed) -> None:
    generator = np.random.default_rng(seed)
    tables, outputs = ([tmp_path / f"{name}{kind}" for name in ("n", "s")] for kind in (".csv", ".json"))
    for path in tables:
        random_table(path, generator)
    options = {"ignore_case": bool(seed % 2), "drop_empty": True, "first": True}
    found = joined(tables, outputs, **options)
    assert not any(isinstance(each, Exception) for each in found), found
    taken = [JoinedRows.read(path) for path in outputs]
    assert taken[0].join == taken[1].join == found[0].rows.join
    pairs = list(zip(*(each.take.tolist() for each in taken), strict=True))
    assert len(pairs) == len(set(pairs))
    assert set(pairs) == plain_join(tables, **options)
    assert outputs[0].stat().st_mode & 0o777 == 0o600


def test_the_rows_of_a_join_are_taken_in_its_order_and_from_its_file_alone(tmp_path) -> None:
    tables, outputs = ([tmp_path / f"{name}{kind}" for name in ("n", "s")] for kind in (".csv", ".json"))
    write_table(tables[0], [f"c{n}" for n in range(200)])
    write_table(tables[1], [f"c{n}" for n in range(299, 99, -1)], first=1000)
    assert not any(isinstance(each, Exception) for each in joined(tables, outputs))
    numbers = []
    for table, output in zip(tables, outputs, strict=True):
        taken = JoinedRows.read(output)
        taken.check(table)
        pieces = list(taken.pieces(read_pieces(table, leave_out=taken.columns)))
        assert pieces[0][0].columns == ("number",)
        numbers.append(np.concatenate([piece.x[:, 0] for piece, _ in pieces]))
    assert len(numbers[0]) == 100
    assert np.array_equal(numbers[0], 1299 - numbers[1])  # row by row the same customer
    taken = JoinedRows.read(outputs[0])
    tables[0].write_text(tables[0].read_text().replace("c7", "c007"))
    with pytest.raises(InputError, match="does not have the rows that were joined"):
        taken.check(tables[0])
    with pytest.raises(InputError, match="199 rows came, 200 were joined"):
        list(taken.arrange([(np.zeros((199, 2)), None)]))
    with pytest.raises(InputError, match="more than the 200 rows"):
        list(taken.arrange([(np.zeros((201, 2)), None)]))


def test_large_tables_are_put_in_order_outside_of_memory(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(rows, "IN_MEMORY", 100)
    taken = JoinedRows("0" * 32, "", ("id",), False, 50, "", np.arange(49, -1, -2))
    x, y = np.arange(100.0).reshape(50, 2), np.arange(50)
    ((found, labels),) = taken.arrange([(x[:30], y[:30]), (x[30:], y[30:])])
    assert isinstance(found, np.memmap)
    assert np.array_equal(found, x[::-1][::2])
    assert np.array_equal(labels, y[::-1][::2])


@pytest.mark.parametrize(
    "change",
    [
        {"take": [0, 0]},
        {"take": [0, 7]},
        {"take": [-1, 1]},
        {"take": []},
        {"take": ["a"]},
        {"rows": 3},
        {"join": "short"},
        {"columns": [1]},
        {"ignore_case": 1},
        {"total": "4"},
        {"ids": None},
    ],
)
def test_a_damaged_file_of_joined_rows_is_refused(tmp_path, change) -> None:
    known = JoinedRows("0" * 32, "rules", ("id",), False, 4, "ids", np.array([3, 1]))
    path = tmp_path / "joined.json"
    path.write_bytes(known.encode())
    assert JoinedRows.read(path).take.tolist() == [3, 1]
    path.write_text(json.dumps({**json.loads(known.encode()), **change}))
    with pytest.raises(InputError, match=r"joined\.json is a damaged file of joined rows"):
        JoinedRows.read(path)
    path.write_text("{}")
    with pytest.raises(InputError, match="`hdcos join` makes"):
        JoinedRows.read(path)


def test_nothing_is_left_by_a_join_of_which_one_owner_goes_away(tmp_path, monkeypatch) -> None:
    """South leaves after it has written its rows, and before it says so."""
    tables, outputs = ([tmp_path / f"{name}{kind}" for name in ("n", "s")] for kind in (".csv", ".json"))
    for path in tables:
        write_table(path, ["a", "b"])
    said = files.exchange

    def leave(link, content):
        if link.peer == "party0" and content == files.WRITTEN:
            link.cancel()
            raise PeerLost("the power is gone")
        return said(link, content)

    monkeypatch.setattr(files, "exchange", leave)
    found = joined(tables, outputs)
    assert all(isinstance(error, PeerLost) for error in found)
    assert "Nothing was written: both owners run `hdcos join` again" in str(found[0])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["n.csv", "s.csv"]


def test_nothing_shared_is_said_to_each_owner_with_its_own_number_alone(tmp_path, monkeypatch) -> None:
    tables, outputs = ([tmp_path / f"{name}{kind}" for name in ("n", "s")] for kind in (".csv", ".json"))
    write_table(tables[0], ["a", "b", "c"])
    write_table(tables[1], ["d", "e"])
    aborted = []
    monkeypatch.setattr(Link, "abort", lambda link, error: aborted.append(str(error)))
    found = joined(tables, outputs)
    for error, ids in zip(found, (3, 2), strict=True):
        assert isinstance(error, InputError)
        assert f"no id is in both tables, of {ids} ids here" in str(error)
        assert "--ignore-case" in str(error)
    assert not aborted, "what goes out with an error is for the other owner to read"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["n.csv", "s.csv"]


def test_an_owner_that_cannot_write_tells_the_other_without_its_paths(tmp_path) -> None:
    tables = [write_table(tmp_path / f"{name}.csv", ["a", "b"]) for name in ("n", "s")]
    outputs = [tmp_path / "n.json", tmp_path / "no-such-folder" / "s.json"]
    found = joined(tables, outputs)
    assert isinstance(found[1], FileNotFoundError)
    assert "could not write its joined rows" in str(found[0])
    assert "no-such-folder" not in str(found[0])
    assert not outputs[0].exists()


def test_a_bad_table_is_an_error_before_anybody_is_met(tmp_path) -> None:
    @contextmanager
    def meeting():
        raise AssertionError("nobody is to be met")
        yield

    with pytest.raises(InputError, match="--first"):
        join_file(write_table(tmp_path / "t.csv", ["a", "a"]), ["id"], tmp_path / "o.json", meeting)
