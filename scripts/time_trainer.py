"""Write results/speed.json: milliseconds per step of LeNet-5 cells that are trained together, on random images.

    python scripts/time_trainer.py [--device cuda] [--steps 300] [--output results/speed.json]

Needs PyTorch and NumPy; on a GPU a step is captured as a graph, as in training.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from paper.cells import LEARNING_RATES, Cell
from paper.experiments import EXPERIMENTS
from paper.tasks import Task
from paper.trainer import train

BATCH = 128
CASES = [
    (EXPERIMENTS["tables"][:1], 5),
    (EXPERIMENTS["tables"][:1], 3),
    (EXPERIMENTS["tables"][:3], 3),
    (EXPERIMENTS["tables"][:6], 3),
    ([Cell("fashion_mnist", "cos", structure) for structure in ("phd", "circulant")], 3),
]
"""Cells that are trained together, and trials at each of six learning rates."""


def timed(cells: list[Cell], trials: int, steps: int, device: str) -> dict[str, Any]:
    """The mean over steps, as the difference of a long and a short training: what both begin with cancels."""
    images = torch.rand(BATCH * steps, 1, 28, 28, device=device)
    labels = torch.randint(0, 10, (BATCH * steps,), device=device)
    task = Task(images, labels, images[:BATCH], labels[:BATCH], classes=10, batch_size=BATCH, epochs=1)
    train(cells, task, LEARNING_RATES, trials, 1)  # libraries and kernels set themselves up
    seconds = []
    for epochs in (1, 2):
        begun = perf_counter()
        train(cells, task, LEARNING_RATES, trials, epochs)
        if device == "cuda":
            torch.cuda.synchronize()
        seconds.append(perf_counter() - begun)
    return {
        "network": "lenet5",
        "batch_size": BATCH,
        "cells_together": len(cells),
        "models_per_cell": trials * len(LEARNING_RATES),
        "first_cell": f"{cells[0].activation} {cells[0].structure} {cells[0].optimizer}",
        "ms_per_step_of_all": round(1e3 * (seconds[1] - seconds[0]) / steps, 3),
        "steps_timed": steps,
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "torch": torch.__version__,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Time the trainer of the paper's experiments.")
    parser.add_argument("--device", default="cuda", help="cuda or cpu")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--output", type=Path, default=Path("results/speed.json"))
    options = parser.parse_args()
    runs = [timed(cells, trials, options.steps, options.device) for cells, trials in CASES]
    options.output.write_text(json.dumps(runs, indent=1) + "\n")


if __name__ == "__main__":
    main()
