"""Kinds of material for products of values that are opened rounded and lifted back to the whole ring.

A lifted value is x = E - m + t b with E and t public: m is the low `bits` bits of a RoundingMask as an integer, b the
top one of these. Every product is needed twice, with m and with b. As t is 0 or 2**bits, a product with b that is
multiplied by t counts modulo 2**(64 - bits) only, and is dealt no wider.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hdcos.offline.kinds import MOST_DEGREE, RING_BITS, Shape, powers, ring_words
from hdcos.offline.material import Field, Kind, Reference, Values, check_pool, check_range, check_shape
from hdcos.ring import Array, spread


@dataclass(frozen=True)
class LiftedTotal(Kind):
    """The sum of m over all rows of a lifted mask, opened in `bits` bits; one unit."""

    name: ClassVar[str] = "lifted_total"
    shape: Shape
    lifted: Reference
    bits: int

    def check(self) -> None:
        _check_lifted(self, RING_BITS, ())

    def fits(self, *masks: Shape) -> bool:
        return _reaches(masks[0], self.shape, ())

    def fields(self) -> tuple[Field, ...]:
        return (Field("total", self.shape, RING_BITS, dealt=True),)

    def references(self) -> tuple[Reference, ...]:
        return (self.lifted,)

    def derive(self, uniform: Values, *referred: Values) -> Values:
        m, _ = _per_unit(referred[0]["mask"], self.bits, self.shape, ())
        return {"total": m.sum(axis=0, dtype=np.uint64, keepdims=True)}


@dataclass(frozen=True)
class LiftedTimesMask(Kind):
    """m m_w and b m_w for a lifted mask and another unit's mask, either of which may serve the whole execution.

    The lifted value was opened in `bits` bits; the product is needed modulo 2**ring. The lifted value has one number
    per unit, or one per window of `pool` = (channels, height, width, window) units.
    """

    name: ClassVar[str] = "lifted_times_mask"
    shape: Shape
    lifted: Reference
    mask: Reference
    bits: int
    pool: Shape = ()
    ring: int = RING_BITS

    def check(self) -> None:
        check_range(self, 2, RING_BITS, "ring")
        _check_lifted(self, self.ring, self.pool)

    def fits(self, *masks: Shape) -> bool:
        return _reaches(masks[0], self.shape, self.pool) and masks[1] == self.shape

    def fields(self) -> tuple[Field, ...]:
        return (
            Field("integer_mask", self.shape, self.ring, dealt=True),
            Field("top_mask", self.shape, self.ring - self.bits, dealt=True),
        )

    def references(self) -> tuple[Reference, ...]:
        return (self.lifted, self.mask)

    def derive(self, uniform: Values, *referred: Values) -> Values:
        lifted, other = referred
        mask = ring_words(other["mask"])
        integer, top = _per_unit(lifted["mask"], self.bits, self.shape, self.pool)
        return {"integer_mask": integer * mask, "top_mask": top * mask}


@dataclass(frozen=True)
class LiftedTimesTrig(Kind):
    """m cos r, b cos r, m sin r and b sin r for a lifted mask, opened in `bits` bits, and a trig pair's r.

    With `weight`, the trig pair is fused with a weight's mask m_w, and m m_w cos r and so on follow; those with m are
    rounded to multiples of 2**bits and dealt in these units: no weight multiplies them any more, and what is opened
    next drops many more bits. The lifted value has one number per unit, or one per window of `pool`; where it has more,
    the first ones count.
    """

    name: ClassVar[str] = "lifted_times_trig"
    shape: Shape
    lifted: Reference
    trig: Reference
    bits: int
    weight: bool = False
    pool: Shape = ()

    def check(self) -> None:
        _check_lifted(self, RING_BITS, self.pool)

    def fits(self, *masks: Shape) -> bool:
        return _reaches(masks[0], self.shape, self.pool) and masks[1] == self.shape

    def wanted(self) -> tuple[tuple[str, ...], ...]:
        return ("mask",), ("mask", "cos", "sin", *(("weight_cos", "weight_sin") if self.weight else ()))

    def fields(self) -> tuple[Field, ...]:
        spare = RING_BITS - self.bits
        widths = {"integer_cos": RING_BITS, "top_cos": spare, "integer_sin": RING_BITS, "top_sin": spare}
        if self.weight:
            names = ("integer_weight_cos", "top_weight_cos", "integer_weight_sin", "top_weight_sin")
            widths |= dict.fromkeys(names, spare)
        return tuple(Field(name, self.shape, bits, dealt=True) for name, bits in widths.items())

    def references(self) -> tuple[Reference, ...]:
        return (self.lifted, self.trig)

    def derive(self, uniform: Values, *referred: Values) -> Values:
        lifted, trig = referred
        integer, top = _per_unit(lifted["mask"], self.bits, self.shape, self.pool)
        products: dict[str, Array] = {}
        for factor in ("cos", "sin"):
            products |= {f"integer_{factor}": integer * trig[factor], f"top_{factor}": top * trig[factor]}
        if self.weight:
            half, bits = np.uint64(1 << (self.bits - 1)), np.uint64(self.bits)
            for factor in ("weight_cos", "weight_sin"):
                products[f"integer_{factor}"] = (integer * trig[factor] + half) >> bits
                products[f"top_{factor}"] = top * trig[factor]
        return products


def _check_lifted(kind: LiftedTotal | LiftedTimesMask | LiftedTimesTrig, ring: int, pool: Shape) -> None:
    check_shape(kind, kind.shape)
    check_range(kind, 1, ring - 1, "bits")
    check_pool(kind, pool, kind.shape[-1] if kind.shape else 1)


def _reaches(lifted: Shape, shape: Shape, pool: Shape) -> bool:
    """Whether a lifted value has a number for every unit, or for every window."""
    width = shape[-1] // (pool[3] ** 2 if pool else 1) if shape else 1
    return bool(shape) and bool(lifted) and lifted[:-1] == shape[:-1] and lifted[-1] >= width


def _per_unit(mask: Array, bits: int, shape: Shape, pool: Shape) -> tuple[Array, Array]:
    """m and b of a lifted value unit by unit: it may have been opened with padding, or per window."""
    width = shape[-1] // (pool[3] ** 2 if pool else 1)
    m: Array = spread(ring_words(mask[..., :width]) & np.uint64((1 << bits) - 1), pool)
    return m, m >> np.uint64(bits - 1)


@dataclass(frozen=True)
class LiftedPowers(Kind):
    """For polynomials of a lifted value: m, its top bit b, m^2, m b and so on, in the whole ring.

    Powers of M = m - t b, with t known only online, are public combinations of these: b^2 = b.
    """

    name: ClassVar[str] = "lifted_powers"
    shape: Shape
    degree: int
    bits: int

    def check(self) -> None:
        check_shape(self, self.shape)
        check_range(self, 1, RING_BITS, "bits")
        check_range(self, 1, MOST_DEGREE, "degree")

    def fields(self) -> tuple[Field, ...]:
        names = ["integer", "top"]
        for n in range(2, self.degree + 1):
            names += [f"power{n}", f"power{n - 1}_top"]
        dealt = (Field(name, self.shape, RING_BITS, dealt=True) for name in names)
        return (Field("mask", self.shape, self.bits), *dealt)

    def derive(self, uniform: Values, *referred: Values) -> Values:
        m = ring_words(uniform["mask"])
        top = m >> np.uint64(self.bits - 1)
        derived = {"integer": m, "top": top}
        lower = m
        for n, power in zip(range(2, self.degree + 1), powers(m), strict=False):
            derived |= {f"power{n}": power, f"power{n - 1}_top": lower * top}
            lower = power
        return derived
