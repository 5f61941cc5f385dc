"""Checkpoints: written whole, resumed from, refused where they do not belong."""

from __future__ import annotations

import json
import os
import signal

import numpy as np
import pytest

import hdcos
from hdcos import data, nn
from hdcos.errors import CheckpointMismatch, HdcosError, PeerLost
from hdcos.serve.checkpoint import KEPT, Checkpoints


def reservations(folder, rank):
    return Checkpoints.of(folder, rank).reserved()


def assert_no_material_was_used_twice(folder):
    for rank in (0, 1):
        used = set()
        for entry in reservations(folder, rank):
            for execution in range(entry["first"], entry["first"] + entry["count"]):
                address = (entry["scope"], execution)
                assert address not in used
                used.add(address)


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


def test_files_are_whole_private_and_few(tmp_path) -> None:
    kept = Checkpoints.of(tmp_path, 0)
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
        private = job.result(timeout_s=60)
        assert job.done
        assert job.step == job.total_steps == 30
        assert [epoch.number for epoch in private.history] == [1, 2, 3]
        assert all(0 <= epoch.accuracy <= 1 for epoch in private.history)
        assert cluster.model(private.name) is private
        failing = cluster.fit(model(), x, y, epochs=1, wait=False, **{**OPTIONS, "lr": 1e-12})
        with pytest.raises(HdcosError, match="too small"):
            failing.result(timeout_s=30)
