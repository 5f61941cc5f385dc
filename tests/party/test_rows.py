"""Rows are taken by number from wherever they lie, and joins read nothing else."""

from __future__ import annotations

import tempfile

import numpy as np
import pytest

from hdcos.errors import InputError
from hdcos.party import mapped, spool
from hdcos.party.dataset import Dataset, join_datasets
from hdcos.party.mapped import MappedRows, MappedWords
from hdcos.party.rows import HeldRows, SideBySide, Stacked, pick
from hdcos.party.spool import Spool

WORDS = np.arange(60, dtype=np.uint64).reshape(12, 5)
TAKEN = np.array([11, 0, 3, 3, 7])


class Watched(HeldRows):
    """Rows that remember which were taken."""

    def take(self, rows):
        seen.extend(rows.tolist())
        return super().take(rows)


seen: list[int] = []


def mapped_rows(words):
    with tempfile.TemporaryFile() as file:
        file.write(words.tobytes())
        file.flush()
        return MappedRows(MappedWords(file), 0, words.shape)


@pytest.mark.parametrize("kind", [HeldRows, mapped_rows])
def test_sources_and_what_is_put_together_of_them_give_the_rows_that_numpy_gives(kind) -> None:
    assert np.array_equal(kind(WORDS).take(TAKEN), WORDS[TAKEN])
    stacked = Stacked([kind(WORDS[:4]), kind(WORDS[4:5]), kind(WORDS[5:])])
    assert stacked.shape == (12, 5)
    assert np.array_equal(stacked.take(TAKEN), WORDS[TAKEN])
    beside = SideBySide([kind(WORDS[:, :2].copy()), kind(WORDS[:, 2:].copy())])
    assert beside.shape == (12, 5)
    assert np.array_equal(beside.take(TAKEN.astype(np.uint32)), WORDS[TAKEN])
    assert np.array_equal(pick(beside, [4, 0]).take(TAKEN), WORDS[TAKEN][:, [4, 0]])
    assert pick(beside, range(5)) is beside


def test_joins_read_the_rows_that_are_taken_and_no_others() -> None:
    x = Watched(WORDS[:, :3].copy())
    other = Watched(WORDS[:, 3:].copy())
    seen.clear()
    sets = {
        "a": Dataset(x, 3, ("p", "q", "r")),
        "b": Dataset(other, 1, ("s",)),
    }
    joined = join_datasets(sets, ["a", "b"], "columns", ("s", "r", "q", "p"))
    assert (joined.shape, joined.targets, joined.columns) == ((12, 4), 1, ("s", "r", "q", "p"))
    assert seen == []
    assert np.array_equal(joined.rows.take(TAKEN), WORDS[TAKEN][:, [3, 2, 1, 0, 4]])
    assert set(seen) == set(TAKEN.tolist())
    seen.clear()
    labelled = {"a": Dataset(Watched(WORDS), 4), "b": Dataset(Watched(WORDS + np.uint64(100)), 4)}
    joined = join_datasets(labelled, ["b", "a"], "rows")
    assert np.array_equal(joined.rows.take(np.array([13, 1])), [WORDS[1], WORDS[1] + 100])
    assert seen == [1, 1]
    with pytest.raises(InputError, match="do not fit under each other"):
        join_datasets(labelled | {"c": Dataset(HeldRows(WORDS), 3)}, ["a", "c"], "rows")
    with pytest.raises(InputError, match="must bring labels"):
        join_datasets(labelled | {"c": Dataset(HeldRows(WORDS), 5)}, ["a", "c"], "rows")
    with pytest.raises(InputError, match="exactly one of"):
        join_datasets(labelled, ["a", "b"], "columns")


def resident_kib() -> int:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("RssFile"))


@pytest.mark.parametrize("compiled", [True, False])
def test_pages_of_a_mapped_file_are_given_back(monkeypatch, compiled) -> None:
    monkeypatch.setattr(mapped, "KEPT_BYTES", 4 << 20)
    if not compiled:
        monkeypatch.setattr(mapped, "_compiled", lambda: None)
    words = np.random.default_rng(0).integers(0, 1 << 63, (1 << 16, 128), dtype=np.uint64)  # 64 MB
    source = mapped_rows(words)
    before, most = resident_kib(), 0
    for rows in np.random.default_rng(1).permutation(len(words)).reshape(-1, 256):
        assert np.array_equal(source.take(rows), words[rows])
        most = max(most, resident_kib() - before)
    assert most < 16 << 10
    assert source.resident_words == (4 << 20) // 8
    assert HeldRows(words).resident_words == words.size


def test_rows_of_a_file_that_became_shorter_are_an_error(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(mapped, "KEPT_BYTES", 1000)
    if mapped._compiled() is None:
        pytest.skip("nothing is compiled: the operating system ends who looks there")
    (tmp_path / "words").write_bytes(bytes(8000))
    with open(tmp_path / "words", "r+b") as file:
        words = MappedWords(file)
        assert not words.take(np.array([3, 0, 990]), 10).any()
        file.truncate(800)
        with pytest.raises(OSError, match="No data available"):
            words.take(np.array([3, 95]), 10)


def test_rows_that_come_in_pieces_go_to_a_file_when_they_are_many(monkeypatch) -> None:
    monkeypatch.setattr(spool, "HELD_BYTES", 300)
    for pieces, kind in (([WORDS[:7]], HeldRows), ([WORDS[:3], WORDS[3:9], WORDS[9:]], MappedRows)):
        kept = Spool(5)
        for piece in pieces:
            kept.add(piece)
        source = kept.source()
        assert isinstance(source, kind)
        whole = np.concatenate(pieces)
        assert source.shape == whole.shape
        assert np.array_equal(source.take(np.arange(len(whole))), whole)


def test_columns_stand_beside_columns_of_the_same_join_alone() -> None:
    x, y = HeldRows(WORDS), HeldRows(WORDS[:, :1].copy())

    def beside(one: str, other: str, rows: int = len(WORDS)) -> Dataset:
        sets = {
            "a v1": Dataset(x, 3, None, owner="north", join=one),
            "b v2": Dataset(HeldRows(y.words[:rows]), 1, None, owner="south", join=other),
        }
        return join_datasets(sets, ["a v1", "b v2"], "columns")

    for same in ("", "0" * 32):
        assert len(beside(same, same)) == len(WORDS)
    with pytest.raises(InputError, match=r"north \(a\) are those of join 0000.*south \(b\) are those of join 1111"):
        beside("0" * 32, "1" * 32)
    with pytest.raises(InputError, match=r"south \(b\) are those of join 1111.*north \(a\) are of no join.*--join"):
        beside("", "1" * 32)
    with pytest.raises(InputError, match=r"north uploaded \d+ rows of a join and south 1"):
        beside("0" * 32, "0" * 32, 1)
