"""Two more structures with O(d) parameters, for comparison: P H D and circulant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from hdcos.nn.hadamard import HadamardLinear, pad_features, walsh_hadamard
from hdcos.nn.layer import Linear, Shape, glorot_uniform
from hdcos.nn.public import public_choice, public_gaussians
from hdcos.ring import Array

PHD_FRACTION_BITS = 12
PHD_ENTRIES_PER_ROW = 16


@lru_cache(64)
def phd_projection(out_features: int, n: int, seed: int) -> tuple[Array, Array]:
    """Columns and values of P's non-zero entries, both (out, entries); values are integers at scale 2**-12.

    Each row has min(16, n) entries in different random columns, drawn Gaussian and divided by the row's norm: P H
    then has rows of norm 1, as H has, and outputs keep the variance of the Hadamard-Diagonal layer. Rounding to
    12 fractional bits makes P exact in fixed point.
    """
    entries = min(PHD_ENTRIES_PER_ROW, n)
    columns = public_choice(out_features, n, entries, "phd", out_features, n, seed)
    drawn = public_gaussians(out_features * entries, "phd", out_features, n, seed).reshape(out_features, entries)
    norms = np.sqrt((drawn * drawn).sum(axis=1, keepdims=True).astype(np.float64))
    values = np.rint(drawn / norms * 2**PHD_FRACTION_BITS).astype(np.int64)
    columns.flags.writeable = values.flags.writeable = False
    return columns, values


@dataclass(frozen=True)
class PHD(HadamardLinear):
    """y = P H D x + b with P a public sparse Gaussian matrix that follows from `seed` (see `phd_projection`).

    H and n are those of HadamardDiagonal; so are the learnable diagonal, N(0, 1) at first, and the bias.
    """

    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_whole(0, "seed")

    def projection(self) -> tuple[Array, Array]:
        """Columns and integer values (scale 2**-12) of P's entries, row by row."""
        return phd_projection(self.out_features, self.size, self.seed)

    def projection_matrix(self) -> Array:
        """P as a full (out, n) matrix."""
        columns, values = self.projection()
        matrix = np.zeros((self.out_features, self.size))
        np.put_along_axis(matrix, columns, values / 2**PHD_FRACTION_BITS, axis=1)
        return matrix

    def matrix_elements(self) -> int:
        """Its entries are chosen by a number for every place."""
        return self.out_features * self.size

    def parameter_shapes(self) -> dict[str, Shape]:
        return {"diagonal": (self.in_features,), "bias": (self.out_features,)}

    def initial(self, generator: np.random.Generator) -> dict[str, Array]:
        return {"diagonal": generator.standard_normal(self.in_features), "bias": np.zeros(self.out_features)}

    def forward(self, parameters: Mapping[str, Array], x: Array) -> Array:
        mixed = walsh_hadamard(pad_features(x * parameters["diagonal"], self.size))
        result: Array = mixed @ self.projection_matrix().T + parameters["bias"]
        return result

    def multiplications(self, shape: Shape) -> int:
        """One per diagonal entry: P and H are public."""
        return self.in_features


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

    def forward(self, parameters: Mapping[str, Array], x: Array) -> Array:
        n = self.size
        spectrum = np.fft.rfft(x, n) * np.fft.rfft(parameters["weight"], n)
        result: Array = np.fft.irfft(spectrum, n)[..., : self.out_features] + parameters["bias"]
        return result

    def multiplications(self, shape: Shape) -> int:
        """in * out: few parameters, but the ring has no fast Fourier transform, so every product is computed."""
        return self.in_features * self.out_features
