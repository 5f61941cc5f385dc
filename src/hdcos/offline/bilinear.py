"""Products that are linear in each factor, modulo 2**64: layers, and the two gradients of each.

operation            left         right         result
multiply             x            w             x * w, element by element
matmul               x            w (in, out)   x @ w
conv2d               x            w             the convolution of x with w
circulant            x            w (n,)        x by the circulant matrix of w
OPERATION.weight     x            g             the gradient of w, summed over all rows, where g is the result's
OPERATION.input      g            w             the gradient of x

The dealer multiplies masks with these and the parties what they opened: the identity of a product of masked values
holds for whatever is bilinear.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from hdcos.errors import InputError
from hdcos.ring import Array, Blank, conv2d, matmul

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Bilinear:
    """One such product; `shape` is that of a row of the result, or of the whole of it for OPERATION.weight."""

    operation: str
    shape: Shape
    stride: int = 1
    padding: int = 0

    def __post_init__(self) -> None:
        if self.operation not in _PRODUCTS:
            raise InputError(f"no product of masks is called {self.operation!r}")

    @property
    def over_rows(self) -> bool:
        """Whether the result is one sum over all rows of both factors."""
        return self.operation.endswith(".weight")

    def __call__(self, left: Array, right: Array) -> Array:
        return _PRODUCTS[self.operation](self, left, right)

    def fits(self, left: Shape, right: Shape) -> bool:
        """Whether rows of these shapes, or a whole right one, have this product."""
        layer, _, gradient = self.operation.partition(".")
        x = self.shape if gradient == "input" else left
        w = self.shape if gradient == "weight" else right
        y = {"": self.shape, "weight": right, "input": left}[gradient]
        if layer == "multiply":
            return x == w == y
        if layer == "matmul":
            return len(x) == len(y) == 1 and w == (*x, *y)
        if layer == "circulant":
            return len(x) == len(y) == len(w) == 1 and w[0] >= max(*x, *y)
        if not len(x) == len(y) == 3 or len(w) != 4 or w[:2] != (y[0], x[0]) or self.padding >= min(w[2:]):
            return False
        sides = zip(x[1:], w[2:], y[1:], strict=True)
        return all(
            a + 2 * self.padding >= k and (a + 2 * self.padding - k) // self.stride + 1 == b for a, k, b in sides
        )

    def work(self, left: Shape | None, right: Shape | None) -> tuple[int, int]:
        """Words in memory besides factors and result, and multiplications, for one row; nothing if it does not fit."""
        layer, _, gradient = self.operation.partition(".")
        x = self.shape if gradient == "input" else left
        y = {"": self.shape, "weight": right, "input": left}[gradient]
        if x is None or y is None:
            return 0, 0
        if layer == "multiply":
            return prod(x), prod(x)
        if layer == "matmul":
            return prod(x) + prod(y), prod(x) * prod(y)
        if layer == "circulant":
            return 3 * prod(x) * prod(y), prod(x) * prod(y)
        if not len(x) == len(y) == 3:
            return 0, 0
        sides = [side + 2 * self.padding for side in x[1:]]
        # The largest window with which x gives y: the weight may be in a scope that is not known.
        window = prod(max(1, side - (out - 1) * self.stride) for side, out in zip(sides, y[1:], strict=True))
        return 2 * (x[0] + y[0]) * prod(sides), prod(y) * x[0] * window


def circulant(weight: Array, inputs: int, outputs: int) -> Array:
    """The matrix M of x @ M with M[j, i] = weight[(i - j) mod n], n the number of weights."""
    index = _places(inputs, outputs, weight.shape[0])
    if isinstance(weight, Blank):
        return Blank(index.shape)
    matrix: Array = weight[index]
    return matrix


def _places(inputs: int, outputs: int, n: int) -> Array:
    places: Array = (np.arange(outputs)[None, :] - np.arange(inputs)[:, None]) % n
    return places


def _multiply(self: Bilinear, x: Array, w: Array) -> Array:
    product: Array = x * w
    return product


def _matmul(self: Bilinear, x: Array, w: Array) -> Array:
    return matmul(x, w)  # type: ignore[no-any-return]


def _matmul_weight(self: Bilinear, x: Array, g: Array) -> Array:
    return matmul(_contiguous(x.T), g)  # type: ignore[no-any-return]


def _matmul_input(self: Bilinear, g: Array, w: Array) -> Array:
    return matmul(g, _contiguous(w.T))  # type: ignore[no-any-return]


def _circulant(self: Bilinear, x: Array, w: Array) -> Array:
    return matmul(x, circulant(w, x.shape[1], self.shape[0]))  # type: ignore[no-any-return]


def _circulant_weight(self: Bilinear, x: Array, g: Array) -> Array:
    full = _matmul_weight(self, x, g)
    if isinstance(full, Blank):
        return Blank(self.shape)
    total = np.zeros(self.shape, np.uint64)
    np.add.at(total, _places(x.shape[1], g.shape[1], self.shape[0]), full)
    return total


def _circulant_input(self: Bilinear, g: Array, w: Array) -> Array:
    return _matmul_input(self, g, circulant(w, self.shape[0], g.shape[1]))


def _conv2d(self: Bilinear, x: Array, w: Array) -> Array:
    return conv2d(x, w, stride=self.stride, padding=self.padding)  # type: ignore[no-any-return]


def _conv2d_weight(self: Bilinear, x: Array, g: Array) -> Array:
    """Images and channels change places, and g becomes the window."""
    window = self.shape[2:]
    if isinstance(x, Blank) or isinstance(g, Blank):
        return Blank(self.shape)
    made = conv2d(_swapped(x), _swapped(_apart(g, self.stride)), padding=self.padding)
    return _swapped(made[:, :, : window[0], : window[1]])  # a stride may leave a border that no window reaches


def _conv2d_input(self: Bilinear, g: Array, w: Array) -> Array:
    """The convolution of g, spread by the stride, with the windows turned around."""
    if isinstance(g, Blank) or isinstance(w, Blank):
        return Blank((g.shape[0], *self.shape))
    _, height, width = self.shape
    window = w.shape[-1]
    full = conv2d(_apart(g, self.stride), _swapped(w[:, :, ::-1, ::-1]), padding=window - 1)
    result = np.zeros((g.shape[0], self.shape[0], height + 2 * self.padding, width + 2 * self.padding), np.uint64)
    result[:, :, : full.shape[2], : full.shape[3]] = full
    p = self.padding
    return np.ascontiguousarray(result[:, :, p : p + height, p : p + width])


def _swapped(x: Array) -> Array:
    return np.ascontiguousarray(x.transpose(1, 0, 2, 3))


def _apart(g: Array, stride: int) -> Array:
    """g with zeros between its pixels."""
    if stride == 1:
        return g
    n, channels, height, width = g.shape
    spread = np.zeros((n, channels, (height - 1) * stride + 1, (width - 1) * stride + 1), np.uint64)
    spread[:, :, ::stride, ::stride] = g
    return spread


def _contiguous(x: Array) -> Array:
    return x if isinstance(x, Blank) else np.ascontiguousarray(x)


_PRODUCTS = {
    "multiply": _multiply,
    "matmul": _matmul,
    "matmul.weight": _matmul_weight,
    "matmul.input": _matmul_input,
    "circulant": _circulant,
    "circulant.weight": _circulant_weight,
    "circulant.input": _circulant_input,
    "conv2d": _conv2d,
    "conv2d.weight": _conv2d_weight,
    "conv2d.input": _conv2d_input,
}
