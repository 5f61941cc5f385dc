"""What a run is trained on: rows and targets, checked, and as ring words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hdcos.checks import check_owned
from hdcos.errors import InputError
from hdcos.nn import Flatten, Network
from hdcos.nn.columns import Rows
from hdcos.ring import Array, encode
from hdcos.secure.reader import apply_front
from hdcos.secure.training.plan import INPUT_SCALE, TARGET_SCALE, TrainingPlan
from hdcos.secure.training.weights import ClassWeight, check_weights, class_weights, row_weights

REGRESSION = "for a regression use loss='squared' and a network with one output"
LARGEST_TARGET = 128.0
"""Of the squared loss: logits near it fit the ring of every last layer."""


def one_hot(y: ArrayLike, outputs: int, loss: str | None = None) -> Array:
    """Targets of one output per class from labels; a matrix of targets passes as it is.

    With the squared loss and one output, a row of numbers holds the targets themselves: a regression.
    """
    labels = np.asarray(y)
    if loss == "squared" and outputs == 1 and labels.ndim == 1:
        labels = labels[:, None]
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise InputError("the labels contain NaN or infinity")
    if labels.ndim == 2:
        if labels.shape[1] != outputs or labels.dtype.kind not in "iubf":
            raise InputError(f"targets of shape {labels.shape} do not fit a network with {outputs} outputs")
        if np.abs(labels).max(initial=0) > LARGEST_TARGET:
            raise InputError(
                f"targets may reach {LARGEST_TARGET:g} in size, these reach {np.abs(labels).max():g}: divide them by "
                f"their size first, and multiply predictions by it"
            )
        return labels.astype(np.float64)
    if labels.ndim != 1 or labels.dtype.kind not in "iubf":
        raise InputError(f"labels are a row of whole numbers, got {labels.dtype} of shape {labels.shape}")
    if (labels != np.rint(labels)).any():
        raise InputError(f"labels are a row of whole numbers, got {labels.dtype} that are not; {REGRESSION}")
    classes = max(2, outputs)
    if labels.size and (labels.min() < 0 or labels.max() >= classes):
        advice = f"; {REGRESSION}" if outputs == 1 else ""
        raise InputError(
            f"labels from {labels.min():g} to {labels.max():g} do not fit classes 0 to {classes - 1}{advice}"
        )
    if outputs == 1:
        return labels[:, None].astype(np.float64)
    targets: Array = (labels[:, None] == np.arange(outputs)).astype(np.float64)
    return targets


def encode_rows(
    x: Array, y: Array | None, outputs: int, loss: str | None = None, weights: Array | None = None
) -> Array:
    """Rows, and their labels if there are some, as ring words: those of the features, then those of the targets, then
    the row's weight if rows have weights."""
    words = encode(np.asarray(x, dtype=np.float64).reshape(len(x), -1), INPUT_SCALE)
    if y is None:
        return words
    targets = one_hot(y, outputs, loss)
    if loss is not None:
        check_targets(targets, loss)
    parts = [words, encode(targets, TARGET_SCALE)]
    if weights is not None:
        known = check_weights(weights, outputs, loss, "weights", targets)
        parts.append(encode(known, TARGET_SCALE)[:, None])
    return np.hstack(parts)


def check_targets(targets: Array, loss: str) -> None:
    """Targets that a loss can be computed for."""
    if loss == "softmax" and not (((targets == 0) | (targets == 1)).all() and (targets.sum(1) == 1).all()):
        raise InputError("softmax takes one class per row: labels, or rows of zeros with a single one")
    if loss == "logistic" and (targets.min(initial=0) < 0 or targets.max(initial=0) > 1):
        raise InputError("the logistic loss takes targets from 0 to 1")


@dataclass(frozen=True)
class OwnRows:
    """Rows that came with a call, checked: as the network takes them, behind its leading public layers, and targets."""

    rows: Array
    shared: Array
    targets: Array
    weights: Array | None = None
    """Of each row, that of its class included."""


def own_rows(
    plan: TrainingPlan,
    model: Network,
    x: Rows,
    y: ArrayLike | None,
    loss: str,
    sample_weight: ArrayLike | None = None,
    class_weight: ClassWeight = None,
) -> OwnRows:
    if y is None:
        if isinstance(x, list | tuple) and not x:
            raise InputError("no data set is named: give rows, or names of uploaded data sets")
        raise InputError("rows need labels: fit(model, x, y, ...)")
    rows, targets = model.rows(x), one_hot(y, plan.outputs, loss)
    if len(targets) != len(rows):
        raise InputError(f"{len(rows)} rows and {len(targets)} labels do not belong together")
    check_targets(targets, loss)
    labels = targets.argmax(1) if plan.outputs > 1 else targets[:, 0]
    known = class_weights(class_weight, plan.outputs, loss, labels)
    weights = row_weights(sample_weight, known, targets, loss)
    return OwnRows(rows, apply_front(plan.front, rows), targets, weights)


def named_sets(plan: TrainingPlan, x: Any, y: ArrayLike | None) -> tuple[list[str], str] | None:
    """Names of uploaded data sets and how they are joined, if that is what was passed instead of rows."""
    if isinstance(x, str):
        x = [x]
    if not (isinstance(x, list | tuple) and x and all(isinstance(item, str) for item in x)):
        return None
    if y is not None:
        raise InputError("labels of uploaded data sets were uploaded with them: leave y out")
    if any(not isinstance(layer, Flatten) for layer in plan.front):
        raise InputError(f"apply the leading {plan.front[0].kind} before uploading, and train what follows it")
    return [check_owned(item) for item in x], "columns" if isinstance(x, tuple) else "rows"
