"""Every bilinear operation as one matrix product A @ B, with A linear in the left factor and B in the right.

The cross products A_0 B_1 and A_1 B_0 of shares are then one Product each: whoever holds the matrix with fewer elements
per result chooses, and the other's rows are the vectors. n d k words of messages for (n, d) @ (d, k), but only n d or
d k extended numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hdcos.offline.bilinear import Bilinear, circulant
from hdcos.offline.ot.arrays import flat, moved
from hdcos.offline.ot.product import Product
from hdcos.offline.ot.terms import Maker, Term
from hdcos.ring import Array, Blank


@dataclass(frozen=True)
class Matrices:
    """left -> A and right -> B by linear maps, and the result of A @ B back to the operation's."""

    A: Array
    B: Array
    back: Callable[[Array], Array]
    choose_left: bool | None = None
    """Which factor's holder chooses, where the sizes do not decide."""


def cross(maker: Maker, bilinear: Bilinear, left: Array, right: Array, bits: int) -> Term:
    """The product of two shared factors from this party's shares of both."""
    made = _MATRICES[bilinear.operation](bilinear, left, right)
    (n, d), k = made.A.shape, made.B.shape[1]
    choose_left = n < k if made.choose_left is None else made.choose_left
    local = bilinear(left, right)
    if choose_left:
        numbers, vectors, count, length = flat(made.A, -1), flat(made.B, d, k), n * d, k
    else:
        numbers, vectors, count, length = flat(moved(made.B, 1, 0), -1), moved(made.A, 1, 0), k * d, n
    products = [
        Product(chooser, numbers if maker.rank == chooser else vectors, count, d, length, bits, bits, fold=d)
        for chooser in (0, 1)
    ]

    def finish(results: list[Array]) -> Array:
        total = results[0] + results[1]
        crossed = made.back(total if choose_left else moved(total, 1, 0))
        whole: Array = local + crossed
        return whole

    return Term(products, finish)


def patches(x: Array, window: tuple[int, int], stride: int, padding: int) -> Array:
    """(n * height * width, channels * window): what each window of the images sees."""
    n, channels, height, width = x.shape
    rows, columns = ((size + 2 * padding - w) // stride + 1 for size, w in zip((height, width), window, strict=True))
    if isinstance(x, Blank):
        return Blank((n * rows * columns, channels * window[0] * window[1]))
    x = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    seen = np.lib.stride_tricks.sliding_window_view(x, window, axis=(2, 3))[:, :, ::stride, ::stride]
    return np.ascontiguousarray(seen.transpose(0, 2, 3, 1, 4, 5)).reshape(n * rows * columns, -1)


def _plain(bilinear: Bilinear, x: Array, w: Array) -> Matrices:
    return Matrices(x, w, lambda y: y)


def _plain_weight(bilinear: Bilinear, x: Array, g: Array) -> Matrices:
    return Matrices(moved(x, 1, 0), g, lambda y: y)


def _plain_input(bilinear: Bilinear, g: Array, w: Array) -> Matrices:
    return Matrices(g, moved(w, 1, 0), lambda y: y)


def _circulant(bilinear: Bilinear, x: Array, w: Array) -> Matrices:
    return Matrices(x, circulant(w, x.shape[1], bilinear.shape[0]), lambda y: y, choose_left=True)


def _circulant_weight(bilinear: Bilinear, x: Array, g: Array) -> Matrices:
    inputs, outputs, n = x.shape[1], g.shape[1], bilinear.shape[0]

    def back(y: Array) -> Array:
        if isinstance(y, Blank):
            return Blank((n,))
        total = np.zeros(n, np.uint64)
        np.add.at(total, (np.arange(outputs)[None, :] - np.arange(inputs)[:, None]) % n, y)
        return total

    return Matrices(moved(x, 1, 0), g, back)


def _circulant_input(bilinear: Bilinear, g: Array, w: Array) -> Matrices:
    matrix = circulant(w, bilinear.shape[0], g.shape[1])
    return Matrices(g, moved(matrix, 1, 0), lambda y: y, choose_left=True)


def _conv2d(bilinear: Bilinear, x: Array, w: Array) -> Matrices:
    outputs, _, *window = w.shape
    n, p, s = x.shape[0], bilinear.padding, bilinear.stride
    height, width = ((size + 2 * p - side) // s + 1 for size, side in zip(x.shape[2:], window, strict=True))

    def back(y: Array) -> Array:
        return moved(flat(y, n, height, width, outputs), 0, 3, 1, 2)

    seen = patches(x, (window[0], window[1]), bilinear.stride, bilinear.padding)
    return Matrices(seen, moved(flat(w, outputs, -1), 1, 0), back, choose_left=False)


def _conv2d_weight(bilinear: Bilinear, x: Array, g: Array) -> Matrices:
    """The sum over all windows of what they see times the gradient of what they gave."""
    outputs, _, *window = bilinear.shape
    seen = patches(x, (window[0], window[1]), bilinear.stride, bilinear.padding)
    rows = flat(moved(g, 0, 2, 3, 1), -1, outputs)
    return Matrices(moved(seen, 1, 0), rows, lambda y: flat(moved(y, 1, 0), *bilinear.shape), choose_left=False)


def _conv2d_input(bilinear: Bilinear, g: Array, w: Array) -> Matrices:
    """Each window of the gradient, spread by the stride, times the weights turned around; then the border goes."""
    n, (channels, height, width) = g.shape[0], bilinear.shape
    p, s = bilinear.padding, bilinear.stride
    outputs, _, tall, wide = w.shape
    seen = patches(_spread(g, s, height + 2 * p + tall - 1, width + 2 * p + wide - 1, tall, wide), (tall, wide), 1, 0)
    turned = flat(moved(w[:, :, ::-1, ::-1], 0, 2, 3, 1), outputs * tall * wide, channels)

    def back(y: Array) -> Array:
        full = moved(flat(y, n, height + 2 * p, width + 2 * p, channels), 0, 3, 1, 2)
        return flat(full[:, :, p : p + height, p : p + width], n, *bilinear.shape)

    return Matrices(seen, turned, back, choose_left=False)


def _spread(g: Array, stride: int, height: int, width: int, tall: int, wide: int) -> Array:
    """g with zeros between its pixels and all around, in a frame of this size."""
    if isinstance(g, Blank):
        return Blank((*g.shape[:2], height, width))
    frame = np.zeros((*g.shape[:2], height, width), np.uint64)
    rows, columns = (g.shape[2] - 1) * stride + 1, (g.shape[3] - 1) * stride + 1
    frame[:, :, tall - 1 : tall - 1 + rows : stride, wide - 1 : wide - 1 + columns : stride] = g
    return frame


_MATRICES: dict[str, Callable[[Bilinear, Array, Array], Matrices]] = {
    "matmul": _plain,
    "matmul.weight": _plain_weight,
    "matmul.input": _plain_input,
    "circulant": _circulant,
    "circulant.weight": _circulant_weight,
    "circulant.input": _circulant_input,
    "conv2d": _conv2d,
    "conv2d.weight": _conv2d_weight,
    "conv2d.input": _conv2d_input,
}
