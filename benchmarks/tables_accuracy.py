"""Two owners, one model: what it learns on shares, beside the same model in plaintext on pooled rows, and scikit-learn.

Breast cancer, wine and diabetes come with scikit-learn; the fourth table is generated (`synthetic.adult_like`), has
200,000 rows, categories and gaps, and says nothing about real people. Each is split between two owners by rows, who
both have labels, and by columns, of whom one has. The settings are the estimators' defaults: nothing is tuned by hand.

Tables of hundreds of rows are cross-validated, so that one row more or less is no point. Owners of different columns
standardise theirs by themselves. Owners of different rows need means and deviations over all rows: `hdcos.tables`
computes these on shares and its proofs are elsewhere, so here they are taken from the pooled rows.

`make prove SUITE=tables PART=estimators` has all checks of scikit-learn's `check_estimator`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import hdcos
from benchmarks.record import Line, at_most, exactly
from hdcos.cluster.cluster import Cluster
from hdcos.data.synthetic import ADULT_LABEL, adult_like
from hdcos.secure.training.rates import rate_factors
from hdcos.secure.training.shuffle import batches
from hdcos.sklearn import PrivateClassifier, PrivateRegressor, defaults
from hdcos.sklearn.checks import EXPECTED_FAILED_CHECKS
from hdcos.sklearn.defaults import Sizes

ADULT_ROWS, ADULT_TEST = 200_000, 40_000
FOLDS = 5
POINTS, SKLEARN_POINTS, PERCENT = 1.0, 2.0, 2.0
CLIP = 8.0
Fold = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Task:
    """A table as numbers, standardised in each fold; `left` of its columns belong to the first owner."""

    name: str
    x: np.ndarray = field(repr=False)
    y: np.ndarray = field(repr=False)
    left: int
    folds: list[Fold] = field(repr=False)
    regression: bool = False

    @property
    def outputs(self) -> int:
        classes = 1 if self.regression else int(self.y.max()) + 1
        return 1 if classes <= 2 else classes

    @property
    def loss(self) -> str:
        return "squared" if self.regression else "logistic"

    def parts(self, fold: Fold) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Training rows and targets, test rows and targets, all standardised by what the training rows are."""
        train, test = fold
        scaler = StandardScaler().fit(self.x[train])
        x, test_x = (np.clip(scaler.transform(self.x[rows]), -CLIP, CLIP) for rows in fold)
        y, test_y = self.y[train], self.y[test]
        if self.regression:
            y, test_y = (y - y.mean()) / y.std(), (test_y - y.mean()) / y.std()
        return x, y, test_x, test_y


def tasks(seed: int) -> Iterator[Task]:
    for name, load in (("breast cancer", load_breast_cancer), ("wine", load_wine)):
        x, y = load(return_X_y=True)
        folds = list(StratifiedKFold(FOLDS, shuffle=True, random_state=seed % 1000).split(x, y))
        yield Task(name, x, y, x.shape[1] // 2, folds)
    x, y = load_diabetes(return_X_y=True, scaled=False)
    yield Task("diabetes", x, y, 5, list(KFold(FOLDS, shuffle=True, random_state=seed % 1000).split(x)), True)


def adult_task(seed: int) -> Task:
    """Numbers with gaps filled in and marked, categories as one column for each value, gaps among them."""
    columns = adult_like(ADULT_ROWS, seed % 1000)
    y, rows = columns.pop(ADULT_LABEL), np.arange(ADULT_ROWS)
    owners = (
        ["age", "education", "marital_status", "region"],
        ["hours_per_week", "capital_gain", "capital_loss", "work", "occupation", "owns_home"],
    )
    train = rows[ADULT_TEST:]
    made = []
    for names in owners:  # each owner by itself: no value of a column depends on another column
        table = np.empty((ADULT_ROWS, len(names)), object)
        for place, name in enumerate(names):
            table[:, place] = columns[name] if columns[name].dtype != bool else columns[name].astype(float)
        numbers = [place for place, name in enumerate(names) if columns[name].dtype.kind in "fb"]
        others = [place for place in range(len(names)) if place not in numbers]
        transformer = make_column_transformer(
            (make_pipeline(SimpleImputer(add_indicator=True)), numbers),
            (OneHotEncoder(handle_unknown="ignore", sparse_output=False), others),
        )
        transformer.fit(table[train])
        made.append(transformer.transform(table).astype(np.float64))
    name = f"adult-like, {ADULT_ROWS:,} synthetic rows with categories and gaps"
    return Task(name, np.hstack(made), y, made[0].shape[1], [(train, rows[:ADULT_TEST])])


@dataclass(frozen=True)
class Outcome:
    """Predictions of all folds against what was to be predicted."""

    predicted: np.ndarray = field(repr=False)
    wanted: np.ndarray = field(repr=False)

    @property
    def accuracy(self) -> float:
        return 100 * float(np.mean(self.predicted == self.wanted))

    @property
    def rmse(self) -> float:
        return float(np.sqrt(np.mean((self.predicted - self.wanted) ** 2)))


def prove_small_tables(seed: int) -> Iterator[Line]:
    with hdcos.local() as cluster:
        for task in tasks(seed):
            yield from _compare(cluster, task, seed % 1000)


def prove_adult(seed: int) -> Iterator[Line]:
    with hdcos.local() as cluster:
        yield from _compare(cluster, adult_task(seed), seed % 1000)


def prove_linear(seed: int) -> Iterator[Line]:
    """Logistic and linear regression of two owners, revealed: as good as scikit-learn's, with its coefficients."""
    with hdcos.local() as cluster:
        for task in tasks(seed):
            x, y, test_x, _ = task.parts(task.folds[0])
            model = _estimator(task, cluster, seed % 1000, hidden=())
            _upload(cluster, task, x, y, "columns")
            model.fit(("first", "second"))
            predicted = model.decision_function(test_x) if not task.regression else model.predict(test_x)
            model.reveal()
            by_hand = test_x @ np.atleast_2d(model.coef_).T + model.intercept_
            apart = float(np.abs(by_hand.reshape(predicted.shape) - predicted).max())
            yield at_most(f"{task.name}, linear: revealed coefficients and private predictions, apart", apart, 0.01)


def _compare(cluster: Cluster, task: Task, seed: int) -> Iterator[Line]:
    plain = _joined(task, lambda fold: _plaintext(task, fold, seed))
    usual = _joined(task, lambda fold: _scikit(task, fold))
    for split in ("rows", "columns"):
        started = time.perf_counter()
        mine = _joined(task, lambda fold, split=split: _private(cluster, task, fold, split, seed))
        seconds = (time.perf_counter() - started) / len(task.folds)
        what = f"{task.name}, {split} of two owners ({seconds:.0f} s a run)"
        if task.regression:
            figures = f"RMSE {mine.rmse:.4f} on shares, {plain.rmse:.4f} in plaintext, {usual.rmse:.4f} of Ridge"
            off, behind = 100 * abs(mine.rmse / plain.rmse - 1), 100 * (mine.rmse / usual.rmse - 1)
            yield at_most(f"{what}: {figures}; difference to plaintext in %", off, PERCENT)
            yield at_most(f"{what}: RMSE above that of Ridge in %", behind, PERCENT)
        else:
            figures = (
                f"{mine.accuracy:.2f} % right on shares, {plain.accuracy:.2f} % in plaintext, {usual.accuracy:.2f} % "
                f"by LogisticRegression"
            )
            off, behind = abs(mine.accuracy - plain.accuracy), usual.accuracy - mine.accuracy
            yield at_most(f"{what}: {figures}; difference to plaintext in points", off, POINTS)
            yield at_most(f"{what}: points behind LogisticRegression", behind, SKLEARN_POINTS)


def _joined(task: Task, run) -> Outcome:
    wanted = np.concatenate([task.parts(fold)[3] for fold in task.folds])
    return Outcome(np.concatenate([run(fold) for fold in task.folds]), wanted)


def _estimator(task: Task, cluster: Cluster, seed: int, **settings) -> PrivateClassifier | PrivateRegressor:
    kind = PrivateRegressor if task.regression else PrivateClassifier
    return kind(cluster=cluster, random_state=seed, **settings)


def _upload(cluster: Cluster, task: Task, x: np.ndarray, y: np.ndarray, split: str) -> None:
    """What two owners upload; by columns, the second one has the labels."""
    known = {"outputs": task.outputs, "loss": task.loss}
    if split == "rows":
        middle = len(x) // 3
        cluster.upload(x[:middle], y[:middle], name="first", **known)
        cluster.upload(x[middle:], y[middle:], name="second", **known)
    else:
        cluster.upload(x[:, : task.left], name="first")
        cluster.upload(x[:, task.left :], y, name="second", **known)


def _private(cluster: Cluster, task: Task, fold: Fold, split: str, seed: int) -> np.ndarray:
    x, y, test_x, _ = task.parts(fold)
    _upload(cluster, task, x, y, split)
    model = _estimator(task, cluster, seed)
    model.fit(["first", "second"] if split == "rows" else ("first", "second"))
    return model.predict(test_x)


def _plaintext(task: Task, fold: Fold, seed: int) -> np.ndarray:
    """The same network, batches and rates in PyTorch, on rows that are in one place."""
    x, y, test_x, _ = task.parts(fold)
    sizes = Sizes(*x.shape, task.outputs)
    hidden, batch = defaults.choose_hidden(sizes), defaults.choose_batch(sizes)
    epochs, rate = defaults.choose_epochs(sizes, batch, hidden), defaults.choose_rate(sizes, hidden, task.loss)
    drawn = int(np.random.RandomState(seed).randint(2**31))  # as the estimator draws it
    network = defaults.build_network(sizes, hidden, "cos", "dense", drawn)
    module = network.to_torch(torch.float64)
    optimizer = torch.optim.SGD(module.parameters(), rate, momentum=0.9, weight_decay=1.0 / len(x))
    rows, targets = torch.from_numpy(x), torch.from_numpy(_targets(task, y))
    for epoch, factor in enumerate(rate_factors(defaults.falling_rate(epochs), epochs // 20, epochs)):
        optimizer.param_groups[0]["lr"] = rate * factor
        for chosen in batches(drawn, epoch, len(x), batch):
            optimizer.zero_grad()
            _loss(task, module(rows[chosen]), targets[chosen]).backward()
            optimizer.step()
    with torch.no_grad():
        outputs = module(torch.from_numpy(test_x)).numpy()
    if task.regression:
        return outputs[:, 0]
    return outputs.argmax(1) if task.outputs > 1 else (outputs[:, 0] > 0).astype(np.int64)


def _targets(task: Task, y: np.ndarray) -> np.ndarray:
    if task.outputs > 1:
        return (y[:, None] == np.arange(task.outputs)).astype(np.float64)
    return y[:, None].astype(np.float64)


def _loss(task: Task, outputs: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """Summed over outputs, averaged over rows."""
    if task.regression:
        return 0.5 * ((outputs - wanted) ** 2).sum() / len(outputs)
    entropy = torch.nn.functional.binary_cross_entropy_with_logits(outputs, wanted, reduction="sum")
    return entropy / len(outputs)


def _scikit(task: Task, fold: Fold) -> np.ndarray:
    x, y, test_x, _ = task.parts(fold)
    model: BaseEstimator = Ridge() if task.regression else LogisticRegression(max_iter=1000)
    return model.fit(x, y).predict(test_x)


def prove_estimators(seed: int) -> Iterator[Line]:
    """All of scikit-learn's checks, on one cluster of this machine."""
    reached = set()
    for estimator in (PrivateClassifier(), PrivateRegressor()):
        started = time.perf_counter()
        found = check_estimator(estimator, expected_failed_checks=EXPECTED_FAILED_CHECKS, on_skip=None, on_fail=None)
        name, seconds = type(estimator).__name__, time.perf_counter() - started
        failed = [f"{each['check_name']}: {each['exception']}" for each in found if each["status"] == "failed"]
        reached |= {each["check_name"] for each in found if each["status"] == "xfail"}
        passed = sum(each["status"] == "passed" for each in found)
        yield exactly(f"check_estimator({name}()), {passed} passed in {seconds:.0f} s: unexpected failures", failed, [])
    yield at_most(
        f"checks that fail as expected, for the reasons given: {', '.join(sorted(reached))}", len(reached), 12
    )


PARTS = {
    "estimators": prove_estimators,
    "small-tables": prove_small_tables,
    "linear": prove_linear,
    "adult": prove_adult,
}
