"""`python -m paper run`: an experiment by name, from the command line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from cli.mistakes import CONTENTS, PLACES
from paper import results, tasks
from paper.__main__ import main
from paper.tasks import Task


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """What a command prints that succeeds."""
    assert main([str(argument) for argument in arguments]) == 0
    return capsys.readouterr().out


def test_the_help_names_every_experiment_of_the_paper(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["run", "--help"])
    shown = "".join(capsys.readouterr().out.split())  # it breaks lines at hyphens
    wanted = "rounds dense structured combined hadamard lowrank phd-circulant mnist-optimizers higgs-depth activations"
    for name in [*wanted.split(), "blocks", "frozen-features", "kernel", "secure", "projection", "criteo"]:
        assert name in shown


def test_run_trains_what_is_missing_and_says_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    x = np.random.default_rng(0).standard_normal((96, 28)).astype(np.float32)
    y = (x[:, 0] > 0).astype(np.int64)
    tensors = [torch.from_numpy(part) for part in (x[:64], y[:64], x[64:], y[64:])]
    monkeypatch.setattr(tasks, "load", lambda *_: Task(*tensors, classes=2, batch_size=32, epochs=40))
    out = tmp_path / "paper.jsonl"
    command = ("run", "blocks", "--datasets", "higgs", "--epochs", 1, "--trials", 1, "--out", out)
    first = run(capsys, *command)
    assert "1 epochs" in first
    assert f"2 cells trained; results are in {out}." in first
    assert {row["models_together"] for row in results.read(out)} == {12}
    assert "0 cells trained" in run(capsys, *command)


def test_an_outdated_report_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "--check"]) == 0
    assert main(["report", "--check", "--out", str(tmp_path)]) == 1
    assert "run `python -m paper report`" in capsys.readouterr().out
    assert main(["report", "--results", str(tmp_path / "none.jsonl")]) == 1
    assert "none.jsonl" in capsys.readouterr().err


def test_every_mistake_ends_in_one_line_that_names_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = []
    for number, make in enumerate((*CONTENTS.values(), *PLACES.values())):
        path = tmp_path / str(number) / "paper.jsonl"
        path.parent.mkdir()
        make(path)
        if path.exists() and (path.is_symlink() or path.stat().st_size):  # no results yet are a fine beginning
            bad.append((["run", "rounds", "--out", str(path)], path.name))
        bad.append((["report", "--results", str(path), "--out", str(tmp_path)], path.name))
    for number, text in enumerate(
        ("[]", "3", '{"lr": 1}', '{"lr": null}', '{"experiment": "dense", "lr": 0.1, "seed": 0}')
    ):
        path = tmp_path / f"{number}.jsonl"
        path.write_text(text + "\n")
        bad.append((["report", "--results", str(path), "--out", str(tmp_path)], path.name))
    occupied = tmp_path / "occupied"
    occupied.write_text("something")
    bad.append((["run", "rounds", "--out", str(occupied / "x.jsonl")], "occupied"))
    for command, named in bad:
        assert main(command) == 1, command
        assert named in capsys.readouterr().err, command
