"""The lemma: cosine features estimate the Gaussian kernel without bias, and more of them estimate it better."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from paper import kernel, results
from paper.kernel import STRUCTURES, differences, estimate, squared_error

UNBIASED = ("gaussian", "hadamard", "hadamard3", "fastfood", "circulant")


@pytest.mark.parametrize("structure", UNBIASED)
def test_estimates_are_unbiased(structure: str) -> None:
    """Of 10 means of 1,000 estimates, none is 4.5 standard errors off: chance allows that once in 14,000 runs."""
    generator = np.random.default_rng(3)
    z = differences(generator, 10)
    errors = np.array([estimate(structure, z, 64, generator) - kernel.kernel(z) for _ in range(1000)])
    standard_errors = errors.std(axis=0) / np.sqrt(len(errors))
    assert (np.abs(errors.mean(axis=0)) < 4.5 * standard_errors).all()


@pytest.mark.parametrize("structure", STRUCTURES)
def test_four_times_the_features_quarter_the_error(structure: str) -> None:
    few, many = (squared_error(structure, dimension, 0, repeats=60) for dimension in (64, 256))
    assert 2.5 < few / many < 6


def test_the_tail_is_below_hoeffdings_bound() -> None:
    """The mean of D independent cosines is off by e with probability at most 2 exp(-D e^2 / 2)."""
    generator = np.random.default_rng(5)
    z = differences(generator, 20)
    errors = np.array([estimate("gaussian", z, 128, generator) - kernel.kernel(z) for _ in range(500)])
    for bound in (0.1, 0.15, 0.2):
        assert (np.abs(errors) >= bound).mean() <= 2 * np.exp(-128 * bound**2 / 2)


def test_sign_blocks_are_closer_than_independent_rows_and_fastfood_and_circulant_are_not() -> None:
    errors = {name: squared_error(name, 128, 1, repeats=60) for name in STRUCTURES}
    assert errors["signs3"] < errors["gaussian"] < min(errors["fastfood"], errors["circulant"])


def test_rows_are_written_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "REPEATS", 1)
    monkeypatch.setattr(kernel, "DIMENSIONS", (64,))
    out = tmp_path / "paper.jsonl"
    assert kernel.run(out, seeds=1) == len(STRUCTURES)
    assert kernel.run(out, seeds=1) == 0
    assert {row["metric"] for row in results.read(out)} == {"mse"}
