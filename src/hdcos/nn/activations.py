"""Elementwise functions, and their names.

Under two-party computation each is one round, but for ReLU, which compares: three rounds, and a dealer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hdcos.errors import ModelError
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
class GrowingCos(Activation):
    """x cos x."""

    name: ClassVar[str] = "growing_cos"

    def __call__(self, x: Array) -> Array:
        result: Array = x * module_of(x).cos(x)
        return result


@dataclass(frozen=True)
class ReLU(Activation):
    """max(x, 0). On shares it takes three rounds and a dealer, where Cos takes one; its derivative at 0 is 0."""

    name: ClassVar[str] = "relu"

    def __call__(self, x: Array) -> Array:
        return np.maximum(x, 0.0)


@dataclass(frozen=True)
class LeakyReLU(Activation):
    """x where it is positive, else slope times x. On shares as ReLU."""

    name: ClassVar[str] = "leaky_relu"
    slope: float = 0.01

    def __post_init__(self) -> None:
        number = isinstance(self.slope, int | float) and not isinstance(self.slope, bool)
        if not (number and abs(self.slope) <= 1):
            raise ModelError(f"LeakyReLU: slope must be a number from -1 to 1, got {self.slope!r}")

    def __call__(self, x: Array) -> Array:
        leaked: Array = module_of(x).where(x > 0, x, self.slope * x)
        return leaked


ACTIVATIONS: dict[str, type[Activation]] = {
    kind.name: kind for kind in (Cos, Sin, Square, ExpM1, PolyReLU3, ReLU, Sigmoid, Tanh, GrowingCos)
}


def activation(name: str) -> Activation | None:
    """The activation of that name; None for `none`, which is no layer."""
    if name == "none":
        return None
    if name not in ACTIVATIONS:
        raise ModelError(f"no activation is called {name!r}: choose from none, {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]()
