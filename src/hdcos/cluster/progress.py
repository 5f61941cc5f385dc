"""The live display of a run of training: on a terminal, and silent elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from hdcos.cluster.private_training import PrivateTraining
    from hdcos.secure.training.watch import Epoch


@dataclass
class Display:
    """Epoch, steps per second, rounds, megabytes, material in stock, time left."""

    training: PrivateTraining
    epochs: int
    bar: Progress
    task: TaskID
    steps: int = 0
    epoch_started: float = 0.0

    def advance(self, count: int, seconds: float) -> None:
        training = self.training
        self.steps += count
        epoch = min(self.epochs, 1 + training.step // training.steps_per_epoch)
        sent = self.steps * training.bytes_per_step / 1e6
        self.bar.update(
            self.task,
            completed=training.step,
            description=f"epoch {epoch}/{self.epochs}",
            numbers=(
                f"{count / seconds:.1f} steps/s, {self.steps * training.rounds_per_step:,} rounds, {sent:,.0f} MB each "
                f"way, material for {training.available} steps"
            ),
        )

    def epoch_s(self) -> float:
        """Seconds since the epoch began."""
        return perf_counter() - self.epoch_started

    def resume(self) -> None:
        """The next epoch begins."""
        self.epoch_started = perf_counter()

    def note(self, epoch: Epoch) -> None:
        if not self.bar.disable:
            self.bar.console.print(str(epoch), highlight=False)


@contextmanager
def shown(wanted: bool, training: PrivateTraining, epochs: int) -> Iterator[Display]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(20),
        TextColumn("{task.fields[numbers]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), disable=not (wanted and sys.stderr.isatty())) as bar:
        task = bar.add_task("training", total=training.settings.total_steps, completed=training.step, numbers="")
        yield Display(training, epochs, bar, task, epoch_started=perf_counter())
