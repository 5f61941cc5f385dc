"""Trained models as rows of the results file."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
import torch

from hdcos._version import __version__
from paper.cells import Cell
from paper.results import Row
from paper.tasks import Task
from paper.trainer import Run


@dataclass(frozen=True)
class Pace:
    """How fast models were trained, of all that were trained side by side: set-up and test rows included."""

    models_together: int
    ms_per_step: float


def rows_of(experiment: str, cell: Cell, runs: Sequence[Run], task: Task, epochs: int, pace: Pace) -> list[Row]:
    """The rows of a trained cell."""
    device = task.train_x.device
    machine = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    shared = {
        "epochs": epochs,
        "batch_size": task.batch_size,
        "train_rows": len(task.train_x),
        "test_rows": len(task.test_x),
        "parameter_count": cell.network(0).parameter_count,
        "metric": "accuracy",
    }
    versions = {
        "hdcos": __version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }
    return [
        {
            "experiment": experiment,
            **asdict(cell),
            "lr": run.lr,
            "seed": run.seed,
            **shared,
            "value": round(run.value, 6),
            "diverged_at": run.diverged_at,
            "curve": {str(epoch): round(value, 6) for epoch, value in run.curve.items()},
            **asdict(pace),
            "versions": versions,
            "device": machine,
        }
        for run in runs
    ]
