"""A device that cannot be had, in the words of somebody who starts a node: one line that names it, and an exit code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hdcos.ring.cuda import device
from tests.serve_nodes import command


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("home") / "c"
    assert command("init", folder, "--single-machine")[0] == 0
    return folder


@pytest.fixture(autouse=True)
def emulated(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A process that has no device yet, and where CuPy is emulated; so are those that it starts."""
    monkeypatch.setattr(device, "DEVICES", {})
    monkeypatch.setenv("HDCOS_CUPY", "hdcos.testing.emulated_cupy")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return monkeypatch


def call(home: Path, role: str, *options: str) -> list[str]:
    place = ("--node", str(home / role), "--cluster", str(home / "cluster.toml"))
    return [role.rstrip("01"), *place, *options]


REFUSED: dict[str, tuple[tuple[str, ...], dict[str, str], str]] = {
    "not there": (("--device", "cuda:7"), {}, "DeviceError: there is no device cuda:7: `nvidia-smi -L`"),
    "none": (("--device", "cuda:0"), {"HDCOS_EMULATED_DEVICES": "0"}, "DeviceError: there is no device cuda:0"),
    "no driver": (
        ("--device", "cuda:0"),
        {"HDCOS_EMULATED_DEVICES": "none"},
        "DeviceError: no CUDA device can be used: cudaErrorInsufficientDriver",
    ),
    "no CuPy": (
        ("--device", "cuda:0"),
        {"HDCOS_CUPY": "no_such_cupy"},
        "DeviceError: a CUDA device needs no_such_cupy: pip install 'hdcos[gpu]'",
    ),
    "no compiler": (
        ("--device", "cuda:0"),
        {"HDCOS_EMULATED_NVRTC": "none"},
        "DeviceError: the compiler of kernels (NVRTC) is not there",
    ),
    "too much memory": (
        ("--device", "cuda:0", "--device-memory", "9"),
        {},
        "DeviceError: cuda:0 has 8.0 of 16.0 GiB free, 9.0 GiB were asked for",
    ),
    "memory of processors": (("--device-memory", "9"), {}, "InputError: a limit of device memory is for a GPU"),
    "streams of threads": (
        ("--device", "cuda:0"),
        {"CUPY_CUDA_PER_THREAD_DEFAULT_STREAM": "1"},
        "DeviceError: CUPY_CUDA_PER_THREAD_DEFAULT_STREAM=1 would let threads read what is not computed yet: unset it",
    ),
    "a name": (("--device", "gpu"), {}, "InputError: a device is cpu, cuda:0, cuda:1 and so on, not 'gpu'"),
    "a later name": (
        ("--device", "cuda:0,tpu"),
        {},
        "InputError: a device is cpu, cuda:0, cuda:1 and so on",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_device_that_cannot_be_had_is_one_line(home: Path, case: str, emulated: pytest.MonkeyPatch) -> None:
    options, variables, said = REFUSED[case]
    for name, value in variables.items():
        emulated.setenv(name, value)
    code, output = command(*call(home, "party0", *options))
    assert code == 1
    assert len(output.splitlines()) == 1
    assert output.startswith(said)


def test_a_dealer_does_not_say_that_it_listens_before_it_has_its_device(home: Path) -> None:
    words = [sys.executable, "-m", "hdcos", *call(home, "dealer", "--device", "cuda:7")]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1
    assert [line.partition(":")[0] for line in ended.stderr.splitlines()] == ["DeviceError"]


@pytest.mark.parametrize("gib", ["nan", "inf", "0", "-3", "1e-12", "much"])
def test_memory_that_is_no_number_of_gib_is_refused(home: Path, gib: str) -> None:
    code, output = command(*call(home, "party0", "--device", "cuda:0", "--device-memory", gib))
    assert code == 2
    assert "'--device-memory'" in output.splitlines()[-1]
