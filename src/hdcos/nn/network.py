"""A network: layers, which values each of them reads, and their parameters.

Value 0 is the rows, value i + 1 what layer i gives, and the last layer's value is the network's. In a `Sequential`
every layer reads the one before it; a `Graph` says for each layer which earlier values it reads.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from math import prod
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from hdcos.errors import InputError, ModelError
from hdcos.nn import limits
from hdcos.nn.activations import Activation
from hdcos.nn.columns import Names, Rows, check_names, column_names, is_table, numbers, order
from hdcos.nn.joins import Join
from hdcos.nn.layer import Layer, Linear, Shape, layer_from_json
from hdcos.nn.passing import Identity
from hdcos.nn.prepared import Prepared, read_prepared
from hdcos.ring import Array

if TYPE_CHECKING:
    import torch

    from hdcos.secure.calibrate import Calibration

Inputs = tuple[tuple[int, ...], ...]
"""For each layer the numbers of the values it reads."""


class Network:
    """Layers with their parameters, evaluated in float64. It never changes; `with_state` makes another.

    `Sequential` and `Graph` make networks; this is what they have in common.
    """

    layers: tuple[Layer, ...]
    inputs: Inputs
    shapes: tuple[Shape, ...]
    """Of each value: the rows, and what each layer gives. In a chain that is what each layer takes, and the output."""
    feature_names: Names | None
    """Of the columns of a row, if they are known."""
    prepared: tuple[Prepared, ...] = ()
    """What made the features of the rows it was trained on, if something did."""
    _parameters: tuple[dict[str, Array], ...]

    def __call__(self, x: Rows) -> Array:
        """The outputs for rows x, an array (batch first) or a table."""
        for value in self.values(self.rows(x)):
            output = value
        return output

    def values(self, rows: Array) -> Iterator[Array]:
        """Every value in order: the rows, then what each layer gives. What no layer reads any more is let go."""
        known, last_reads = {0: rows}, limits.last_reads(self.inputs)
        yield rows
        for index, (layer, parameters) in enumerate(zip(self.layers, self._parameters, strict=True)):
            made = layer.forward(parameters, *(known[number] for number in self.inputs[index]))
            known = {number: value for number, value in known.items() if last_reads[number] > index}
            known[index + 1] = made
            yield made

    @property
    def input_shape(self) -> Shape:
        return self.shapes[0]

    @property
    def output_shape(self) -> Shape:
        return self.shapes[-1]

    def shape_before(self, index: int) -> Shape:
        """The shape of what a layer reads, or of the first of several."""
        return self.shapes[self.inputs[index][0]]

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

    def with_state(self, state: Mapping[str, npt.ArrayLike]) -> Self:
        """The same network with other parameters."""
        model = copy.copy(self)
        model._set_state(state)
        return model

    def with_layers(self, layers: Iterable[Layer]) -> Self:
        """The same network with other layers, which read the same values and have the same parameters."""
        model = self._assemble(layers, self.input_shape, self.state(), self.feature_names, self.inputs)
        model.prepared = self.prepared
        return model

    def with_feature_names(self, names: Sequence[str] | None) -> Self:
        """The same network with other names of its features, or without."""
        model = copy.copy(self)
        model.__dict__.pop("fingerprint", None)
        model.feature_names = check_names(names, prod(self.input_shape))
        return model

    def remembering(self, columns: Sequence[str] | None) -> Self:
        """The network with these names of its features, where it has none yet and they are as many."""
        fitting = self.feature_names is None and columns is not None and len(columns) == prod(self.input_shape)
        return self.with_feature_names(columns) if fitting else self

    def with_prepared(self, prepared: Sequence[Prepared]) -> Self:
        """The same network, which remembers what prepared its rows; as it is where nothing did."""
        if not prepared:
            return self
        model = copy.copy(self)
        model.__dict__.pop("fingerprint", None)
        model.prepared = tuple(prepared)
        return model

    def architecture(self) -> dict[str, Any]:
        """The network without its parameters, as JSON."""
        names: dict[str, Any] = {} if self.feature_names is None else {"feature_names": list(self.feature_names)}
        if self.prepared:
            names["prepared"] = [each.to_json() for each in self.prepared]
        return {"input_shape": list(self.input_shape), "layers": [layer.to_json() for layer in self.layers], **names}

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the architecture, in hexadecimal: equal for equal networks, whatever their parameters."""
        return hashlib.sha256(json.dumps(self.architecture(), sort_keys=True).encode()).hexdigest()

    @staticmethod
    def from_architecture(record: Any, seed: int = 0, state: Mapping[str, npt.ArrayLike] | None = None) -> Network:
        """The network that `architecture` described, with the given parameters or fresh ones."""
        model = _described(record)
        if state is None:
            model._draw_state(seed)
        else:
            model._set_state(state)
        return model

    @staticmethod
    def outline(record: Any) -> Network:
        """The network that `architecture` described without parameters: for shapes, scales and plans alone.

        Architectures that come from outside are read here, so this is where they are held to `limits`.
        """
        model = _described(record, bounded=True)
        model._parameters = ()
        limits.check(model.layers, model.shapes, model.inputs)
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
        from hdcos.nn.pytorch import torch_modules

        if not isinstance(self, Sequential):
            raise ModelError(
                "a Graph is no torch.nn.Sequential: build its module in PyTorch and load `state()` into it"
            )
        module: torch.nn.Sequential = torch_modules().to_torch(self, dtype)
        return module

    @classmethod
    def _assemble(
        cls,
        layers: Iterable[Layer],
        input_shape: Sequence[int] | None,
        state: Mapping[str, npt.ArrayLike],
        feature_names: Sequence[str] | None = None,
        inputs: Any = None,
    ) -> Self:
        model = cls.__new__(cls)
        model._arrange(layers, inputs, input_shape, feature_names)
        model._set_state(state)
        return model

    def _arrange(
        self, layers: Iterable[Layer], inputs: Any, input_shape: Sequence[int] | None, names: Sequence[str] | None
    ) -> None:
        """Check the layers and what they read; without `inputs` each reads the one before it."""
        if isinstance(layers, Layer):
            raise ModelError(f"pass the layers as a list: {type(self).__name__}([Dense(4, 2), Cos()])")
        self.layers = tuple(layers)
        if not self.layers:
            raise ModelError("a network needs at least one layer")
        for index, layer in enumerate(self.layers):
            if not isinstance(layer, Layer):
                raise ModelError(f"layer {index} is a {type(layer).__name__}, not a layer of hdcos.nn")
        self.inputs = tuple((i,) for i in range(len(self.layers))) if inputs is None else _checked_inputs(inputs)
        _check_reads(self.layers, self.inputs)
        shapes = [self._infer_input_shape() if input_shape is None else _checked_shape(input_shape)]
        for index, (layer, reads) in enumerate(zip(self.layers, self.inputs, strict=True)):
            try:
                shapes.append(layer.output_shape(*(shapes[number] for number in reads)))
            except ModelError as error:
                raise ModelError(f"layer {index}: {error}") from None
        self.shapes = tuple(shapes)
        self.feature_names = check_names(names, prod(self.input_shape))

    def _infer_input_shape(self) -> Shape:
        """What the first layer that takes the rows takes; activations take any."""
        rows, first = {0}, self.layers[0]
        for number, (layer, reads) in enumerate(zip(self.layers, self.inputs, strict=True), 1):
            if rows.isdisjoint(reads):
                continue
            if isinstance(layer, Linear):
                return (layer.in_features,)
            if not isinstance(layer, Activation | Identity):
                first = layer
                break
            rows.add(number)
        raise ModelError(
            f"a network that starts with {first.kind} needs input_shape, for example input_shape=(1, 28, 28)"
        )

    def _state_shapes(self) -> dict[str, Shape]:
        return {f"{i}.{name}": s for i, layer in enumerate(self.layers) for name, s in layer.parameter_shapes().items()}

    def _draw_state(self, seed: int) -> None:
        if type(seed) is not int or seed < 0:
            raise ModelError(f"seed must be a whole number of at least 0, got {seed!r}")
        drawn = [layer.initial(np.random.default_rng([seed, index])) for index, layer in enumerate(self.layers)]
        self._set_state({f"{i}.{name}": array for i, parts in enumerate(drawn) for name, array in parts.items()})

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
        self._parameters = tuple(parts)

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


class Sequential(Network):
    """A network of layers one after another with its parameters, evaluated in float64.

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
        self._arrange(layers, None, input_shape, feature_names)
        self._draw_state(seed)

    def __repr__(self) -> str:
        inside = ", ".join(map(repr, self.layers))
        return f"Sequential([{inside}], input_shape={self.input_shape})"


class Graph(Network):
    """A network whose layers read any earlier values: residual connections, branches, several readers of one value.

    `inputs` has for each layer the numbers of the values it reads, in the order in which it takes them: 0 is the rows,
    i + 1 what layer i gives. Layers are given in the order in which they run, and every value but the last is read.
    For predictions alone: training on shares takes a `Sequential`.
    """

    def __init__(
        self,
        layers: Iterable[Layer],
        inputs: Sequence[Sequence[int]],
        seed: int = 0,
        input_shape: Sequence[int] | None = None,
        feature_names: Sequence[str] | None = None,
    ) -> None:
        self._arrange(layers, inputs, input_shape, feature_names)
        self._draw_state(seed)

    def __repr__(self) -> str:
        inside = ", ".join(map(repr, self.layers))
        return f"Graph([{inside}], inputs={self.inputs}, input_shape={self.input_shape})"

    def architecture(self) -> dict[str, Any]:
        return {**super().architecture(), "inputs": [list(reads) for reads in self.inputs]}


def _described(record: Any, bounded: bool = False) -> Network:
    """The network of an architecture, without parameters; of a `bounded` one layers and inputs are counted first."""
    if not isinstance(record, dict) or not isinstance(record.get("layers"), list):
        raise ModelError("an architecture is an object with input_shape and a list of layers")
    inputs = _checked_inputs(record["inputs"]) if "inputs" in record else None
    if bounded:
        limits.check_count(record["layers"], inputs or ())
    layers = []
    for index, each in enumerate(record["layers"]):
        try:
            layers.append(layer_from_json(each))
        except ModelError as error:
            raise ModelError(f"layer {index}: {error}") from None
    model: Network = Sequential.__new__(Sequential) if inputs is None else Graph.__new__(Graph)
    model._arrange(layers, inputs, record.get("input_shape"), record.get("feature_names"))
    model.prepared = read_prepared(record.get("prepared", []))
    return model


def _checked_inputs(inputs: Any) -> Inputs:
    if not isinstance(inputs, list | tuple) or not all(
        isinstance(reads, list | tuple) and all(type(number) is int for number in reads) for reads in inputs
    ):
        raise ModelError("inputs is a list that has for each layer a list of the values it reads: [[0], [1], [1, 2]]")
    return tuple(map(tuple, inputs))


def _check_reads(layers: tuple[Layer, ...], inputs: Inputs) -> None:
    """ModelError unless each layer reads as many values as it takes, all of them made before, and none is left over."""
    if len(inputs) != len(layers):
        raise ModelError(f"{len(layers)} layers cannot have the inputs of {len(inputs)}")
    for index, (layer, reads) in enumerate(zip(layers, inputs, strict=True)):
        if isinstance(layer, Join) and len(reads) < 2:
            raise ModelError(
                f"layer {index}, {layer.kind}, joins two or more values and reads {len(reads)}: a Graph says which"
            )
        if not isinstance(layer, Join) and len(reads) != 1:
            raise ModelError(
                f"layer {index}, {layer.kind}, reads one value, not {len(reads)}: join them by Add or Concat"
            )
        if wrong := [number for number in reads if not 0 <= number <= index]:
            raise ModelError(
                f"layer {index}, {layer.kind}, reads value {wrong[0]}, and 0 to {index} are there before it: "
                f"give the layers in the order in which they run"
            )
    unread = set(range(len(layers))) - {number for reads in inputs for number in reads}
    if unread:
        number = min(unread)
        what = f"what layer {number - 1}, {layers[number - 1].kind}, gives" if number else "the rows"
        raise ModelError(f"value {number}, {what}, is read by no layer: leave out what makes it, or read it")


def _checked_shape(shape: Any) -> Shape:
    if not isinstance(shape, list | tuple) or not shape or any(type(side) is not int or side < 1 for side in shape):
        raise ModelError(f"input_shape must be a list of whole numbers of at least 1, got {shape!r}")
    return tuple(shape)
