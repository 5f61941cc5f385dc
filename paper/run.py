"""An experiment from its name to rows in the file of results: what is there already is not trained again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple
from importlib import import_module
from itertools import groupby
from pathlib import Path
from time import monotonic

import torch

from hdcos.errors import InputError
from paper import results, tasks
from paper.cells import LEARNING_RATES, Cell
from paper.experiments import CRITEO, EXPERIMENTS, NAMES, UNTRAINED
from paper.rows import Pace, rows_of
from paper.trainer import train

TRIALS = 5
TOGETHER = {"mnist": 6, "fashion_mnist": 6, "higgs": 24}
"""Cells trained side by side: enough to fill a GPU with each data set's networks."""


def run(
    name: str,
    out: Path,
    *,
    epochs: int | None = None,
    trials: int = TRIALS,
    device: str = "cpu",
    rates: Sequence[float] = LEARNING_RATES,
    datasets: Sequence[str] = (),
    seconds: float | None = None,
    say: Callable[[str], None] = print,
) -> int:
    """Train the cells that are missing in `out` and append their runs; the number of cells trained, or of rows added.

    Where `epochs` is not given it is the paper's; cells with a part of the rows take as many steps in more epochs.
    `datasets` keeps only their cells. With `seconds`, no group of cells
    is begun that would probably end later than that.
    """
    if name not in NAMES:
        raise InputError(f"no experiment is called {name!r}: choose from {', '.join(NAMES)}")
    if name in UNTRAINED:
        return int(import_module(f"paper.{UNTRAINED[name]}").run(out))
    if name == CRITEO:
        return int(
            import_module("paper.criteo").run(out, epochs=epochs, trials=trials, rates=rates, device=device, say=say)
        )
    if device == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    begun, trained = monotonic(), 0
    longest: dict[str, float] = {}
    for cells in _groups(EXPERIMENTS[name], datasets):
        first = cells[0]
        task = tasks.load(first.dataset, first.inputs, device, first.part)
        length = round((task.epochs if epochs is None else epochs) / first.part)
        done = results.finished(results.read(out), rates, trials)
        missing = [cell for cell in cells if (*astuple(cell), length) not in done]
        if not missing:
            continue
        start = monotonic()
        if seconds is not None and start - begun + longest.get(first.dataset, 0) > seconds:
            say(f"{name}: stopped before {_label(missing)}, for lack of time")
            return trained
        trained_runs = train(missing, task, rates, trials, length)
        spent = monotonic() - start
        steps = length * (len(task.train_x) // task.batch_size)
        pace = Pace(len(missing) * len(rates) * trials, round(1e3 * spent / steps, 3))
        for cell, runs in zip(missing, trained_runs, strict=True):
            results.append(out, rows_of(name, cell, runs, task, length, pace))
        longest[first.dataset] = max(spent, longest.get(first.dataset, 0))
        trained += len(missing)
        say(f"{name}: {_label(missing)}: {length} epochs, {spent:.1f} s, {pace.ms_per_step:.3f} ms per step of all")
    return trained


def _groups(cells: Sequence[Cell], datasets: Sequence[str]) -> Iterator[list[Cell]]:
    kept = [cell for cell in cells if not datasets or cell.dataset in datasets]
    for (dataset, *_), group in groupby(kept, lambda cell: (cell.dataset, cell.inputs, cell.part)):
        members = list(group)
        size = TOGETHER[dataset]
        yield from (members[start : start + size] for start in range(0, len(members), size))


def _label(cells: Sequence[Cell]) -> str:
    kinds = ", ".join(
        f"{cell.activation} {cell.structure}"
        + (f" depth {cell.depth}" if cell.depth is not None else "")
        + (f" blocks {cell.blocks}" if cell.blocks > 1 else "")
        + f" {cell.optimizer}"
        for cell in cells
    )
    return f"{cells[0].dataset} [{kinds}]"
