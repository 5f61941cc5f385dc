"""The ready network is trained on standardised pixels and rewritten, exactly, for pixels in [0, 1]."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hdcos.nn import models
from paper import ready
from paper.splits import Split


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> Split:
    """Dark images and bright ones."""
    generator = np.random.default_rng(0)
    labels = np.arange(128) % 2
    images = generator.uniform(0, 1, (128, 1, 28, 28)) * np.where(labels == 0, 0.1, 1.0)[:, None, None, None]
    parts = (images.astype(np.float32), labels, images.astype(np.float32), labels)
    monkeypatch.setattr(ready, "split", lambda dataset: parts)
    return parts


def test_trained_networks_take_unit_pixels(few: Split) -> None:
    (trained,) = ready.train("fashion_mnist", [0.02], 1, 2, "cpu", say=lambda line: None)
    start = models.convnet().state()
    scores = trained.model(few[2].astype(float))
    assert (scores.argmax(1) == few[3]).mean() == pytest.approx(trained.accuracy)
    moved = {name for name, array in trained.model.state().items() if not np.array_equal(array, start[name])}
    assert moved == set(start)
    assert trained.model.fingerprint == models.convnet().fingerprint


def test_shifts_and_flips_keep_the_pixels(few: Split) -> None:
    pixels = ready.Pixels.load("fashion_mnist", 1, "cpu")
    moved = pixels.augmented(torch.Generator().manual_seed(0))
    assert moved.shape == (128, 1, 30, 30)
    wide = pixels.train_x[0, 0]
    windows = [wide[i : i + 30, j : j + 30] for i in range(5) for j in range(5)]
    assert sum(torch.equal(moved[0, 0], window) or torch.equal(moved[0, 0], window.flip(1)) for window in windows) == 1
    flipped = sum(
        any(
            torch.equal(moved[k, 0], pixels.train_x[k, 0, i : i + 30, j : j + 30].flip(1))
            for i in range(5)
            for j in range(5)
        )
        for k in range(64)
    )
    assert 16 < flipped < 48
