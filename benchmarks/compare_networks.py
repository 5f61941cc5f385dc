"""Networks that compare, as people bring them: LeNet-5 with ReLU and a residual network, trained here in PyTorch.

Both are imported unchanged and predict on shares; what they cost stands beside the paper's networks with the cosine.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch.nn import functional

import hdcos
from benchmarks.record import Line, at_least, at_most
from hdcos import data, nn
from hdcos.cluster.cluster import Cluster
from hdcos.ring import Array

ROUNDS = {("average", "dcf"): 13, ("max", "dcf"): 21, ("average", "tables"): 17, ("max", "tables"): 29}
IMAGES, RESNET_IMAGES = 10_000, 1000
BATCH, TURNS = 128, 5


def prove_lenet(seed: int) -> Iterator[Line]:
    """LeNet-5 as it is usually written, trained for two epochs of MNIST."""
    (x, y), (shown, labels) = data.mnist("train"), data.mnist("test")
    for pooling in ("average", "max"):
        torch.manual_seed(seed % 1000)
        module = _train(_lenet5(pooling), x, y, epochs=2, rate=0.02)
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


def prove_resnet(seed: int) -> Iterator[Line]:
    """A residual network of 20 layers with batch normalisation, from a module and from an ONNX file."""
    (x, y), (shown, labels) = data.fashion_mnist("train"), data.fashion_mnist("test")
    torch.manual_seed(seed % 1000)
    module = _train(ResNet20(), x, y, epochs=1, rate=0.05).eval()
    with torch.no_grad():
        wanted = module(torch.from_numpy(shown[:RESNET_IMAGES]).float()).argmax(1).numpy()
    right = 100 * float((wanted == labels[:RESNET_IMAGES]).mean())
    with tempfile.TemporaryDirectory() as folder, hdcos.local() as cluster:
        path = Path(folder) / "resnet.onnx"
        torch.onnx.export(module, (torch.zeros(1, 1, 28, 28),), path, dynamo=True, verbose=False)
        torch.save(module, Path(folder) / "resnet.pt")
        loaded = torch.load(Path(folder) / "resnet.pt", weights_only=False)
        for origin, model in (
            (".pt", nn.from_torch(loaded, torch.zeros(1, 1, 28, 28))),
            (".onnx", nn.from_onnx(path)),
        ):
            private = cluster.share(model, origin[1:], calibrate=x[:100])
            cluster.reset_cost()
            private.prepare(8)
            started = time.perf_counter()
            private.predict(shown[:8])
            took, cost = time.perf_counter() - started, cluster.cost
            count = RESNET_IMAGES if origin == ".pt" else 100
            pieces = [private.predict(shown[at : at + 50]) for at in range(0, count, 50)]
            same = 100 * float((np.concatenate(pieces).argmax(1) == wanted[:count]).mean())
            online, dealt = max(cost.online.bytes_sent) / 8e6, sum(cost.offline.bytes_sent) / 8e6
            yield at_least(
                f"ResNet-20 from {origin}, {right:.1f} % right in PyTorch: labels as PyTorch's, % of {count} images of "
                f"Fashion-MNIST ({cost.online.rounds} rounds; an image {online:.2f} MB online, {dealt:.1f} MB of "
                f"material, {1e3 * took / 8:.0f} ms in batches of 8)",
                same,
                99.5,
            )


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


def _train(module: torch.nn.Module, x: Array, y: Array, epochs: int, rate: float) -> torch.nn.Module:
    torch.set_num_threads(2)
    images, labels = torch.from_numpy(x).float(), torch.from_numpy(y.astype(np.int64))
    steps = epochs * (len(x) // BATCH)
    optimizer = torch.optim.SGD(module.parameters(), lr=rate, momentum=0.9)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate * 2, total_steps=steps)
    module.train()
    for _ in range(epochs):
        order = torch.randperm(len(x))
        for at in range(0, len(x) - BATCH + 1, BATCH):
            chosen = order[at : at + BATCH]
            loss = functional.cross_entropy(module(images[chosen]), labels[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return module.eval()


def _lenet5(pooling: str) -> torch.nn.Module:
    def pool() -> torch.nn.Module:
        return torch.nn.AvgPool2d(2) if pooling == "average" else torch.nn.MaxPool2d(2)

    layers = torch.nn
    return layers.Sequential(
        *(layers.Conv2d(1, 6, 5, padding=2), layers.ReLU(), pool()),
        *(layers.Conv2d(6, 16, 5), layers.ReLU(), pool(), layers.Flatten()),
        *(layers.Linear(400, 120), layers.ReLU(), layers.Linear(120, 84), layers.ReLU(), layers.Linear(84, 10)),
    )


class _Block(torch.nn.Module):
    """Two convolutions and what goes past them."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.first_norm = torch.nn.BatchNorm2d(outputs)
        self.second = torch.nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.second_norm = torch.nn.BatchNorm2d(outputs)
        self.past: torch.nn.Module = torch.nn.Identity()
        if inputs != outputs:
            past = torch.nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.past = torch.nn.Sequential(past, torch.nn.BatchNorm2d(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = functional.relu(self.first_norm(self.first(x)))
        return functional.relu(self.second_norm(self.second(inner)) + self.past(x))


class ResNet20(torch.nn.Module):
    """Three times three blocks of 16, 32 and 64 channels."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = torch.nn.Conv2d(1, 16, 3, 1, 1, bias=False)
        self.norm = torch.nn.BatchNorm2d(16)
        widths = (16, 16, 16, 16, 32, 32, 32, 64, 64, 64)
        pairs = pairwise(widths)
        self.blocks = torch.nn.Sequential(*(_Block(a, b, 1 if a == b else 2) for a, b in pairs))
        self.pool = torch.nn.AdaptiveAvgPool2d(1)
        self.output = torch.nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.blocks(functional.relu(self.norm(self.stem(x))))
        return self.output(torch.flatten(self.pool(x), 1))
