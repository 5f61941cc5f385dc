"""Trained networks on whole test sets under two-party computation: accuracy on shares beside plaintext accuracy.

MNIST and Fashion-MNIST use the trained LeNet-5 networks that come with hdcos. Higgs uses an HD-cos network of the
paper's shape, trained here on the sample's training rows at the best learning rate that the results file knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from hdcos._version import __version__
from hdcos.cluster.local import local
from hdcos.cluster.model import BATCH_ROWS
from hdcos.nn import models
from hdcos.nn.network import Network
from hdcos.ring import Array, backend
from paper import results, splits
from paper.cells import HIGGS_DEPTH, IMAGES, LEARNING_RATES, Cell

HIGGS = Cell("higgs", "cos", "hadamard", depth=HIGGS_DEPTH)
HIGGS_EPOCHS = 40


def run(out: Path, say: Callable[[str], None] = print) -> int:
    """Append a row for every data set that the file lacks; the number of rows written."""
    there = {dataset for (dataset,) in results.done(out, "secure", "dataset")}
    written = 0
    for dataset in (*IMAGES, "higgs"):
        if dataset not in there:
            say(f"secure: {dataset}")
            results.append(out, [_measured(dataset, out)])
            written += 1
    return written


def _measured(dataset: str, out: Path) -> results.Row:
    train_x, _, test_x, test_y = splits.split(dataset)
    if dataset == "higgs":
        model, trained = _trained_higgs(out)
    else:
        model, trained = (
            models.pretrained(f"lenet5_{dataset}"),
            {"optimizer": "sgd", "epochs": 0, "model": "pretrained"},
        )
    return {**_row(dataset, model, test_x, test_y), **trained, "train_rows": len(train_x)}


def _trained_higgs(out: Path) -> tuple[Network, dict[str, Any]]:
    from paper.tasks import load
    from paper.trainer import Training, fitted

    rate = _best_rate(results.read(out))
    training = Training(HIGGS, [rate], 1, load("higgs", "unit", "cpu"))
    model = fitted(training, HIGGS_EPOCHS)
    return model, {"optimizer": "sgd", "rate": rate, "epochs": HIGGS_EPOCHS, "model": "trained for this row"}


def _best_rate(rows: Iterable[results.Row]) -> float:
    """The learning rate with the best mean over all runs of the cell; a middle one where there are none."""
    by_rate: dict[float, list[float]] = {}
    for row in rows:
        if results.is_training(row) and results.cell_of(row) == HIGGS:
            by_rate.setdefault(row["lr"], []).append(row["value"])
    return max(by_rate, key=lambda rate: float(np.mean(by_rate[rate]))) if by_rate else LEARNING_RATES[4]


def _row(dataset: str, model: Network, x: Array, y: Array) -> results.Row:
    """Both accuracies of a network, and what the private one took."""
    plain = model(x)
    with local() as cluster:
        private = cluster.share(model)
        cluster.reset_cost()
        scores = private.predict(x, mode="masked")
        cost = cluster.cost
    labels, clear = (_labels(outputs) for outputs in (scores, plain))
    return {
        "experiment": "secure",
        "dataset": dataset,
        "activation": "cos",
        "structure": "hadamard",
        "lr": None,
        "depth": HIGGS_DEPTH if dataset == "higgs" else None,
        "seed": 0,
        "test_rows": len(y),
        "parameter_count": model.parameter_count,
        "metric": "accuracy",
        "value": float((labels == y).mean()),
        "plain_value": float((clear == y).mean()),
        "agreement": float((labels == clear).mean()),
        "largest_difference": float(np.abs(scores - plain).max()),
        "rows_per_batch": BATCH_ROWS,
        "online": {
            "rounds": cost.online.rounds,
            "bytes_sent": list(cost.online.bytes_sent),
            "seconds": round(cost.online.seconds, 3),
        },
        "offline": {"bytes_sent": list(cost.offline.bytes_sent), "seconds": round(cost.offline.seconds, 3)},
        "versions": {"hdcos": __version__, "numpy": np.__version__},
        "device": f"cpu, kernels {backend()}",
    }


def _labels(outputs: Array) -> Array:
    labels: Array = (outputs[:, 0] > 0).astype(int) if outputs.shape[1] == 1 else outputs.argmax(axis=1)
    return labels
