"""A model file brings back the same model, or an error that says what is wrong with it."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from hdcos.errors import ModelError
from hdcos.nn import Cos, HadamardDiagonal, Sequential, load, models


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "model.safetensors"
    models.mlp([5, 8, 3]).save(path)
    return path


def write(path: Path, state: dict[str, np.ndarray] | None = None, **metadata: str) -> Path:
    """A file like that of `saved`, with some metadata or tensors replaced."""
    model = models.mlp([5, 8, 3])
    standard = {"format": "hdcos-model", "version": "1", "architecture": json.dumps(model.architecture())}
    save_file(model.state() if state is None else state, path, {**standard, **metadata})
    return path


@pytest.mark.parametrize("structure", [*models.STRUCTURES, "terms"])
def test_a_saved_model_loads_as_it_was(tmp_path: Path, structure: str) -> None:
    several = Sequential([HadamardDiagonal(5, 6, terms=4), Cos(), HadamardDiagonal(6, 3, bandwidth=2.0, terms=2)])
    model = several if structure == "terms" else models.lenet5("growing_cos", structure, seed=5)
    path = tmp_path / "model.safetensors"
    model.save(path)
    loaded = load(str(path))
    assert (loaded.layers, loaded.shapes, loaded.fingerprint) == (model.layers, model.shapes, model.fingerprint)
    state = loaded.state()
    assert list(state) == list(model.state())
    for name, array in model.state().items():
        np.testing.assert_array_equal(state[name], array, strict=True)


def test_a_model_without_parameters_can_be_saved(tmp_path: Path) -> None:
    Sequential([Cos()], input_shape=(3,)).save(tmp_path / "cos")
    np.testing.assert_array_equal(load(tmp_path / "cos")(np.zeros((1, 3))), [[1, 1, 1]])


def test_saving_replaces_the_file_in_one_step_and_leaves_nothing_beside_it(saved: Path) -> None:
    before = load(saved).state()["0.diagonal"]
    models.mlp([5, 8, 3], seed=1).save(saved)
    assert not np.array_equal(load(saved).state()["0.diagonal"], before)
    assert [path.name for path in saved.parent.iterdir()] == [saved.name]


def test_a_save_that_fails_keeps_the_old_file(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    before = saved.read_bytes()
    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(ModelError, match=r"could not be written to .*: No space left on device"):
        models.mlp([5, 8, 3], seed=1).save(saved)
    assert saved.read_bytes() == before
    assert [path.name for path in saved.parent.iterdir()] == [saved.name]
    with pytest.raises(ModelError, match=r"No such file or directory"):
        models.mlp([5, 8, 3]).save(saved.parent / "missing" / "model")


@pytest.mark.parametrize("kept", [0.0, 0.001, 0.01, 0.3, 0.7, 0.95, 0.999])
def test_a_truncated_file_is_refused_wherever_it_ends(saved: Path, kept: float) -> None:
    raw = saved.read_bytes()
    saved.write_bytes(raw[: int(kept * len(raw))])
    with pytest.raises(ModelError, match=r"truncated, damaged or not a model file .*Copy it again"):
        load(saved)


def test_a_file_with_bytes_appended_is_refused(saved: Path) -> None:
    saved.write_bytes(saved.read_bytes() + b"more")
    with pytest.raises(ModelError, match=r"truncated, damaged or not a model file"):
        load(saved)


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("hello, this is no model\n" * 9)
    with pytest.raises(ModelError, match=r"is no model of hdcos, it is a text"):
        load(path)
    with pytest.raises(ModelError, match=r"there is no model file .*missing$"):
        load(tmp_path / "missing")
    with pytest.raises(ModelError, match=r"no model can be read from|not a model file"):
        load(tmp_path)
    save_file({"weight": np.zeros(3)}, path)
    with pytest.raises(ModelError, match=r"holds tensors but no hdcos model.*from_torch"):
        load(path)


def test_a_newer_version_asks_for_an_upgrade(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"model format 2, this version of hdcos reads up to 1. Upgrade with"):
        load(write(tmp_path / "file", version="2", architecture='{"graph": []}'))
    for version in ("", "one", "1.5", "-1", "²"):
        with pytest.raises(ModelError, match=r"no readable format version"):
            load(write(tmp_path / "file", version=version))


@pytest.mark.parametrize("text", ["", "{", '{"layers": [', "\x00"])
def test_a_damaged_architecture_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ModelError, match=r"damaged architecture .*Save the model again"):
        load(write(tmp_path / "file", architecture=text))


def test_an_unknown_layer_is_named_with_its_place_and_file(tmp_path: Path) -> None:
    architecture = {"input_shape": [2], "layers": [{"type": "Cos"}, {"type": "Attention"}]}
    with pytest.raises(ModelError, match=r"file: layer 1: unknown layer type 'Attention'.*Upgrade with"):
        load(write(tmp_path / "file", architecture=json.dumps(architecture)))


def test_tensors_that_do_not_fit_the_architecture_are_refused(tmp_path: Path) -> None:
    state = models.mlp([5, 8, 3]).state()
    with pytest.raises(ModelError, match=r"file: .* missing \['0.bias'\]"):
        load(write(tmp_path / "file", {name: a for name, a in state.items() if name != "0.bias"}))
    with pytest.raises(ModelError, match=r"0.bias contains NaN"):
        load(write(tmp_path / "file", {**state, "0.bias": np.full(8, np.nan)}))


def test_a_huge_declared_layer_costs_no_memory(tmp_path: Path) -> None:
    layers = [{"type": "Dense", "in_features": 2**40, "out_features": 2**40}]
    with pytest.raises(ModelError, match=r"missing"):
        load(write(tmp_path / "file", architecture=json.dumps({"input_shape": [2**40], "layers": layers})))


def test_single_precision_tensors_become_float64(tmp_path: Path) -> None:
    state = {name: array.astype(np.float32) for name, array in models.mlp([5, 8, 3]).state().items()}
    assert {array.dtype for array in load(write(tmp_path / "file", state)).state().values()} == {np.dtype(np.float64)}


@pytest.mark.parametrize("name", ["net.pt", "net.pth", "net.bin"])
def test_a_file_of_pytorch_is_called_by_its_name(tmp_path, name) -> None:
    torch.save(torch.nn.Linear(3, 2).state_dict(), tmp_path / name)
    with pytest.raises(ModelError, match=rf"{name} is no model of hdcos, it is a PyTorch file.*from_torch"):
        load(tmp_path / name)
    torch.save([1, 2], tmp_path / name, _use_new_zipfile_serialization=False)
    with pytest.raises(ModelError, match=rf"{name} is no model of hdcos, it is a pickle"):
        load(tmp_path / name)


def test_a_torchscript_program_and_an_onnx_model_are_called_by_their_names(tmp_path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.save(torch.jit.script(torch.nn.Linear(3, 2)), tmp_path / "net.pt")
    with pytest.raises(ModelError, match="a TorchScript program of PyTorch"):
        load(tmp_path / "net.pt")
    # ir_version 8, producer_name "pytorch", producer_version, then the graph: as torch.onnx.export begins a file
    (tmp_path / "net.bin").write_bytes(b"\x08\x08\x12\x07pytorch\x1a\x052.1.0:\xb4\x01" + bytes(200))
    with pytest.raises(ModelError, match=r"net\.bin is no model of hdcos, it is an ONNX model"):
        load(tmp_path / "net.bin")


def test_a_partys_share_is_not_mistaken_for_a_model(tmp_path) -> None:
    save_file({"w": np.zeros(2, np.uint64)}, tmp_path / "half.safetensors", {"format": "hdcos-model-half"})
    with pytest.raises(ModelError, match="one party's share"):
        load(tmp_path / "half.safetensors")
