"""Layers around a public orthonormal transform: Hadamard-Diagonal, P H D, a random projection, random features.

H = H_n / sqrt(n) in Sylvester order: H_1 = [1], H_2n = [[H_n, H_n], [H_n, -H_n]], and n the next power of two
>= max(in, out). x is padded with zeros. Of the Hadamard-Diagonal layer y = H D x + b the first `out` results are kept,
and only D and b are learnt: it costs `in` secure multiplications where a dense one costs in * out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from math import pi, sqrt
from typing import Any

import numpy as np

from hdcos.errors import ModelError
from hdcos.nn.layer import Factor, Linear, Shape, beside, module_of
from hdcos.nn.public import public_choice, public_gaussians, public_signs, public_words
from hdcos.ring import Array

MOST_BLOCKS = MOST_TERMS = 64
PHD_FRACTION_BITS = 12
PHD_ENTRIES_PER_ROW = 16


def next_power_of_two(number: int) -> int:
    return 1 << (number - 1).bit_length()


WIDE, FACTOR = 1 << 14, 1 << 7
"""Rows that are wider are transformed by more than two products, the first with a matrix of FACTOR rows."""


@cache
def sylvester(n: int) -> Array:
    """The n x n matrix of +1 and -1 in Sylvester order."""
    bits = np.arange(n)
    signs: Array = 1.0 - 2.0 * (np.bitwise_count(bits[:, None] & bits) & 1)
    signs.flags.writeable = False
    return signs


def walsh_hadamard(x: Array) -> Array:
    """The orthonormal transform of the last axis, whose length is a power of two.

    H_ab is the Kronecker product of H_a and H_b: a row as an a x b matrix X becomes H_a X H_b, two small products. Of
    wide rows b is large too, and H_b is applied in the same way.
    """
    n = x.shape[-1]
    if n > WIDE:
        long = x.reshape(*x.shape[:-1], FACTOR, n // FACTOR)
        mixed: Array = beside(x, sylvester(FACTOR)) @ walsh_hadamard(long)
        return mixed.reshape(x.shape) / sqrt(FACTOR)
    a = 1 << (n.bit_length() // 2)
    square = x.reshape(*x.shape[:-1], a, n // a)
    mixed = beside(x, sylvester(a)) @ square @ beside(x, sylvester(n // a))
    return mixed.reshape(x.shape) / sqrt(n)


def transform_work(n: int) -> int:
    """Multiplications of `walsh_hadamard` for a row."""
    if n > WIDE:
        return FACTOR * n + FACTOR * transform_work(n // FACTOR)
    a = 1 << (n.bit_length() // 2)
    return n * (a + n // a)


def moved_places(n: int, term: int) -> Array:
    """P_t as an index: entry j of P_t x is entry j ^ t of x."""
    return np.arange(n) ^ term


def pad_features(x: Array, n: int) -> Array:
    """x with zeros appended to its last axis, up to length n."""
    if x.shape[-1] == n:
        return x
    padded: Array = module_of(x).concatenate((x, beside(x, np.zeros((*x.shape[:-1], n - x.shape[-1])))), -1)
    return padded


@dataclass(frozen=True)
class HadamardLinear(Linear, abstract=True):
    """A linear layer around a Hadamard transform."""

    @property
    def size(self) -> int:
        """The order n of the transform."""
        return next_power_of_two(max(self.in_features, self.out_features))

    def row_elements(self, shape: Shape) -> int:
        return super().row_elements(shape) + self.size

    def rate_factors(self) -> dict[str, float]:
        """sqrt(n) for diagonals: an entry is seen by every output through a factor of 1 / sqrt(n).

        A dense weight w_ij has the gradient g_i x_j. A diagonal entry has (H^T g)_j x_j, a sum of n terms of random
        sign over sqrt(n): as large as one of them, but a change of d_j moves each output by only x_j / sqrt(n). At
        one rate for all, a step changes diagonals, whose entries are about 1, by sqrt(n) times less of their size than
        dense weights, which are about 1 / sqrt(n), and it moves the outputs n times less.
        """
        return {name: sqrt(self.size) for name in self.parameter_shapes() if name.startswith("diagonal")}


@dataclass(frozen=True)
class HadamardDiagonal(HadamardLinear):
    """y = H D x + b; blocks=3 is H D3 H D2 H D1 x + b; terms=k is the sum over t < k of S_t H D_t x, plus b.

    S_t is public: it turns the sign of row i where i & t has an odd number of bits, so S_0 is 1. These are the signs
    of row t of H, and S_t H = H P_t, where P_t moves entry j to j ^ t. Hence one transform serves all terms,
    y = H u + b with u = sum of P_t D_t x, and one gradient by u, opened once, gives those of all diagonals. The terms
    are linearly independent whatever is kept, as long as k <= out: entry d_tj gives column t of the first `out` rows of
    H, times the signs of column j, and H = L D L^T without pivots, so its first k columns have rank k in its first k
    rows. A layer of up to 64 outputs with as many terms is any matrix. To permute rows of H instead would do less:
    moving row i to i ^ t is a choice of signs in D, and no permutation changes the first column, which is constant.

    Entries of k diagonals start with 1 / k of the variance that one has, so that outputs have the same variance at
    first; each output sees every entry by 1 / sqrt(n), as ever. `blocks` and `terms` do not go together: blocks in
    front of the last one start as orthogonal maps, which a sum of terms is not.

    Without `bandwidth` the diagonals start as N(0, 1) and the bias as 0: outputs keep the variance of the inputs.
    With bandwidth s the layer starts as random Fourier features: the cosines of its outputs approximate the kernel
    exp(-|x - y|^2 / (2 s^2)), (2 / out) cos(Lx) . cos(Ly), with b uniform in [0, 2 pi). A row of H D has entries
    +-d_j / sqrt(n), so d_j ~ N(0, n / s^2) makes every row exactly N(0, 1 / s^2) and the estimate unbiased. With
    more blocks the last diagonal is that Gaussian and the earlier ones are random signs: an orthogonal map in
    front leaves the rows Gaussian, and it mixes the features first, so that single estimates vary less.
    """

    blocks: int = 1
    bandwidth: float | None = None
    terms: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_whole(1, "blocks", "terms")
        if self.blocks > MOST_BLOCKS:
            raise ModelError(f"{self.kind}: blocks must be at most {MOST_BLOCKS}, got {self.blocks}")
        if self.terms > min(MOST_TERMS, self.out_features):
            raise ModelError(
                f"{self.kind}: terms must be at most {MOST_TERMS} and at most out_features, {self.out_features}, "
                f"beyond which they depend on each other; got {self.terms}"
            )
        if self.blocks > 1 and self.terms > 1:
            raise ModelError(f"{self.kind}: has several blocks or several terms, not {self.blocks} and {self.terms}")
        self._check_bandwidth(self.bandwidth)

    @property
    def diagonals(self) -> tuple[str, ...]:
        """The names of the diagonals, in the order in which they are applied."""
        return ("diagonal", *(f"diagonal{block}" for block in range(2, self.blocks + 1)))

    def parameter_shapes(self) -> dict[str, Shape]:
        inner = dict.fromkeys(self.diagonals[1:], (self.size,))
        first = (self.in_features,) if self.terms == 1 else (self.terms, self.in_features)
        return {"diagonal": first, **inner, "bias": (self.out_features,)}

    def to_json(self) -> dict[str, Any]:
        """One term is not written: such a layer is what it was before there were terms."""
        record = super().to_json()
        return record if self.terms > 1 else {name: value for name, value in record.items() if name != "terms"}

    def row_elements(self, shape: Shape) -> int:
        return super().row_elements(shape) + (self.terms - 1) * self.size

    def multiplications(self, shape: Shape) -> int:
        return self.terms * super().multiplications(shape)

    def initial(self, generator: np.random.Generator) -> dict[str, Array]:
        shapes = self.parameter_shapes()
        if self.bandwidth is None:
            drawn = {name: generator.standard_normal(shapes[name]) / sqrt(self.terms) for name in self.diagonals}
            return {**drawn, "bias": np.zeros(self.out_features)}
        drawn = {name: generator.choice([-1.0, 1.0], shapes[name]) for name in self.diagonals[:-1]}
        last = self.diagonals[-1]
        drawn[last] = generator.standard_normal(shapes[last]) * sqrt(self.size) / self.bandwidth / sqrt(self.terms)
        return {**drawn, "bias": generator.uniform(0, 2 * pi, self.out_features)}

    def factors(self, shape: Shape) -> tuple[Factor, ...]:
        widths = [self.in_features, *[self.size] * (self.blocks - 1), self.out_features]
        return tuple(
            Factor(name, "diagonal", (widths[block],), (widths[block + 1],), f"block {block + 1}" if block else "")
            for block, name in enumerate(self.diagonals)
        )

    def forward(self, parameters: Mapping[str, Array], x: Array) -> Array:
        for name in self.diagonals:
            x = walsh_hadamard(self._sum_terms(x, parameters[name]))
        return x[..., : self.out_features] + parameters["bias"]

    def _sum_terms(self, x: Array, diagonal: Array) -> Array:
        """The sum of P_t D_t x, padded."""
        if self.terms == 1:
            return pad_features(x * diagonal, self.size)
        total: Array = pad_features(x * diagonal[0], self.size)
        for term in range(1, self.terms):
            total = total + pad_features(x * diagonal[term], self.size)[..., moved_places(self.size, term)]
        return total


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

    def factors(self, shape: Shape) -> tuple[Factor, ...]:
        return (Factor("diagonal", "diagonal", shape, (self.out_features,)),)

    def forward(self, parameters: Mapping[str, Array], x: Array) -> Array:
        mixed = walsh_hadamard(pad_features(x * parameters["diagonal"], self.size))
        result: Array = mixed @ beside(x, self.projection_matrix().T) + parameters["bias"]
        return result


@dataclass(frozen=True)
class RandomProjection(HadamardLinear):
    """The fast Johnson-Lindenstrauss transform y = sqrt(n / out) S H D x, with nothing to learn.

    D has random signs, H is orthonormal of order n (the next power of two >= max(in, out)), and S keeps `out`
    different coordinates. All follow from `seed`; E|y|^2 = |x|^2. Under two-party computation it is local.
    """

    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_whole(0, "seed")

    def signs(self) -> Array:
        """The diagonal of D, (in,)."""
        return public_signs(self.in_features, "projection", self.in_features, self.out_features, self.seed)

    def kept(self) -> Array:
        """The coordinates that S keeps, (out,), rising."""
        label = ("projection", self.in_features, self.out_features, self.seed)
        row: Array = public_choice(1, self.size, self.out_features, *label)[0]
        return row

    def matrix_elements(self) -> int:
        return self.size

    def forward(self, parameters: Mapping[str, Array], x: Array) -> Array:
        mixed = walsh_hadamard(pad_features(x * beside(x, self.signs()), self.size))
        result: Array = mixed[..., self.kept()] * sqrt(self.size / self.out_features)
        return result


@dataclass(frozen=True)
class RandomFeatures(HadamardLinear):
    """Public random Fourier features y = cos(W x + b), with nothing to learn, as a kernel machine wants them.

    (2 / out) y(u) . y(v) estimates the kernel exp(-|u - v|^2 / (2 bandwidth^2)). W is as many blocks H G H S as it
    takes, with random signs S, Gaussian G and n the next power of two >= in: rows of H G are Gaussian, and the
    orthogonal H S leaves them so. b is uniform in [0, 2 pi). All follow from `seed`, so the owner of a row computes
    its features before it shares them, and no party computes a cosine: the layer stands in front of all secret ones.
    """

    bandwidth: float
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_whole(0, "seed")
        if self.bandwidth is None:
            raise ModelError(f"{self.kind}: bandwidth must be a positive number, got None")
        self._check_bandwidth(self.bandwidth)

    @property
    def size(self) -> int:
        return next_power_of_two(self.in_features)

    @property
    def blocks(self) -> int:
        return -(-self.out_features // self.size)

    def matrix_elements(self) -> int:
        return 2 * self.blocks * self.size

    def row_elements(self, shape: Shape) -> int:
        return super().row_elements(shape) + 2 * self.blocks * self.size

    def diagonals(self) -> tuple[Array, Array, Array]:
        """S and G block by block, both (blocks, n), and b, (out,)."""
        shape, label = (self.blocks, self.size), ("features", self.in_features, self.out_features, self.seed)
        signs = public_signs(self.blocks * self.size, *label).reshape(shape)
        gaussians = public_gaussians(self.blocks * self.size, *label).reshape(shape) / 256
        return signs, gaussians, public_words(self.out_features, "phases", *label) * (2 * pi / 2**64)

    def forward(self, parameters: Mapping[str, Array], x: Array) -> Array:
        signs, gaussians, phases = (beside(x, values) for values in self.diagonals())
        mixed = walsh_hadamard(pad_features(x, self.size)[..., None, :] * signs)
        angles = walsh_hadamard(mixed * gaussians).reshape(*x.shape[:-1], -1)[..., : self.out_features]
        result: Array = module_of(x).cos(angles * (sqrt(self.size) / self.bandwidth) + phases)
        return result
