"""Targets of training from labels, and what private predictions for a caller's own rows say about a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hdcos.errors import InputError, RangeError
from hdcos.nn import Sequential
from hdcos.nn.columns import Rows, column_names, numbers
from hdcos.ring import Array, encode
from hdcos.train.form import INPUT_SCALE, TARGET_SCALE
from hdcos.train.loss import LARGEST_LOGIT

Rate = float | Callable[[int], float]
LARGEST_TARGET = 128.0
"""Of the squared loss: logits near it fit the ring of every last layer."""


def one_hot(y: ArrayLike, outputs: int) -> Array:
    """Targets of one output per class from labels; a matrix of targets passes as it is."""
    labels = np.asarray(y)
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise InputError("the labels contain NaN or infinity")
    if labels.ndim == 2:
        if labels.shape[1] != outputs or labels.dtype.kind not in "iubf":
            raise InputError(f"targets of shape {labels.shape} do not fit a network with {outputs} outputs")
        if np.abs(labels).max(initial=0) > LARGEST_TARGET:
            raise InputError(f"targets may reach {LARGEST_TARGET:g} in size, these reach {np.abs(labels).max():g}")
        return labels.astype(np.float64)
    if labels.ndim != 1 or labels.dtype.kind not in "iubf" or (labels != np.rint(labels)).any():
        raise InputError(f"labels are a row of whole numbers, got {labels.dtype} of shape {labels.shape}")
    classes = max(2, outputs)
    if labels.size and (labels.min() < 0 or labels.max() >= classes):
        raise InputError(f"labels from {labels.min():g} to {labels.max():g} do not fit classes 0 to {classes - 1}")
    if outputs == 1:
        return labels[:, None].astype(np.float64)
    targets: Array = (labels[:, None] == np.arange(outputs)).astype(np.float64)
    return targets


def encoded_rows(x: Rows, y: ArrayLike | None, outputs: int) -> tuple[dict[str, Array], dict[str, Any]]:
    """One owner's rows (an array or a table), and labels if it has them, as ring words, and what is public of them."""
    rows, columns = np.asarray(numbers(x), dtype=np.float64), column_names(x)
    if rows.ndim < 2 or not rows.size:
        raise InputError(f"a data set is a table of at least one row, got shape {rows.shape}")
    rows = rows.reshape(len(rows), -1)
    words = {"x": encode(rows, INPUT_SCALE)}
    if y is not None:
        targets = one_hot(y, outputs)
        if len(targets) != len(rows):
            raise InputError(f"{len(rows)} rows and {len(targets)} labels do not belong together")
        words["targets"] = encode(targets, TARGET_SCALE)
    named = {} if columns is None else {"columns": list(columns)}
    return words, {
        **{"rows": len(rows), "features": rows.shape[1], "outputs": outputs if y is not None else 0, **named}
    }


def learning_rate(lr: Rate, schedule: Callable[[int], float] | None, epoch: int) -> float:
    """Of one epoch: `lr` is a number or a function of the epoch, and `schedule` multiplies it."""
    value = lr(epoch) if callable(lr) else lr
    return float(value * schedule(epoch) if schedule else value)


def check_targets(targets: Array, loss: str) -> None:
    """Targets that a loss can be computed for."""
    if loss == "softmax" and not (((targets == 0) | (targets == 1)).all() and (targets.sum(1) == 1).all()):
        raise InputError("softmax takes one class per row: labels, or rows of zeros with a single one")
    if loss == "logistic" and (targets.min(initial=0) < 0 or targets.max(initial=0) > 1):
        raise InputError("the logistic loss takes targets from 0 to 1")


@dataclass(frozen=True)
class Epoch:
    """What the caller learned about one epoch."""

    number: int
    seconds: float
    accuracy: float | None
    """Of the validation rows, if there are any."""


@dataclass(frozen=True)
class HeldOut:
    """Rows that the caller owns and the class of each."""

    rows: Array
    labels: Array


def held_out(model: Sequential, outputs: int, validation: tuple[Rows, ArrayLike]) -> HeldOut:
    """Validation rows and labels, checked before training starts."""
    rows, targets = model.rows(validation[0]), one_hot(validation[1], outputs)
    if len(rows) != len(targets):
        raise InputError(f"{len(rows)} validation rows and {len(targets)} labels do not belong together")
    return HeldOut(rows, targets.argmax(1) if outputs > 1 else (targets[:, 0] > 0.5).astype(int))


def accuracy(scores: Array, held: HeldOut, loss: str, epoch: int) -> float:
    """The accuracy of predictions for held-out rows; RangeError if they show that training diverged."""
    # Softmax compares logits with one another, the logistic loss each with zero.
    size = np.ptp(scores, axis=1) if loss == "softmax" else np.abs(scores)
    limit = 2 * LARGEST_TARGET if loss == "squared" else LARGEST_LOGIT
    far, largest = float(np.mean(size > limit)), float(size.max(initial=0.0))
    if far > 0.01:
        raise RangeError(
            f"training diverged in epoch {epoch + 1}: {far:.0%} of the logits of the validation rows, up to "
            f"{largest:.3g}, lie beyond the {limit:g} that the loss is computed for. Use a smaller learning rate."
        )
    middle = 0.5 if loss == "squared" else 0.0
    guesses = scores.argmax(1) if scores.shape[1] > 1 else (scores[:, 0] > middle).astype(int)
    return float((guesses == held.labels).mean())
