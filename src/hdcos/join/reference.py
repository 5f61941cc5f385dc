"""The loops of a private join in NumPy, `hashlib` and `cryptography`: the specification, and the fallback.

Streams are AES-128 of a counter, counters as little-endian numbers, as in `hdcos.offline.ot`; bits of a byte count from
the lowest. Hashes are BLAKE2b of what is hashed and a salt of 32 bytes, `person` says what for.
"""

from __future__ import annotations

import hashlib

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from hdcos.ring import Array

ROW_BITS = 512
ROW_BYTES = ROW_BITS // 8
ITEM_BYTES = 16
VALUE_BYTES = 12
GROUP = 128
"""Rows that one counter gives."""
_WORD = (1 << 64) - 1


def mask(zero: Array, one: Array, code: Array, items: Array, first: int) -> tuple[Array, Array]:
    """Rows t of the first streams, and u = t + rows of the other streams + code words of the items."""
    t = _rows(zero, first, len(items))
    return t, t ^ _rows(one, first, len(items)) ^ code_words(code, items)


def unmask(seeds: Array, secret: Array, u: Array, first: int) -> Array:
    """Rows q of the streams that are known here + (secret and u)."""
    q: Array = _rows(seeds, first, len(u)) ^ (u & secret)
    return q


def evaluate(q: Array, secret: Array, code: Array, items: Array, bins: Array, salt: Array, person: Array) -> Array:
    """The values of items in bins."""
    rows = q[bins.astype(np.intp)] ^ (code_words(code, items) & secret)
    return hash_rows(rows, bins, salt, person, VALUE_BYTES)


def hash_rows(rows: Array, numbers: Array, salt: Array, person: Array, size: int) -> Array:
    """The hash of each row; its number is the hash's own salt."""
    behind, named = salt.tobytes(), person.tobytes()
    hashes = [
        hashlib.blake2b(
            row.tobytes() + behind, digest_size=size, salt=int(number).to_bytes(16, "little"), person=named
        ).digest()
        for row, number in zip(rows, numbers, strict=True)
    ]
    return np.frombuffer(b"".join(hashes), np.uint8).reshape(len(rows), size)


def place(bins: Array, table: Array, seed: int, most: int) -> bool:
    """Each item into one of its three bins, none into a bin that is taken; False if `most` moves are not enough.

    An item whose bins are all taken takes one of them at random, and the item that was there moves on.
    """
    state = seed
    for first in range(len(bins)):
        item, moves = first, 0
        while True:
            free = [place for place in bins[item] if table[place] < 0]
            if free:
                table[free[0]] = item
                break
            if moves == most:
                return False
            state = state + 0x9E3779B97F4A7C15 & _WORD
            place = bins[item][_mixed(state) % 3]
            item, table[place] = int(table[place]), item
            moves += 1
    return True


def _mixed(z: int) -> int:
    """splitmix64."""
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & _WORD
    z = (z ^ z >> 27) * 0x94D049BB133111EB & _WORD
    return z ^ z >> 31


def code_words(code: Array, items: Array) -> Array:
    """512 bits for each item: the item under four public keys."""
    words = [_encrypt(key, items) for key in code]
    return np.concatenate([word.reshape(-1, ITEM_BYTES) for word in words], axis=1)


def _rows(keys: Array, first: int, count: int) -> Array:
    """Bit k of row i is bit i of the stream of key k."""
    counters = np.zeros((count // GROUP, 2), np.uint64)
    counters[:, 0] = np.arange(first, first + len(counters), dtype=np.uint64)
    streams = np.stack([_encrypt(key, counters) for key in keys])
    bits = np.unpackbits(streams, axis=1, bitorder="little")
    return np.packbits(np.ascontiguousarray(bits.T), axis=1, bitorder="little")


def _encrypt(key: Array, data: Array) -> Array:
    encryptor = Cipher(algorithms.AES(key.tobytes()), modes.ECB()).encryptor()
    return np.frombuffer(encryptor.update(np.ascontiguousarray(data).tobytes()), np.uint8)
