"""`cluster.fit`: training on shares, from the caller's side."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from hdcos.api.settings import Settings
from hdcos.cluster.model import PrivateModel
from hdcos.cluster.opened import halves
from hdcos.cluster.private_training import PrivateTraining, Saving, kept
from hdcos.cluster.progress import shown
from hdcos.errors import HdcosError, InputError
from hdcos.nn import Sequential
from hdcos.nn.columns import Rows, column_names
from hdcos.secure.training import training_plan
from hdcos.secure.training.rates import Rate, epoch_rates
from hdcos.secure.training.targets import encoded_rows, named_sets, own_rows
from hdcos.secure.training.watch import SAMPLE, Epoch, Watch

if TYPE_CHECKING:
    from hdcos.cluster.cluster import Cluster
    from hdcos.cluster.job import Job

SECONDS_AT_ONCE = 1.0
"""Steps are asked for in pieces of about this long."""
OWN = "rows of this call"
Data = Rows | str | list[str] | tuple[str, ...]


def upload(cluster: Cluster, x: Rows, y: ArrayLike | None, name: str, outputs: int, loss: str | None = None) -> None:
    """Split one owner's rows between the parties."""
    words, record = encoded_rows(x, y, outputs, loss)
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
    watch: int = SAMPLE,
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
    decay are those of PyTorch's SGD. A rate that falls below what the arithmetic can take is kept at that, with a
    warning.

    After each epoch the caller sees private predictions for rows of its own: those of `validation`, else `watch` of the
    rows in `x`, if it passed rows and not names. `history` of the result has their loss and accuracy, and training that
    diverges ends with RangeError. This costs predictions, not training steps; `watch=0` goes without.

    With `checkpoint` each party writes its shares into that folder every `checkpoint_every` steps; `resume` goes on
    from the newest checkpoint that both hold, with fresh material.
    """
    if isinstance(epochs, bool) or not isinstance(epochs, int | np.integer) or epochs < 1:
        raise InputError(f"epochs are a whole number of at least 1, got {epochs!r}")
    model = model.remembering(column_names(x))
    form = training_plan(model, loss)  # refuses what cannot be trained before anything is sent
    watched = None if validation is None else Watch.validation(model, loss, validation)
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0):
        raise InputError(f"a seed is a whole number of at least 0, got {seed!r}")
    if checkpoint is not None and resume is not None and os.path.abspath(checkpoint) != os.path.abspath(resume):
        raise InputError("a resumed run goes on in its own folder: leave `checkpoint` out")
    if type(checkpoint_every) is not int or checkpoint_every < 1:
        raise InputError(f"checkpoints are written every so many steps, at least 1, got {checkpoint_every!r}")
    folder = resume if resume is not None else checkpoint
    place = "" if folder is None else os.path.abspath(folder)
    saving = Saving(place, checkpoint_every, resume is not None)
    if isinstance(batch_size, bool) or not isinstance(batch_size, int | np.integer) or batch_size < 1:
        raise InputError(f"a batch of {batch_size!r} rows cannot be drawn: it takes a whole number of at least 1")
    rates = epoch_rates(model, loss, int(batch_size), lr, schedule, int(epochs), momentum, weight_decay)
    named = named_sets(form, x, y)
    if named is None:
        own = own_rows(form, model, x, y, loss)
        watched = watched or Watch.sample(model, loss, own.rows, own.targets, watch)
        names, join, count = [f"{OWN} {secrets.token_hex(8)}"], "rows", len(own.rows)
    else:
        names, join = named
        (meta, _), _ = cluster.ask({"operation": "describe", "datasets": names, "join": join})
        count = int(meta["rows"])
    if batch_size > count:
        raise InputError(f"a batch of {batch_size} rows cannot be drawn from {count}")
    if seed is None:
        newest = kept(cluster, saving.folder).newest if saving.resume else None
        seed = int(newest["seed"]) if newest else secrets.randbits(32)
    steps_per_epoch = count // batch_size
    settings = Settings(loss, int(batch_size), int(seed), int(epochs) * steps_per_epoch, momentum, weight_decay)
    before = cluster.cost
    try:
        if named is None:
            upload(cluster, own.shared, own.targets, names[0], form.outputs)
        training = PrivateTraining(cluster, model, names, join, settings, min(rates), saving)
        with _closed_after(training):
            history = _run(training, rates, watched, progress, job)
            private = training.model(name)
    finally:
        if named is None:  # rows that came with the call, and go with it
            with suppress(HdcosError):
                cluster.ask({"operation": "forget_data", "name": names[0]})
    private.history, private.cost = history, cluster.cost.since(before)
    return private


def _run(
    training: PrivateTraining,
    rates: Sequence[float],
    watched: Watch | None,
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
                seconds = display.epoch_s()
                history.append(_looked(training, watched, epoch + 1, seconds) if watched else Epoch(epoch + 1, seconds))
                display.resume()
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


def _looked(training: PrivateTraining, watched: Watch, number: int, seconds: float) -> Epoch:
    """What private predictions for the caller's own rows say of the model as it is now."""
    snapshot = training.model(f"epoch {number} {secrets.token_hex(4)}")
    scores = snapshot.predict(watched.rows)
    snapshot.delete()
    return watched.epoch(number, seconds, scores)
