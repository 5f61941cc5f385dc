"""Activations on shares: for each, how it is read, how it runs, and how it runs with its derivative.

Computes  [y] -> [f(y)]; in training also [f'(y)] from the same opening. In turns for cos, sin and growing_cos, where
          the derivative is by turns: 2 pi times that by radians.
Online    1 round, but 3 or 2 for what compares: ReLU, ReLU6, HardTanh. Derivatives of series, polynomials and
          growing_cos come out at a high scale; before a matrix a training step takes one round more to round them.
          That of ReLU is a bit: `training.comparing` has it.
Security  openings under fresh masks; see cosine, fourier, bent, polynomial, growing_cos, relu and opening.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import pi

from hdcos import nn
from hdcos.errors import ModelError
from hdcos.generators import local
from hdcos.nn.activations import Activation, BentActivation, SeriesActivation
from hdcos.offline.bilinear import stack
from hdcos.protocol import bent, cosine, fit, fourier, growing_cos, polynomial, relu
from hdcos.protocol.cosine import Phase, Precision, open_phase
from hdcos.protocol.fourier import Series
from hdcos.protocol.masked import Masked
from hdcos.protocol.party import Party
from hdcos.protocol.rounds import Rounds
from hdcos.protocol.sign import TABLES
from hdcos.ring import rotate
from hdcos.secure.stages import Parameters, Stage, Value, as_share, window_pixels
from hdcos.sharing import Public, Share

RANGE_BITS = 10
"""Values that feed anything but a cosine may reach 2**10."""
SLOPE_SCALE = 18
"""The derivative of a cosine."""
FACTOR_BITS = 12
TWO_PI = round(2 * pi * 2**FACTOR_BITS)
GROWING_SCALE, GROWING_BITS, GROWING_TRIG = 12, 24, 12
COMPARED_SCALE = 19
"""Fraction bits of a value whose sign is taken: as many as tables compare beside values of up to 2**10."""
LINEAR_SCALE = 26
"""Fraction bits of x in x/2 and a series, where it has to be rounded: as many as phases have bits."""

WithSlope = tuple[Share, Share]


@dataclass(frozen=True, kw_only=True)
class ActivationStage(Stage):
    """A function of single numbers."""

    def result_scale(self, scale: int) -> int:
        """The scale of its result for values at a scale; the result is in the whole ring."""
        raise NotImplementedError

    def run_with_slope(self, party: Party, y: Share) -> Rounds[WithSlope]:
        """f(y) and f'(y)."""
        raise NotImplementedError


def activation_stage(
    layer: Activation, name: str, scale: int, bits: int, turns: bool, precision: Precision, square_scale: int
) -> ActivationStage:
    """The stage of an activation, for values at a scale that are known modulo 2**bits, in turns or not."""
    if isinstance(layer, nn.Cos | nn.Sin):
        return Cosine(name=name, precision=precision)
    if isinstance(layer, BentActivation):
        series, fits = fit.series(layer.name, layer.reach), bits == 64 and scale < precision.scale
        drop = 0 if fits else max(0, scale - LINEAR_SCALE)
        kept = 0 if fits else _kept_bits(name, scale, drop, bits)
        return Bent(name=name, series=series, precision=precision, drop=drop, bits=kept)
    if isinstance(layer, SeriesActivation):
        return Fourier(name=name, series=fit.series(layer.name, layer.reach), precision=precision)
    if isinstance(layer, nn.GrowingCos):
        drop = max(0, scale - GROWING_SCALE)
        kept, phase_bits = min(GROWING_BITS, bits - drop), min(precision.phase_bits, 32)
        return Growing(name=name, turns=turns, drop=drop, bits=kept, phase_bits=phase_bits, trig_scale=GROWING_TRIG)
    if isinstance(layer, nn.Square | nn.PolyReLU3):
        square = isinstance(layer, nn.Square)
        coefficients = (0.0, 0.0, 1.0) if square else fit.relu_cubic()
        opened, coefficient_scale = (square_scale, 0) if square else (10, 7)
        drop = max(0, scale - opened)
        if square:
            kept = _kept_bits(name, scale, drop, bits)
        else:  # it means something between -4 and 6 alone; behind a series or itself it has room for 2**9
            kept = min(opened + RANGE_BITS + 2, bits - drop)
        return Polynomial(
            name=name, coefficients=coefficients, coefficient_scale=coefficient_scale, drop=drop, bits=kept
        )
    if isinstance(layer, nn.ReLU | nn.LeakyReLU):
        drop, slope = max(0, scale - COMPARED_SCALE), layer.slope if isinstance(layer, nn.LeakyReLU) else None
        kept = _kept_bits(name, scale, drop, bits)
        return Rectified(name=name, slope=slope, drop=drop, bits=kept, way=layer.compare)
    if isinstance(layer, nn.ReLU6 | nn.HardTanh):
        drop = max(0, scale - COMPARED_SCALE)
        kept, most = _kept_bits(name, scale, drop, bits), 2 ** (RANGE_BITS - 1)
        if max(abs(layer.low), abs(layer.high)) > most:
            raise ModelError(f"{name} is compared with numbers up to {most}, got {layer.low} and {layer.high}")
        return Clipped(name=name, low=layer.low, high=layer.high, drop=drop, bits=kept, way=layer.compare)
    raise ModelError(f"{layer.kind} cannot be computed on shares")


def _kept_bits(name: str, scale: int, drop: int, bits: int) -> int:
    """Of a value that is opened and lifted: its fraction, its range, its sign, and one that a lift takes."""
    kept = scale - drop + RANGE_BITS + 2
    if kept > bits - drop:
        raise ModelError(
            f"{name} has no room for values up to 2**{RANGE_BITS} behind what comes before it: put a HadamardDiagonal "
            f"layer there, or Cos or ReLU for the activation before"
        )
    return kept


@dataclass(frozen=True, kw_only=True)
class Cosine(ActivationStage):
    """The cosine of turns: one round."""

    precision: Precision

    def result_scale(self, scale: int) -> int:
        return self.precision.scale

    def run(self, party: Party, value: Value, parameters: Parameters) -> Rounds[Value]:
        assert not isinstance(value, Masked)
        return (yield from cosine.cos(party, value, self.precision))

    def run_with_slope(self, party: Party, y: Share) -> Rounds[WithSlope]:
        phase = yield from open_phase(party, y, self.precision.phase_bits, self.precision.dealt)
        words, _ = rotate(phase.d, phase.cos_r, phase.sin_r, phase.bits, phase.scale, sine=False)
        return Share(words, 2 * phase.scale), cosine_slope(phase)


def cosine_slope(phase: Phase) -> Share:
    """d cos / dy = -2 pi sin y, for y in turns."""
    shift = phase.scale + FACTOR_BITS - (SLOPE_SCALE - phase.scale)
    return Share(phase.combine(phase.cos_r, phase.sin_r, 0, -TWO_PI, shift), SLOPE_SCALE)


@dataclass(frozen=True, kw_only=True)
class Polynomial(ActivationStage):
    """A public polynomial: one round."""

    coefficients: tuple[float, ...]
    coefficient_scale: int
    drop: int
    bits: int

    def result_scale(self, scale: int) -> int:
        return (len(self.coefficients) - 1) * (scale - self.drop) + self.coefficient_scale

    def run(self, party: Party, value: Value, parameters: Parameters) -> Rounds[Value]:
        (result,) = yield from self._evaluate(party, as_share(party, value), self.coefficients)
        return result

    def run_with_slope(self, party: Party, y: Share) -> Rounds[WithSlope]:
        derived = tuple(n * c for n, c in enumerate(self.coefficients))[1:]
        value, slope = yield from self._evaluate(party, y, self.coefficients, derived)
        return value, slope

    def _evaluate(self, party: Party, y: Share, *polynomials: tuple[float, ...]) -> Rounds[list[Share]]:
        return polynomial.lifted_polynomials(party, y, polynomials, self.drop, self.bits, self.coefficient_scale)


@dataclass(frozen=True, kw_only=True)
class Fourier(ActivationStage):
    """A trigonometric series: one round."""

    series: Series
    precision: Precision

    def result_scale(self, scale: int) -> int:
        return self.precision.scale

    def run(self, party: Party, value: Value, parameters: Parameters) -> Rounds[Value]:
        return (yield from fourier.fourier(party, as_share(party, value), self.series, self.precision))

    def run_with_slope(self, party: Party, y: Share) -> Rounds[WithSlope]:
        value, slope = yield from fourier.series_of(party, y, (self.series, self.series.slope), self.precision)
        return value, slope


@dataclass(frozen=True, kw_only=True)
class Bent(Fourier):
    """x/2 and a trigonometric series: one round, in which x is opened besides, to round it, if it has too many bits."""

    drop: int
    bits: int
    """Of x as it is opened; 0 if it is not."""

    def result_scale(self, scale: int) -> int:
        return bent.result_scale(scale - self.drop, self.precision)

    def run(self, party: Party, value: Value, parameters: Parameters) -> Rounds[Value]:
        x = as_share(party, value)
        return (yield from bent.bent(party, x, self.series, self.precision, self.drop, self.bits))

    def run_with_slope(self, party: Party, y: Share) -> Rounds[WithSlope]:
        return bent.bent_with_slope(party, y, self.series, self.precision, self.drop, self.bits)


@dataclass(frozen=True, kw_only=True)
class Growing(ActivationStage):
    """x cos x of radians, or x cos 2 pi x of turns, where the next weights bring the factor 2 pi: one round."""

    turns: bool
    drop: int
    bits: int
    phase_bits: int
    trig_scale: int

    def result_scale(self, scale: int) -> int:
        return scale - self.drop + 2 * self.trig_scale

    def run(self, party: Party, value: Value, parameters: Parameters) -> Rounds[Value]:
        x = as_share(party, value)
        angle = x if self.turns else cosine.to_turns(x)
        opened = self.drop, self.bits, self.phase_bits, self.trig_scale
        return (yield from growing_cos.growing_cos_turns(party, x, angle, *opened))

    def run_with_slope(self, party: Party, y: Share) -> Rounds[WithSlope]:
        """In turns x, z = 2 pi x cos(2 pi x) and dz/dx = 2 pi cos(2 pi x) - 4 pi^2 x sin(2 pi x)."""
        opened = self.drop, self.bits, self.phase_bits, self.trig_scale
        x_cos, x_sin, cos = yield from growing_cos.growing_cos_parts(party, y, *opened)
        value = (x_cos * round(2 * pi * 2**10)).rescaled(x_cos.scale + 10)
        slope = cos.raised(x_sin.scale) * round(2 * pi * 2**10) - x_sin * round(4 * pi**2 * 2**10)
        return value, slope.rescaled(x_sin.scale + 10)


@dataclass(frozen=True, kw_only=True)
class Rectified(ActivationStage):
    """max(x, 0), or x times a public slope where it is negative, by comparison with zero: three rounds or two."""

    slope: float | None
    drop: int
    bits: int
    way: str = TABLES

    def result_scale(self, scale: int) -> int:
        return scale - self.drop + (0 if self.slope is None else relu.SLOPE_SCALE)

    def run(self, party: Party, value: Value, parameters: Parameters) -> Rounds[Value]:
        x = as_share(party, value)
        if self.slope is None:
            return (yield from relu.relu(party, x, self.drop, self.bits, self.way))
        return (yield from relu.leaky_relu(party, x, self.slope, self.drop, self.bits, self.way))


@dataclass(frozen=True, kw_only=True)
class Clipped(ActivationStage):
    """x between two public numbers, by two comparisons at once: three rounds or two. |x - number| < 2**RANGE_BITS."""

    low: float
    high: float
    drop: int
    bits: int
    way: str = TABLES

    def result_scale(self, scale: int) -> int:
        return scale - self.drop

    def run(self, party: Party, value: Value, parameters: Parameters) -> Rounds[Value]:
        x = as_share(party, value)
        return (yield from relu.clip(party, x, self.low, self.high, self.drop, self.bits, self.way))

    def run_with_slope(self, party: Party, y: Share) -> Rounds[WithSlope]:
        raise ModelError("ReLU6 and HardTanh cannot be trained on shares: train in plaintext and share the model")


@dataclass(frozen=True, kw_only=True)
class Largest(Stage):
    """The largest of each window of images, by comparison two by two: three rounds or two each time."""

    window: int
    drop: int
    bits: int
    step: int = 0
    """From one window to the next, where they do not stand side by side."""
    around: int = 0
    way: str = TABLES

    def run(self, party: Party, value: Value, parameters: Parameters) -> Rounds[Value]:
        x = as_share(party, value)
        rows = stack(*window_pixels(x.words, self.window, self.step or self.window, self.around, edge=True))
        largest = yield from relu.largest(party, Share(rows, x.scale, x.bits), self.drop, self.bits, self.way)
        return largest.raised(x.scale)


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
        return quarter_back(party, as_share(party, value))


def quarter_back(party: Party, y: Share) -> Share:
    """y less a quarter turn, whose cosine is the sine of y."""
    quarter = party.constant(Public.of(0.25, y.scale))
    return Share(y.words - quarter.words, y.scale, y.bits)
