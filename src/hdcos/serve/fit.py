"""`cluster.fit`: training on shares, from the caller's side."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from hdcos.errors import HdcosError, InputError
from hdcos.nn import Flatten, Sequential
from hdcos.nn.columns import Rows, column_names
from hdcos.serve.model import PrivateModel
from hdcos.serve.opened import halves
from hdcos.serve.private_training import PrivateTraining, Saving, kept
from hdcos.serve.progress import shown
from hdcos.serve.training import Settings
from hdcos.train import training_form
from hdcos.train.targets import (
    Epoch,
    HeldOut,
    Rate,
    accuracy,
    check_targets,
    encoded_rows,
    held_out,
    learning_rate,
    one_hot,
)

if TYPE_CHECKING:
    from hdcos.serve.cluster import Cluster
    from hdcos.serve.job import Job

SECONDS_AT_ONCE = 1.0
"""Steps are asked for in pieces of about this long."""
OWN = "rows of this call"
Data = Rows | str | list[str] | tuple[str, ...]


def upload(cluster: Cluster, x: Rows, y: ArrayLike | None, name: str, outputs: int) -> None:
    """Split one owner's rows between the parties."""
    words, record = encoded_rows(x, y, outputs)
    cluster.ask({"operation": "upload", "name": name, **record}, halves(words))


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
    validation: tuple[Rows, ArrayLike] | None = None,
    seed: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: int = 100,
    resume: str | os.PathLike[str] | None = None,
    progress: bool = True,
    name: str = "trained",
    job: Job | None = None,
) -> PrivateModel:
    """Train on shares.

    `x` is an array or a table (a DataFrame) with labels `y`, the name of an uploaded data set, a list of names (rows of
    several owners, one after another) or a tuple of names (columns of several owners, side by side, rows joined by
    position). Columns that have names are found by them, in whatever order each owner has them, and the trained model
    remembers the names.

    `lr` is a number or a function of the epoch; `schedule`, a function of the epoch, multiplies it. Momentum and weight
    decay are those of PyTorch's SGD. With `validation` the caller, who owns these rows, sees private predictions for
    them after each epoch; `history` of the result has their accuracy, and training that diverges ends with RangeError.

    With `checkpoint` each party writes its shares into that folder every `checkpoint_every` steps; `resume` goes on
    from the newest checkpoint that both hold, with fresh material.
    """
    if isinstance(epochs, bool) or not isinstance(epochs, int | np.integer) or epochs < 1:
        raise InputError(f"epochs are a whole number of at least 1, got {epochs!r}")
    model = model.remembering(column_names(x))
    form = training_form(model, loss)  # refuses what cannot be trained before anything is sent
    held = None if validation is None else held_out(model, form.outputs, validation)
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0):
        raise InputError(f"a seed is a whole number of at least 0, got {seed!r}")
    if checkpoint is not None and resume is not None and os.path.abspath(checkpoint) != os.path.abspath(resume):
        raise InputError("a resumed run goes on in its own folder: leave `checkpoint` out")
    if type(checkpoint_every) is not int or checkpoint_every < 1:
        raise InputError(f"checkpoints are written every so many steps, at least 1, got {checkpoint_every!r}")
    folder = resume if resume is not None else checkpoint
    place = "" if folder is None else os.path.abspath(folder)
    saving = Saving(place, checkpoint_every, resume is not None)
    names, join, count = _uploaded(cluster, model, x, y, batch_size, loss)
    if seed is None:
        newest = kept(cluster, saving.folder).newest if saving.resume else None
        seed = int(newest["seed"]) if newest else secrets.randbits(32)
    steps_per_epoch = count // batch_size

    rates = [learning_rate(lr, schedule, epoch) for epoch in range(epochs)]
    settings = Settings(loss, int(batch_size), int(seed), int(epochs) * steps_per_epoch, momentum, weight_decay)
    try:
        training = PrivateTraining(cluster, model, names, join, settings, min(rates), saving)
        with _closed_after(training):
            history = _run(training, rates, held, progress, job)
            private = training.model(name)
    finally:
        if names[0].startswith(OWN):  # rows that came with the call, and go with it
            with suppress(HdcosError):
                cluster.ask({"operation": "forget_data", "name": names[0]})
    private.history = history
    return private


def _run(
    training: PrivateTraining,
    rates: Sequence[float],
    held: HeldOut | None,
    progress: bool,
    job: Job | None,
) -> list[Epoch]:
    """Take all steps that are left, in pieces of about a second."""
    history: list[Epoch] = []
    total, steps_per_epoch = training.settings.total_steps, training.steps_per_epoch
    with shown(progress, training, len(rates)) as display:
        step_s = 0.0
        while training.step < total:
            if job is not None:
                job.step, job.total_steps = training.step, total
                if job.cancelled and step_s:
                    break
            epoch, done = divmod(training.step, steps_per_epoch)
            at_once = max(1, min(200, int(SECONDS_AT_ONCE / step_s))) if step_s else 2
            taken = min(at_once, steps_per_epoch - done)
            seconds = training.steps(taken, rates[epoch])
            step_s = seconds / taken
            display.advance(taken, seconds)
            if done + taken == steps_per_epoch:
                accuracy = _validated(training, held, epoch) if held is not None else None
                history.append(Epoch(epoch + 1, display.epoch_s(), accuracy))
                display.note(history[-1])
    if job is not None:
        job.step, job.total_steps = training.step, total
    return history


@contextmanager
def _closed_after(training: PrivateTraining) -> Iterator[None]:
    """Let the parties forget the run, however it ends."""
    try:
        yield
    except BaseException:
        with suppress(HdcosError):
            training.close()
        raise
    training.close()


def _uploaded(
    cluster: Cluster, model: Sequential, x: Data, y: ArrayLike | None, batch_size: int, loss: str
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
            if isinstance(x, list | tuple) and not x:
                raise InputError("no data set is named: give rows, or names of uploaded data sets")
            raise InputError("rows need labels: fit(model, x, y, ...)")
        names, join = [f"{OWN} {secrets.token_hex(8)}"], "rows"
        values = model.rows(x)
        rows = len(values)
        if batch_size <= rows:
            check_targets(one_hot(y, form.outputs), loss)
            for layer in form.front:
                values = layer.forward({}, values)
            upload(cluster, values, y, names[0], form.outputs)
    if batch_size > rows:
        raise InputError(f"a batch of {batch_size} rows cannot be drawn from {rows}")
    return names, join, rows


def _validated(training: PrivateTraining, held: HeldOut, epoch: int) -> float:
    """The accuracy of private predictions for the caller's own rows."""
    snapshot = training.model(f"validation {secrets.token_hex(4)}")
    scores = snapshot.predict(held.rows)
    snapshot.delete()
    return accuracy(scores, held, training.settings.loss, epoch)
