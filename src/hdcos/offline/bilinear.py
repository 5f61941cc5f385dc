"""Products that are linear in each factor, modulo 2**64: layers, and the two gradients of each.

operation            left         right         result
multiply             x            w             x * w, element by element
channels             x            w (channels,) x * w, channel by channel
matmul               x            w (in, out)   x @ w
conv2d               x            w             the convolution of x with w
circulant            x            w (n,)        x by the circulant matrix of w
OPERATION.weight     x            g             the gradient of w, summed over all rows, where g is the result's
OPERATION.input      g            w             the gradient of x

The dealer multiplies masks with these and the parties what they opened: the identity of a product of masked values
holds for whatever is bilinear. All but `multiply` and `channels` are one matrix product A @ B, with A linear in the
left factor and B in the right: that is how two parties without a dealer compute one. Convolutions may have groups and a
dilation, but not their gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import numpy as np

from hdcos.errors import InputError
from hdcos.ring import Array, Blank, conv2d, matmul
from hdcos.ring.device import constant_beside, contiguous, zeros_beside

Shape = tuple[int, ...]


class Matrices(NamedTuple):
    """left -> A and right -> B by linear maps, and the result of A @ B back to the operation's."""

    A: Array
    B: Array
    back: Callable[[Array], Array] = lambda y: y
    choose_left: bool | None = None
    """Whose holder chooses in transfers, where the sizes do not decide."""


@dataclass(frozen=True)
class Bilinear:
    """One such product; `shape` is that of a row of the result, or of the whole of it for OPERATION.weight."""

    operation: str
    shape: Shape
    stride: int = 1
    padding: int = 0
    groups: int = 1
    dilation: int = 1

    def __post_init__(self) -> None:
        if self.operation not in _DIRECT and self.operation not in _MATRICES:
            raise InputError(f"no product of masks is called {self.operation!r}")
        if self.operation != "conv2d" and (self.groups, self.dilation) != (1, 1):
            raise InputError(f"{self.operation} has neither groups nor a dilation")

    @property
    def over_rows(self) -> bool:
        """Whether the result is one sum over all rows of both factors."""
        return self.operation.endswith(".weight")

    def __call__(self, left: Array, right: Array) -> Array:
        direct = _DIRECT.get(self.operation)
        if direct is not None:
            return direct(self, left, right)
        made = self.matrices(left, right)
        return made.back(matmul(made.A, made.B))

    def matrices(self, left: Array, right: Array) -> Matrices:
        return _MATRICES[self.operation](self, left, right)

    def fits(self, left: Shape, right: Shape) -> bool:
        """Whether rows of these shapes, or a whole right one, have this product."""
        layer, _, gradient = self.operation.partition(".")
        x = self.shape if gradient == "input" else left
        w = self.shape if gradient == "weight" else right
        y = {"": self.shape, "weight": right, "input": left}[gradient]
        if layer == "multiply":
            return x == w == y
        if layer == "channels":
            return x == y and w == x[:1]
        if layer == "matmul":
            return len(x) == len(y) == 1 and w == (*x, *y)
        if layer == "circulant":
            return len(x) == len(y) == len(w) == 1 and w[0] >= max(*x, *y)
        if not len(x) == len(y) == 3 or len(w) != 4 or x[0] % self.groups or y[0] % self.groups:
            return False
        spans = [self.dilation * (side - 1) + 1 for side in w[2:]]
        if w[:2] != (y[0], x[0] // self.groups) or self.padding >= min(spans):
            return False
        sides = zip(x[1:], spans, y[1:], strict=True)
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
        if layer in ("multiply", "channels"):
            return prod(x), prod(x)
        if layer == "matmul":
            return prod(x) + prod(y), prod(x) * prod(y)
        if layer == "circulant":
            return 3 * prod(x) * prod(y), prod(x) * prod(y)
        if not len(x) == len(y) == 3:
            return 0, 0
        sides = [side + 2 * self.padding for side in x[1:]]
        # The largest window with which x gives y: the weight may be in a scope that is not known.
        spans = [max(1, side - (out - 1) * self.stride) for side, out in zip(sides, y[1:], strict=True)]
        window = prod((span - 1) // self.dilation + 1 for span in spans)
        return 2 * (x[0] + y[0]) * prod(sides), prod(y) * max(1, x[0] // self.groups) * window


def circulant(weight: Array, inputs: int, outputs: int) -> Array:
    """The matrix M of x @ M with M[j, i] = weight[(i - j) mod n], n the number of weights."""
    index = _places(inputs, outputs, weight.shape[0])
    if isinstance(weight, Blank):
        return Blank(index.shape)
    matrix: Array = weight[constant_beside(index, weight)]
    return matrix


def _places(inputs: int, outputs: int, n: int) -> Array:
    places: Array = (np.arange(outputs)[None, :] - np.arange(inputs)[:, None]) % n
    return places


def patches(x: Array, window: tuple[int, int], stride: int, padding: int, dilation: int = 1) -> Array:
    """(n * height * width, channels * window): what each window of the images sees."""
    n, channels, height, width = x.shape
    spans = (dilation * (window[0] - 1) + 1, dilation * (window[1] - 1) + 1)
    rows, columns = ((size + 2 * padding - w) // stride + 1 for size, w in zip((height, width), spans, strict=True))
    if isinstance(x, Blank):
        return Blank((n * rows * columns, channels * window[0] * window[1]))
    x = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    seen = np.lib.stride_tricks.sliding_window_view(x, spans, axis=(2, 3))
    seen = seen[:, :, ::stride, ::stride, ::dilation, ::dilation]
    return contiguous(seen.transpose(0, 2, 3, 1, 4, 5)).reshape(n * rows * columns, -1)


def _matmul(self: Bilinear, x: Array, w: Array) -> Matrices:
    return Matrices(x, w)


def _matmul_weight(self: Bilinear, x: Array, g: Array) -> Matrices:
    return Matrices(transpose(x, 1, 0), g)


def _matmul_input(self: Bilinear, g: Array, w: Array) -> Matrices:
    return Matrices(g, transpose(w, 1, 0))


def _circulant(self: Bilinear, x: Array, w: Array) -> Matrices:
    return Matrices(x, circulant(w, x.shape[1], self.shape[0]), choose_left=True)


def _circulant_weight(self: Bilinear, x: Array, g: Array) -> Matrices:
    inputs, outputs, n = x.shape[1], g.shape[1], self.shape[0]

    def back(y: Array) -> Array:
        if isinstance(y, Blank):
            return Blank((n,))
        total = zeros_beside((n,), y)
        np.add.at(total, constant_beside(_places(inputs, outputs, n), total), y)
        return total

    return Matrices(transpose(x, 1, 0), g, back)


def _circulant_input(self: Bilinear, g: Array, w: Array) -> Matrices:
    matrix = circulant(w, self.shape[0], g.shape[1])
    return Matrices(g, transpose(matrix, 1, 0), choose_left=True)


def _conv2d(self: Bilinear, x: Array, w: Array) -> Matrices:
    outputs, _, *window = w.shape
    n, p, s = x.shape[0], self.padding, self.stride
    spans = (self.dilation * (side - 1) + 1 for side in window)
    height, width = ((size + 2 * p - span) // s + 1 for size, span in zip(x.shape[2:], spans, strict=True))

    def back(y: Array) -> Array:
        return transpose(reshape(y, n, height, width, outputs), 0, 3, 1, 2)

    seen = patches(x, (window[0], window[1]), self.stride, self.padding, self.dilation)
    return Matrices(seen, transpose(reshape(_apart(w, self.groups), outputs, -1), 1, 0), back, choose_left=False)


def _apart(w: Array, groups: int) -> Array:
    """The weights of groups as those of one: zero for the channels of other groups."""
    outputs, inputs, *window = w.shape
    if groups == 1:
        return w
    if isinstance(w, Blank):
        return Blank((outputs, groups * inputs, *window), w.dtype)
    whole = zeros_beside((outputs, groups, inputs, *window), w)
    places = np.arange(outputs), np.arange(outputs) // (outputs // groups)
    whole[tuple(constant_beside(each, whole) for each in places)] = w
    return whole.reshape(outputs, groups * inputs, *window)


def _conv2d_weight(self: Bilinear, x: Array, g: Array) -> Matrices:
    """The sum over all windows of what they see times the gradient of what they gave."""
    outputs, _, *window = self.shape
    seen = patches(x, (window[0], window[1]), self.stride, self.padding)
    rows = reshape(transpose(g, 0, 2, 3, 1), -1, outputs)
    return Matrices(transpose(seen, 1, 0), rows, lambda y: reshape(transpose(y, 1, 0), *self.shape), choose_left=False)


def _conv2d_input(self: Bilinear, g: Array, w: Array) -> Matrices:
    """Each window of the gradient, spread by the stride, times the weights turned around; then the border goes."""
    n, (channels, height, width) = g.shape[0], self.shape
    p, s = self.padding, self.stride
    outputs, _, tall, wide = w.shape
    frame = (height + 2 * p + tall - 1, width + 2 * p + wide - 1)
    seen = patches(_set_apart(g, s, frame, (tall - 1, wide - 1)), (tall, wide), 1, 0)
    turned = reshape(transpose(w[:, :, ::-1, ::-1], 0, 2, 3, 1), outputs * tall * wide, channels)

    def back(y: Array) -> Array:
        full = transpose(reshape(y, n, height + 2 * p, width + 2 * p, channels), 0, 3, 1, 2)
        return reshape(full[:, :, p : p + height, p : p + width], n, *self.shape)

    return Matrices(seen, turned, back, choose_left=False)


def _convolve_weight(self: Bilinear, x: Array, g: Array) -> Array:
    """Images and channels change places, and g becomes the window."""
    window = self.shape[2:]
    if isinstance(x, Blank) or isinstance(g, Blank):
        return Blank(self.shape)
    made = conv2d(_swap(x), _swap(_set_apart(g, self.stride)), padding=self.padding)
    return _swap(made[:, :, : window[0], : window[1]])  # a stride may leave a border that no window reaches


def _convolve_input(self: Bilinear, g: Array, w: Array) -> Array:
    """The convolution of g, spread by the stride, with the windows turned around."""
    if isinstance(g, Blank) or isinstance(w, Blank):
        return Blank((g.shape[0], *self.shape))
    _, height, width = self.shape
    window = w.shape[-1]
    full = conv2d(_set_apart(g, self.stride), _swap(w[:, :, ::-1, ::-1]), padding=window - 1)
    result = zeros_beside((g.shape[0], self.shape[0], height + 2 * self.padding, width + 2 * self.padding), g)
    result[:, :, : full.shape[2], : full.shape[3]] = full
    p = self.padding
    return contiguous(result[:, :, p : p + height, p : p + width])


def _swap(x: Array) -> Array:
    return contiguous(x.transpose(1, 0, 2, 3))


def _set_apart(g: Array, stride: int, frame: Shape = (), corner: Shape = (0, 0)) -> Array:
    """g with zeros between its pixels and, in a frame of this size from a corner on, all around."""
    if stride == 1 and not frame:
        return g
    rows, columns = ((side - 1) * stride + 1 for side in g.shape[2:])
    shape = (*g.shape[:2], *(frame or (rows, columns)))
    if isinstance(g, Blank):
        return Blank(shape)
    apart, (top, left) = zeros_beside(shape, g), corner
    apart[:, :, top : top + rows : stride, left : left + columns : stride] = g
    return apart


# ---- array operations for arrays and Blanks alike


def concatenate(parts: Sequence[Array], axis: int = 0) -> Array:
    """Arrays one after the other along an axis."""
    if not any(isinstance(part, Blank) for part in parts):
        return np.concatenate(parts, axis=axis)
    shape = list(parts[0].shape)
    shape[axis] = sum(part.shape[axis] for part in parts)
    return Blank(tuple(shape), parts[0].dtype)  # type: ignore[return-value]


def stack(*parts: Array) -> Array:
    """Arrays of one shape side by side, along a new last axis."""
    return concatenate([part.reshape(*part.shape, 1) for part in parts], axis=-1)


def as_rows(parts: Sequence[Array]) -> Array:
    """Vectors as the rows of a matrix; a single one stays a vector."""
    return parts[0] if len(parts) == 1 else concatenate([part.reshape(1, -1) for part in parts])


def reshape(x: Array, *shape: int) -> Array:
    """A contiguous array of another shape; -1 may stand for one of its lengths."""
    if isinstance(x, Blank):
        known = prod(n for n in shape if n >= 0)
        return Blank(tuple(x.size // max(1, known) if n < 0 else n for n in shape), x.dtype)
    return contiguous(x).reshape(shape)


def transpose(x: Array, *axes: int) -> Array:
    """A contiguous array with its axes in another order."""
    turned = x.transpose(*axes)
    return turned if isinstance(turned, Blank) else contiguous(turned)


def repeat(x: Array, times: int) -> Array:
    """Each row of x several times in a row."""
    if times == 1:
        return x
    if isinstance(x, Blank):
        return Blank((x.shape[0] * times, *x.shape[1:]), x.dtype)
    return np.repeat(x, times, axis=0)


_DIRECT: dict[str, Callable[[Bilinear, Array, Array], Array]] = {
    "multiply": lambda self, x, w: x * w,
    "matmul": lambda self, x, w: matmul(x, w),
    "channels": lambda self, x, w: x * w.reshape(-1, *(1,) * (len(x.shape) - 2)),
    "conv2d": lambda self, x, w: conv2d(x, w, self.stride, self.padding, self.groups, self.dilation),
    "conv2d.weight": _convolve_weight,
    "conv2d.input": _convolve_input,
}
"""What is faster by its own kernel than as matrices."""

_MATRICES: dict[str, Callable[[Bilinear, Array, Array], Matrices]] = {
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
