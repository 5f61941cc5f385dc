"""The ready kernel machine on every data set that is here: `python -m paper run kernel-machine`.

Random cosine features with the median distance of training rows as bandwidth, and least squares onto the classes (+1
for the label, -1 for the others) with a ridge, solved in closed form: the optimum that training with the squared loss
goes to. Pixels are taken as they are, the features of Higgs standardised. Rows in Criteo's format, generated where its
file is not there, are embedded by tables of random signs, which are public: nothing but the output layer is learned.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from hdcos import data
from hdcos.data.criteo import Vocabulary, embed, read_criteo
from hdcos.data.criteo import split as criteo_split
from hdcos.data.synthetic import write_criteo
from hdcos.nn.models import kernel_machine, median_distance
from hdcos.nn.network import Sequential
from hdcos.ring import Array
from paper import results, splits
from paper.cells import SYNTHETIC_CRITEO

CRITEO_ROWS = 40_000
DATASETS = ("digits", "mnist", "fashion_mnist", "higgs", SYNTHETIC_CRITEO)
FEATURES = (1024, 4096)
RIDGE = 1e-3
"""Relative to the diagonal of the products of features."""
PIECE = 2000


def load(dataset: str) -> splits.Split:
    """Rows as vectors."""
    if dataset == "digits":
        return (*data.digits("train"), *data.digits("test"))
    if dataset == SYNTHETIC_CRITEO:
        return _criteo()
    parts = splits.split(dataset)
    train_x, train_y, test_x, test_y = splits.standardised(parts) if dataset == "higgs" else parts
    return train_x.reshape(len(train_x), -1), train_y, test_x.reshape(len(test_x), -1), test_y


def _criteo() -> splits.Split:
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "train.txt"
        write_criteo(path, CRITEO_ROWS)
        rows = read_criteo(path)
    vocabulary, generator = Vocabulary.of(rows), np.random.default_rng(0)
    tables = [
        generator.choice([-1.0, 1.0], (len(known) + 1, size)) / size**0.5
        for known, size in zip(vocabulary.known, vocabulary.sizes, strict=True)
    ]
    train, _, test = criteo_split(rows)
    centre, width = train.integers.mean(axis=0), train.integers.std(axis=0)
    made = (embed((part.integers - centre) / width, vocabulary.indices(part), tables) for part in (train, test))
    train_x, test_x = made
    return train_x, train.labels.astype(int), test_x, test.labels.astype(int)


def pieces(model: Sequential, x: Array) -> Iterator[tuple[slice, Array]]:
    """Features of the rows in float32, with a one for the bias."""
    for start in range(0, len(x), PIECE):
        where = slice(start, start + PIECE)
        made = model.layers[0].forward({}, x[where].astype(np.float64)).astype(np.float32)
        yield where, np.hstack([made, np.ones((len(made), 1), np.float32)])


def solve(model: Sequential, x: Array, y: Array) -> Sequential:
    """The machine with the weights of least squares."""
    features, classes = model.layers[1].parameter_shapes()["weight"][1], model.output_shape[0]
    products, sums = np.zeros((features + 1, features + 1)), np.zeros((features + 1, classes))
    targets = np.where(y[:, None] == np.arange(classes), 1.0, -1.0)
    for where, made in pieces(model, x):
        products += made.T @ made
        sums += made.T @ targets[where]
    products[np.diag_indices(features)] *= 1 + RIDGE
    weights = np.linalg.solve(products, sums)
    return model.with_state({"1.weight": weights[:-1].T, "1.bias": weights[-1]})


def accuracy(model: Sequential, x: Array, y: Array) -> float:
    weights = np.vstack([model.parameters(1)["weight"].T, model.parameters(1)["bias"]])
    right = [((made @ weights).argmax(axis=1) == y[where]).sum() for where, made in pieces(model, x)]
    return float(sum(right) / len(y))


def run(out: Path, seeds: int = 1) -> int:
    """Append the accuracies that the file lacks; the number of rows written."""
    there, written = results.done(out, "kernel-machine", "dataset", "dimension", "seed"), 0
    for dataset in DATASETS:
        missing = [(f, s) for f in FEATURES for s in range(seeds) if (dataset, f, s) not in there]
        if not missing:
            continue
        train_x, train_y, test_x, test_y = load(dataset)
        bandwidth, classes = median_distance(train_x), int(train_y.max()) + 1
        for features, seed in missing:
            machine = kernel_machine(train_x.shape[1], classes, features, bandwidth, seed)
            value = accuracy(solve(machine, train_x, train_y), test_x, test_y)
            results.append(out, [_row(dataset, features, seed, bandwidth, len(train_y), len(test_y), value)])
            written += 1
    return written


def _row(
    dataset: str, features: int, seed: int, bandwidth: float, train_rows: int, test_rows: int, value: float
) -> results.Row:
    return {
        "experiment": "kernel-machine",
        "dataset": dataset,
        "activation": "cos",
        "structure": "hadamard",
        "optimizer": None,
        "lr": None,
        "depth": None,
        "dimension": features,
        "bandwidth": round(bandwidth, 4),
        "seed": seed,
        "epochs": 0,
        "train_rows": train_rows,
        "test_rows": test_rows,
        "metric": "accuracy",
        "value": round(value, 6),
        "versions": {"numpy": np.__version__},
        "device": "cpu",
    }
