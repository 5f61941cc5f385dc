"""Products of shared values as products of private ones: what every maker is made of.

A *term* is a list of Products and what this party makes of its shares of their results. `ask` takes the results of
several terms in one round. For shares x = x_0 + x_1 and so on:

shared     w x = w_0 x_0 + w_1 x_1 (local) + w_0 x_1 + w_1 x_0, each cross product with its number's holder as chooser.
bitwise    for bits b = b_0 + b_1 - 2 b_0 b_1 shared by XOR: b x_0 = b_0 x_0 (local) + b_1 (1 - 2 b_0) x_0, where
           party 1 chooses with b_1 and party 0's vector is x_0 with the sign that b_0 gives; b x_1 likewise. A number
           of k such bits takes k transfers each way, whatever the ring.
private    one factor is party 0's, the other party 1's; the elements are divided, and each party chooses for half of
           them, so that work and traffic are even.

Security   whatever travels is a Product (see session): each party's share of a result is uniform, so what it computes
           from its shares alone says nothing about the other's.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from hdcos.offline.kinds import ring_words
from hdcos.offline.ot.arrays import flat, joined, moved, repeated
from hdcos.offline.ot.product import Product
from hdcos.ring import Array

T = TypeVar("T")
Rounds = Generator[list[Product], list[Array], T]
Draw = Callable[[str, tuple[int, ...], int], Array]


@dataclass(frozen=True)
class Maker:
    """The party that makes material: who it is, and its own randomness by name, shape and bits."""

    rank: int
    draw: Draw


@dataclass(frozen=True)
class Term:
    """Products, and what becomes of this party's shares of their results."""

    products: list[Product]
    finish: Callable[[list[Array]], Array]


def ask(*terms: Term) -> Rounds[list[Array]]:
    """One round for all terms."""
    results = yield [product for term in terms for product in term.products]
    made, start = [], 0
    for term in terms:
        made.append(term.finish(results[start : start + len(term.products)]))
        start += len(term.products)
    return made


def shared(maker: Maker, w: Array, x: Array, bits: int = 64) -> Term:
    """w (G, S) times x (U, S, k): each of the G rows of w serves U / G rows of x; result (U, S, k)."""
    groups, vectors, back = _grouped(ring_words(w), ring_words(x))
    products = [_product(maker, chooser, groups, vectors, width=bits, bits=bits) for chooser in (0, 1)]
    local = _local(ring_words(w), ring_words(x))
    return Term(products, lambda results: local + back(results[0] + results[1]))


def bitwise(maker: Maker, own: Array, width: int, x: Array, bits: int = 64) -> Term:
    """A number shared by XOR, of which `own` (G, S) is this party's part, times x (U, S, k); result (U, S, k)."""
    groups, vectors, back = _grouped(ring_words(own), ring_words(x))
    products = [_product(maker, chooser, groups, vectors, width=width, bits=bits, signs=groups) for chooser in (0, 1)]
    local = _local(ring_words(own), ring_words(x))
    return Term(products, lambda results: local + back(results[0] + results[1]))


def _product(
    maker: Maker, chooser: int, numbers: Array, vectors: Array, width: int, bits: int, signs: Array | None = None
) -> Product:
    count, length = vectors.shape
    factor = numbers if maker.rank == chooser else vectors
    return Product(chooser, factor, count, count, length, width, bits, signs=None if maker.rank == chooser else signs)


def _grouped(w: Array, x: Array) -> tuple[Array, Array, Callable[[Array], Array]]:
    """Numbers, their vectors, and how results go back to the shape of x."""
    (groups, size), (units, _, length) = w.shape, x.shape
    each = units // max(1, groups)
    if each == 1:
        return flat(w, -1), flat(x, units * size, length), lambda y: flat(y, units, size, length)
    vectors = flat(moved(flat(x, groups, each, size, length), 0, 2, 1, 3), groups * size, each * length)

    def back(y: Array) -> Array:
        return flat(moved(flat(y, groups, size, each, length), 0, 2, 1, 3), units, size, length)

    return flat(w, -1), vectors, back


def _local(w: Array, x: Array) -> Array:
    """Every row of w times the rows of x it serves."""
    product: Array = repeated(w, x.shape[0] // max(1, w.shape[0]))[..., None] * x
    return product


def private(
    maker: Maker,
    numbers: Array,
    vectors: Array,
    width: int,
    bits: int,
    fold: int = 1,
    signed: bool = False,
    signs: Array | None = None,
    coarse: int = 0,
) -> Term:
    """Party 0's numbers times party 1's vectors where party 0 chooses, the reverse where party 1 does.

    Both parties bring both: numbers (n, fold) and vectors (n * fold, k), of which an element's role decides.
    """
    count = vectors.shape[0] // fold
    first = count - count // 2
    products = []
    for chooser, start, end in ((1, 0, first), (0, first, count)):
        if start == end:
            continue
        part = slice(start * fold, end * fold)
        mine = maker.rank == chooser
        factor = flat(numbers, -1)[part] if mine else vectors[part]
        flips = None if mine or signs is None else signs[part]
        size = (end - start) * fold
        length = vectors.shape[1]
        products.append(Product(chooser, factor, size, size, length, width, bits, fold, signed, flips, coarse))
    return Term(products, joined)


def random_bits(maker: Maker, name: str, shape: tuple[int, ...], width: int, bits: int = 64) -> tuple[Array, Term]:
    """A uniform number of `width` bits shared by XOR: this party's part, and the term of its shares modulo 2**bits."""
    own = ring_words(maker.draw(name, shape, width))
    return own, integer(maker, own, width, bits)


def integer(maker: Maker, own: Array, width: int, bits: int = 64) -> Term:
    """Shares of a number shared by XOR: `bitwise` with x = 1, which the party that does not choose holds."""
    numbers = flat(own, -1)
    ones = numbers.reshape(-1, 1) * np.uint64(0) + np.uint64(1)
    term = private(maker, numbers, ones, width, bits, signs=numbers)
    count = int(numbers.size)
    first = count - count // 2
    # Whoever holds the 1 adds its own bits: party 0 for the first part, party 1 for the second.
    half = slice(0, first) if maker.rank == 0 else slice(first, count)

    def finish(results: list[Array]) -> Array:
        total = flat(term.finish(results), count)
        total[half] = total[half] + numbers[half]
        return flat(total, *own.shape)

    return Term(term.products, finish)
