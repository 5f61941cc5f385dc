"""Criteo end to end: a file's rows where there is one, else generated ones that are labelled synthetic."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import average_precision_score

from hdcos.data import synthetic
from paper import criteo, results
from paper.criteo import SYNTHETIC, average_precision


@pytest.fixture(autouse=True)
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HDCOS_DATA", str(tmp_path))
    monkeypatch.setattr(synthetic, "CARDINALITIES", (4, 11, 18, 28, *[30] * 22))
    monkeypatch.setattr(criteo, "WIDTH", 32)
    monkeypatch.setattr(criteo, "SYNTHETIC_ROWS", 600)
    monkeypatch.setattr(criteo, "BATCH_SIZE", 32)
    monkeypatch.setattr(criteo, "STRUCTURES", ("hadamard",))


def run(out: Path, **options: object) -> tuple[int, list[str]]:
    said: list[str] = []
    given = {"epochs": 1, "rates": (0.1,), "say": said.append, **options}
    return criteo.run(out, **given), said  # type: ignore[arg-type]


def test_without_the_file_rows_are_generated_and_labelled(tmp_path: Path) -> None:
    out = tmp_path / "paper.jsonl"
    trained, said = run(out)
    assert trained == len(criteo.SYNTHETIC_ACTIVATIONS)
    assert "criteo/train.txt" in said[0]
    assert "synthetic" in said[0]
    assert run(out)[0] == 0
    for row in results.read(out):
        assert (row["dataset"], row["metric"], row["train_rows"], row["test_rows"]) == (SYNTHETIC, "auc_pr", 480, 60)


def test_with_a_file_the_same_command_uses_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(criteo, "ACTIVATIONS", ("cos",))
    synthetic.write_criteo(tmp_path / "criteo" / "train.txt", 300)
    assert run(tmp_path / "paper.jsonl")[0] == 1
    (row,) = results.read(tmp_path / "paper.jsonl")
    assert (row["dataset"], row["train_rows"]) == ("criteo", 240)


def test_training_learns_the_hidden_rule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(criteo, "SYNTHETIC_ROWS", 1500)
    monkeypatch.setattr(criteo, "STRUCTURES", ("dense",))
    monkeypatch.setattr(criteo, "SYNTHETIC_ACTIVATIONS", ("cos",))
    out = tmp_path / "paper.jsonl"
    run(out, epochs=3, rates=(0.2,))
    (cos,) = results.read(out)
    assert cos["value"] > cos["chance"] + 0.1


def test_a_model_that_is_not_finite_scores_as_chance(tmp_path: Path) -> None:
    out = tmp_path / "paper.jsonl"
    run(out, rates=(1e30,))
    relu = next(row for row in results.read(out) if row["activation"] == "relu")
    assert relu["value"] == relu["chance"]
    assert relu["diverged_at"] == 1


def test_the_area_is_that_of_scikit_learn() -> None:
    generator = np.random.default_rng(1)
    labels = generator.integers(0, 2, 300)
    for scores in (generator.random(300), generator.integers(0, 5, 300).astype(float), np.zeros(300)):
        assert average_precision(scores, labels) == pytest.approx(average_precision_score(labels, scores), rel=1e-12)
