"""Networks that compare: LeNet-5 with ReLU as it is usually written, trained in PyTorch and imported unchanged; the
paper's networks with the cosine and with ReLU, side by side.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from statistics import median
from typing import Any

import numpy as np
import torch

import hdcos
from benchmarks.record import Line, at_least, at_most
from benchmarks.residual import train
from hdcos import data, nn
from hdcos.cluster.cluster import Cluster
from hdcos.ring import Array

ROUNDS = {("average", "tables"): 17, ("average", "dcf"): 13, ("max", "tables"): 29, ("max", "dcf"): 21}
"""Of LeNet-5 with ReLU, at most, by its pooling and by how it compares."""
IMAGES = 10_000
BATCH, TURNS = 128, 5


def prove_lenet(seed: int) -> Iterator[Line]:
    """LeNet-5 as it is usually written, trained for two epochs of MNIST."""
    (x, y), (shown, labels) = data.mnist("train"), data.mnist("test")
    images, digits = torch.from_numpy(x).float(), torch.from_numpy(y).long()
    for pooling in ("average", "max"):
        torch.manual_seed(seed % 1000)
        module = train(_lenet5(pooling), images, digits, epochs=2, rate=0.04)
        model = nn.from_torch(module, input_shape=(1, 28, 28))
        plain = model(shown[:IMAGES])
        right = 100 * float((plain.argmax(1) == labels[:IMAGES]).mean())
        with hdcos.local() as cluster:
            for way in ("tables", "dcf"):
                private = cluster.share(model, f"{pooling}-{way}", compare=way)
                rounds, took = _one_batch(cluster, private, shown[:BATCH])
                limit = ROUNDS[pooling, way]
                name = f"LeNet-5, ReLU and {pooling}-pooling, by {way}"
                yield at_most(f"{name}: rounds of a batch of {BATCH}, {1e3 * took:.0f} ms in all", rounds, limit)
                count = IMAGES if way == "tables" else 1000
                logits = private.predict(shown[:count])
                same = 100 * float((logits.argmax(1) == plain[:count].argmax(1)).mean())
                error = float(np.abs(logits - plain[:count]).max())
                line = f"{name}, {right:.2f} % right in plaintext: labels as in plaintext, % of {count} MNIST images"
                yield at_least(f"{line} (logits within {error:.1e})", same, 99.9)


def prove_networks(seed: int) -> Iterator[Line]:
    """The paper's networks with the cosine and with ReLU in one system: everything included, batches of 128."""
    ways = (("cos", "hadamard", None), ("cos", "dense", None), ("relu", "dense", "tables"), ("relu", "dense", "dcf"))
    for network in ("lenet5", "higgs_mlp", "criteo_mlp"):
        taken: dict[Any, list[float]] = {way: [] for way in ways}
        costs = {}
        with hdcos.local() as cluster:
            shared = {}
            for activation, structure, compare in ways:
                model = nn.models.READY[network](activation=activation, structure=structure, seed=seed % 1000)
                name = f"{activation}-{structure}-{compare}"
                shared[activation, structure, compare] = cluster.share(model, name, compare=compare)
            rows = np.random.default_rng(seed).uniform(0, 1, (BATCH, *model.input_shape))
            for turn in range(TURNS):
                for way in ways if turn % 2 else ways[::-1]:
                    cluster.reset_cost()
                    started = time.perf_counter()
                    shared[way].prepare(BATCH)
                    shared[way].predict(rows)
                    taken[way].append(time.perf_counter() - started)
                    costs[way] = cluster.cost
        for way in ways:
            cost, (activation, structure, compare) = costs[way], way
            online, dealt = max(cost.online.bytes_sent) / BATCH, sum(cost.offline.bytes_sent) / BATCH
            how = f"{structure} {activation}" + (f" by {compare}" if compare else "")
            ratio = median(mine / base for mine, base in zip(taken[way], taken[ways[0]], strict=True))
            figures = f"{cost.online.rounds} rounds, {online:,.0f} bytes online each way, {dealt:,.0f} of material"
            yield Line(
                f"{network}, {how}: a row takes {figures}, {1e3 * median(taken[way]) / BATCH:.3f} ms; "
                f"time over that of the Hadamard-diagonal cosine",
                round(ratio, 3),
                "",
                True,
            )


def _one_batch(cluster: Cluster, private: Any, x: Array) -> tuple[int, float]:
    """Rounds of a batch whose material is there, and the seconds of all of it."""
    private.prepare(len(x))
    cluster.reset_cost()
    started = time.perf_counter()
    private.predict(x)
    return cluster.cost.online.rounds, time.perf_counter() - started


def _lenet5(pooling: str) -> torch.nn.Module:
    def pool() -> torch.nn.Module:
        return torch.nn.AvgPool2d(2) if pooling == "average" else torch.nn.MaxPool2d(2)

    layers = torch.nn
    return layers.Sequential(
        *(layers.Conv2d(1, 6, 5, padding=2), layers.ReLU(), pool()),
        *(layers.Conv2d(6, 16, 5), layers.ReLU(), pool(), layers.Flatten()),
        *(layers.Linear(400, 120), layers.ReLU(), layers.Linear(120, 84), layers.ReLU(), layers.Linear(84, 10)),
    )
