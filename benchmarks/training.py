"""Private training against plaintext training: rounds, time as a ratio of one run, and accuracy on real data.

The float twin has the same initial weights, batches, loss and learning rate. Reads HIGGS from the data folder.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from statistics import median

import numpy as np
import torch

import hdcos
from benchmarks.record import Line, at_most
from hdcos import data, nn
from hdcos.serve.fit import PrivateTraining

BATCH = 256
EPOCHS = 20
TEST_ROWS = 10_000


def prove(seed: int) -> Iterator[Line]:
    torch.set_num_threads(1)
    features, labels = data.higgs()
    yield from higgs_step(features, labels)
    for rate in (0.5, 0.1):
        yield from higgs_accuracy(features, labels, rate, seed)


def higgs_step(features: np.ndarray, labels: np.ndarray, steps: int = 200) -> Iterator[Line]:
    """Rounds, bytes and time of one step of the Higgs MLP."""
    with hdcos.local() as cluster:
        cluster.upload(features, labels, name="higgs")
        training = PrivateTraining(cluster, nn.models.higgs_mlp(), ["higgs"], "rows", BATCH, seed=0)
        training.steps(20, 0.5)
        cluster.reset_cost()
        private_s = training.steps(steps, 0.5) / steps
        offline = cluster.cost.offline
    plain = {name: _plain_step_s(structure) for name, structure in (("dense", "dense"), ("HD", "hadamard"))}
    shown = ", ".join(f"{name} {seconds * 1e3:.2f} ms" for name, seconds in plain.items())
    yield at_most("Higgs MLP, batch 256, logistic loss: rounds per step", training.rounds_per_step, 15)
    yield at_most(
        f"its time per step, {private_s * 1e3:.1f} ms, over the faster plaintext twin ({shown}); "
        f"{training.bytes_per_step / 1e3:.0f} kB each way, offline {offline.bytes_sent[1] / steps / 1e6:.1f} MB and "
        f"{offline.seconds / steps * 1e3:.1f} ms per step",
        private_s / min(plain.values()),
        12,
    )


def _plain_step_s(structure: str, repeats: int = 100) -> float:
    twin = nn.models.higgs_mlp(structure=structure).to_torch()
    optimizer = torch.optim.SGD(twin.parameters(), lr=0.5)
    x, y = torch.randn(BATCH, 28), torch.rand(BATCH, 1).round()
    seconds = []
    for _ in range(repeats):
        started = time.perf_counter()
        optimizer.zero_grad()
        torch.nn.functional.binary_cross_entropy_with_logits(twin(x), y).backward()
        optimizer.step()
        seconds.append(time.perf_counter() - started)
    return median(seconds)


def higgs_accuracy(features: np.ndarray, labels: np.ndarray, rate: float, seed: int) -> Iterator[Line]:
    """Twenty epochs on the HIGGS sample, private and plain."""
    order = np.random.default_rng(0).permutation(len(features))
    rows, targets = features[order], labels[order]
    train, test = slice(0, len(rows) - TEST_ROWS), slice(len(rows) - TEST_ROWS, None)
    model = nn.models.higgs_mlp(4, seed=seed % 1000)
    with hdcos.local() as cluster:
        private = cluster.fit(
            model, rows[train], targets[train], epochs=EPOCHS, batch_size=BATCH, lr=rate, seed=seed, progress=False
        )
        scores = private.predict(rows[test])[:, 0]
    plain = _plain_fit(model, rows[train], targets[train], rate, seed)(rows[test])[:, 0]
    accuracies = [100 * float(np.mean((guess > 0) == targets[test])) for guess in (scores, plain)]
    difference = float(np.sqrt(np.mean((scores - plain) ** 2)))
    size = float(np.sqrt(np.mean(plain**2)))
    yield at_most(
        f"HIGGS sample of {len(rows)} rows, 4 hidden layers, lr {rate}, {EPOCHS} epochs: {accuracies[0]:.2f} % on "
        f"shares, {accuracies[1]:.2f} % in the clear (rms difference {difference:.1e} of rms logits {size:.2f}), "
        f"difference in points",
        abs(accuracies[0] - accuracies[1]),
        0.5,
    )


def _plain_fit(model: nn.Sequential, x: np.ndarray, y: np.ndarray, rate: float, seed: int) -> nn.Sequential:
    twin = model.to_torch(torch.float64)
    rows, targets = torch.from_numpy(x), torch.from_numpy(y.astype(np.float64))[:, None]
    for epoch in range(EPOCHS):
        order = np.random.default_rng([seed, epoch]).permutation(len(x))
        for number in range(len(x) // BATCH):
            chosen = order[number * BATCH : (number + 1) * BATCH]
            loss = torch.nn.functional.binary_cross_entropy_with_logits(twin(rows[chosen]), targets[chosen])
            twin.zero_grad()
            loss.backward()
            with torch.no_grad():
                for parameter in twin.parameters():
                    parameter -= rate * parameter.grad
    return nn.from_torch(twin)
