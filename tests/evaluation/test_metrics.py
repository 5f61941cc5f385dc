"""Scores of a model, against scikit-learn's, however rows come in pieces."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.calibration import calibration_curve
from sklearn.metrics import (
    accuracy_score,
    confusion_matrix,
    log_loss,
    mean_absolute_error,
    mean_squared_error,
    r2_score,
    roc_auc_score,
    roc_curve,
)

from hdcos.errors import InputError
from hdcos.evaluation import ClassScores, NumberScores
from hdcos.secure.labels import probabilities

GENERATOR = np.random.default_rng(4)


def classes(outputs: int, rows: int = 3000):
    labels = GENERATOR.integers(0, max(2, outputs), rows)
    signal = labels[:, None] * 2.0 - 1 if outputs == 1 else 2.0 * (labels[:, None] == np.arange(outputs))
    return signal + GENERATOR.normal(0, 1.5, (rows, outputs)), labels


def scored(logits, labels, pieces: int = 7) -> ClassScores:
    scores = ClassScores(logits.shape[1])
    for part in np.array_split(np.arange(len(labels)), pieces):
        scores.add(logits[part], labels[part])
    return scores


@pytest.mark.parametrize("outputs", [1, 2, 5])
def test_classes_are_scored_as_scikit_learn_does(outputs: int) -> None:
    logits, labels = classes(outputs)
    scores, known = scored(logits, labels), probabilities(logits)
    guessed = (logits[:, 0] > 0).astype(int) if outputs == 1 else logits.argmax(1)
    assert scores.rows == 3000
    assert scores.accuracy == pytest.approx(accuracy_score(labels, guessed))
    assert scores.confusion.tolist() == confusion_matrix(labels, guessed).tolist()
    assert scores.log_loss == pytest.approx(log_loss(labels, known[:, 0] if outputs == 1 else known))
    exact = (
        roc_auc_score(labels, known[:, outputs - 1]) if outputs < 3 else roc_auc_score(labels, known, multi_class="ovr")
    )
    assert abs(scores.auc - exact) <= scores.auc_error + 1e-12
    assert scores.auc_error < 1e-3, "bins are fine enough to be worth something"


def test_calibration_is_the_weighted_distance_from_the_curve() -> None:
    logits, labels = classes(1)
    probability = probabilities(1.7 * logits)[:, 0]
    scores = scored(1.7 * logits, labels)
    right, mean = calibration_curve(labels, probability, n_bins=10)
    _, found_mean, found_right = scores.calibration()
    np.testing.assert_allclose(found_mean, mean)
    np.testing.assert_allclose(found_right, right)
    weights = np.histogram(probability, bins=np.linspace(0, 1, 11))[0]
    assert scores.calibration_error == pytest.approx((weights * np.abs(right - mean)).sum() / len(labels))
    assert scores.calibration_error > 2 * scored(probability_logits(labels), labels).calibration_error


def probability_logits(labels):
    """Log-odds that are true: the label is drawn by them."""
    chance = GENERATOR.uniform(0.05, 0.95, len(labels))
    labels[:] = GENERATOR.uniform(size=len(labels)) < chance
    return np.log(chance / (1 - chance))[:, None]


def test_the_curve_of_a_class_lies_on_scikit_learns() -> None:
    logits, labels = classes(1)
    scores = scored(logits, labels)
    others, own = scores.curve(points=10**6)
    known_others, known_own, _ = roc_curve(labels, logits[:, 0], drop_intermediate=False)
    exact = {(round(a, 9), round(b, 9)) for a, b in zip(known_others, known_own, strict=True)}
    found = [(round(a, 9), round(b, 9)) in exact for a, b in zip(others, own, strict=True)]
    assert np.mean(found) > 0.99, "but for rows that share a bin"
    assert np.trapezoid(own, others) == pytest.approx(scores.auc)
    assert (others[0], own[0], others[-1], own[-1]) == (0, 0, 1, 1)


def test_extreme_scores_are_counted_too() -> None:
    scores = scored(np.array([[1e6], [-1e6], [800.0], [-800.0]]), np.array([1, 0, 0, 1]), 2)
    assert scores.auc == pytest.approx(0.5)
    assert np.isfinite(scores.log_loss)
    assert scored(np.array([[5.0], [6.0]]), np.array([1, 1]), 1).auc is None


def test_numbers_are_scored_as_scikit_learn_does_far_from_zero_too() -> None:
    truth = 1e8 + GENERATOR.normal(0, 2, 1000)
    guessed = truth + GENERATOR.normal(0, 1, 1000)
    scores = NumberScores()
    for part in np.array_split(np.arange(1000), 9):
        scores.add(guessed[part, None], truth[part])
    report = scores.report()
    assert report["rmse"] == pytest.approx(np.sqrt(mean_squared_error(truth, guessed)))
    assert report["mae"] == pytest.approx(mean_absolute_error(truth, guessed))
    assert report["r2"] == pytest.approx(r2_score(truth, guessed))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: ClassScores(1).add(np.zeros((2, 1)), np.array([0, 2])), r"classes 0 to 1; for a regression"),
        (lambda: ClassScores(1).add(np.zeros((2, 1)), np.array([0, 0.5])), "a label is 0.5"),
        (lambda: ClassScores(3).add(np.zeros((2, 2)), np.array([0, 1])), "do not belong"),
        (lambda: NumberScores().add(np.zeros((2, 2)), np.zeros(2)), "this model gives 2"),
        (lambda: NumberScores().add(np.zeros((2, 1)), np.array([0, np.nan])), "not finite"),
    ],
)
def test_what_cannot_be_scored_is_refused(call, words: str) -> None:
    with pytest.raises(InputError, match=words):
        call()
