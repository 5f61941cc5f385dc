"""The paper's Algorithm 1 as printed: cosine of a shared angle in two rounds. The reference.

Computes  [x] -> [cos x]. Angles are in turns; one turn is 2**x.scale ring units.
Offline   two Beaver triples per element.
Online    2 rounds: a 32-byte seed, then 32 bytes per element, each way.
Error     |error| <= 1.5 / 2**28 + 4 pi / 2**28: each party rounds its own angle, cosine and sine.
Security  step 2 sends a PRG seed that is independent of the secret; step 3 opens cos x_i and sin x_i under
          fresh Beaver masks, uniform in the ring.

1. Each party computes cos x_i and sin x_i of its own share.
2. Each shares both with the other: the share it gives away is expanded from a fresh seed, so the seed is sent.
3. Beaver products cos x_0 cos x_1 and sin x_0 sin x_1.
4. cos(x_0 + x_1) is their difference.
"""

from __future__ import annotations

from math import pi, prod

import numpy as np

from hdcos.errors import InputError
from hdcos.protocol.masked import multiply
from hdcos.protocol.party import Party
from hdcos.protocol.rounds import Price, Rounds, swap, together
from hdcos.ring import packed_size, round_open, trig_words
from hdcos.ring.device import beside
from hdcos.sharing import SEED_BYTES, Share, fresh_seed
from hdcos.sharing.prg import expand

LOCAL_BITS = 28
SCALE = 28


def cos_paper(party: Party, x: Share) -> Rounds[Share]:
    """Two rounds; `cosine.cos` does it in one."""
    if x.scale < LOCAL_BITS:
        raise InputError(f"an angle at scale {x.scale} has fewer than {LOCAL_BITS} bits to a turn")
    # 1. local computation
    phase = round_open(x.words, None, x.scale - LOCAL_BITS, LOCAL_BITS)
    cos_i, sin_i = trig_words(phase, LOCAL_BITS, SCALE)
    # 2. exchange: the peer's share of my values is the expansion of my seed
    seed = np.frombuffer(fresh_seed(), np.uint8)
    peer_seed = yield from swap(seed, 8)
    shape = (2, *x.shape)
    given, received = (beside(expand(each, shape), x.words) for each in (seed, peer_seed))
    mine = [
        Share(cos_i.astype(np.uint64, copy=False) - given[0], SCALE),
        Share(sin_i.astype(np.uint64, copy=False) - given[1], SCALE),
    ]
    theirs = [Share(received[0], SCALE), Share(received[1], SCALE)]
    (cos_0, sin_0), (cos_1, sin_1) = (mine, theirs) if party.rank == 0 else (theirs, mine)
    # 3. multiplication
    cos_cos, sin_sin = yield from together(multiply(party, cos_0, cos_1), multiply(party, sin_0, sin_1))
    # 4. final computation
    result: Share = cos_cos - sin_sin
    return result


def error_bound() -> float:
    """The largest error: two local angles rounded to half a step, four factors to half a unit."""
    return float(4 * pi / 2**LOCAL_BITS + 1.5 / 2**SCALE)


def price(shape: tuple[int, ...]) -> Price:
    count = prod(shape)
    material = ("mask",) * 4 + ("mask_product",) * 2
    return Price(2, SEED_BYTES + 4 * packed_size(count, 64), 2 * packed_size(count, 64), material)
