"""A weight and a bias for each channel, or for each feature: what a normalisation is once its statistics are known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from hdcos.errors import ModelError
from hdcos.nn.layer import Factor, Layer, Shape
from hdcos.ring import Array


@dataclass(frozen=True)
class Affine(Layer):
    """y = w x + b with one w and one b for each channel of an image or each feature of a row. Starts as y = x.

    A normalisation behind a linear layer is better folded into that, where it costs nothing.
    """

    features: int

    def __post_init__(self) -> None:
        self._check_whole(1, "features")

    def parameter_shapes(self) -> dict[str, Shape]:
        return {"weight": (self.features,), "bias": (self.features,)}

    def initial(self, generator: np.random.Generator) -> dict[str, Array]:
        return {"weight": np.ones(self.features), "bias": np.zeros(self.features)}

    def output_shape(self, shape: Shape) -> Shape:
        if len(shape) not in (1, 3) or shape[0] != self.features:
            features = self.features
            raise ModelError(f"Affine takes shape ({features},) or ({features}, height, width), got {shape}")
        return shape

    def forward(self, parameters: Mapping[str, Array], x: Array) -> Array:
        shape = (-1,) + (1,) * (x.ndim - 2)
        result: Array = x * parameters["weight"].reshape(shape) + parameters["bias"].reshape(shape)
        return result

    def factors(self, shape: Shape) -> tuple[Factor, ...]:
        return (Factor("weight", "channels", shape, shape),)

    def multiplications(self, shape: Shape) -> int:
        return prod(shape)
