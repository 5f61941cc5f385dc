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
from hdcos.party.checkpoint import Checkpoints


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


def of_images(seed=3):
    return nn.Sequential([nn.Flatten(), *model().layers], seed, (1, 8, 8))


def test_a_run_that_was_stopped_goes_on_as_if_it_had_not(tmp_path, digits) -> None:
    """Images that move and weights that are averaged included: both know where they are by the step alone."""
    x, y = digits
    x, folder = x.reshape(-1, 1, 8, 8), tmp_path / "run"
    moving = {**OPTIONS, "flip": True, "shift": 1, "average": 4, "schedule": "cosine", "warm_up": 1}
    with hdcos.local(timeout_s=20) as cluster:
        whole = cluster.fit(of_images(), x, y, epochs=4, **moving).predict(x)
        job = cluster.fit(of_images(), x, y, epochs=4, checkpoint=folder, checkpoint_every=1, wait=False, **moving)
        job.cancel()  # after the first piece of steps
        job.result(timeout_s=30)
    done = Checkpoints.of(folder, 0).steps()[-1]
    assert 0 < done < 40
    with hdcos.local(timeout_s=20) as cluster:
        resumed = cluster.fit(of_images(9), x, y, epochs=4, resume=folder, **{**moving, "seed": None}).predict(x)
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


def test_shares_of_different_attempts_are_never_joined(tmp_path, digits) -> None:
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


def test_a_checkpoint_holds_shares_and_no_parameters(tmp_path, digits) -> None:
    x, y = digits
    with hdcos.local(timeout_s=20) as cluster:
        private = cluster.fit(model(), x, y, epochs=1, checkpoint=tmp_path, checkpoint_every=5, **OPTIONS)
        trained = private.reveal().state()
    for rank in (0, 1):
        kept = Checkpoints.of(tmp_path, rank)
        words, record = kept.load(kept.steps()[-1])
        top = (words["0.diagonal"] >> np.uint64(56)).astype(int)
        assert len(set(top)) > 20, "a share is uniform, a small parameter is not"
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
