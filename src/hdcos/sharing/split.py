"""Splitting a secret into two shares, joining them, and refreshing shares before they leave.

Computes  words -> (seed, words - expand(seed)); the sum of both shares gives the words back.
Security  either share alone is uniform: the first is a PRG output, the second is masked by it. The first share
          travels as its 32-byte seed. Refreshing adds a sharing of zero that the receiver cannot predict, so
          that a share that leaves the pair says nothing about how it was computed.
"""

from __future__ import annotations

import numpy as np

from hdcos.errors import InputError
from hdcos.ring import Array, modulo
from hdcos.sharing.prg import Stream, derive, fresh_seed
from hdcos.sharing.share import Share


def split(words: Array) -> tuple[bytes, Array]:
    """Party 0's share as a fresh seed, party 1's share as words."""
    seed = fresh_seed()
    return seed, words - Stream(seed).words(tuple(words.shape))


def join(share0: Array, share1: Array, bits: int = 64) -> Array:
    """The secret words, modulo 2**bits."""
    if share0.shape != share1.shape:
        raise InputError(f"the two shares have shapes {share0.shape} and {share1.shape}")
    total: Array = modulo(share0.astype(np.uint64) + share1.astype(np.uint64), bits)
    return total


def refresh(share: Share, rank: int, pair_seed: bytes, address: str) -> Share:
    """Add the sharing of zero at a fresh address, from the seed only the two parties know."""
    zero = Stream(derive(pair_seed, "refresh", address)).words(share.shape)
    return Share(share.words + zero if rank == 0 else share.words - zero, share.scale, share.bits)
