"""What ONNX's operators are in operations: a method for each, called with its inputs, its name in small letters."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from hdcos import nn
from hdcos.nn.importing.operations import Pair, Refused, Sides, Value, Writer
from hdcos.ring import Array

Argument = Any
"""A value, an array of constants, or None for an input that is left out."""


class Nodes:
    """One operator, with its attributes."""

    def __init__(self, writer: Writer, attributes: dict[str, Any], opset: int, rows: int) -> None:
        self._write, self._attributes, self._opset, self._rows = writer, attributes, opset, rows

    # ---- linear

    def gemm(self, a: Argument, b: Argument, c: Argument = None) -> Value:
        if self._attributes.get("transA"):
            raise Refused("transposes the rows", "use transA=0")
        weight = _constant(b) if self._attributes.get("transB") else _constant(b).T
        value = self._write.linear(_value(a), weight * self._attributes.get("alpha", 1.0))
        return value if c is None else self._write.affine(value, 1.0, _constant(c) * self._attributes.get("beta", 1.0))

    def matmul(self, a: Argument, b: Argument) -> Value:
        return self._write.linear(_value(a), _constant(b).T)

    def conv(self, x: Argument, w: Argument, b: Argument = None) -> Value:
        value, weight = _value(x), _constant(w)
        if weight.ndim != 4:
            raise Refused(f"has kernels of shape {weight.shape}", "use convolutions of images")
        strides, dilations = self._pair("strides"), self._pair("dilations")
        reach = [each * (side - 1) + 1 for each, side in zip(dilations, weight.shape[2:], strict=True)]
        padding = self._padding(value, reach, strides)
        bias = None if b is None else _constant(b)
        return self._write.conv(value, weight, bias, strides, padding, dilations, self._attributes.get("group", 1))

    def batchnormalization(self, x: Argument, scale: Argument, b: Argument, mean: Argument, var: Argument) -> Value:
        if self._attributes.get("training_mode"):
            raise Refused("normalises by the rows of each batch", "export the network for inference")
        gain, shift, middle, variance = (_constant(each) for each in (scale, b, mean, var))
        return self._write.batch_norm(_value(x), gain, shift, middle, variance, self._attributes.get("epsilon", 1e-5))

    def pad(self, x: Argument, pads: Argument = None, value: Argument = None, axes: Argument = None) -> Value:
        sides = [int(side) for side in (self._attributes["pads"] if pads is None else _constant(pads))]
        filled = self._attributes.get("value", 0.0) if value is None else float(_constant(value).reshape(-1)[0])
        images = len(sides) == 8 and axes is None and not any(sides[n] for n in (0, 1, 4, 5))
        if self._attributes.get("mode", "constant") != "constant" or not images:
            raise Refused(f"pads {sides}", "pad images by zeros")
        return self._write.pad(_value(x), (sides[2], sides[3], sides[6], sides[7]), filled)

    # ---- arithmetic

    def add(self, a: Argument, b: Argument) -> Value:
        if isinstance(a, Value) and isinstance(b, Value):
            return self._write.add(a, b)
        value, constant = _sorted(a, b)
        return self._write.affine(value, 1.0, constant)

    def sub(self, a: Argument, b: Argument) -> Value:
        if isinstance(a, Value) and isinstance(b, Value):
            return self._write.subtract(a, b)
        value, constant = _sorted(a, b)
        sign = 1.0 if isinstance(a, Value) else -1.0
        return self._write.affine(value, sign, -sign * constant)

    def mul(self, a: Argument, b: Argument) -> Value:
        if isinstance(a, Value) and isinstance(b, Value):
            return self._write.multiply(a, b)
        value, constant = _sorted(a, b)
        return self._write.affine(value, constant, 0.0)

    def div(self, a: Argument, b: Argument) -> Value:
        return self._write.affine(_value(a), 1 / _constant(b), 0.0)

    def neg(self, x: Argument) -> Value:
        return self._write.affine(_value(x), -1.0, 0.0)

    def sum(self, *inputs: Argument) -> Value:
        total = inputs[0]
        for each in inputs[1:]:
            total = self.add(total, each)
        return _value(total)

    def pow(self, x: Argument, exponent: Argument) -> Value:
        if (_constant(exponent) != 2).any():
            raise Refused("raises numbers to another power than 2", "use the power of 2")
        return self._write.layer(nn.Square(), _value(x))

    # ---- activations

    def relu(self, x: Argument) -> Value:
        return self._write.layer(nn.ReLU(), _value(x))

    def leakyrelu(self, x: Argument) -> Value:
        return self._write.layer(nn.LeakyReLU(slope=float(self._attributes.get("alpha", 0.01))), _value(x))

    def prelu(self, x: Argument, slope: Argument) -> Value:
        slopes = _constant(slope).reshape(-1)
        if (slopes != slopes[0]).any():
            raise Refused("has another slope for every channel", "use one for all, as LeakyRelu does")
        return self._write.layer(nn.LeakyReLU(slope=float(slopes[0])), _value(x))

    def abs(self, x: Argument) -> Value:
        return self._write.layer(nn.LeakyReLU(slope=-1.0), _value(x))

    def clip(self, x: Argument, low: Argument = None, high: Argument = None) -> Value:
        bounds = [
            self._attributes.get(name) if given is None else float(_constant(given).reshape(-1)[0])
            for name, given in (("min", low), ("max", high))
        ]
        return self._write.clip(_value(x), *bounds)

    def max(self, a: Argument, b: Argument) -> Value:
        value, constant = _sorted(a, b)
        return self._write.clip(value, _number(constant), None)

    def min(self, a: Argument, b: Argument) -> Value:
        value, constant = _sorted(a, b)
        return self._write.clip(value, None, _number(constant))

    def hardsigmoid(self, x: Argument) -> Value:
        slope, shift = self._attributes.get("alpha", 0.2), self._attributes.get("beta", 0.5)
        return self._write.clip(self._write.affine(_value(x), slope, shift), 0.0, 1.0)

    def sigmoid(self, x: Argument) -> Value:
        return self._write.layer(nn.Sigmoid(), _value(x))

    def tanh(self, x: Argument) -> Value:
        return self._write.layer(nn.Tanh(), _value(x))

    def cos(self, x: Argument) -> Value:
        return self._write.layer(nn.Cos(), _value(x))

    def sin(self, x: Argument) -> Value:
        return self._write.layer(nn.Sin(), _value(x))

    def gelu(self, x: Argument) -> Value:
        return self._write.gelu(_value(x), self._attributes.get("approximate", "none"))

    def swish(self, x: Argument) -> Value:
        if self._attributes.get("alpha", 1.0) != 1.0:
            raise Refused("is a swish with alpha", "use alpha=1")
        return self._write.layer(nn.SiLU(), _value(x))

    def softplus(self, x: Argument) -> Value:
        return self._write.layer(nn.Softplus(), _value(x))

    def erf(self, x: Argument) -> Value:
        return self._write.erf(_value(x))

    def softmax(self, x: Argument) -> Value:
        return self._write.softmax(_value(x), self._attributes.get("axis", -1 if self._opset >= 13 else 1))

    def logsoftmax(self, x: Argument) -> Value:
        return self.softmax(x)

    def dropout(self, x: Argument, ratio: Argument = None, training: Argument = None) -> Value:
        if training is not None and _constant(training).any():
            raise Refused("drops numbers at inference too", "export the network for inference")
        return self._write.skip(_value(x), "does nothing at inference")

    def identity(self, x: Argument) -> Value:
        return self._write.skip(_value(x), "does nothing")

    def cast(self, x: Argument) -> Value:
        if self._attributes["to"] not in (1, 10, 11, 16):  # float, float16, double, bfloat16
            raise Refused("makes other than floating-point numbers of values", "keep them floating-point")
        return self._write.skip(_value(x), "changes the precision of numbers")

    # ---- images

    def maxpool(self, x: Argument) -> Value:
        size, strides, dilations = self._pair("kernel_shape"), self._pair("strides"), self._pair("dilations")
        value = _value(x)
        padding = self._padding(value, [d * (s - 1) + 1 for d, s in zip(dilations, size, strict=True)], strides)
        self._whole(value, size, strides)
        return self._write.max_pool(value, size, strides, padding, dilations)

    def averagepool(self, x: Argument) -> Value:
        value, size, strides = _value(x), self._pair("kernel_shape"), self._pair("strides")
        self._whole(value, size, strides)
        counted = bool(self._attributes.get("count_include_pad", 0))
        return self._write.average_pool(value, size, strides, self._padding(value, size, strides), counted)

    def globalaveragepool(self, x: Argument) -> Value:
        return self._write.adaptive_average_pool(_value(x), (1, 1))

    def globalmaxpool(self, x: Argument) -> Value:
        return self._write.adaptive_max_pool(_value(x), (1, 1))

    def reducemean(self, x: Argument, axes: Argument = None) -> Value:
        value = _value(x)
        chosen = self._attributes.get("axes") if axes is None else [int(axis) for axis in _constant(axes)]
        every = range(len(value.shape) + 1)
        along = [axis % (len(value.shape) + 1) for axis in (every if chosen is None else chosen)]
        return self._write.mean(value, along, bool(self._attributes.get("keepdims", 1)))

    # ---- several values, and shapes

    def concat(self, *inputs: Argument) -> Value:
        return self._write.concat([_value(each) for each in inputs], self._attributes["axis"])

    def flatten(self, x: Argument) -> Value:
        value = _value(x)
        if self._attributes.get("axis", 1) not in (1, -len(value.shape)):
            raise Refused("flattens rows together", "use axis=1")
        return self._write.reshape(value, (prod(value.shape),))

    def reshape(self, x: Argument, shape: Argument = None) -> Value:
        value = _value(x)
        target = [int(side) for side in (self._attributes["shape"] if shape is None else _constant(shape))]
        there = (self._rows, *value.shape)
        if not self._attributes.get("allowzero"):
            target = [there[n] if side == 0 and n < len(there) else side for n, side in enumerate(target)]
        if target.count(-1) == 1:
            rest = prod(side for side in target if side != -1)
            target = [prod(there) // rest if side == -1 and rest else side for side in target]
        if len(target) < 2 or target[0] != self._rows or prod(target[1:]) != prod(value.shape):
            raise Refused(f"makes shape {target} of rows of shape {value.shape}", "keep the first axis for rows")
        return self._write.reshape(value, tuple(target[1:]))

    def squeeze(self, x: Argument, axes: Argument = None) -> Value:
        value = _value(x)
        chosen = self._attributes.get("axes") if axes is None else [int(axis) for axis in _constant(axes)]
        sides = len(value.shape) + 1
        gone = {axis % sides for axis in chosen} if chosen else {n + 1 for n, s in enumerate(value.shape) if s == 1}
        row = tuple(side for n, side in enumerate(value.shape) if n + 1 not in gone)
        if 0 in gone or not row:
            raise Refused("takes the axis of rows away", "keep the first axis for rows")
        return self._write.reshape(value, row)

    def unsqueeze(self, x: Argument, axes: Argument = None) -> Value:
        value = _value(x)
        chosen = self._attributes["axes"] if axes is None else [int(axis) for axis in _constant(axes)]
        sides = [self._rows, *value.shape]
        for axis in sorted(axis % (len(sides) + len(chosen)) for axis in chosen):
            sides.insert(axis, 1)
        if sides[0] != self._rows:
            raise Refused("puts an axis in front of rows", "keep the first axis for rows")
        return self._write.reshape(value, tuple(sides[1:]))

    def transpose(self, x: Argument) -> Value:
        value = _value(x)
        order = self._attributes.get("perm", list(range(len(value.shape), -1, -1)))
        sides = (self._rows, *value.shape)
        long = [axis for axis in order if axis == 0 or sides[axis] > 1]
        if order[0] != 0 or long != sorted(long):
            raise Refused(
                f"moves the axes of rows of shape {value.shape}",
                "export with channels first (tf2onnx: --inputs-as-nchw), so that none need be moved",
            )
        return self._write.reshape(value, tuple(sides[axis] for axis in order[1:]))

    # ---- what scikit-learn's exporter writes

    def scaler(self, x: Argument) -> Value:
        offset, scale = (np.asarray(self._attributes[name]) for name in ("offset", "scale"))
        return self._write.affine(_value(x), scale, -offset * scale)

    def linearregressor(self, x: Argument) -> Value:
        if self._attributes.get("post_transform", "NONE") != "NONE":
            raise Refused(f"ends with {self._attributes['post_transform']}", "export it without")
        return self._linear_model(_value(x))

    def linearclassifier(self, x: Argument) -> Value:
        """Its second output, the scores."""
        scores, ending = self._linear_model(_value(x)), self._attributes.get("post_transform", "NONE")
        if ending not in ("NONE", "SOFTMAX"):
            raise Refused(f"ends with {ending}", "export its decision function (raw_scores)")
        return scores if ending == "NONE" else self._write.softmax(scores, 1)

    def _linear_model(self, x: Value) -> Value:
        weight = np.asarray(self._attributes["coefficients"], np.float64).reshape(-1, x.shape[0])
        bias = self._attributes.get("intercepts")
        return self._write.linear(x, weight, None if bias is None else np.asarray(bias, np.float64))

    # ---- attributes

    def _pair(self, name: str) -> Pair:
        one, two = self._attributes.get(name) or (1, 1)
        return one, two

    def _padding(self, x: Value, reach: Sequence[int], strides: Pair) -> Sides:
        """Of windows of this reach, which exporters may leave to the shape of the image."""
        automatic = self._attributes.get("auto_pad", "NOTSET")
        if automatic == "NOTSET":
            top, left, bottom, right = self._attributes.get("pads") or (0, 0, 0, 0)
            return top, left, bottom, right
        if automatic == "VALID":
            return 0, 0, 0, 0
        before, after = [], []
        for side, stride, each in zip(x.shape[1:], strides, reach, strict=True):
            whole = max((-(-side // stride) - 1) * stride + each - side, 0)
            small, large = whole // 2, whole - whole // 2
            before.append(small if automatic == "SAME_UPPER" else large)
            after.append(large if automatic == "SAME_UPPER" else small)
        return before[0], before[1], after[0], after[1]

    def _whole(self, x: Value, size: Pair, strides: Pair) -> None:
        """Windows that would hang over the edge are not known."""
        over = any((side - each) % step for side, each, step in zip(x.shape[1:], size, strides, strict=True))
        if self._attributes.get("ceil_mode") and over:
            raise Refused("has windows that hang over the edge", "use ceil_mode=0")


def _value(argument: Argument) -> Value:
    if not isinstance(argument, Value):
        raise Refused("reads a constant where rows were expected", "let the exporter fold constants")
    return argument


def _constant(argument: Argument) -> Array:
    if not isinstance(argument, np.ndarray):
        raise Refused("has weights that depend on the rows", "use constant weights")
    return argument.astype(np.float64)


def _sorted(a: Argument, b: Argument) -> tuple[Value, Array]:
    """The value and the constant of a pair in any order."""
    return (_value(a), _constant(b)) if isinstance(a, Value) else (_value(b), _constant(a))


def _number(constant: Array) -> float:
    if constant.size != 1:
        raise Refused("compares with several constants", "compare with one number")
    return float(constant.reshape(-1)[0])
