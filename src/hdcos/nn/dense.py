"""Linear layers whose matrix is learnt: as it is, as a product of two thin ones, or one row that goes round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import pi, sqrt

import numpy as np

from hdcos.nn.layer import Factor, Linear, Shape, glorot_uniform, module_of
from hdcos.ring import Array


@dataclass(frozen=True)
class Dense(Linear):
    """y = W x + b. Glorot uniform, bias 0.

    With `bandwidth` s it starts as random Fourier features instead: W ~ N(0, 1 / s^2), b uniform in [0, 2 pi).
    """

    bandwidth: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_bandwidth(self.bandwidth)

    def parameter_shapes(self) -> dict[str, Shape]:
        return {"weight": (self.out_features, self.in_features), "bias": (self.out_features,)}

    def initial(self, generator: np.random.Generator) -> dict[str, Array]:
        shape = (self.out_features, self.in_features)
        if self.bandwidth is not None:
            weight: Array = generator.standard_normal(shape) / self.bandwidth
            return {"weight": weight, "bias": generator.uniform(0, 2 * pi, self.out_features)}
        weight = glorot_uniform(generator, shape, self.in_features, self.out_features)
        return {"weight": weight, "bias": np.zeros(self.out_features)}

    def factors(self, shape: Shape) -> tuple[Factor, ...]:
        return (Factor("weight", "matmul", shape, (self.out_features,)),)

    def forward(self, parameters: Mapping[str, Array], x: Array) -> Array:
        result: Array = x @ parameters["weight"].T + parameters["bias"]
        return result


@dataclass(frozen=True)
class LowRank(Linear):
    """y = L R x + b, with R (rank, in) and L (out, rank).

    Both factors start uniform; R keeps the variance of its input and L R has the variance of a Glorot matrix.
    """

    rank: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_whole(1, "rank")

    def parameter_shapes(self) -> dict[str, Shape]:
        return {
            "left": (self.out_features, self.rank),
            "right": (self.rank, self.in_features),
            "bias": (self.out_features,),
        }

    def initial(self, generator: np.random.Generator) -> dict[str, Array]:
        right = sqrt(3 / self.in_features)  # uniform in [-a, a] has variance a^2 / 3
        left = sqrt(3 * 2 / (self.in_features + self.out_features) * self.in_features / self.rank)
        return {
            "left": generator.uniform(-left, left, (self.out_features, self.rank)),
            "right": generator.uniform(-right, right, (self.rank, self.in_features)),
            "bias": np.zeros(self.out_features),
        }

    def factors(self, shape: Shape) -> tuple[Factor, ...]:
        middle, outputs = (self.rank,), (self.out_features,)
        return Factor("right", "matmul", shape, middle, "right"), Factor("left", "matmul", middle, outputs, "left")

    def forward(self, parameters: Mapping[str, Array], x: Array) -> Array:
        result: Array = (x @ parameters["right"].T) @ parameters["left"].T + parameters["bias"]
        return result


@dataclass(frozen=True)
class Circulant(Linear):
    """y = W x + b with W[i, j] = r[(i - j) mod n] and n = max(in, out): a cyclic convolution."""

    @property
    def size(self) -> int:
        """The length n of the cycle."""
        return max(self.in_features, self.out_features)

    def matrix_elements(self) -> int:
        return self.in_features * self.out_features

    def parameter_shapes(self) -> dict[str, Shape]:
        return {"weight": (self.size,), "bias": (self.out_features,)}

    def initial(self, generator: np.random.Generator) -> dict[str, Array]:
        weight = glorot_uniform(generator, (self.size,), self.in_features, self.out_features)
        return {"weight": weight, "bias": np.zeros(self.out_features)}

    def factors(self, shape: Shape) -> tuple[Factor, ...]:
        return (Factor("weight", "circulant", shape, (self.out_features,)),)

    def forward(self, parameters: Mapping[str, Array], x: Array) -> Array:
        n, fft = self.size, module_of(x).fft
        cycle: Array = fft.irfft(fft.rfft(x, n) * fft.rfft(parameters["weight"], n), n)
        result: Array = cycle[..., : self.out_features] + parameters["bias"]
        return result
