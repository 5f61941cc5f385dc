"""The fewest pairs of workers and dealers that end a run of training in time.

More pairs take smaller parts of each step, but all of them wait for its rounds, and their changes are added one after
another: from some number on, more pairs take longer.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, prod

from hdcos.errors import InputError
from hdcos.link import Emulation
from hdcos.nn import Network
from hdcos.party.group import LEAST_PART, most_pairs
from hdcos.planning.costs import StepCosts, training_costs
from hdcos.planning.figures import Figures
from hdcos.planning.machines import Machines
from hdcos.planning.needs import (
    LARGEST,
    SPARE,
    WORD_BYTES,
    Need,
    fewest,
    name_limit,
    needs_of,
    part_of,
    part_of_lines,
)
from hdcos.planning.training import StepOutcome, Training
from hdcos.secure.training import training_plan

GROWTH, WORSE = 1.15, 1.3
"""How much larger the next cluster is that is tried, and how much slower than the best the last one may be."""


@dataclass(frozen=True)
class Run:
    """What shall be trained."""

    rows: int
    epochs: int
    batch: int

    @property
    def steps(self) -> int:
        return self.rows // self.batch * self.epochs


@dataclass(frozen=True)
class TrainingPlan:
    """What a run of training needs."""

    steps: int
    batch: int
    pairs: int
    dealers: int
    needs: tuple[Need, ...]
    step_s: float
    rows_per_s: float
    hours: float
    limit: str
    spent: dict[str, float]


def plan_training(
    model: Network,
    figures: Figures,
    run: Run,
    network: Emulation,
    *,
    hours: float | None = None,
    pairs: int | None = None,
) -> TrainingPlan:
    """The fewest pairs that end a run within these hours, with time to spare; or what a number of pairs takes."""
    if not run.steps:
        raise InputError(f"{run.rows} rows do not fill a batch of {run.batch}: choose a smaller one")
    return _Sizing(model, figures, run, network).plan(hours, pairs)


class _Sizing:
    """Clusters of different sizes that train one network."""

    def __init__(self, model: Network, figures: Figures, run: Run, network: Emulation) -> None:
        self._model, self._run, self._network = model, run, network
        self._figures = figures.of(model)

    def plan(self, hours: float | None, pairs: int | None) -> TrainingPlan:
        pairs = pairs or (1 if hours is None else self._fewest_pairs(hours))
        if pairs > most_pairs(self._run.batch):
            raise InputError(
                f"{pairs} pairs cannot divide a batch of {self._run.batch} rows, {LEAST_PART} or more to each: "
                f"choose a larger one"
            )
        alone_s = self._step(pairs, pairs).step_s
        dealers = fewest(ceil(pairs / LARGEST), pairs, lambda count: self._step(pairs, count).step_s <= 1.02 * alone_s)
        outcome, costs = self._step(pairs, dealers), self._costs(pairs)
        return TrainingPlan(
            self._run.steps,
            self._run.batch,
            pairs,
            dealers,
            self._needs(pairs, dealers, outcome, costs),
            outcome.step_s,
            self._run.batch / outcome.step_s,
            self._hours(outcome.step_s),
            name_limit(outcome.use.spent, costs, pairs, dealers, self._network),
            outcome.use.spent,
        )

    def _costs(self, pairs: int) -> StepCosts:
        return training_costs(self._model, self._figures, ceil(self._run.batch / pairs))

    def _step(self, pairs: int, dealers: int) -> StepOutcome:
        part, adding_s = min(1.0, LARGEST / pairs), (pairs - 1) * self._figures.adding_s
        machines, lines = part_of(Machines(pairs, dealers), part), part_of_lines(self._network, part)
        return Training(self._costs(pairs), machines, lines, adding_s).run()

    def _hours(self, step_s: float) -> float:
        return self._run.steps * step_s / 3600

    def _fewest_pairs(self, hours: float) -> int:
        tried: dict[int, float] = {}
        pairs, enough_s = 1, hours * (1 - SPARE)
        while pairs <= most_pairs(self._run.batch) and (not tried or tried[max(tried)] < WORSE * min(tried.values())):
            tried[pairs] = self._hours(self._step(pairs, pairs).step_s)
            if tried[pairs] <= enough_s:
                fewer = max((count for count in tried if count < pairs), default=0)
                return fewest(fewer + 1, pairs, lambda count: self._hours(self._step(count, count).step_s) <= enough_s)
            pairs = max(pairs + 1, int(pairs * GROWTH))
        best = min(tried, key=tried.__getitem__)
        raise InputError(
            f"{self._run.steps:,} steps on {self._run.batch} rows take {tried[best] / (1 - SPARE):.3g} hours at least, "
            f"with {best} pairs and {SPARE:.0%} to spare: choose a larger batch, or more hours"
        )

    def _needs(self, pairs: int, dealers: int, outcome: StepOutcome, costs: StepCosts) -> tuple[Need, ...]:
        rows = self._run.batch / pairs  # the mean: parts may differ by a row
        between = pairs * costs.wire.of(rows) / outcome.step_s
        dealt, common = (pairs * sent.of(rows) / outcome.step_s for sent in (costs.dealt, costs.common))
        plan = training_plan(self._model, "logistic")
        kept = self._run.rows * WORD_BYTES * (prod(plan.input_shape) + plan.outputs)
        part = min(1.0, LARGEST / pairs)
        cores = ceil(outcome.use.party_cores / part / (1 - SPARE))
        memory = pairs * costs.memory.of(costs.ahead)
        flows = ((between + common, between), (between + dealt, between), (0.0, dealt + common))
        return needs_of(self._figures, pairs, dealers, cores, memory, flows, kept / 1e9)
