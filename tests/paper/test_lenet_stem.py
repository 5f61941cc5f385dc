"""The kernels of LeNet-5's convolutions, compiled as C++, against the layers one by one."""

from __future__ import annotations

import ctypes
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from hdcos.nn import models
from paper import batched, lenet_stem
from paper.cells import Cell
from paper.lenet_stem import ACTIVATIONS, compiled, stem_of
from paper.trainer import loss_slopes

COMPILER = shutil.which("c++") or shutil.which("g++")
pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        assert COMPILER is not None
        return compiled(COMPILER, ("-O1", "-x", "c++", "-std=c++17", "-fPIC"))


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_the_kernels_have_the_outputs_and_gradients_of_the_layers(
    activation: str, library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = np.random.default_rng(5)
    x = torch.from_numpy(generator.random((5, 1, 28, 28))).float()  # an odd number: the last block is not full
    y = torch.from_numpy(generator.integers(0, 10, 5))
    networks = [Cell("mnist", activation, "dense").network(seed) for seed in range(2)]
    plain = batched.Batch(networks, "cpu")
    monkeypatch.setattr(batched, "find_stem", lambda model, parameters: stem_of(model, lambda: library))
    fused = batched.Batch(networks, "cpu")
    assert plain.stem is None
    assert fused.stem is not None
    expected, found = plain(x), fused(x)
    wanted, gradient = (b.gradient(o, loss_slopes(o, y)) for b, o in ((plain, expected), (fused, found)))
    assert (found - expected).norm() < 2e-6 * expected.norm()
    assert (gradient - wanted).norm() < 5e-6 * wanted.norm()


def test_only_a_lenet5_has_a_stem() -> None:
    def no_library() -> ctypes.CDLL:
        raise AssertionError

    assert stem_of(models.mlp([784, 10]), no_library) is None
    assert stem_of(models.lenet5("sin"), no_library) is None


def test_the_source_is_beside_the_module() -> None:
    assert Path(lenet_stem.__file__).with_name("lenet.cu").is_file()
