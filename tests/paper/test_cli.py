"""`hdcos paper run`: an experiment by name, from the command line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from hdcos.cli.paper import paper
from hdcos.paper import results, tasks
from hdcos.paper.tasks import Task


def test_the_help_names_every_experiment_of_the_paper() -> None:
    shown = CliRunner().invoke(paper, ["run", "--help"]).output
    wanted = "rounds dense structured combined hadamard lowrank phd-circulant mnist-optimizers higgs-depth activations"
    for name in [*wanted.split(), "blocks", "frozen-features", "kernel", "secure", "projection", "criteo"]:
        assert f"{name}," in shown or f"{name}." in shown, name


def test_run_trains_what_is_missing_and_says_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(0).standard_normal((96, 28)).astype(np.float32)
    y = (x[:, 0] > 0).astype(np.int64)
    tensors = [torch.from_numpy(part) for part in (x[:64], y[:64], x[64:], y[64:])]
    monkeypatch.setattr(tasks, "load", lambda *_: Task(*tensors, classes=2, batch_size=32, epochs=40))
    out = tmp_path / "paper.jsonl"
    command = ["run", "blocks", "--dataset", "higgs", "--epochs", "1", "--trials", "1", "--out", str(out)]
    first = CliRunner().invoke(paper, command)
    assert first.exit_code == 0, first.output
    assert "1 epochs" in first.output
    assert f"2 cells trained; results are in {out}." in first.output
    assert {row["models_together"] for row in results.read(out)} == {12}
    assert "0 cells trained" in CliRunner().invoke(paper, command).output
