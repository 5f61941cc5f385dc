"""Steps that a device records and repeats are word for word those of processors."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hdcos.errors import FrameError
from hdcos.protocol.repeated import Repeated, Round
from hdcos.protocol.rounds import Part
from hdcos.ring.device import beside
from hdcos.secure.training.step import take_step
from hdcos.testing import steps as hashed_steps
from hdcos.testing.emulated_cupy import noting_numbers
from hdcos.testing.steps import hash_steps
from repeated_steps import MODELS, steps


@pytest.mark.parametrize("loss", ["logistic", "softmax"])
@pytest.mark.parametrize("name", MODELS)
def test_repeated_steps_are_those_of_processors(name: str, loss: str, device: Any) -> None:
    here, _ = steps(name, None, loss=loss)
    there, runs = steps(name, device, loss=loss)
    assert here == there
    assert len(set(here)) == len(here)
    assert all(run.recorded for run in runs)


@pytest.mark.parametrize("options", [{"momentum": 0.9}, {"weighted": True}], ids=["momentum", "weighted"])
def test_with_momentum_and_weighted_rows(options: dict[str, Any], device: Any) -> None:
    there, runs = steps("dense", device, **options)
    assert steps("dense", None, **options)[0] == there
    assert all(run.recorded for run in runs)


def test_material_for_several_steps_is_there_before_it_is_copied(device: Any) -> None:
    """A recording copies it on a stream that waits for no other, which the emulation checks."""
    there, runs = steps("hadamard", device, count=6, chunk=3)
    assert steps("hadamard", None, count=6, chunk=3)[0] == there
    assert all(run.recorded for run in runs)


def test_what_cannot_be_recorded_runs_as_it_is(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Words that a program puts on the device while it runs, as it would with what it draws."""

    def putting(party: Any, plan: Any, state: Any, x: Any, *known: Any) -> Any:
        program = take_step(party, plan, state, x, *known)
        message = next(program)
        while True:
            reply = yield message
            beside(np.ones(1, np.uint64), x.words)
            try:
                message = program.send(reply)
            except StopIteration as ended:
                return ended.value

    monkeypatch.setattr(hashed_steps, "take_step", putting)
    there, runs = steps("dense", device)
    assert steps("dense", None)[0] == there
    assert all(not run.recorded and run._runs == 4 for run in runs)


def numbers_of(device: Any, drawn: str) -> list[tuple[Any, ...]]:
    """All that recorded steps, and the dealer's for them, were given besides arrays."""
    model = MODELS["hadamard"]()
    with noting_numbers() as seen:
        _, runs = hash_steps(model, (device, device, device), count=2, label=drawn)
    assert all(run.recorded for run in runs)
    return seen


def test_a_number_that_was_drawn_would_be_noticed(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel takes numbers by value, and a recording that has one repeats it: nothing ends it, unlike an array."""
    numbers_of(device, "tables are made")
    assert numbers_of(device, "one way") == numbers_of(device, "another")

    def adding(party: Any, plan: Any, state: Any, x: Any, *known: Any) -> Any:
        drawn = np.uint64(int.from_bytes(os.urandom(7), "little"))
        return take_step(party, plan, state, replace(x, words=x.words + drawn - drawn), *known)

    monkeypatch.setattr(hashed_steps, "take_step", adding)
    assert numbers_of(device, "one way") != numbers_of(device, "another")


def test_another_key_is_another_recording(device: Any) -> None:
    run: Repeated[Any] = Repeated(device)
    run._key, run._runs, run._recording = "one", 5, "a recording"  # type: ignore[assignment]
    with pytest.raises(StopIteration):
        next(run.run("two", 0, lambda party, words: _nothing(words["x"]), {"x": np.ones(2, np.uint64)}, _NoMaterial()))
    assert run._runs == 1
    assert run._recording is None


def _nothing(x: Any) -> Any:
    return x
    yield


class _NoMaterial:
    device = None

    def finish(self) -> None: ...


def test_padding_of_answers_is_looked_at(device: Any) -> None:
    parts = (Part(np.ones(1, np.uint16), 13, "a"), Part(np.ones(1, np.uint16), 16))
    made = Round(parts, device.recorder())
    assert made.message.steps == [("a", 2), ("round", 2)]
    heard = made.hear(np.array([255, 31, 255, 255], np.uint8))
    assert heard.tolist() == [255, 31, 255, 255]
    with pytest.raises(FrameError, match="padding"):
        made.hear(np.array([255, 63, 255, 255], np.uint8))


def test_answers_are_received_where_they_are_read_from(device: Any) -> None:
    made = Round((Part(np.ones(4, np.uint8), 8),), device.recorder())
    room = made.message.allocate(20)
    room[16:] = 7
    assert np.shares_memory(made.hear(room[16:]), room)
    assert made.message.allocate(20) is room


def test_models_differ() -> None:
    assert len({steps(name, None, count=1)[0][0] for name in MODELS}) == len(MODELS)
