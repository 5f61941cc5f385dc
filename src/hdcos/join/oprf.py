"""An oblivious pseudorandom function, one for each bin of a table (Kolesnikov, Kumaresan, Rosulek, Trieu, CCS 2016).

Computes  the receiver's items x_j, one for each bin j -> values F_j(x_j) for the receiver; the sender can compute
          F_j(y) for any bin j and item y.
Online    512 base transfers; then 64 bytes for each bin from the receiver.
Security  base transfers give the receiver 512 pairs of seeds and the sender one of each pair, chosen by its secret s.
          The receiver sends u_j = t_j + t'_j + C(x_j), rows of the streams of both seeds (sums are XOR). To the sender
          one of t and t' is a stream whose seed it lacks, in every bit: u_j is uniform whatever x_j is. The receiver
          sees nothing here. It would know F_j(y) of another item only if it knew t_j + (s and (C(x_j) + C(y))): it
          lacks the bits of s where the code words differ. Code words are an item under AES with four public keys of
          the session; two of them differ in fewer than 128 of 512 bits with a chance of 2^-97, so that among 2^41
          pairs, those of 10^6 items with 10^6, none does, but for a chance of 2^-56. F hashes with BLAKE2b, modelled
          as a random function.

q_j = t_j + (s and C(x_j)) at the sender, so q_j + (s and C(y)) = t_j exactly where C(y) = C(x_j).

Every bin is used once: `first` counts them, and a session has one table.
"""

from __future__ import annotations

import hashlib
import os
from functools import cache
from typing import Any

import numpy as np

from hdcos.errors import FrameError
from hdcos.join import reference
from hdcos.join.reference import GROUP, ITEM_BYTES, ROW_BITS, ROW_BYTES, VALUE_BYTES
from hdcos.offline.ot.base import POINT_BYTES, BaseReceiver, BaseSender
from hdcos.offline.ot.session import loops as transfer_loops
from hdcos.ring import Array

SESSION_BYTES = 32
_GROUPS = ROW_BITS // GROUP
SENDER_BYTES, RECEIVER_BYTES = 2 * POINT_BYTES * ROW_BITS, POINT_BYTES * _GROUPS
"""Of the base transfers: what the sender and the receiver of the function send."""


@cache
def loops() -> Any:
    """The hot loops: compiled with AES instructions, else the reference; HDCOS_KERNELS may choose it."""
    if transfer_loops().__name__.endswith("reference"):
        return reference
    import hdcos.ring._native as compiled

    return compiled.oprf


def hash_rows(rows: Array, numbers: Array, session: bytes, what: str, size: int) -> Array:
    """Hashes that belong to one session, with a name for what they are for."""
    hashed: Array = loops().hash_rows(np.ascontiguousarray(rows), numbers, _bytes(session), _person(what), size)
    return hashed


class Receiver:
    """Has an item in each bin, and learns its value."""

    def __init__(self, session: bytes) -> None:
        self._session = session
        self._bases = [BaseSender(name, GROUP) for name in _names(session)]
        self._zero = self._one = self._code = np.empty(0, np.uint8)
        self.message = b"".join(base.message for base in self._bases)

    def start(self, answer: bytes) -> None:
        """With what the sender sent for the base transfers."""
        size = len(answer) // _GROUPS
        pairs = [pair for i, base in enumerate(self._bases) for pair in base.keys(answer[i * size : (i + 1) * size])]
        self._zero, self._one = (_schedules([pair[c] for pair in pairs]) for c in (0, 1))
        self._code = _code(self._session)

    def rows(self, items: Array, first: int) -> tuple[Array, Array]:
        """Rows to send for bins from `first` on, and their values. Any thread may ask."""
        t, u = loops().mask(self._zero, self._one, self._code, np.ascontiguousarray(items), first // GROUP)
        bins = np.arange(first, first + len(items), dtype=np.uint64)
        return u, hash_rows(t, bins, self._session, "value", VALUE_BYTES)


class Sender:
    """Computes the value of any item in any bin."""

    def __init__(self, session: bytes) -> None:
        self._session, self._secret = session, np.frombuffer(os.urandom(ROW_BYTES), np.uint8)
        choices = np.unpackbits(self._secret, bitorder="little").reshape(_GROUPS, GROUP).tolist()
        self._bases = [BaseReceiver(name, mine) for name, mine in zip(_names(session), choices, strict=True)]
        self._seeds = self._code = np.empty(0, np.uint8)
        self.message = b"".join(base.message for base in self._bases)

    def start(self, answer: bytes) -> None:
        """With what the receiver sent for the base transfers."""
        points = [answer[at : at + POINT_BYTES] for at in range(0, RECEIVER_BYTES, POINT_BYTES)]
        keys = [key for base, point in zip(self._bases, points, strict=True) for key in base.keys(point)]
        self._seeds, self._code = _schedules(keys), _code(self._session)

    def rows(self, u: Array, first: int) -> Array:
        """The sender's rows for bins from `first` on."""
        if u.size % (GROUP * ROW_BYTES):
            raise FrameError(f"{u.size} bytes are not rows of {GROUP} bins each")
        q: Array = loops().unmask(self._seeds, self._secret, u.reshape(-1, ROW_BYTES), first // GROUP)
        return q

    def values(self, q: Array, items: Array, bins: Array) -> Array:
        """The values of items in bins, one each, from the rows of all bins. Any thread may ask."""
        arguments = (np.ascontiguousarray(items), np.ascontiguousarray(bins), _bytes(self._session), _person("value"))
        values: Array = loops().evaluate(q, self._secret, self._code, *arguments)
        return values


def _names(session: bytes) -> list[bytes]:
    """Of the base transfers, which number at most 256 each."""
    return [hashlib.sha256(b"hdcos join base %d" % group + session).digest() for group in range(_GROUPS)]


def _schedules(keys: list[bytes]) -> Array:
    made: Array = transfer_loops().key_schedule(np.frombuffer(b"".join(keys), np.uint8))
    return made


def _code(session: bytes) -> Array:
    """The four public keys of a session's code words."""
    digest = hashlib.sha512(b"hdcos join code" + session).digest()
    return _schedules([digest[at : at + ITEM_BYTES] for at in range(0, len(digest), ITEM_BYTES)])


def _bytes(content: bytes) -> Array:
    return np.frombuffer(content, np.uint8)


def _person(what: str) -> Array:
    return _bytes(f"hdcos.{what}".encode().ljust(16, b"\0"))
