"""From an experiment's name to rows in a file: resumable, and nothing is trained twice."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from hdcos.errors import InputError
from paper import results, tasks
from paper.cells import LEARNING_RATES, Cell
from paper.experiments import ACTIVATIONS, EXPERIMENTS
from paper.run import run
from paper.tasks import Task

INTERFACE = {
    *("experiment", "dataset", "activation", "structure", "optimizer", "lr", "depth", "seed", "epochs"),
    *("train_rows", "test_rows", "metric", "value", "versions", "device"),
}


@pytest.fixture(autouse=True)
def small_higgs(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(0).standard_normal((96, 28)).astype(np.float32)
    y = (x[:, 0] > 0).astype(np.int64)
    tensors = [torch.from_numpy(part) for part in (x[:64], y[:64], x[64:], y[64:])]
    monkeypatch.setattr(tasks, "load", lambda *_: Task(*tensors, classes=2, batch_size=32, epochs=40))


def small_run(out: Path, **options: object) -> int:
    given = {"epochs": 1, "trials": 1, "datasets": ["higgs"], "say": lambda line: None, **options}
    return run("blocks", out, **given)  # type: ignore[arg-type]


def test_every_run_is_a_row_with_the_keys_of_the_interface(tmp_path: Path) -> None:
    out = tmp_path / "paper.jsonl"
    assert small_run(out) == 2
    rows = results.read(out)
    assert len(rows) == 2 * len(LEARNING_RATES)
    for row in rows:
        assert set(row) >= INTERFACE
        assert (row["experiment"], row["train_rows"], row["epochs"]) == ("blocks", 64, 1)
        assert results.cell_of(row).network(0).parameter_count == row["parameter_count"]


def test_what_is_in_the_file_is_not_trained_again(tmp_path: Path) -> None:
    out = tmp_path / "paper.jsonl"
    small_run(out)
    before = out.read_text()
    assert small_run(out) == 0
    assert out.read_text() == before


def test_a_lost_row_brings_its_cell_back(tmp_path: Path) -> None:
    out = tmp_path / "paper.jsonl"
    small_run(out)
    out.write_text("".join(out.read_text().splitlines(keepends=True)[1:]))
    assert small_run(out) == 1


def test_other_epochs_are_other_runs(tmp_path: Path) -> None:
    out = tmp_path / "paper.jsonl"
    small_run(out)
    assert small_run(out, epochs=2) == 2


def test_nothing_is_begun_that_would_end_too_late(tmp_path: Path) -> None:
    assert small_run(tmp_path / "paper.jsonl", seconds=-1) == 0


def test_a_line_that_is_no_json_is_named(tmp_path: Path) -> None:
    out = tmp_path / "paper.jsonl"
    whole = json.dumps(dict.fromkeys(results.ALWAYS, 1))
    for other in ("{", "3", json.dumps({"a": 1})):
        out.write_text(f"{whole}\n{other}\n")
        with pytest.raises(InputError, match="line 2"):
            results.read(out)


def test_an_unknown_experiment_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="'tabels'"):
        run("tabels", tmp_path / "paper.jsonl")


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_cell_of_an_experiment_has_a_network(name: str) -> None:
    cells = EXPERIMENTS[name]
    assert len(set(cells)) == len(cells)
    for cell in cells:
        assert cell.network(0).parameter_count > 0


def test_the_tables_are_six_activations_and_three_structures_of_three_data_sets() -> None:
    assert len(EXPERIMENTS["tables"]) == 3 * 3 * len(ACTIVATIONS)
    assert Cell("higgs", "cos", "hadamard", depth=4) in EXPERIMENTS["tables"]
