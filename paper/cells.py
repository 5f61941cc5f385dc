"""One entry of the paper's tables, and the network behind it.

A cell is trained at every learning rate with several seeds. All of these models have one architecture, so they are
trained together; the paper reports the learning rate with the best mean over the seeds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import pi, sqrt

import numpy as np

from hdcos.errors import InputError
from hdcos.nn import models
from hdcos.nn.dense import Circulant, LowRank
from hdcos.nn.hadamard import HadamardDiagonal, RandomProjection
from hdcos.nn.layer import Layer
from hdcos.nn.network import Sequential
from hdcos.ring import Array

LEARNING_RATES = (1e-5, 1e-4, 1e-3, 0.01, 0.1, 0.5)
IMAGES = ("mnist", "fashion_mnist")
SYNTHETIC_CRITEO = "criteo (synthetic)"
"""The data set's name in results on generated rows."""
TABLES = {"higgs": (28, 16), "criteo": (1023, 1024)}
"""Features of a row, and units of a hidden layer."""
HIGGS_DEPTH = CRITEO_DEPTH = 4
STEM = 7
"""Layers of LeNet-5 up to the features of its convolutions."""


def rate_row(model: Sequential) -> Array:
    """The public factor of the learning rate of every parameter, in the order of `state()`."""
    factors, state = model.rate_factors(), model.state()
    return np.concatenate([np.full(array.size, factors[name]) for name, array in state.items()])


@dataclass(frozen=True)
class Cell:
    """Models that differ in learning rate and seed only.

    depth        hidden layers of the Higgs and Criteo networks; LeNet-5 has none to choose
    blocks       H D blocks in each Hadamard-Diagonal layer
    inputs       "unit": pixels in [0, 1] and Higgs features as they are; "standardised": mean 0 and variance 1 besides
    initial      "default": that of the layers; "signs": diagonals of random signs; "phases": biases before the
                 activations uniform in [0, 2 pi); "normal": circulant weights from N(0, 1), as diagonals are;
                 "factors": each factor of a low-rank layer a Glorot matrix of its own, so their product is smaller
    reduction    of the loss over a batch: "mean" or "sum"
    diagonals    learning rate of diagonals: "plain", that of the other parameters, or "scaled", sqrt(n) times that
    projection   features that a public random projection leaves in front of the first Hadamard-Diagonal layer
    convolutions activation after the convolutions of LeNet-5: "same" as after the other layers, or "relu"
    part         of the training rows: the first of them, in an order that is random
    """

    dataset: str
    activation: str
    structure: str
    optimizer: str = "sgd"
    depth: int | None = None
    blocks: int = 1
    inputs: str = "unit"
    initial: str = "default"
    reduction: str = "mean"
    projection: int | None = None
    diagonals: str = "plain"
    convolutions: str = "same"
    part: float = 1.0

    def network(self, seed: int) -> Sequential:
        """The untrained network; equal seeds start from equal parameters at every learning rate."""
        if self.diagonals not in ("plain", "scaled"):
            raise InputError(f"diagonals learn at a plain or a scaled rate, got {self.diagonals!r}")
        if self.dataset in IMAGES:
            plain = models.lenet5(self.activation, self.structure, seed)
        elif self.dataset in TABLES and self.depth is not None:
            features, width = TABLES[self.dataset]
            plain = models.mlp([features, *[width] * self.depth, 1], self.activation, self.structure, seed)
        else:
            raise InputError(f"no network of the paper is for {self.dataset!r} with depth {self.depth}")
        layers = self._projected([self._deepened(layer) for layer in self._convolved(plain).layers])
        if tuple(layers) != plain.layers:
            plain = Sequential(layers, seed, plain.input_shape)
        return self._started(plain, seed)

    def _convolved(self, plain: Sequential) -> Sequential:
        """With another activation after the convolutions; one is there to replace."""
        if self.convolutions == "same":
            return plain
        if self.dataset not in IMAGES or self.activation == "none":
            raise InputError(f"no activation after convolutions is to be replaced in {self.activation} networks here")
        first = models.lenet5(self.convolutions).layers[:STEM]
        return Sequential([*first, *plain.layers[STEM:]], 0, plain.input_shape)

    def _deepened(self, layer: Layer) -> Layer:
        return replace(layer, blocks=self.blocks) if isinstance(layer, HadamardDiagonal) else layer

    def _projected(self, layers: list[Layer]) -> list[Layer]:
        if self.projection is None:
            return layers
        for index, layer in enumerate(layers):
            if isinstance(layer, HadamardDiagonal):
                pair = [
                    RandomProjection(layer.in_features, self.projection),
                    replace(layer, in_features=self.projection),
                ]
                return [*layers[:index], *pair, *layers[index + 1 :]]
        raise InputError(f"a projection goes before a Hadamard-Diagonal layer, and {self.structure} networks have none")

    def _started(self, model: Sequential, seed: int) -> Sequential:
        if self.initial == "default":
            return model
        if self.initial not in ("signs", "phases", "normal", "factors"):
            raise InputError(f"initial values are default, signs, phases, normal or factors, got {self.initial!r}")
        state, last = model.state(), len(model.layers) - 1
        for key, array in state.items():
            index, name = key.split(".")
            generator = np.random.default_rng([seed, int(index), 1])
            if self.initial == "signs" and name.startswith("diagonal"):
                state[key] = generator.choice([-1.0, 1.0], array.shape)
            elif self.initial == "phases" and name == "bias" and int(index) < last:
                state[key] = generator.uniform(0, 2 * pi, array.shape)
            elif self.initial == "normal" and isinstance(model.layers[int(index)], Circulant) and name == "weight":
                state[key] = generator.standard_normal(array.shape)
            elif self.initial == "factors" and isinstance(model.layers[int(index)], LowRank) and name != "bias":
                limit = sqrt(6 / sum(array.shape))
                state[key] = generator.uniform(-limit, limit, array.shape)
        return model.with_state(state)
