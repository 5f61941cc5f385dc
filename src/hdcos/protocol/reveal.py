"""Open a shared value to both parties.

Computes  [x] -> x.
Offline   nothing.
Online    1 round, x.bits per element each way.
Error     none.
Security  both parties learn x, and nothing else: given x, the peer's share is determined by one's own. Only
          for values that are meant to be public, to the last bit: the low bits of an approximate result are noise
          that depends on masks, so such a result is rounded to well above its noise first.
"""

from __future__ import annotations

from math import prod

import numpy as np

from hdcos.protocol.party import Party
from hdcos.protocol.rounds import Price, Rounds, joined
from hdcos.ring import compact_dtype, modulo, packed_size
from hdcos.sharing import Public, Share


def reveal(party: Party, x: Share) -> Rounds[Public]:
    """The secret itself, as words modulo 2**x.bits."""
    mine = modulo(x.words, x.bits).astype(compact_dtype(x.bits))
    opened = yield from joined(mine, x.bits)
    return Public(opened.astype(np.uint64, copy=False), x.scale)


def price(shape: tuple[int, ...], bits: int = 64) -> Price:
    return Price(rounds=1, online_bytes=packed_size(prod(shape), bits))
