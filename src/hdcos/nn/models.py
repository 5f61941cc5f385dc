"""Ready networks: those of the paper with any activation and structure, and the trained ones that ship with hdcos."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import sqrt
from pathlib import Path

import numpy as np
import numpy.typing as npt

from hdcos.checks import check_whole
from hdcos.errors import InputError, ModelError
from hdcos.nn.activations import activation as activation_named
from hdcos.nn.convolution import AvgPool2d, Conv2d, Flatten
from hdcos.nn.dense import Circulant, Dense, LowRank
from hdcos.nn.hadamard import PHD, HadamardDiagonal, RandomFeatures
from hdcos.nn.layer import Layer, Linear
from hdcos.nn.network import Network, Sequential
from hdcos.nn.storage import load

STRUCTURES: dict[str, Callable[[int, int], Linear]] = {
    "dense": Dense,
    "hadamard": HadamardDiagonal,
    "low_rank": LowRank,
    "phd": PHD,
    "circulant": Circulant,
}


def linear(structure: str, in_features: int, out_features: int) -> Linear:
    """A linear layer of the structure with that name."""
    if structure not in STRUCTURES:
        raise ModelError(f"no structure is called {structure!r}: choose from {', '.join(STRUCTURES)}")
    return STRUCTURES[structure](in_features, out_features)


def mlp(sizes: Sequence[int], activation: str = "cos", structure: str = "hadamard", seed: int = 0) -> Sequential:
    """Linear layers from each size to the next, with activations between them and none after the last."""
    return Sequential(_stack(sizes, activation, structure), seed)


def lenet5(activation: str = "cos", structure: str = "hadamard", seed: int = 0) -> Sequential:
    """LeNet-5 for (1, 28, 28) images and 10 classes; the structure applies to its three dense layers."""
    act = _between(activation)
    features = [Conv2d(1, 6, 5, padding=2), *act, AvgPool2d(2), Conv2d(6, 16, 5), *act, AvgPool2d(2), Flatten()]
    return Sequential([*features, *_stack([400, 120, 84, 10], activation, structure)], seed, (1, 28, 28))


def convnet(activation: str = "cos", structure: str = "hadamard", seed: int = 0) -> Sequential:
    """A network for (1, 28, 28) images and 10 classes, more accurate than LeNet-5: three convolutions, two of them with
    stride 2, then 512 units of the structure and a dense output."""
    act = _between(activation)
    features = [
        Conv2d(1, 16, 3, padding=1),
        *act,
        Conv2d(16, 32, 4, 2, 1),
        *act,
        Conv2d(32, 64, 4, 2, 1),
        *act,
        Flatten(),
    ]
    return Sequential([*features, linear(structure, 3136, 512), *act, Dense(512, 10)], seed, (1, 28, 28))


def higgs_mlp(
    hidden_layers: int = 4, activation: str = "cos", structure: str = "hadamard", seed: int = 0
) -> Sequential:
    """28 features, hidden layers of 16 units, one logit."""
    count = check_whole(hidden_layers, "hidden_layers", error=ModelError)
    return mlp([28, *[16] * count, 1], activation, structure, seed)


def criteo_mlp(activation: str = "cos", structure: str = "hadamard", seed: int = 0) -> Sequential:
    """1023 features, four hidden layers of 1024 units, one logit."""
    return mlp([1023, 1024, 1024, 1024, 1024, 1], activation, structure, seed)


def kernel_machine(
    in_features: int = 784, outputs: int = 10, features: int = 4096, bandwidth: float | None = None, seed: int = 0
) -> Sequential:
    """A linear layer on public random features: what it learns is convex, and no cosine is computed on shares.

    `bandwidth` is that of the kernel: `median_distance` of some rows of your own, which both parties will know. Without
    it, it is that of standardised rows, sqrt(2 in_features).
    """
    s = sqrt(2 * check_whole(in_features, "in_features", error=ModelError)) if bandwidth is None else bandwidth
    return Sequential([RandomFeatures(in_features, features, s, seed), Dense(features, outputs)], seed)


def median_distance(rows: npt.ArrayLike) -> float:
    """The median distance of two among the first 500 rows: a bandwidth for random features."""
    some = np.asarray(rows, np.float64)[:500]
    flat = some.reshape(len(some), -1)
    squares = (flat * flat).sum(axis=1)
    pairs = np.triu_indices(len(flat), 1)
    if not len(pairs[0]):
        raise InputError(f"distances between rows take two rows at least, got {len(flat)}")
    apart = np.maximum(squares[:, None] + squares - 2 * flat @ flat.T, 0)[pairs]
    return float(np.sqrt(np.median(apart)))


READY: dict[str, Callable[..., Sequential]] = {
    "lenet5": lenet5,
    "convnet": convnet,
    "higgs_mlp": higgs_mlp,
    "criteo_mlp": criteo_mlp,
}
"""Untrained networks by name; each takes `activation`, `structure` and `seed` by keyword."""

PRETRAINED = ("digits", "lenet5_mnist", "lenet5_fashion_mnist", "convnet_mnist", "convnet_fashion_mnist")


def pretrained(name: str) -> Network:
    """A trained network that ships with hdcos."""
    if name not in PRETRAINED:
        raise ModelError(f"no trained network is called {name!r}: choose from {', '.join(PRETRAINED)}")
    return load(Path(__file__).with_name("pretrained") / f"{name}.safetensors")


def digits() -> Network:
    """An HD-cos network for the 8 x 8 digits of scikit-learn (64 pixels in [0, 1], 10 classes)."""
    return pretrained("digits")


def _between(activation: str) -> list[Layer]:
    layer = activation_named(activation)
    return [] if layer is None else [layer]


def _stack(sizes: Sequence[int], activation: str, structure: str) -> list[Layer]:
    if len(sizes) < 2:
        raise ModelError(f"a network needs at least two sizes, its inputs and its outputs, got {list(sizes)}")
    act = _between(activation)
    layers: list[Layer] = []
    for in_features, out_features in pairwise(sizes):
        layers += [*(act if layers else []), linear(structure, in_features, out_features)]
    return layers
