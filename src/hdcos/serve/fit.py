"""`cluster.fit`: training on shares, from the caller's side."""

from __future__ import annotations

import math
import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from hdcos.errors import CheckpointMismatch, InputError, RangeError
from hdcos.nn import Flatten, Sequential
from hdcos.ring import Array, encode
from hdcos.serve.model import PrivateModel
from hdcos.serve.opened import halves
from hdcos.serve.private_training import PrivateTraining, Saving
from hdcos.serve.progress import shown
from hdcos.serve.training import Settings
from hdcos.train import training_form
from hdcos.train.form import INPUT_SCALE, TARGET_SCALE

if TYPE_CHECKING:
    from hdcos.serve.cluster import Cluster
    from hdcos.serve.job import Job

SECONDS_AT_ONCE = 1.0
"""Steps are asked for in pieces of about this long."""
FITTED = 32.0
"""Logits that the sigmoid of the losses is good for; beyond it gradients are wrong."""
Rate = float | Callable[[int], float]
Data = ArrayLike | str | list[str] | tuple[str, ...]


def one_hot(y: ArrayLike, outputs: int) -> Array:
    """Targets of one output per class from labels; a matrix of targets passes as it is."""
    labels = np.asarray(y)
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise InputError("the labels contain NaN or infinity")
    if labels.ndim == 2:
        if labels.shape[1] != outputs:
            raise InputError(f"targets of shape {labels.shape} do not fit a network with {outputs} outputs")
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


def upload(cluster: Cluster, x: ArrayLike, y: ArrayLike | None, name: str, outputs: int) -> None:
    """Split one owner's rows between the parties."""
    rows = np.asarray(x, dtype=np.float64)
    if rows.ndim < 2 or not rows.size:
        raise InputError(f"a data set is a table of at least one row, got shape {rows.shape}")
    rows = rows.reshape(len(rows), -1)
    words = {"x": encode(rows, INPUT_SCALE)}
    if y is not None:
        targets = one_hot(y, outputs)
        if len(targets) != len(rows):
            raise InputError(f"{len(rows)} rows and {len(targets)} labels do not belong together")
        words["targets"] = encode(targets, TARGET_SCALE)
    record = {"rows": len(rows), "features": rows.shape[1], "outputs": outputs if y is not None else 0}
    cluster.ask({"operation": "upload", "name": name, **record}, halves(words))


@dataclass(frozen=True)
class Epoch:
    """What the caller learned about one epoch."""

    number: int
    seconds: float
    accuracy: float | None
    """Of the validation rows, if there are any."""


def fit(
    cluster: Cluster,
    model: Sequential,
    x: Data,
    y: ArrayLike | None = None,
    *,
    epochs: int,
    batch_size: int,
    lr: Rate,
    loss: str = "logistic",
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    schedule: Callable[[int], float] | None = None,
    validation: tuple[ArrayLike, ArrayLike] | None = None,
    seed: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: int = 100,
    resume: str | os.PathLike[str] | None = None,
    progress: bool = True,
    name: str = "trained",
    job: Job | None = None,
) -> PrivateModel:
    """Train on shares.

    `x` is an array with labels `y`, the name of an uploaded data set, a list of names (rows of several owners, one
    after another) or a tuple of names (columns of several owners, side by side, rows joined by position).

    `lr` is a number or a function of the epoch; `schedule`, a function of the epoch, multiplies it. Momentum and weight
    decay are those of PyTorch's SGD. With `validation` the caller, who owns these rows, sees private predictions for
    them after each epoch; `history` of the result has their accuracy, and training that diverges ends with RangeError.

    With `checkpoint` each party writes its shares into that folder every `checkpoint_every` steps; `resume` goes on
    from the newest checkpoint that both hold, with fresh material.
    """
    if isinstance(epochs, bool) or not isinstance(epochs, int | np.integer) or epochs < 1:
        raise InputError(f"epochs are a whole number of at least 1, got {epochs!r}")
    training_form(model, loss)  # refuses what cannot be trained before anything is sent
    names, join, count = _uploaded(cluster, model, x, y, batch_size)
    folder = resume if resume is not None else checkpoint
    saving = Saving(
        os.fspath(os.path.abspath(folder)) if folder is not None else "", checkpoint_every, resume is not None
    )
    if seed is None:
        seed = _kept_seed(cluster, saving) if saving.resume else secrets.randbits(32)
    steps_per_epoch = count // batch_size

    def rate(epoch: int) -> float:
        value = lr(epoch) if callable(lr) else lr
        return float(value * schedule(epoch) if schedule else value)

    settings = Settings(loss, batch_size, seed, epochs * steps_per_epoch, momentum, weight_decay)
    training = PrivateTraining(cluster, model, names, join, settings, rate(0), saving)
    if job is not None:
        job.step, job.total_steps = training.step, settings.total_steps
    history: list[Epoch] = []
    with shown(progress, training, epochs) as display:
        step_s = 0.0
        while training.step < settings.total_steps:
            epoch, done = divmod(training.step, steps_per_epoch)
            at_once = max(1, min(200, int(SECONDS_AT_ONCE / step_s))) if step_s else 2
            taken = min(at_once, steps_per_epoch - done)
            seconds = training.steps(taken, rate(epoch))
            step_s = seconds / taken
            display.advance(taken, seconds)
            if done + taken == steps_per_epoch:
                accuracy = _validated(training, validation, loss, epoch) if validation is not None else None
                history.append(Epoch(epoch + 1, display.epoch_s(), accuracy))
                display.note(history[-1])
            if job is not None:
                job.step = training.step
                if job.cancelled:
                    break
    private = training.model(name)
    training.close()
    private.history = history
    return private


def _uploaded(
    cluster: Cluster, model: Sequential, x: Data, y: ArrayLike | None, batch_size: int
) -> tuple[list[str], str, int]:
    """The names of the data sets, how they are joined, and how many rows that makes."""
    if isinstance(batch_size, bool) or not isinstance(batch_size, int | np.integer) or batch_size < 1:
        raise InputError(f"a batch of {batch_size!r} rows cannot be drawn: it takes a whole number of at least 1")
    form = training_form(model)
    if isinstance(x, str):
        x = [x]
    if isinstance(x, list | tuple) and x and all(isinstance(item, str) for item in x):
        if y is not None:
            raise InputError("labels of uploaded data sets were uploaded with them: leave y out")
        if any(not isinstance(layer, Flatten) for layer in form.front):
            raise InputError(f"apply the leading {form.front[0].kind} before uploading, and train what follows it")
        names, join = [str(item) for item in x], "columns" if isinstance(x, tuple) else "rows"
        (meta, _), _ = cluster.ask({"operation": "describe", "datasets": names, "join": join})
        rows = int(meta["rows"])
    else:
        if y is None:
            raise InputError("rows need labels: fit(model, x, y, ...)")
        names, join = [f"rows {secrets.token_hex(8)}"], "rows"
        values = model.rows(x)
        rows = len(values)
        if batch_size <= rows:
            for layer in form.front:
                values = layer.forward({}, values)
            upload(cluster, values, y, names[0], form.outputs)
    if batch_size > rows:
        raise InputError(f"a batch of {batch_size} rows cannot be drawn from {rows}")
    return names, join, rows


def _kept_seed(cluster: Cluster, saving: Saving) -> int:
    """The seed of the run that is resumed."""
    (meta, _), _ = cluster.ask({"operation": "checkpoints", "folder": saving.folder})
    try:
        return int(meta["record"]["settings"]["seed"])
    except KeyError:
        raise CheckpointMismatch(f"there is no checkpoint in {saving.folder}") from None


def _validated(training: PrivateTraining, validation: tuple[ArrayLike, ArrayLike], loss: str, epoch: int) -> float:
    """The accuracy of private predictions for the caller's own rows; RangeError if they show that training diverged."""
    rows, labels = np.asarray(validation[0]), np.asarray(validation[1])
    with training.model(f"validation {secrets.token_hex(4)}") as snapshot:
        scores = snapshot.predict(rows)
    far = float(np.mean(np.abs(scores) > FITTED))
    largest = float(np.abs(scores).max(initial=0.0))
    if far > 0.01 and loss != "squared":
        raise RangeError(
            f"training diverged in epoch {epoch + 1}: {far:.0%} of the logits of the validation rows, up to "
            f"{largest:.3g}, lie beyond the {FITTED:g} that the loss is computed for. Use a smaller learning rate."
        )
    if not math.isfinite(largest):
        raise RangeError(f"training diverged in epoch {epoch + 1}")
    guesses = (
        scores.argmax(1) if scores.shape[1] > 1 else (scores[:, 0] > (0.5 if loss == "squared" else 0)).astype(int)
    )
    return float((guesses == labels).mean())
