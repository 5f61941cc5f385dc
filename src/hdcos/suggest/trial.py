"""One candidate, trained on some rows in plaintext and judged by others after every epoch.

What is judged after an epoch is the model of a run that ends there: the mean of the weights of its later epochs.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from time import monotonic

import numpy as np

from hdcos import nn
from hdcos.errors import ModelError
from hdcos.evaluation.metrics import log_odds
from hdcos.ring import Array
from hdcos.secure.training import TrainingPlan, training_plan
from hdcos.secure.training.plain import plain_fit
from hdcos.secure.training.targets import one_hot
from hdcos.secure.training.watch import largest_output
from hdcos.suggest.candidates import Candidate, averaged_epochs
from hdcos.suggest.scaling import Scaling

ROOM, LOGIT_ROOM = 1.25, 1.1
"""What parameters and logits may grow by when all rows are trained on."""
LOOKED_AT, FAR_PART = 1000, 0.003
"""Rows that are trained on whose logits are looked at, and the part of them that may be too large."""
PATIENCE = 6
"""Epochs without a better one after which a trial stops."""


@dataclass(frozen=True)
class Rows:
    """Rows and their labels, or numbers to be guessed."""

    x: Array
    y: Array

    def __len__(self) -> int:
        return len(self.x)

    def part(self, places: Array) -> Rows:
        return Rows(self.x[places], self.y[places])


@dataclass(frozen=True)
class Outcome:
    """How a candidate did on the rows that judged it, after each epoch: smaller losses are better."""

    losses: tuple[float, ...]
    """Log loss, or the mean squared error in units of what is guessed."""
    scores: tuple[float, ...]
    """Accuracy, or the root of the mean squared error."""
    rows: int
    cut: bool
    """Whether it ended because the arithmetic on shares could not hold what comes next."""


def run_trial(
    candidate: Candidate, train: Rows, judge: Rows, epochs: int, seed: int, deadline: float = np.inf
) -> Outcome:
    """Train, and judge after every epoch, as far as the arithmetic on shares could hold the network."""
    regression = candidate.loss == "squared"
    scaling = Scaling.of(candidate.scale, train.x, train.y, regression)
    model, outputs = candidate.network(seed), candidate.sizes[-1]
    plan = training_plan(model, candidate.loss)
    targets = one_hot(scaling.targets(train.y) if regression else train.y, outputs, candidate.loss)
    limit = largest_output(model, candidate.loss) / (LOGIT_ROOM * candidate.room)
    x = scaling.rows(judge.x)
    learned = scaling.rows(train.x[:LOOKED_AT])
    losses: list[float] = []
    scores: list[float] = []
    cut, means = False, _Means()

    def after_epoch(number: int, trained: nn.Network) -> bool:
        nonlocal cut
        means.end_epoch()
        logits = trained(x)
        mean = means.of(averaged_epochs(number))
        loss, score = judged(trained.with_state(mean)(x) if mean else logits, judge.y, scaling, regression)
        far = np.abs(np.concatenate([logits, trained(learned)])).max(1) > limit
        cut = not np.isfinite(loss) or bool(far.mean() > FAR_PART) or not _fits(plan, trained)
        if cut:
            return True
        losses.append(loss)
        scores.append(score)
        return len(losses) - 1 - int(np.argmin(losses)) >= PATIENCE or monotonic() > deadline

    with warnings.catch_warnings(), np.errstate(all="ignore"):  # what diverges is not finite, which is said by its loss
        warnings.simplefilter("ignore", RuntimeWarning)
        try:
            plain_fit(
                *(model, scaling.rows(train.x), targets, epochs, min(candidate.batch_size, len(train))),
                rate=lambda epoch: candidate.lr,
                seed=seed,
                momentum=candidate.momentum,
                loss=candidate.loss,
                weight_decay=candidate.weight_decay,
                after_epoch=after_epoch,
                before_step=means.add,
            )
        except ModelError:  # parameters that are not finite any more
            cut = True
    return Outcome(tuple(losses), tuple(scores), len(judge), cut)


@dataclass
class _Means:
    """Sums of the parameters that steps began with, up to the end of each epoch."""

    total: dict[str, Array] = field(default_factory=dict)
    steps: int = 0
    ends: list[tuple[int, dict[str, Array]]] = field(default_factory=list)

    def add(self, state: dict[str, Array]) -> None:
        self.total = {name: self.total[name] + value if self.total else value.copy() for name, value in state.items()}
        self.steps += 1

    def end_epoch(self) -> None:
        self.ends.append((self.steps, self.total))

    def of(self, epochs: int) -> dict[str, Array]:
        """The mean over the last epochs; nothing over none."""
        if not epochs:
            return {}
        steps, before = self.ends[-1 - epochs]
        return {name: (value - before[name]) / (self.steps - steps) for name, value in self.total.items()}


def judged(logits: Array, truth: Array, scaling: Scaling, regression: bool) -> tuple[float, float]:
    """Loss and score of outputs."""
    if regression:
        apart = logits[:, 0] * scaling.target_size + scaling.target_mean - truth
        squared = float((apart**2).mean())
        return squared, squared**0.5
    if not np.isfinite(logits).all():
        return np.inf, 0.0
    labels = truth.astype(np.int64)
    odds = log_odds(logits)
    own = np.where(labels == 1, odds[:, 0], -odds[:, 0]) if logits.shape[1] == 1 else odds[range(len(labels)), labels]
    guessed = logits[:, 0] > 0 if logits.shape[1] == 1 else logits.argmax(1)
    return float(np.logaddexp(0, -own).mean()), float((guessed == labels).mean())


def _fits(plan: TrainingPlan, trained: nn.Network) -> bool:
    """Whether the arithmetic on shares can hold these parameters, with some room."""
    try:
        plan.words(trained.with_state({name: ROOM * value for name, value in trained.state().items()}))
    except ModelError:
        return False
    return True
