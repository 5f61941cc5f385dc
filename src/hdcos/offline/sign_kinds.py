"""Kinds of material for comparisons of a value that was opened as D = v + T + m modulo 2**bits, T = 2**(bits-2).

With m' = m + T the sign of v is that of D - m', so v >= 0 exactly if b = 1 ^ top(D) ^ top(m') ^ [low(D) < low(m')] is
set. m is the mask of another unit, which is referred to: the sign is that of the integer that was opened, and of no
other rounding of it. Only a dealer knows m' and can say where comparisons with it change.

SignTables and SignKeys give the parties b, shared by XOR. RandomBit masks it as it is opened, and BitTimesMask has what
is left to multiply by it. BitProduct is what two such bits take to be multiplied. CountTable turns a count into whether
it is the highest.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import numpy as np

from hdcos.offline.kinds import RING_BITS, ring_words
from hdcos.offline.material import Field, Kind, Ranges, Reference, Shape, Sharing, Values, Work, check_range
from hdcos.ring import Array, compact_dtype, dcf_words, modulo, sign_blocks, sign_products
from hdcos.ring.comparison import KEY_BITS, TABLE_BITS, dcf_levels
from hdcos.ring.device import constant_beside

MOST_CLASSES = 1 << 10
_AES_WORK = 64
"""Multiplications that take about as long as the AES blocks of one level."""


class Sign(Kind):
    """What tells the sign of a value opened under the mask it refers to."""

    shape: Shape
    bits: int
    mask: Reference
    dealer_only = True

    def fits(self, *masks: Shape) -> bool:
        return masks == (self.shape,)

    def point(self, referred: Values) -> Array:
        """m', in `bits` bits."""
        return shifted_point(referred["mask"], self.bits)


def shifted_point(mask: Array, bits: int) -> Array:
    """m + T modulo 2**bits, as words of the ring."""
    point: Array = modulo(ring_words(mask) + np.uint64(1 << (bits - 2)), bits)
    return point


@dataclass(frozen=True)
class SignTables(Sign):
    """For each block of low(m') its truth table [x < block], and products of the masks of the bits opened next.

    Bit x of a table is set for the x below the block, so the table is 2**block - 1. `products` has those of
    `ring.sign_products`, and above them the top of m'. Words are shared by XOR.
    """

    name: ClassVar[str] = "sign_tables"
    shape: Shape
    bits: int
    mask: Reference
    ranges: ClassVar[Ranges] = {"bits": TABLE_BITS}

    @property
    def mask_bits(self) -> int:
        """Bits that are opened next, each under one of `mask`."""
        return 2 * (len(sign_blocks(self.bits)) - 1)

    def uniform(self) -> tuple[Field, ...]:
        return (Field("mask", self.shape, self.mask_bits, Sharing.XOR),)

    def dealt(self) -> tuple[Field, ...]:
        widths = sign_blocks(self.bits)
        tables = [Field(f"table{j}", self.shape, 1 << width, Sharing.XOR) for j, width in enumerate(widths)]
        return *tables, Field("products", self.shape, len(sign_products(len(widths))) + 1, Sharing.XOR)

    def derive(self, uniform: Values, *referred: Values) -> Values:
        point, left, made = self.point(referred[0]), self.bits - 1, {}
        widths = sign_blocks(self.bits)
        for j, width in enumerate(widths):
            left -= width
            block = modulo(point >> np.uint64(left), width)
            made[f"table{j}"] = (np.uint64(1) << block) - np.uint64(1)
        top = (point >> np.uint64(self.bits - 1)) << np.uint64(len(sign_products(len(widths))))
        return {**made, "products": top | constant_beside(_products_of(len(widths)), top)[uniform["mask"]]}


@cache
def _products_of(blocks: int) -> Array:
    """For each value of the masks, their products as bits of a word."""
    masks = np.arange(1 << 2 * (blocks - 1), dtype=np.uint64)
    words = np.zeros_like(masks)
    for number, factors in enumerate(sign_products(blocks)):
        wanted = np.uint64(sum(1 << factor for factor in factors))
        words |= (masks & wanted == wanted).astype(np.uint64) << np.uint64(number)
    return words


@dataclass(frozen=True)
class SignKeys(Sign):
    """Keys of a distributed comparison function at m': a root that is a party's own, and words that both have.

    `cipher` is public and drawn for each unit: the key of AES that expands its seeds. One key for everything would
    serve who looks for any of the seeds of all comparisons ever made; so it is those of one unit.
    """

    name: ClassVar[str] = "sign_keys"
    shape: Shape
    bits: int
    mask: Reference
    ranges: ClassVar[Ranges] = {"bits": KEY_BITS}

    def uniform(self) -> tuple[Field, ...]:
        return (Field("root", (*self.shape, 2), RING_BITS, Sharing.OWN),)

    def coins(self) -> tuple[Field, ...]:
        return (Field("cipher coins", (2,), RING_BITS),)

    def dealt(self) -> tuple[Field, ...]:
        words = Field("words", (*self.shape, dcf_levels(self.bits) + 1, 2), RING_BITS, Sharing.COMMON)
        return Field("cipher", (2,), RING_BITS, Sharing.COMMON), words

    def extra(self, *masks: Shape | None) -> Work:
        return Work(0, _AES_WORK * sum(item.size for item in self.dealt()))

    def derive(self, uniform: Values, *referred: Values) -> Values:
        point = self.point(referred[0]).astype(compact_dtype(self.bits))
        cipher = uniform["cipher coins"]
        return {"cipher": cipher, "words": dcf_words(cipher, uniform["root0"], uniform["root1"], point, self.bits)}


@dataclass(frozen=True)
class RandomBit(Kind):
    """A uniform bit that nobody knows, modulo 2**bits; the lowest bits of its shares are shares of it by XOR."""

    name: ClassVar[str] = "random_bit"
    shape: Shape
    bits: int = RING_BITS
    ranges: ClassVar[Ranges] = {"bits": (1, RING_BITS)}
    dealer_only = True

    def coins(self) -> tuple[Field, ...]:
        return (Field("coin", self.shape, 1),)

    def dealt(self) -> tuple[Field, ...]:
        return (Field("mask", self.shape, self.bits),)

    def derive(self, uniform: Values, *referred: Values) -> Values:
        return {"mask": ring_words(uniform["coin"]) & np.uint64(1)}


def _serves(mask: Shape, shape: Shape) -> bool:
    """Whether each number of a mask can serve as many units in a row, along the last axis, as make up a shape."""
    if mask == shape:
        return True
    return mask[:-1] == shape[:-1] and len(mask) == len(shape) and mask[-1] > 0 and shape[-1] % mask[-1] == 0


def _for_units(mask: Array, shape: Shape) -> Array:
    """A mask's numbers as ring words, each for all units that it serves."""
    words = ring_words(mask)
    return words if not shape or words.shape[-1] == shape[-1] else words.repeat(shape[-1] // words.shape[-1], axis=-1)


@dataclass(frozen=True)
class BitTimesMask(Kind):
    """r m for a random bit r and the mask m of an opening in `bits` bits, modulo 2**bits.

    Lifted, m is an integer modulo 2**ring, and r a comes with it, a the top of m, modulo 2**(ring - bits). A bit, or a
    number of the mask, may serve several units in a row.
    """

    name: ClassVar[str] = "bit_times_mask"
    shape: Shape
    bit: Reference
    mask: Reference
    bits: int
    lifted: bool = True
    ring: int = RING_BITS
    ranges: ClassVar[Ranges] = {"bits": (1, RING_BITS - 1), "ring": (2, RING_BITS)}
    dealer_only = True

    def check(self) -> None:
        super().check()
        if self.lifted:
            check_range(self, 1, self.ring - 1, "bits")

    def fits(self, *masks: Shape) -> bool:
        return len(masks) == 2 and all(_serves(mask, self.shape) for mask in masks)

    def dealt(self) -> tuple[Field, ...]:
        if not self.lifted:
            return (Field("product", self.shape, self.bits),)
        return Field("product", self.shape, self.ring), Field("top", self.shape, self.ring - self.bits)

    def derive(self, uniform: Values, *referred: Values) -> Values:
        bit, mask = (_for_units(values["mask"], self.shape) for values in referred)
        m = modulo(mask, self.bits)
        made = {"product": bit * m}
        return {**made, "top": bit * (m >> np.uint64(self.bits - 1))} if self.lifted else made


@dataclass(frozen=True)
class BitProduct(Kind):
    """r s of two random bits, shared by XOR. A bit may serve several units in a row."""

    name: ClassVar[str] = "bit_product"
    shape: Shape
    left: Reference
    right: Reference
    dealer_only = True

    def fits(self, *masks: Shape) -> bool:
        return len(masks) == 2 and all(_serves(mask, self.shape) for mask in masks)

    def dealt(self) -> tuple[Field, ...]:
        return (Field("product", self.shape, 1, Sharing.XOR),)

    def derive(self, uniform: Values, *referred: Values) -> Values:
        r, s = (_for_units(values["mask"], self.shape) for values in referred)
        return {"product": r & s}


@dataclass(frozen=True)
class CountTable(Kind):
    """A mask for a count modulo 2**bits, and by its masked value whether it is `count`: 1 or 0, modulo 2**ring."""

    name: ClassVar[str] = "count_table"
    shape: Shape
    bits: int
    count: int
    ring: int
    ranges: ClassVar[Ranges] = {
        "bits": (1, MOST_CLASSES.bit_length()), "count": (0, MOST_CLASSES), "ring": (1, RING_BITS)
    }  # fmt: skip
    dealer_only = True

    def uniform(self) -> tuple[Field, ...]:
        return (Field("mask", self.shape, self.bits),)

    def dealt(self) -> tuple[Field, ...]:
        return (Field("table", (*self.shape, 1 << self.bits), self.ring),)

    def derive(self, uniform: Values, *referred: Values) -> Values:
        place = modulo(ring_words(uniform["mask"]) + np.uint64(self.count), self.bits)
        each = constant_beside(np.arange(1 << self.bits, dtype=np.uint64), place)
        return {"table": (place[..., None] == each).astype(np.uint64)}
