"""A party's folder of checkpoints: files that are whole, private and few, and a ledger that shows every reuse."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from hdcos.errors import CheckpointMismatch, DataMissing
from hdcos.party.checkpoint import KEPT, Checkpoints, last_run, read_words, set_aside


def test_a_folder_in_use_is_refused(tmp_path) -> None:
    one, other = Checkpoints.of(tmp_path, 0), Checkpoints.of(tmp_path, 0)
    one.lock()
    with pytest.raises(CheckpointMismatch, match="another run"):
        other.lock()
    one.unlock()
    other.lock()
    other.unlock()


def test_a_run_that_is_just_ending_is_waited_for(tmp_path) -> None:
    one, other = Checkpoints.of(tmp_path, 0), Checkpoints.of(tmp_path, 0)
    one.lock()
    threading.Timer(0.2, one.unlock).start()
    other.lock()
    assert one._lock == -1
    other.unlock()


def test_it_is_waited_for_two_seconds_and_no_longer(tmp_path, monkeypatch) -> None:
    one, other = Checkpoints.of(tmp_path, 0), Checkpoints.of(tmp_path, 0)
    one.lock()
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: now.append(now.pop() + seconds))
    with pytest.raises(CheckpointMismatch, match="another run"):
        other.lock()
    one.unlock()
    assert now[0] - 1000 == pytest.approx(2, abs=0.1)


def test_a_ledger_that_shows_reuse_is_recognised(tmp_path) -> None:
    kept = Checkpoints.of(tmp_path, 0)
    kept.lock()
    kept.begin(1, "a")
    kept.reserve(1, "a", 0, 10)
    assert kept.reused() == []
    kept.reserve(1, "a", 9, 2)
    assert kept.reused() == ["execution 9 of a"]
    kept.reserve(2, "a", 20, 1)
    assert "a scope in two attempts" in kept.reused()


def test_attempts_grow(tmp_path) -> None:
    kept = Checkpoints.of(tmp_path, 0)
    kept.lock()
    kept.begin(1, "a")
    kept.begin(3, "b")
    for attempt in (1, 3):
        with pytest.raises(CheckpointMismatch, match="not new"):
            kept.begin(attempt, "c")
    assert (kept.folder / "ledger.jsonl").stat().st_mode & 0o777 == 0o600


def test_files_are_whole_private_and_few(tmp_path) -> None:
    kept = Checkpoints.of(tmp_path, 0)
    kept.lock()
    words = {"w": np.arange(4, dtype=np.uint64)}
    for step in range(1, 8):
        kept.save(step, words, {"step": step})
    assert kept.steps() == [5, 6, 7][-KEPT:]
    loaded, record = kept.load(7)
    assert (loaded["w"] == words["w"]).all()
    assert record == {"step": 7}
    path = kept.folder / "step-00000007.safetensors"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [p.name for p in kept.folder.iterdir() if p.suffix == ".tmp"] == []
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(CheckpointMismatch, match="cannot be read"):
        kept.load(7)


def test_folders_and_locks_are_private(tmp_path) -> None:
    kept = Checkpoints.of(tmp_path / "run", 0)
    kept.lock()
    assert kept.folder == tmp_path / "run" / "party0"
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "run", kept.folder)} == {0o700}
    assert (kept.folder / "lock").stat().st_mode & 0o777 == 0o600
    kept.unlock()
    kept.unlock()
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointMismatch, match="cannot be written"):
        Checkpoints.of(tmp_path / "file", 0).lock()


def test_a_lock_that_is_not_held_closes_nothing(tmp_path) -> None:
    def open_files() -> int:
        return len(os.listdir("/proc/self/fd"))

    before = open_files()
    kept, other = Checkpoints.of(tmp_path, 0), Checkpoints.of(tmp_path, 0)
    kept.unlock()
    assert open_files() == before
    kept.lock()
    assert open_files() == before + 1
    with pytest.raises(CheckpointMismatch):
        other.lock()
    assert open_files() == before + 1
    other.unlock()
    kept.unlock()
    kept.unlock()
    assert open_files() == before


def test_a_reservation_is_on_the_disk_when_it_is_made(tmp_path, monkeypatch) -> None:
    kept, synced = Checkpoints.of(tmp_path, 0), []
    kept.lock()
    ledger = kept.folder / "ledger.jsonl"

    def sync(handle: int) -> None:
        synced.append((os.path.realpath(f"/proc/self/fd/{handle}"), ledger.read_text()))

    monkeypatch.setattr(os, "fsync", sync)
    kept.reserve(1, "a", 0, 5)
    assert [Path(place) for place, _ in synced] == [ledger, kept.folder]
    assert all('"count": 5' in text for _, text in synced)


def test_only_checkpoints_that_can_be_read_are_offered(tmp_path) -> None:
    kept = Checkpoints.of(tmp_path, 0)
    assert (kept.steps(), kept.records(), kept.reserved(), kept.attempt) == ([], {}, [], 0)
    kept.lock()
    words = {"w": np.arange(4, dtype=np.uint64)}
    for step in (10, 9, 200):
        kept.save(step, words, {"step": step})
    (kept.folder / "step-x.safetensors").write_text("")
    assert kept.steps() == [9, 10, 200]
    (kept.folder / "step-00000010.safetensors").write_bytes(b"damaged")
    assert kept.records() == {9: {"step": 9}, 200: {"step": 200}}
    kept.forget_after(9)
    assert kept.steps() == [9]
    kept.forget_after(9)
    assert kept.steps() == [9]


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        ({"format": "hdcos-model", "version": "1", "record": "{}"}, "not a checkpoint of this version"),
        ({"format": "hdcos-checkpoint", "version": "2", "record": "{}"}, "not a checkpoint of this version"),
        ({"format": "hdcos-checkpoint", "version": "1"}, "cannot be read"),
        ({"format": "hdcos-checkpoint", "version": "1", "record": "{"}, "cannot be read"),
        (None, "not a checkpoint of this version"),
    ],
)
def test_files_of_another_kind_or_version_are_refused(tmp_path, metadata, said) -> None:
    kept = Checkpoints.of(tmp_path, 0)
    kept.lock()
    save_file({"w": np.arange(4, dtype=np.uint64)}, kept.folder / "step-00000001.safetensors", metadata)
    with pytest.raises(CheckpointMismatch, match=said):
        kept.load(1)
    assert kept.records() == {}


def test_words_that_are_no_shares_are_refused(tmp_path) -> None:
    kept = Checkpoints.of(tmp_path, 0)
    kept.lock()
    kept.save(1, {"w": np.zeros(3), "v": np.zeros(3, np.uint64)}, {})
    with pytest.raises(CheckpointMismatch, match="does not hold shares"):
        kept.load(1)
    with pytest.raises(CheckpointMismatch, match="cannot be read"):
        kept.load(2)


def test_a_file_of_shares_that_is_gone_or_damaged_is_named(tmp_path) -> None:
    path = tmp_path / "shares.safetensors"
    with pytest.raises(DataMissing, match=r"shares\.safetensors is gone"):
        read_words(path)
    path.write_bytes(b"damaged")
    with pytest.raises(CheckpointMismatch, match="cannot be read"):
        read_words(path)


def test_a_ledger_is_these_lines(tmp_path) -> None:
    kept = Checkpoints.of(tmp_path, 0)
    kept.lock()
    kept.begin(1, "a")
    kept.reserve(1, "a", 0, 10)
    kept.unlock()
    assert [line for line in (kept.folder / "ledger.jsonl").read_text().split("\n") if line] == [
        '{"attempt": 1, "scope": "a", "first": 0, "count": 0}',
        '{"attempt": 1, "scope": "a", "first": 0, "count": 10}',
    ]


@pytest.mark.parametrize(
    ("entries", "found"),
    [
        ([(1, "a", 0, 3), (1, "a", 3, 3), (2, "b", 0, 6)], []),
        ([(1, "a", 0, 3), (1, "b", 3, 3)], ["attempt 1"]),
        ([(2, "a", 0, 3), (1, "b", 0, 3)], ["attempt 1"]),
        ([(1, "a", 0, 3), (1, "a", 2, 1)], ["execution 2 of a"]),
        ([(1, "a", 5, 1), (2, "a", 6, 1)], ["a scope in two attempts"]),
    ],
)
def test_what_a_ledger_shows(tmp_path, entries, found) -> None:
    kept = Checkpoints.of(tmp_path, 0)
    kept.lock()
    for entry in entries:
        kept.reserve(*entry)
    assert kept.reused() == found
    assert kept.attempt == max(attempt for attempt, *_ in entries)


def test_how_far_a_run_got_is_what_both_parties_have(tmp_path) -> None:
    assert last_run(tmp_path) is None
    words = {"w": np.arange(4, dtype=np.uint64)}
    for rank, steps in ((0, (10, 20)), (1, (10, 30))):
        kept = Checkpoints.of(tmp_path, rank)
        kept.lock()
        for step in steps:
            kept.save(step, words, {"settings": {"total_steps": 50}})
        if rank == 0:
            assert last_run(tmp_path) == (0, 50)
    assert last_run(tmp_path) == (10, 50)


@pytest.mark.parametrize("rank", [0, 1])
def test_an_unfinished_run_is_set_aside_under_the_next_free_name(tmp_path, rank) -> None:
    for number in (1, 2):
        kept = Checkpoints.of(tmp_path / "run", rank)
        kept.lock()
        kept.begin(number, "a")
        with pytest.raises(CheckpointMismatch, match="another run"):
            set_aside(tmp_path / "run")
        assert (tmp_path / "run").exists()
        kept.unlock()
        assert set_aside(tmp_path / "run") == tmp_path / f"run.{number}"
        assert not (tmp_path / "run").exists()
        moved = Checkpoints.of(tmp_path / f"run.{number}", rank)
        assert moved.attempt == number
        moved.lock()  # nobody holds it any more
        moved.unlock()


def test_a_reservation_that_was_cut_off_counts_for_nothing(tmp_path) -> None:
    kept = Checkpoints.of(tmp_path, 1)
    kept.lock()
    kept.reserve(3, "run", 0, 10)
    kept.reserve(3, "run", 10, 5)
    with (kept.folder / "ledger.jsonl").open("a") as file:
        file.write('{"attempt": 9, "sco')
    assert [entry["first"] for entry in kept.reserved()] == [0, 10]
    assert kept.attempt == 3
    kept.reserve(4, "again", 0, 1)
    assert kept.attempt == 4
