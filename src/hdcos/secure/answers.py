"""What an answer looks like as it leaves a party: with noise that only this party knows, rounded.

Computes  this party's share of a result at scale s -> its share at OUTPUT_SCALE.
Error     |error| <= LARGEST_NOISE: two parties' noise of up to 2**-9 each, and the rounding. The standard deviation of
          both parties' noise together is 8e-4.
Security  the error of an answer before the noise is a function of openings, which each party sees, and of the model's
          secrets; averages of many answers would tell a party that is also a client about them. The other party's
          noise, fresh for every answer and seen by nobody else, must be averaged away first. Rounding alone does not
          help: its thresholds are known. docs/security.md has the number of queries that this takes.
"""

from __future__ import annotations

import numpy as np

from hdcos.ring import Array, Opening, centred_sum
from hdcos.secure.layout import OUTPUT_SCALE
from hdcos.sharing import Share, Stream, fresh_seed

NOISE_SCALE = 10
"""A party's noise is the sum of four numbers that are uniform over 2**-10."""
NOISE_BITS = 16
LARGEST_NOISE = 2 * 2.0 ** (1 - NOISE_SCALE) + 2.0**-OUTPUT_SCALE


def answer(result: Share, rank: int) -> tuple[int, int, Array]:
    """The scale, the bits and the words of this party's share of a result, with noise of its own, rounded."""
    noisy = Share(result.words + noise(result.shape, result.scale), result.scale, result.bits)
    return round_answer(noisy, OUTPUT_SCALE, rank)


def round_answer(result: Share, scale: int, rank: int) -> tuple[int, int, Array]:
    """The scale, the bits and the words of a share as it leaves: at `scale` at most, rounded."""
    drop = max(0, result.scale - scale)
    bits = result.bits - drop
    return result.scale - drop, bits, result.round_open(Opening(None, drop, bits, rank == 0))


def noise(shape: tuple[int, ...], scale: int) -> Array:
    """Fresh noise at a scale, as ring words: standard deviation 0.58 / 2**10, mean zero, at most 2**-9."""
    total = centred_sum(Stream(fresh_seed()).words(shape), NOISE_BITS)
    shift = scale - NOISE_SCALE - NOISE_BITS
    return (total << shift if shift >= 0 else total >> -shift).view(np.uint64)
