"""Runs summarised by cell. As in the paper, a cell's score is the best mean over trials of any learning rate."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev

from paper.cells import LEARNING_RATES, Cell
from paper.results import Row, cell_of, is_training

BATCH = {"mnist": 128, "fashion_mnist": 128, "higgs": 256}
"""Rows of a step."""


@dataclass(frozen=True)
class AtRate:
    """The trials at one learning rate; accuracies in per cent."""

    mean: float
    deviation: float
    diverged: int
    surviving: float | None
    """The mean over the trials that did not diverge."""


@dataclass(frozen=True)
class Score:
    by_rate: dict[float, AtRate]
    trials: int
    epochs: int
    train_rows: int
    test_rows: int
    parameter_count: int
    steps: int

    @property
    def rate(self) -> float:
        """The best learning rate."""
        return max(self.by_rate, key=lambda rate: self.by_rate[rate].mean)

    @property
    def best(self) -> AtRate:
        return self.by_rate[self.rate]


class Scores:
    """All runs of a results file. A cell of which a run is missing has no score."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._rows: dict[Cell, dict[int, dict[tuple[float, int], Row]]] = defaultdict(lambda: defaultdict(dict))
        self.untrained: list[Row] = []
        """Rows of experiments without training."""
        for row in rows:
            if not is_training(row):
                self.untrained.append(row)
                continue
            self._rows[cell_of(row)][row["epochs"]][row["lr"], row["seed"]] = row

    def epochs(self, cells: Sequence[Cell]) -> int | None:
        """The number of epochs for which most of the cells were trained, so that like is compared with like."""
        counts = Counter(
            epochs for cell in map(_one, cells) for epochs in self.lengths(cell) if self.score(cell, epochs) is not None
        )
        return max(counts, key=lambda epochs: (counts[epochs], epochs)) if counts else None

    def longest(self, cell: Cell) -> Score | None:
        """The score after the longest training of which no run is missing."""
        found = (self.score(cell, epochs) for epochs in reversed(self.lengths(cell)))
        return next((score for score in found if score is not None), None)

    def lengths(self, cell: Cell) -> list[int]:
        """Every number of epochs for which the cell was trained."""
        return sorted(self._rows.get(_one(cell), {}))

    def score(self, cell: Cell, epochs: int | None) -> Score | None:
        """The score at all learning rates; None where a run is missing."""
        tried = self.tried(cell, epochs)
        return tried if tried is not None and set(tried.by_rate) == set(LEARNING_RATES) else None

    def tried(self, cell: Cell, epochs: int | None) -> Score | None:
        """The score at those learning rates that were tried, for runs that are not in the paper's tables."""
        runs = self._rows.get(_one(cell), {}).get(epochs or 0, {})
        if not runs:
            return None
        rates, trials = sorted({rate for rate, _ in runs}), 1 + max(seed for _, seed in runs)
        if len(runs) != trials * len(rates):
            return None
        some = next(iter(runs.values()))
        by_rate = {rate: _at_rate([runs[rate, seed] for seed in range(trials)]) for rate in rates}
        sizes = (some["epochs"], some["train_rows"], some["test_rows"], some["parameter_count"])
        return Score(by_rate, trials, *sizes, some["epochs"] * (some["train_rows"] // BATCH.get(cell.dataset, 128)))

    def after(self, cell: Cell, epoch: int, rates: Sequence[float]) -> float | None:
        """The best mean accuracy after `epoch` epochs of any run, longer ones too: no schedule tells them apart."""
        means = []
        for rate in rates:
            at = {
                seed: row["curve"][str(epoch)]
                for runs in self._rows.get(_one(cell), {}).values()
                for (run_rate, seed), row in runs.items()
                if run_rate == rate and str(epoch) in row["curve"]
            }
            if at:
                means.append(100 * fmean(at.values()))
        return max(means, default=None)


def _one(cell: Cell) -> Cell:
    """Without hidden layers every activation is the same network."""
    return replace(cell, activation="none") if cell.depth == 0 else cell


def _at_rate(rows: Sequence[Row]) -> AtRate:
    values = [100 * row["value"] for row in rows]
    surviving = [100 * row["value"] for row in rows if row["diverged_at"] is None]
    return AtRate(
        fmean(values),
        stdev(values) if len(values) > 1 else 0.0,
        len(values) - len(surviving),
        fmean(surviving) if surviving else None,
    )
