"""Figures of GPUs say by themselves which GPU, driver and CuPy they are of, and whether it was shared."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import device as described
from benchmarks import gpu, prove, record
from hdcos import nn
from hdcos.errors import DeviceError

SMI = """#!/bin/sh
case "$*" in
*--id=0*) [ "$1" = --query-gpu=name ] && echo "A GPU" || echo 580.1 ;;
*--id=3*) [ "$1" = --query-gpu=name ] && echo "Another GPU" || echo 580.1 ;;
*) exit 6 ;;
esac
"""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """One with a GPU, as far as it can be asked, and results of its own."""
    write_program(tmp_path / "nvidia-smi", SMI)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    for name in ("HDCOS_CUPY", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(described, "version", lambda package: "14.2.0")
    monkeypatch.setattr(record, "RESULTS", tmp_path / "results")
    return monkeypatch


def write_program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def test_a_gpu_is_named_with_its_driver_and_cupy(machine: pytest.MonkeyPatch) -> None:
    assert record.machine("cuda:0").startswith("A GPU (driver 580.1, CuPy 14.2.0, without MPS), ")
    assert record.machine("cuda:0").endswith(record.machine())
    machine.setenv("CUDA_VISIBLE_DEVICES", "3")
    assert record.machine("cuda:0").startswith("Another GPU (driver 580.1")


@pytest.mark.parametrize(("code", "said"), [(0, "shared by MPS"), (1, "without MPS")])
def test_whether_it_was_shared_is_asked(machine: pytest.MonkeyPatch, tmp_path: Path, code: int, said: str) -> None:
    write_program(tmp_path / "nvidia-cuda-mps-control", f"#!/bin/sh\nexit {code}\n")
    assert f", {said})" in record.machine("cuda:0")


def test_without_a_gpu_there_are_no_figures_of_one(machine: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match="nvidia-smi does not say"):
        record.machine("cuda:1")
    (tmp_path / "nvidia-smi").unlink()
    with pytest.raises(DeviceError, match="nvidia-smi does not say"):
        record.machine("cuda:0")
    machine.setenv("HDCOS_CUPY", "hdcos.testing.emulated_cupy")
    assert record.machine("cuda:0").startswith("no GPU but hdcos.testing.emulated_cupy, ")


def test_a_proof_writes_the_gpu_beside_the_parts_that_used_it(machine: pytest.MonkeyPatch, tmp_path: Path) -> None:
    parts = {part: lambda seed, part=part: iter([record.exactly(part, 1, 1)]) for part in ("steps", "cpu")}
    machine.setattr(gpu, "PARTS", parts)
    machine.setattr(sys, "argv", ["prove", "gpu", "5"])
    with pytest.raises(SystemExit) as ended:
        prove.main()
    assert ended.value.code == 0
    written = json.loads((tmp_path / "results" / "gpu.json").read_text())
    assert [(each["line"], each["machine"].startswith("A GPU (driver 580.1")) for each in written] == [
        ("steps", True), ("cpu", False)
    ]  # fmt: skip
    assert written[1]["machine"] == record.machine()


def test_files_without_a_history_are_told_their_commit(machine: pytest.MonkeyPatch, tmp_path: Path) -> None:
    machine.setenv("HDCOS_COMMIT", "0123456789ab")
    assert record.commit() != "0123456789ab"
    machine.chdir(tmp_path)
    assert record.commit() == "0123456789ab"
    machine.delenv("HDCOS_COMMIT")
    with pytest.raises(KeyError, match="HDCOS_COMMIT"):
        record.commit()


def test_steps_of_the_networks_that_are_measured_are_those_of_processors(device: Any) -> None:
    lines = list(gpu.hashes(0, device, rows=1, count=3))
    assert all(line.ok for line in lines)
    assert [line.line.partition(", batch")[0] for line in lines[::2]] == list(gpu.networks())


def test_steps_that_differ_from_those_of_processors_are_counted(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """One word of one product, off by one, from the second step on: that of the recording."""
    monkeypatch.setattr(gpu, "networks", lambda: {"a network": nn.models.mlp([12, 16, 3], "cos", "dense")})
    same, repeated = gpu.hashes(0, device, rows=2)
    assert "batch 2, 4 steps, of which 2 repeat the second" in same.line
    assert (same.ok, repeated.ok) == (True, True)
    right, calls = device.kernels.matmul, list[int]()

    def wrong(*arguments: Any) -> Any:
        made = right(*arguments)
        calls.append(1)
        if len(calls) == 30:
            made[0, 0] += np.uint64(1)
        return made

    monkeypatch.setattr(device.kernels, "matmul", wrong)
    different, _ = gpu.hashes(0, device, rows=2)
    assert not different.ok
    assert different.value > 0


def test_an_accuracy_that_is_better_than_chance_has_it_is_as_suspicious_as_one_that_is_worse() -> None:
    """Of 10,000 images at 98.7 % two runs differ by 0.16 points, a standard error, without any reason."""
    for device, ok in ((98.67, True), (98.91, True), (98.43, True), (99.1, False), (98.2, False)):
        below, between = gpu.accuracies(device, 98.67, 10_000)
        assert below.ok == (device > 98.47)
        assert between.ok == ok, between
        assert between.value == abs(device - 98.67)


def test_parts_that_use_no_device_are_parts() -> None:
    assert set(gpu.ON_PROCESSORS) < set(gpu.PARTS)
