"""How two parties make each kind of material: the counterpart of `Kind.derive` on shares instead of plain values.

A generator gets this party's shares of the uniform fields, and of the units the kind refers to, and returns its shares
of all fields. Kinds whose mask is needed as an integer (rounding, lifted and growing ones) draw the mask's bits, shared
by XOR, and keep this party's part as OWN: products with such a mask take as many transfers as it has bits. In those the
shares of the mask are made, not expanded from a seed.

A referred unit has a leading axis of its own: as many rows as the units that refer to it, or fewer, each of which
serves as many of them (a `whole` unit per execution, a weight of another scope for all).

Cosine and sine of a random angle that nobody knows are the paper's Algorithm 1, moved offline (`cos_sin`).
Computes  each party's angle r_i -> shares of cos r and sin r at `scale`, r = r_0 + r_1, in the whole ring.
Online    2 rounds of products. For scale 16: 40 transfers of two words of 26 bits and fewer, then 2 of one of 45 bits:
          435 bytes a pair, both directions together.
Error     less than 1.5 units of the scale; unbiased but for 1/8 of a unit where a factor is clipped.
Security  Products of private values (see session) and local work only.

cos r = c_0 c_1 - s_0 s_1 and sin r = s_0 c_1 + c_0 s_1. With factors at scale f = scale + GUARD_BITS, clipped to
f + 1 bits, the sums need 2 f + 3 bits and no more, of which all but 7 of those that rounding drops are left out
from the beginning. Each party rounds its own share from scale 2 f to `scale` (party 0
ties up, party 1 ties down): shares u_0 + u_1 modulo 2**L, L = scale + 3, of a value that lies in [0, 2**(L - 1)) once
an offset is added, so that its top bit is known to be zero. Then u_0 + u_1 wraps if and only if one of the two top bits
a_0, a_1 is set:

    u = u_0 + u_1 - 2**L (a_0 + a_1 - a_0 a_1)  in the whole ring, exactly. One product of two bits lifts it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import comb, prod
from typing import Any

import numpy as np

from hdcos.errors import InputError
from hdcos.generators import local
from hdcos.offline.bilinear import repeat, reshape, stack
from hdcos.offline.kinds import (
    FusedTrig,
    GrowingTrig,
    Mask,
    MaskProduct,
    Powers,
    RoundingMask,
    TrigPair,
    find_angles,
    ring_words,
    weight_fields,
)
from hdcos.offline.lifted_kinds import Lifted, LiftedPowers, LiftedTimesMask, LiftedTimesTrig, LiftedTotal
from hdcos.offline.material import Kind
from hdcos.offline.ot.terms import (
    OtParty,
    Rounds,
    Term,
    ask,
    integer,
    random_bits,
    times_bilinear,
    times_bitwise,
    times_private,
    times_shared,
)
from hdcos.ring import Array, Blank, modulo, round_open, spread, trig_words
from hdcos.sharing.share import ring_word

GUARD_BITS = 3
SPARE_BITS = 7
"""Bits below the result's that products are computed with."""
MAX_SCALE = 30
"""Of the tables; sums of products at this scale still fit 64 bits."""
OWN = "own bits"
"""This party's part of a mask that is shared by XOR; it never leaves its generator."""
INTEGER = "integer of the opened bits"
"""This party's share, in the whole ring, of the opened bits of a rounding mask; it stays in its generator too."""

Shares = Mapping[str, Array]


@dataclass(frozen=True)
class Referred:
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


@local
def _mask(party: OtParty, kind: Mask, mine: Shares) -> Shares:
    """Nothing to make: the shares of a uniform field are uniform."""
    return {}


def _rounding_mask(party: OtParty, kind: RoundingMask, mine: Shares) -> Rounds[Shares]:
    """m from random bits, its top bit, and each party's own random bits above m."""
    shape, spare = tuple(mine["mask"].shape), 64 - kind.bits
    own, m = random_bits(party, OWN, shape, kind.bits)
    top = integer(party, own >> np.uint64(kind.bits - 1), 1, spare)
    made, tops = yield from ask(m, top)
    result = {"top": modulo(tops, spare), INTEGER: made, OWN: own}
    if kind.summed:
        return {"mask": modulo(made, kind.bits), **result}
    high = mine["mask"] >> np.uint64(kind.bits)
    return {"mask": made + (high << np.uint64(kind.bits)), "high": modulo(high, spare), **result}


def _powers(party: OtParty, kind: Powers, mine: Shares) -> Rounds[Shares]:
    """(m_0 + m_1)^n by the binomial theorem: one round for all powers.

    For each a, m_1^a times the binomial terms of m_0 that go with it, where the party with m_1^a chooses; for half of
    the elements party 0 does. The coefficients belong in the vectors: twice a uniform share would not be uniform.
    """
    m = reshape(ring_words(mine["mask"]), -1)
    powers = [m**n for n in range(kind.degree + 1)]
    terms = []
    for a in range(1, kind.degree):
        vectors = stack(*(powers[n - a] * np.uint64(comb(n, a)) for n in range(a + 1, kind.degree + 1)))
        terms.append(times_private(party, powers[a], vectors, kind.bits, kind.bits))
    crossed = yield from ask(*terms)
    made = {}
    for n in range(2, kind.degree + 1):
        total = powers[n]
        for a in range(1, n):
            total = total + crossed[a - 1][:, n - a - 1]
        made[f"power{n}"] = modulo(reshape(total, *mine["mask"].shape), kind.bits)
    return made


def cos_sin(
    party: OtParty, mask: Array, phase_bits: int, scale: int, harmonics: tuple[int, ...] = (1,)
) -> Rounds[tuple[Array, Array]]:
    """Shares of cos k r and sin k r for r = -mask; with several harmonics along a new last axis."""
    fine = min(scale + GUARD_BITS, MAX_SCALE)
    r, phase_bits = find_angles(mask, phase_bits, harmonics)
    cos, sin = (_clip(part, fine) for part in trig_words(reshape(r, -1), phase_bits, fine))
    numbers = stack(cos, sin)
    vectors = reshape(stack(cos, sin, np.uint64(0) - sin, cos), -1, 2)
    drop = 2 * fine - scale
    coarse = max(0, drop - SPARE_BITS)
    term = times_private(party, numbers, vectors, fine + 1, 2 * fine + 3, fold=2, signed=True, coarse=coarse)
    (sums,) = yield from ask(term)
    lifted = yield from _round_and_lift(party, sums, drop - coarse, scale)
    return reshape(lifted[:, 0], *r.shape), reshape(lifted[:, 1], *r.shape)


def _clip(part: Array, fine: int) -> Array:
    least: Array = np.minimum(part, np.int64((1 << fine) - 1))
    return least.astype(np.uint64) if isinstance(part, Blank) else least.view(np.uint64)


def _round_and_lift(party: OtParty, sums: Array, drop: int, scale: int) -> Rounds[Array]:
    """Shares at `scale` in the whole ring, from shares of |x| <= 2**(drop + scale) + 2**drop with 3 bits to spare."""
    kept = scale + 3
    offset = (1 << scale) + 2
    keep = np.uint64((1 << kept) - 1)
    shares = ring_words(round_open(reshape(sums, *sums.shape), None, drop, kept, ties_up=party.rank == 0))
    if party.rank == 0:
        shares = (shares + np.uint64(offset)) & keep
    tops = reshape(shares >> np.uint64(kept - 1), -1)
    (both,) = yield from ask(times_private(party, tops, tops.reshape(-1, 1), 1, 64 - kept))
    wraps = tops - reshape(both, -1)
    lifted: Array = shares - (reshape(wraps, *shares.shape) << np.uint64(kept))
    return lifted - ring_word(offset) if party.rank == 0 else lifted


def _refuse_dither(kind: TrigPair | FusedTrig) -> None:
    """Each party rounds its own share and knows by how much: that is no noise to it."""
    if kind.dither:
        raise InputError(f"a dithered {kind.name} takes a dealer, whose coins no party sees")


def _trig_pair(party: OtParty, kind: TrigPair, mine: Shares) -> Rounds[Shares]:
    _refuse_dither(kind)
    cos, sin = yield from cos_sin(party, mine["mask"], kind.phase_bits, kind.scale, kind.harmonics)
    return {"cos": modulo(cos, kind.ring), "sin": modulo(sin, kind.ring)}


def _mask_product(party: OtParty, kind: MaskProduct, mine: Shares, left: Referred, right: Referred) -> Rounds[Shares]:
    x, y = left.mask(kind.bits), right.mask(kind.bits)
    term: Term
    if kind.elementwise or kind.operation == "channels":
        units, size = x.shape[0], prod(y.shape[1:])
        term = times_shared(party, reshape(y, y.shape[0], -1), reshape(x, units, size, -1), kind.bits)
        (product,) = yield from ask(term)
        return {"product": modulo(reshape(product, units, *kind.shape), kind.bits)}
    if not kind.over_rows:
        if y.shape[0] != 1:
            raise InputError("a matrix of masks serves all rows, and material with one is made execution by execution")
        y = y[0]
    (product,) = yield from ask(times_bilinear(party, kind.product, x, y, kind.bits))
    return {"product": modulo(product[None] if kind.over_rows else product, kind.bits)}


def _fused_trig(party: OtParty, kind: FusedTrig, mine: Shares, weight: Referred) -> Rounds[Shares]:
    """A trig pair, then both its parts times the weight's mask: each party chooses with its share of the weight."""
    _refuse_dither(kind)
    cos, sin = yield from cos_sin(party, mine["mask"], kind.phase_bits, kind.scale)
    pair = stack(cos, sin)
    products = yield from ask(*(times_shared(party, w, pair) for w in kind.weights(weight.mask())))
    made = {"cos": cos, "sin": sin}
    for term, product in enumerate(products):
        made |= {name: product[..., place] for place, name in enumerate(weight_fields(term))}
    return made


def _growing_trig(party: OtParty, kind: GrowingTrig, mine: Shares) -> Rounds[Shares]:
    shape = tuple(mine["mask"].shape)
    own, m = random_bits(party, OWN, shape, kind.bits, kind.bits)
    (mask,) = yield from ask(m)
    cos, sin = yield from cos_sin(party, mine["phase"], kind.phase_bits, kind.scale)
    pair = reshape(stack(cos, sin), shape[0], -1, 2)
    rows = reshape(own, shape[0], -1)
    times, tops = yield from ask(*_twice(party, rows, kind.bits, pair))
    made = {"mask": modulo(mask, kind.bits), "cos": cos, "sin": sin}
    for index, name in enumerate(("cos", "sin")):
        made |= {f"mask_{name}": reshape(times[..., index], *shape), f"top_{name}": reshape(tops[..., index], *shape)}
    return made


def _twice(party: OtParty, own: Array, bits: int, x: Array, ring: int = 64, top_ring: int = 64) -> tuple[Term, Term]:
    """m x and b x for a number m shared by XOR and its top bit b, each modulo a power of two of its own."""
    return times_bitwise(party, own, bits, x, ring), times_bitwise(party, own >> np.uint64(bits - 1), 1, x, top_ring)


@local
def _lifted_total(party: OtParty, kind: LiftedTotal, mine: Shares, lifted: Referred) -> Shares:
    """A sum of shares is a share of the sum."""
    return {"total": kind.cut(lifted[INTEGER]).sum(axis=0, dtype=np.uint64, keepdims=True)}


def _lifted_powers(party: OtParty, kind: LiftedPowers, mine: Shares) -> Rounds[Shares]:
    """One power after the other: m times m^(n-1)."""
    shape = tuple(mine["mask"].shape)
    own, m = random_bits(party, OWN, shape, kind.bits)
    made, tops = yield from ask(m, integer(party, own >> np.uint64(kind.bits - 1), 1))
    result = {"mask": modulo(made, kind.bits), "integer": made, "top": tops}
    rows, power = reshape(own, shape[0], -1), made
    for n in range(2, kind.degree + 1):
        times, topped = yield from ask(*_twice(party, rows, kind.bits, reshape(power, shape[0], -1, 1)))
        power = reshape(times, *shape)
        result |= {f"power{n}": power, f"power{n - 1}_top": reshape(topped, *shape)}
    return result


def _lifted_times_mask(
    party: OtParty, kind: LiftedTimesMask, mine: Shares, lifted: Referred, mask: Referred
) -> Rounds[Shares]:
    x, spare = stack(mask.mask(kind.ring)), kind.ring - kind.bits
    product, top = yield from ask(*_lifted_twice(party, kind, lifted, x, kind.ring, spare))
    return {"integer_mask": modulo(product[..., 0], kind.ring), "top_mask": modulo(top[..., 0], spare)}


def _lifted_times_trig(
    party: OtParty, kind: LiftedTimesTrig, mine: Shares, lifted: Referred, trig: Referred
) -> Rounds[Shares]:
    """Each party rounds its own share where a dealer rounds: modulo 2**(64 - bits) that is off by less than a unit."""
    x, spare = stack(*(trig[name] for name in kind.factors)), 64 - kind.bits
    products, tops = yield from ask(*_lifted_twice(party, kind, lifted, x, 64, spare))
    made: dict[str, Array] = {}
    for index, name in enumerate(kind.factors):
        made[f"integer_{name}"] = kind.round(name, products[..., index])
        made[f"top_{name}"] = modulo(tops[..., index], spare)
    return made


def _lifted_twice(
    party: OtParty, kind: Lifted, lifted: Referred, x: Array, ring: int, top_ring: int
) -> tuple[Term, Term]:
    """m x and b x for a lifted mask, unit by unit; where one x serves several rows it is repeated."""
    own = kind.cut(lifted[OWN])
    if not isinstance(lifted.kind, RoundingMask):
        raise InputError(f"{lifted.kind.name} is not a lifted mask")
    own = spread(reshape(own, *own.shape), kind.pool)
    if x.shape[0] < own.shape[0]:
        x = repeat(x, own.shape[0] // max(1, x.shape[0]))
    return _twice(party, own, lifted.kind.bits, x, ring, top_ring)


_GENERATORS: dict[type[Kind], Callable[..., Rounds[Shares]]] = {
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


def make(party: OtParty, kind: Kind, mine: Shares, *referred: Referred) -> Rounds[Any]:
    """This party's shares of all fields of some units, by name."""
    found = _GENERATORS.get(type(kind))
    if found is None:
        raise InputError(f"two parties cannot make {kind.name} by themselves: start a dealer with `hdcos dealer`")
    made = yield from found(party, kind, mine, *referred)
    return {**mine, **made}
