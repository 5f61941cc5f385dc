"""Whole clusters whose parties and dealer compute on a device, which is emulated: see hdcos.testing.emulated_cupy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import hdcos
from hdcos import nn
from hdcos.errors import DeviceError, InputError
from tests.serve_nodes import Nodes, await_that, command, running_all


@pytest.fixture(autouse=True)
def emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HDCOS_CUPY", "hdcos.testing.emulated_cupy")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.mark.parametrize("dealer", [True, False])
def test_a_cluster_predicts_on_a_device(dealer: bool) -> None:
    model = nn.models.mlp([12, 16, 16, 3], "cos", "hadamard", seed=1)
    x = np.random.default_rng(0).uniform(-1, 1, (5, 12))
    with hdcos.local(dealer=dealer, device="cuda:0") as cluster:
        private = cluster.share(model)
        np.testing.assert_allclose(private.predict(x), model(x), atol=0.02)
        if dealer:
            assert (private.predict(x, output="label") == model(x).argmax(1)).mean() >= 0.8


def test_parties_over_https_predict_on_a_device(tmp_path: Path) -> None:
    model = nn.models.mlp([12, 16, 16, 3], "cos", "hadamard", seed=1)
    x = np.random.default_rng(0).uniform(-1, 1, (5, 12))
    assert command("init", tmp_path / "c", "--single-machine")[0] == 0
    roles = dict.fromkeys(("dealer", "party0", "party1"), ("--device", "cuda:0", "--timeout-s", "30"))
    with running_all(tmp_path / "c", roles) as processes:
        private = Nodes(tmp_path / "c", processes).cluster.share(model)
        np.testing.assert_allclose(private.predict(x), model(x), atol=0.02)
        assert (private.predict(x, output="label") == model(x).argmax(1)).mean() >= 0.8


def test_a_party_on_a_device_works_with_one_on_processors(tmp_path: Path) -> None:
    """Its processes alone are told of a device: the other party and the dealer cannot tell."""
    model = nn.models.mlp([12, 16, 16, 3], "cos", "hadamard", seed=1)
    x = np.random.default_rng(0).uniform(-1, 1, (16, 12))
    assert command("init", tmp_path / "c", "--single-machine")[0] == 0
    roles = {"dealer": (), "party0": ("--device", "cuda:0", "--timeout-s", "30"), "party1": ("--timeout-s", "30")}
    with running_all(tmp_path / "c", roles) as processes:
        cluster = Nodes(tmp_path / "c", processes).cluster
        np.testing.assert_allclose(cluster.share(model).predict(x), model(x), atol=0.02)
        y = x[:, :3].argmax(axis=1)
        settings = {"epochs": 3, "batch_size": 16, "lr": 0.1, "watch": 0, "seed": 3}
        there = cluster.fit(model, x, y, **settings).predict(x)
    with hdcos.local() as cluster:
        here = cluster.fit(model, x, y, **settings).predict(x)
    np.testing.assert_allclose(there, here, atol=0.05)
    assert np.abs(there - model(x)).max() > 0.1


def test_workers_of_a_party_have_a_device_each_and_limits_of_their_memory(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("HDCOS_EMULATED_DEVICES", "2")
    model = nn.models.mlp([12, 16, 16, 3], "cos", "hadamard", seed=1)
    x = np.random.default_rng(0).uniform(-1, 1, (64, 12))
    assert command("init", tmp_path / "c", "--single-machine")[0] == 0
    options = ("--device", "cuda:0,cuda:1", "--device-memory", "0.5", "--workers", "2", "--timeout-s", "30")
    with running_all(tmp_path / "c", dict.fromkeys(("dealer", "party0", "party1"), options)) as processes:
        there = Nodes(tmp_path / "c", processes)
        await_that(lambda: there.all_up(1))
        np.testing.assert_allclose(there.cluster.share(model).predict(x), model(x), atol=0.02)
        trained = there.cluster.fit(model, x, x[:, :3].argmax(axis=1), epochs=2, batch_size=32, lr=0.1, watch=0)
        assert np.abs(trained.predict(x) - model(x)).max() > 0.02
        assert all(worker["steps"] > 0 for rank in (0, 1) for worker in there.workers(rank))


def test_several_workers_share_a_device_and_what_does_not_fit_is_named() -> None:
    model = nn.models.mlp([12, 16, 16, 3], "cos", "hadamard", seed=1)
    x = np.random.default_rng(0).uniform(-1, 1, (200, 12))
    with hdcos.local(workers=2, device="cuda:0", device_memory=1 << 24) as cluster:
        private = cluster.share(model)
        np.testing.assert_allclose(private.predict(x), model(x), atol=0.02)
        with pytest.raises(DeviceError, match=r"of cuda:0 do not suffice.*--device-memory"):
            private.prepare(100_000)


def test_a_cluster_trains_on_a_device() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (64, 12))
    y = (x[:, 0] > 0).astype(np.int64)
    model = nn.models.mlp([12, 16, 16, 1], "cos", "hadamard", seed=1)
    settings = {"epochs": 3, "batch_size": 16, "lr": 0.1, "momentum": 0.5, "seed": 3, "progress": False}
    trained = []
    for device in ("cpu", "cuda:0"):
        with hdcos.local(device=device) as cluster:
            trained.append(cluster.fit(model, x, y, **settings).reveal())
    here, there = (each(x) for each in trained)
    assert np.abs(here - model(x)).max() > 0.1
    np.testing.assert_allclose(there, here, atol=0.05)


def test_what_cannot_be_had_is_named() -> None:
    with pytest.raises(InputError, match="cuda:0"), hdcos.local(device="tpu"):
        pass
    with pytest.raises(DeviceError, match="this machine has 1"), hdcos.local(device="cuda:7"):
        pass
    with pytest.raises(DeviceError, match="has 16"), hdcos.local(device="cuda:0", device_memory=1 << 50):
        pass
