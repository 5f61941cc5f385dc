"""Commands travel as JSON and come back as they were; whatever else arrives is refused by name."""

from __future__ import annotations

import json

import pytest

from hdcos.api import commands
from hdcos.api.commands import Command, read_command, write_command
from hdcos.errors import InputError

KNOWN = (
    commands.Load("fraud", "0" * 32, "model fraud 1", {"shares": 3, "masked": 1}),
    commands.OpenFunction("cos", "cos 1", "cos", {"phase_bits": 16}, [[1, 4]], [16], 2),
    commands.Unload("fraud"),
    commands.Drop("fraud", ["0" * 32]),
    commands.Order("fraud", "shares", 12, wait=True),
    commands.Burn("fraud", "masked", 5),
    commands.Infer("fraud", "shares", ["a", "b"], 7, 12),
    commands.Infer("fraud", "masked", ["a"], 7, 12, "label", 3, 8),
    commands.DropData("rows", ["v", "w"]),
    commands.OpenJob("j", "training 1", [["rows", "v"]], 2, None),
    commands.OpenJob("j", "training 1", [["rows", "v"]], 2, 40),
    commands.OpenJob("j", "training 1", [["rows", "v"]], 2, 40, [0, 2]),
    commands.Steps("j", 40, 5, 0.25),
    commands.StepsTogether("j", 40, 5, 0.25),
    commands.PauseJob("j"),
    commands.Publish("j", "1" * 32, "job 1", interim=True),
    commands.KeepBest("j", 3),
    commands.CloseJob("j", "failed", "InputError: no"),
    commands.Release("r"),
    commands.Withhold("r"),
    commands.Refuse([["a", "because"]]),
    commands.Settle(),
    commands.Ping(),
    commands.Idle(),
    commands.KeepModel("fraud", "0" * 32, {"layers": []}, 26),
    commands.KeepData("rows", "v", 2, 1, ["a", "b"], "0" * 64, "north", "1" * 32),
    commands.AddRows("rows", "v"),
    commands.EndData("rows", "v", 3),
    commands.FindData("rows", "v", 3, 2, 1, None, ["/var/lib/hdcos"], "0" * 64, "north", "1" * 32),
    commands.ForgetData("rows", "v"),
    commands.KeepJob("j", {"rates": [0.1], "seed": None}),
    commands.KeepReveal("r", "fraud", "0" * 32),
    commands.AddTally("adult", "north", "0" * 32, "1" * 64, 7, 2, ["north", "south"]),
    commands.LookTally("adult", "north"),
    commands.TakeTally("adult", "north"),
    commands.WithdrawTally("adult", "north"),
    commands.IssueMasks("fraud", 0, 3),
    commands.CountMaterial("fraud"),
    commands.GreetDealer(),
    commands.FindCheckpoints("/tmp/run"),
    commands.ReadCost(),
    commands.Shutdown(),
)


def test_every_command_is_here() -> None:
    assert {type(command) for command in KNOWN} == {*Command.__subclasses__(), commands.StepsTogether}


@pytest.mark.parametrize("command", KNOWN, ids=lambda command: type(command).__name__)
def test_a_command_comes_back_as_it_was(command) -> None:
    assert read_command(json.loads(json.dumps(write_command(command)))) == command


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ({}, "does not know the command None"),
        ([], "does not know the command None"),
        ({"op": ["load"]}, "does not know"),
        ({"op": "sing"}, "'sing'"),
        ({"op": "unload"}, "'unload' cannot be read"),
        ({"op": "unload", "model": 3}, "'unload' cannot be read"),
        ({"op": "unload", "model": "m", "share": [1]}, "'unload' cannot be read"),
        ({"op": "infer", "model": "m", "mode": "shares", "ids": [], "start": -1, "ordered": 0}, "cannot be read"),
        ({"op": "infer", "model": "m", "mode": "shares", "ids": [], "start": 2**63, "ordered": 0}, "cannot be read"),
        ({"op": "infer", "model": "m", "mode": "shares", "ids": [], "start": 1.5, "ordered": 0}, "cannot be read"),
    ],
)
def test_what_is_no_command_is_refused(record, words) -> None:
    with pytest.raises(InputError, match=words):
        read_command(record)


def test_a_command_does_not_change() -> None:
    with pytest.raises(AttributeError):
        KNOWN[0].model = "other"
