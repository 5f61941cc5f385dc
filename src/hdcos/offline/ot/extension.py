"""Extended transfers: from 128 base transfers any number, at 4 bytes each (SoftSpokenOT, Roy, CRYPTO 2022, k = 4).

Computes  chooser's bits c_j -> rows t_j for the chooser and q_j = t_j + c_j delta for the other (sums are XOR), where
          delta, 128 bits, is the other's secret. Pads of correlated transfers are hashes of t_j and q_j, q_j + delta.
Online    one message: 32 bits per transfer from the chooser.
Security  delta is 32 numbers of 4 bits. For each the chooser has 16 seeds s_x and the other all but s_delta (see tree).
          The chooser sends d = c + u with u the sum of all 16 streams; to the other u is uniform, because it lacks
          one stream. So c stays hidden. The chooser sees nothing at all here; of pads it lacks those at t_j + delta
          (or at t_j where c_j = 1), hashes of inputs that differ from what it knows by a secret of 128 bits.
          Transfers are numbered from 0 in each session and direction and no number is ever used twice.

v = sum of x s_x and w = sum of (delta + x) s_x = v + delta u; with d, q = w + delta d = v + delta c and t = v.
"""

from __future__ import annotations

import numpy as np

from hdcos.errors import FrameError
from hdcos.offline.ot.kernels import loops
from hdcos.offline.ot.product import ALIGNED
from hdcos.offline.ot.tree import LEAVES
from hdcos.ring import Array

BLOCKS = 32
"""Groups of four base transfers: 128 bits of delta in all."""


class Chooser:
    """The side with the choice bits."""

    def __init__(self, seeds: Array) -> None:
        self._keys = loops().key_schedule(np.ascontiguousarray(seeds))
        self.used = 0

    def extend(self, bits: Array) -> tuple[Array, Array, int]:
        """Corrections to send, the rows t, and the number of the first transfer. `bits` are packed, 128 aligned."""
        counters, first = len(bits) * 8 // ALIGNED, self.used
        self.used += counters * ALIGNED
        u, v = loops().combine(self._keys, BLOCKS, first // ALIGNED, counters, True)
        u ^= bits
        return u.reshape(-1), loops().transpose(v), first


class Offerer:
    """The side with delta, whose messages are chosen from."""

    def __init__(self, delta: bytes, seeds: Array) -> None:
        """`seeds` (32, 16, 16): leaf x of tree i, of which leaf delta_i is unknown and never used."""
        self.delta = np.frombuffer(delta, np.uint8)
        nibbles = np.stack((self.delta & 15, self.delta >> 4), axis=1).reshape(BLOCKS)
        order = nibbles[:, None] ^ np.arange(LEAVES, dtype=np.uint8)
        turned = np.take_along_axis(seeds, order[:, :, None].astype(np.intp), axis=1)
        self._keys = loops().key_schedule(np.ascontiguousarray(turned))
        bits = np.unpackbits(self.delta, bitorder="little").reshape(BLOCKS, 4, 1)
        self._masks = np.uint8(0) - bits
        self.used = 0

    def extend(self, corrections: Array, transfers: int) -> tuple[Array, int]:
        """The rows q, and the number of the first transfer."""
        if corrections.size != transfers // ALIGNED * BLOCKS * ALIGNED // 8:
            raise FrameError(f"{corrections.size} bytes of corrections do not extend {transfers} transfers")
        counters, first = transfers // ALIGNED, self.used
        self.used += transfers
        _, w = loops().combine(self._keys, BLOCKS, first // ALIGNED, counters, False)
        d = corrections.reshape(BLOCKS, 1, -1)
        q = (w.reshape(BLOCKS, 4, -1) ^ (d & self._masks)).reshape(4 * BLOCKS, -1)
        return loops().transpose(q), first
