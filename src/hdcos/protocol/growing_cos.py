"""The growing cosine unit x * cos x of a shared value, in one round.

Computes  [x] in radians -> [x cos x]; or [x] in turns -> [x cos 2 pi x].
Offline   one GrowingTrig per element: a mask of x that can be lifted, a trig pair, and their products.
Online    1 round, `bits` for x and `phase_bits` for its phase, each way.
Error     |x| times the cosine's error, and one unit of x's opened scale. |x| < 2**(drop + bits - 2) ring units.
Security  two openings of the same x under independent masks: D = x / 2**drop + m modulo 2**bits and d = x - r
          modulo one turn. (m, r) is uniform in the product group and used once, so (D, d) is uniform whatever x is.

With D lifted, x = E - m + t b where E = D - 2**(bits-2) and t are public (see opening), and
x cos x = cos d (E C - [m C] + t [b C]) - sin d (E S - [m S] + t [b S]) with C = cos r, S = sin r.
"""

from __future__ import annotations

from math import prod

from hdcos.offline import GrowingTrig
from hdcos.protocol.cosine import PHASE_BITS, even, to_turns
from hdcos.protocol.opening import open_liftable
from hdcos.protocol.party import Party
from hdcos.protocol.rounds import Price, Rounds, together
from hdcos.ring import Array, packed_size, rotate, table_phase
from hdcos.sharing import Share

INPUT_SCALE, TRIG_SCALE = 16, 18


def growing_cos(
    party: Party, x: Share, drop: int = 0, bits: int = 32, phase_bits: int = PHASE_BITS, trig_scale: int = TRIG_SCALE
) -> Rounds[Share]:
    """x * cos x for x in radians, at scale x.scale - drop + 2 * trig_scale."""
    return (yield from growing_cos_turns(party, x, to_turns(x), drop, bits, phase_bits, trig_scale))


def growing_cos_turns(
    party: Party, x: Share, turns: Share, drop: int, bits: int, phase_bits: int, trig_scale: int
) -> Rounds[Share]:
    """x * cos(2 pi turns); in a network x and turns are one share, and the next weights bring the factor 2 pi."""
    phase, looked_up, _, _, A, B = yield from _open(party, x, turns, drop, bits, phase_bits, trig_scale)
    words, _ = rotate(phase, A, B, looked_up, trig_scale, sine=False)
    return Share(words, x.scale - drop + 2 * trig_scale)


def growing_cos_parts(
    party: Party, x: Share, drop: int, bits: int, phase_bits: int, trig_scale: int
) -> Rounds[tuple[Share, Share, Share]]:
    """x cos(2 pi x), x sin(2 pi x) and cos(2 pi x) for x in turns: what a derivative is made of."""
    phase, looked_up, cos_r, sin_r, A, B = yield from _open(party, x, x, drop, bits, phase_bits, trig_scale)
    scale = x.scale - drop + 2 * trig_scale
    x_cos, x_sin = rotate(phase, A, B, looked_up, trig_scale)
    cos, _ = rotate(phase, cos_r, sin_r, looked_up, trig_scale, sine=False)
    return Share(x_cos, scale), Share(x_sin, scale), Share(cos, 2 * trig_scale)


def _open(
    party: Party, x: Share, turns: Share, drop: int, bits: int, phase_bits: int, trig_scale: int
) -> Rounds[tuple[Array, int, Array, Array, Array, Array]]:
    """A phase d as tables take it and its bits there, with [cos r], [sin r], A = [x cos r] and B = [x sin r]."""
    kind = GrowingTrig(x.shape[1:], bits, phase_bits, trig_scale)
    mask, phase, cos_r, sin_r, m_cos, m_sin, b_cos, b_sin = party.take(kind, len(x))
    (E, t), d = yield from together(
        open_liftable(party, x, mask, drop, bits),
        party.open(turns, phase, turns.scale - phase_bits, phase_bits),
    )
    return *table_phase(d, phase_bits), cos_r, sin_r, E * cos_r - m_cos + t * b_cos, E * sin_r - m_sin + t * b_sin


def error_bound(reach: float, drop: int, phase_bits: int) -> float:
    """The largest error of x cos x for |x| <= reach with INPUT_SCALE fraction bits, cosines from either source."""
    precision = even(phase_bits, TRIG_SCALE)
    return reach * (precision.angle + precision.rounding) + (2.0 ** (drop - INPUT_SCALE) if drop else 0.0)


def price(shape: tuple[int, ...], drop: int = 0, bits: int = 32, phase_bits: int = PHASE_BITS) -> Price:
    count = prod(shape)
    return Price(1, packed_size(count, bits) + packed_size(count, phase_bits), 48 * count, ("growing_trig",))
