"""The kinds of material that the protocols take.

Every opening in hdcos is D = x + m with m one unit's `mask`; the other fields are what the protocol needs to
go on from D without talking: powers, products and cosines of the mask.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

import numpy as np

from hdcos.errors import InputError
from hdcos.offline.bilinear import Bilinear
from hdcos.offline.material import Field, Kind, Ranges, Reference, Shape, Values, Work, check_pool
from hdcos.ring import Array, dither, spread, table_phase, trig_words
from hdcos.ring.device import constant_beside
from hdcos.ring.trig import SPLIT_SCALE

RING_BITS = 64
MOST_DEGREE = 8
MOST_HARMONICS, HIGHEST_HARMONIC = 256, 1 << 16
MOST_STRIDE = 1 << 16
MOST_TERMS = 64
MOST_GROUPS = 1 << 16
COIN_BITS = 16
"""Dithered cosines are computed with this many bits more than are dealt."""


def ring_words(values: Array) -> Array:
    """Compact values as words of the whole ring."""
    return values.astype(np.uint64, copy=False)


def powers(mask: Array) -> Iterator[Array]:
    """mask**2, mask**3 and so on, each from the one before."""
    power = mask
    while True:
        power = power * mask
        yield power


@dataclass(frozen=True)
class Mask(Kind):
    """m uniform in Z_2^bits: masks one opening, and may be referred to by products."""

    name: ClassVar[str] = "mask"
    shape: Shape
    bits: int = RING_BITS
    ranges: ClassVar[Ranges] = {"bits": (1, RING_BITS)}

    def uniform(self) -> tuple[Field, ...]:
        return (Field("mask", self.shape, self.bits),)


@dataclass(frozen=True)
class RoundingMask(Kind):
    """m uniform in Z_2^bits with what lifts D - m to the whole ring.

    `mask` is uniform in Z_2^64 and only its low `bits` bits are opened; `high` is the rest and `top` the
    uppermost opened bit, both needed modulo 2**(64 - bits) only. With `summed` there is nothing above the opened bits,
    and no `high`: m itself is then known in sums over rows only (LiftedTotal).
    """

    name: ClassVar[str] = "rounding_mask"
    shape: Shape
    bits: int
    summed: bool = False
    ranges: ClassVar[Ranges] = {"bits": (1, RING_BITS - 1)}

    def uniform(self) -> tuple[Field, ...]:
        return (Field("mask", self.shape, self.bits if self.summed else RING_BITS),)

    def dealt(self) -> tuple[Field, ...]:
        return Field.alike(self.shape, RING_BITS - self.bits, *(("top",) if self.summed else ("high", "top")))

    def derive(self, uniform: Values, *referred: Values) -> Values:
        mask = ring_words(uniform["mask"])
        top = (mask >> np.uint64(self.bits - 1)) & np.uint64(1)
        return {"top": top} if self.summed else {"high": mask >> np.uint64(self.bits), "top": top}


@dataclass(frozen=True)
class Powers(Kind):
    """m uniform in Z_2^bits with m**2 up to m**degree, modulo 2**bits."""

    name: ClassVar[str] = "powers"
    shape: Shape
    degree: int
    bits: int = RING_BITS
    ranges: ClassVar[Ranges] = {"bits": (1, RING_BITS), "degree": (1, MOST_DEGREE)}

    def uniform(self) -> tuple[Field, ...]:
        return (Field("mask", self.shape, self.bits),)

    def dealt(self) -> tuple[Field, ...]:
        return Field.alike(self.shape, self.bits, *(f"power{n}" for n in range(2, self.degree + 1)))

    def derive(self, uniform: Values, *referred: Values) -> Values:
        return dict(zip((item.name for item in self.dealt()), powers(ring_words(uniform["mask"])), strict=False))


class Trig(Kind):
    """Cosines and sines of uniform angles, as exact as the tables can be: the first thing that is dealt."""

    phase_bits: int
    scale: int
    ranges: ClassVar[Ranges] = {"phase_bits": (1, RING_BITS), "scale": (0, SPLIT_SCALE)}

    def extra(self, *masks: Shape | None) -> Work:
        """To look up a cosine and a sine takes about as long as 512 multiplications."""
        angles = self.dealt()[0].size
        return Work(4 * angles, 512 * angles)


def find_angles(mask: Array, phase_bits: int, harmonics: tuple[int, ...]) -> tuple[Array, int]:
    """k r for r = -mask, as tables take it, and its bits; several harmonics k along a new last axis."""
    turn = mask.dtype.type((1 << phase_bits) - 1)
    r = (mask.dtype.type(0) - mask) & turn
    if harmonics != (1,):
        r = (r[..., None] * constant_beside(np.array(harmonics).astype(mask.dtype), mask)) & turn
    return table_phase(r, phase_bits)


@dataclass(frozen=True)
class TrigPair(Trig):
    """m uniform over one turn of 2**phase_bits steps; cos and sin of k*r for r = -m and each harmonic k.

    With `dither` they are rounded by the dealer's coins: the error is noise that no party knows, and its distribution
    tells nothing of r. Without, the error is a function of r.
    """

    name: ClassVar[str] = "trig_pair"
    shape: Shape
    phase_bits: int
    scale: int
    harmonics: tuple[int, ...] = (1,)
    ring: int = RING_BITS
    """Cosines and sines are shared modulo 2**ring."""
    dither: bool = False
    ranges: ClassVar[Ranges] = {**Trig.ranges, "ring": (1, RING_BITS)}

    def check(self) -> None:
        super().check()
        known = self.harmonics
        if not isinstance(known, tuple) or not 1 <= len(known) <= MOST_HARMONICS or not all(map(_is_harmonic, known)):
            raise InputError(f"trig_pair: harmonics are 1 to {MOST_HARMONICS} numbers from 1 to {HIGHEST_HARMONIC}")

    def uniform(self) -> tuple[Field, ...]:
        return (Field("mask", self.shape, self.phase_bits),)

    def _per_angle(self, bits: int, *names: str) -> tuple[Field, ...]:
        shape = self.shape if self.harmonics == (1,) else (*self.shape, len(self.harmonics))
        return Field.alike(shape, bits, *names)

    def dealt(self) -> tuple[Field, ...]:
        return self._per_angle(self.ring, "cos", "sin")

    def coins(self) -> tuple[Field, ...]:
        return self._per_angle(64, "cos coins", "sin coins") if self.dither else ()

    def derive(self, uniform: Values, *referred: Values) -> Values:
        r, bits = find_angles(uniform["mask"], self.phase_bits, self.harmonics)
        if not self.dither:
            cos, sin = trig_words(r, bits, self.scale)
            return {"cos": cos.view(np.uint64), "sin": sin.view(np.uint64)}
        drop = min(COIN_BITS, SPLIT_SCALE - self.scale)
        cos, sin = trig_words(r, bits, self.scale + drop)
        return {"cos": dither(cos, uniform["cos coins"], drop), "sin": dither(sin, uniform["sin coins"], drop)}


def _is_harmonic(number: object) -> bool:
    return type(number) is int and 1 <= number <= HIGHEST_HARMONIC


@dataclass(frozen=True)
class MaskProduct(Kind):
    """A product of two units' masks, one of those of `bilinear`.

    `left` is taken per row; `right` per row too (element by element only) or once for all rows. A sum over rows takes
    all rows of both, and is one unit.
    """

    name: ClassVar[str] = "mask_product"
    operation: str
    shape: Shape
    left: Reference
    right: Reference
    bits: int = RING_BITS
    stride: int = 1
    padding: int = 0
    groups: int = 1
    dilation: int = 1
    ranges: ClassVar[Ranges] = {
        "bits": (1, RING_BITS),
        "stride": (1, MOST_STRIDE),
        "padding": (0, MOST_STRIDE),
        "groups": (1, MOST_GROUPS),
        "dilation": (1, MOST_STRIDE),
    }

    def to_json(self) -> dict[str, Any]:
        """Without groups and dilation as it was before there were any: older dealers understand it."""
        record = super().to_json()
        return {name: value for name, value in record.items() if name not in ("groups", "dilation") or value != 1}

    def check(self) -> None:
        super().check()
        by_rows = not self.elementwise and not self.over_rows
        if by_rows and (self.left.whole or self.left.scope or not (self.right.whole or self.right.scope)):
            raise InputError(f"mask_product: {self.operation} takes its left factor row by row, its right one whole")

    def fits(self, *masks: Shape) -> bool:
        return self.product.fits(*masks)

    def extra(self, *masks: Shape | None) -> Work:
        return Work(*self.product.work(*masks))

    @property
    def product(self) -> Bilinear:
        return Bilinear(self.operation, self.shape, self.stride, self.padding, self.groups, self.dilation)

    @property
    def elementwise(self) -> bool:
        return self.operation == "multiply"

    @property
    def over_rows(self) -> bool:
        return self.product.over_rows

    def dealt(self) -> tuple[Field, ...]:
        return (Field("product", self.shape, self.bits),)

    def derive(self, uniform: Values, *referred: Values) -> Values:
        left, right = (ring_words(values["mask"]) for values in referred)
        product = self.product(left, right)
        return {"product": product[None] if self.over_rows else product}


def weight_fields(term: int) -> tuple[str, str]:
    """The names of m_w cos r and m_w sin r for one term of a weight."""
    number = str(term) if term else ""
    return f"weight{number}_cos", f"weight{number}_sin"


@dataclass(frozen=True)
class FusedTrig(Trig):
    """A trig pair with its products by a weight's mask: cos r, sin r, m_w cos r, m_w sin r for r = -m.

    The weight has one value per unit, or one per window of `pool` = (channels, height, width, window) units; or a row
    of such values for each of several `terms`, and two products for each.
    """

    name: ClassVar[str] = "fused_trig"
    shape: Shape
    phase_bits: int
    scale: int
    weight: Reference
    pool: Shape = ()
    dither: bool = False
    terms: int = 1
    ranges: ClassVar[Ranges] = {**Trig.ranges, "terms": (1, MOST_TERMS)}

    @property
    def elementwise(self) -> bool:
        return not self.pool

    def check(self) -> None:
        super().check()
        check_pool(self, self.pool, prod(self.shape))

    def fits(self, *masks: Shape) -> bool:
        window, rows = self.pool[3] if self.pool else 1, () if self.terms == 1 else (self.terms,)
        return len(self.shape) == 1 and masks == ((*rows, self.shape[0] // window**2),)

    @property
    def pair(self) -> TrigPair:
        """The trig pair without the weight."""
        return TrigPair(self.shape, self.phase_bits, self.scale, dither=self.dither)

    def coins(self) -> tuple[Field, ...]:
        return self.pair.coins()

    def uniform(self) -> tuple[Field, ...]:
        return self.pair.uniform()

    def dealt(self) -> tuple[Field, ...]:
        products = (name for term in range(self.terms) for name in weight_fields(term))
        return Field.alike(self.shape, RING_BITS, "cos", "sin", *products)

    def weights(self, mask: Array) -> list[Array]:
        """The weight's mask unit by unit, for each term."""
        weight = spread(ring_words(mask), self.pool)
        return [weight] if self.terms == 1 else [weight[..., term, :] for term in range(self.terms)]

    def derive(self, uniform: Values, *referred: Values) -> Values:
        pair = self.pair.derive(uniform)
        made = dict(pair)
        for term, weight in enumerate(self.weights(referred[0]["mask"])):
            cos, sin = weight_fields(term)
            made |= {cos: weight * pair["cos"], sin: weight * pair["sin"]}
        return made


@dataclass(frozen=True)
class GrowingTrig(Trig):
    """For x cos x: a mask m of x that can be lifted, a phase's mask, and the products of m and of its top bit b.

    cos, sin, m cos, m sin, b cos, b sin of r = -phase, where m is the low `bits` bits of `mask`.
    """

    name: ClassVar[str] = "growing_trig"
    shape: Shape
    bits: int
    phase_bits: int
    scale: int
    ranges: ClassVar[Ranges] = {**Trig.ranges, "bits": (1, RING_BITS - 1)}

    def uniform(self) -> tuple[Field, ...]:
        return Field("mask", self.shape, self.bits), Field("phase", self.shape, self.phase_bits)

    def dealt(self) -> tuple[Field, ...]:
        return Field.alike(self.shape, RING_BITS, "cos", "sin", "mask_cos", "mask_sin", "top_cos", "top_sin")

    def derive(self, uniform: Values, *referred: Values) -> Values:
        pair = TrigPair(self.shape, self.phase_bits, self.scale).derive({"mask": uniform["phase"]})
        m = ring_words(uniform["mask"])
        top = m >> np.uint64(self.bits - 1)
        products = {"mask_cos": m * pair["cos"], "mask_sin": m * pair["sin"]}
        return {**pair, **products, "top_cos": top * pair["cos"], "top_sin": top * pair["sin"]}
