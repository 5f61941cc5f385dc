"""Kinds of material for values that are opened rounded and lifted back to the whole ring.

A mask m is opened in Z_2^bits only; what follows needs m as an integer and its top bit b, and every product twice, with
m and with b.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hdcos.offline.kinds import RING_BITS, Shape, ring_words
from hdcos.offline.material import Field, Kind, Reference, Values
from hdcos.ring import Array, spread

LIFTED = ("integer", "top")


@dataclass(frozen=True)
class LiftedMask(Kind):
    """A mask m in Z_2^bits that can be lifted: m as an integer and its top bit b, in the whole ring."""

    name: ClassVar[str] = "lifted_mask"
    shape: Shape
    bits: int

    def fields(self) -> tuple[Field, ...]:
        dealt = (Field(name, self.shape, RING_BITS, dealt=True) for name in ("integer", "top"))
        return (Field("mask", self.shape, self.bits), *dealt)

    def derive(self, uniform: Values, *referred: Values) -> Values:
        m = ring_words(uniform["mask"])
        return {"integer": m, "top": m >> np.uint64(self.bits - 1)}


@dataclass(frozen=True)
class LiftedTimesMask(Kind):
    """m m_w and b m_w for a lifted mask and another unit's mask, either of which may serve the whole execution.

    The lifted value has one number per unit, or one per window of `pool` = (channels, height, width, window) units.
    """

    name: ClassVar[str] = "lifted_times_mask"
    shape: Shape
    lifted: Reference
    mask: Reference
    pool: Shape = ()

    def fields(self) -> tuple[Field, ...]:
        return tuple(Field(name, self.shape, RING_BITS, dealt=True) for name in ("integer_mask", "top_mask"))

    def references(self) -> tuple[Reference, ...]:
        return (self.lifted, self.mask)

    def derive(self, uniform: Values, *referred: Values) -> Values:
        lifted, other = referred
        mask = ring_words(other["mask"])
        return {f"{name}_mask": _per_unit(lifted[name], self.shape, self.pool) * mask for name in LIFTED}


@dataclass(frozen=True)
class LiftedTimesTrig(Kind):
    """m cos r, m sin r, b cos r and b sin r for a lifted mask and a trig pair's r.

    With `weight`, the trig pair is fused with a weight's mask m_w, and m m_w cos r and so on follow. The lifted value
    has one number per unit, or one per window of `pool`; where it has more, the first ones count.
    """

    name: ClassVar[str] = "lifted_times_trig"
    shape: Shape
    lifted: Reference
    trig: Reference
    weight: bool = False
    pool: Shape = ()

    def _factors(self) -> tuple[str, ...]:
        return ("cos", "sin", "weight_cos", "weight_sin") if self.weight else ("cos", "sin")

    def fields(self) -> tuple[Field, ...]:
        names = (f"{name}_{factor}" for factor in self._factors() for name in LIFTED)
        return tuple(Field(name, self.shape, RING_BITS, dealt=True) for name in names)

    def references(self) -> tuple[Reference, ...]:
        return (self.lifted, self.trig)

    def derive(self, uniform: Values, *referred: Values) -> Values:
        lifted, trig = referred
        values = {name: _per_unit(lifted[name], self.shape, self.pool) for name in LIFTED}
        return {f"{name}_{factor}": values[name] * trig[factor] for factor in self._factors() for name in LIFTED}


def _per_unit(lifted: Array, shape: Shape, pool: Shape) -> Array:
    """A lifted value's numbers unit by unit: it may have been opened with padding, or per window."""
    width = shape[-1] // (pool[3] ** 2 if pool else 1)
    values: Array = spread(lifted[..., :width], pool)
    return values


@dataclass(frozen=True)
class LiftedPowers(Kind):
    """For polynomials of a lifted value: m, its top bit b, m^2, m b and so on, in the whole ring.

    Powers of M = m - t b, with t known only online, are public combinations of these: b^2 = b.
    """

    name: ClassVar[str] = "lifted_powers"
    shape: Shape
    degree: int
    bits: int

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
        for n in range(2, self.degree + 1):
            derived |= {f"power{n}": m**n, f"power{n - 1}_top": m ** (n - 1) * top}
        return derived
