"""Products of shared values as products of private ones: what every generator of material is made of.

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

from hdcos.offline.bilinear import Bilinear, concatenate, repeat, reshape, transpose
from hdcos.offline.kinds import ring_words
from hdcos.offline.ot.product import Product
from hdcos.ring import Array

T = TypeVar("T")
Rounds = Generator[list[Product], list[Array], T]
Draw = Callable[[str, tuple[int, ...], int], Array]


@dataclass(frozen=True)
class OtParty:
    """A party that makes material: who it is, and its own randomness by name, shape and bits."""

    rank: int
    draw: Draw


@dataclass(frozen=True)
class Term:
    """Products, and what becomes of this party's shares of their results."""

    products: list[Product]
    join: Callable[[list[Array]], Array]


def ask(*terms: Term) -> Rounds[list[Array]]:
    """One round for all terms."""
    results = yield [product for term in terms for product in term.products]
    made, start = [], 0
    for term in terms:
        made.append(term.join(results[start : start + len(term.products)]))
        start += len(term.products)
    return made


def times_shared(party: OtParty, w: Array, x: Array, bits: int = 64) -> Term:
    """w (G, S) times x (U, S, k): each of the G rows of w serves U / G rows of x; result (U, S, k)."""
    return _times(party, ring_words(w), bits, ring_words(x), bits)


def times_bitwise(party: OtParty, own: Array, width: int, x: Array, bits: int = 64) -> Term:
    """A number shared by XOR, of which `own` (G, S) is this party's part, times x (U, S, k); result (U, S, k)."""
    return _times(party, ring_words(own), width, ring_words(x), bits, by_xor=True)


def _times(party: OtParty, w: Array, width: int, x: Array, bits: int, by_xor: bool = False) -> Term:
    numbers, vectors, back = _group(w, x)
    count, length = vectors.shape
    products = []
    for chooser in (0, 1):
        mine = party.rank == chooser
        signs = numbers if by_xor and not mine else None
        factor = numbers if mine else vectors
        products.append(Product(chooser, factor, count, count, length, width, bits, signs=signs))
    local: Array = repeat(w, x.shape[0] // max(1, w.shape[0]))[..., None] * x
    return Term(products, lambda results: local + back(results[0] + results[1]))


def _group(w: Array, x: Array) -> tuple[Array, Array, Callable[[Array], Array]]:
    """Numbers, their vectors, and how results go back to the shape of x."""
    (groups, size), (units, _, length) = w.shape, x.shape
    each = units // max(1, groups)
    if each == 1:
        return reshape(w, -1), reshape(x, units * size, length), lambda y: reshape(y, units, size, length)
    vectors = reshape(transpose(reshape(x, groups, each, size, length), 0, 2, 1, 3), groups * size, each * length)

    def back(y: Array) -> Array:
        return reshape(transpose(reshape(y, groups, size, each, length), 0, 2, 1, 3), units, size, length)

    return reshape(w, -1), vectors, back


def times_private(
    party: OtParty,
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
        mine = party.rank == chooser
        factor = reshape(numbers, -1)[part] if mine else vectors[part]
        flips = None if mine or signs is None else signs[part]
        size = (end - start) * fold
        length = vectors.shape[1]
        products.append(Product(chooser, factor, size, size, length, width, bits, fold, signed, flips, coarse))
    return Term(products, concatenate)


def random_bits(party: OtParty, name: str, shape: tuple[int, ...], width: int, bits: int = 64) -> tuple[Array, Term]:
    """A uniform number of `width` bits shared by XOR: this party's part, and the term of its shares modulo 2**bits."""
    own = ring_words(party.draw(name, shape, width))
    return own, integer(party, own, width, bits)


def integer(party: OtParty, own: Array, width: int, bits: int = 64) -> Term:
    """Shares of a number shared by XOR: `bitwise` with x = 1, which the party that does not choose holds."""
    numbers = reshape(own, -1)
    ones = numbers.reshape(-1, 1) * np.uint64(0) + np.uint64(1)
    term = times_private(party, numbers, ones, width, bits, signs=numbers)
    count = int(numbers.size)
    first = count - count // 2
    # The holder of the 1 adds its own bits: party 0 for the first part, party 1 for the second.
    held = slice(0, first) if party.rank == 0 else slice(first, count)

    def join(results: list[Array]) -> Array:
        total = reshape(term.join(results), count)
        total[held] = total[held] + numbers[held]
        return reshape(total, *own.shape)

    return Term(term.products, join)


def times_bilinear(party: OtParty, bilinear: Bilinear, left: Array, right: Array, bits: int) -> Term:
    """Any bilinear product of two shared factors but the elementwise one, from this party's shares of both.

    The cross products A_0 B_1 and A_1 B_0 of shares are one Product each: the holder of the matrix with fewer elements
    per result chooses, and the other's rows are the vectors. n d k words of messages for (n, d) @ (d, k), but only n d
    or d k extended numbers.
    """
    made = bilinear.matrices(left, right)
    (n, d), k = made.A.shape, made.B.shape[1]
    choose_left = n < k if made.choose_left is None else made.choose_left
    local = bilinear(left, right)
    if choose_left:
        numbers, vectors, count, length = reshape(made.A, -1), reshape(made.B, d, k), n * d, k
    else:
        numbers, vectors, count, length = reshape(transpose(made.B, 1, 0), -1), transpose(made.A, 1, 0), k * d, n
    products = [
        Product(chooser, numbers if party.rank == chooser else vectors, count, d, length, bits, bits, fold=d)
        for chooser in (0, 1)
    ]

    def join(results: list[Array]) -> Array:
        total = results[0] + results[1]
        crossed = made.back(total if choose_left else transpose(total, 1, 0))
        whole: Array = local + crossed
        return whole

    return Term(products, join)
