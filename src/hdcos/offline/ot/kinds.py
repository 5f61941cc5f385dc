"""How two parties make each kind of material: the counterpart of `Kind.derive` on shares instead of plain values.

A maker gets this party's shares of the uniform fields, and of the units the kind refers to, and returns its shares of
all fields. Kinds whose mask is needed as an integer (rounding, lifted and growing ones) draw the mask's bits, shared by
XOR, and keep this party's part as OWN: products with such a mask take as many transfers as it has bits. In those the
shares of the mask are made, not expanded from a seed.

A referred unit has a leading axis of its own: as many rows as the units that refer to it, or fewer, each of which
serves as many of them (a `whole` unit per execution, a weight of another scope for all).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import comb, prod
from typing import Any

import numpy as np

from hdcos.errors import InputError
from hdcos.generators import local
from hdcos.offline.kinds import FusedTrig, GrowingTrig, Mask, MaskProduct, Powers, RoundingMask, TrigPair, ring_words
from hdcos.offline.lifted_kinds import LiftedPowers, LiftedTimesMask, LiftedTimesTrig, LiftedTotal
from hdcos.offline.material import Kind
from hdcos.offline.ot.arrays import flat, repeated, stacked
from hdcos.offline.ot.matrices import cross
from hdcos.offline.ot.terms import Maker, Rounds, Term, ask, bitwise, integer, private, random_bits, shared
from hdcos.offline.ot.trig import cos_sin
from hdcos.ring import Array, modulo, spread

Shares = Mapping[str, Array]


@dataclass(frozen=True)
class Unit:
    """A unit that another refers to: its kind and this party's shares."""

    kind: Kind
    shares: Shares

    def __getitem__(self, name: str) -> Array:
        if name not in self.shares:
            raise InputError(f"{self.kind.name} has no {name} that other material could refer to")
        return ring_words(self.shares[name])

    def mask(self, bits: int = 64) -> Array:
        """The mask for products modulo 2**bits: shares of a narrower one do not add up to it there."""
        mask = self["mask"]
        width = next(item.bits for item in self.kind.fields() if item.name == "mask")
        if width < bits:
            raise InputError(f"a mask of {width} bits cannot enter a product of {bits} bits without a dealer")
        return mask


OWN = "own bits"
"""This party's part of a mask that is shared by XOR; it never leaves the maker."""
INTEGER = "integer of the opened bits"
"""This party's share, in the whole ring, of the opened bits of a rounding mask; it does not leave the maker either."""


@local
def _mask(maker: Maker, kind: Mask, mine: Shares) -> Shares:
    """Nothing to make: the shares of a uniform field are uniform."""
    return {}


def _rounding_mask(maker: Maker, kind: RoundingMask, mine: Shares) -> Rounds[Shares]:
    """m from random bits, its top bit, and each party's own random bits above m."""
    shape, spare = tuple(mine["mask"].shape), 64 - kind.bits
    own, m = random_bits(maker, OWN, shape, kind.bits)
    top = integer(maker, own >> np.uint64(kind.bits - 1), 1, spare)
    made, tops = yield from ask(m, top)
    result = {"top": modulo(tops, spare), INTEGER: made, OWN: own}
    if kind.summed:
        return {"mask": modulo(made, kind.bits), **result}
    high = mine["mask"] >> np.uint64(kind.bits)
    return {"mask": made + (high << np.uint64(kind.bits)), "high": modulo(high, spare), **result}


def _powers(maker: Maker, kind: Powers, mine: Shares) -> Rounds[Shares]:
    """(m_0 + m_1)^n by the binomial theorem: one round for all powers.

    For each a, m_1^a times the binomial terms of m_0 that go with it, where the party with m_1^a chooses; for half of
    the elements party 0 does. The coefficients belong in the vectors: twice a uniform share would not be uniform.
    """
    m = flat(ring_words(mine["mask"]), -1)
    powers = [m**n for n in range(kind.degree + 1)]
    terms = []
    for a in range(1, kind.degree):
        vectors = stacked(*(powers[n - a] * np.uint64(comb(n, a)) for n in range(a + 1, kind.degree + 1)))
        terms.append(private(maker, powers[a], vectors, kind.bits, kind.bits))
    crossed = yield from ask(*terms)
    made = {}
    for n in range(2, kind.degree + 1):
        total = powers[n]
        for a in range(1, n):
            total = total + crossed[a - 1][:, n - a - 1]
        made[f"power{n}"] = modulo(flat(total, *mine["mask"].shape), kind.bits)
    return made


def _refuse_dither(kind: TrigPair | FusedTrig) -> None:
    """Each party rounds its own share and knows by how much: that is no noise to it."""
    if kind.dither:
        raise InputError(f"a dithered {kind.name} takes a dealer, whose coins no party sees")


def _trig_pair(maker: Maker, kind: TrigPair, mine: Shares) -> Rounds[Shares]:
    _refuse_dither(kind)
    cos, sin = yield from cos_sin(maker, mine["mask"], kind.phase_bits, kind.scale, kind.harmonics)
    return {"cos": modulo(cos, kind.ring), "sin": modulo(sin, kind.ring)}


def _mask_product(maker: Maker, kind: MaskProduct, mine: Shares, left: Unit, right: Unit) -> Rounds[Shares]:
    x, y = left.mask(kind.bits), right.mask(kind.bits)
    term: Term
    if kind.elementwise:
        units, size = x.shape[0], prod(kind.shape)
        term = shared(maker, flat(y, y.shape[0], -1), flat(x, units, size, 1), kind.bits)
        (product,) = yield from ask(term)
        return {"product": modulo(flat(product, units, *kind.shape), kind.bits)}
    if not kind.product.over_rows:
        if y.shape[0] != 1:
            raise InputError("a matrix of masks serves all rows, and material with one is made execution by execution")
        y = y[0]
    (product,) = yield from ask(cross(maker, kind.product, x, y, kind.bits))
    return {"product": modulo(product[None] if kind.product.over_rows else product, kind.bits)}


def _fused_trig(maker: Maker, kind: FusedTrig, mine: Shares, weight: Unit) -> Rounds[Shares]:
    """A trig pair, then both its parts times the weight's mask: whoever holds a share of the weight chooses with it."""
    _refuse_dither(kind)
    cos, sin = yield from cos_sin(maker, mine["mask"], kind.phase_bits, kind.scale)
    w = spread(weight.mask(), kind.pool)
    (products,) = yield from ask(shared(maker, w, stacked(cos, sin)))
    return {"cos": cos, "sin": sin, "weight_cos": products[..., 0], "weight_sin": products[..., 1]}


def _growing_trig(maker: Maker, kind: GrowingTrig, mine: Shares) -> Rounds[Shares]:
    shape = tuple(mine["mask"].shape)
    own, m = random_bits(maker, OWN, shape, kind.bits, kind.bits)
    (mask,) = yield from ask(m)
    cos, sin = yield from cos_sin(maker, mine["phase"], kind.phase_bits, kind.scale)
    pair = flat(stacked(cos, sin), shape[0], -1, 2)
    rows = flat(own, shape[0], -1)
    times, tops = yield from ask(*_twice(maker, rows, kind.bits, pair))
    made = {"mask": modulo(mask, kind.bits), "cos": cos, "sin": sin}
    for index, name in enumerate(("cos", "sin")):
        made |= {f"mask_{name}": flat(times[..., index], *shape), f"top_{name}": flat(tops[..., index], *shape)}
    return made


def _twice(maker: Maker, own: Array, bits: int, x: Array, ring: int = 64, top_ring: int = 64) -> tuple[Term, Term]:
    """m x and b x for a number m shared by XOR and its top bit b, each modulo a power of two of its own."""
    return bitwise(maker, own, bits, x, ring), bitwise(maker, own >> np.uint64(bits - 1), 1, x, top_ring)


@local
def _lifted_total(maker: Maker, kind: LiftedTotal, mine: Shares, lifted: Unit) -> Shares:
    """A sum of shares is a share of the sum."""
    width = kind.shape[-1]
    return {"total": lifted[INTEGER][..., :width].sum(axis=0, dtype=np.uint64, keepdims=True)}


def _lifted_powers(maker: Maker, kind: LiftedPowers, mine: Shares) -> Rounds[Shares]:
    """One power after the other: m times m^(n-1)."""
    shape = tuple(mine["mask"].shape)
    own, m = random_bits(maker, OWN, shape, kind.bits)
    made, tops = yield from ask(m, integer(maker, own >> np.uint64(kind.bits - 1), 1))
    result = {"mask": modulo(made, kind.bits), "integer": made, "top": tops}
    rows, power = flat(own, shape[0], -1), made
    for n in range(2, kind.degree + 1):
        times, topped = yield from ask(*_twice(maker, rows, kind.bits, flat(power, shape[0], -1, 1)))
        power = flat(times, *shape)
        result |= {f"power{n}": power, f"power{n - 1}_top": flat(topped, *shape)}
    return result


def _lifted_times_mask(maker: Maker, kind: LiftedTimesMask, mine: Shares, lifted: Unit, mask: Unit) -> Rounds[Shares]:
    own, spare = _per_unit(lifted, kind.shape, kind.pool), kind.ring - kind.bits
    aligned = _aligned(own, lifted, stacked(mask.mask(kind.ring)))
    (product, top) = yield from ask(*_twice(maker, *aligned, kind.ring, spare))
    return {"integer_mask": modulo(product[..., 0], kind.ring), "top_mask": modulo(top[..., 0], spare)}


def _lifted_times_trig(maker: Maker, kind: LiftedTimesTrig, mine: Shares, lifted: Unit, trig: Unit) -> Rounds[Shares]:
    """Each party rounds its own share where a dealer rounds: modulo 2**(64 - bits) that is off by less than a unit."""
    factors = ("cos", "sin", "weight_cos", "weight_sin") if kind.weight else ("cos", "sin")
    own, spare = _per_unit(lifted, kind.shape, kind.pool), 64 - kind.bits
    x = stacked(*(trig[name] for name in factors))
    products, tops = yield from ask(*_twice(maker, *_aligned(own, lifted, x), top_ring=spare))
    half, bits = np.uint64(1 << (kind.bits - 1)), np.uint64(kind.bits)
    made: dict[str, Array] = {}
    for index, name in enumerate(factors):
        product = products[..., index]
        made[f"integer_{name}"] = (product + half) >> bits if name.startswith("weight") else product
        made[f"top_{name}"] = modulo(tops[..., index], spare)
    return made


def _per_unit(lifted: Unit, shape: tuple[int, ...], pool: tuple[int, ...]) -> Array:
    """This party's part of a lifted mask unit by unit: it may have been opened with padding, or per window."""
    width = shape[-1] // (pool[3] ** 2 if pool else 1)
    own: Array = spread(flat(lifted[OWN][..., :width], *lifted[OWN].shape[:-1], width), pool)
    return own


def _aligned(own: Array, lifted: Unit, x: Array) -> tuple[Array, int, Array]:
    """The mask's part, its bits, and x; where one x serves several rows it is repeated."""
    if not isinstance(lifted.kind, RoundingMask):
        raise InputError(f"{lifted.kind.name} is not a lifted mask")
    if x.shape[0] < own.shape[0]:
        x = repeated(x, own.shape[0] // max(1, x.shape[0]))
    return own, lifted.kind.bits, x


_MAKERS: dict[type[Kind], Callable[..., Rounds[Shares]]] = {
    Mask: _mask,
    RoundingMask: _rounding_mask,
    Powers: _powers,
    TrigPair: _trig_pair,
    MaskProduct: _mask_product,
    FusedTrig: _fused_trig,
    GrowingTrig: _growing_trig,
    LiftedTotal: _lifted_total,
    LiftedPowers: _lifted_powers,
    LiftedTimesMask: _lifted_times_mask,
    LiftedTimesTrig: _lifted_times_trig,
}


def make(maker: Maker, kind: Kind, mine: Shares, *referred: Unit) -> Rounds[Any]:
    """This party's shares of all fields of some units, by name."""
    found = _MAKERS.get(type(kind))
    if found is None:
        raise InputError(f"two parties cannot make {kind.name} by themselves: start a dealer with `hdcos dealer`")
    made = yield from found(maker, kind, mine, *referred)
    return {**mine, **made}
