"""Cosine and sine of a random angle that nobody knows: the paper's Algorithm 1, moved offline.

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

from collections.abc import Sequence

import numpy as np

from hdcos.offline.kinds import ring_words
from hdcos.offline.ot.arrays import flat, stacked
from hdcos.offline.ot.terms import Maker, Rounds, ask, private
from hdcos.ring import Array, Blank, round_open, table_phase, trig_words
from hdcos.sharing.share import ring_word

GUARD_BITS = 3
SPARE_BITS = 7
"""Bits below the result's that products are computed with."""
MAX_SCALE = 30
"""Of the tables; sums of products at this scale still fit 64 bits."""


def cos_sin(
    maker: Maker, mask: Array, phase_bits: int, scale: int, harmonics: Sequence[int] = (1,)
) -> Rounds[tuple[Array, Array]]:
    """Shares of cos k r and sin k r for r = -mask; with several harmonics along a new last axis."""
    fine = min(scale + GUARD_BITS, MAX_SCALE)
    turn = mask.dtype.type((1 << phase_bits) - 1)
    r = (np.zeros((), mask.dtype) - mask) & turn
    if tuple(harmonics) != (1,):
        r = (r[..., None] * np.array(harmonics).astype(mask.dtype)) & turn
    r, phase_bits = table_phase(r, phase_bits)
    cos, sin = (_clipped(part, fine) for part in trig_words(flat(r, -1), phase_bits, fine))
    numbers = stacked(cos, sin)
    vectors = flat(stacked(cos, sin, np.uint64(0) - sin, cos), -1, 2)
    drop = 2 * fine - scale
    coarse = max(0, drop - SPARE_BITS)
    term = private(maker, numbers, vectors, fine + 1, 2 * fine + 3, fold=2, signed=True, coarse=coarse)
    (sums,) = yield from ask(term)
    lifted = yield from _rounded(maker, sums, drop - coarse, scale)
    return flat(lifted[:, 0], *r.shape), flat(lifted[:, 1], *r.shape)


def _clipped(part: Array, fine: int) -> Array:
    least: Array = np.minimum(part, np.int64((1 << fine) - 1))
    return least.astype(np.uint64) if isinstance(part, Blank) else least.view(np.uint64)


def _rounded(maker: Maker, sums: Array, drop: int, scale: int) -> Rounds[Array]:
    """Shares at `scale` in the whole ring, from shares of |x| <= 2**(drop + scale) + 2**drop with 3 bits to spare."""
    kept = scale + 3
    offset = (1 << scale) + 2
    keep = np.uint64((1 << kept) - 1)
    shares = ring_words(round_open(flat(sums, *sums.shape), None, drop, kept, ties_up=maker.rank == 0))
    if maker.rank == 0:
        shares = (shares + np.uint64(offset)) & keep
    tops = flat(shares >> np.uint64(kept - 1), -1)
    (both,) = yield from ask(private(maker, tops, tops.reshape(-1, 1), 1, 64 - kept))
    wraps = tops - flat(both, -1)
    lifted: Array = shares - (flat(wraps, *shares.shape) << np.uint64(kept))
    return lifted - ring_word(offset) if maker.rank == 0 else lifted
