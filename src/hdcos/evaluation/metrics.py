"""Scores of a model, piece by piece: what is kept is counts and sums, however many rows there are.

accuracy      the part of rows whose class was guessed
confusion     rows of each true class (down) by each guessed one (across)
log loss      the mean of -log of the probability that the true class had
AUC           the chance that a row of a class has a higher score for it than a row of another; of more than two classes
              the mean over all of them, each against the rest. Scores are log-odds, counted in bins: `auc_error` bounds
              what that may change
calibration   the expected calibration error: in BINS equal parts of the probability, the difference between the mean
              probability and how often it came true, weighted by rows. Of two classes the probability is that of the
              second; of more it is that of the guessed one
RMSE, R2      of numbers; R2 is 1 less the squared error over that of always guessing the mean
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hdcos.errors import InputError
from hdcos.ring import Array

BINS = 10
"""Of calibration."""
LARGEST_ODDS = 32.0
"""Log-odds beyond it count as it: nobody tells such probabilities from 0 or 1."""
MOST_BINS, ALL_BINS = 1 << 18, 1 << 21
"""Of the log-odds of one class, and of all classes together."""
LEAST_PROBABILITY = 1e-15
"""That the log loss takes a probability for."""


def log_odds(logits: Array) -> Array:
    """Of each class that it is the one: of one output, its logit alone; of several, by softmax."""
    if logits.shape[1] == 1:
        return logits
    raised = logits - logits.max(axis=1, keepdims=True)
    powers = np.exp(raised)
    others = powers.sum(axis=1, keepdims=True) - powers
    return np.asarray(raised - np.log(np.maximum(others, np.exp(-2 * LARGEST_ODDS))))


@dataclass
class ClassScores:
    """Of a network whose outputs are classes: 1 output for two of them, else one for each."""

    outputs: int
    rows: int = 0
    confusion: Array = field(init=False)
    """Counts: true class by guessed class."""
    _loss: float = 0.0
    _odds: Array = field(init=False, repr=False)
    """Counts by class, whether it is the true one, and log-odds."""
    _certain: Array = field(init=False, repr=False)
    """Of each bin of probability: rows, sum of probabilities, and how often it came true."""

    def __post_init__(self) -> None:
        bins = min(MOST_BINS, ALL_BINS // self.outputs)
        self.confusion = np.zeros((self.classes, self.classes), np.int64)
        self._odds = np.zeros((self.outputs, 2, bins), np.int64)
        self._certain = np.zeros((3, BINS))

    @property
    def classes(self) -> int:
        return max(2, self.outputs)

    def add(self, logits: Array, labels: Array) -> None:
        """Count some rows."""
        if logits.ndim != 2 or logits.shape != (len(labels), self.outputs):
            raise InputError(f"{len(labels)} labels do not belong to outputs of shape {logits.shape}")
        known: Array = np.asarray(labels)
        wrong = ~np.isin(known, np.arange(self.classes))
        if wrong.any():
            raise InputError(
                f"a label is {known[wrong][0]:g}, and this model has the classes 0 to {self.classes - 1}; for a "
                f"regression say --regression"
            )
        if not len(labels):
            return
        truth = known.astype(np.int64)
        guessed = (logits[:, 0] > 0).astype(np.int64) if self.outputs == 1 else logits.argmax(1)
        np.add.at(self.confusion, (truth, guessed), 1)
        odds = log_odds(logits)
        probability = 1 / (1 + np.exp(-np.clip(odds, -700, 700)))
        own = np.where(truth == 1, probability[:, 0], 1 - probability[:, 0])
        certain, right = probability[:, 0], truth == 1
        if self.outputs > 1:
            rows = np.arange(len(truth))
            own, certain, right = probability[rows, truth], probability[rows, guessed], truth == guessed
        self._loss -= float(np.log(np.maximum(own, LEAST_PROBABILITY)).sum())
        place = np.minimum((certain * BINS).astype(np.int64), BINS - 1)
        for kept, values in zip(self._certain, (np.ones(len(truth)), certain, right), strict=True):
            np.add.at(kept, place, values)
        self._count_odds(odds, truth)
        self.rows += len(truth)

    def _count_odds(self, odds: Array, truth: Array) -> None:
        bins = self._odds.shape[2]
        scaled = (np.clip(odds, -LARGEST_ODDS, LARGEST_ODDS) / LARGEST_ODDS + 1) * (bins / 2)
        places = np.minimum(scaled.astype(np.int64), bins - 1)
        for number in range(self.outputs):
            own = truth == (1 if self.outputs == 1 else number)
            for side in (False, True):
                self._odds[number, int(side)] += np.bincount(places[own == side, number], minlength=bins)

    @property
    def accuracy(self) -> float:
        return float(np.trace(self.confusion) / self.rows)

    @property
    def log_loss(self) -> float:
        return self._loss / self.rows

    @property
    def calibration_error(self) -> float:
        _, total, right = self._certain
        return float(np.abs(right - total).sum() / self.rows)

    def calibration(self) -> tuple[Array, Array, Array]:
        """Of each part of the probability that has rows: their number, the mean probability, how often it came true."""
        count, total, right = self._certain[:, self._certain[0] > 0]
        return count, total / count, right / count

    def _areas(self) -> list[tuple[float, float]]:
        """Of each class that has rows and lacks some: the area, and what bins may change of it."""
        found = []
        for others, own in self._odds:
            pairs = float(own.sum()) * float(others.sum())
            if pairs:
                below = np.cumsum(others) - others
                tied = float((own * others.astype(np.float64)).sum())
                found.append(((float((own * below.astype(np.float64)).sum()) + tied / 2) / pairs, tied / 2 / pairs))
        return found

    @property
    def auc(self) -> float | None:
        """None where all rows are of one class."""
        areas = self._areas()
        return float(np.mean([area for area, _ in areas])) if areas else None

    @property
    def auc_error(self) -> float:
        return max((error for _, error in self._areas()), default=0.0)

    def curve(self, number: int = 0, points: int = 400) -> tuple[Array, Array]:
        """The ROC curve of an output: the part of other rows above each score, and the part of its own."""
        others, own = (np.cumsum(side[::-1]) / max(1, side.sum()) for side in self._odds[number])
        edges = np.flatnonzero((np.diff(others, prepend=0) > 0) | (np.diff(own, prepend=0) > 0))
        chosen = edges[np.unique(np.linspace(0, len(edges) - 1, min(points, len(edges))).astype(int))]
        return np.concatenate([[0], others[chosen], [1]]), np.concatenate([[0], own[chosen], [1]])

    def report(self) -> dict[str, Any]:
        """Everything, as JSON has it."""
        count, certain, right = self.calibration()
        bins = [
            {"rows": int(n), "probability": float(p), "came_true": float(r)}
            for n, p, r in zip(count, certain, right, strict=True)
        ]
        return {
            "rows": self.rows,
            "accuracy": self.accuracy,
            "confusion": self.confusion.tolist(),
            "auc": self.auc,
            "auc_error": self.auc_error,
            "log_loss": self.log_loss,
            "calibration_error": self.calibration_error,
            "calibration": bins,
        }


@dataclass
class NumberScores:
    """Of a network whose one output is a number."""

    rows: int = 0
    _squared: float = 0.0
    _absolute: float = 0.0
    _mean: float = 0.0
    _spread: float = 0.0
    """The sum of squares around the mean of what was to be guessed."""
    shown: Array = field(default_factory=lambda: np.empty((0, 2)), repr=False)
    """Some pairs of what was to be guessed and what was, for a picture."""

    def add(self, found: Array, labels: Array) -> None:
        guessed: Array = np.asarray(found, np.float64).reshape(len(found), -1)
        if guessed.shape[1:] != (1,):
            raise InputError(f"a regression has one number for each row, and this model gives {guessed.shape[1]}")
        truth: Array = np.asarray(labels, np.float64)
        if len(truth) != len(guessed) or not np.isfinite(truth).all():
            raise InputError("the numbers to be guessed are not finite, or not as many as the rows")
        if not len(truth):
            return
        apart = guessed[:, 0] - truth
        self._squared += float((apart**2).sum())
        self._absolute += float(np.abs(apart).sum())
        mean, rows = float(truth.mean()), self.rows + len(truth)
        step = mean - self._mean  # Chan, Golub and LeVeque 1979: no sum of squares that cancels
        self._spread += float(((truth - mean) ** 2).sum()) + step**2 * self.rows * len(truth) / rows
        self._mean += step * len(truth) / rows
        self.rows = rows
        room = max(0, 2000 - len(self.shown))
        self.shown = np.concatenate([self.shown, np.stack([truth, guessed[:, 0]], axis=1)[:room]])

    @property
    def rmse(self) -> float:
        return float(np.sqrt(self._squared / self.rows))

    @property
    def r2(self) -> float | None:
        """None where all numbers are the same."""
        return 1 - self._squared / self._spread if self._spread else None

    def report(self) -> dict[str, Any]:
        return {"rows": self.rows, "rmse": self.rmse, "mae": self._absolute / self.rows, "r2": self.r2}
