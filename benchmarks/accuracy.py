"""How well networks learn on shares with the options that serve, and how well the ready networks predict there.

LeNet-5 with cosine and Hadamard-Diagonal layers is trained on shares for ten epochs, the same run in floating point and
in fixed point beside it (`training.accuracy`); with a dense output layer too.
Rates are those at which plaintext training did well; diagonals learn at sqrt(n) times them. Parts may run at once, each
in a process of its own, except `steps` and `before`, which measure time.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from statistics import fmean, median
from typing import Any

import hdcos
from benchmarks import against, inference, training
from benchmarks.record import Line, at_least, at_most
from benchmarks.training_runs import Run, floating
from hdcos import data, nn

READY = Path("results/ready.jsonl")
TURNS = 7
BEFORE = "be54426"
"""The last commit without rates of their own for diagonals."""
IMAGES: dict[str, tuple[str, bool, float, float, str, bool]] = {
    "mnist": ("mnist", False, 98.6, 0.05, "logistic", False),
    "mnist-dense": ("mnist", True, 98.8, 0.05, "logistic", False),
    "fashion": ("fashion_mnist", False, 87.5, 0.025, "softmax", True),
    "fashion-dense": ("fashion_mnist", True, 88.0, 0.025, "softmax", True),
}
"""Data set, whether its output layer is dense, least accuracy, rate, loss, whether pixels are standardised."""


def image_run(dataset: str, dense: bool, least: float, rate: float, loss: str, standardised: bool, seed: int) -> Run:
    """Ten epochs of LeNet-5; the owner of the images standardises them, if at all, before they are shared."""
    load = getattr(data, dataset)
    (x, y), (test_x, test_y) = load("train"), load("test")
    if standardised:
        mean, size = x.mean(), x.std()
        x, test_x = (x - mean) / size, (test_x - mean) / size
    model = nn.models.lenet5(seed=seed % 1000)
    if dense:
        model = nn.Sequential([*model.layers[:-1], nn.Dense(84, 10)], seed % 1000, model.input_shape)
    name = {"mnist": "MNIST", "fashion_mnist": "Fashion-MNIST"}[dataset]
    pixels = ", pixels of mean 0 and variance 1" if standardised else ""
    title = (
        f"{name}, LeNet-5 HD-cos{', dense output' if dense else ''}, 10 epochs of {loss} loss, momentum 0.9, "
        f"lr {rate:g} after a warm-up, cosine schedule{pixels}"
    )
    tolerance = 0.2 if dataset == "mnist" else 0.4
    return Run(
        *(title, model, x, y, test_x, test_y, 10, 128, rate, 0.9),
        **{"warm_up": 1, "seed": seed, "tolerance": tolerance, "least": least, "loss": loss},
    )


def trained(name: str, seed: int) -> Iterator[Line]:
    return training.accuracy([image_run(*IMAGES[name], seed)])


def ready(seed: int) -> Iterator[Line]:
    """The networks that ship, on shares; and what training them in plaintext gave, over all seeds at its best rate."""
    rows = [json.loads(line) for line in READY.read_text().splitlines()]
    for dataset, least in (("mnist", 99.3), ("fashion_mnist", 92.0)):
        with hdcos.local() as cluster:
            yield from inference.accuracy(cluster, dataset, "convnet")
        found = [row for row in rows if row["dataset"] == dataset]
        rates = {row["rate"]: [100 * r["averaged"] for r in found if r["rate"] == row["rate"]] for row in found}
        rate, values = max(rates.items(), key=lambda item: fmean(item[1]))
        line = f"{dataset}, convnet in plaintext: mean accuracy of {len(values)} seeds at lr {rate:g}, % (ready.jsonl)"
        yield at_least(line, fmean(values), least)


def steps(seed: int) -> Iterator[Line]:
    """Whether a rate of their own for diagonals costs time: two runs on one cluster that take turns."""
    features, labels = data.higgs()
    images, digits = data.mnist("train")
    for name, model, x, y, batch, count in (
        ("Higgs MLP", nn.models.higgs_mlp(), features[:25600], labels[:25600], 256, 400),
        ("LeNet-5", nn.models.lenet5(), images[:2560], digits[:2560], 128, 20),
    ):
        with hdcos.local() as cluster:
            cluster.upload(x, y, name="rows", outputs=model.output_shape[0])
            epochs = 1 + (TURNS + 1) * count // (len(x) // batch)
            runs = [training.Training(cluster, model, batch, epochs, scaled) for scaled in (True, False)]
            taken: list[list[float]] = []
            for turn in range(TURNS + 1):
                # The second of a turn is the first of the next one: the machine's speed changes.
                seconds = {}
                for number in (0, 1) if turn % 2 else (1, 0):
                    seconds[number] = runs[number].steps(count)
                    cluster.cost  # noqa: B018  waits until the material that was ordered is there
                taken.append([seconds[0], seconds[1]])
        scaled_s, plain_s = (median(turn[number] for turn in taken[1:]) / count for number in (0, 1))
        yield at_most(
            f"{name}, batch {batch}: time of a step with `scale_diagonals`, {1e3 * scaled_s:.2f} ms, over one without, "
            f"{1e3 * plain_s:.2f} ms",
            median(on / off for on, off in taken[1:]),
            1.03,
        )


def against_before(seed: int) -> Iterator[Line]:
    """Whether training as accurate as this costs time: steps here and at the commit before it, in turns."""
    for name in against.STEPS:
        found = against.compare(against.checkout(BEFORE), name)
        low, high = found["quartiles"]
        yield at_most(
            f"{name}: time of a step, {found['here_ms']:.2f} ms, over that of commit {BEFORE}, "
            f"{found['there_ms']:.2f} ms (turns around the median gave {low:.2f} to {high:.2f})",
            found["ratio"],
            1.03,
        )


PARTS: dict[str, Callable[[int], Iterator[Line]]] = {
    **{name: partial(trained, name) for name in IMAGES},
    "ready": ready,
    "steps": steps,
    "before": against_before,
}


def main() -> None:
    """`python -m benchmarks.accuracy PART RATE...`: what plaintext training makes of other rates, losses and pixels."""
    dataset, dense, least, *_ = IMAGES[sys.argv[1]]
    settings = [
        (float(rate), loss, standardised)
        for rate in sys.argv[2:]
        for loss in ("logistic", "softmax")
        for standardised in (False, True)
    ]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        outcomes = pool.map(_accuracy, [(dataset, dense, least, *each, 0) for each in settings])
        for each, accuracy in zip(settings, outcomes, strict=True):
            print(f"{accuracy:.2f} % in plaintext: rate, loss, standardised = {each}", flush=True)


def _accuracy(settings: tuple[Any, ...]) -> float:
    return floating(image_run(*settings)).accuracy


if __name__ == "__main__":
    main()
