"""Layers that read several values: their sum, or one after the other. On shares both are local."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from hdcos.errors import ModelError
from hdcos.nn.layer import Layer, Shape, module_of
from hdcos.ring import Array


@dataclass(frozen=True)
class Join(Layer, abstract=True):
    """One value of two or more."""

    def output_shape(self, shape: Shape, *more: Shape) -> Shape:
        raise NotImplementedError

    def forward(self, parameters: Mapping[str, Array], x: Array, *more: Array) -> Array:
        raise NotImplementedError

    def row_elements(self, shape: Shape, *more: Shape) -> int:
        return sum(map(prod, (shape, *more))) + prod(self.output_shape(shape, *more))


@dataclass(frozen=True)
class Add(Join):
    """The sum of values of one shape: residual connections."""

    def output_shape(self, shape: Shape, *more: Shape) -> Shape:
        if any(other != shape for other in more):
            raise ModelError(f"Add takes values of one shape, got {', '.join(map(str, (shape, *more)))}")
        return shape

    def forward(self, parameters: Mapping[str, Array], x: Array, *more: Array) -> Array:
        total = x
        for other in more:
            total = total + other
        return total


@dataclass(frozen=True)
class Concat(Join):
    """Values one after the other along an axis of a row: of images, 0 is the channels."""

    axis: int = 0

    def __post_init__(self) -> None:
        self._check_whole(0, "axis")

    def output_shape(self, shape: Shape, *more: Shape) -> Shape:
        if self.axis >= len(shape):
            raise ModelError(
                f"Concat has axis {self.axis}, and rows of shape {shape} have {len(shape)}, counted from 0"
            )
        rest = {(*each[: self.axis], *each[self.axis + 1 :]) for each in (shape, *more) if len(each) == len(shape)}
        if len(rest) > 1 or any(len(each) != len(shape) for each in more):
            shapes = ", ".join(map(str, (shape, *more)))
            raise ModelError(f"Concat takes values that differ along axis {self.axis} alone, got {shapes}")
        length = sum(each[self.axis] for each in (shape, *more))
        return (*shape[: self.axis], length, *shape[self.axis + 1 :])

    def forward(self, parameters: Mapping[str, Array], x: Array, *more: Array) -> Array:
        joined: Array = module_of(x).concatenate((x, *more), axis=self.axis + 1)
        return joined
