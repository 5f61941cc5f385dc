"""The CUDA kernels without a device: the same sources, run by this processor, against the reference, bit for bit."""

from __future__ import annotations

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
from hdcos.ring.cuda import device as cuda_device
from hdcos.ring.cuda import open_device
from hdcos.ring.cuda.kernels import DEPTH, SEGMENT, TILE
from hdcos.ring.cuda.sources import files, kernels_of, source
from hdcos.ring.device import beside, device_of, to_host
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


def test_devices_that_are_not_there_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert open_device("cpu") is None
    with pytest.raises(InputError, match="cuda:0"):
        open_device("gpu")
    monkeypatch.setattr(cuda_device, "DEVICES", {})
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5")
    with pytest.raises(DeviceError, match="shows 1 devices"):
        open_device("cuda:1")
    monkeypatch.setenv("HDCOS_CUPY", "no_such_module")
    with pytest.raises(DeviceError, match=r"hdcos\[gpu\]"):
        open_device("cuda:0")
    monkeypatch.setenv("HDCOS_CUPY", "hdcos.testing.emulated_cupy")
    with pytest.raises(DeviceError, match="--device-memory"):
        open_device("cuda:0", memory=1 << 60)


def test_what_does_not_fit_is_named(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device._budget, "limit", device._budget.taken + 100)
    with pytest.raises(DeviceError, match="smaller batches"):
        device.put(np.zeros(1000, np.uint64))
