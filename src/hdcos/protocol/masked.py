"""Products of masked values, without a round, and of shares, in one.

Computes  Masked x, Masked y -> [x * y], [x @ y] or [conv2d(x, y)]. Both parties know D = x + m.
Offline   one MaskProduct per output element: [m_x * m_y]. For shares, a Beaver triple: fresh masks of x and of y as
          well. For a matrix product that is d*k + n*d masks and n*k products, never n*d*k.
Online    0 rounds: the openings that made x and y were all. For shares these are 1 round, 8 bytes per element of x and
          of y each way.
Error     none: exact modulo 2**min(bits of x, bits of y), at the sum of both scales.
Security  a product sends nothing. A masked value may enter many products, each with a fresh dealt sharing of its own,
          but its mask masked one opening only. Shares are opened under fresh masks, uniform in the ring they are opened
          in.

x y = D_x D_y - D_x [m_y] - [m_x] D_y + [m_x m_y].
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod

import numpy as np

from hdcos.errors import InputError
from hdcos.offline import MaskProduct
from hdcos.offline.bilinear import Bilinear
from hdcos.offline.material import Fields
from hdcos.protocol.opening import Masked as Masked
from hdcos.protocol.opening import open_masked
from hdcos.protocol.party import Party
from hdcos.protocol.rounds import Price, Rounds, together
from hdcos.ring import packed_size
from hdcos.sharing import Share

Shape = tuple[int, ...]


def product(
    party: Party,
    x: Masked,
    y: Masked,
    operation: str = "multiply",
    shape: Shape = (),
    stride: int = 1,
    padding: int = 0,
    groups: int = 1,
    dilation: int = 1,
) -> Share:
    """x * y, x @ y, the convolution of x with y or any other product of `bilinear`.

    x is masked per row; y per row or whole. `shape`, of a row of the result, is needed where the factors leave it open.
    """
    if x.reference.whole:
        raise InputError("the left factor of a product is masked per row, not whole")
    if operation == "multiply" and x.shape != y.shape and x.shape[1:] != y.shape:
        raise InputError(f"cannot multiply shapes {x.shape} and {y.shape} element by element")
    bilinear = Bilinear(operation, shape, stride, padding, groups, dilation)
    # D_x (D_y - m_y) for party 0; party 1 leaves the public product out.
    right = y.opened - y.mask.words if party.rank == 0 else np.uint64(0) - y.mask.words
    words = bilinear(x.opened, right)
    bits = min(x.bits, y.bits)
    if bilinear.over_rows:
        left, right_reference = replace(x.reference, rows=True), replace(y.reference, rows=True)
        kind = MaskProduct(operation, tuple(words.shape), left, right_reference, bits, stride, padding)
        (dealt,) = party.take_one(kind)
        return Share(words + dealt - bilinear(x.mask.words, y.opened), x.scale + y.scale, bits)
    row = tuple(words.shape[1:])
    kind = MaskProduct(operation, row, x.reference, y.reference, bits, stride, padding, groups, dilation)
    if y.reference.scope and not x.reference.scope:
        # y is known before x: so is [m_x m_y] - [m_x] D_y, and only one product is left for when x arrives.
        def precompute(fields: Fields, earlier: Callable[[int], Fields]) -> Fields:
            mask = earlier(x.reference.position)[0].astype(np.uint64, copy=False)
            return (fields[0].astype(np.uint64, copy=False) - bilinear(mask, y.opened),)

        (rest,) = party.take(kind, words.shape[0], precompute)
    else:
        (dealt,) = party.take(kind, words.shape[0])
        rest = dealt - bilinear(x.mask.words, y.opened)
    return Share(words + rest, x.scale + y.scale, bits)


def multiply(party: Party, x: Share, y: Share) -> Rounds[Share]:
    """x * y element by element; y has x's shape, or that of one row of x."""
    whole = x.shape != y.shape
    X, Y = yield from together(open_masked(party, x), open_masked(party, y, whole=whole))
    return product(party, X, Y)


def matmul(party: Party, x: Share, y: Share) -> Rounds[Share]:
    """(n, d) @ (d, k)."""
    X, Y = yield from together(open_masked(party, x), open_masked(party, y, whole=True))
    return product(party, X, Y, "matmul")


def conv2d(party: Party, x: Share, weight: Share, stride: int = 1, padding: int = 0) -> Rounds[Share]:
    """Cross-correlation of (n, c, h, w) with (o, c, kh, kw)."""
    X, W = yield from together(open_masked(party, x), open_masked(party, weight, whole=True))
    return product(party, X, W, "conv2d", stride=stride, padding=padding)


def price(output_shape: Shape, bits: int = 64) -> Price:
    return Price(0, 0, packed_size(prod(output_shape), bits), ("mask_product",))


def multiply_price(x_shape: Shape, y_shape: Shape, output_shape: Shape) -> Price:
    """A product of shares."""
    opened = packed_size(prod(x_shape), 64) + packed_size(prod(y_shape), 64)
    return Price(1, opened, 0, ("mask", "mask")) + price(output_shape)
