"""What PyTorch's functions are in operations, by PyTorch's names of functions and of their parameters.

A module that stands for a function has its parameters as attributes, so that both are read here.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import torch

from hdcos import nn
from hdcos.nn.importing.operations import Pair, Refused, Sides, Value, Writer
from hdcos.ring import Array

MOVING = """
view reshape flatten unflatten ravel squeeze unsqueeze permute transpose swapaxes movedim contiguous getitem t
clone detach to float double type_as expand view_as reshape_as _to_copy alias detach_ lift_fresh_copy
"""
MOVES = frozenset(MOVING.split())
"""Functions that may leave all numbers where they are; whether they do is tried."""


class Functions:
    """One method for each function, which writes its operations and gives the value that it returns."""

    def __init__(self, writer: Writer) -> None:
        self._write = writer

    # ---- linear

    def linear(self, input: Value, weight: Any, bias: Any = None, layer: Any = None) -> Value:
        return self._write.linear(input, _array(weight), _optional(bias), layer)

    def matmul(self, input: Any, other: Any) -> Value:
        return self._write.linear(_value(input), _array(other).T)

    def addmm(self, input: Any, mat1: Any, mat2: Any, beta: float = 1, alpha: float = 1) -> Value:
        return self.add(self.mul(self.matmul(mat1, mat2), alpha), _array(input) * beta)

    def conv2d(
        self,
        input: Value,
        weight: Any,
        bias: Any = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        padding_mode: str = "zeros",
    ) -> Value:
        if padding_mode != "zeros":
            raise Refused(f"pads with padding_mode={padding_mode!r}", "use zeros")
        kernel, dilated = _array(weight), _pair(dilation)
        sides = _same(kernel.shape[2:], dilated) if padding == "same" else _around(0 if padding == "valid" else padding)
        return self._write.conv(input, kernel, _optional(bias), _pair(stride), sides, dilated, groups)

    def batch_norm(
        self,
        input: Value,
        running_mean: Any,
        running_var: Any,
        weight: Any = None,
        bias: Any = None,
        training: bool = False,
        momentum: float | None = 0.1,
        eps: float = 1e-5,
        cudnn_enabled: bool = True,
    ) -> Value:
        if training:
            running_mean = None
        scale, shift, mean, variance = (_optional(each) for each in (weight, bias, running_mean, running_var))
        return self._write.batch_norm(input, scale, shift, mean, variance, eps)

    def pad(
        self, input: Value, pad: Any = None, mode: str = "constant", value: Any = None, padding: Any = None
    ) -> Value:
        sides = list(pad if pad is not None else padding)
        if mode != "constant" or len(sides) != 4:
            raise Refused(f"pads {sides} with mode {mode!r}", "pad the two last axes by zeros")
        left, right, top, bottom = sides
        return self._write.pad(input, (top, left, bottom, right), float(value or 0))

    # ---- arithmetic

    def add(self, input: Any, other: Any, alpha: float = 1) -> Value:
        if not isinstance(input, Value):
            return self._write.affine(_value(other), float(alpha), _constant(input))
        if not isinstance(other, Value):
            return self._write.affine(input, 1.0, alpha * _constant(other))
        return self._write.add(input, other if alpha == 1 else self._write.affine(other, float(alpha), 0.0))

    def sub(self, input: Any, other: Any, alpha: float = 1) -> Value:
        return self.add(input, other, -alpha)

    def rsub(self, input: Any, other: Any, alpha: float = 1) -> Value:
        return self.add(other, input, -alpha)

    def mul(self, input: Any, other: Any) -> Value:
        if isinstance(input, Value) and isinstance(other, Value):
            return self._write.multiply(input, other)
        value, constant = (input, other) if isinstance(input, Value) else (other, input)
        return self._write.affine(_value(value), _constant(constant), 0.0)

    def div(self, input: Any, other: Any, rounding_mode: str | None = None) -> Value:
        if isinstance(other, Value) or rounding_mode:
            raise Refused("divides by a value, or rounds", "divide by constants")
        return self._write.affine(_value(input), 1 / _constant(other), 0.0)

    def neg(self, input: Value) -> Value:
        return self._write.affine(input, -1.0, 0.0)

    def square(self, input: Value) -> Value:
        return self._write.layer(nn.Square(), input)

    def pow(self, input: Any, exponent: Any) -> Value:
        if exponent != 2:
            raise Refused(f"raises numbers to the power of {exponent}", "use the power of 2")
        return self.square(_value(input))

    # ---- activations

    def relu(self, input: Value, inplace: bool = False) -> Value:
        return self._write.layer(nn.ReLU(), input)

    def relu6(self, input: Value, inplace: bool = False) -> Value:
        return self._write.layer(nn.ReLU6(), input)

    def leaky_relu(self, input: Value, negative_slope: float = 0.01, inplace: bool = False) -> Value:
        return self._write.layer(nn.LeakyReLU(slope=float(negative_slope)), input)

    def prelu(self, input: Value, weight: Any) -> Value:
        slopes = _array(weight).reshape(-1)
        if (slopes != slopes[0]).any():
            raise Refused("has another slope for every channel", "use one for all, as LeakyReLU does")
        return self.leaky_relu(input, float(slopes[0]))

    def abs(self, input: Value) -> Value:
        return self.leaky_relu(input, -1.0)

    def hardtanh(self, input: Value, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Value:
        return self._write.clip(input, min_val, max_val)

    def clamp(self, input: Value, min: Any = None, max: Any = None) -> Value:
        return self._write.clip(input, min, max)

    def clamp_min(self, input: Value, min: Any) -> Value:
        return self._write.clip(input, min, None)

    def hardsigmoid(self, input: Value, inplace: bool = False) -> Value:
        return self._write.affine(self.relu6(self._write.affine(input, 1.0, 3.0)), 1 / 6, 0.0)

    def gelu(self, input: Value, approximate: str = "none") -> Value:
        return self._write.gelu(input, approximate)

    def silu(self, input: Value, inplace: bool = False) -> Value:
        return self._write.layer(nn.SiLU(), input)

    def softplus(self, input: Value, beta: float = 1, threshold: float = 20) -> Value:
        if threshold < 10:
            raise Refused(f"is linear from {threshold} on", "use a threshold of 10 or more")
        stretched = input if beta == 1 else self._write.affine(input, float(beta), 0.0)
        value = self._write.layer(nn.Softplus(), stretched)
        return value if beta == 1 else self._write.affine(value, 1 / beta, 0.0)

    def sigmoid(self, input: Value) -> Value:
        return self._write.layer(nn.Sigmoid(), input)

    def tanh(self, input: Value) -> Value:
        return self._write.layer(nn.Tanh(), input)

    def cos(self, input: Value) -> Value:
        return self._write.layer(nn.Cos(), input)

    def sin(self, input: Value) -> Value:
        return self._write.layer(nn.Sin(), input)

    def expm1(self, input: Value) -> Value:
        return self._write.layer(nn.ExpM1(), input)

    def erf(self, input: Value) -> Value:
        return self._write.erf(input)

    def softmax(self, input: Value, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Value:
        return self._write.softmax(input, 1 if dim is None else dim)

    def log_softmax(self, input: Value, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Value:
        return self._write.softmax(input, 1 if dim is None else dim)

    def dropout(
        self, input: Value, p: float = 0.5, training: bool = False, inplace: bool = False, train: bool = False
    ) -> Value:
        if training or train:
            raise Refused("drops numbers at inference too", "use training=self.training")
        return self._write.skip(input, "does nothing at inference")

    def identity(self, input: Value) -> Value:
        return self._write.skip(input, "does nothing")

    # ---- images

    def max_pool2d(
        self,
        input: Value,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Value:
        steps = stride if stride not in (None, [], ()) else kernel_size
        return self._write.max_pool(input, _pair(kernel_size), _pair(steps), _around(padding), _pair(dilation))

    def avg_pool2d(
        self,
        input: Value,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Value:
        size = _pair(kernel_size)
        if divisor_override not in (None, prod(size)):
            raise Refused(f"divides by {divisor_override}", "divide by the pixels of a window")
        steps = stride if stride not in (None, [], ()) else kernel_size
        return self._write.average_pool(input, size, _pair(steps), _around(padding), count_include_pad)

    def adaptive_avg_pool2d(self, input: Value, output_size: Any) -> Value:
        return self._write.adaptive_average_pool(input, _sides(input, output_size))

    def adaptive_max_pool2d(self, input: Value, output_size: Any, return_indices: bool = False) -> Value:
        return self._write.adaptive_max_pool(input, _sides(input, output_size))

    def mean(self, input: Value, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Value:
        axes = [dim] if isinstance(dim, int) else list(dim or range(len(input.shape) + 1))
        return self._write.mean(input, [axis % (len(input.shape) + 1) for axis in axes], keepdim)

    # ---- several values

    def cat(self, tensors: Sequence[Any], dim: int = 0) -> Value:
        return self._write.concat([_value(each) for each in tensors], dim)


def _value(argument: Any) -> Value:
    if not isinstance(argument, Value):
        raise Refused("combines rows with a constant in a way that is not known", "use a linear layer, + or *")
    return argument


def _array(argument: Any) -> Array:
    if isinstance(argument, Value):
        raise Refused("has weights that depend on the rows", "use constant weights")
    return torch.as_tensor(argument).detach().cpu().double().numpy()


def _optional(argument: Any) -> Array | None:
    return None if argument is None else _array(argument)


def _constant(argument: Any) -> Array:
    """A number or tensor that a value is combined with."""
    return np.asarray(_array(argument), dtype=np.float64)


def _pair(sides: Any) -> Pair:
    one, two = (sides, sides) if isinstance(sides, int) else (sides * 2 if len(sides) == 1 else sides)
    return int(one), int(two)


def _around(padding: Any) -> Sides:
    vertical, horizontal = _pair(padding)
    return vertical, horizontal, vertical, horizontal


def _same(kernel: Sequence[int], dilation: Pair) -> Sides:
    """The padding that leaves a shape as it is: one more below and to the right where it is odd."""
    height, width = (each * (side - 1) for each, side in zip(dilation, kernel, strict=True))
    return height // 2, width // 2, height - height // 2, width - width // 2


def _sides(x: Value, size: Any) -> Pair:
    """The pixels that adaptive pooling leaves; None keeps what there is."""
    given = (size, size) if isinstance(size, int) or size is None else size
    height, width = (one or there for one, there in zip(given, x.shape[1:], strict=True))
    return height, width
