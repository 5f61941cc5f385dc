"""Linear classifiers on random cosine features come close to the kernel classifier they estimate."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hdcos.nn import models
from hdcos.ring import Array
from paper import frozen, kernel_machine, results, splits
from paper.frozen import LAYERS, bandwidth_of, features, kernel
from paper.report.document import markdown
from paper.report.kernels import machines


def clusters(rows: int, seed: int) -> tuple[Array, Array]:
    """Rows of 40 numbers around ten centres."""
    generator = np.random.default_rng(seed)
    centres = np.random.default_rng(0).standard_normal((10, 40))
    labels = generator.integers(0, 10, rows)
    return centres[labels] + 0.8 * generator.standard_normal((rows, 40)), labels


@pytest.mark.parametrize("structure", LAYERS)
def test_products_of_features_are_near_the_kernel(structure: str) -> None:
    x, _ = clusters(60, 1)
    s = bandwidth_of(x)
    estimate = np.mean([(f := features(structure, x, s, 2048, seed)) @ f.T for seed in range(20)], axis=0)
    assert np.abs(estimate - kernel(x, x, s)).mean() < 0.03


def test_features_classify_about_as_well_as_the_exact_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = (*clusters(300, 2), *clusters(200, 3))
    monkeypatch.setattr(splits, "split", lambda dataset: parts)
    monkeypatch.setattr(frozen, "DIMENSIONS", (1024,))
    out = tmp_path / "paper.jsonl"
    assert frozen.run(out, seeds=1, train_rows=300) == 2 * (1 + len(LAYERS))
    values = {row["structure"]: row["value"] for row in results.read(out)}
    assert values["exact"] > 0.8
    assert all(abs(values[structure] - values["exact"]) < 0.08 for structure in LAYERS)
    assert frozen.run(out, seeds=1, train_rows=300) == 0


def test_the_kernel_machine_is_solved_and_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = (*clusters(300, 2), *clusters(200, 3))
    monkeypatch.setattr(kernel_machine, "load", lambda dataset: parts)
    monkeypatch.setattr(kernel_machine, "DATASETS", ("mnist",))
    monkeypatch.setattr(kernel_machine, "FEATURES", (200,))
    out = tmp_path / "paper.jsonl"
    assert kernel_machine.run(out) == 1
    assert kernel_machine.run(out) == 0
    (row,) = results.read(out)
    model = kernel_machine.solve(models.kernel_machine(40, 10, 200, models.median_distance(parts[0])), *parts[:2])
    right = float((model(parts[2]).argmax(1) == parts[3]).mean())
    assert row["value"] == pytest.approx(right)
    assert right > 0.8
    assert f"| MNIST | 300 | {row['bandwidth']:.3g} | {100 * right:.1f} |" in markdown(machines([row]), "figures")
