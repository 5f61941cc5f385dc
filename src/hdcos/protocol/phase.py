"""A phase that was opened for a cosine and is kept, because a backward pass multiplies by its sine.

Computes  [y] in turns -> d = y - r, with shares of cos r and sin r, and of their products with a weight's mask.
Offline   one TrigPair per unit, or one FusedTrig where a Hadamard-Diagonal layer follows.
Online    1 round, `bits` per unit each way.
Security  the only message is this party's share of d = y - r modulo one turn; r is uniform there and used once.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hdcos.offline import FusedTrig, Reference, TrigPair
from hdcos.offline.kinds import Shape
from hdcos.protocol.masked import Masked
from hdcos.protocol.party import Openable, Party
from hdcos.protocol.rounds import Rounds
from hdcos.ring import Array, spread, trig_combine
from hdcos.sharing import Share


@dataclass(frozen=True, eq=False)
class Phase:
    """An opened phase d = y - r with this party's shares of cos r and sin r, both at `scale`."""

    d: Array = field(repr=False)
    cos_r: Array = field(repr=False)
    sin_r: Array = field(repr=False)
    bits: int
    scale: int
    reference: Reference

    def combined(self, cos: Array, sin: Array, cos_factor: int, sin_factor: int, shift: int) -> Array:
        """a (cos y) v + b (sin y) v from [v cos r] and [v sin r], with public integers a and b over 2**shift."""
        words: Array = trig_combine(
            self.d,
            cos[..., None],
            sin[..., None],
            self.bits,
            self.scale,
            [cos_factor],
            [sin_factor],
            [1],
            coefficient_shift=shift,
        )
        return words


@dataclass(frozen=True, eq=False)
class FusedPhase(Phase):
    """A phase with this party's shares of m_w cos r and m_w sin r, for the mask m_w of the next layer's weight."""

    weight_cos: Array = field(repr=False)
    weight_sin: Array = field(repr=False)

    def weight_terms(self, weight: Masked, pool: Shape = ()) -> tuple[Array, Array, Array]:
        """What makes [w cos r] = D_w [cos r] - [m_w cos r], and the sine alike: D_w and the two products."""
        return spread(weight.opened, pool), self.weight_cos, self.weight_sin


def open_phase(party: Party, y: Share, bits: int, scale: int) -> Rounds[Phase]:
    """The phase of turns, for a cosine that is used as a share."""
    reference = party.next_reference()
    minus_r, cos_r, sin_r = party.take(TrigPair(y.shape[1:], bits, scale), len(y))
    d = yield from party.open(y, minus_r, y.scale - bits, bits)
    return Phase(d, cos_r, sin_r, bits, scale, reference)


def open_fused_phase(
    party: Party, y: Openable, weight: Reference, bits: int, scale: int, pool: Shape = ()
) -> Rounds[FusedPhase]:
    """The phase of turns, with material for its product with the next layer's weight."""
    reference = party.next_reference()
    minus_r, cos_r, sin_r, weight_cos, weight_sin = party.take(
        FusedTrig(y.shape[1:], bits, scale, weight, pool), y.shape[0]
    )
    d = yield from party.open(y, minus_r, y.scale - bits, bits)
    return FusedPhase(d, cos_r, sin_r, bits, scale, reference, weight_cos, weight_sin)
