"""What CUDA graphs read and write stays where it is for as long as they can be repeated; all memory is counted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hdcos import nn
from hdcos.errors import DeviceError
from hdcos.offline import Dealer
from hdcos.offline.recorded import Recorded
from hdcos.ring.device import Place, to_host
from hdcos.secure.training.step import plan_step
from hdcos.testing import emulated_cupy

WORDS = np.arange(1 << 10, dtype=np.uint64)


def test_constants_that_a_recording_reads_outlive_the_cache(device: Any) -> None:
    known, recorder = device.constant(WORDS), device.recorder()
    with recorder.segment():
        assert device.constant(WORDS) is known
    device._constants.clear()
    assert any(x is known for x in recorder.kept)


def test_places_of_streams_that_a_recording_reads_outlive_the_cache(device: Any) -> None:
    """A party may have the dealer deal as many steps at a time as it likes, which it remembers eight sizes of."""
    dealer = Dealer(device)
    plan = plan_step(nn.models.mlp([4, 4, 1], "cos", "hadamard"), 2).material
    for rank in (0, 1):
        dealer.open("steps", plan, rank)
    first = [dealer.deal("steps", start, 1, 1) for start in (0, 1)]
    scope = dealer._scopes["steps"]
    places, recorder = scope.dealt_shares._fields(1)[0], scope.recorded[1]._recorder
    assert any(x is places for x in recorder.kept)
    for size in range(2, 11):
        dealer.deal("steps", 2, size, 1) if size == 2 else dealer.deal("steps", 0, size, 1)
    assert scope.dealt_shares._fields(1)[0] is not places
    np.testing.assert_array_equal(dealer.deal("steps", 1, 1, 1), first[1])


def test_memory_of_recordings_counts(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    before = device._budget.taken
    recorder = device.recorder()
    mirror = recorder.mirror(WORDS)
    assert device._budget.taken == before + WORDS.nbytes
    monkeypatch.setattr(device._budget, "limit", device._budget.taken + 100)
    with pytest.raises(DeviceError, match="smaller batches"), device.guard():
        recorder.mirror(WORDS)
    del mirror, recorder


def test_memory_that_nobody_uses_is_given_back_before_anything_is_refused(
    device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    device._budget.pool.free_all_blocks()
    monkeypatch.setattr(device._budget, "limit", device._budget.taken + 2 * WORDS.nbytes)
    device.put(WORDS)  # is gone at once, and its block is kept
    assert device.put(np.concatenate([WORDS, WORDS])).nbytes == 2 * WORDS.nbytes


def test_memory_that_others_took_is_named(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    device._budget.pool.free_all_blocks()
    monkeypatch.setattr(emulated_cupy.Memory, "left", 100)
    with pytest.raises(DeviceError, match="others have taken"):
        device.put(WORDS)


def test_a_dealer_without_room_says_so(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    dealer = Dealer(device)
    dealer.open("steps", plan_step(nn.models.mlp([64, 64, 1], "cos", "hadamard"), 64).material, 1)
    device._budget.pool.free_all_blocks()
    monkeypatch.setattr(device._budget, "limit", device._budget.taken + 1000)
    with pytest.raises(DeviceError, match="--device-memory"):
        dealer.deal("steps", 0, 2, 1)


def test_a_recording_that_cannot_end_is_not_repeated(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(stream: Any) -> None:
        emulated_cupy._here.tape = None
        raise RuntimeError("operation failed due to a previous error during capture")

    monkeypatch.setattr(emulated_cupy.Stream, "end_capture", fail)
    function = Recorded(device, lambda x: x + x)
    for _ in range(4):
        np.testing.assert_array_equal(to_host(function(WORDS)), WORDS + WORDS)
    assert function._recorder is None


def test_workers_take_devices_in_turn() -> None:
    several = Place("cuda:0, cuda:1", 5)
    assert [several.of_worker(index) for index in range(3)] == [
        Place("cuda:0", 5), Place("cuda:1", 5), Place("cuda:0", 5)
    ]  # fmt: skip
    assert Place().of_worker(7) == Place()
