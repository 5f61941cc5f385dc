"""A linear classifier on frozen random cosine features, against the exact Gaussian-kernel classifier they estimate.

Both are ridge regressions onto the classes (+1 for the label, -1 for the others) with the same regularisation, so
that only the kernel differs: exact, or estimated from D features cos(L x) of layers L that hdcos.nn draws as random
Fourier features. The bandwidth is half the median distance of training rows. It runs on the first rows of a data set:
the exact classifier solves a system as large as the rows are many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from hdcos.nn.dense import Dense
from hdcos.nn.hadamard import HadamardDiagonal
from hdcos.nn.layer import Linear
from hdcos.nn.models import median_distance
from hdcos.ring import Array
from paper import results, splits
from paper.cells import IMAGES

CLASSES, RIDGE, WIDTH = 10, 1e-3, 1024
"""RIDGE is relative to the mean of the kernel's diagonal times the rows."""
DIMENSIONS = (512, 1024, 2048)
TRAIN_ROWS = 5000

LAYERS: dict[str, Callable[[int, float], Linear]] = {
    "dense": lambda inputs, s: Dense(inputs, WIDTH, bandwidth=s),
    "hadamard": lambda inputs, s: HadamardDiagonal(inputs, WIDTH, 1, bandwidth=s),
    "hadamard3": lambda inputs, s: HadamardDiagonal(inputs, WIDTH, 3, bandwidth=s),
}


def features(structure: str, x: Array, bandwidth: float, dimension: int, seed: int) -> Array:
    """sqrt(2 / D) cos(L x), D features from as many independent layers as it takes."""
    layer = LAYERS[structure](x.shape[1], bandwidth)
    generators = (np.random.default_rng([seed, part]) for part in range(-(-dimension // WIDTH)))
    parts = [np.cos(layer.forward(layer.initial(generator), x)) for generator in generators]
    scaled: Array = np.sqrt(2 / dimension) * np.hstack(parts)[:, :dimension]
    return scaled


def bandwidth_of(x: Array) -> float:
    """Half the median distance between 500 rows."""
    return 0.5 * median_distance(x)


def kernel(x: Array, y: Array, bandwidth: float) -> Array:
    exact: Array = np.exp(-_squares(x, y) / (2 * bandwidth**2))
    return exact


def _squares(x: Array, y: Array) -> Array:
    products: Array = (x * x).sum(axis=1)[:, None] + (y * y).sum(axis=1) - 2 * x @ y.T
    return np.maximum(products, 0)


def _targets(labels: Array) -> Array:
    return np.where(labels[:, None] == np.arange(CLASSES), 1.0, -1.0)


def accuracies(
    train: tuple[Array, Array], test: tuple[Array, Array], dimensions: tuple[int, ...], seed: int
) -> Iterator[tuple[str, int | None, float]]:
    """The share of right test rows for the exact kernel (dimension None) and every kind and number of features."""
    (x, y), (unseen, labels) = train, test
    s, targets, ridge = bandwidth_of(x), _targets(y), RIDGE * len(x)
    if seed == 0:
        weights = np.linalg.solve(kernel(x, x, s) + ridge * np.eye(len(x)), targets)
        yield "exact", None, _right(kernel(unseen, x, s) @ weights, labels)
    for structure in LAYERS:
        for dimension in dimensions:
            seen, new = (features(structure, rows, s, dimension, seed) for rows in (x, unseen))
            weights = np.linalg.solve(seen.T @ seen + ridge * np.eye(dimension), seen.T @ targets)
            yield structure, dimension, _right(new @ weights, labels)


def _right(outputs: Array, labels: Array) -> float:
    return float((outputs.argmax(axis=1) == labels).mean())


def run(out: Path, seeds: int = 3, train_rows: int = TRAIN_ROWS) -> int:
    """Append the accuracies that the file lacks, seed by seed; the number of rows written."""
    there = results.done(out, "frozen-features", "dataset", "seed", "train_rows")
    written = 0
    for dataset in IMAGES:
        missing = [seed for seed in range(seeds) if (dataset, seed, train_rows) not in there]
        if not missing:
            continue
        train_x, train_y, test_x, test_y = splits.split(dataset)
        train = train_x[:train_rows].reshape(train_rows, -1).astype(np.float64), train_y[:train_rows]
        test = test_x.reshape(len(test_x), -1).astype(np.float64), test_y
        for seed in missing:
            found = accuracies(train, test, DIMENSIONS, seed)
            rows = [_row(dataset, *answer, seed, train_rows, len(test_y)) for answer in found]
            results.append(out, rows)
            written += len(rows)
    return written


def _row(
    dataset: str, structure: str, dimension: int | None, value: float, seed: int, train_rows: int, test_rows: int
) -> results.Row:
    return {
        "experiment": "frozen-features",
        "dataset": dataset,
        "activation": "cos",
        "structure": structure,
        "optimizer": None,
        "lr": None,
        "depth": None,
        "dimension": dimension,
        "seed": seed,
        "epochs": 0,
        "train_rows": train_rows,
        "test_rows": test_rows,
        "metric": "accuracy",
        "value": value,
        "versions": {"numpy": np.__version__},
        "device": "cpu",
    }
