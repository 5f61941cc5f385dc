"""The gradient of a Hadamard-Diagonal layer that follows a cosine: from its opened gradient to the layer before.

Computes  x = g_u opened and lifted, the phase of y' and the masked weight w of the layer u = w cos y' ->
          [sum over rows of x], [sum over rows of a x cos y'] (the steps of bias and weight, a the learning rate) and
          [-2 pi sin(y') w x], the gradient by y', which is opened next, after the transform of its own layer. With
          terms u = sum of P_t (w_t cos y'), so that P_t x takes the place of x for the step and the weight of term t,
          and the gradients by y' add up. P_t only moves what was opened: x is opened once.
Offline   one LiftedTimesTrig with weight per unit and term: the products of m and b with cos r, sin r, m_w cos r,
          m_w sin r.
Online    no round of its own: it is computed as it is opened.
Security  nothing is sent here. Each product is a fresh sharing.

x C = E C - [m C] + t [b C]  for C = cos r and sin r, where x = E - m + t b (see lifted);
x w C = D_w x C - m_w x C,  m_w x C = E [m_w C] - [m m_w C] + t [b m_w C].

[m m_w C] was rounded to multiples of 2**k, k the bits that x was opened in. With tables of amplitude 2**9 after it and
a transform of n numbers, that is an error of 2**(k + 7) sqrt(n) rms where 2**40 is one unit of what is opened next: in
training 2**-9 sqrt(n) units, where the opening itself rounds by half a unit; with T terms sqrt(T) times as much.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from hdcos.offline import LiftedTimesTrig
from hdcos.offline.bilinear import as_rows
from hdcos.offline.material import Fields
from hdcos.protocol.cosine import FusedPhase
from hdcos.protocol.hadamard import transformed
from hdcos.protocol.lifted import LiftedRows
from hdcos.protocol.opening import Masked, lift_parts
from hdcos.protocol.party import Party
from hdcos.ring import Array, HadamardGradient, Opening, hadamard_back, lifted_times
from hdcos.ring.device import constant_beside
from hdcos.sharing import Share

Factor = tuple[int, int]
"""A public integer on a table of cosines or sines, and the bits it is rounded by."""


@dataclass(eq=False)
class FusedGradient:
    """Not computed yet: opening it, or taking its share, does the work and leaves the two sums."""

    party: Party
    x: LiftedRows
    phase: FusedPhase
    weight: Masked
    dealt: Sequence[Fields] = field(repr=False)
    """Of each term."""
    step: Factor
    slope: Factor
    scale: int
    size: int = 0
    """Of the transform that comes before the opening."""
    bits: int = 64
    total: Array | None = field(default=None, repr=False)
    moved: Array | None = field(default=None, repr=False)

    @property
    def shape(self) -> tuple[int, ...]:
        return (int(self.phase.d.shape[0]), self.size)

    @property
    def words(self) -> Array:
        """What is opened, before it is rounded."""
        return transformed(self.share(), self.size, self.size).words

    def share(self) -> Share:
        """The gradient by y'."""
        x = self.x
        E, t = lift_parts(x.D, x.bits)
        lifted = t * x.b + E if self.party.rank == 0 else t * x.b
        self.total = lifted.sum(axis=0, dtype=np.uint64) - x.m_total
        words, steps = zip(*(self._term(term, E, t) for term in range(len(self.dealt))), strict=True)
        self.moved = as_rows(steps)
        total = words[0]
        for more in words[1:]:
            total = total + more
        return Share(total, self.scale)

    def _term(self, term: int, E: Array, t: Array) -> tuple[Array, Array]:
        """What one term adds to the gradient by y', and the step of its weight."""
        phase, weight = self.phase, self.weight.terms()[term].opened
        places = constant_beside(np.arange(phase.d.shape[1]) ^ term, E)
        E, t = E[:, places], t[:, places]

        def times(factor: Array, m_factor: Array, b_factor: Array) -> Array:
            words: Array = lifted_times(E, t, factor, m_factor, b_factor)
            return words

        m_cos, b_cos, m_sin, b_sin, m_wcos, b_wcos, m_wsin, b_wsin = self.dealt[term]
        up, (weight_cos, weight_sin) = np.uint64(self.x.bits), phase.products[2 * term : 2 * term + 2]
        cos, sin = times(phase.cos_r, m_cos, b_cos), times(phase.sin_r, m_sin, b_sin)
        w_cos = weight * cos - times(weight_cos, m_wcos << up, b_wcos)
        w_sin = weight * sin - times(weight_sin, m_wsin << up, b_wsin)
        step = phase.combine(cos, sin, self.step[0], 0, self.step[1]).sum(axis=0, dtype=np.uint64)
        return phase.combine(w_cos, w_sin, 0, *self.slope), step

    def round_open(self, opening: Opening) -> Array:
        """This share of the transformed gradient as it is sent: one pass over the material."""
        x, phase = self.x, self.phase
        terms = [phase.cos_r, phase.sin_r]
        for term, dealt in enumerate(self.dealt):
            terms += (*phase.products[2 * term : 2 * term + 2], *dealt)
        lifted = (x.D, x.b, x.bits, self.party.rank == 0)
        factors = (self.weight.opened, self.step, self.slope)
        gradient = HadamardGradient(*lifted, phase.d, terms, *factors, phase.bits, phase.scale, self.size)
        message: Array
        total, self.moved, message = hadamard_back(gradient, opening)
        self.total = total - x.m_total
        return message


def fused_gradient(
    party: Party, x: LiftedRows, phase: FusedPhase, weight: Masked, step: Factor, slope: Factor, slope_scale: int
) -> FusedGradient:
    """The gradient by y' at slope_scale over the scales of its factors; its material is taken now."""
    rows, *shape = phase.d.shape
    known, terms = (tuple(shape), x.reference, phase.reference, x.bits), len(phase.products) // 2
    dealt = [party.take(LiftedTimesTrig(*known, weight=True, term=term), rows) for term in range(terms)]
    return FusedGradient(
        party, x, phase, weight, dealt, step, slope, x.scale + phase.scale + weight.scale + slope_scale
    )
