"""What the parties do with a value: one class for each way of computing a linear or a public layer.

A value is a Masked (the input), a Share, or a HadamardCosine, a fused layer's result that is computed as it is
opened. Every stage says its rounds by its protocols; `name` is the account its bytes are booked on. `activations` has
the stages of activations. What a training step shares with them is here as functions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from hdcos.errors import ModelError, RangeError
from hdcos.generators import local
from hdcos.nn import PHD
from hdcos.nn.hadamard import PHD_FRACTION_BITS
from hdcos.nn.layer import Layer
from hdcos.offline.bilinear import concatenate
from hdcos.protocol import hadamard, masked, opening
from hdcos.protocol.cosine import Precision
from hdcos.protocol.hadamard import HadamardCosine
from hdcos.protocol.masked import Masked
from hdcos.protocol.party import Party
from hdcos.protocol.rounds import Rounds
from hdcos.ring import Array, decode, encode, matmul
from hdcos.ring.device import constant_beside
from hdcos.sharing import Share

Value = Masked | Share | HadamardCosine


@dataclass(frozen=True)
class Tensor:
    """word = round(parameter * factor * 2**scale), transposed if a product wants it so.

    Normalisations and the factor 1 / (2 pi) of turns ride in `factor`, so they cost nothing online. A `masked`
    tensor is a weight: opened once per model, under a mask in Z_2^bits. Others are biases and stay shares.
    """

    name: str
    shape: tuple[int, ...]
    scale: int
    factor: float = 1.0
    bits: int = 64
    masked: bool = True
    transposed: bool = False
    limit: float = inf
    """Largest |parameter * factor| that keeps results within the ring, where they could leave it."""

    @property
    def squared(self) -> float:
        """factor * factor, by a multiplication, which rounds alike everywhere."""
        return self.factor * self.factor

    def words(self, parameter: Array) -> Array:
        """The words to be shared; ModelError if they do not fit, before anything is sent."""
        values = (parameter.T if self.transposed else parameter) * self.factor
        largest = float(np.abs(values).max(initial=0.0))
        if largest > self.limit:
            raise ModelError(
                f"{self.name} has values up to {largest / abs(self.factor):.3g}; "
                f"at its scale of {self.scale} bits it holds {self.limit / abs(self.factor):.3g}"
            )
        try:
            return encode(values, self.scale)
        except RangeError as error:
            raise ModelError(f"{self.name} does not fit its scale: {error}") from error

    def parameter(self, words: Array) -> Array:
        """The parameter that joined words stand for, rounded to the scale."""
        values = decode(words, self.scale) / self.factor
        return np.ascontiguousarray(values.T) if self.transposed else values


@dataclass(frozen=True)
class Parameters:
    """A model at one party: weights masked, biases shared."""

    weights: Mapping[str, Masked]
    biases: Mapping[str, Share]


@dataclass(frozen=True)
class Projection:
    """A public sparse matrix after a transform: each output is a sum of a few inputs times integers over 2**scale."""

    columns: Array
    values: Array
    scale: int

    @classmethod
    def of(cls, layer: Layer) -> Projection | None:
        """That of a layer which has one."""
        if not isinstance(layer, PHD):
            return None
        columns, values = layer.projection()
        return cls(columns, values.astype(np.int64).astype(np.uint64), PHD_FRACTION_BITS)

    def __call__(self, x: Share) -> Share:
        columns, values = (constant_beside(known, x.words) for known in (self.columns, self.values))
        total = x.words[..., columns[:, 0]] * values[:, 0]
        for entry in range(1, self.columns.shape[1]):
            total = total + x.words[..., columns[:, entry]] * values[:, entry]
        return Share(total, x.scale + self.scale, x.bits)

    def adjoint(self, gradient: Share, size: int) -> Share:
        """The gradient before the matrix from that behind it."""
        matrix = np.zeros((len(self.columns), size), np.uint64)
        np.put_along_axis(matrix, self.columns, self.values, axis=1)
        return Share(
            matmul(gradient.words, constant_beside(matrix, gradient.words)), gradient.scale + self.scale, gradient.bits
        )


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One step of a private network."""

    name: str

    def tensors(self) -> tuple[Tensor, ...]:
        """The secret parameters it needs."""
        return ()

    def run(self, party: Party, value: Value, parameters: Parameters) -> Rounds[Value]:
        raise NotImplementedError


def as_share(party: Party, value: Value) -> Share:
    if isinstance(value, Masked):
        return value.share(party)
    return value.share() if isinstance(value, HadamardCosine) else value


def transform(products: Sequence[Share], size: int, outputs: int, projection: Projection | None) -> Share:
    """H (w * x) of w * x, which may have several terms, behind the projection if there is one. Local."""
    first, *more = products
    made = hadamard.transformed(first, size, size if projection else outputs, more)
    return projection(made) if projection else made


def plus_bias(x: Share, bias: Share | None) -> Share:
    """x with its bias, which was shared at its scale or at a lower one; for images one number per channel. Local."""
    if bias is None:
        return x
    bias = bias.raised(x.scale)
    words = bias.words.reshape(-1, 1, 1) if len(x.shape) == 4 else bias.words
    return Share(x.words + words, x.scale, min(x.bits, bias.bits))


def settle(party: Party, x: Share, scale: int) -> Rounds[Share]:
    """x in the whole ring at a scale: raised, or rounded in a round, as it needs."""
    if x.scale <= scale and x.bits == 64:
        return x.raised(scale)
    if x.scale <= scale:
        x = Share(x.words << np.uint64(scale - x.scale + 1), scale + 1, min(64, x.bits + scale - x.scale + 1))
    drop = x.scale - scale
    return (yield from opening.round_lift(party, x, drop, min(56, x.bits - drop)))


@dataclass(frozen=True, kw_only=True)
class Linear(Stage):
    """A product with a weight, and perhaps a bias."""

    weight: Tensor
    bias: Tensor | None

    def tensors(self) -> tuple[Tensor, ...]:
        return (self.weight,) if self.bias is None else (self.weight, self.bias)

    def _plus_bias(self, x: Share, parameters: Parameters) -> Share:
        return plus_bias(x, parameters.biases[self.bias.name] if self.bias else None)


@dataclass(frozen=True, kw_only=True)
class Diagonal(Linear):
    """A Hadamard-Diagonal block: H (w * x), or a sum of such terms, perhaps a public projection, and a bias."""

    size: int
    outputs: int
    projection: Projection | None = None

    def _output(self, products: Sequence[Share], parameters: Parameters) -> Share:
        return self._plus_bias(transform(products, self.size, self.outputs, self.projection), parameters)


@dataclass(frozen=True, kw_only=True)
class MaskedDiagonal(Diagonal):
    """Of the masked input: no round."""

    @local
    def run(self, party: Party, value: Value, parameters: Parameters) -> Value:
        assert isinstance(value, Masked)
        terms = parameters.weights[self.weight.name].terms()
        return self._output([masked.product(party, value, term) for term in terms], parameters)


@dataclass(frozen=True, kw_only=True)
class FusedDiagonal(Diagonal):
    """Of the cosine of a share: the cosine's one round, whatever pooling lies between."""

    precision: Precision
    pool: tuple[int, int, int, int] | None

    def run(self, party: Party, value: Value, parameters: Parameters) -> Rounds[Value]:
        assert not isinstance(value, Masked)
        plain = self.projection is None
        result = yield from hadamard.cos_hadamard(
            party,
            value,
            parameters.weights[self.weight.name],
            self.size,
            self.outputs if plain else self.size,
            self.precision,
            parameters.biases[self.bias.name] if plain and self.bias else None,
            self.pool,
        )
        if self.projection is None:
            return result
        return self._plus_bias(self.projection(result.share()), parameters)


@dataclass(frozen=True, kw_only=True)
class LiftedDiagonal(Diagonal):
    """Of any share: one round."""

    drop: int
    bits: int
    opened: int
    """Fraction bits of what is opened."""

    def run(self, party: Party, value: Value, parameters: Parameters) -> Rounds[Value]:
        share = as_share(party, value)
        weight = parameters.weights[self.weight.name]
        products = yield from hadamard.lifted_diagonal(party, share, weight, self.drop, self.bits)
        return self._output(products, parameters)


@dataclass(frozen=True, kw_only=True)
class Product(Linear):
    """A matrix product, convolution or other product: of a masked value, or of a share that is opened first."""

    operation: str
    outputs: int = 0
    stride: int = 1
    padding: int = 0
    groups: int = 1
    dilation: int = 1
    drop: int = 0
    bits: int = 64

    def run(self, party: Party, value: Value, parameters: Parameters) -> Rounds[Value]:
        if not isinstance(value, Masked):
            value = yield from opening.open_masked(party, as_share(party, value), self.drop, self.bits)
        weight = parameters.weights[self.weight.name]
        spacing = self.stride, self.padding, self.groups, self.dilation
        share = masked.product(party, value, weight, self.operation, (self.outputs,), *spacing)
        return self._plus_bias(share, parameters)


@dataclass(frozen=True, kw_only=True)
class Lift(Stage):
    """Rounding that brings a share back to the whole ring: one round."""

    drop: int
    bits: int
    opened: int
    """Fraction bits of what is opened."""

    def run(self, party: Party, value: Value, parameters: Parameters) -> Rounds[Value]:
        return (yield from opening.round_lift(party, as_share(party, value), self.drop, self.bits))


@dataclass(frozen=True, kw_only=True)
class Open(Stage):
    """A value that several products read, opened for all of them: one round.

    Its mask is fresh and masks this opening alone; each product takes a fresh sharing of the product of masks.
    """

    def run(self, party: Party, value: Value, parameters: Parameters) -> Rounds[Value]:
        return (yield from opening.open_masked(party, as_share(party, value)))


@dataclass(frozen=True, kw_only=True)
class Scale(Stage):
    """A value times a public factor / 2**fraction: no round. Only where no weights could bring the factor."""

    factor: int
    fraction: int

    @local
    def run(self, party: Party, value: Value, parameters: Parameters) -> Value:
        x = as_share(party, value)
        return (x * self.factor).rescaled(x.scale + self.fraction)


@dataclass(frozen=True, kw_only=True)
class Join(Stage):
    """One value of several, which are all in the whole ring and brought to one scale: no round."""

    def joined(self, values: Sequence[Share]) -> Share:
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Sum(Join):
    """The sum of values."""

    def joined(self, values: Sequence[Share]) -> Share:
        total, *more = values
        for value in more:
            total = total + value
        return total


@dataclass(frozen=True, kw_only=True)
class Concat(Join):
    """Values one after the other along an axis of a row."""

    axis: int

    def joined(self, values: Sequence[Share]) -> Share:
        words = concatenate([value.words for value in values], self.axis + 1)
        return Share(words, values[0].scale, values[0].bits)


def run_stage(party: Party, stage: Stage, values: Sequence[Value], parameters: Parameters) -> Rounds[Value]:
    """A stage with the values it reads."""
    if isinstance(stage, Join):
        shares = [as_share(party, value) for value in values]
        scale = max(share.scale for share in shares)
        return stage.joined([share.raised(scale) for share in shares])
    (value,) = values
    return (yield from stage.run(party, value, parameters))


@dataclass(frozen=True, kw_only=True)
class Pool(Stage):
    """Sums over windows: no round. The next weights bring the division."""

    window: int
    across: int = 0
    """The width of a window that is no square."""
    step: int = 0
    """From one window to the next, where they do not stand side by side."""
    around: int = 0
    """Zeros on each side."""

    @local
    def run(self, party: Party, value: Value, parameters: Parameters) -> Value:
        x, w, a = as_share(party, value), self.window, self.across or self.window
        if self.step:
            first, *more = window_pixels(x.words, w, self.step, self.around, edge=False)
            return Share(sum(more, first), x.scale, x.bits)
        n, channels, height, width = x.shape
        whole = x[:, :, : height // w * w, : width // a * a]  # a ragged edge is dropped, as in plaintext
        return whole.reshape(n, channels, height // w, w, width // a, a).sum(5).sum(3)


def window_pixels(x: Array, window: int, step: int, around: int, edge: bool) -> list[Array]:
    """For each pixel of a window, row by row, what stands there in all windows of images x.

    Around an image stand zeros, or what stands at its `edge`, so that the largest of a window is one of the image.
    """
    sides = x.shape[2:]
    if edge and around:
        places = (np.clip(np.arange(-around, side + around), 0, side - 1) for side in sides)
        rows, columns = (constant_beside(each, x) for each in places)
        x = x[:, :, rows][:, :, :, columns]
    elif around:
        padded = hadamard.empty((*x.shape[:2], *(side + 2 * around for side in sides)), x)
        padded[...] = 0
        padded[:, :, around : around + sides[0], around : around + sides[1]] = x
        x = padded
    down, across = ((side + 2 * around - window) // step * step + 1 for side in sides)
    return [
        x[:, :, row : row + down : step, column : column + across : step]
        for row in range(window)
        for column in range(window)
    ]


@dataclass(frozen=True, kw_only=True)
class Flatten(Stage):
    """Rows of numbers from images: no round."""

    @local
    def run(self, party: Party, value: Value, parameters: Parameters) -> Value:
        x = as_share(party, value)
        return x.reshape(len(x), -1)


@dataclass(frozen=True, kw_only=True)
class Reshape(Stage):
    """Rows in another shape: no round."""

    shape: tuple[int, ...]

    @local
    def run(self, party: Party, value: Value, parameters: Parameters) -> Value:
        x = as_share(party, value)
        return x.reshape(len(x), *self.shape)


@dataclass(frozen=True, kw_only=True)
class Project(Stage):
    """A public random projection: no round. The next weights bring the normalisation."""

    signs: Array
    kept: Array
    size: int

    @local
    def run(self, party: Party, value: Value, parameters: Parameters) -> Value:
        x = as_share(party, value)
        mixed = hadamard.transformed(
            Share(x.words * constant_beside(self.signs, x.words), x.scale, x.bits), self.size, self.size
        )
        return Share(mixed.words[..., self.kept], x.scale, x.bits)
