"""The one reader of layers: inference and training compile what it reads, each with scales of its own.

A linear layer says which products it is made of (`Layer.factors`); a part is one of them where it stands, and makes its
tensors. What its result is for decides the unit: turns before a cosine, else whatever the layer gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, pi

import numpy as np

from hdcos import nn
from hdcos.errors import ModelError
from hdcos.nn.comparing import Comparing
from hdcos.nn.layer import Factor, Layer
from hdcos.ring import Array
from hdcos.ring.types import Pool
from hdcos.secure.stages import Tensor

PUBLIC = (nn.Flatten, nn.Reshape, nn.AvgPool2d, nn.AdaptiveAvgPool2d, nn.RandomProjection)
FRONT = (*PUBLIC, nn.RandomFeatures)
"""What the owner of the rows may compute before sharing them; linear layers alone can stand behind secrets as well."""
FRONT_ROWS = 1024
TURNS, TURNS_VALUE, VALUE = "turns", "turns and value", "value"
"""What a linear layer's result is for: a cosine, x cos x, or anything else."""


def purpose_of(following: Layer | None) -> str:
    """What a linear layer's result is for, by the activation that it reaches."""
    if isinstance(following, nn.Cos | nn.Sin):
        return TURNS
    return TURNS_VALUE if isinstance(following, nn.GrowingCos) else VALUE


@dataclass(frozen=True)
class Part:
    """A factor of a linear layer where it stands."""

    index: int
    """Where its layer stands among those that are read."""
    layer: Layer
    factor: Factor
    purpose: str
    """What its result is for."""
    first: bool
    last: bool
    number: int
    """Of its layer in the network: tensors and steps are called after it."""

    @property
    def name(self) -> str:
        return f"{self.number} {self.layer.kind} {self.factor.name}".rstrip()

    @property
    def unit(self) -> float:
        """What one unit of its result is worth: a turn is 2 pi."""
        return 2 * pi if self.purpose != VALUE else 1.0

    def weight(self, scale: int, factor: float, bits: int = 64, limit: float = inf) -> Tensor:
        flipped, shape = self.factor.operation == "matmul", self.layer.parameter_shapes()[self.factor.weight]
        shape = shape[::-1] if flipped else shape
        name = f"{self.number}.{self.factor.weight}"
        return Tensor(name, shape, scale, factor, bits, transposed=flipped, limit=limit)

    def bias(self, scale: int, factor: float, bits: int = 64, limit: float = inf) -> Tensor | None:
        """That of the layer, which the last of its factors adds."""
        if not self.last:
            return None
        shape = self.layer.parameter_shapes()["bias"]
        return Tensor(f"{self.number}.bias", shape, scale, factor, bits, masked=False, limit=limit)


def apply_front(front: tuple[Layer, ...], x: Array) -> Array:
    """Rows as they are shared, behind the layers that their owner computes; in pieces, as features may be many."""
    if not front:
        return x
    made: list[Array] = []
    for start in range(0, max(1, len(x)), FRONT_ROWS):
        made.append(x[start : start + FRONT_ROWS])
        for layer in front:
            made[-1] = layer.forward({}, made[-1])
    return np.concatenate(made)


class Reader:
    """Layers that follow each other, from the first that is not public on: all of a chain, or `numbers` of a graph.

    Public layers at the beginning are the owner's, unless the rows are not read here, or not here alone.
    """

    def __init__(self, model: nn.Network, numbers: Sequence[int] | None = None, has_front: bool = True) -> None:
        self.numbers = range(len(model.layers)) if numbers is None else numbers
        """Of the layers in the network; positions are in this chain."""
        self._kinds = [model.layers[n].kind for n in self.numbers]
        self.layers = tuple(_plain_pooling(model.layers[n], model.shape_before(n)) for n in self.numbers)
        self.shapes = tuple(model.shape_before(n) for n in self.numbers) + tuple(
            model.shapes[n + 1] for n in self.numbers[-1:]
        )
        secret = (index for index, layer in enumerate(self.layers) if not isinstance(layer, FRONT))
        self.position = next(secret, len(self.layers)) if has_front else 0
        self.front = tuple(self.layers[: self.position])
        for index in range(self.position, len(self.layers)):
            if isinstance(self.layers[index], nn.RandomFeatures):
                raise ModelError(
                    f"layer {self.numbers[index]}, RandomFeatures, is computed by the owner of the rows before sharing "
                    f"them: put it in front of the others, or take HadamardDiagonal with a bandwidth and Cos"
                )

    def name(self, index: int) -> str:
        """Of the layer at a position: its number in the network, and its kind."""
        return f"{self.numbers[index]} {self._kinds[index]}"

    def refuse_comparisons(self, why: str) -> None:
        """ModelError names the first layer that compares, if there is one."""
        for index, layer in enumerate(self.layers):
            if isinstance(layer, Comparing):
                other = (
                    "AvgPool2d, which costs none" if isinstance(layer, nn.MaxPool2d) else "Cos, which costs one round"
                )
                raise ModelError(f"layer {self.numbers[index]}, {layer.kind}, {why}: use {other}")

    def parts(self, index: int, purpose: str) -> list[Part]:
        """The factors of a layer whose result has a purpose; none if it is not linear."""
        layer = self.layers[index]
        factors = layer.factors(self.shapes[index])
        last = len(factors) - 1
        return [
            Part(
                index,
                layer,
                factor,
                purpose if place == last else VALUE,
                place == 0,
                place == last,
                self.numbers[index],
            )
            for place, factor in enumerate(factors)
        ]

    def pooling(self, position: int) -> tuple[Pool | None, int]:
        """Flattening and one pooling of whole windows, if they stand there, and where they end."""
        pool = None
        for index in range(position, len(self.layers)):
            layer, shape = self.layers[index], self.shapes[index]
            whole = isinstance(layer, nn.AvgPool2d) and layer.plain and not any(side % layer.size for side in shape[1:])
            if isinstance(layer, nn.AvgPool2d) and whole and pool is None:
                pool = (shape[0], shape[1], shape[2], layer.size)
            elif not isinstance(layer, nn.Flatten):
                return pool, index
        return pool, len(self.layers)


def _plain_pooling(layer: Layer, shape: tuple[int, ...]) -> Layer:
    """Pooling to a size as pooling of squares, where it is that."""
    if not isinstance(layer, nn.AdaptiveAvgPool2d):
        return layer
    down, across = layer.window(shape)
    return nn.AvgPool2d(down) if down == across else layer
