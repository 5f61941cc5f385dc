"""Two owners with a file each, one model, and no setting that anybody chose: `hdcos suggest` on what one of them has.

owners          breast cancer, wine and diabetes of scikit-learn, several random splits each
owners-adult    200,000 generated rows (`synthetic.adult_like`), 40,000 of them held out, with categories and gaps

By rows, both owners have labels and prepare together, statistics on shares; by columns, each prepares its own and the
second one has the labels. Both upload to an HTTPS cluster of three nodes. The first owner of rows, or the owner of the
labels, runs `hdcos suggest` with its defaults on its own file and `hdcos train` with what that wrote. The model on
shares predicts rows that were held out. It is compared with the same settings in plaintext on the pooled prepared rows,
and with LogisticRegression or Ridge on these.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression, Ridge

import hdcos
from benchmarks.nodes import HDCOS, Nodes, cluster_of_nodes, wait_until_ready
from benchmarks.record import Line, at_most
from hdcos import nn
from hdcos.cluster.cluster import Cluster
from hdcos.data.synthetic import ADULT_LABEL, adult_like, write_columns
from hdcos.ring import Array
from hdcos.secure.training.plain import plain_fit
from hdcos.secure.training.targets import one_hot
from hdcos.tables import Columns, Preparation
from sklearn import datasets

SPLITS = int(os.environ.get("SPLITS") or 5)
"""Random divisions of a small table: one alone has few rows to judge by."""
ADULT_ROWS, ADULT_TEST = int(os.environ.get("ROWS") or 200_000), 40_000
POINTS, SKLEARN_POINTS, PERCENT = 1.0, 2.0, 2.0
OWNERS = ("north", "south")
TIMEOUT_S = 120.0


@dataclass(frozen=True)
class Task:
    """A table by columns, what they are, and which of them the first owner has."""

    name: str
    columns: Mapping[str, Array] = field(repr=False)
    declared: Mapping[str, Any] = field(repr=False)
    first: tuple[str, ...]
    label: str
    regression: bool = False

    @property
    def short(self) -> str:
        return self.name.split(",")[0].replace(" ", "-")

    def write(self, path: Path, rows: Array, names: list[str] | None = None) -> Path:
        write_columns(path, {name: values[rows] for name, values in self.columns.items()}, names)
        return path


@dataclass(frozen=True)
class Scores:
    """Accuracy, or the root of the mean squared error, on rows held out."""

    private: float
    plain: float
    linear: float


def small_tasks() -> Iterator[Task]:
    for name, loader in (("breast cancer", "load_breast_cancer"), ("wine", "load_wine"), ("diabetes", "load_diabetes")):
        regression = name == "diabetes"
        x, y = getattr(datasets, loader)(return_X_y=True, **({"scaled": False} if regression else {}))
        names = [f"c{number:02}" for number in range(x.shape[1])]
        columns = {**dict(zip(names, x.T, strict=True)), "y": y}
        classes = [str(number) for number in range(int(y.max()) + 1)]
        label = {"kind": "label", "regression": True} if regression else {"kind": "label", "classes": classes}
        declared = {**dict.fromkeys(names, "numeric"), "y": label}
        yield Task(name, columns, declared, tuple(names[: len(names) // 2]), "y", regression)


def adult_task(seed: int) -> Task:
    columns = adult_like(ADULT_ROWS, seed)
    declared: dict[str, Any] = {"id": "id", "owns_home": "boolean"}
    for name, values in columns.items():
        if values.dtype.kind == "f":
            declared[name] = {"kind": "numeric", "missing": "indicator" if np.isnan(values).any() else "refuse"}
        elif values.dtype.kind == "O" and name != "id":
            known = sorted({value for value in values if value is not None})
            gaps = "indicator" if any(value is None for value in values) else "refuse"
            declared[name] = {"kind": "category", "values": known, "missing": gaps, "unseen": "other"}
    declared[ADULT_LABEL] = {"kind": "label", "classes": ["0", "1"]}
    declared = {name: declared[name] for name in columns}
    name = f"adult-like, {ADULT_ROWS:,} synthetic rows with categories and gaps"
    return Task(name, columns, declared, ("age", "education", "marital_status", "region"), ADULT_LABEL)


def prove_owners(seed: int) -> Iterator[Line]:
    with _cluster() as (nodes, owners):
        for task in small_tasks():
            yield from _prove(nodes, owners, task, seed % 1000, SPLITS, 0.25)


def prove_owners_adult(seed: int) -> Iterator[Line]:
    with _cluster() as (nodes, owners):
        yield from _prove(nodes, owners, adult_task(seed % 1000), seed % 1000, 1, ADULT_TEST / ADULT_ROWS)


@contextmanager
def _cluster() -> Iterator[tuple[Nodes, list[Cluster]]]:
    """Three nodes, and a connection of each owner."""
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        nodes = stack.enter_context(cluster_of_nodes(Path(place) / "home", clients=OWNERS))
        secrets = [(nodes.folder / f"{owner}.token").read_text().strip() for owner in OWNERS]
        file = nodes.folder / "cluster.toml"
        owners = [stack.enter_context(hdcos.connect(file, secret, timeout_s=TIMEOUT_S)) for secret in secrets]
        wait_until_ready(owners[0])
        yield nodes, owners


def _prove(nodes: Nodes, owners: list[Cluster], task: Task, seed: int, splits: int, held_out: float) -> Iterator[Line]:
    count = len(task.columns[task.label])
    for kind in ("rows", "columns"):
        found, began = [], time.perf_counter()
        for split in range(splits):
            order = np.random.default_rng([seed, split]).permutation(count)
            border = round(held_out * count)
            with tempfile.TemporaryDirectory() as place:
                run = Run(nodes, owners, task, Path(place), order[border:], order[:border], seed + split)
                found.append(run.by_rows() if kind == "rows" else run.by_columns())
            print(f"{task.name} by {kind}: {found[-1]}", flush=True)
        private, plain, linear = np.mean([(each.private, each.plain, each.linear) for each in found], axis=0)
        seconds = (time.perf_counter() - began) / splits
        what = f"{task.name}, {kind} of two owners, settings of `hdcos suggest` ({seconds:.0f} s a run)"
        if task.regression:
            figures = f"RMSE {private:.2f} on shares, {plain:.2f} in plaintext, {linear:.2f} of Ridge"
            yield at_most(f"{what}: {figures}; difference to plaintext in %", 100 * abs(private / plain - 1), PERCENT)
            yield at_most(f"{what}: RMSE above that of Ridge in %", 100 * (private / linear - 1), PERCENT)
            continue
        figures = (
            f"{100 * private:.2f} % right on shares, {100 * plain:.2f} % in plaintext, {100 * linear:.2f} % by "
            f"LogisticRegression"
        )
        yield at_most(f"{what}: {figures}; difference to plaintext in points", 100 * abs(private - plain), POINTS)
        yield at_most(f"{what}: points behind LogisticRegression", 100 * (linear - private), SKLEARN_POINTS)


@dataclass(frozen=True)
class Run:
    """One division of a table into rows to learn from and rows to judge by."""

    nodes: Nodes
    owners: list[Cluster] = field(repr=False)
    task: Task
    folder: Path
    train: Array = field(repr=False)
    test: Array = field(repr=False)
    seed: int

    def by_rows(self) -> Scores:
        """Each owner has as many of the rows, and they prepare together."""
        columns, task = Columns.of(self.task.declared), self.task
        parts = np.array_split(self.train, 2)
        files = [task.write(self.folder / f"{owner}.csv", part) for owner, part in zip(OWNERS, parts, strict=True)]
        agreed = f"{task.short}-{self.seed}"
        given: dict[str, Any] = {"name": agreed, "owners": 2, "clients": OWNERS}
        sums = [owner.contribute(file, columns, **given) for owner, file in zip(self.owners, files, strict=True)]
        north, south = (each.preparation() for each in sums)
        assert north.digest == south.digest
        for owner, file in zip(self.owners, files, strict=True):
            owner.upload(file, name=f"{agreed}-rows", preparation=north)
        self.owners[1].allow_training(f"{agreed}-rows", OWNERS[0])
        names = ("--name", f"{agreed}-rows", "--rows", f"{OWNERS[1]}/{agreed}-rows")
        settings = self._train(0, files[0], north, names)
        pooled = task.write(self.folder / "pooled.csv", self.train)
        return self._judge(self.owners[0], settings, [north], pooled)

    def by_columns(self) -> Scores:
        """The first owner has some columns, the second one the others and the labels; rows are in one order."""
        task, made, files = self.task, [], []
        second = [name for name in task.columns if name not in task.first]
        for owner, names in zip(OWNERS, (list(task.first), second), strict=True):
            files.append(task.write(self.folder / f"{owner}.csv", self.train, names))
            made.append(Preparation.fit(files[-1], {name: task.declared[name] for name in names}))
        given = f"{task.short}-{self.seed}-columns"
        for owner, file, preparation in zip(self.owners, files, made, strict=True):
            owner.upload(file, name=given, preparation=preparation)
        self.owners[0].allow_training(given, OWNERS[1])
        settings = self._train(1, files[1], made[1], ("--name", given, "--beside", f"{OWNERS[0]}/{given}"))
        pooled = task.write(self.folder / "pooled.csv", self.train)
        return self._judge(self.owners[1], settings, made[::-1], pooled)

    def _train(self, number: int, file: Path, preparation: Preparation, names: tuple[str, ...]) -> dict[str, Any]:
        """What an owner types."""
        preparation.save(file.with_name(f"{file.name}.preparation.json"))
        config, secret = self.folder / f"{self.task.short}.toml", self.nodes.folder / f"{OWNERS[number]}.token"
        there = ("--cluster", self.nodes.folder / "cluster.toml", "--token-file", secret)
        config.unlink(missing_ok=True)  # that of the other split
        _hdcos("suggest", file, "--preparation", f"{file}.preparation.json", *names, "--output", config, *there)
        _hdcos("train", config, *there)
        settings = tomllib.loads(config.read_text())
        print(f"{settings['data']}, {settings['model']}, {settings['training']}", flush=True)
        return settings

    def _judge(self, owner: Cluster, settings: dict[str, Any], preparations: list[Preparation], pooled: Path) -> Scores:
        """All by the rows that were held out: on shares, in plaintext with the same settings, and of scikit-learn."""
        test = self.task.write(self.folder / "test.csv", self.test)
        private = owner.model(settings["output"]["name"])
        logits = private.predict(test, preparation=preparations)
        private.delete()
        x, y = _features(preparations, pooled)
        judging, truth = _features(preparations, test)
        plain = _plain(settings, x, y)(judging)
        if self.task.regression:
            usual = Ridge().fit(x, y).predict(judging)
            labelled = next(each for each in preparations if each.columns.label is not None)
            guessed = [labelled.unscale(each) for each in (logits[:, 0], plain[:, 0], usual, truth)]
            return Scores(*(float(np.sqrt(((each - guessed[3]) ** 2).mean())) for each in guessed[:3]))
        usual = LogisticRegression(max_iter=5000).fit(x, y).predict(judging)
        return Scores(*(float((each == truth).mean()) for each in (_classes(logits), _classes(plain), usual)))


def _features(preparations: list[Preparation], file: Path) -> tuple[Array, Array]:
    """Of all owners side by side, and labels."""
    pieces = list(hdcos.tables.preparation.prepare_together(preparations, file, labels=True))
    return np.concatenate([each.x for each in pieces]), np.concatenate([each.y for each in pieces])


def _plain(settings: dict[str, Any], x: Array, y: Array) -> nn.Network:
    """The same run in plaintext."""
    training, given = settings["training"], settings["model"]
    model = nn.models.mlp(given["sizes"], "cos", given["structure"], given["seed"])
    targets = one_hot(y, given["sizes"][-1], training["loss"])
    known = {name: training[name] for name in ("momentum", "weight_decay", "loss", "seed", "epochs", "batch_size")}
    average = training.get("average", 0)
    return plain_fit(model, x, targets, rate=lambda epoch: training["lr"], average=average, **known)


def _classes(logits: Array) -> Array:
    return (logits[:, 0] > 0).astype(int) if logits.shape[1] == 1 else logits.argmax(1)


def _hdcos(*arguments: object) -> str:
    done = subprocess.run([*HDCOS, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"hdcos {arguments[0]}: {done.stderr}")
    return done.stdout


PARTS = {"owners": prove_owners, "owners-adult": prove_owners_adult}
