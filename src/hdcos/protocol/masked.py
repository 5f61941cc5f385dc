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

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import prod

import numpy as np

from hdcos.errors import InputError
from hdcos.offline import MaskProduct, Reference
from hdcos.offline.bilinear import Bilinear
from hdcos.offline.material import Fields
from hdcos.protocol.party import Party
from hdcos.protocol.rounds import Price
from hdcos.ring import Array, packed_size
from hdcos.sharing import Share


@dataclass(frozen=True, eq=False)
class Masked:
    """x with D = x + m known to both parties and m shared; `reference` is the mask's address."""

    opened: Array = field(repr=False)
    mask: Share
    reference: Reference

    def part(self, start: int, shape: tuple[int, ...]) -> Masked:
        """One of the tensors that were masked side by side, as one whole row."""
        end = start + prod(shape)
        mask = Share(self.mask.words[start:end].reshape(shape), self.scale, self.bits)
        reference = Reference.of(self.reference.position, True, start=start, shape=shape)
        return Masked(self.opened[start:end].reshape(shape), mask, reference)

    def of_scope(self, scope: str) -> Masked:
        """The same value for programs of other scopes: its mask is addressed by its own scope's name."""
        return replace(self, reference=Reference(self.reference.position, scope, whole=True))

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
    party: Party,
    x: Masked,
    y: Masked,
    operation: str = "multiply",
    shape: tuple[int, ...] = (),
    stride: int = 1,
    padding: int = 0,
) -> Share:
    """x * y, x @ y, the convolution of x with y or any other product of `bilinear`.

    x is masked per row; y per row or whole. `shape`, of a row of the result, is needed where the factors leave it open.
    """
    if x.reference.whole:
        raise InputError("the left factor of a product is masked per row, not whole")
    if operation == "multiply" and x.shape != y.shape and x.shape[1:] != y.shape:
        raise InputError(f"cannot multiply shapes {x.shape} and {y.shape} element by element")
    bilinear = Bilinear(operation, shape, stride, padding)
    # D_x (D_y - m_y) for party 0; party 1 leaves the public product out.
    right = y.opened - y.mask.words if party.rank == 0 else np.uint64(0) - y.mask.words
    words = bilinear(x.opened, right)
    bits = min(x.bits, y.bits)
    if bilinear.over_rows:
        left, right_reference = replace(x.reference, rows=True), replace(y.reference, rows=True)
        kind = MaskProduct(operation, tuple(words.shape), left, right_reference, bits, stride, padding)
        (dealt,) = party.take_one(kind)
        return Share(words + dealt - bilinear(x.mask.words, y.opened), x.scale + y.scale, bits)
    kind = MaskProduct(operation, tuple(words.shape[1:]), x.reference, y.reference, bits, stride, padding)
    if y.reference.scope and not x.reference.scope:
        # y is known before x: so is [m_x m_y] - [m_x] D_y, and only one product is left for when x arrives.
        def finish(fields: Fields, earlier: Callable[[int], Fields]) -> Fields:
            mask = earlier(x.reference.position)[0].astype(np.uint64, copy=False)
            return (fields[0].astype(np.uint64, copy=False) - bilinear(mask, y.opened),)

        (rest,) = party.take(kind, words.shape[0], finish)
    else:
        (dealt,) = party.take(kind, words.shape[0])
        rest = dealt - bilinear(x.mask.words, y.opened)
    return Share(words + rest, x.scale + y.scale, bits)


def price(output_shape: tuple[int, ...], bits: int = 64) -> Price:
    return Price(0, 0, packed_size(prod(output_shape), bits), ("mask_product",))
