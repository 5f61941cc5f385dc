"""Rows for training and for testing: disjoint, the same every time, and scaled by the training rows alone."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from hdcos import data
from hdcos.errors import InputError
from paper import splits
from paper.tasks import load


@pytest.fixture(autouse=True)
def small_data(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    rows = np.arange(10.0)[:, None] * np.ones(28)
    images = np.arange(6.0)[:, None, None, None] * np.ones((1, 28, 28))
    monkeypatch.setattr(data, "higgs", lambda: (rows, np.arange(10) % 2))
    monkeypatch.setattr(data, "mnist", lambda part: (images + (part == "test"), np.arange(6)))
    splits.split.cache_clear()
    yield
    splits.split.cache_clear()


def test_seven_of_ten_higgs_rows_are_for_training_and_the_others_for_testing() -> None:
    train_x, train_y, test_x, _ = splits.split("higgs")
    assert (len(train_x), len(test_x)) == (7, 3)
    assert sorted([*train_x[:, 0], *test_x[:, 0]]) == list(range(10))
    np.testing.assert_array_equal(train_y, train_x[:, 0] % 2)


def test_standardised_training_rows_have_mean_zero_and_variance_one() -> None:
    train_x, _, test_x, _ = splits.standardised(splits.split("mnist"))
    assert train_x.mean() == pytest.approx(0, abs=1e-6)
    assert train_x.std() == pytest.approx(1, abs=1e-6)
    assert test_x.mean() > 0.5


def test_a_task_has_the_papers_batch_size_and_epochs() -> None:
    images, table = load("mnist", "unit", "cpu"), load("higgs", "unit", "cpu")
    assert (images.classes, images.batch_size, images.epochs, images.chance) == (10, 128, 200, 0.1)
    assert (table.classes, table.batch_size, table.epochs, table.chance) == (2, 256, 40, 0.5)


def test_unknown_words_are_named() -> None:
    with pytest.raises(InputError, match="'cifar'"):
        splits.split("cifar")
    with pytest.raises(InputError, match="'raw'"):
        load("mnist", "raw", "cpu")
