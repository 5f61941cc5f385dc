"""Criteo: embeddings and an MLP trained together, scored by the area under the precision-recall curve.

With Criteo's file in the data folder the rows are real. Without it they are generated, which exercises every part and
says nothing about Criteo: the results file then names the data set "criteo (synthetic)".
"""

from __future__ import annotations

import platform
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, astuple, dataclass
from math import sqrt
from pathlib import Path

import numpy as np
import torch

from hdcos._version import __version__
from hdcos.data.criteo import CriteoRows, Vocabulary, criteo, read_criteo, split
from hdcos.data.synthetic import write_criteo
from hdcos.errors import DataMissing
from hdcos.nn import models
from hdcos.nn.network import Sequential
from hdcos.ring import Array
from paper import results
from paper.cells import CRITEO_DEPTH, LEARNING_RATES, Cell
from paper.cells import SYNTHETIC_CRITEO as SYNTHETIC
from paper.experiments import ACTIVATIONS, STRUCTURES

SYNTHETIC_ROWS = 10_000
SYNTHETIC_ACTIVATIONS = ("cos", "relu")
ROWS_AT_ONCE = 8192
WIDTH, BATCH_SIZE, EPOCHS = 1024, 512, 2
"""The paper takes 150,000 steps: about two epochs of the training rows."""


def run(
    out: Path,
    *,
    epochs: int | None = None,
    trials: int = 1,
    rates: Sequence[float] = LEARNING_RATES,
    device: str = "cpu",
    say: Callable[[str], None] = print,
) -> int:
    """Train the cells that the file lacks; the number of cells trained."""
    dataset, rows = _rows(say)
    length = epochs or EPOCHS
    activations = SYNTHETIC_ACTIVATIONS if dataset == SYNTHETIC else ACTIVATIONS
    cells = [Cell(dataset, a, s, depth=CRITEO_DEPTH) for a in activations for s in STRUCTURES]
    done = results.finished(results.read(out), rates, trials)
    missing = [cell for cell in cells if (*astuple(cell), length) not in done]
    parts = Parts.of(rows, device)
    for cell in missing:
        results.append(out, [_row(cell, parts, rate, seed, length) for rate in rates for seed in range(trials)])
        say(f"criteo: {cell.dataset} [{cell.activation} {cell.structure}]: {length} epochs")
    return len(missing)


def _rows(say: Callable[[str], None]) -> tuple[str, CriteoRows]:
    try:
        return "criteo", criteo()
    except DataMissing as missing:
        say(f"{missing}\nUntil then {SYNTHETIC_ROWS:,} rows are generated; results on them are labelled synthetic.")
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "train.txt"
        write_criteo(path, SYNTHETIC_ROWS)
        return SYNTHETIC, read_criteo(path)


@dataclass(frozen=True)
class Parts:
    """Training and test rows as tensors: integers, table rows of the categories, labels."""

    vocabulary: Vocabulary
    train: tuple[torch.Tensor, torch.Tensor, torch.Tensor]
    test: tuple[torch.Tensor, torch.Tensor, torch.Tensor]

    @classmethod
    def of(cls, rows: CriteoRows, device: str = "cpu") -> Parts:
        vocabulary = Vocabulary.of(rows)
        train, _, test = split(rows)
        made = (
            (
                torch.from_numpy(part.integers).to(device),
                torch.from_numpy(vocabulary.indices(part)).to(device),
                torch.from_numpy(part.labels).float().to(device),
            )
            for part in (train, test)
        )
        return cls(vocabulary, *made)

    @property
    def device(self) -> torch.device:
        return self.train[0].device

    def network(self, cell: Cell, seed: int) -> Sequential:
        return models.mlp([self.vocabulary.width, *[WIDTH] * CRITEO_DEPTH, 1], cell.activation, cell.structure, seed)


class Embedded(torch.nn.Module):
    """A network behind its embedding tables; an embedding starts with a length of about 1."""

    def __init__(self, vocabulary: Vocabulary, network: Sequential, seed: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        tables = [
            torch.randn(len(known) + 1, size, generator=generator) / sqrt(size)
            for known, size in zip(vocabulary.known, vocabulary.sizes, strict=True)
        ]
        self.tables = torch.nn.ParameterList(tables)
        self.network = network.to_torch()

    def forward(self, integers: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
        looked_up = [table[column] for table, column in zip(self.tables, indices.T, strict=True)]
        logits: torch.Tensor = self.network(torch.cat([integers, *looked_up], dim=1))[:, 0]
        return logits


def train(parts: Parts, cell: Cell, rate: float, seed: int, epochs: int) -> tuple[Embedded, bool]:
    """The trained network and whether all its parameters stayed finite."""
    model = Embedded(parts.vocabulary, parts.network(cell, seed), seed).to(parts.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    for integers, indices, labels in _batches(parts.train, epochs):
        optimizer.zero_grad()
        loss = torch.nn.functional.binary_cross_entropy_with_logits(model(integers, indices), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return model, all(bool(parameter.isfinite().all()) for parameter in model.parameters())


def _batches(rows: tuple[torch.Tensor, ...], epochs: int) -> Iterator[list[torch.Tensor]]:
    """The same batches for every model: all rows in a new order each epoch, without the rest that fills no batch."""
    generator = torch.Generator().manual_seed(0)
    count, size = len(rows[0]), min(BATCH_SIZE, len(rows[0]))
    for _ in range(epochs):
        order = torch.randperm(count, generator=generator).to(rows[0].device)
        for start in range(0, count - size + 1, size):
            yield [part[order[start : start + size]] for part in rows]


def average_precision(scores: Array, labels: Array) -> float:
    """The area under the precision-recall curve as a sum over thresholds; rows of one score count together."""
    order = np.argsort(-scores, kind="stable")
    ranked, hits = scores[order], np.cumsum(labels[order])
    last = np.append(np.flatnonzero(np.diff(ranked)), len(ranked) - 1)
    precision, recall = hits[last] / (last + 1), hits[last] / hits[-1]
    return float(np.sum(np.diff(recall, prepend=0) * precision))


def _scores(model: Embedded, integers: torch.Tensor, indices: torch.Tensor) -> Array:
    """The logits of all rows, some thousands at a time."""
    pieces = [slice(start, start + ROWS_AT_ONCE) for start in range(0, len(integers), ROWS_AT_ONCE)]
    return np.concatenate([model(integers[rows], indices[rows]).cpu().numpy() for rows in pieces])


def _row(cell: Cell, parts: Parts, rate: float, seed: int, epochs: int) -> results.Row:
    model, finite = train(parts, cell, rate, seed, epochs)
    integers, indices, labels = parts.test
    chance = float(labels.mean())
    with torch.inference_mode():
        value = average_precision(_scores(model, integers, indices), labels.cpu().numpy()) if finite else chance
    return {
        "experiment": "criteo",
        **asdict(cell),
        "lr": rate,
        "seed": seed,
        "epochs": epochs,
        "batch_size": BATCH_SIZE,
        "train_rows": len(parts.train[0]),
        "test_rows": len(labels),
        "input_width": parts.vocabulary.width,
        "parameter_count": sum(parameter.numel() for parameter in model.parameters()),
        "metric": "auc_pr",
        "value": round(value, 6),
        "chance": round(chance, 6),
        "diverged_at": None if finite else epochs,
        "curve": {str(epochs): round(value, 6)} if finite else {},
        "versions": {
            "hdcos": __version__,
            "torch": torch.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
        "device": torch.cuda.get_device_name(parts.device) if parts.device.type == "cuda" else "cpu",
    }
