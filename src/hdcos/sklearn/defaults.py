"""What an estimator chooses where it is told "auto", from sizes that are public anyway: rows, features, outputs.

Nothing is tried out on the data, so choosing tells nobody anything. The rules suppose standardised features.

network   up to FEW_ROWS rows a linear model, which is hard to beat there and begins at zero. Else one hidden layer of
          cosines that starts as random Fourier features of a Gaussian kernel, of the bandwidth of d standardised
          features, sqrt(2 d).
penalty   alpha / rows as weight decay: the objective of LogisticRegression(C=1 / alpha), or of Ridge(alpha).
rate      as large as is stable: features of variance 1 give a squared loss a curvature of at most d + 1, a logistic one
          of at most a quarter of that. Momentum 0.9 is stable up to 3.8 over the curvature; batches bring noise.
gain      weights on shares are below 4 in size. A linear model takes the caller's standardised features times GAIN, so
          that weights may reach GAIN times that. The rate over GAIN^2 and the penalty times GAIN^2 are those of weights
          that are GAIN times as large; only the intercept is slower, and penalised more.
epochs    as many as make STEPS steps. Rates rise in the first of them and fall to a fiftieth along a cosine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, cos, pi, sqrt

import numpy as np

from hdcos import nn
from hdcos.nn.layer import Layer, Linear
from hdcos.nn.models import linear

AUTO = "auto"
FEW_ROWS = 5000
WIDTH = 64
LEAST_BATCH, MOST_BATCH, PART = 32, 512, 16
"""A batch is a sixteenth of the rows, within these."""
STEPS, NETWORK_STEPS = 1000, 3000
LEAST_EPOCHS, MOST_EPOCHS = 3, 200
MOST_RATE = 0.1
RATES = {"logistic": 4.0, "squared": 1.0}
LAST_RATE = 0.02
GAIN = 2.0


@dataclass(frozen=True)
class Sizes:
    """What everybody may know of a data set."""

    rows: int
    features: int
    outputs: int


def choose_hidden(sizes: Sizes) -> tuple[int, ...]:
    return () if sizes.rows <= FEW_ROWS else (WIDTH,)


def choose_batch(sizes: Sizes) -> int:
    part = 1 << (sizes.rows // PART).bit_length() >> 1
    return min(sizes.rows, max(LEAST_BATCH, min(MOST_BATCH, part)))


def choose_epochs(sizes: Sizes, batch: int, hidden: Sequence[int]) -> int:
    steps = NETWORK_STEPS if hidden else STEPS
    return min(MOST_EPOCHS, max(LEAST_EPOCHS, ceil(steps / max(1, sizes.rows // batch))))


def choose_rate(sizes: Sizes, hidden: Sequence[int], loss: str) -> float:
    return min(MOST_RATE, RATES[loss] / (1 + max(sizes.features, *hidden, 0)))


def falling_rate(epochs: int) -> Callable[[int], float]:
    """What a rate is multiplied with in each epoch."""
    return lambda epoch: max(LAST_RATE, 0.5 * (1 + cos(pi * epoch / epochs)))


def build_network(sizes: Sizes, hidden: Sequence[int], activation: str, structure: str, seed: int) -> nn.Sequential:
    """Hidden layers of this structure, each with an activation, and a dense output; without any, a linear model."""
    widths = [sizes.features, *hidden]
    between = nn.activations.activation(activation)
    layers: list[Layer] = []
    for before, width in pairwise(widths):
        layers.append(_hidden(structure, before, width, isinstance(between, nn.Cos) and not layers))
        layers += [] if between is None else [between]
    model = nn.Sequential([*layers, nn.Dense(widths[-1], sizes.outputs)], seed)
    if layers:
        return model
    # One layer has no symmetry to break: from zero, logits are never larger than what is learned makes them.
    return model.with_state({name: np.zeros_like(value) for name, value in model.state().items()})


def _hidden(structure: str, before: int, width: int, fourier: bool) -> Linear:
    bandwidth = sqrt(2 * before) if fourier else None
    if structure == "dense":
        return nn.Dense(before, width, bandwidth=bandwidth)
    if structure == "hadamard":
        return nn.HadamardDiagonal(before, width, bandwidth=bandwidth)
    return linear(structure, before, width)
