"""Layers that leave every number as it is. On shares they cost nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from hdcos.checks import check_whole
from hdcos.errors import ModelError
from hdcos.nn.layer import Layer, Shape
from hdcos.ring import Array


@dataclass(frozen=True)
class Identity(Layer):
    """Nothing at all: it holds a place."""

    def output_shape(self, shape: Shape) -> Shape:
        return shape

    def forward(self, parameters: Mapping[str, Array], x: Array) -> Array:
        return x


@dataclass(frozen=True)
class Dropout(Identity):
    """Nothing in predictions, which is all it is here for: training on shares refuses it by name."""

    p: float = 0.5

    def __post_init__(self) -> None:
        if isinstance(self.p, bool) or not isinstance(self.p, int | float) or not 0 <= self.p <= 1:
            raise ModelError(f"Dropout: p must be a number from 0 to 1, got {self.p!r}")


@dataclass(frozen=True)
class Reshape(Layer):
    """The numbers of a row in another shape, in the same order: the last axis runs fastest."""

    shape: Shape

    def __post_init__(self) -> None:
        if not isinstance(self.shape, list | tuple) or not self.shape:
            raise ModelError(f"Reshape: shape must be a list of whole numbers of at least 1, got {self.shape!r}")
        sides = tuple(check_whole(side, "Reshape: a side", 1, ModelError) for side in self.shape)
        object.__setattr__(self, "shape", sides)  # a list, in JSON

    def output_shape(self, shape: Shape) -> Shape:
        if prod(shape) != prod(self.shape):
            raise ModelError(f"Reshape to {self.shape} takes {prod(self.shape)} numbers, got shape {shape}")
        return self.shape

    def forward(self, parameters: Mapping[str, Array], x: Array) -> Array:
        return x.reshape(len(x), *self.shape)

    def to_json(self) -> dict[str, Any]:
        return {"type": self.kind, "shape": list(self.shape)}
