"""Checkpoints: written whole, resumed from, refused where they do not belong."""

from __future__ import annotations

import json
import os
import signal

import numpy as np
import pytest

import hdcos
from hdcos import data, nn
from hdcos.cluster.link_jobs import find_checkpoints
from hdcos.errors import CheckpointMismatch, HdcosError, InputError, PeerLost
from hdcos.party.checkpoint import KEPT, Checkpoints


def reservations(folder, rank):
    return Checkpoints.of(folder, rank).reserved()


def assert_no_material_was_used_twice(folder):
    for rank in (0, 1):
        assert Checkpoints.of(folder, rank).reused() == []


@pytest.fixture(scope="module")
def digits():
    x, y = data.digits("train")
    return x[:400], y[:400]


OPTIONS = {"batch_size": 40, "lr": 0.5, "seed": 5, "progress": False, "momentum": 0.5}


def model(seed=3):
    return nn.models.mlp([64, 32, 10], seed=seed)


def test_a_run_that_was_stopped_goes_on_as_if_it_had_not(tmp_path, digits) -> None:
    x, y = digits
    folder = tmp_path / "run"
    with hdcos.local(timeout_s=20) as cluster:
        whole = cluster.fit(model(), x, y, epochs=4, **OPTIONS).predict(x)
        job = cluster.fit(model(), x, y, epochs=4, checkpoint=folder, checkpoint_every=1, wait=False, **OPTIONS)
        job.cancel()  # after the first piece of steps
        job.result(timeout_s=30)
    done = Checkpoints.of(folder, 0).steps()[-1]
    assert 0 < done < 40
    with hdcos.local(timeout_s=20) as cluster:
        resumed = cluster.fit(model(9), x, y, epochs=4, resume=folder, **{**OPTIONS, "seed": None}).predict(x)
    assert np.sqrt(((resumed - whole) ** 2).mean()) < 2e-2
    assert {entry["attempt"] for entry in reservations(folder, 1)} == {1, 2}
    assert_no_material_was_used_twice(folder)


@pytest.mark.parametrize("victim", ["dealer", "party0", "party1"])
def test_killing_a_process_is_a_named_error_and_the_run_can_be_resumed(tmp_path, digits, victim) -> None:
    x, y = digits
    folder = tmp_path / "run"
    with pytest.raises(PeerLost), hdcos.local(timeout_s=5) as cluster:
        job = cluster.fit(model(), x, y, epochs=200, checkpoint=folder, checkpoint_every=5, wait=False, **OPTIONS)
        while job.step < 10:
            job.wait(0.02)
        os.kill(cluster.pids[victim], signal.SIGKILL)
        job.result(timeout_s=30)
    with hdcos.local(timeout_s=20) as cluster:
        steps = min(max(Checkpoints.of(folder, rank).steps()) for rank in (0, 1))
        job = cluster.fit(model(), x, y, epochs=200, resume=folder, wait=False, **OPTIONS)
        while job.step < steps + 5:
            job.wait(0.02)
        job.cancel()
        assert job.result(timeout_s=30).predict(x).shape == (400, 10)
    assert_no_material_was_used_twice(folder)


def test_checkpoints_of_another_run_are_refused(tmp_path, digits) -> None:
    x, y = digits
    folder = tmp_path / "run"
    with hdcos.local(timeout_s=20) as cluster:
        cluster.fit(model(), x, y, epochs=1, checkpoint=folder, checkpoint_every=5, **OPTIONS)
        other = nn.models.mlp([64, 16, 10])
        for changed, options in (
            (other, OPTIONS),
            (model(), {**OPTIONS, "momentum": 0.9}),
            (model(), {**OPTIONS, "batch_size": 50}),
        ):
            with pytest.raises(CheckpointMismatch, match="another run"):
                cluster.fit(changed, x, y, epochs=1, resume=folder, **options)
        with pytest.raises(CheckpointMismatch, match="another run"):
            cluster.fit(model(), x[:200], y[:200], epochs=1, resume=folder, **OPTIONS)
        with pytest.raises(CheckpointMismatch, match="no checkpoint"):
            cluster.fit(model(), x, y, epochs=1, resume=tmp_path / "empty", **OPTIONS)
        with pytest.raises(CheckpointMismatch, match="resume it, or choose another"):
            cluster.fit(model(), x, y, epochs=1, checkpoint=folder, **OPTIONS)
        with pytest.raises(InputError, match="leave `checkpoint` out"):
            cluster.fit(model(), x, y, epochs=1, checkpoint=tmp_path / "b", resume=folder, **OPTIONS)
        with pytest.raises(InputError, match="at least 1"):
            cluster.fit(model(), x, y, epochs=1, checkpoint=tmp_path / "b", checkpoint_every=0, **OPTIONS)


def test_halves_of_different_attempts_are_never_joined(tmp_path, digits) -> None:
    """Each party wrote a step that the other lost, in different attempts: only what both wrote together counts."""
    x, y = digits
    folder = tmp_path / "run"

    def steps(job, wanted):
        while job.step < wanted and not job.done:
            job.wait(0.01)
        job.cancel()
        job.result(timeout_s=30)

    options = {**OPTIONS, "checkpoint_every": 2, "wait": False, "epochs": 10}
    with hdcos.local(timeout_s=20) as cluster:
        steps(cluster.fit(model(), x, y, checkpoint=folder, **options), 4)
        first = [Checkpoints.of(folder, rank).steps() for rank in (0, 1)]
        newest = min(steps[-1] for steps in first)
        saved = (folder / "party0" / f"step-{newest:08d}.safetensors").read_bytes()
        for rank in (0, 1):  # as if both had died before the last step was written
            (folder / f"party{rank}" / f"step-{newest:08d}.safetensors").unlink()
        if min(len(steps) for steps in first) > 1:
            steps(cluster.fit(model(), x, y, resume=folder, **options), newest)
        assert Checkpoints.of(folder, 1).steps()
        (folder / "party0" / f"step-{newest:08d}.safetensors").write_bytes(saved)
        chosen = find_checkpoints(cluster.transport, str(folder)).newest
        records = [Checkpoints.of(folder, rank).records()[chosen["step"]] for rank in (0, 1)]
        assert records[0]["attempt"] == records[1]["attempt"] == chosen["attempt"]


def test_a_folder_in_use_is_refused(tmp_path) -> None:
    one, other = Checkpoints.of(tmp_path, 0), Checkpoints.of(tmp_path, 0)
    one.lock()
    with pytest.raises(CheckpointMismatch, match="another run"):
        other.lock()
    one.unlock()
    other.lock()
    other.unlock()


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


def test_a_checkpoint_holds_shares_and_no_parameters(tmp_path, digits) -> None:
    x, y = digits
    with hdcos.local(timeout_s=20) as cluster:
        private = cluster.fit(model(), x, y, epochs=1, checkpoint=tmp_path, checkpoint_every=5, **OPTIONS)
        trained = private.reveal().state()
    for rank in (0, 1):
        kept = Checkpoints.of(tmp_path, rank)
        words, record = kept.load(kept.steps()[-1])
        top = (words["0.diagonal"] >> np.uint64(56)).astype(int)
        assert len(set(top)) > 20, "a half is uniform, a small parameter is not"
        assert json.loads(json.dumps(record)) == record
    assert np.abs(trained["0.diagonal"]).max() < 8


def test_a_job_runs_in_the_background_and_tells_how_far_it_is(digits) -> None:
    x, y = digits
    with hdcos.local(timeout_s=20) as cluster:
        job = cluster.fit(model(), x, y, epochs=3, wait=False, validation=(x, y), **OPTIONS)
        with pytest.raises(TimeoutError, match="the job goes on"):
            job.result(timeout_s=0)
        private = job.result(timeout_s=60)
        assert job.done
        assert job.step == job.total_steps == 30
        assert [epoch.number for epoch in private.history] == [1, 2, 3]
        assert all(0 <= epoch.accuracy <= 1 for epoch in private.history)
        assert cluster.model(private.name) is private
        with pytest.raises(HdcosError, match="too small"):
            cluster.fit(model(), x, y, epochs=1, wait=False, **{**OPTIONS, "lr": 1e-12})
