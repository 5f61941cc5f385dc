"""A random order of 0 .. size - 1 that is never written down: any part of it is computed when it is asked for.

A Feistel network: with side = ceil(sqrt(size)) a place is a pair of numbers below side, and every round replaces
(l, r) by (r, l + f(r) modulo side), which can be undone whatever f is. The f of each round is a table of random
numbers. There are hardly more than size such pairs; what falls on one beyond size goes through the rounds again until
it does not, which keeps it a permutation.

Memory is that of ROUNDS tables, side numbers each: 200 kB for 10^7 places and 2 MB for 10^9, where a list would take
40 MB and 4 GB. Not every order can come, which would matter where places are few.
"""

from __future__ import annotations

from math import isqrt
from typing import Any

import numpy as np

from hdcos.ring import Array

ROUNDS = 8


class Permutation:
    """The order that this key draws."""

    def __init__(self, key: list[int], size: int) -> None:
        self._size, self._side = size, isqrt(size - 1) + 1
        self._tables = np.random.default_rng(key).integers(0, self._side, (ROUNDS, self._side), np.uint64)

    @staticmethod
    def words(size: int) -> int:
        """What it takes in memory."""
        return ROUNDS * (isqrt(size - 1) + 1)

    def at(self, places: Array) -> Array:
        """The numbers at these places of the order."""
        found = self._once(places.astype(np.uint64))
        while (beyond := found >= self._size).any():
            found[beyond] = self._once(found[beyond])
        return found.astype(np.int64)

    def _once(self, places: Array) -> Array:
        side: Any = np.uint64(self._side)
        left, right = np.divmod(places, side)
        for table in self._tables:
            total = left + table[right]
            left, right = right, np.minimum(total, total - side)  # below side it wraps to a huge number
        found: Array = left * side + right
        return found
