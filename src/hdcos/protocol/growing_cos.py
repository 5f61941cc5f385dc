"""The growing cosine unit x * cos x of a shared value, in one round.

Computes  [x] in radians -> [x cos x].
Offline   per element a Mask m, a TrigPair, and [m cos r], [m sin r].
Online    1 round, 8 bytes for x and `phase_bits` for its phase, each way.
Error     |x| times the cosine's error.
Security  two openings of the same x under independent masks: D = x + m in Z_2^64 and d = x - r modulo one turn.
          (m, r) is uniform in the product group and used once, so (D, d) is uniform whatever x is.

x cos x = (D - m)(cos d C - sin d S) = cos d (D C - [m C]) - sin d (D S - [m S]).
"""

from __future__ import annotations

from math import prod

from hdcos.offline import MaskTimesTrig
from hdcos.protocol.cosine import PHASE_BITS, open_phase, to_turns, trig_scale
from hdcos.protocol.opening import open_masked
from hdcos.protocol.party import Party
from hdcos.protocol.price import Price, packed
from hdcos.protocol.rounds import Rounds, together
from hdcos.ring import rotate
from hdcos.sharing import Share


def growing_cos(party: Party, x: Share, phase_bits: int = PHASE_BITS) -> Rounds[Share]:
    """x * cos x, at scale x.scale + 2 * trig_scale(phase_bits)."""
    scale = trig_scale(phase_bits)
    mask_address = party.next_reference()
    opening = open_masked(party, x)
    phase = open_phase(party, to_turns(x), phase_bits, scale)
    masked, (d, cos_r, sin_r) = yield from together(opening, phase)
    trig_address = type(mask_address)(mask_address.position + 1)
    m_cos, m_sin = party.take(MaskTimesTrig(x.shape[1:], mask_address, trig_address), len(x))
    A = masked.opened * cos_r - m_cos
    B = masked.opened * sin_r - m_sin
    words, _ = rotate(d, A, B, phase_bits, scale, sine=False)
    return Share(words, x.scale + 2 * scale)


def price(shape: tuple[int, ...], phase_bits: int = PHASE_BITS) -> Price:
    count = prod(shape)
    online = packed(count, 64) + packed(count, phase_bits)
    return Price(1, online, 32 * count, ("mask", "trig_pair", "mask_times_trig"))
