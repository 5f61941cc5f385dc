"""Splitting a secret into two halves, joining them, and refreshing halves before they leave.

Computes  words -> (seed, words - expand(seed)); the sum of both halves gives the words back.
Security  either half alone is uniform: the first is a PRG output, the second is masked by it. The first half
          travels as its 32-byte seed. Refreshing adds a sharing of zero that the receiver cannot predict, so
          that a half that leaves the pair says nothing about how it was computed.
"""

from __future__ import annotations

import numpy as np

from hdcos.errors import InputError
from hdcos.ring import Array, modulo
from hdcos.sharing.prg import Stream, derive, fresh_seed
from hdcos.sharing.share import Share


def split(words: Array) -> tuple[bytes, Array]:
    """Party 0's half as a fresh seed, party 1's half as words."""
    seed = fresh_seed()
    return seed, words - Stream(seed).words(tuple(words.shape))


def join(half0: Array, half1: Array, bits: int = 64) -> Array:
    """The secret words, modulo 2**bits."""
    if half0.shape != half1.shape:
        raise InputError(f"the two halves have shapes {half0.shape} and {half1.shape}")
    total: Array = modulo(half0.astype(np.uint64) + half1.astype(np.uint64), bits)
    return total


def refresh(share: Share, rank: int, pair_seed: bytes, address: str) -> Share:
    """Add the sharing of zero at a fresh address, from the seed only the two parties know."""
    zero = Stream(derive(pair_seed, "refresh", address)).words(share.shape)
    return Share(share.words + zero if rank == 0 else share.words - zero, share.scale, share.bits)
