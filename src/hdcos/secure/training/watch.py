"""How a run does on rows of the caller's own, from private predictions after each epoch: loss, accuracy, divergence.

Nothing on shares can see that training diverges. A caller that holds rows in plaintext can: it asks for predictions of
them, as anybody may, and learns what the model tells about these rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from hdcos.errors import InputError, RangeError
from hdcos.nn import Network
from hdcos.nn.columns import Rows
from hdcos.ring import Array
from hdcos.secure.training.plan import training_plan
from hdcos.secure.training.targets import LARGEST_TARGET, one_hot

SAMPLE = 256
"""Rows of the caller's own that are watched unless it says otherwise."""
VALIDATION, TRAINING = "validation rows", "training rows"
FAR = 4.0
"""This many times the loss of the start, or of guessing, is divergence."""


@dataclass(frozen=True)
class Epoch:
    """What the caller learned about one epoch."""

    number: int
    seconds: float
    accuracy: float | None = None
    """Of the rows that were watched; None without any, and where targets are no classes."""
    loss: float | None = None
    """Of these rows, on average."""
    watched: str = ""
    """Whose accuracy and loss these are: VALIDATION, or TRAINING, a sample of them."""

    def __str__(self) -> str:
        found = [] if self.loss is None else [f"loss {self.loss:.4g}"]
        found += [] if self.accuracy is None else [f"accuracy {self.accuracy:.2%}"]
        said = f", {', '.join(found)} of your {self.watched}" if found else ""
        return f"epoch {self.number}: {self.seconds:.1f} s{said}"


@dataclass(frozen=True)
class Watch:
    """Rows in plaintext whose predictions tell how a run does."""

    rows: Array
    targets: Array
    of: str
    loss: str
    start: float
    """The loss before training."""
    largest: float
    """Outputs that the loss is computed for; for softmax, differences of them."""

    @classmethod
    def validation(cls, model: Network, loss: str, given: tuple[Rows, ArrayLike]) -> Watch:
        """Rows that are not trained on, checked before training starts."""
        rows, targets = model.rows(given[0]), one_hot(given[1], model.output_shape[0], loss)
        if len(rows) != len(targets):
            raise InputError(f"{len(rows)} validation rows and {len(targets)} labels do not belong together")
        return cls(rows, targets, VALIDATION, loss, mean_loss(model(rows), targets, loss), largest_output(model, loss))

    @classmethod
    def sample(cls, model: Network, loss: str, rows: Array, targets: Array, most: int) -> Watch | None:
        """Some of the rows that are trained on; None if none are wanted."""
        if isinstance(most, bool) or not isinstance(most, int | np.integer) or most < 0:
            raise InputError(f"watch is the number of your rows that are predicted after each epoch, got {most!r}")
        if not most or not len(rows):
            return None
        chosen = np.random.default_rng(0).permutation(len(rows))[:most]
        x, t = rows[chosen], targets[chosen]
        return cls(x, t, TRAINING, loss, mean_loss(model(x), t, loss), largest_output(model, loss))

    def epoch(self, number: int, seconds: float, scores: Array) -> Epoch:
        """What predictions say of an epoch; RangeError if they say that training diverged."""
        self._check_range(number, scores)
        value = mean_loss(scores, self.targets, self.loss)
        limit = FAR * max(self.start, mean_loss(np.zeros_like(scores), self.targets, self.loss))
        # Of rows that are not trained on, a network that is too sure of itself may have a large loss without diverging.
        if not math.isfinite(value) or (self.of == TRAINING and value > limit):
            raise RangeError(
                f"training diverged in epoch {number}: the loss of your {self.of} was {self.start:.3g} at the start, "
                f"now it is {value:.3g}; use a smaller learning rate, and features of size about 1"
            )
        return Epoch(number, seconds, class_accuracy(scores, self.targets, self.loss), value, self.of)

    def _check_range(self, number: int, scores: Array) -> None:
        # Softmax compares logits with one another, the logistic loss each with zero.
        size = np.ptp(scores, axis=1) if self.loss == "softmax" else np.abs(scores)
        limit = self.largest
        far, largest = float(np.mean(size > limit)), float(size.max(initial=0.0))
        if far > 0.01:
            raise RangeError(
                f"training diverged in epoch {number}: {far:.0%} of the logits of your {self.of}, up to {largest:.3g}, "
                f"lie beyond the {limit:g} that the loss is computed for; use a smaller learning rate"
            )


def largest_output(model: Network, loss: str) -> float:
    """Outputs of a network, or for softmax their differences, for which its gradients on shares are right."""
    return 2 * LARGEST_TARGET if loss == "squared" else float(training_plan(model, loss).largest_logit)


def mean_loss(scores: Array, targets: Array, loss: str) -> float:
    """The loss that training minimises, in plaintext, averaged over rows."""
    with np.errstate(over="ignore", invalid="ignore"):  # a loss that is not finite is told as such
        if loss == "squared":
            each = 0.5 * (scores - targets) ** 2
        elif loss == "logistic":
            each = np.logaddexp(0, scores) - targets * scores
        else:  # one against each: the label's own term is no part of it
            label = (scores * targets).sum(1, keepdims=True)
            each = np.logaddexp(0, scores - label) * (1 - targets)
        return float(each.sum(1).mean())


def class_accuracy(scores: Array, targets: Array, loss: str) -> float | None:
    """The part of rows whose class is guessed; None where targets are no classes."""
    several = targets.shape[1] > 1
    if not ((targets == 0) | (targets == 1)).all() or (several and (targets.sum(1) != 1).any()):
        return None
    if several:
        return float((scores.argmax(1) == targets.argmax(1)).mean())
    middle = 0.5 if loss == "squared" else 0.0
    return float(((scores[:, 0] > middle) == (targets[:, 0] > 0.5)).mean())
