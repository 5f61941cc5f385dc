"""Training from the caller's side: shares of data and parameters go out, a private model comes back."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from hdcos.errors import InputError
from hdcos.nn import Sequential
from hdcos.nn.private import layout
from hdcos.ring import Array, encode
from hdcos.serve.model import PrivateModel
from hdcos.serve.opened import Opened, halves
from hdcos.train import training_form
from hdcos.train.form import INPUT_SCALE, TARGET_SCALE

if TYPE_CHECKING:
    from hdcos.serve.cluster import Cluster

STEPS_AT_ONCE = 50
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
    if rows.ndim != 2 or not len(rows):
        raise InputError(f"a data set is a table of at least one row, got shape {rows.shape}")
    words = {"x": encode(rows, INPUT_SCALE)}
    if y is not None:
        targets = one_hot(y, outputs)
        if len(targets) != len(rows):
            raise InputError(f"{len(rows)} rows and {len(targets)} labels do not belong together")
        words["targets"] = encode(targets, TARGET_SCALE)
    record = {"rows": len(rows), "features": rows.shape[1], "outputs": outputs if y is not None else 0}
    cluster.ask({"operation": "upload", "name": name, **record}, halves(words))


class PrivateTraining(Opened):
    """A run of training on uploaded data. Batches are drawn by public indices; everything else stays shared."""

    def __init__(
        self,
        cluster: Cluster,
        model: Sequential,
        datasets: Sequence[str],
        join: str,
        batch_size: int,
        loss: str = "logistic",
        seed: int | None = None,
    ) -> None:
        super().__init__(cluster, "training")
        form = training_form(model)
        self._model, self.batch = model, batch_size
        self.seed = secrets.randbits(32) if seed is None else seed
        state = model.state()
        words = {tensor.name: tensor.words(state[tensor.name]) for tensor in form.tensors}
        (planned, _), _ = self._ask(
            "open_training",
            halves(words),
            architecture=model.architecture(),
            datasets=list(datasets),
            join=join,
            loss=loss,
            batch=batch_size,
            seed=self.seed,
            rate=1.0,
        )
        self.rounds_per_step, self.bytes_per_step = planned["rounds"], planned["online_bytes"]
        self.rows = int(planned["rows"])
        self._step = 0

    @property
    def steps_per_epoch(self) -> int:
        return self.rows // self.batch

    def steps(self, count: int, rate: float) -> float:
        """Take so many steps; returns the seconds they took."""
        if not (np.isfinite(rate) and rate > 0):
            raise InputError(f"a learning rate is a positive number, got {rate}")
        (zero, _), (one, _) = self._ask("train", start=self._step, steps=count, rate=float(rate))
        self._step += count
        seconds = float(min(zero["seconds"], one["seconds"]))
        self._cluster.online_s += seconds
        return seconds

    def model(self, name: str) -> PrivateModel:
        """The parameters as they are now, as a model that can predict. Training may go on."""
        chosen = layout(self._model, self._cluster.phase_bits)
        private = PrivateModel(self._cluster, name, self._model, chosen)
        private._ask(
            "finish_training",
            training=self._scope,
            architecture=self._model.architecture(),
            phase_bits=self._cluster.phase_bits,
            ahead=0,
        )
        return private


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
    validation: tuple[ArrayLike, ArrayLike] | None = None,
    seed: int | None = None,
    progress: bool = True,
    name: str = "trained",
) -> PrivateModel:
    """Train on shares.

    `x` is an array with labels `y`, the name of an uploaded data set, a list of names (rows of several owners, one
    after another) or a tuple of names (columns of several owners, side by side, rows joined by position). `lr` is a
    number or a function of the epoch. With `validation` the caller, who owns these rows, sees private predictions for
    them after each epoch.
    """
    outputs = training_form(model).layers[-1].outputs
    if isinstance(x, str):
        x = [x]
    if isinstance(x, list | tuple) and x and all(isinstance(item, str) for item in x):
        names, join = [str(item) for item in x], "columns" if isinstance(x, tuple) else "rows"
        if y is not None:
            raise InputError("labels of uploaded data sets were uploaded with them: leave y out")
    else:
        if y is None:
            raise InputError("rows need labels: fit(model, x, y, ...)")
        names, join = [f"rows {secrets.token_hex(8)}"], "rows"
        rows = model.rows(x)
        if not 1 <= batch_size <= len(rows):
            raise InputError(f"a batch of {batch_size} rows cannot be drawn from {len(rows)}")
        upload(cluster, rows, y, names[0], outputs)
    training = PrivateTraining(cluster, model, names, join, batch_size, loss, seed)
    total = epochs * training.steps_per_epoch
    with _shown(progress, total) as (advance, note):
        for epoch in range(epochs):
            rate = lr(epoch) if callable(lr) else lr
            for count in _pieces(training.steps_per_epoch):
                seconds = training.steps(count, rate)
                sent = count * training.bytes_per_step / 1e6
                advance(count, f"epoch {epoch + 1}, {count / seconds:.0f} steps/s, {sent / seconds:.1f} MB/s")
            if validation is not None:
                note(f"epoch {epoch + 1}: {_accuracy(training, validation):.2%} of the validation rows")
    return training.model(name)


def _pieces(steps: int) -> Iterator[int]:
    for start in range(0, steps, STEPS_AT_ONCE):
        yield min(STEPS_AT_ONCE, steps - start)


def _accuracy(training: PrivateTraining, validation: tuple[ArrayLike, ArrayLike]) -> float:
    rows, labels = np.asarray(validation[0]), np.asarray(validation[1])
    with training.model("validation") as snapshot:
        scores = snapshot.predict(rows)
    guesses = scores.argmax(1) if scores.shape[1] > 1 else (scores[:, 0] > 0).astype(int)
    return float((guesses == labels).mean())


@contextmanager
def _shown(wanted: bool, total: int) -> Iterator[tuple[Callable[[int, str], None], Callable[[str], None]]]:
    """A live display on a terminal, and silence elsewhere: functions to advance it and to print a line."""
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), disable=not (wanted and sys.stderr.isatty())) as shown:
        task = shown.add_task("training", total=total)

        def advance(count: int, text: str) -> None:
            shown.update(task, advance=count, description=text)

        def note(text: str) -> None:
            if not shown.disable:
                shown.console.print(text)

        yield advance, note
