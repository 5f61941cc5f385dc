"""On a real CUDA device: kernels, whole computations and clusters, bit for bit those of processors. `make test-gpu`.

HDCOS_GPU_POOL=0 compute-sanitizer --tool memcheck|racecheck python -m pytest tests/gpu -k kernel
"""

from __future__ import annotations

import importlib
import os
from typing import Any

import numpy as np
import pytest

import hdcos
from golden.cases import measured
from golden.test_golden import CASES, GOLDEN
from hdcos import nn
from hdcos.errors import DeviceError
from hdcos.offline.material import Field, Slot
from hdcos.offline.shares import FieldShares
from hdcos.ring.cuda import open_device
from hdcos.ring.device import to_host
from hdcos.testing.cuda_cases import calls, compare
from hdcos.testing.pair import computing_on
from repeated_steps import MEASURED, MODELS, steps

WORDS = int(os.environ.get("HDCOS_GPU_WORDS", 10**6))
"""Fewer under a sanitizer."""


@pytest.fixture(scope="module")
def device() -> Any:
    try:
        found: Any = open_device("cuda:0")
    except DeviceError as error:
        pytest.fail(f"no CUDA device: {error}")
    if (
        os.environ.get("HDCOS_GPU_POOL") == "0"
    ):  # memcheck does not see a write past an array that stays within the pool
        importlib.import_module("cupy").cuda.set_allocator(None)
    return found


def test_every_kernel_has_the_words_of_the_reference(device: Any) -> None:
    different: dict[str, int] = {}
    for name, arguments in calls(WORDS):
        different[name] = different.get(name, 0) + compare(device, name, arguments)
    assert not any(different.values()), different


def test_kernel_of_key_streams_has_those_of_the_processor(device: Any) -> None:
    bits = (1, 8, 13, 16, 26, 32, 40, 64)
    slots = [Slot(place, 1, Field("x", (WORDS // 8,), width)) for place, width in enumerate(bits)]
    here, there = (FieldShares(bytes(range(32)), slots, where) for where in (None, device))
    for mine, theirs in zip(here.expand(5, 2), there.expand(5, 2), strict=True):
        np.testing.assert_array_equal(mine, to_host(theirs))


@pytest.mark.parametrize("name", CASES)
def test_messages_are_those_of_processors(name: str, device: Any) -> None:
    with computing_on(device, device, device):
        assert measured(name, CASES[name]) == GOLDEN[name]


@pytest.mark.parametrize("name", ["infer lenet5 masked", "step lenet5"])
def test_a_device_works_with_a_processor(name: str, device: Any) -> None:
    with computing_on(device, None):
        assert measured(name, CASES[name]) == GOLDEN[name]


@pytest.mark.parametrize("loss", ["logistic", "softmax"])
@pytest.mark.parametrize("name", [*MODELS, *MEASURED])
def test_repeated_steps_are_those_of_processors(name: str, loss: str, device: Any) -> None:
    there, runs = steps(name, device, count=5, loss=loss)
    assert steps(name, None, count=5, loss=loss)[0] == there
    assert all(run.recorded for run in runs)


@pytest.mark.parametrize(
    "options",
    [{"momentum": 0.9}, {"weighted": True}, {"chunk": 3}],
    ids=["momentum", "weighted", "several steps of material"],
)
def test_with_momentum_weighted_rows_and_material_for_several_steps(options: dict[str, Any], device: Any) -> None:
    for name in ("hadamard",) if "chunk" in options else ("dense", "hadamard"):
        assert steps(name, None, count=6, **options)[0] == steps(name, device, count=6, **options)[0]


def test_a_cluster_predicts_and_trains(device: Any) -> None:
    model = nn.models.mlp([12, 16, 16, 1], "cos", "hadamard", seed=1)
    x = np.random.default_rng(0).uniform(-1, 1, (64, 12))
    y, trained = (x[:, 0] > 0).astype(np.int64), []
    for where in ("cuda:0", "cpu"):
        with hdcos.local(device=where) as cluster:
            np.testing.assert_allclose(cluster.share(model).predict(x), model(x), atol=0.02)
            settings = {"epochs": 3, "batch_size": 16, "lr": 0.1, "momentum": 0.5, "seed": 3, "progress": False}
            trained.append(cluster.fit(model, x, y, **settings).reveal())
    there, here = (each(x) for each in trained)
    assert np.abs(there - model(x)).max() > 0.05
    np.testing.assert_allclose(there, here, atol=0.05)


def test_two_pairs_share_the_device_within_their_memory_and_more_is_refused_by_name() -> None:
    model = nn.models.mlp([12, 16, 16, 3], "cos", "hadamard", seed=1)
    x = np.random.default_rng(0).uniform(-1, 1, (200, 12))
    with hdcos.local(workers=2, device="cuda:0", device_memory=1 << 24) as cluster:
        private = cluster.share(model)
        np.testing.assert_allclose(private.predict(x), model(x), atol=0.02)
        with pytest.raises(DeviceError, match=r"of cuda:0 do not suffice.*--device-memory"):
            private.prepare(100_000)
