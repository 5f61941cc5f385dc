"""Hadamard-Diagonal layers: H (w * z), where the weight w is masked and known before the input.

Three ways in, by what z is; H is free, so each costs no more than its opening. A weight of k terms gives H times the
sum of P_t (w_t * z), where P_t moves entry j to j ^ t (see nn.hadamard): z is opened once, whatever k is, and every
term has its own products of z's mask with its part of the weight's mask, each a fresh sharing.

*Fused.* z = cos x with x still a share: the cosine and the layer together take the cosine's one round.
Computes  [x], Masked w -> [H (w * cos x) + bias]. Angles in turns.
Offline   one FusedTrig per unit: r, [cos r], [sin r], for each term [m_w cos r], [m_w sin r]; A = D_w [cos r] -
          [m_w cos r] and B alike are computed as soon as the material arrives.
Online    1 round, `precision.phase_bits` per unit each way. Then cos d * A - sin d * B and a Walsh-Hadamard transform.
Error     the cosine's, times the weights.
Security  the only message is this party's share of d = x - r modulo one turn, r uniform there and used once. D_w was
          opened once, when the model was loaded, under a mask that masks nothing else; each product m_w cos r is a
          fresh sharing.

*Masked.* z is a Masked input: the product is local (see masked).

*Lifted.* z is any share: one opening that rounds, lifted to the whole ring, and a local product (see lifted).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np

from hdcos.offline import FusedTrig
from hdcos.offline.material import Fields
from hdcos.protocol.cosine import Precision
from hdcos.protocol.lifted import open_lifted, times_masked
from hdcos.protocol.opening import Masked
from hdcos.protocol.party import Party
from hdcos.protocol.rounds import Price, Rounds
from hdcos.ring import (
    Array,
    Blank,
    HadamardLayer,
    Opening,
    hadamard_cos,
    hadamard_cos_open,
    packed_size,
    spread,
    table_phase,
    walsh_hadamard,
)
from hdcos.ring.device import constant_beside, empty_beside
from hdcos.ring.types import Pool
from hdcos.sharing import Share


@dataclass(eq=False)
class HadamardCosine:
    """The result of a fused layer, not computed yet: opening it or taking its share does the work in one pass."""

    layer: HadamardLayer = field(repr=False)
    scale: int
    bits: int = 64

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self), self.layer.outputs)

    def __len__(self) -> int:
        return int(self.layer.phase.shape[0])

    @property
    def words(self) -> Array:
        """What is opened, before it is rounded."""
        words: Array = hadamard_cos(self.layer)
        return words

    def share(self) -> Share:
        return Share(self.words, self.scale, self.bits)

    def round_open(self, opening: Opening) -> Array:
        result: Array = hadamard_cos_open(self.layer, opening)
        return result


def cos_hadamard(
    party: Party,
    x: Share | HadamardCosine,
    weight: Masked,
    size: int,
    outputs: int,
    precision: Precision,
    bias: Share | None = None,
    pool: Pool | None = None,
) -> Rounds[HadamardCosine]:
    """H (w * cos x), first `outputs` of `size`, plus bias; with `pool`, cosines are first summed over windows."""
    units = prod(x.shape[1:])
    bits = precision.phase_bits
    opened = [spread(term.opened, pool or ()) for term in weight.terms()]
    kind = FusedTrig((units,), bits, precision.dealt, weight.reference, pool or (), precision.dither, len(opened))

    def precompute(fields: Fields, earlier: Callable[[int], Fields]) -> Fields:
        minus_r, cos_r, sin_r, *products = fields
        rotated = zip([D * part for D in opened for part in (cos_r, sin_r)], products, strict=True)
        return minus_r, *(whole - product for whole, product in rotated)

    # A weight of another scope is known before the input, so that A and B are made with the material.
    early = precompute if weight.reference.scope else None
    fields = party.take(kind, len(x), early)
    minus_r, A, B, *more = fields if early else precompute(fields, lambda position: ())
    d = yield from party.open(x, minus_r.reshape(len(x), *x.shape[1:]), x.scale - bits, bits)
    phase, phase_bits = table_phase(d.reshape(len(x), units), bits)
    words = None if bias is None else bias.words
    scale = weight.scale + precision.scale
    layer = HadamardLayer(phase, A, B, phase_bits, precision.table, size, outputs, words, pool, (), more)
    return HadamardCosine(layer, scale)


def lifted_diagonal(party: Party, x: Share, weight: Masked, drop: int, bits: int) -> Rounds[list[Share]]:
    """w * (x / 2**drop) element by element and term by term, for |x| < 2**(drop + bits - 2) ring units."""
    value = yield from open_lifted(party, x, drop, bits)
    return [times_masked(party, value, term) for term in weight.terms()]


def empty(shape: tuple[int, ...], like: Array) -> Array:
    """Room for words where others lie, or a Blank while planning."""
    return Blank(shape) if isinstance(like, Blank) else empty_beside(shape, like)


def transformed(x: Share, size: int, outputs: int, more: Sequence[Share] = ()) -> Share:
    """H x along the last axis: padded to `size`, first `outputs` kept; plus H P_t x_t for `more` terms. Local."""
    *rows, width = x.shape
    if width < size or more:
        padded = empty((*rows, size), x.words)
        padded[..., :width] = x.words
        padded[..., width:] = 0
        for term, other in enumerate(more, 1):
            padded[..., constant_beside(np.arange(width) ^ term, padded)] += other.words
        made = walsh_hadamard(padded, padded)
    else:
        made = walsh_hadamard(x.words)
    return Share(made if outputs == size else made[..., :outputs], x.scale, x.bits)


def price(rows: int, units: int, phase_bits: int, terms: int = 1) -> Price:
    """The fused layer."""
    return Price(1, packed_size(rows * units, phase_bits), 16 * (1 + terms) * rows * units, ("fused_trig",))


def lifted_price(rows: int, units: int, bits: int, terms: int = 1) -> Price:
    count = rows * units
    offline = 8 * terms * count + (2 + terms) * packed_size(count, 64 - bits)
    return Price(1, packed_size(count, bits), offline, ("rounding_mask", *["lifted_times_mask"] * terms))
