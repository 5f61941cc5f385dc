"""Many candidates on few rows, then the best of them on all rows by cross-validation, within a time.

Of those whose score is within one standard error of the best, or whose loss is no larger than its, the one is suggested
whose private predictions are the cheapest: a difference that the rows cannot show is not worth paying for on shares.
The score of the one that is suggested is that of the rows it was not trained on, each of which judged it once. It was
chosen among a few by the same rows, so that it is a little too good to be true, by less than its standard error as a
rule.

`caution` is how many standard errors are asked for. One suits the rows that were looked at. Settings for the rows or
columns of several owners ask for more: a single layer only adds what it learns of each feature, so that it does as
well on more of them, while a network that is a little better on one owner's part is often worse on all.

Epochs are those of the rows that were looked at. Where there are more, as many steps as were tried are of larger
batches, which are less noisy, or of fewer epochs.

What is found depends on the seed alone as long as the time suffices, and `tried` and `skipped` say whether it did.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil, sqrt
from time import monotonic

import numpy as np
from numpy.typing import ArrayLike

from hdcos.checks import check_whole
from hdcos.errors import InputError
from hdcos.ring import Array
from hdcos.secure.training.plan import LOSSES
from hdcos.suggest.candidates import LARGE, RATES, Candidate, candidates
from hdcos.suggest.trial import Outcome, Rows, run_trial

MOST_ROWS = 20_000
"""That are looked at: more would tell little more."""
FIRST_ROWS = 2_000
"""That candidates are sorted out by."""
LEAST_ROWS = 20
MOST_CLASSES = 32
"""Different whole numbers that are taken for classes unless the caller says otherwise."""
FIRST_STEPS, LAST_STEPS = 400, 3000
MOST_EPOCHS = 60
KEPT = 8
"""Candidates that are cross-validated."""
FOLDS, FEW_FOLDS, MANY_ROWS = 5, 3, 5_000
FIRST_PART = 0.5
"""Of the time, for sorting out."""


@dataclass(frozen=True)
class Result:
    """What cross-validation says of a candidate."""

    candidate: Candidate
    score: float
    """Accuracy, or the root of the mean squared error."""
    error: float
    """Its standard error."""
    loss: float


@dataclass(frozen=True)
class Suggestion:
    """What was found."""

    chosen: Result
    results: tuple[Result, ...]
    """Of all that were cross-validated, the best first."""
    rows: int
    folds: int
    tried: int
    skipped: int
    """Candidates for which there was no time."""
    seed: int

    @property
    def regression(self) -> bool:
        return self.chosen.candidate.loss == "squared"

    def settings(self, rows: int) -> Candidate:
        """Those of a run on this many rows, with the features of all owners."""
        tried, more = self.chosen.candidate.whole, max(1.0, rows / self.rows)
        larger = replace(tried, batch_size=max(tried.batch_size, min(LARGE, int(more * tried.batch_size))))
        chosen = larger if larger.possible else tried
        return chosen.lasting(ceil(tried.epochs * chosen.batch_size / tried.batch_size / more))

    def in_unit(self, unit: float) -> Suggestion:
        """The same of numbers to be guessed that were divided by a unit: errors as they were before."""
        results = tuple(
            replace(each, score=unit * each.score, error=unit * each.error, loss=unit**2 * each.loss)
            for each in self.results
        )
        return replace(self, results=results, chosen=results[self.results.index(self.chosen)])


def find_settings(
    x: ArrayLike,
    y: ArrayLike,
    loss: str | None = None,
    budget_s: float = 60.0,
    seed: int = 0,
    note: Callable[[int, int, str], None] = lambda done, of, what: None,
    scaled: bool | None = None,
    classes: int | None = None,
    others: int = 0,
    caution: float = 1.0,
) -> Suggestion:
    """Try settings on rows and labels (or numbers to be guessed); `note` hears how far it is.

    Rows that are `scaled` are taken as they are; unless it is said, a look at them tells. There are as many `classes`
    as these rows have, unless more are known. `others` are features of these rows that other owners have.
    """
    began, seed = monotonic(), check_whole(seed, "seed", 0)
    if not budget_s > 0:
        raise InputError(f"the time to try settings in is more than 0 seconds, got {budget_s}")
    rows = _check_rows(x, y)
    losses, outputs = _losses(rows.y, loss, classes)
    order = np.random.default_rng(seed).permutation(len(rows))[:MOST_ROWS]
    rows = rows.part(order)
    scaled = _looks_scaled(rows, losses) if scaled is None else scaled
    others = check_whole(others, "others", 0)
    known = sorted(candidates(rows.x.shape[1], outputs, losses, len(rows), scaled, others), key=_turn)
    if not known:
        raise InputError("no network that is tried here can be trained on shares with these columns")
    first, tried = _sort_out(known, rows, seed, began + FIRST_PART * budget_s, note)
    folds = FEW_FOLDS if len(rows) >= MANY_ROWS else FOLDS
    results = _cross_validate(first, rows, folds, seed, began + budget_s, note)
    if not results:
        raise InputError("every network that was tried diverged on these rows: look at their columns for odd numbers")
    return Suggestion(_choose(results, caution), tuple(results), len(rows), folds, tried, len(known) - tried, seed)


def _check_rows(x: ArrayLike, y: ArrayLike) -> Rows:
    rows, labels = np.asarray(x, np.float64), np.asarray(y)
    if rows.ndim != 2 or labels.shape != (len(rows),) or labels.dtype.kind not in "iubf":
        raise InputError(f"settings are tried on a table and its labels, got shapes {rows.shape} and {labels.shape}")
    if len(rows) < LEAST_ROWS:
        raise InputError(f"{len(rows)} rows are too few to try settings on: it takes {LEAST_ROWS} at least")
    if not np.isfinite(rows).all() or not np.isfinite(labels.astype(np.float64)).all():
        raise InputError("the rows or labels contain NaN or infinity: fill in what is missing first")
    return Rows(rows, labels.astype(np.float64))


def _looks_scaled(rows: Rows, losses: tuple[str, ...]) -> bool:
    """Whether columns, and numbers to be guessed, are of about size 1 as they are."""
    deviation, means = rows.x.std(0), rows.x.mean(0)
    scaled = (np.abs(means) < 0.5).all() and ((deviation > 0.2) & (deviation < 3) | (deviation == 0)).all()
    return bool(scaled and (losses != ("squared",) or np.abs(rows.y).max() < 8))


def _losses(y: Array, loss: str | None, known: int | None = None) -> tuple[tuple[str, ...], int]:
    """The losses that are tried, and the outputs of a network; of numbers that are no classes, a regression."""
    if loss is not None and loss not in LOSSES:
        raise InputError(f"no loss is called {loss!r}: choose from {', '.join(LOSSES)}")
    kinds = np.unique(y)
    whole = known is not None or (bool((kinds == np.rint(kinds)).all()) and len(kinds) <= MOST_CLASSES)
    if loss == "squared" or (loss is None and not whole):
        return ("squared",), 1
    if known is None and not (kinds == np.arange(len(kinds))).all():
        raise InputError(
            f"labels are whole numbers from 0 on without gaps, these are {kinds[:8].tolist()}"
            f"{'...' if len(kinds) > 8 else ''}; for a regression say loss squared"
        )
    if len(kinds) < 2:
        raise InputError("all rows have the same label: there is nothing to learn")
    count = len(kinds) if known is None else known
    if count == 2 and loss != "softmax":
        return ("logistic",), 1
    return ("softmax", "logistic") if loss is None else (loss,), count


def _turn(candidate: Candidate) -> tuple[int, ...]:
    """The order of trials: if time runs out, every network has been tried at a usual rate."""
    rates = sorted(RATES, key=lambda rate: abs(np.log(rate / 0.1)))
    return rates.index(candidate.lr), int(candidate.weight_decay > 0), len(candidate.sizes)


def _epochs(rows: int, candidate: Candidate, steps: int, least: int) -> int:
    return int(np.clip(steps * candidate.batch_size // max(1, rows), least, MOST_EPOCHS))


def _sort_out(
    known: list[Candidate], rows: Rows, seed: int, deadline: float, note: Callable[[int, int, str], None]
) -> tuple[list[Candidate], int]:
    """The best few by one part of some rows, after a short training on the others.

    Before them, however they did, the best single layer of each rate: few rows judge, and a rate may have been lucky.
    """
    some = rows.part(np.arange(min(len(rows), FIRST_ROWS)))
    border = 3 * len(some) // 4
    train, judge = some.part(np.arange(border)), some.part(np.arange(border, len(some)))
    found: list[tuple[float, int]] = []
    for number, candidate in enumerate(known):
        if found and monotonic() > deadline:
            break
        note(number, len(known), candidate.kind)
        outcome = run_trial(candidate, train, judge, _epochs(len(train), candidate, FIRST_STEPS, 3), seed, deadline)
        found.append((min(outcome.losses, default=np.inf), number))
    alive = [(loss, number) for loss, number in found if np.isfinite(loss)]
    kept = [known[number] for _, number in sorted(alive)[:KEPT]]
    best_of = {known[number].lr: known[number] for _, number in sorted(alive, reverse=True) if known[number].single}
    simple = sorted(best_of.values(), key=known.index)
    return simple + [candidate for candidate in kept if candidate not in simple], len(found)


def _cross_validate(
    known: list[Candidate],
    rows: Rows,
    folds: int,
    seed: int,
    deadline: float,
    note: Callable[[int, int, str], None],
) -> list[Result]:
    """Every candidate on all rows, each part of them judging what the others trained; the best score first."""
    parts = np.array_split(np.arange(len(rows)), folds)
    results: list[Result] = []
    for number, candidate in enumerate(known):
        if results and monotonic() > deadline:
            break
        note(number, len(known), f"{candidate.kind}, {folds} times")
        outcomes = []
        for part in parts:
            others = np.setdiff1d(np.arange(len(rows)), part, assume_unique=True)
            epochs = _epochs(len(others), candidate, LAST_STEPS, 5)
            outcomes.append(run_trial(candidate, rows.part(others), rows.part(part), epochs, seed))
        if (result := _joined(candidate, outcomes)) is not None:
            results.append(result)
    best_first = 1 if results and results[0].candidate.loss == "squared" else -1
    return sorted(results, key=lambda result: (best_first * result.score, result.loss))


def _joined(candidate: Candidate, outcomes: list[Outcome]) -> Result | None:
    """What all parts together say, at the epoch that suits them best; None if it diverged at once in one of them.

    A part that stopped because it got no better is taken to stay as it was; one that was cut off ends all of them.
    """
    longest = max(len(outcome.losses) for outcome in outcomes)
    longest = min([longest, *(len(outcome.losses) for outcome in outcomes if outcome.cut)])
    if not longest:
        return None
    losses, scores = (
        np.array([[*values[:longest], *[values[-1]] * (longest - len(values))] for values in each])
        for each in ([outcome.losses for outcome in outcomes], [outcome.scores for outcome in outcomes])
    )
    weights = np.array([outcome.rows for outcome in outcomes], float)
    mean = np.average(losses, axis=0, weights=weights)
    epoch = int(mean.argmin())
    at = scores[:, epoch]
    if candidate.loss == "squared":
        score, error = sqrt(float(mean[epoch])), float(at.std(ddof=1) / sqrt(len(at)))
    else:
        score, count = float(np.average(at, weights=weights)), weights.sum()
        likely = (score * count + 2) / (count + 4)  # that all of a few rows are right does not mean that none is wrong
        error = sqrt(likely * (1 - likely) / (count + 4))
    return Result(candidate.lasting(epoch + 1), score, error, float(mean[epoch]))


def _choose(results: list[Result], caution: float) -> Result:
    """The cheapest on shares among those that are as good as the best, as far as these rows can tell."""
    best = results[0]
    regression = best.candidate.loss == "squared"
    apart = caution * best.error
    limit = best.score + apart if regression else best.score - apart
    near = [
        each
        for each in results
        if (each.score <= limit if regression else each.score >= limit) or each.loss <= best.loss
    ]
    return min(
        near, key=lambda each: (each.candidate.price.online.rounds, each.candidate.price.online.bytes_sent, each.loss)
    )
