"""Choosing, weighing and evaluating: settings by `hdcos suggest` alone against scikit-learn, weights of classes against
plaintext, and files larger than what memory is used for them.

suggest    breast cancer, wine and diabetes: trained on shares with what `hdcos suggest` wrote, judged by rows held out
weights    an imbalanced problem with class weights, on shares and in plaintext
best       the best epoch by validation, while a party is killed behind it
files      ids and scores of a large file through `hdcos evaluate`: memory, and scores against scikit-learn's
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import balanced_accuracy_score, log_loss, roc_auc_score
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import hdcos
from benchmarks.nodes import cluster_of_nodes, wait_until_ready
from benchmarks.record import Line, at_least, at_most, exactly
from hdcos import nn
from hdcos.ring import Array
from hdcos.secure.training.plain import plain_fit
from hdcos.secure.training.targets import one_hot
from hdcos.suggest.scaling import Scaling
from sklearn import datasets

ROWS = int(os.environ.get("ROWS") or 2_000_000)
"""Of the large file."""
MEASURED = """
import atexit, sys
from hdcos.__main__ import run
peak = lambda: next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
atexit.register(lambda: print(peak(), file=sys.stderr))
run()
"""
"""A command that says on its last line how many kB it used at most."""
SPLITS = 3
"""Random divisions into rows to learn from and rows to judge by: one alone has few to judge by."""
TABLES = {"breast cancer": "load_breast_cancer", "wine": "load_wine", "diabetes": "load_diabetes"}


def prove_suggest(seed: int) -> Iterator[Line]:
    for name, loader in TABLES.items():
        x, y = getattr(datasets, loader)(return_X_y=True)
        found = np.mean([_suggested(x, y, seed + split) for split in range(SPLITS)], axis=0)
        private, plain, linear = found
        if name == "diabetes":
            yield at_most(f"{name}: RMSE on shares over that in plaintext, same settings", private / plain, 1.02)
            yield at_most(f"{name}: RMSE on shares, {private:.2f}, over Ridge's", private / linear, 1.02)
            continue
        yield at_most(f"{name}: points of accuracy lost on shares, same settings", 100 * (plain - private), 1.0)
        what = f"{name}: points of accuracy, {100 * private:.1f} %, below LogisticRegression's"
        yield at_most(what, 100 * (linear - private), 2.0)


def _suggested(x: Array, y: Array, seed: int) -> tuple[float, float, float]:
    """Accuracy or RMSE on rows held out: on shares, in plaintext with the same settings, and of scikit-learn."""
    regression = len(np.unique(y)) > 20
    train_x, test_x, train_y, test_y = train_test_split(x, y, test_size=0.25, random_state=seed)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        np.savez(folder / "rows.npz", x=train_x, y=train_y)
        _hdcos("suggest", folder / "rows.npz", "--label", "y", "--seed", seed, "--output", folder / "run.toml")
        _hdcos("train", folder / "run.toml")
        settings = tomllib.loads((folder / "run.toml").read_text())
        model = nn.load(folder / "model.safetensors")
    linear = make_pipeline(StandardScaler(), Ridge() if regression else LogisticRegression(max_iter=5000))
    linear.fit(train_x, train_y)
    plain = _plain(settings, train_x, train_y, regression)
    if regression:
        found = [model(test_x)[:, 0], plain(test_x)[:, 0], linear.predict(test_x)]
        scores = [float(np.sqrt(((each - test_y) ** 2).mean())) for each in found]
    else:
        found = [_classes(model(test_x)), _classes(plain(test_x)), linear.predict(test_x)]
        scores = [float((each == test_y).mean()) for each in found]
    return scores[0], scores[1], scores[2]


def _classes(logits: Array) -> Array:
    return (logits[:, 0] > 0).astype(int) if logits.shape[1] == 1 else logits.argmax(1)


def _plain(settings: dict[str, Any], x: Array, y: Array, regression: bool) -> nn.Network:
    """The same run in plaintext."""
    training, given = settings["training"], settings["model"]
    scaling = Scaling.of(settings["data"].get("scale", "none"), x, y, regression)
    model = nn.models.mlp(given["sizes"], "cos", given["structure"], given["seed"])
    targets = one_hot(scaling.targets(y), given["sizes"][-1], training["loss"])
    known = {name: training[name] for name in ("momentum", "weight_decay", "loss", "seed", "epochs", "batch_size")}
    known |= {"average": training.get("average", 0)}
    return scaling.unscaled(plain_fit(model, scaling.rows(x), targets, rate=lambda epoch: training["lr"], **known))


def prove_weights(seed: int) -> Iterator[Line]:
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(6000, 10))
    y = (x @ generator.normal(size=10) + generator.normal(size=6000) > 5.5).astype(int)
    options = {"epochs": 6, "batch_size": 50, "seed": seed, "momentum": 0.9}
    model = nn.models.mlp([10, 16, 1], seed=seed)
    with hdcos.local() as cluster:
        usual = cluster.fit(model, x[:4000], y[:4000], lr=0.1, watch=0, progress=False, **options)
        weighed = cluster.fit(
            model, x[:4000], y[:4000], lr=0.1, watch=0, progress=False, class_weight="balanced", **options
        )
        found, logits = (each.predict(x[4000:])[:, 0] for each in (usual, weighed))
    counts = np.bincount(y[:4000])
    weights = (4000 / (2 * counts))[y[:4000]]
    plain = plain_fit(model, x[:4000], one_hot(y[:4000], 1), rate=lambda epoch: 0.1, weights=weights, **options)
    yield at_most(
        f"class weights, {100 * y.mean():.1f} % of the rows in one class: largest logit apart from plaintext training",
        float(np.abs(logits - plain(x[4000:])[:, 0]).max()),
        0.1,
    )
    gain = balanced_accuracy_score(y[4000:], logits > 0) - balanced_accuracy_score(y[4000:], found > 0)
    yield at_least("balanced accuracy that they gain, points", 100 * float(gain), 3.0)


def prove_best(seed: int) -> Iterator[Line]:
    """The rows that judge have the answers of a run that ended after two epochs: from there on it gets worse."""
    generator = np.random.default_rng(seed)
    x = generator.uniform(-1, 1, (120, 6))
    y = (x @ generator.normal(size=(6, 3))).argmax(1)
    model, options = nn.models.mlp([6, 8, 3], seed=1), {"batch_size": 20, "seed": 3}
    plain = plain_fit(model, x, one_hot(y, 3), 2, rate=lambda epoch: 0.5, **options)(x)
    judging = (x, 1 / (1 + np.exp(-plain)))
    found = []
    for victim in ("party0", "party1"):
        with (
            tempfile.TemporaryDirectory() as place,
            cluster_of_nodes(Path(place) / "home") as nodes,
            nodes.connect(timeout_s=40) as cluster,
        ):
            wait_until_ready(cluster)
            run = {"epochs": 12, "lr": 0.5, "validation": judging, "patience": 4, "checkpoint_every": 6}
            job = cluster.fit(model, x, y, name="best", progress=False, wait=False, **run, **options)
            while max((epoch.number for epoch in job.history), default=0) < 3:
                time.sleep(0.02)
            nodes.kill(victim)
            nodes.start(victim)
            trained = job.result(120)
            found.append((trained.best_epoch, len(trained.history), float(np.abs(trained.predict(x) - plain).max())))
    what = "a party killed behind the best epoch, either one in turn"
    yield exactly(f"{what}: best epoch and epochs", [each[:2] for each in found], [(2, 6)] * 2)
    yield at_most(f"{what}: largest logit apart from the best epoch's in plaintext", max(f[2] for f in found), 0.02)


def prove_files(seed: int) -> Iterator[Line]:
    """In a process of its own, which says itself what it used at most: what the system counts for a child begins with
    what its parent held."""
    generator = np.random.default_rng(seed)
    model = nn.models.mlp([20, 32, 1], "cos", "dense", seed=seed)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        model.save(folder / "model.safetensors")
        logits, labels = [], []
        with (folder / "rows.csv").open("w") as file:
            file.write(",".join(["id", *(f"c{n}" for n in range(20)), "sick"]) + "\n")
            for first in range(0, ROWS, 50_000):
                x = generator.normal(size=(min(50_000, ROWS - first), 20)).round(5)
                known = model(x)[:, 0]
                y = (generator.random(len(x)) < 1 / (1 + np.exp(-known))).astype(int)
                logits.append(known)
                labels.append(y)
                for number, (row, label) in enumerate(zip(x.tolist(), y.tolist(), strict=True), first):
                    file.write(f"P-{number},{','.join(map(str, row))},{label}\n")
        size = (folder / "rows.csv").stat().st_size
        options = ("--label", "sick", "--leave-out", "id", "--json")
        call = [sys.executable, "-c", MEASURED, "evaluate", folder / "model.safetensors", folder / "rows.csv", *options]
        ended = subprocess.run(list(map(str, call)), check=True, capture_output=True, text=True)
        report, used = json.loads(ended.stdout), 1024 * int(ended.stderr.split()[-1])
    truth, scores = np.concatenate(labels), np.concatenate(logits)
    yield at_most(f"`hdcos evaluate` of {ROWS:,} rows, {size / 1e6:,.0f} MB: MB of memory", used / 1e6, 250)
    yield at_most("its AUC, apart from scikit-learn's", abs(report["auc"] - roc_auc_score(truth, scores)), 1e-4)
    exact = float(log_loss(truth, 1 / (1 + np.exp(-scores))))
    yield at_most("its log loss, apart from scikit-learn's", abs(report["log_loss"] - exact), 1e-9)


def _hdcos(*arguments: object) -> str:
    call = [sys.executable, "-m", "hdcos", *map(str, arguments)]
    return subprocess.run(call, check=True, capture_output=True, text=True).stdout


PARTS = {"suggest": prove_suggest, "weights": prove_weights, "best": prove_best, "files": prove_files}
