"""A value opened once, rounded and lifted, that then enters elementwise products without another round.

Computes  [x] -> Lifted; Lifted x, Masked w -> [x * w]; Lifted x, phase of y -> [x cos y], [x sin y].
Offline   one RoundingMask per element of x; per product LiftedTimesMask or LiftedTimesTrig: every dealt product is
          needed twice, with m and with its top bit b.
Online    1 round for the opening, `bits` per element each way; the products are local.
Error     less than one unit of the opened scale, once. |x| < 2**(drop + bits - 2) ring units.
Security  the only message is this party's share of D = x / 2**drop + 2**(bits-2) + m modulo 2**bits; m is uniform
          there and masks this opening alone. Each product is a fresh sharing.

x = E - m + t b with E and t public (see opening), so
x w = D_w x - m_w x,  m_w x = E m_w - [m m_w] + t [b m_w];
x C = E C - [m C] + t [b C]  for C = cos r and sin r, and cos y = cos d cos r - sin d sin r.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from math import prod

import numpy as np

from hdcos.errors import InputError
from hdcos.offline import LiftedTimesMask, LiftedTimesTrig, LiftedTotal, Reference, RoundingMask
from hdcos.offline.material import Fields, Precompute, Shape
from hdcos.protocol.cosine import Phase
from hdcos.protocol.opening import Masked, lift_parts, open_shifted
from hdcos.protocol.party import Openable, Party
from hdcos.protocol.rounds import Rounds
from hdcos.ring import Array, compact_dtype, lifted_product, lifted_sums, lifted_times
from hdcos.ring.device import constant_beside
from hdcos.sharing import Share


@dataclass(eq=False)
class Lifted:
    """x = E - m + t b in the whole ring; E and t follow from D, which was opened, and m and b are shared."""

    D: Array = field(repr=False)
    bits: int
    m: Array = field(repr=False)
    b: Array = field(repr=False)
    scale: int
    reference: Reference
    term: int = 0
    """Number i is number i ^ term of what the reference means."""

    @cached_property
    def parts(self) -> tuple[Array, Array]:
        return lift_parts(self.D, self.bits)

    @property
    def E(self) -> Array:  # noqa: N802  the letter of the identity
        return self.parts[0]

    @property
    def t(self) -> Array:
        return self.parts[1]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.D.shape)

    def part(self, start: int, shape: tuple[int, ...]) -> Lifted:
        """One of the tensors that were opened side by side, as one whole row."""
        D, m, b = (x[start : start + prod(shape)].reshape(shape) for x in (self.D, self.m, self.b))
        reference = Reference.of(self.reference.position, True, start=start, shape=shape)
        return Lifted(D, self.bits, m, b, self.scale, reference)

    def moved(self, term: int) -> Lifted:
        """P_t x (see nn.hadamard): what the gradient of a transform's input is to one term. Local."""
        if not term:
            return self
        places = constant_beside(np.arange(self.D.shape[-1]) ^ term, self.D)
        return replace(self, D=self.D[:, places], m=self.m[:, places], b=self.b[:, places], term=term)

    def share(self, party: Party) -> Share:
        words = self.t * self.b - self.m
        return Share(words + self.E if party.rank == 0 else words, self.scale)

    def times(self, factor: Array, m_factor: Array, b_factor: Array, pool: Shape = ()) -> Array:
        """[x C] from [C], [m C] and [b C]."""
        words: Array = lifted_times(self.E, self.t, factor, m_factor, b_factor, pool)
        return words


def open_lifted(party: Party, x: Openable, drop: int, bits: int, *, whole: bool = False) -> Rounds[Lifted]:
    """x / 2**drop, ready for products; one mask per row, or one for the `whole` tensor."""
    reference = party.next_reference(whole=whole)
    if whole:
        mask, m, b = _integer_mask(bits)(party.take_one(RoundingMask(x.shape, bits)), lambda position: ())
    else:
        mask, m, b = party.take(RoundingMask(x.shape[1:], bits), x.shape[0], _integer_mask(bits))
    D = yield from open_shifted(party, x, mask, drop, bits)
    return Lifted(D, bits, m, b, x.scale - drop, reference)


@cache
def _integer_mask(bits: int) -> Precompute:
    """Of a RoundingMask: the mask of the opening, m as an integer in the whole ring, and its top bit."""

    def precompute(fields: Fields, earlier: Callable[[int], Fields]) -> Fields:
        mask, high, top = fields
        m = mask - (high.astype(np.uint64, copy=False) << np.uint64(bits))
        return mask.astype(compact_dtype(bits), copy=False), m, top.astype(np.uint64, copy=False)

    return precompute


def times_masked(party: Party, x: Lifted, w: Masked, pool: Shape = (), ring: int = 64) -> Share:
    """x * w element by element, modulo 2**ring; one may serve all rows of the other, or x all units of a window."""
    m_w, b_w = _take_products(party, x, w, pool, ring)
    operands = (x.E, x.t, x.m, x.b)
    words = lifted_product(operands, w.opened, w.mask.words, m_w, b_w, party.rank == 0, pool)
    return Share(words, x.scale + w.scale, ring)


def summed_product(party: Party, x: Lifted, w: Masked) -> tuple[Share, Share]:
    """The sums over rows of x, and of x * w for its first units."""
    m_w, b_w = _take_products(party, x, w)
    public = party.rank == 0
    total, sums = lifted_sums(x.D, x.m, x.b, x.bits, public, w.opened, w.mask.words, m_w, b_w)
    return Share(total, x.scale), Share(sums, x.scale + w.scale)


@dataclass(eq=False)
class LiftedRows:
    """A lifted value of which m is known in sums over rows only: x = E - m + t b, and the total of m."""

    D: Array = field(repr=False)
    bits: int
    b: Array = field(repr=False)
    m_total: Array = field(repr=False)
    scale: int
    reference: Reference


def open_lifted_rows(party: Party, x: Openable, drop: int, bits: int) -> Rounds[LiftedRows]:
    """x / 2**drop, ready for products with a phase and for sums over rows."""
    reference = party.next_reference()
    mask, b = party.take(RoundingMask(x.shape[1:], bits, summed=True), x.shape[0])
    rows = Reference.of(reference.position, rows=True)
    (m_total,) = party.take_one(LiftedTotal(x.shape[1:], rows, bits))
    D = yield from open_shifted(party, x, mask, drop, bits)
    return LiftedRows(D, bits, b.astype(np.uint64, copy=False), m_total, x.scale - drop, reference)


def _take_products(party: Party, x: Lifted, w: Masked, pool: Shape = (), ring: int = 64) -> tuple[Array, Array]:
    """[m m_w] and [b m_w]."""
    if w.bits < ring:
        raise InputError(f"a lifted value meets masks of the {ring} bits of their product, not of {w.bits}")
    rows = (x if w.reference.whole else w).shape[0]
    kind = LiftedTimesMask(w.shape[-1:], x.reference, w.reference, x.bits, pool, ring, x.term)
    m_w, b_w = party.take(kind, rows)
    return m_w.astype(np.uint64, copy=False), b_w.astype(np.uint64, copy=False)


@dataclass(eq=False)
class TrigProduct:
    """[x cos r] and [x sin r]: from here x times any a cos y + b sin y is local."""

    phase: Phase
    cos: Array = field(repr=False)
    sin: Array = field(repr=False)
    scale: int

    def combine(self, cos_factor: int, sin_factor: int, shift: int, scale: int) -> Share:
        """x (a cos y + b sin y) with public integers a and b over 2**shift, at a scale the caller worked out."""
        return Share(self.phase.combine(self.cos, self.sin, cos_factor, sin_factor, shift), scale)


def times_trig(party: Party, x: Lifted, phase: Phase, pool: Shape = ()) -> TrigProduct:
    """x with the phase of y."""
    rows, *shape = phase.d.shape
    kind = LiftedTimesTrig(tuple(shape), x.reference, phase.reference, x.bits, pool=pool, term=x.term)
    m_cos, b_cos, m_sin, b_sin = (field.astype(np.uint64, copy=False) for field in party.take(kind, rows))
    cos, sin = x.times(phase.cos_r, m_cos, b_cos, pool), x.times(phase.sin_r, m_sin, b_sin, pool)
    return TrigProduct(phase, cos, sin, x.scale + phase.scale)
