"""Whole numbers of 512 bits as additive shares: for sums over owners that must not lose a digit.

Computes  a signed number v -> (r, v - r) modulo 2**512, r uniform; the sum of both shares gives v back. Shares of
          several owners are added number by number, at each party alone.
Security  either share alone is uniform, whatever the number is. Given the total, the two sums of shares say nothing
          else: the first is a sum of uniform numbers of which any one owner knows its own alone, and the second is what
          is left to the total.

A number is eight words of 64 bits, the lowest first. Parties that add carry from word to word: sums of single words,
added apart, would tell more of the numbers than their total does.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

import numpy as np

from hdcos.errors import InputError
from hdcos.ring import Array

WORDS = 8
BITS = 64 * WORDS
_MODULUS = 1 << BITS


def split_wide(numbers: Sequence[int]) -> tuple[Array, Array]:
    """Both parties' shares of numbers, which must be smaller in size than 2**511."""
    if any(not -(_MODULUS >> 1) <= number < _MODULUS >> 1 for number in numbers):
        raise InputError(f"a number does not fit {BITS} bits")
    first = np.frombuffer(os.urandom(8 * WORDS * len(numbers)), "<u8").astype(np.uint64).reshape(-1, WORDS)
    return first, _to_words([number - mask for number, mask in zip(numbers, _to_numbers(first), strict=True)])


def add_wide(shares: Iterable[Array]) -> Array:
    """The sum of several owners' shares, at one party."""
    return _to_words([sum(column) for column in zip(*map(_to_numbers, shares), strict=True)])


def join_wide(share0: Array, share1: Array) -> list[int]:
    """The signed numbers that two shares are of."""
    if share0.shape != share1.shape:
        raise InputError(f"the two shares have shapes {share0.shape} and {share1.shape}")
    sums = [(zero + one) % _MODULUS for zero, one in zip(_to_numbers(share0), _to_numbers(share1), strict=True)]
    return [number - _MODULUS if number >= _MODULUS >> 1 else number for number in sums]


def check_wide(words: Array | None, numbers: int) -> Array:
    """A share of this many numbers, as it came from outside."""
    if words is None or words.dtype != np.uint64 or words.shape != (numbers, WORDS):
        raise InputError(f"a share of {numbers} numbers has {numbers} rows of {WORDS} words of 64 bits")
    return words


def _to_numbers(words: Array) -> list[int]:
    return [int.from_bytes(row.tobytes(), "little") for row in np.ascontiguousarray(words, dtype="<u8")]


def _to_words(numbers: Sequence[int]) -> Array:
    content = b"".join((number % _MODULUS).to_bytes(8 * WORDS, "little") for number in numbers)
    return np.frombuffer(content, "<u8").astype(np.uint64).reshape(-1, WORDS)
