"""Masked values and their products.

Computes  Masked x, Masked y -> [x * y], [x @ y] or [conv2d(x, y)]. Both parties know D = x + m.
Offline   one MaskProduct per output element: [m_x * m_y].
Online    0 rounds: the openings that made x and y were all.
Error     none: exact modulo 2**min(bits of x, bits of y).
Security  nothing is sent. A masked value may enter many products, each with a fresh dealt sharing of its own,
          but its mask masked one opening only.

x y = D_x D_y - D_x [m_y] - [m_x] D_y + [m_x m_y].
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from hdcos.errors import InputError
from hdcos.offline import MaskProduct, Reference
from hdcos.offline.kinds import bilinear
from hdcos.protocol.party import Party
from hdcos.protocol.price import Price, packed
from hdcos.ring import Array
from hdcos.sharing import Share


@dataclass(frozen=True, eq=False)
class Masked:
    """x with D = x + m known to both parties and m shared; `reference` is the mask's address."""

    opened: Array
    mask: Share
    reference: Reference

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.opened.shape)

    @property
    def bits(self) -> int:
        return self.mask.bits

    @property
    def scale(self) -> int:
        return self.mask.scale

    def share(self, party: Party) -> Share:
        """D - [m]: the value as a share again, modulo 2**bits."""
        words = self.opened - self.mask.words if party.rank == 0 else np.uint64(0) - self.mask.words
        return Share(words, self.scale, self.bits)


def product(
    party: Party, x: Masked, y: Masked, operation: str = "multiply", stride: int = 1, padding: int = 0
) -> Share:
    """x * y, x @ y or the convolution of x with y; x is masked per row, y per row or whole."""
    if x.reference.whole:
        raise InputError("the left factor of a product is masked per row, not whole")
    if operation == "multiply" and x.shape != y.shape and x.shape[1:] != y.shape:
        raise InputError(f"cannot multiply shapes {x.shape} and {y.shape} element by element")
    # D_x (D_y - m_y) - m_x D_y for party 0; party 1 leaves the public product out.
    right = y.opened - y.mask.words if party.rank == 0 else np.uint64(0) - y.mask.words
    words = bilinear(operation, x.opened, right, stride, padding)
    words = words - bilinear(operation, x.mask.words, y.opened, stride, padding)
    bits = min(x.bits, y.bits)
    kind = MaskProduct(operation, tuple(words.shape[1:]), x.reference, y.reference, bits, stride, padding)
    (dealt,) = party.take(kind, words.shape[0])
    return Share(words + dealt, x.scale + y.scale, bits)


def price(output_shape: tuple[int, ...], bits: int = 64) -> Price:
    return Price(0, 0, packed(prod(output_shape), bits), ("mask_product",))
