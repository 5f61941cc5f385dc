"""Layers for images, rows of shape (channels, height, width)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any, ClassVar

import numpy as np

from hdcos.errors import ModelError
from hdcos.nn.comparing import Comparing
from hdcos.nn.layer import Factor, Layer, Shape, glorot_uniform
from hdcos.ring import Array

ROWS_AT_ONCE = 32
"""Images unfolded at a time: an unfolded image is kernel_size^2 times as large."""

MOST_WINDOW = 64
"""Of a side of pooled squares that overlap: all their pixels are taken one after another."""


@dataclass(frozen=True)
class Conv2d(Layer):
    """Cross-correlation with square kernels, zero padding on every side, and a bias per output channel. Glorot.

    With `groups` the channels are divided into as many, and each output sees one group only: its own channel alone
    where there are as many groups as channels. With `dilation` d a kernel sees every d-th pixel.
    """

    in_channels: int
    out_channels: int
    kernel_size: int
    stride: int = 1
    padding: int = 0
    groups: int = 1
    dilation: int = 1

    def __post_init__(self) -> None:
        self._check_whole(1, "in_channels", "out_channels", "kernel_size", "stride", "groups", "dilation")
        self._check_whole(0, "padding")
        if self.padding >= self.span:
            raise ModelError(
                f"Conv2d: padding must be below the kernel's size of {self.span}, got {self.padding}: "
                f"windows further out would see nothing but zeros"
            )
        if self.in_channels % self.groups or self.out_channels % self.groups:
            raise ModelError(
                f"Conv2d: {self.groups} groups do not divide {self.in_channels} and {self.out_channels} channels"
            )

    @property
    def span(self) -> int:
        """Pixels from one end of a kernel to the other."""
        return self.dilation * (self.kernel_size - 1) + 1

    def to_json(self) -> dict[str, Any]:
        """Without `groups` and `dilation` as it was before there were any."""
        record = super().to_json()
        return {name: value for name, value in record.items() if name not in ("groups", "dilation") or value != 1}

    def parameter_shapes(self) -> dict[str, Shape]:
        k = self.kernel_size
        return {"weight": (self.out_channels, self.in_channels // self.groups, k, k), "bias": (self.out_channels,)}

    def initial(self, generator: np.random.Generator) -> dict[str, Array]:
        shape = self.parameter_shapes()["weight"]
        area = self.kernel_size**2
        inputs, outputs = self.in_channels // self.groups * area, self.out_channels // self.groups * area
        return {"weight": glorot_uniform(generator, shape, inputs, outputs), "bias": np.zeros(self.out_channels)}

    def output_shape(self, shape: Shape) -> Shape:
        if len(shape) != 3 or shape[0] != self.in_channels:
            raise ModelError(f"Conv2d takes shape ({self.in_channels}, height, width), got {shape}")
        height, width = (
            (side + 2 * self.padding - self.span) // self.stride + 1 if side + 2 * self.padding >= self.span else 0
            for side in shape[1:]
        )
        if not height or not width:
            raise ModelError(f"Conv2d has a kernel of {self.span} with padding {self.padding}, too large for {shape}")
        return (self.out_channels, height, width)

    def forward(self, parameters: Mapping[str, Array], x: Array) -> Array:
        shape, d = self.output_shape(x.shape[1:]), self.dilation
        out = np.empty((len(x), *shape))
        side = (self.padding, self.padding)
        weight = parameters["weight"].reshape(self.groups, self.out_channels // self.groups, -1)
        for start in range(0, len(x), ROWS_AT_ONCE):
            rows = np.pad(x[start : start + ROWS_AT_ONCE], ((0, 0), (0, 0), side, side))
            windows = np.lib.stride_tricks.sliding_window_view(rows, (self.span, self.span), axis=(2, 3))
            strided = windows[:, :, :: self.stride, :: self.stride, ::d, ::d].transpose(0, 1, 4, 5, 2, 3)
            columns = strided.reshape(len(rows), self.groups, weight.shape[2], shape[1] * shape[2])
            out[start : start + ROWS_AT_ONCE] = (weight @ columns).reshape(len(rows), *shape)
        out += parameters["bias"][:, None, None]
        return out

    def factors(self, shape: Shape) -> tuple[Factor, ...]:
        made = Factor("weight", "conv2d", shape, self.output_shape(shape), "", self.stride, self.padding)
        return (replace(made, groups=self.groups, dilation=self.dilation),)

    def row_elements(self, shape: Shape) -> int:
        padded = self.in_channels * prod(side + 2 * self.padding for side in shape[1:])
        return super().row_elements(shape) + padded

    def multiplications(self, shape: Shape) -> int:
        """One per kernel weight and output pixel."""
        return prod(self.output_shape(shape)) * self.in_channels // self.groups * self.kernel_size**2


@dataclass(frozen=True)
class Pooling(Layer, abstract=True):
    """One number of each size x size square, which do not overlap unless a `stride` says so.

    Rows and columns that fill no square are dropped; `padding` puts as many around the image first.
    """

    size: int
    stride: int | None = None
    padding: int = 0
    border: ClassVar[str]
    """What is around the image, as NumPy calls it."""

    def __post_init__(self) -> None:
        self._check_whole(1, "size")
        self._check_whole(0, "padding")
        if self.stride is not None:
            self._check_whole(1, "stride")
        if 2 * self.padding > self.size:
            raise ModelError(
                f"{self.kind}: squares of {self.size} have a padding of up to {self.size // 2}, got {self.padding}"
            )
        if not self.plain and self.size > MOST_WINDOW:
            raise ModelError(
                f"{self.kind}: squares that overlap or reach over the border have at most {MOST_WINDOW} pixels a side, "
                f"got {self.size}"
            )

    @property
    def step(self) -> int:
        """From one square to the next."""
        return self.size if self.stride is None else self.stride

    @property
    def plain(self) -> bool:
        """Whether squares stand side by side, and inside the image."""
        return self.step == self.size and not self.padding

    def to_json(self) -> dict[str, Any]:
        """Without `stride` and `padding` as it was before there were any."""
        record = super().to_json()
        return {
            name: value for name, value in record.items() if (name, value) not in (("stride", None), ("padding", 0))
        }

    def output_shape(self, shape: Shape) -> Shape:
        if len(shape) != 3 or min(shape[1:]) < self.size:
            raise ModelError(
                f"{self.kind} takes shape (channels, height, width) of at least {self.size} pixels, got {shape}"
            )
        height, width = ((side + 2 * self.padding - self.size) // self.step + 1 for side in shape[1:])
        return (shape[0], height, width)

    def row_elements(self, shape: Shape) -> int:
        """Squares that overlap are there one by one."""
        made = self.output_shape(shape)
        return prod(shape) + prod(made) if self.plain else 2 * prod(shape) + prod(made) * (self.size**2 + 1)

    def squares(self, x: Array) -> Array:
        """Axes 3 and 5 are those of the squares."""
        channels, height, width = self.output_shape(x.shape[1:])
        if not self.plain:
            around = (self.padding, self.padding)
            padded = np.pad(x, ((0, 0), (0, 0), around, around), mode=self.border)  # type: ignore[call-overload]
            seen = np.lib.stride_tricks.sliding_window_view(padded, (self.size, self.size), axis=(2, 3))
            return np.asarray(seen[:, :, :: self.step, :: self.step].transpose(0, 1, 2, 4, 3, 5))
        used = x[:, :, : height * self.size, : width * self.size]
        return used.reshape(len(x), channels, height, self.size, width, self.size)


@dataclass(frozen=True)
class AvgPool2d(Pooling):
    """Means of squares, zeros around the image included."""

    border: ClassVar[str] = "constant"

    def forward(self, parameters: Mapping[str, Array], x: Array) -> Array:
        result: Array = self.squares(x).mean(axis=(3, 5))
        return result


@dataclass(frozen=True)
class AdaptiveAvgPool2d(Layer):
    """Means of windows that divide the image into size x size: 1 for the mean of all. Sides that `size` divides."""

    size: int

    def __post_init__(self) -> None:
        self._check_whole(1, "size")

    def window(self, shape: Shape) -> tuple[int, int]:
        """Height and width of a window."""
        self.output_shape(shape)
        return shape[1] // self.size, shape[2] // self.size

    def output_shape(self, shape: Shape) -> Shape:
        if len(shape) != 3:
            raise ModelError(f"AdaptiveAvgPool2d takes shape (channels, height, width), got {shape}")
        if any(side % self.size for side in shape[1:]):
            raise ModelError(
                f"AdaptiveAvgPool2d to {self.size} x {self.size} takes images whose sides it divides, got {shape}: "
                f"others would have windows that overlap"
            )
        return (shape[0], self.size, self.size)

    def forward(self, parameters: Mapping[str, Array], x: Array) -> Array:
        down, across = self.window(x.shape[1:])
        squares = x.reshape(len(x), x.shape[1], self.size, down, self.size, across)
        result: Array = squares.mean(axis=(3, 5))
        return result


@dataclass(frozen=True)
class MaxPool2d(Comparing, Pooling):
    """Largest numbers of squares. On shares compared two by two, with a dealer: of 2 x 2 in six rounds or four.

    Around the image stands what stands at its border, so that it is never larger than what a square has inside.
    """

    border: ClassVar[str] = "edge"

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
