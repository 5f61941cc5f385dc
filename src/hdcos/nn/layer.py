"""What a layer is: a frozen specification without arrays, and the registry that reads it back from JSON.

The parameters live in the model. A layer says which it needs, draws their initial values, and computes with them: in
NumPy, and by the same lines on tensors of PyTorch.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from math import isfinite, prod
from typing import Any, ClassVar

import numpy as np

from hdcos.checks import check_whole
from hdcos.errors import ModelError
from hdcos.ring import Array

Shape = tuple[int, ...]
"""A shape without the batch axis."""


@dataclass(frozen=True)
class Factor:
    """One of the products with a learnable weight that a linear layer is made of; the last one adds the bias."""

    weight: str
    operation: str
    """`diagonal`, which is H (w * x) or a sum of such terms, or a product of `offline.bilinear`."""
    inputs: Shape
    outputs: Shape
    name: str = ""
    """Tells it from the other factors of its layer."""
    stride: int = 1
    padding: int = 0
    groups: int = 1
    dilation: int = 1


@dataclass(frozen=True)
class Layer:
    """A map of rows to rows. Subclasses enter the registry under their own name."""

    registry: ClassVar[dict[str, type[Layer]]] = {}

    def __init_subclass__(cls, abstract: bool = False) -> None:
        if not abstract:
            Layer.registry[cls.__name__] = cls

    def __post_init__(self) -> None:
        """Subclasses check what they were made with."""

    @property
    def kind(self) -> str:
        """The name of the layer's type, as it stands in model files."""
        return type(self).__name__

    def parameter_shapes(self) -> dict[str, Shape]:
        """Names and shapes of the learnable arrays."""
        return {}

    def initial(self, generator: np.random.Generator) -> dict[str, Array]:
        """Fresh float64 parameters."""
        return {}

    def output_shape(self, shape: Shape) -> Shape:
        """The shape of one row's output; ModelError where the input does not fit."""
        raise NotImplementedError

    def forward(self, parameters: Mapping[str, Array], x: Array) -> Array:
        """The layer's output for rows x (batch first): float64, or tensors where PyTorch has no module of its own."""
        raise NotImplementedError

    def factors(self, shape: Shape) -> tuple[Factor, ...]:
        """How a linear layer is computed on shares, first to last; none of a layer without parameters."""
        return ()

    def multiplications(self, shape: Shape) -> int:
        """Products of two secret numbers per row: what the layer costs under two-party computation.

        One per entry of a diagonal. Of a matrix every one is computed, a circulant one included: the ring has no fast
        Fourier transform.
        """
        sizes = ((prod(part.inputs), prod(part.outputs), part.operation) for part in self.factors(shape))
        return sum(inputs if operation == "diagonal" else inputs * outputs for inputs, outputs, operation in sizes)

    def row_elements(self, shape: Shape) -> int:
        """Numbers of one row that the layer works on: what comes in, what goes out, what lies between."""
        return prod(shape) + prod(self.output_shape(shape))

    def rate_factors(self) -> dict[str, float]:
        """Public factors of the learning rate by parameter, where it is not 1: what makes one rate fit all layers."""
        return {}

    def matrix_elements(self) -> int:
        """Numbers of the matrices that it makes besides its parameters, from these or from a seed."""
        return 0

    def to_json(self) -> dict[str, Any]:
        return {"type": self.kind, **asdict(self)}

    def _check_whole(self, minimum: int, *names: str) -> None:
        for name in names:
            whole = check_whole(getattr(self, name), f"{self.kind}: {name}", minimum, ModelError)
            object.__setattr__(self, name, whole)  # NumPy's whole numbers become Python's

    def _check_bandwidth(self, value: Any) -> None:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is not None and not (number and isfinite(value) and value > 0):
            raise ModelError(f"{self.kind}: bandwidth must be a positive number or None, got {value!r}")


@dataclass(frozen=True)
class Linear(Layer, abstract=True):
    """A layer that takes `in_features` numbers to `out_features` numbers, with a bias."""

    in_features: int
    out_features: int

    def __post_init__(self) -> None:
        self._check_whole(1, "in_features", "out_features")

    def output_shape(self, shape: Shape) -> Shape:
        if shape != (self.in_features,):
            hint = ", put a Flatten() before it" if len(shape) > 1 else ""
            raise ModelError(f"{self.kind} takes shape {(self.in_features,)}, got {shape}{hint}")
        return (self.out_features,)


def layer_from_json(record: Any) -> Layer:
    """The layer that `to_json` wrote; ModelError names what is unknown, missing or wrong."""
    if not isinstance(record, dict) or not isinstance(record.get("type"), str):
        raise ModelError(f"a layer is an object with a type, got {str(record)[:80]!r}")
    kind = Layer.registry.get(record["type"])
    if kind is None:
        raise ModelError(
            f"unknown layer type {record['type']!r}: this version knows {', '.join(sorted(Layer.registry))}. "
            f"Upgrade with `pip install --upgrade hdcos` if a newer version wrote it."
        )
    known = {field.name for field in fields(kind)}
    needed = {field.name for field in fields(kind) if field.default is MISSING}
    given = set(record) - {"type"}
    if given - known:
        raise ModelError(f"{record['type']} has no field {sorted(given - known)}; it has {sorted(known)}")
    if needed - given:
        raise ModelError(f"{record['type']} lacks the field {sorted(needed - given)}")
    return kind(**{name: record[name] for name in given})


def glorot_uniform(generator: np.random.Generator, shape: Shape, fan_in: int, fan_out: int) -> Array:
    """Uniform with variance 2 / (fan_in + fan_out)."""
    limit = np.sqrt(6 / (fan_in + fan_out))
    return generator.uniform(-limit, limit, shape)


def module_of(x: Any) -> Any:
    """The library that an array is of: NumPy, or PyTorch, which is loaded where there are tensors."""
    torch = sys.modules.get("torch")
    return torch if torch and isinstance(x, torch.Tensor) else np


def beside(x: Any, values: Array) -> Any:
    """Public numbers as an array of x's kind."""
    return values if module_of(x) is np else x.new_tensor(values)
