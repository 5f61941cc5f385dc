"""Kinds of material for products of values that are opened rounded and lifted back to the whole ring.

A lifted value is x = E - m + t b with E and t public: m is the low `bits` bits of a RoundingMask as an integer, b the
top one of these. Every product is needed twice, with m and with b. As t is 0 or 2**bits, a product with b that is
multiplied by t counts modulo 2**(64 - bits) only, and is dealt no wider.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hdcos.offline.kinds import MOST_DEGREE, MOST_TERMS, RING_BITS, powers, ring_words, weight_fields
from hdcos.offline.material import Field, Kind, Ranges, Reference, Shape, Values, check_pool, check_range
from hdcos.ring import Array, spread
from hdcos.ring.device import constant_beside


class Lifted(Kind):
    """What refers first to a lifted mask that was opened in `bits` bits, and takes one number of it for every unit.

    It may have been opened with padding, of which the first numbers count, or have one number per window of `pool` =
    (channels, height, width, window) units. With a `term` t it is moved first: number i is number i ^ t of the mask,
    whose length is a power of two then. The product is needed modulo 2**ring.
    """

    bits: int
    pool: Shape = ()
    ring: int = RING_BITS
    term: int = 0

    @property
    def _width(self) -> int:
        return self.shape[-1] // (self.pool[3] ** 2 if self.pool else 1)

    def check(self) -> None:
        super().check()
        check_range(self, 1, self.ring - 1, "bits")
        check_range(self, 0, MOST_TERMS - 1, "term")
        check_pool(self, self.pool, self.shape[-1] if self.shape else 1)

    def fits(self, *masks: Shape) -> bool:
        lifted, *others = masks
        reaches = bool(self.shape) and lifted[:-1] == self.shape[:-1] and bool(lifted) and lifted[-1] >= self._width
        moves = not self.term or (reaches and lifted[-1] > self.term and lifted[-1] & (lifted[-1] - 1) == 0)
        return reaches and moves and all(mask == self.shape for mask in others)

    def cut(self, mask: Array) -> Array:
        """The numbers of a lifted mask that count."""
        if not self.term:
            return mask[..., : self._width]
        return mask[..., constant_beside(np.arange(self._width) ^ self.term, mask)]

    def split(self, mask: Array) -> tuple[Array, Array]:
        """m and b, unit by unit."""
        m: Array = spread(ring_words(self.cut(mask)) & np.uint64((1 << self.bits) - 1), self.pool)
        return m, m >> np.uint64(self.bits - 1)


@dataclass(frozen=True)
class LiftedTotal(Lifted):
    """The sum of m over all rows of a lifted mask; one unit."""

    name: ClassVar[str] = "lifted_total"
    shape: Shape
    lifted: Reference
    bits: int

    @property
    def over_rows(self) -> bool:
        return True

    def dealt(self) -> tuple[Field, ...]:
        return (Field("total", self.shape, RING_BITS),)

    def derive(self, uniform: Values, *referred: Values) -> Values:
        m, _ = self.split(referred[0]["mask"])
        return {"total": m.sum(axis=0, dtype=np.uint64, keepdims=True)}


@dataclass(frozen=True)
class LiftedTimesMask(Lifted):
    """m m_w and b m_w for a lifted mask and another unit's mask, either of which may serve the whole execution."""

    name: ClassVar[str] = "lifted_times_mask"
    shape: Shape
    lifted: Reference
    mask: Reference
    bits: int
    pool: Shape = ()
    ring: int = RING_BITS
    term: int = 0
    ranges: ClassVar[Ranges] = {"ring": (2, RING_BITS)}

    def dealt(self) -> tuple[Field, ...]:
        return Field("integer_mask", self.shape, self.ring), Field("top_mask", self.shape, self.ring - self.bits)

    def derive(self, uniform: Values, *referred: Values) -> Values:
        lifted, other = referred
        mask = ring_words(other["mask"])
        integer, top = self.split(lifted["mask"])
        return {"integer_mask": integer * mask, "top_mask": top * mask}


@dataclass(frozen=True)
class LiftedTimesTrig(Lifted):
    """m cos r, b cos r, m sin r and b sin r for a lifted mask and a trig pair's r.

    With `weight`, the trig pair is fused with a weight's mask m_w, that of the same term, and m m_w cos r and so on
    follow; those with m are rounded to multiples of 2**bits and dealt in these units: no weight multiplies them any
    more, and what is opened next drops many more bits.
    """

    name: ClassVar[str] = "lifted_times_trig"
    shape: Shape
    lifted: Reference
    trig: Reference
    bits: int
    weight: bool = False
    pool: Shape = ()
    term: int = 0

    @property
    def factors(self) -> tuple[str, ...]:
        """The fields of the trig pair that enter products."""
        return ("cos", "sin", *weight_fields(self.term)) if self.weight else ("cos", "sin")

    def wanted(self) -> tuple[tuple[str, ...], ...]:
        return ("mask",), ("mask", *self.factors)

    def dealt(self) -> tuple[Field, ...]:
        spare = RING_BITS - self.bits
        fields: list[Field] = []
        for factor in self.factors:
            bits = spare if factor.startswith("weight") else RING_BITS
            fields += [Field(f"integer_{factor}", self.shape, bits), Field(f"top_{factor}", self.shape, spare)]
        return tuple(fields)

    def derive(self, uniform: Values, *referred: Values) -> Values:
        lifted, trig = referred
        integer, top = self.split(lifted["mask"])
        products: dict[str, Array] = {}
        for factor in self.factors:
            products[f"integer_{factor}"] = self.round(factor, integer * trig[factor])
            products[f"top_{factor}"] = top * trig[factor]
        return products

    def round(self, factor: str, product: Array) -> Array:
        """The product of m with a factor as it is dealt."""
        if not factor.startswith("weight"):
            return product
        rounded: Array = (product + np.uint64(1 << (self.bits - 1))) >> np.uint64(self.bits)
        return rounded


@dataclass(frozen=True)
class LiftedPowers(Kind):
    """For polynomials of a lifted value: m, its top bit b, m^2, m b and so on, in the whole ring.

    Powers of M = m - t b, with t known only online, are public combinations of these: b^2 = b.
    """

    name: ClassVar[str] = "lifted_powers"
    shape: Shape
    degree: int
    bits: int
    ranges: ClassVar[Ranges] = {"bits": (1, RING_BITS), "degree": (1, MOST_DEGREE)}

    def uniform(self) -> tuple[Field, ...]:
        return (Field("mask", self.shape, self.bits),)

    def dealt(self) -> tuple[Field, ...]:
        higher = (name for n in range(2, self.degree + 1) for name in (f"power{n}", f"power{n - 1}_top"))
        return Field.alike(self.shape, RING_BITS, "integer", "top", *higher)

    def derive(self, uniform: Values, *referred: Values) -> Values:
        m = ring_words(uniform["mask"])
        top = m >> np.uint64(self.bits - 1)
        derived = {"integer": m, "top": top}
        lower = m
        for n, power in zip(range(2, self.degree + 1), powers(m), strict=False):
            derived |= {f"power{n}": power, f"power{n - 1}_top": lower * top}
            lower = power
        return derived
