"""Table 1: the online rounds of each activation, from the very protocols that evaluate it.

The programs of the catalogue are driven over shapes; tests hold these plans to what links meter. Rows are written for
activations that the file lacks.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hdcos._version import __version__
from hdcos.protocol.catalogue import ACTIVATIONS, Call, find
from hdcos.protocol.plan import blank_share, plan
from paper import results

ELEMENTS = 1024


def run(out: Path) -> int:
    """Append the activations that the file lacks; the number of rows written."""
    there = {activation for (activation,) in results.done(out, "rounds", "activation")}
    rows = [_row(name) for name in ACTIVATIONS if name not in there]
    results.append(out, rows)
    return len(rows)


def _row(name: str) -> results.Row:
    planned = plan(Call.of(name).program, blank_share((ELEMENTS,), find(name).input_scale))
    return {
        "experiment": "rounds",
        "dataset": "none: planned from shapes",
        "activation": name,
        "structure": None,
        "optimizer": None,
        "lr": None,
        "depth": None,
        "seed": 0,
        "epochs": 0,
        "train_rows": 0,
        "test_rows": 0,
        "metric": "online rounds",
        "value": planned.rounds,
        "bytes_per_element": planned.online_bytes / ELEMENTS,
        "offline_bytes_per_element": planned.offline_bytes / ELEMENTS,
        "versions": {"hdcos": __version__, "numpy": np.__version__},
        "device": "cpu",
    }
