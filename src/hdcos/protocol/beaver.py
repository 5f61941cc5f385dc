"""Products of two shared values, in one round.

Computes  [x], [y] -> [x * y] elementwise, [x @ y], [conv2d(x, y)].
Offline   a Beaver triple: fresh masks of x and of y, and their product. For a matrix product that is d*k + n*d
          masks and n*k products, never n*d*k.
Online    1 round, 8 bytes per element of x and of y each way.
Error     none: exact modulo 2**64, at the sum of both scales.
Security  both openings are masked by fresh masks, uniform in the ring they are opened in.
"""

from __future__ import annotations

from math import prod

from hdcos.protocol import masked
from hdcos.protocol.opening import open_masked
from hdcos.protocol.party import Party
from hdcos.protocol.rounds import Price, Rounds, together
from hdcos.ring import packed_size
from hdcos.sharing import Share

Shape = tuple[int, ...]


def multiply(party: Party, x: Share, y: Share) -> Rounds[Share]:
    """x * y element by element; y has x's shape, or that of one row of x."""
    whole = x.shape != y.shape
    X, Y = yield from together(open_masked(party, x), open_masked(party, y, whole=whole))
    return masked.product(party, X, Y)


def matmul(party: Party, x: Share, y: Share) -> Rounds[Share]:
    """(n, d) @ (d, k)."""
    X, Y = yield from together(open_masked(party, x), open_masked(party, y, whole=True))
    return masked.product(party, X, Y, "matmul")


def conv2d(party: Party, x: Share, weight: Share, stride: int = 1, padding: int = 0) -> Rounds[Share]:
    """Cross-correlation of (n, c, h, w) with (o, c, kh, kw)."""
    X, W = yield from together(open_masked(party, x), open_masked(party, weight, whole=True))
    return masked.product(party, X, W, "conv2d", stride=stride, padding=padding)


def price(x_shape: Shape, y_shape: Shape, output_shape: Shape) -> Price:
    opened = packed_size(prod(x_shape), 64) + packed_size(prod(y_shape), 64)
    return Price(1, opened, 0, ("mask", "mask")) + masked.price(output_shape)
