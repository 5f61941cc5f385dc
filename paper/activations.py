"""The figure of activations: each function at points between -3 and 3, as rows like every other result."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hdcos._version import __version__
from hdcos.nn.activations import ACTIVATIONS
from paper import results

SHOWN = ("cos", "relu", "polyfit3", "square", "expm1")
LIMIT, POINTS = 3, 61


def run(out: Path) -> int:
    """Append the functions that the file lacks; the number of rows written."""
    there = {activation for (activation,) in results.done(out, "activations", "activation")}
    rows = [_row(name) for name in SHOWN if name not in there]
    results.append(out, rows)
    return len(rows)


def _row(name: str) -> results.Row:
    x = np.linspace(-LIMIT, LIMIT, POINTS)
    y = ACTIVATIONS[name]()(x)
    return {
        "experiment": "activations",
        "dataset": "none: a function",
        "activation": name,
        "structure": None,
        "optimizer": None,
        "lr": None,
        "depth": None,
        "seed": 0,
        "epochs": 0,
        "train_rows": 0,
        "test_rows": POINTS,
        "metric": "largest value",
        "value": round(float(y.max()), 6),
        "points": [[round(float(a), 6), round(float(b), 6)] for a, b in zip(x, y, strict=True)],
        "versions": {"hdcos": __version__, "numpy": np.__version__},
        "device": "cpu",
    }
