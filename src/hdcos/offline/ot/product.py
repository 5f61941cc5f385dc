"""One bilinear step: numbers that one party knows times vectors that the other knows.

A generator of material yields the products it wants in one round and is resumed with its shares of their results. The
*chooser* has `count` numbers of `width` bits; the other has `rows` vectors of `length` words. Number e meets vector
e % rows, and `fold` consecutive results are added up, so that a matrix product is one Product:

    result[i] = sum over e in [i fold, (i + 1) fold) of number[e] * vector[e % rows]   modulo 2**bits.

With `signs` (the other's, one word per vector) bit b of the number counts +2**b or -2**b as bit b of the sign says:
that is how a number whose bits are shared by XOR is multiplied.

With `coarse` the result comes in units of 2**coarse, modulo 2**(bits - coarse): for bits b below that the vectors are
rounded to multiples of 2**(coarse - b) first, which are then signed numbers. What would be rounded away does not
travel.

How the products of a round are cut into batches, and so every size on the wire, follows from these figures alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from hdcos.ring import Array, packed_size

BATCH_TRANSFERS = (1 << 17) - 7 * 128
BATCH_BYTES = 1 << 22
"""A batch ends where either is reached: it should fit the cache, and the next one is prepared while it travels.

The first is no power of two, because rows of bits a power of two apart would compete for one place in the cache.
"""
ALIGNED = 128
"""Transfers are extended in blocks of this many."""
CORRECTION_BYTES = ALIGNED * 32 // 8
"""What the chooser sends to extend one block: a bit per transfer and group of four base transfers."""


@dataclass(frozen=True, eq=False)
class Product:
    """Numbers of the chooser times vectors of the other; `factor` is this party's side of it."""

    chooser: int
    factor: Array = field(repr=False)
    count: int
    rows: int
    length: int
    width: int
    bits: int
    fold: int = 1
    signed: bool = False
    """Whether the number's top bit counts negative."""
    signs: Array | None = field(default=None, repr=False)
    coarse: int = 0

    @property
    def levels(self) -> int:
        """How many bits of the number matter."""
        return min(self.width, self.bits)

    @property
    def sums(self) -> int:
        return self.count // self.fold

    def word_bits(self, bit: int) -> int:
        """How many bits of the words for this bit of the number travel."""
        return self.bits - max(bit, self.coarse)

    def message_bytes(self, count: int) -> int:
        """What the other sends for `count` numbers."""
        return sum(packed_size(count * self.length, self.word_bits(bit)) for bit in range(self.levels))

    @cached_property
    def element_bytes(self) -> int:
        return self.message_bytes(1)


@dataclass(frozen=True)
class Slice:
    """Numbers [first, first + count) of a product."""

    product: Product
    first: int
    count: int

    @property
    def transfers(self) -> int:
        return self.count * self.product.levels

    @property
    def message_bytes(self) -> int:
        return self.product.message_bytes(self.count)


@dataclass(frozen=True)
class Batch:
    """What is extended at once and answered by one message."""

    slices: tuple[Slice, ...]

    @property
    def transfers(self) -> int:
        """How many transfers the batch uses up, aligned."""
        wanted = sum(piece.transfers for piece in self.slices)
        return -(-wanted // ALIGNED) * ALIGNED

    @property
    def correction_bytes(self) -> int:
        return self.transfers // ALIGNED * CORRECTION_BYTES

    @property
    def message_bytes(self) -> int:
        return sum(piece.message_bytes for piece in self.slices)


def batches(products: Sequence[Product], chooser: int) -> list[Batch]:
    """The products in which `chooser` chooses, cut into batches."""
    done: list[Batch] = []
    held: list[Slice] = []
    transfers = size = 0
    for product in products:
        if product.chooser != chooser:
            continue
        first = 0
        while first < product.count:
            room = min((BATCH_TRANSFERS - transfers) // product.levels, (BATCH_BYTES - size) // product.element_bytes)
            if room < 1 and held:
                done.append(Batch(tuple(held)))
                held, transfers, size = [], 0, 0
                continue
            count = min(max(1, room), product.count - first)
            held.append(Slice(product, first, count))
            transfers += held[-1].transfers
            size += count * product.element_bytes
            first += count
    if held:
        done.append(Batch(tuple(held)))
    return done


def exchanges(products: Sequence[Product]) -> Iterator[int]:
    """Payload bytes each way of every exchange of a round; the shorter side is padded."""
    plans = [batches(products, chooser) for chooser in (0, 1)]
    for step in range(max(map(len, plans)) + 1 if products else 0):
        yield max(sent_bytes(plans, rank, step) for rank in (0, 1))


def sent_bytes(plans: Sequence[Sequence[Batch]], rank: int, step: int) -> int:
    """What a party has to say in one exchange: answers to the last batch, corrections of the next."""
    asked, chosen = plans[1 - rank], plans[rank]
    size = asked[step - 1].message_bytes if 0 < step <= len(asked) else 0
    return size + (chosen[step].correction_bytes if step < len(chosen) else 0)
