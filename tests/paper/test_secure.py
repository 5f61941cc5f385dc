"""Trained networks on shares: rows with both accuracies and the metered cost."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hdcos.secure.estimate import estimate, total
from paper import results, secure, splits
from paper.cells import Cell


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few hundred rows in place of Higgs, and no images."""
    generator = np.random.default_rng(0)
    x = generator.standard_normal((400, 28)).astype(np.float32)
    y = (x[:, 0] + x[:, 1] > 0).astype(np.int64)
    monkeypatch.setattr(splits, "split", lambda dataset: (x[:300], y[:300], x[300:], y[300:]))
    monkeypatch.setattr("paper.tasks.split", lambda dataset: (x[:300], y[:300], x[300:], y[300:]))
    monkeypatch.setattr(secure, "IMAGES", ())
    monkeypatch.setattr(secure, "HIGGS_EPOCHS", 3)


def test_a_row_has_both_accuracies_and_what_the_meters_counted(small: None, tmp_path: Path) -> None:
    out = tmp_path / "paper.jsonl"
    assert secure.run(out, lambda line: None) == 1
    assert secure.run(out, lambda line: None) == 0
    (row,) = results.read(out)
    assert (row["dataset"], row["test_rows"], row["train_rows"]) == ("higgs", 100, 300)
    assert abs(row["value"] - row["plain_value"]) <= 0.02
    assert row["largest_difference"] < 0.01
    planned = total(estimate(secure.HIGGS.network(0), 100))
    assert row["online"]["rounds"] == planned.online.rounds
    assert row["online"]["bytes_sent"] == [planned.online.bytes_sent] * 2


def test_the_learning_rate_is_the_best_of_the_results() -> None:
    def run(cell: Cell, lr: float, value: float) -> results.Row:
        return {**vars(cell), "lr": lr, "value": value}

    other = Cell("higgs", "cos", "dense", depth=4)
    rows = [run(secure.HIGGS, 0.1, 0.6), run(secure.HIGGS, 0.5, 0.7), run(other, 0.01, 0.9), {"lr": None}]
    assert secure._best_rate(rows) == 0.5
    assert secure._best_rate([]) == 0.1
