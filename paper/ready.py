"""Trains the ready network of `nn.models.convnet` on MNIST and Fashion-MNIST: `python -m paper ready DATASET`.

Momentum 0.9, a warm-up of one epoch and a cosine decay, diagonals at sqrt(n) times the rate, softmax loss, images
shifted by up to two pixels and, where a mirror image is of the same class, flipped: every epoch sees all images in new
places. The networks that ship are running means of the parameters over about the last two epochs.

Pixels are standardised for training, with the border of the first convolution black, so that the trained network can be
rewritten exactly for pixels in [0, 1]: its first kernels are divided by the deviation, and their biases take the mean.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import cos, pi
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import torch

from hdcos.nn import models
from hdcos.nn.convolution import Conv2d
from hdcos.nn.network import Sequential
from paper.batched import Batch
from paper.cells import rate_row
from paper.optimizers import Momentum
from paper.splits import split
from paper.trainer import captured, loss_slopes

SHIFT, BATCH = 2, 128
KEPT = 0.999
"""What a running mean of the parameters keeps of itself at every step."""
EPOCHS = {"mnist": 30, "fashion_mnist": 60}
FLIPPED = {"mnist": False, "fashion_mnist": True}


@dataclass(frozen=True)
class Pixels:
    """Images on a device, standardised, with black borders: that of the first convolution and, for training, shifts."""

    train_x: torch.Tensor
    train_y: torch.Tensor
    test_x: torch.Tensor
    test_y: torch.Tensor
    mean: float
    deviation: float
    border: int
    flipped: bool

    @classmethod
    def load(cls, dataset: str, border: int, device: str) -> Pixels:
        train_x, train_y, test_x, test_y = split(dataset)
        mean, deviation = float(train_x.mean()), float(train_x.std())

        def bordered(images: np.ndarray, width: int) -> torch.Tensor:
            wider = np.pad(images, ((0, 0), (0, 0), (width, width), (width, width)))
            return torch.from_numpy((wider - np.float32(mean)) / np.float32(deviation)).to(device)

        labels = [torch.from_numpy(y).to(device) for y in (train_y, test_y)]
        return cls(
            bordered(train_x, border + SHIFT), labels[0], bordered(test_x, border), labels[1],
            mean, deviation, border, FLIPPED[dataset],
        )  # fmt: skip

    def augmented(self, generator: torch.Generator) -> torch.Tensor:
        """All training images, each shifted, and flipped or not, at random."""
        images, device = self.train_x[:, 0], self.train_x.device
        count, side = len(images), images.shape[-1] - 2 * SHIFT
        corners = torch.randint(0, 2 * SHIFT + 1, (2, count, 1), generator=generator).to(device)
        rows, columns = corners + torch.arange(side, device=device)
        if self.flipped:
            turned = torch.randint(0, 2, (count, 1), generator=generator).to(device).bool()
            columns = torch.where(turned, columns.flip(1), columns)
        return images[torch.arange(count, device=device)[:, None, None], rows[:, :, None], columns[:, None, :]][:, None]


@dataclass(frozen=True)
class Trained:
    """A network for pixels in [0, 1], with the share of test images that it gets right."""

    rate: float
    seed: int
    model: Sequential
    accuracy: float
    last: float
    """The same of the parameters after the last step, which are no mean."""


def train(
    dataset: str, rates: Sequence[float], seeds: int, epochs: int, device: str, say: Callable[[str], None] = print
) -> list[Trained]:
    """Networks for every rate and seed, trained side by side."""
    plain = [models.convnet(seed=seed) for seed in range(seeds)]
    border = _first(plain[0]).padding
    pixels = Pixels.load(dataset, border, device)
    inner = [_without_border(model) for model in plain]
    batch = Batch(inner * len(rates), device)
    chosen = torch.tensor([rate for rate in rates for _ in range(seeds)]).to(batch.parameters)[:, None]
    optimizer = Momentum(batch.parameters, chosen * torch.from_numpy(rate_row(inner[0])).to(batch.parameters))
    averaged = batch.parameters.clone()
    images = torch.empty((len(pixels.train_x), 1, 28 + 2 * border, 28 + 2 * border), device=device)
    order = torch.arange(len(images), device=device)
    position, rows = torch.zeros((), dtype=torch.int64, device=device), torch.arange(BATCH, device=device)
    keep = torch.zeros((), device=device)

    def step() -> None:
        picked = order[position + rows]
        position.add_(BATCH)
        outputs = batch(images[picked])
        slopes = loss_slopes(outputs.detach(), pixels.train_y[picked])
        with torch.no_grad():
            optimizer.step(batch.gradient(outputs, slopes))
            averaged.lerp_(batch.parameters, 1 - keep)

    generator = torch.Generator().manual_seed(0)
    steps = len(images) // BATCH
    images.copy_(pixels.augmented(generator))
    initial = batch.parameters.detach().clone()

    def restart() -> None:
        batch.parameters.data.copy_(initial)
        averaged.copy_(initial)
        optimizer.reset()

    advance = captured(step, restart) if device != "cpu" else step
    begun = monotonic()
    for epoch in range(epochs):
        images.copy_(pixels.augmented(generator))
        order.copy_(torch.randperm(len(order), generator=generator))
        position.zero_()
        for index in range(steps):
            done = epoch * steps + index
            rising = min(1.0, (done + 1) / steps)
            optimizer.schedule.fill_(rising * 0.5 * (1 + cos(pi * done / (epochs * steps))))
            keep.fill_(min(KEPT, done / (done + 10)))
            advance()
        if (epoch + 1) % 10 == 0 or epoch + 1 == epochs:
            say(f"{dataset} epoch {epoch + 1}: {_percents(_scores(batch, pixels))}, {monotonic() - begun:.0f} s")
    last = _scores(batch, pixels)
    batch.parameters.data.copy_(averaged)
    means = _scores(batch, pixels)
    runs = [(rate, seed) for rate in rates for seed in range(seeds)]
    return [
        Trained(*run, _for_unit_pixels(batch.network(inner[0], index), plain[0], pixels), means[index], last[index])
        for index, run in enumerate(runs)
    ]


def run(
    dataset: str,
    folder: Path,
    rates: Sequence[float],
    seeds: int,
    epochs: int | None,
    device: str,
    say: Callable[[str], None] = print,
) -> list[dict[str, Any]]:
    """Train, save the networks of all seeds in a folder and say how they score."""
    length = EPOCHS[dataset] if epochs is None else epochs
    folder.mkdir(parents=True, exist_ok=True)
    if device != "cpu":
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        torch.backends.cudnn.benchmark = True
    rows = []
    for trained in train(dataset, rates, seeds, length, device, say):
        trained.model.save(folder / f"convnet_{dataset}-{trained.rate}-{trained.seed}.safetensors")
        row = {"dataset": dataset, "rate": trained.rate, "seed": trained.seed, "epochs": length}
        rows.append({**row, "averaged": round(trained.accuracy, 6), "last": round(trained.last, 6)})
        say(json.dumps(rows[-1]))
    return rows


def _first(model: Sequential) -> Conv2d:
    layer = model.layers[0]
    assert isinstance(layer, Conv2d)
    return layer


def _without_border(model: Sequential) -> Sequential:
    """The same network for images that bring the border of its first convolution along."""
    border = _first(model).padding
    channels, height, width = model.input_shape
    layers = [replace(_first(model), padding=0), *model.layers[1:]]
    return Sequential(layers, 0, (channels, height + 2 * border, width + 2 * border)).with_state(model.state())


def _for_unit_pixels(model: Sequential, like: Sequential, pixels: Pixels) -> Sequential:
    """The same function of pixels in [0, 1], whose border of zeros is black."""
    state = model.state()
    weight = state["0.weight"] / pixels.deviation
    state["0.bias"] = state["0.bias"] - pixels.mean * weight.sum(axis=(1, 2, 3))
    state["0.weight"] = weight
    return like.with_state(state)


@torch.no_grad()
def _scores(batch: Batch, pixels: Pixels) -> list[float]:
    right = torch.zeros(batch.models, device=pixels.test_x.device)
    for start in range(0, len(pixels.test_x), 1000):
        labels = batch(pixels.test_x[start : start + 1000]).argmax(dim=2)
        right += (labels == pixels.test_y[start : start + 1000]).sum(dim=1)
    return [float(number) for number in (right / len(pixels.test_x)).cpu()]


def _percents(values: Sequence[float]) -> str:
    return " ".join(f"{100 * value:.2f}" for value in values)
