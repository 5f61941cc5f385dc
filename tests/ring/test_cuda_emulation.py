"""The CUDA kernels without a device: the same sources, run by this processor, against the reference, bit for bit."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hdcos.errors import DeviceError, InputError
from hdcos.offline.material import Field, Slot
from hdcos.offline.shares import FieldShares
from hdcos.ring import (
    Blank,
    dcf_share,
    dcf_words,
    matmul,
    pack,
    reference,
    round_open,
    unpack,
    unpack_sum,
    walsh_hadamard,
)
from hdcos.ring.cuda import check_device, open_device
from hdcos.ring.cuda import device as cuda_device
from hdcos.ring.cuda.kernels import DEPTH, SEGMENT, TILE
from hdcos.ring.cuda.sources import files, kernels_of, source
from hdcos.ring.device import Place, beside, device_of, to_host
from hdcos.testing.cuda_cases import Draw, calls, compare

SIZE = 600


def test_every_kernel_has_the_words_of_the_reference(device: Any) -> None:
    seen: dict[str, int] = {}
    for name, arguments in calls(SIZE):
        assert compare(device, name, arguments) == 0, (name, [getattr(x, "shape", x) for x in arguments])
        seen[name] = seen.get(name, 0) + 1
    launched = {name for file in files() for name in kernels_of(file)}
    assert launched <= set(seen) | {"walsh_level", "lifted_total", "expand"}  # of several in one, and key streams below


def test_key_streams_are_those_of_the_processor(device: Any) -> None:
    fields = [Field(f"f{bits}", (7, 3), bits) for bits in (1, 8, 13, 16, 26, 32, 40, 64)]
    slots = [Slot(place, 5, item) for place, item in enumerate(fields)]
    seed = bytes(range(32))
    here, there = FieldShares(seed, slots), FieldShares(seed, slots, device)
    for start, executions in ((0, 1), (3, 4), (10**9, 2)):
        for mine, theirs in zip(here.expand(start, executions), there.expand(start, executions), strict=True):
            assert device_of(theirs) is device
            np.testing.assert_array_equal(to_host(theirs), mine)


def test_constants_of_sources_and_launches_agree() -> None:
    assert f"SEGMENT = {SEGMENT};" in source("hadamard")
    assert f"TILE = {TILE}, DEPTH = {DEPTH}," in source("product")


def test_public_kernels_find_the_device(device: Any) -> None:
    draw = Draw()
    x, y = draw.words(8, 16), draw.words(16, 4)
    on_device = matmul(device.put(x), device.put(y))
    assert device_of(on_device) is device
    np.testing.assert_array_equal(to_host(on_device), matmul(x, y))
    np.testing.assert_array_equal(to_host(walsh_hadamard(device.put(x)[:, ::2])), walsh_hadamard(x[:, ::2]))
    assert isinstance(matmul(device.put(x), Blank((16, 4))), Blank)
    sent = pack(round_open(device.put(x), None, 40, 13), 13)
    assert type(sent) is np.ndarray  # what travels is of this machine
    assert device_of(unpack(sent, x.size, 13, device)) is device
    mine = round_open(device.put(x), None, 40, 13)
    np.testing.assert_array_equal(to_host(unpack_sum(sent, mine, 13)), reference.unpack_sum(sent, to_host(mine), 13))


def test_memories_never_mix(device: Any) -> None:
    here, there = np.ones(3, np.uint64), device.put(np.ones(3, np.uint64))
    for mixed in (lambda: here + there, lambda: there * here, lambda: np.concatenate([here, there])):
        with pytest.raises(TypeError):
            mixed()
    with pytest.raises(TypeError):
        np.asarray(there)
    with pytest.raises(TypeError):
        there[:] = here
    assert (to_host(beside(here, there) + there) == 2).all()
    assert isinstance(there * Blank(3), Blank)
    assert isinstance(Blank(3) - there, Blank)


@pytest.mark.parametrize("bits", [2, 9, 20, 40])
def test_keys_made_there_compare_here_and_there(device: Any, bits: int) -> None:
    """Keys of a device, one party's share by it and the other's by the reference: together the comparison itself."""
    draw = Draw()
    D, mask, cipher = draw.compact(4, 50, bits=bits), draw.compact(4, 50, bits=bits), draw.words(4, 2)
    roots = draw.words(4, 50, 2), draw.words(4, 50, 2)
    there = [device.put(x) for x in (cipher, *roots, mask, D)]
    words = dcf_words(*there[:4], bits)
    assert device_of(words) is device
    mine = dcf_share(there[0], there[1], words, there[4], bits, True)
    theirs = reference.dcf_share(cipher, roots[1], to_host(words), D, bits, False)
    difference = (D.astype(np.uint64) - mask.astype(np.uint64)) & np.uint64(2**bits - 1)
    np.testing.assert_array_equal(to_host(mine) ^ theirs, 1 ^ (difference >> np.uint64(bits - 1)))


@pytest.mark.parametrize("name", ["gpu", "cuda", "cuda:-1", "cuda:0,", "CUDA:0", "", "cuda:0;cuda:1", "cpu,tpu"])
def test_names_that_no_device_can_have_are_refused(name: str) -> None:
    for refuse in (Place(name).check, Place(name).open):
        with pytest.raises(InputError, match="a device is cpu, cuda:0"):
            refuse()


def test_a_limit_of_memory_is_for_a_device() -> None:
    for refuse in (Place(memory=5).check, Place("cpu,cpu", 5).open):
        with pytest.raises(InputError, match="for a GPU"):
            refuse()


@pytest.fixture
def emulated(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A process that has no device yet, and where CuPy is emulated."""
    monkeypatch.setattr(cuda_device, "DEVICES", {})
    monkeypatch.setenv("HDCOS_CUPY", "hdcos.testing.emulated_cupy")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return monkeypatch


def test_devices_that_are_not_there_are_named(emulated: pytest.MonkeyPatch) -> None:
    assert open_device("cpu") is None
    with pytest.raises(DeviceError, match=r"no device cuda:1: `nvidia-smi"):
        open_device("cuda:1")
    with pytest.raises(DeviceError, match="this machine has 1"):
        check_device("cuda:1")
    emulated.setenv("CUDA_VISIBLE_DEVICES", "5")
    with pytest.raises(DeviceError, match="shows 1 devices"):
        open_device("cuda:1")
    with pytest.raises(DeviceError, match="there is no device cuda:0"):
        open_device("cuda:0")


@pytest.mark.parametrize("use", [open_device, check_device])
def test_what_a_device_needs_is_named(use: Any, emulated: pytest.MonkeyPatch, tmp_path: Path) -> None:
    emulated.setenv("HDCOS_EMULATED_DEVICES", "none")
    with pytest.raises(DeviceError, match=r"no CUDA device can be used: .* Install a driver"):
        use("cuda:0")
    emulated.setenv("HDCOS_CUPY", "no_such_module")
    with pytest.raises(DeviceError, match=r"hdcos\[gpu\]"):
        use("cuda:0")
    (tmp_path / "broken_cupy.py").write_text("raise ImportError('a library\\nis not there')")
    emulated.syspath_prepend(tmp_path)
    emulated.setenv("HDCOS_CUPY", "broken_cupy")
    with pytest.raises(DeviceError, match=r"broken_cupy cannot be imported: a library is not there\. pip"):
        use("cuda:0")


def test_memory_that_a_device_does_not_have_is_named(emulated: pytest.MonkeyPatch) -> None:
    for memory in (0, -1, 1 << 60, float("nan")):
        with pytest.raises(DeviceError, match="--device-memory"):
            open_device("cuda:0", memory)  # type: ignore[arg-type]
        with pytest.raises(DeviceError, match=r"has 16.0 GiB"):
            check_device("cuda:0", memory)  # type: ignore[arg-type]


def test_a_process_that_began_cuda_with_several_devices_cannot_choose(emulated: pytest.MonkeyPatch) -> None:
    """The driver reads the variable once: what hides the others comes too late."""
    module = importlib.import_module("hdcos.testing.emulated_cupy")
    emulated.setattr(module.cuda.runtime, "getDeviceCount", lambda: 2)
    with pytest.raises(DeviceError, match=r"CUDA was begun before cuda:1 .* set CUDA_VISIBLE_DEVICES=1, use cuda:0"):
        open_device("cuda:1")


def test_a_process_has_one_device(device: Any) -> None:
    assert open_device("cuda:0") is device
    with pytest.raises(InputError, match="this process uses cuda:0: one of cuda:1 is another process"):
        open_device("cuda:1")


def test_streams_of_their_own_for_threads_are_refused(emulated: pytest.MonkeyPatch) -> None:
    """What one thread launched would no longer be done before what another launches behind it."""
    variable = "CUPY_CUDA_PER_THREAD_DEFAULT_STREAM"
    for said in ("1", " 2 ", "true"):
        emulated.setenv(variable, said)
        for use in (open_device, check_device):
            with pytest.raises(DeviceError, match=f"{variable}={said} would let .*: unset it"):
                use("cuda:0")
    emulated.setenv(variable, "0")
    check_device("cuda:0")


def test_a_compiler_that_is_not_there_is_named_before_it_is_needed(emulated: pytest.MonkeyPatch) -> None:
    emulated.setenv("HDCOS_EMULATED_NVRTC", "none")
    with pytest.raises(DeviceError, match=r"NVRTC\) is not there: Failure finding .*: No such file.*hdcos\[gpu\]"):
        open_device("cuda:0")


def test_what_does_not_fit_is_named(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device._budget, "limit", device._budget.taken + 100)
    with pytest.raises(DeviceError, match="smaller batches"):
        device.put(np.zeros(1000, np.uint64))
