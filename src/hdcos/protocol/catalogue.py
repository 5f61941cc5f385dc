"""Every function the parties can evaluate by name, with its price, its meaning in floats and its limits.

A *call* names a function and its parameters as plain JSON; both parties build the same program from it, and a
fingerprint of it is compared before anything secret is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from math import ceil, log2
from typing import Any

import numpy as np

from hdcos.errors import ModelError
from hdcos.generators import local
from hdcos.protocol import argmax, cos_paper, cosine, fit, fourier, growing_cos, masked, opening, polynomial, relu, sign
from hdcos.protocol.cosine import even
from hdcos.protocol.fourier import Series
from hdcos.protocol.party import Party
from hdcos.protocol.rounds import Price, Rounds
from hdcos.ring import Array
from hdcos.sharing import Share

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Function:
    """A function of shared tensors: its program, its price from shapes, and what it means."""

    name: str
    program: Callable[..., Rounds[Share]]
    price: Callable[..., Price]
    meaning: Callable[..., Array]
    parameters: Mapping[str, Any] = field(default_factory=dict)
    input_scale: int = 16
    paper_rounds: int | None = None
    interval: tuple[float, float] | None = None
    """Where its error is quoted."""
    bounded: bool = False
    """Whether it means nothing outside the interval: a series folds back there."""
    reach: Callable[..., float] | None = None
    """The largest |input|, where it follows from the parameters."""
    largest: Callable[..., float] | None = None
    """A bound on |result| from the inputs, where a result may outgrow the ring."""
    output_scale: Callable[..., int] = lambda **parameters: 24
    """Where results are rounded before they leave: those of approximate functions at the size of their error."""

    def right_on(self, parameters: Mapping[str, Any]) -> tuple[float, float] | None:
        """The interval that inputs must lie in, if there is one."""
        if self.reach is None:
            return self.interval if self.bounded else None
        largest = self.reach(**parameters)
        return -largest, largest


@dataclass(frozen=True)
class Call:
    """A function by name with all its parameters, as JSON."""

    function: str
    parameters: Mapping[str, Any]

    @classmethod
    def of(cls, name: str, **parameters: Any) -> Call:
        function = find(name)
        unknown = set(parameters) - set(function.parameters)
        if unknown:
            raise ModelError(f"{name} has no parameter {sorted(unknown)}; it has {sorted(function.parameters)}")
        return cls(name, {**function.parameters, **parameters})

    def program(self, party: Party, *inputs: Share) -> Rounds[Share]:
        return find(self.function).program(party, *inputs, **self.parameters)

    @property
    def output_scale(self) -> int:
        return find(self.function).output_scale(**self.parameters)


def find(name: str) -> Function:
    if name not in FUNCTIONS:
        raise ModelError(f"no function is called {name!r}: choose from {', '.join(FUNCTIONS)}")
    return FUNCTIONS[name]


@local
def _none(party: Party, x: Share) -> Share:
    return x


def _cos(party: Party, x: Share, phase_bits: int) -> Rounds[Share]:
    return (yield from cosine.cos(party, cosine.to_turns(x), even(phase_bits, cosine.trig_scale(phase_bits))))


def _sin(party: Party, x: Share, phase_bits: int) -> Rounds[Share]:
    return (yield from cosine.sin(party, cosine.to_turns(x), even(phase_bits, cosine.trig_scale(phase_bits))))


def _cos_paper(party: Party, x: Share) -> Rounds[Share]:
    return (yield from cos_paper.cos_paper(party, cosine.to_turns(x)))


def _fourier(party: Party, x: Share, series: Any, phase_bits: int) -> Rounds[Share]:
    return (yield from fourier.fourier(party, x, _series(series), even(phase_bits, fourier.TRIG_SCALE)))


def _fourier_price(shape: Shape, series: Any, phase_bits: int) -> Price:
    return fourier.price(shape, _series(series), phase_bits)


def _series(record: Any) -> Series:
    parts: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list | tuple) else value for name, value in record.items()
    }
    return Series(**parts)


def _peak(x: Array) -> float:
    return float(np.abs(x).max(initial=0.0))


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def _conv2d_meaning(x: Array, weight: Array, stride: int = 1, padding: int = 0) -> Array:
    padded = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, weight.shape[2:], axis=(2, 3))
    result: Array = np.einsum("nchwij,ocij->nohw", windows[:, :, ::stride, ::stride], weight)
    return result


def _round_lift_price(shape: Shape, drop: int, bits: int) -> Price:
    return opening.price(shape, bits, lift=True)


def _conv2d_price(x: Shape, weight: Shape, stride: int, padding: int) -> Price:
    size = [(length + 2 * padding - span) // stride + 1 for length, span in zip(x[2:], weight[2:], strict=True)]
    return masked.multiply_price(x, weight, (x[0], weight[0], *size))


_PHASE = {"phase_bits": cosine.PHASE_BITS}
GROWING_INTERVAL = 20.0


def _digits(error: float) -> int:
    """Fraction bits such that the last one is worth as much as the error, or up to half of it."""
    return ceil(-log2(error))


def _cos_digits(phase_bits: int) -> int:
    return _digits(cosine.error_bound(phase_bits))


def _series_digits(series: Any, phase_bits: int) -> int:
    return _digits(fourier.error_bound(_series(series), even(phase_bits, fourier.TRIG_SCALE)))


def _growing_digits(drop: int, bits: int, phase_bits: int) -> int:
    return max(0, _digits(growing_cos.error_bound(GROWING_INTERVAL, drop, phase_bits)))


def _of_angle(name: str, program: Callable[..., Rounds[Share]], meaning: Callable[..., Array], **more: Any) -> Function:
    """The cosine or the sine."""
    interval, digits = (-20.0, 20.0), _cos_digits
    return Function(
        name, program, cosine.price, meaning, _PHASE, input_scale=24, interval=interval, output_scale=digits, **more
    )


def _from_series(name: str, meaning: Callable[..., Array], phase_bits: int, bound: float, **more: Any) -> Function:
    """A function that is computed as the narrowest of its series."""
    parameters = {"series": asdict(fit.series(name)), "phase_bits": phase_bits}
    where: dict[str, Any] = {"interval": (-bound, bound), "bounded": True, "output_scale": _series_digits}
    return Function(name, _fourier, _fourier_price, meaning, parameters, input_scale=20, **where, **more)


COMPARED_SCALE = 16
_COMPARISON = {"drop": sign.DROP, "bits": sign.BITS, "way": sign.TABLES}


def _reach(operands: int) -> Callable[..., float]:
    """Such that the difference of this many operands is below 2**(bits-2) units once it is rounded."""

    def reach(drop: int, bits: int, **more: Any) -> float:
        return float(2.0 ** (bits - 2 + drop - COMPARED_SCALE) - 2.0 ** (drop + 1 - COMPARED_SCALE)) / operands

    return reach


def _comparing(
    name: str,
    program: Callable[..., Rounds[Share]],
    price: Callable[..., Price],
    meaning: Callable[..., Array],
    operands: int = 1,
    digits: Callable[..., int] = lambda **parameters: 24,
    **more: Any,
) -> Function:
    """A function that compares, of values or of the differences of `operands` of them. Most of them leave at the scale
    that values are compared at, whatever `digits` allow."""
    reach = _reach(operands)
    largest = reach(**_COMPARISON)

    def priced(shape: Shape, *others: Shape, bits: int, way: str, **rest: Any) -> Price:
        return price(shape, bits, way)

    return Function(
        name,
        program,
        priced,
        meaning,
        {**more, **_COMPARISON},
        input_scale=COMPARED_SCALE,
        interval=(-largest, largest),
        bounded=True,
        reach=reach,
        output_scale=digits,
    )


def _leaky_digits(slope: float, drop: int, **more: Any) -> int:
    """A value is off by less than one unit of what is compared, and the slope by what its own rounding leaves."""
    coarser = abs(slope - round(slope * 2**relu.SLOPE_SCALE) / 2**relu.SLOPE_SCALE)
    unit = 2.0 ** (drop - COMPARED_SCALE) * max(1.0, abs(slope))
    return max(0, _digits(unit + coarser * _reach(1)(drop, **more)))


def _leaky(x: Array, slope: float = 0.01, **more: Any) -> Array:
    leaked: Array = np.where(x >= 0, x, slope * x)
    return leaked


_COMPARISONS = (
    _comparing("sign", sign.sign, sign.price, lambda x, **_: np.where(x >= 0, 1.0, -1.0)),
    _comparing(
        "at_least",
        sign.at_least,
        sign.price,
        lambda x, threshold=0.0, **_: (x >= threshold).astype(float),
        operands=2,
        threshold=0.0,
    ),
    _comparing("greater_equal", sign.greater_equal, sign.price, lambda x, y, **_: (x >= y).astype(float), operands=2),
    _comparing("relu", relu.relu, relu.price, lambda x, **_: np.maximum(x, 0)),
    _comparing("abs", relu.absolute, relu.price, lambda x, **_: np.abs(x)),
    _comparing("leaky_relu", relu.leaky_relu, relu.price, _leaky, digits=_leaky_digits, slope=0.01),
    _comparing(
        "clip",
        relu.clip,
        relu.clip_price,
        lambda x, low=0.0, high=6.0, **_: np.clip(x, low, high),
        operands=2,
        low=0.0,
        high=6.0,
    ),
    _comparing("maximum", relu.maximum, relu.price, lambda x, y, **_: np.maximum(x, y), operands=2),
    _comparing("minimum", relu.minimum, relu.price, lambda x, y, **_: np.minimum(x, y), operands=2),
    _comparing("max", relu.largest, relu.largest_price, lambda x, **_: x.max(axis=-1), operands=2),
    _comparing("argmax", argmax.argmax, argmax.price, lambda x, **_: x.argmax(axis=1).astype(float), operands=2),
)

FUNCTIONS: dict[str, Function] = {
    function.name: function
    for function in (
        Function(
            "none",
            _none,
            lambda shape: Price(),
            lambda x: x,
            input_scale=24,
            paper_rounds=0,
            interval=(-1000.0, 1000.0),
        ),
        Function(
            "square",
            polynomial.square,
            lambda shape: polynomial.price(shape, 2),
            np.square,
            input_scale=20,
            paper_rounds=1,
            interval=(-20.0, 20.0),
            largest=lambda x: _peak(x) ** 2,
        ),
        _from_series("expm1", np.expm1, 20, 4.0, paper_rounds=1),
        Function(
            "polyfit3",
            polynomial.polynomial,
            lambda shape, coefficients, coefficient_scale: polynomial.price(shape, 3),
            lambda x: np.polynomial.Polynomial(fit.relu_cubic())(x),
            {"coefficients": list(fit.relu_cubic()), "coefficient_scale": 14},
            input_scale=14,
            paper_rounds=2,
            interval=fit.RELU_INTERVAL,
            largest=lambda x, coefficients, **_: float(np.polynomial.Polynomial(np.abs(coefficients))(_peak(x))),
        ),
        Function(
            "cos_paper",
            _cos_paper,
            cos_paper.price,
            np.cos,
            input_scale=24,
            paper_rounds=2,
            interval=(-20.0, 20.0),
            output_scale=lambda: _digits(cos_paper.error_bound()),
        ),
        _of_angle("cos", _cos, np.cos, paper_rounds=2),
        _of_angle("sin", _sin, np.sin),
        Function(
            "growing_cos",
            growing_cos.growing_cos,
            growing_cos.price,
            lambda x: x * np.cos(x),
            {"drop": 0, "bits": 32, **_PHASE},
            input_scale=growing_cos.INPUT_SCALE,
            interval=(-GROWING_INTERVAL, GROWING_INTERVAL),
            largest=lambda x, **_: _peak(x),
            output_scale=_growing_digits,
        ),
        _from_series("sigmoid", _sigmoid, 16, 8.0),
        _from_series("tanh", np.tanh, 16, 4.0),
        Function(
            "multiply",
            masked.multiply,
            lambda x, y: masked.multiply_price(x, y, x),
            np.multiply,
            interval=(-100.0, 100.0),
            largest=lambda x, y: _peak(x) * _peak(y),
        ),
        Function(
            "matmul",
            masked.matmul,
            lambda x, y: masked.multiply_price(x, y, (x[0], y[1])),
            np.matmul,
            interval=(-100.0, 100.0),
            largest=lambda x, y: _peak(x) * _peak(y) * y.shape[0],
        ),
        Function(
            "conv2d",
            masked.conv2d,
            _conv2d_price,
            _conv2d_meaning,
            {"stride": 1, "padding": 0},
            interval=(-100.0, 100.0),
            largest=lambda x, weight, **_: _peak(x) * _peak(weight) * weight[0].size,
        ),
        Function(
            "round",
            opening.round_lift,
            _round_lift_price,
            lambda x: x,
            {"drop": 8, "bits": 40},
            input_scale=16,
            interval=(-1000.0, 1000.0),
        ),
        *_COMPARISONS,
    )
}
"""Functions by name. `paper_rounds` is the paper's Table 1."""

ACTIVATIONS = ("none", "square", "expm1", "polyfit3", "cos_paper", "cos", "sin", "growing_cos", "sigmoid", "tanh")
"""The rows of the activation table, in its order."""
