"""A disk without room: what is refused says so, what is kept stays, and the ledger is written to the last."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sqlite3
import time
from contextlib import ExitStack
from pathlib import Path
from threading import Thread, current_thread

import numpy as np
import pyarrow  # noqa: F401  (here, and not in a thread that is waited for)
import pytest

from benchmarks.small_disk import fill, mounted, said_to_be_small
from hdcos import nn
from hdcos.api.commands import OpenJob
from hdcos.errors import HdcosError, PeerLost, StorageFull
from hdcos.files import write_whole
from hdcos.party import failures, uploads
from hdcos.party.checkpoint import Checkpoints
from hdcos.party.database import SPARE_BYTES
from hdcos.party.failures import Failures
from hdcos.party.http.api import reply_error
from hdcos.party.store import Store, StoredDataset
from party.conftest import Raw, command, connected, make_home, running_all

WORDS = {"w": np.arange(1 << 17, dtype=np.uint64)}  # a megabyte


@pytest.fixture
def disk(tmp_path, monkeypatch):
    """A folder of 8 MB, and whether it really is one."""
    with mounted(tmp_path / "disk") as real:
        if not real:
            monkeypatch.setattr(os, "statvfs", said_to_be_small(tmp_path / "disk"))
        yield tmp_path / "disk", real


def upload(store, number, rows=1 << 17, sent=None):
    dataset = StoredDataset(f"d{number}", f"{number:032x}", rows, 1, 0, False, "me")
    store.begin_dataset(dataset, 1e9)
    store.add_bytes(dataset, 0, bytes(8 * rows if sent is None else sent))
    return dataset


def files(folder):
    return {path for path in folder.rglob("*") if path.is_file() and "sqlite" not in path.name}


def test_uploads_that_fill_the_disk_are_refused_by_name_and_nothing_else_is(disk) -> None:
    folder, _ = disk
    store = Store(folder / "state")
    store.tidy()
    assert (folder / "state" / "reserve").stat().st_size == 1 << 20
    store.keep_model("kept", "a" * 32, {"layers": []}, 16, "me", WORDS)
    complete = upload(store, 99, 1000)
    store.complete_dataset(complete, hashlib.sha256(bytes(8000)).hexdigest())
    uploaded = []
    with pytest.raises(
        StorageFull, match="while it is written once more, takes 2097152 bytes, and this party's disk has"
    ):
        for number in range(20):
            uploaded.append(upload(store, number))
    assert 2 <= len(uploaded) <= 6
    before = files(folder)
    twice = {**WORDS, "v": WORDS["w"]}
    with pytest.raises(StorageFull):
        store.keep_model("more", "b" * 32, {"layers": []}, 16, "me", twice)
    with pytest.raises(StorageFull):
        store.keep_job("c" * 32, {}, "me", twice)
    assert files(folder) == before
    assert [model.name for model in store.models()] == ["kept"]
    assert store.jobs() == []
    for first in range(0, 1000 * 4096, 4096):  # four million executions
        store.reserve("scope", first, 4096)
    store.allow("late", "f" * 64, ["predict"])
    store.revoke("late")
    assert np.array_equal(store.model_words("kept", "a" * 32)["w"], WORDS["w"])
    for dataset in uploaded:
        store.remove([dataset])
    store.keep_model("more", "b" * 32, {"layers": []}, 16, "me", WORDS)
    assert store.reused() == []
    store.close()


def test_the_ledger_is_written_on_a_disk_that_others_filled(disk) -> None:
    folder, real = disk
    if not real:
        pytest.skip("mounting is refused here")
    store = Store(folder / "state")
    store.tidy()
    store.keep_model("kept", "a" * 32, {"layers": []}, 16, "me", WORDS)
    filler = fill(folder)
    assert store.room.free_bytes == 0
    for first in range(0, 200 * 4096, 4096):
        store.reserve("scope", first, 4096)
    store.forget_model("kept")  # frees room, so it may use what is kept for that
    assert not (folder / "state" / "reserve").exists()
    assert "full" in store.room.trouble or store.room.free_bytes > 0
    more = fill(folder)  # somebody took that as well
    with pytest.raises(StorageFull, match=r"disk of .* is full"):
        for number in range(10_000):
            store.audit([(0.0, "me", "x" * 4000, "y", "ok", str(number))])
    with pytest.raises(StorageFull):
        write_whole(folder / "state" / "file", bytes(1 << 20))
    checkpoints = Checkpoints.of(folder / "state" / "jobs" / "j", 0)
    with pytest.raises(StorageFull):
        checkpoints.lock()
        checkpoints.save(1, WORDS, {})
    assert not list(folder.rglob("*.tmp"))
    filler.unlink()
    more.unlink()
    store.tidy()
    assert (folder / "state" / "reserve").exists()
    store.keep_model("again", "b" * 32, {"layers": []}, 16, "me", WORDS)
    store.audit([(0.0, "me", "x", "y", "ok", "")])
    assert store.reused() == []
    store.close()
    Store(folder / "state").close()


def test_a_piece_that_does_not_fit_leaves_nothing_behind(disk) -> None:
    folder, real = disk
    if not real:
        pytest.skip("mounting is refused here")
    store = Store(folder / "state")
    dataset = upload(store, 1, rows=1 << 16, sent=4096)
    store.room.require = lambda size, what: None  # somebody takes the room between the look and the writing
    fill(folder, leave=1 << 16)
    part = folder / "state" / "datasets" / "d1" / f"{dataset.version}.part"
    size = part.stat().st_size
    with pytest.raises(StorageFull):
        store.add_bytes(dataset, 4096, bytes(1 << 18))
    assert part.stat().st_size == size
    assert store.received(dataset) == 4096
    store.close()


def test_uploads_that_broke_off_give_way_and_expire(disk, monkeypatch) -> None:
    folder, _ = disk
    store = Store(folder / "state")
    broken, alive = upload(store, 1, sent=1 << 20), upload(store, 2, sent=1 << 20)
    for dataset, age_s in ((broken, 2 * uploads.SILENT_S), (alive, uploads.SILENT_S / 2)):
        at = time.time() - age_s
        os.utime(store._part(dataset), (at, at))
    store.tidy()
    assert len(store.datasets()) == 2  # there is room enough
    larger = (store.room.free_bytes - SPARE_BYTES + (1 << 19)) // 16  # too much, unless what broke off goes
    store.begin_dataset(StoredDataset("large", "f" * 32, larger, 1, 0, False, "me"), 1e9)
    assert {dataset.name for dataset in store.datasets()} == {"d2", "large"}
    assert not store._part(broken).exists()
    monkeypatch.setattr(uploads, "UPLOAD_S", 60.0)
    store.tidy()
    assert {dataset.name for dataset in store.datasets()} == {"large"}
    assert store.received(alive) == 0
    store.close()


def test_an_upload_that_is_completed_while_others_are_looked_through_is_kept(tmp_path, monkeypatch) -> None:
    """The part of an upload goes when its data set is there: a look in between must see one of the two."""
    store = Store(tmp_path / "state")
    dataset = upload(store, 1, rows=16)
    part, digest, exists = store._part(dataset), hashlib.sha256(bytes(128)), Path.exists
    completing = Thread(target=store.complete_dataset, args=(dataset, digest.hexdigest()))

    def look(path: Path) -> bool:
        found = exists(path)
        if path == part and current_thread() is not completing and not completing.ident:
            completing.start()
            completing.join(0.5)
        return found

    monkeypatch.setattr(Path, "exists", look)
    store.tidy()
    completing.join(5)
    assert [known.complete for known in store.datasets()] == [True]
    assert store.dataset_rows(store.datasets()[0]).take(np.arange(16)).shape == (16, 1)
    store.close()


def test_what_a_dead_process_was_writing_is_swept_and_what_is_stored_is_not(tmp_path) -> None:
    store = Store(tmp_path / "state")
    store.keep_model("kept", "a" * 32, {"layers": []}, 16, "me", WORDS)
    dataset = upload(store, 1, rows=10, sent=8)
    store.close()
    kept = files(tmp_path)
    for name in ("models/kept/.b.tmp", "datasets/d1/x.part", "jobs/j/party0/.step.tmp"):
        (tmp_path / "state" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "state" / name).write_bytes(b"torn")
    again = Store(tmp_path / "state")
    again.sweep()
    assert files(tmp_path) - {tmp_path / "state" / "reserve"} == kept
    assert again.received(dataset) == 8
    again.close()


def test_other_errors_of_the_database_keep_their_name(tmp_path) -> None:
    store = Store(tmp_path / "state")
    with pytest.raises(sqlite3.OperationalError, match="syntax"), store._changing() as database:
        database.execute("nonsense")
    store.reserve("scope", 0, 1)
    store.close()


def test_a_full_disk_is_answered_with_507() -> None:
    answer = reply_error(StorageFull("no room"))
    assert answer.status_code == 507
    assert b'"name":"StorageFull"' in answer.body
    assert "retry-after" not in answer.headers


@pytest.mark.parametrize("moment", [3.0, 1e6], ids=["just started", "up for days"])
def test_what_found_no_room_waits_and_is_not_given_up(tmp_path, monkeypatch, moment) -> None:
    kept = Failures(Store(tmp_path / "state"))
    monkeypatch.setattr(failures.time, "monotonic", lambda: moment)

    def fail(job: str, error: HdcosError) -> None:
        kept.begin(OpenJob(job, "scope", [], 1, None))
        kept.lose(error)

    for pause_s in (5.0, 10.0, 20.0):  # opening a job again goes well: what finds no room is its next checkpoint
        fail("j", StorageFull("no room"))
        assert kept.waits("job", "j")
        moment += pause_s
        assert not kept.waits("job", "j")
        kept.begin(OpenJob("j", "scope", [], 1, None))
        kept.end()
    for _ in range(10):
        fail("j", StorageFull("no room"))
    assert kept.final("job", "j") == ""
    assert kept.waits("job", "j")
    before, moment = moment, moment + failures.LONGEST_WAIT_S
    assert not kept.waits("job", "j")
    assert kept.waited_since(before)
    assert not kept.waited_since(moment)
    assert kept.found_no_room("job", "j")
    fail("j", PeerLost("gone"))
    assert not kept.found_no_room("job", "j"), "not the last time"
    for _ in range(3):
        fail("k", PeerLost("gone"))
    assert kept.final("job", "k")
    fail("l", HdcosError("wrong"))
    assert kept.final("job", "l")


@pytest.fixture
def crowded(tmp_path):
    """A running cluster whose party 1 keeps its state on a small disk."""
    folder = make_home(tmp_path / "home")
    with ExitStack() as stack:
        state = folder / "party1" / "state"
        state.rename(folder / "party1" / "before")
        if not stack.enter_context(mounted(state)):
            pytest.skip("mounting is refused here")
        shutil.copytree(folder / "party1" / "before", state, dirs_exist_ok=True)
        stack.enter_context(running_all(folder))
        yield folder
    logs = "".join((folder / f"{role}.log").read_text() for role in ("dealer", "party0", "party1"))
    assert "internal error" not in logs
    assert "is full" in logs


def test_a_party_with_a_full_disk_goes_on_and_says_so(crowded) -> None:
    folder = crowded
    model, rows = nn.models.mlp([6, 8, 3]), np.random.default_rng(0).uniform(-1, 1, (5, 6))
    with connected(folder) as cluster:
        private = cluster.share(model, "tiny")
        with pytest.raises(StorageFull, match=r"party 1: this party's share of large takes 120\d{5} bytes"):
            cluster.upload(np.zeros((1000, 1500)), name="large")
        with pytest.raises(StorageFull):
            for number in range(8):
                cluster.upload(np.zeros((1000, 128)), name=f"rows{number}")
        kept = {item["name"] for item in cluster.datasets()}
        with pytest.raises(StorageFull):
            cluster.share(nn.models.mlp([700, 600], structure="dense"), "heavy")
        filler = fill(folder / "party1" / "state")
        assert np.abs(private.predict(rows) - model(rows)).max() < 0.02
        status = Raw(folder)(1, "GET", "/v2/status")[1]
        assert status["ready"]
        assert status["storage"]["full"]
        assert "is full" in status["reason"]
        for role in ("party0", "party1"):
            code, output = command("doctor", "--cluster", folder / "cluster.toml", "--node", folder / role)
            assert code == 1
            assert re.search(r"BAD  disk of party1: [01]\.\d MB are free for its state: nothing new is kept", output)
        with pytest.raises(StorageFull, match="party 1"):
            cluster.fit(nn.models.mlp([128, 4, 1]), "rows0", epochs=1, batch_size=100, lr=0.1, loss="squared")
        _until(lambda: "is full" in (folder / "party1.log").read_text())
        filler.unlink()
        for name in kept:
            cluster.forget_data(name)
        cluster.upload(np.zeros((1000, 128)), name="again")
        assert np.abs(private.predict(rows) - model(rows)).max() < 0.02
        assert cluster.datasets()[0]["complete"]
        assert [status["counters"]["aborts"] for _, status, _ in Raw(folder).both("GET", "/v2/status")] == [0, 0]


def test_a_job_that_finds_no_room_for_its_checkpoints_goes_on_when_there_is(crowded) -> None:
    model, rows = nn.models.mlp([6, 8, 3]), np.random.default_rng(0).uniform(-1, 1, (100, 6))
    with connected(crowded) as cluster:
        private = cluster.share(model, "tiny")
        cluster.upload(rows, np.arange(100) % 3, name="rows", outputs=3)
        job = cluster.fit(
            model, "rows", epochs=300, batch_size=25, lr=0.1, checkpoint_every=1, name="trained", wait=False
        )
        _until(lambda: job.done or job.step > 0)
        filler = fill(crowded / "party1" / "state")
        _until(lambda: "StorageFull" in (crowded / "party0.log").read_text())
        stopped = job.step
        assert np.abs(private.predict(rows[:5]) - model(rows[:5])).max() < 0.02
        assert job.state in ("running", "waiting")
        filler.unlink()
        trained = job.result(60)
        assert stopped < job.total_steps == 1200
        assert trained.predict(rows[:5]).shape == (5, 3)
    for rank in (0, 1):
        store = Store(crowded / f"party{rank}" / "state")
        assert store.reused() + Checkpoints.of(store.job_folder(job.id), rank).reused() == []
        store.close()


def _until(happened) -> None:
    for _ in range(200):
        if happened():
            return
        time.sleep(0.1)
    raise AssertionError("it did not happen within 20 s")
