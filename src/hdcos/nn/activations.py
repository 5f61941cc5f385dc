"""Elementwise functions, and their names.

Under two-party computation each is one round, but for those that compare (ReLU, LeakyReLU, ReLU6, HardTanh): three
rounds or two, as `compare` says, and a dealer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import erf, isfinite
from typing import Any, ClassVar

import numpy as np

from hdcos.errors import ModelError
from hdcos.nn.comparing import Comparing
from hdcos.nn.layer import Layer, Shape, module_of
from hdcos.protocol.intervals import INTERVALS, relu_cubic
from hdcos.ring import Array


@dataclass(frozen=True)
class Activation(Layer, abstract=True):
    """A function of single numbers; `name` is its word on the command line and in the tables."""

    name: ClassVar[str]

    def output_shape(self, shape: Shape) -> Shape:
        return shape

    def forward(self, parameters: Mapping[str, Array], x: Array) -> Array:
        return self(x)

    def __call__(self, x: Array) -> Array:
        """Unless a subclass says otherwise, the function that NumPy and PyTorch have under this name."""
        result: Array = getattr(module_of(x), self.name)(x)
        return result


@dataclass(frozen=True)
class SeriesActivation(Activation, abstract=True):
    """A function that is computed on shares as a series, right for |x| <= interval; beyond, the series folds back.

    Without an interval the narrowest is assumed. The interval is public, like everything of an architecture.
    """

    interval: int | None = None

    def __post_init__(self) -> None:
        if self.interval is not None and (type(self.interval) is not int or self.interval not in self.intervals):
            offered = ", ".join(map(str, self.intervals))
            raise ModelError(f"{self.kind}: interval must be one of {offered} or None, got {self.interval!r}")

    @property
    def intervals(self) -> tuple[int, ...]:
        """Those there are series for, narrow ones first: the wider, the more material a value takes."""
        return INTERVALS[self.name]

    @property
    def reach(self) -> int:
        """The largest |x| that is computed right."""
        return self.intervals[0] if self.interval is None else self.interval


@dataclass(frozen=True)
class BentActivation(SeriesActivation, abstract=True):
    """x/2 and an even function: near 0 far to the left, near x far to the right.

    The even function is computed as a series, and x/2 as it is.
    """


@dataclass(frozen=True)
class Cos(Activation):
    """cos x, x in radians."""

    name: ClassVar[str] = "cos"


@dataclass(frozen=True)
class Sin(Activation):
    """sin x, x in radians."""

    name: ClassVar[str] = "sin"


@dataclass(frozen=True)
class Square(Activation):
    """x^2."""

    name: ClassVar[str] = "square"


@dataclass(frozen=True)
class PolyReLU3(Activation):
    """The cubic closest to ReLU, `hdcos.protocol.intervals.relu_cubic`."""

    name: ClassVar[str] = "polyfit3"

    def __call__(self, x: Array) -> Array:
        c0, c1, c2, c3 = relu_cubic()
        return c0 + x * (c1 + x * (c2 + x * c3))


@dataclass(frozen=True)
class ExpM1(SeriesActivation):
    """e^x - 1."""

    name: ClassVar[str] = "expm1"


@dataclass(frozen=True)
class Sigmoid(SeriesActivation):
    """1 / (1 + e^-x)."""

    name: ClassVar[str] = "sigmoid"

    def __call__(self, x: Array) -> Array:
        return 0.5 + 0.5 * np.tanh(0.5 * x)


@dataclass(frozen=True)
class Tanh(SeriesActivation):
    """tanh x."""

    name: ClassVar[str] = "tanh"


@dataclass(frozen=True)
class GELU(BentActivation):
    """x times the chance that a normal variable is below x: x (1 + erf(x / sqrt 2)) / 2."""

    name: ClassVar[str] = "gelu"

    def __call__(self, x: Array) -> Array:
        below: Array = 0.5 + 0.5 * _erf(x / np.sqrt(2.0))
        return x * below


@dataclass(frozen=True)
class SiLU(BentActivation):
    """x / (1 + e^-x), also known as swish."""

    name: ClassVar[str] = "silu"

    def __call__(self, x: Array) -> Array:
        return x * (0.5 + 0.5 * np.tanh(0.5 * x))


@dataclass(frozen=True)
class Softplus(BentActivation):
    """log(1 + e^x)."""

    name: ClassVar[str] = "softplus"

    def __call__(self, x: Array) -> Array:
        result: Array = np.logaddexp(x, 0.0)
        return result


def _erf(x: Array) -> Array:
    """NumPy has none."""
    values: Array = np.asarray(np.frompyfunc(erf, 1, 1)(x), np.float64)
    return values


@dataclass(frozen=True)
class GrowingCos(Activation):
    """x cos x."""

    name: ClassVar[str] = "growing_cos"

    def __call__(self, x: Array) -> Array:
        result: Array = x * module_of(x).cos(x)
        return result


@dataclass(frozen=True)
class ReLU(Comparing, Activation):
    """max(x, 0). On shares it takes three rounds or two and a dealer, where Cos takes one; its derivative at 0 is 0."""

    name: ClassVar[str] = "relu"

    def __call__(self, x: Array) -> Array:
        return np.maximum(x, 0.0)


@dataclass(frozen=True)
class LeakyReLU(Comparing, Activation):
    """x where it is positive, else slope times x. On shares as ReLU."""

    name: ClassVar[str] = "leaky_relu"
    slope: float = 0.01

    def __post_init__(self) -> None:
        if not (_is_number(self.slope) and abs(self.slope) <= 1):
            raise ModelError(f"LeakyReLU: slope must be a number from -1 to 1, got {self.slope!r}")
        super().__post_init__()

    def __call__(self, x: Array) -> Array:
        leaked: Array = module_of(x).where(x > 0, x, self.slope * x)
        return leaked


@dataclass(frozen=True)
class HardTanh(Comparing, Activation):
    """x, but at least `low` and at most `high`. On shares two comparisons at once, in the rounds of one."""

    name: ClassVar[str] = "hardtanh"
    low: float = -1.0
    high: float = 1.0

    def __post_init__(self) -> None:
        if not (_is_number(self.low) and _is_number(self.high) and self.low <= self.high):
            raise ModelError(f"HardTanh: low and high must be two numbers in order, got {self.low!r}, {self.high!r}")
        super().__post_init__()

    def __call__(self, x: Array) -> Array:
        return np.clip(x, self.low, self.high)


@dataclass(frozen=True)
class ReLU6(Comparing, Activation):
    """x, but at least 0 and at most 6. On shares as HardTanh."""

    name: ClassVar[str] = "relu6"
    low: ClassVar[float] = 0.0
    high: ClassVar[float] = 6.0

    def __call__(self, x: Array) -> Array:
        return np.clip(x, self.low, self.high)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


ACTIVATIONS: dict[str, type[Activation]] = {
    kind.name: kind
    for kind in (
        *(Cos, Sin, Square, ExpM1, PolyReLU3, ReLU, ReLU6, HardTanh),
        *(Sigmoid, Tanh, GELU, SiLU, Softplus, GrowingCos),
    )
}


def activation(name: str) -> Activation | None:
    """The activation of that name; None for `none`, which is no layer."""
    if name == "none":
        return None
    if name not in ACTIVATIONS:
        raise ModelError(f"no activation is called {name!r}: choose from none, {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]()
