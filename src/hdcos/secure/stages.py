"""What the parties do with a value: one class for each way of computing a layer.

A value is a Masked (the input), a Share, or a HadamardCosine, a fused layer's result that is computed as it is
opened. Every stage says its rounds by its protocols; `name` is the account its bytes are booked on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hdcos.errors import ModelError, RangeError
from hdcos.generators import local
from hdcos.protocol import cosine, fourier, growing_cos, hadamard, masked, opening, polynomial
from hdcos.protocol.cosine import Precision
from hdcos.protocol.fourier import Series
from hdcos.protocol.hadamard import HadamardCosine
from hdcos.protocol.masked import Masked
from hdcos.protocol.party import Party
from hdcos.protocol.rounds import Rounds
from hdcos.ring import Array, decode, encode, matmul
from hdcos.sharing import Public, Share

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
    limit: float = float("inf")
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

    def __call__(self, x: Share) -> Share:
        total = x.words[..., self.columns[:, 0]] * self.values[:, 0]
        for entry in range(1, self.columns.shape[1]):
            total = total + x.words[..., self.columns[:, entry]] * self.values[:, entry]
        return Share(total, x.scale + self.scale, x.bits)

    def adjoint(self, gradient: Share, size: int) -> Share:
        """The gradient before the matrix from that behind it."""
        matrix = np.zeros((len(self.columns), size), np.uint64)
        np.put_along_axis(matrix, self.columns, self.values, axis=1)
        return Share(matmul(gradient.words, matrix), gradient.scale + self.scale, gradient.bits)


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


def plus_bias(x: Share, bias: Tensor | None, parameters: Parameters) -> Share:
    """x with its bias, which for images is one number per channel."""
    if bias is None:
        return x
    words = parameters.biases[bias.name].words
    if len(x.shape) == 4:
        words = words.reshape(-1, 1, 1)
    return Share(x.words + words, x.scale, x.bits)


@dataclass(frozen=True, kw_only=True)
class Diagonal(Stage):
    """A Hadamard-Diagonal block: H (w * x), perhaps a public projection, and a bias."""

    weight: Tensor
    bias: Tensor | None
    size: int
    outputs: int
    projection: Projection | None = None

    def tensors(self) -> tuple[Tensor, ...]:
        return (self.weight,) if self.bias is None else (self.weight, self.bias)

    def _finished(self, products: Share, parameters: Parameters) -> Share:
        if self.projection is None:
            return plus_bias(hadamard.transformed(products, self.size, self.outputs), self.bias, parameters)
        mixed = hadamard.transformed(products, self.size, self.size)
        return plus_bias(self.projection(mixed), self.bias, parameters)


@dataclass(frozen=True, kw_only=True)
class MaskedDiagonal(Diagonal):
    """Of the masked input: no round."""

    @local
    def run(self, party: Party, value: Value, parameters: Parameters) -> Value:
        assert isinstance(value, Masked)
        products = masked.product(party, value, parameters.weights[self.weight.name])
        return self._finished(products, parameters)


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
        return plus_bias(self.projection(result.share()), self.bias, parameters)


@dataclass(frozen=True, kw_only=True)
class LiftedDiagonal(Diagonal):
    """Of any share: one round."""

    drop: int
    bits: int

    def run(self, party: Party, value: Value, parameters: Parameters) -> Rounds[Value]:
        share = as_share(party, value)
        weight = parameters.weights[self.weight.name]
        products = yield from hadamard.lifted_diagonal(party, share, weight, self.drop, self.bits)
        return self._finished(products, parameters)


@dataclass(frozen=True, kw_only=True)
class Product(Stage):
    """A matrix product, convolution or circulant product: of the masked input, or of a share that is opened first."""

    operation: str
    weight: Tensor
    bias: Tensor | None
    outputs: int = 0
    stride: int = 1
    padding: int = 0
    drop: int = 0
    bits: int = 64

    def tensors(self) -> tuple[Tensor, ...]:
        return (self.weight,) if self.bias is None else (self.weight, self.bias)

    def run(self, party: Party, value: Value, parameters: Parameters) -> Rounds[Value]:
        if not isinstance(value, Masked):
            value = yield from opening.open_masked(party, as_share(party, value), self.drop, self.bits)
        weight = parameters.weights[self.weight.name]
        share = masked.product(party, value, weight, self.operation, (self.outputs,), self.stride, self.padding)
        return plus_bias(share, self.bias, parameters)


@dataclass(frozen=True, kw_only=True)
class Lift(Stage):
    """Rounding that brings a share back to the whole ring: one round."""

    drop: int
    bits: int

    def run(self, party: Party, value: Value, parameters: Parameters) -> Rounds[Value]:
        return (yield from opening.round_lift(party, as_share(party, value), self.drop, self.bits))


@dataclass(frozen=True, kw_only=True)
class Cosine(Stage):
    """The cosine of turns: one round."""

    precision: Precision

    def run(self, party: Party, value: Value, parameters: Parameters) -> Rounds[Value]:
        assert not isinstance(value, Masked)
        return (yield from cosine.cos(party, value, self.precision))


@dataclass(frozen=True, kw_only=True)
class Polynomial(Stage):
    """A public polynomial: one round."""

    coefficients: tuple[float, ...]
    coefficient_scale: int
    drop: int
    bits: int

    def run(self, party: Party, value: Value, parameters: Parameters) -> Rounds[Value]:
        share = as_share(party, value)
        return (
            yield from polynomial.lifted_polynomial(
                party, share, self.coefficients, self.drop, self.bits, self.coefficient_scale
            )
        )


@dataclass(frozen=True, kw_only=True)
class Fourier(Stage):
    """A trigonometric series: one round."""

    series: Series
    precision: Precision

    def run(self, party: Party, value: Value, parameters: Parameters) -> Rounds[Value]:
        share = as_share(party, value)
        return (yield from fourier.fourier(party, share, self.series, self.precision))


@dataclass(frozen=True, kw_only=True)
class Growing(Stage):
    """x cos x of radians, or x cos 2 pi x of turns, where the next weights bring the factor 2 pi: one round."""

    turns: bool
    drop: int
    bits: int
    phase_bits: int
    trig_scale: int

    def run(self, party: Party, value: Value, parameters: Parameters) -> Rounds[Value]:
        x = as_share(party, value)
        angle = x if self.turns else cosine.to_turns(x)
        return (
            yield from growing_cos.growing_cos_turns(
                party, x, angle, self.drop, self.bits, self.phase_bits, self.trig_scale
            )
        )


@dataclass(frozen=True, kw_only=True)
class ToTurns(Stage):
    """Radians to turns by a public factor: no round. Only where no weights could bring the factor."""

    @local
    def run(self, party: Party, value: Value, parameters: Parameters) -> Value:
        return cosine.to_turns(as_share(party, value))


@dataclass(frozen=True, kw_only=True)
class QuarterTurn(Stage):
    """A quarter turn back, which makes the sine of a cosine: no round."""

    @local
    def run(self, party: Party, value: Value, parameters: Parameters) -> Value:
        turns = as_share(party, value)
        quarter = party.constant(Public.of(0.25, turns.scale))
        return Share(turns.words - quarter.words, turns.scale, turns.bits)


@dataclass(frozen=True, kw_only=True)
class Pool(Stage):
    """Sums over windows: no round. The next weights bring the division."""

    window: int

    @local
    def run(self, party: Party, value: Value, parameters: Parameters) -> Value:
        x, w = as_share(party, value), self.window
        n, channels, height, width = x.shape
        whole = x[:, :, : height // w * w, : width // w * w]  # a ragged edge is dropped, as in plaintext
        return whole.reshape(n, channels, height // w, w, width // w, w).sum(5).sum(3)


@dataclass(frozen=True, kw_only=True)
class Flatten(Stage):
    """Rows of numbers from images: no round."""

    @local
    def run(self, party: Party, value: Value, parameters: Parameters) -> Value:
        x = as_share(party, value)
        return x.reshape(len(x), -1)


@dataclass(frozen=True, kw_only=True)
class Project(Stage):
    """A public random projection: no round. The next weights bring the normalisation."""

    signs: Array
    kept: Array
    size: int

    @local
    def run(self, party: Party, value: Value, parameters: Parameters) -> Value:
        x = as_share(party, value)
        mixed = hadamard.transformed(Share(x.words * self.signs, x.scale, x.bits), self.size, self.size)
        return Share(mixed.words[..., self.kept], x.scale, x.bits)
