"""Request ids that were used lately, in memory that never grows.

A table of 16,384 rows with the hashes of the newest eight ids of each: one megabyte from the first request to the
billionth, and about the last 100,000 ids are known. A set of as many strings takes 26 MB, and takes them little by
little: a party then seems to leak for as long as anybody watches. Python salts its hashes, so nobody can choose an id
that another client's falls together with; two do by chance once in 10**14 requests.
"""

from __future__ import annotations

import numpy as np

from hdcos.ring import Array

ROWS, WAYS = 1 << 14, 8


class Remembered:
    """Which ids came before."""

    def __init__(self) -> None:
        self._table = np.full((ROWS, WAYS), 0, np.uint64)

    def __contains__(self, number: str) -> bool:
        row, tag = self._place(number)
        return tag in row

    def add(self, number: str) -> None:
        """The oldest of its row gives way."""
        row, tag = self._place(number)
        row[1:] = row[:-1]
        row[0] = tag

    def _place(self, number: str) -> tuple[Array, np.uint64]:
        value = hash(number) & (1 << 64) - 1
        return self._table[value % ROWS], np.uint64(value)
