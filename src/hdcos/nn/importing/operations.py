"""A network between its source and the layers of hdcos.nn: operations, in the order in which they run.

A reader of sources (`fx`, `onnx_files`) calls the methods of a `Writer`, which are all that a network can consist of.
What cannot be computed on shares is `Refused` there, with a reason and a remedy, whatever the source was written in.

Kinds of operations:
layer      a layer of hdcos.nn as it is (`layer` of its options), with its parameters as arrays
linear     y = W x + b               arrays weight (out, in), bias (out)
conv       cross-correlation         arrays weight (out, in / groups, height, width), bias; padding on each side
affine     y = scale x + shift       one number of each for every channel, which is the first axis of a row
pad        zeros around images       for the convolution that follows
multiply   the product of two values where a pattern is known, such as x sigmoid(x)
erf        the error function, where it is a part of such a pattern
skip       nothing that a prediction would notice: dropout, the identity
softmax    left to the client, at the end of a network
refused    with its reason and its remedy
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, prod
from typing import Any

import numpy as np

from hdcos import nn
from hdcos.errors import ModelError
from hdcos.nn.layer import Layer, Shape
from hdcos.ring import Array

TANH_GELU = 4.8e-4
"""The largest difference between GELU and its approximation by tanh."""
Pair = tuple[int, int]
Sides = tuple[int, int, int, int]
"""Top, left, bottom, right."""


class Refused(ModelError):
    """A part of a network that has no counterpart, why, and what to take instead."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(f"{reason}: {remedy}")
        self.reason, self.remedy = reason, remedy


@dataclass(frozen=True)
class Value:
    """What an operation gives: 0 is the rows, i + 1 what operation i gives. `shape` is that of one row."""

    number: int
    shape: Shape


@dataclass(frozen=True)
class Operation:
    """One step of a network, under the name and the type that it has in its source."""

    number: int
    """Of the value that it gives."""
    name: str
    source: str
    kind: str
    inputs: tuple[int, ...]
    shape: Shape
    arrays: Mapping[str, Array] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"layer {self.name} ({self.source})"


@dataclass(frozen=True)
class Description:
    """A whole network, as a reader found it."""

    operations: tuple[Operation, ...]
    input_shape: Shape
    output: int
    """The number of the value that the network gives."""
    feature_names: Sequence[str] | None = None


class Writer:
    """Writes operations down, under the name of the part of the source that is being read (`name`, `source`)."""

    def __init__(self, input_shape: Shape) -> None:
        self.rows = Value(0, input_shape)
        self.operations: list[Operation] = []
        self.name = self.source = ""

    def write(
        self,
        kind: str,
        inputs: Sequence[Value],
        shape: Shape,
        arrays: Mapping[str, Array] | None = None,
        **options: Any,
    ) -> Value:
        number, reads = len(self.operations) + 1, tuple(value.number for value in inputs)
        for label, array in (arrays or {}).items():
            if not np.isfinite(array).all():
                raise Refused(f"has a {label} with NaN or infinity in it", "train it again, or load an earlier state")
        made = Operation(number, self.name, self.source, kind, reads, shape, arrays or {}, options)
        self.operations.append(made)
        return Value(number, shape)

    def layer(self, layer: Layer, *inputs: Value, arrays: Mapping[str, Array] | None = None) -> Value:
        """A layer of hdcos.nn; ModelError where the shapes do not fit."""
        shape = layer.output_shape(*(value.shape for value in inputs))
        return self.write("layer", inputs, shape, arrays, layer=layer)

    def refuse(self, inputs: Sequence[Value], shape: Shape, reason: str, remedy: str) -> Value:
        return self.write("refused", inputs, shape, reason=reason, remedy=remedy)

    def skip(self, x: Value, why: str) -> Value:
        return self.write("skip", [x], x.shape, why=why)

    # ---- linear

    def linear(self, x: Value, weight: Array, bias: Array | None = None, layer: Layer | None = None) -> Value:
        if len(x.shape) != 1:
            raise Refused(f"takes the last axis of rows of shape {x.shape}", "flatten the rows before it")
        bias = np.zeros(len(weight)) if bias is None else bias
        if weight.ndim != 2 or weight.shape[1:] != x.shape or bias.shape != weight.shape[:1]:
            raise Refused(f"has weights of shape {weight.shape} for rows of shape {x.shape}", "transpose the weights")
        return self.write("linear", [x], bias.shape, {"weight": weight, "bias": bias}, layer=layer)

    def conv(
        self, x: Value, weight: Array, bias: Array | None, stride: Pair, padding: Sides, dilation: Pair, groups: int
    ) -> Value:
        images = len(x.shape) == 3 and weight.ndim == 4 and weight.shape[1] * groups == x.shape[0]
        if not images:
            raise Refused(
                f"convolves rows of shape {x.shape} with kernels of shape {weight.shape}",
                "use Conv2d, for rows of shape (channels, height, width)",
            )
        if stride[0] != stride[1] or dilation[0] != dilation[1]:
            raise Refused(f"has stride {stride} and dilation {dilation}", "use the same in both directions")
        bias = np.zeros(len(weight)) if bias is None else bias
        sides = [
            (side + padding[n] + padding[n + 2] - dilation[n] * (weight.shape[2 + n] - 1) - 1) // stride[n] + 1
            for n, side in enumerate(x.shape[1:])
        ]
        options = {"stride": stride[0], "padding": padding, "dilation": dilation[0], "groups": groups}
        return self.write("conv", [x], (len(weight), *sides), {"weight": weight, "bias": bias}, **options)

    def affine(self, x: Value, scale: Any, shift: Any) -> Value:
        """x times and plus constants that are broadcast over (rows, *shape)."""
        channels = {"scale": _per_channel(scale, x.shape), "shift": _per_channel(shift, x.shape)}
        return self.write("affine", [x], x.shape, channels)

    def batch_norm(
        self, x: Value, scale: Array | None, shift: Array | None, mean: Array | None, variance: Array | None, eps: float
    ) -> Value:
        """As it is at inference: with the mean and the variance that training left behind."""
        if mean is None or variance is None:
            raise Refused("normalises by the rows of each batch", "use track_running_stats=True, and train it so")
        gain = (1.0 if scale is None else scale) / np.sqrt(variance + eps)
        axes = (slice(None), *[None] * (len(x.shape) - 1))
        return self.affine(x, gain[axes], ((0.0 if shift is None else shift) - mean * gain)[axes])

    def pad(self, x: Value, sides: Sides, value: float = 0.0) -> Value:
        if len(x.shape) != 3 or value or min(sides) < 0:
            raise Refused("pads by other than zeros around images", "pad the rows before sharing them")
        top, left, bottom, right = sides
        return self.write("pad", [x], (x.shape[0], x.shape[1] + top + bottom, x.shape[2] + left + right), padding=sides)

    # ---- single numbers

    def gelu(self, x: Value, approximate: str) -> Value:
        """With the error function; where the source has its approximation by tanh, the difference is told."""
        layer = nn.GELU()
        error = 0.0 if approximate == "none" else TANH_GELU
        return self.write("layer", [x], x.shape, layer=layer, error=error)

    def clip(self, x: Value, low: float | None, high: float | None) -> Value:
        low, high = -inf if low is None else float(low), inf if high is None else float(high)
        if (low, high) == (-inf, inf):
            return self.skip(x, "limits nothing")
        if (low, high) == (0.0, inf):
            return self.layer(nn.ReLU(), x)
        if (low, high) == (0.0, 6.0):
            return self.layer(nn.ReLU6(), x)
        if -inf < low < high < inf:
            return self.layer(nn.HardTanh(low=low, high=high), x)
        raise Refused(f"limits numbers to [{low:g}, {high:g}]", "use ReLU, ReLU6 or Hardtanh")

    def multiply(self, x: Value, y: Value) -> Value:
        if x.number == y.number:
            return self.layer(nn.Square(), x)
        if x.shape != y.shape:
            raise Refused(
                f"multiplies values of shapes {x.shape} and {y.shape} with each other",
                "use a linear layer, whose weights are constants, or an addition",
            )
        return self.write("multiply", [x, y], x.shape)

    def erf(self, x: Value) -> Value:
        return self.write("erf", [x], x.shape)

    def softmax(self, x: Value, axis: int) -> Value:
        """`axis` counts the axis of rows, as sources do."""
        if len(x.shape) != 1 or axis not in (1, -1):
            raise Refused(f"normalises along axis {axis} of rows of shape {x.shape}", "use it on logits, at the end")
        return self.write("softmax", [x], x.shape)

    # ---- images

    def max_pool(self, x: Value, size: Pair, stride: Pair, padding: Sides, dilation: Pair = (1, 1)) -> Value:
        if not _square(size, stride, padding) or dilation != (1, 1):
            raise Refused(
                f"pools windows of {size[0]} x {size[1]} at stride {stride} with padding {padding} and dilation "
                f"{dilation[0]}",
                "use square windows with one stride and one padding, or average pooling, which costs no round",
            )
        return self.layer(nn.MaxPool2d(*_plain(size, stride, padding)), x)

    def average_pool(self, x: Value, size: Pair, stride: Pair, padding: Sides, counts_padding: bool = True) -> Value:
        if len(x.shape) != 3:
            raise Refused(f"pools rows of shape {x.shape}", "use rows of shape (channels, height, width)")
        if any(padding) and not counts_padding:
            raise Refused("divides by the pixels that are no padding", "use count_include_pad=True, or no padding")
        if _square(size, stride, padding):
            return self.layer(nn.AvgPool2d(*_plain(size, stride, padding)), x)
        channels = x.shape[0]
        weight = np.full((channels, 1, *size), 1 / prod(size))
        return self.conv(x, weight, None, stride, padding, (1, 1), channels)

    def adaptive_average_pool(self, x: Value, size: Pair) -> Value:
        if size[0] == size[1]:
            return self.layer(nn.AdaptiveAvgPool2d(size[0]), x)
        window = self._window(x, size)
        if not window:
            raise Refused(f"pools {x.shape} to {size[0]} x {size[1]} pixels", "use a square of pixels")
        return self.layer(nn.AvgPool2d(window), x)

    def adaptive_max_pool(self, x: Value, size: Pair) -> Value:
        window = self._window(x, size)
        if not window:
            raise Refused(f"pools {x.shape} to {size[0]} x {size[1]} pixels", "use MaxPool2d with square windows")
        return self.max_pool(x, (window, window), (window, window), (0, 0, 0, 0))

    @staticmethod
    def _window(x: Value, size: Pair) -> int:
        """The side of the squares that fill an image exactly with `size` of them; 0 if none does."""
        if len(x.shape) != 3:
            raise Refused(f"pools rows of shape {x.shape}", "use rows of shape (channels, height, width)")
        height, width = x.shape[1] // size[0], x.shape[2] // size[1]
        whole = height == width and (height * size[0], width * size[1]) == x.shape[1:]
        return height if whole else 0

    def mean(self, x: Value, axes: Sequence[int], keep: bool) -> Value:
        """Of all pixels. `axes` count the axis of rows."""
        if len(x.shape) != 3 or sorted(axis % 4 for axis in axes) != [2, 3]:
            raise Refused(
                f"takes means along axes {list(axes)} of rows of shape {x.shape}", "take them of whole images"
            )
        pooled = self.adaptive_average_pool(x, (1, 1))
        return pooled if keep else self.reshape(pooled, x.shape[:1])

    # ---- several values, and shapes

    def add(self, x: Value, y: Value) -> Value:
        if x.number == y.number:
            return self.affine(x, 2.0, 0.0)
        if x.shape != y.shape:
            raise Refused(f"adds values of shapes {x.shape} and {y.shape}", "bring them to one shape first")
        return self.layer(nn.Add(), x, y)

    def subtract(self, x: Value, y: Value) -> Value:
        return self.add(x, self.affine(y, -1.0, 0.0))

    def concat(self, values: Sequence[Value], axis: int) -> Value:
        """`axis` counts the axis of rows."""
        row_axis = axis - 1 if axis >= 0 else len(values[0].shape) + axis
        if row_axis < 0:
            raise Refused("joins rows of a batch", "join values along another axis")
        if len(values) == 1:
            return self.skip(values[0], "joins one value")
        return self.layer(nn.Concat(row_axis), *values)

    def reshape(self, x: Value, shape: Shape) -> Value:
        if shape == x.shape:
            return self.skip(x, "changes no shape")
        if prod(shape) != prod(x.shape):
            raise Refused(f"makes {shape} of rows of shape {x.shape}", "keep the numbers of each row together")
        return self.layer(nn.Flatten() if len(shape) == 1 else nn.Reshape(shape), x)


def _square(size: Pair, stride: Pair, padding: Sides) -> bool:
    """Whether windows are the same in both directions, and padding on all sides."""
    return size[0] == size[1] and stride[0] == stride[1] and len(set(padding)) == 1


def _plain(size: Pair, stride: Pair, padding: Sides) -> tuple[int, ...]:
    """The arguments of a pooling layer; its size alone where windows stand side by side."""
    return size[:1] if stride == size and not any(padding) else (size[0], stride[0], padding[0])


def _per_channel(numbers: Any, shape: Shape) -> Array:
    """Constants that are broadcast over (rows, *shape) as one for each entry of the first axis of a row."""
    array = np.asarray(numbers, dtype=np.float64)
    if array.ndim == len(shape) + 1 and array.shape[0] == 1:
        array = array[0]
    try:
        whole = np.broadcast_to(array, shape).reshape(shape[0], -1)
    except ValueError:
        raise Refused(
            f"combines rows of shape {shape} with a constant of shape {array.shape}", "use constants of a row's shape"
        ) from None
    if not np.array_equal(whole, np.broadcast_to(whole[:, :1], whole.shape), equal_nan=True):
        raise Refused(
            f"combines rows of shape {shape} with a constant of another value at every place",
            "use one constant for each channel, or flatten the rows before it",
        )
    return np.array(whole[:, 0])
