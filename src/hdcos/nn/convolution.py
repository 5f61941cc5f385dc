"""Layers for images, rows of shape (channels, height, width)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from hdcos.errors import ModelError
from hdcos.nn.comparing import Comparing
from hdcos.nn.layer import Factor, Layer, Shape, glorot_uniform
from hdcos.ring import Array

ROWS_AT_ONCE = 32
"""Images unfolded at a time: an unfolded image is kernel_size^2 times as large."""


@dataclass(frozen=True)
class Conv2d(Layer):
    """Cross-correlation with square kernels, zero padding on every side, and a bias per output channel. Glorot."""

    in_channels: int
    out_channels: int
    kernel_size: int
    stride: int = 1
    padding: int = 0

    def __post_init__(self) -> None:
        self._check_whole(1, "in_channels", "out_channels", "kernel_size", "stride")
        self._check_whole(0, "padding")
        if self.padding >= self.kernel_size:
            raise ModelError(
                f"Conv2d: padding must be below the kernel's size of {self.kernel_size}, got {self.padding}: "
                f"windows further out would see nothing but zeros"
            )

    def parameter_shapes(self) -> dict[str, Shape]:
        k = self.kernel_size
        return {"weight": (self.out_channels, self.in_channels, k, k), "bias": (self.out_channels,)}

    def initial(self, generator: np.random.Generator) -> dict[str, Array]:
        shape = self.parameter_shapes()["weight"]
        area = self.kernel_size**2
        weight = glorot_uniform(generator, shape, self.in_channels * area, self.out_channels * area)
        return {"weight": weight, "bias": np.zeros(self.out_channels)}

    def output_shape(self, shape: Shape) -> Shape:
        if len(shape) != 3 or shape[0] != self.in_channels:
            raise ModelError(f"Conv2d takes shape ({self.in_channels}, height, width), got {shape}")
        height, width = (
            (side + 2 * self.padding - self.kernel_size) // self.stride + 1
            if side + 2 * self.padding >= self.kernel_size
            else 0
            for side in shape[1:]
        )
        if not height or not width:
            raise ModelError(
                f"Conv2d has a kernel of {self.kernel_size} with padding {self.padding}, too large for {shape}"
            )
        return (self.out_channels, height, width)

    def forward(self, parameters: Mapping[str, Array], x: Array) -> Array:
        shape = self.output_shape(x.shape[1:])
        out = np.empty((len(x), *shape))
        side = (self.padding, self.padding)
        weight = parameters["weight"].reshape(self.out_channels, -1)
        for start in range(0, len(x), ROWS_AT_ONCE):
            rows = np.pad(x[start : start + ROWS_AT_ONCE], ((0, 0), (0, 0), side, side))
            windows = np.lib.stride_tricks.sliding_window_view(rows, (self.kernel_size, self.kernel_size), axis=(2, 3))
            strided = windows[:, :, :: self.stride, :: self.stride].transpose(0, 1, 4, 5, 2, 3)
            columns = strided.reshape(len(rows), weight.shape[1], shape[1] * shape[2])
            out[start : start + ROWS_AT_ONCE] = (weight @ columns).reshape(len(rows), *shape)
        out += parameters["bias"][:, None, None]
        return out

    def factors(self, shape: Shape) -> tuple[Factor, ...]:
        return (Factor("weight", "conv2d", shape, self.output_shape(shape), "", self.stride, self.padding),)

    def row_elements(self, shape: Shape) -> int:
        padded = self.in_channels * prod(side + 2 * self.padding for side in shape[1:])
        return super().row_elements(shape) + padded

    def multiplications(self, shape: Shape) -> int:
        """One per kernel weight and output pixel."""
        return prod(self.output_shape(shape)) * self.in_channels * self.kernel_size**2


@dataclass(frozen=True)
class Pooling(Layer, abstract=True):
    """One number of each size x size square; squares do not overlap, rows and columns that fill none are dropped."""

    size: int

    def __post_init__(self) -> None:
        self._check_whole(1, "size")

    def output_shape(self, shape: Shape) -> Shape:
        if len(shape) != 3 or min(shape[1:]) < self.size:
            raise ModelError(
                f"{self.kind} takes shape (channels, height, width) of at least {self.size} pixels, got {shape}"
            )
        return (shape[0], shape[1] // self.size, shape[2] // self.size)

    def squares(self, x: Array) -> Array:
        """Axes 3 and 5 are those of the squares."""
        channels, height, width = self.output_shape(x.shape[1:])
        used = x[:, :, : height * self.size, : width * self.size]
        return used.reshape(len(x), channels, height, self.size, width, self.size)


@dataclass(frozen=True)
class AvgPool2d(Pooling):
    """Means of squares."""

    def forward(self, parameters: Mapping[str, Array], x: Array) -> Array:
        result: Array = self.squares(x).mean(axis=(3, 5))
        return result


@dataclass(frozen=True)
class MaxPool2d(Comparing, Pooling):
    """Largest numbers of squares. On shares compared two by two, with a dealer: of 2 x 2 in six rounds or four."""

    def forward(self, parameters: Mapping[str, Array], x: Array) -> Array:
        result: Array = self.squares(x).max(axis=(3, 5))
        return result


@dataclass(frozen=True)
class Flatten(Layer):
    """Any shape to one axis: channels outermost, then rows, then columns."""

    def output_shape(self, shape: Shape) -> Shape:
        return (prod(shape),)

    def forward(self, parameters: Mapping[str, Array], x: Array) -> Array:
        return x.reshape(len(x), prod(x.shape[1:]))
