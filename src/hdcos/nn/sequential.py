"""A network: layers one after another, and their parameters."""

from __future__ import annotations

import copy
import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from math import prod
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hdcos.errors import InputError, ModelError
from hdcos.nn import limits
from hdcos.nn.activations import Activation
from hdcos.nn.columns import Names, Rows, check_names, column_names, is_table, numbers, order
from hdcos.nn.layer import Layer, Linear, Shape, layer_from_json
from hdcos.ring import Array

if TYPE_CHECKING:
    import torch

    from hdcos.secure.calibrate import Calibration


class Sequential:
    """A network of layers with its parameters, evaluated in float64. It never changes; `with_state` makes another.

    `input_shape` is the shape of one row; it may be left out where the first layer with features tells it.
    Fresh parameters follow from `seed`. With `feature_names` the columns of tables are found by name, in any order.
    """

    def __init__(
        self,
        layers: Iterable[Layer],
        seed: int = 0,
        input_shape: Sequence[int] | None = None,
        feature_names: Sequence[str] | None = None,
    ) -> None:
        if isinstance(layers, Layer):
            raise ModelError("pass the layers as a list: Sequential([Dense(4, 2), Cos()])")
        if type(seed) is not int or seed < 0:
            raise ModelError(f"seed must be a whole number of at least 0, got {seed!r}")
        self._arrange(layers, input_shape, feature_names)
        drawn = [layer.initial(np.random.default_rng([seed, index])) for index, layer in enumerate(self.layers)]
        self._set_state({f"{i}.{name}": array for i, parts in enumerate(drawn) for name, array in parts.items()})

    def __call__(self, x: Rows) -> Array:
        """The outputs for rows x, an array (batch first) or a table."""
        rows = self.rows(x)
        for layer, parameters in zip(self.layers, self._parameters, strict=True):
            rows = layer.forward(parameters, rows)
        return rows

    def __repr__(self) -> str:
        inside = ", ".join(map(repr, self.layers))
        return f"Sequential([{inside}], input_shape={self.input_shape})"

    @property
    def input_shape(self) -> Shape:
        return self.shapes[0]

    @property
    def output_shape(self) -> Shape:
        return self.shapes[-1]

    @property
    def parameter_count(self) -> int:
        return sum(prod(shape) for shape in self._state_shapes().values())

    def parameters(self, index: int) -> Mapping[str, Array]:
        """The parameters of one layer, read-only."""
        return MappingProxyType(self._parameters[index])

    def state(self) -> dict[str, Array]:
        """Copies of all parameters, "INDEX.NAME", float64, angles in radians."""
        return {f"{i}.{name}": a.copy() for i, parts in enumerate(self._parameters) for name, a in parts.items()}

    def rate_factors(self) -> dict[str, float]:
        """Public factors of the learning rate, by the names of `state()`: see `Layer.rate_factors`."""
        known = {f"{i}.{name}": f for i, layer in enumerate(self.layers) for name, f in layer.rate_factors().items()}
        return {name: known.get(name, 1.0) for name in self._state_shapes()}

    def with_state(self, state: Mapping[str, npt.ArrayLike]) -> Sequential:
        """The same network with other parameters."""
        return Sequential._assemble(self.layers, self.input_shape, state, self.feature_names)

    def with_feature_names(self, names: Sequence[str] | None) -> Sequential:
        """The same network with other names of its features, or without."""
        model = copy.copy(self)
        model.__dict__.pop("fingerprint", None)
        model.feature_names = check_names(names, prod(self.input_shape))
        return model

    def remembering(self, columns: Sequence[str] | None) -> Sequential:
        """The network with these names of its features, where it has none yet and they are as many."""
        fitting = self.feature_names is None and columns is not None and len(columns) == prod(self.input_shape)
        return self.with_feature_names(columns) if fitting else self

    def architecture(self) -> dict[str, Any]:
        """The network without its parameters, as JSON."""
        names = {} if self.feature_names is None else {"feature_names": list(self.feature_names)}
        return {"input_shape": list(self.input_shape), "layers": [layer.to_json() for layer in self.layers], **names}

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the architecture, in hexadecimal: equal for equal networks, whatever their parameters."""
        return hashlib.sha256(json.dumps(self.architecture(), sort_keys=True).encode()).hexdigest()

    @classmethod
    def from_architecture(
        cls, record: Any, seed: int = 0, state: Mapping[str, npt.ArrayLike] | None = None
    ) -> Sequential:
        """The network that `architecture` described, with the given parameters or fresh ones."""
        if not isinstance(record, dict) or not isinstance(record.get("layers"), list):
            raise ModelError("an architecture is an object with input_shape and a list of layers")
        layers, names = _layers(record["layers"]), record.get("feature_names")
        if state is None:
            return cls(layers, seed, record.get("input_shape"), names)
        return cls._assemble(layers, record.get("input_shape"), state, names)

    @classmethod
    def outline(cls, record: Any) -> Sequential:
        """The network that `architecture` described without parameters: for shapes, scales and plans alone.

        Architectures that come from outside are read here, so this is where they are held to `limits`.
        """
        if not isinstance(record, dict) or not isinstance(record.get("layers"), list):
            raise ModelError("an architecture is an object with input_shape and a list of layers")
        limits.check_count(record["layers"])
        model = cls.__new__(cls)
        model._arrange(_layers(record["layers"]), record.get("input_shape"), record.get("feature_names"))
        model._parameters = ()
        limits.check(model.layers, model.shapes)
        return model

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the network to a file that `hdcos.nn.load` reads; an interrupted save leaves the old file."""
        from hdcos.nn.storage import save

        save(self, path)

    def calibrate(self, rows: npt.ArrayLike) -> Calibration:
        """The network with intervals for its series that fit what these rows bring, as `.model`, and what that costs.

        Everything is measured here, in plaintext; printing the result shows it.
        """
        from hdcos.secure.calibrate import calibrate

        return calibrate(self, rows, stacklevel=2)

    def to_torch(self, dtype: torch.dtype | None = None) -> torch.nn.Sequential:
        """The same network as a trainable PyTorch module, float32 unless said otherwise. Needs hdcos[torch]."""
        module: torch.nn.Sequential = _torch_modules().to_torch(self, dtype)
        return module

    @classmethod
    def _assemble(
        cls,
        layers: Iterable[Layer],
        input_shape: Sequence[int] | None,
        state: Mapping[str, npt.ArrayLike],
        feature_names: Sequence[str] | None = None,
    ) -> Sequential:
        model = cls.__new__(cls)
        model._arrange(layers, input_shape, feature_names)
        model._set_state(state)
        return model

    def _arrange(
        self, layers: Iterable[Layer], input_shape: Sequence[int] | None, feature_names: Sequence[str] | None
    ) -> None:
        self.layers = tuple(layers)
        if not self.layers:
            raise ModelError("a network needs at least one layer")
        for index, layer in enumerate(self.layers):
            if not isinstance(layer, Layer):
                raise ModelError(f"layer {index} is a {type(layer).__name__}, not a layer of hdcos.nn")
        shapes = [_infer_input_shape(self.layers) if input_shape is None else _checked_shape(input_shape)]
        for index, layer in enumerate(self.layers):
            try:
                shapes.append(layer.output_shape(shapes[-1]))
            except ModelError as error:
                raise ModelError(f"layer {index}: {error}") from None
        self.shapes: tuple[Shape, ...] = tuple(shapes)
        """The input shape of each layer, and the shape of the output."""
        self.feature_names: Names | None = check_names(feature_names, prod(self.input_shape))
        """Of the columns of a row, if they are known."""

    def _state_shapes(self) -> dict[str, Shape]:
        return {f"{i}.{name}": s for i, layer in enumerate(self.layers) for name, s in layer.parameter_shapes().items()}

    def _set_state(self, state: Mapping[str, npt.ArrayLike]) -> None:
        expected = self._state_shapes()
        missing, unknown = sorted(set(expected) - set(state)), sorted(set(state) - set(expected))
        if missing or unknown:
            raise ModelError(f"the parameters do not fit the network: missing {missing}, unknown {unknown}")
        parts: list[dict[str, Array]] = [{} for _ in self.layers]
        for key, shape in expected.items():
            given = np.asarray(state[key])
            if given.dtype.kind not in "fiu" or given.shape != shape:
                raise ModelError(f"{key} must be numbers of shape {shape}, got {given.dtype} of shape {given.shape}")
            array = np.array(given, dtype=np.float64, order="C")
            if not np.isfinite(array).all():
                raise ModelError(f"{key} contains NaN or infinity")
            array.flags.writeable = False
            index, name = key.split(".")
            parts[int(index)][name] = array
        self._parameters: tuple[dict[str, Array], ...] = tuple(parts)

    def rows(self, x: Rows) -> Array:
        """Rows as the network takes them: an array of their shape, or a table, whose columns are found by name."""
        names, values = column_names(x), numbers(x)
        try:
            rows = np.asarray(values)
        except ValueError as error:
            raise InputError(f"rows must all have the same shape: {error}") from error
        if rows.dtype.kind not in "fiub":
            raise InputError(f"numbers expected, got an array of {rows.dtype}")
        if names is not None and self.feature_names is not None:
            rows = rows[:, order(names, self.feature_names, "the table")]
        if is_table(x) and prod(rows.shape[1:]) == prod(self.input_shape):
            rows = rows.reshape(len(rows), *self.input_shape)
        if rows.ndim != 1 + len(self.input_shape) or rows.shape[1:] != self.input_shape:
            wanted = ", ".join(["rows", *map(str, self.input_shape)])
            raise InputError(f"the network takes an array of shape ({wanted}), got {rows.shape}")
        if not np.isfinite(rows).all():
            raise InputError(f"the input of shape {rows.shape} contains NaN or infinity")
        return rows.astype(np.float64)


def from_torch(module: torch.nn.Module, input_shape: Sequence[int] | None = None) -> Sequential:
    """A PyTorch module as a network of hdcos, parameters included; ModelError names a layer that has no counterpart.

    A module that starts with a convolution needs `input_shape`, unless `to_torch` made it. An HdcosWarning says which
    intervals will be assumed for tanh and sigmoid; `calibrate` of the model, or of `share`, chooses them.
    """
    model: Sequential = _torch_modules().from_torch(module, input_shape)
    from hdcos.secure.calibrate import warn_of_assumed

    warn_of_assumed(model)
    return model


def parameter_groups(module: torch.nn.Module, lr: float, scale_diagonals: bool = True) -> list[dict[str, Any]]:
    """The parameters of a PyTorch module for `torch.optim`, each with the rate that training on shares gives it.

    Diagonals get sqrt(n) times the rate of the others, unless `scale_diagonals` is off; a scheduler keeps these
    proportions.
    """
    groups: list[dict[str, Any]] = _torch_modules().parameter_groups(module, lr, scale_diagonals)
    return groups


def _torch_modules() -> ModuleType:
    """What knows PyTorch, which is imported only when asked for."""
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise ModelError("PyTorch is not installed. Install it with `pip install 'hdcos[torch]'`.") from error
    from hdcos.nn import torch_modules

    return torch_modules


def _layers(records: list[Any]) -> list[Layer]:
    layers = []
    for index, record in enumerate(records):
        try:
            layers.append(layer_from_json(record))
        except ModelError as error:
            raise ModelError(f"layer {index}: {error}") from None
    return layers


def _infer_input_shape(layers: tuple[Layer, ...]) -> Shape:
    first = next((layer for layer in layers if not isinstance(layer, Activation)), layers[0])
    if isinstance(first, Linear):
        return (first.in_features,)
    raise ModelError(f"a network that starts with {first.kind} needs input_shape, for example input_shape=(1, 28, 28)")


def _checked_shape(shape: Any) -> Shape:
    if not isinstance(shape, list | tuple) or not shape or any(type(side) is not int or side < 1 for side in shape):
        raise ModelError(f"input_shape must be a list of whole numbers of at least 1, got {shape!r}")
    return tuple(shape)
