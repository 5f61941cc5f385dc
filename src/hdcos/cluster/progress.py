"""The live display of a run of training: on a terminal, and silent elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress

    from hdcos.cluster.transport import Status
    from hdcos.secure.training.watch import Epoch


class Display:
    """Epoch, steps per second, rounds, megabytes, material in stock, time left; without a bar, nothing."""

    def __init__(self, bar: Progress | None) -> None:
        self._bar = bar
        self._task = None if bar is None else bar.add_task("waiting", total=None, numbers="")
        self._last = (0, perf_counter())

    def update(self, status: Status) -> None:
        """Show what a party says of the job now."""
        if self._bar is None or self._task is None:
            return
        (step, moment), now = self._last, perf_counter()
        said, online = [], status["report"]["cost"]["online"]
        if status["step"] > step:
            said.append(f"{(status['step'] - step) / max(now - moment, 1e-9):.1f} steps/s")
            self._last = (status["step"], now)
        said.append(f"{online['rounds']:,} rounds, {online['bytes_sent'] / 1e6:,.0f} MB each way")
        if status.get("available") is not None:
            said.append(f"material for {status['available']} steps")
        epoch = min(status["epochs"], 1 + status["epoch"])
        running = status["state"] == "running"
        self._bar.update(
            self._task,
            total=status["total_steps"] or None,
            completed=status["step"],
            description=f"epoch {epoch}/{status['epochs']}" if running else status["state"],
            numbers=", ".join(said),
        )

    def note(self, epoch: Epoch) -> None:
        if self._bar is not None:
            self._bar.console.print(str(epoch), highlight=False)


@contextmanager
def shown(wanted: bool) -> Iterator[Display]:
    if not (wanted and sys.stderr.isatty()):
        yield Display(None)
        return
    from rich.console import Console  # a client without a terminal does without it
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(20),
        TextColumn("{task.fields[numbers]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        yield Display(bar)
