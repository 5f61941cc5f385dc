"""Pseudo-random ring words from a 32-byte seed: AES-256 in counter mode.

Computes  seed -> an endless stream of words, the same on every host, readable from any offset.
Security  seeds come from the operating system; derived seeds from BLAKE2b keyed with their parent. Without
          the seed the stream is indistinguishable from uniform words. One seed feeds one
          stream, and no offset of it may be used twice: the callers' addresses see to that.
"""

from __future__ import annotations

import hashlib
import os
from functools import cache
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from hdcos.errors import InputError
from hdcos.ring import Array, Blank, compact_dtype, streaming

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers import CipherContext

SEED_BYTES = 32
_BLOCK_BYTES = 16
_ZEROS = memoryview(bytes(1 << 20))


def fresh_seed() -> bytes:
    """A new seed from the operating system's randomness."""
    return os.urandom(SEED_BYTES)


def derive(seed: bytes, *labels: str | int) -> bytes:
    """The child seed that `labels` name; different labels give independent seeds."""
    digest = hashlib.blake2b(key=_check_seed(seed), digest_size=SEED_BYTES, person=b"hdcos.derive")
    for label in labels:
        text = f"{type(label).__name__}:{label}".encode()
        digest.update(len(text).to_bytes(4, "little") + text)
    return digest.digest()


def _check_seed(seed: bytes) -> bytes:
    if len(seed) != SEED_BYTES:
        raise InputError(f"a seed has {SEED_BYTES} bytes, this one has {len(seed)}")
    return seed


@cache
def _keep(bits: int) -> int:
    """The low `bits` bits of every value in a word of 64."""
    width = 8 * compact_dtype(bits).itemsize
    return sum((1 << bits) - 1 << start for start in range(0, 64, width))


class Stream:
    """The words that one seed expands to, by element offset. Reading on where the last read ended is cheapest."""

    def __init__(self, seed: bytes) -> None:
        self._key = _check_seed(seed)
        self._cipher: CipherContext | None = None
        self._at = -1

    def words(self, shape: tuple[int, ...], bits: int = 64, offset: int = 0) -> Array:
        """Elements [offset, offset + size) of the stream of uniform values of `bits` bits."""
        dtype = compact_dtype(bits)
        count = prod(shape)
        if native := streaming():
            block, skip = divmod(offset * dtype.itemsize, _BLOCK_BYTES)
            size = skip + count * dtype.itemsize
            stream: Array = native.keystream(self._key, block, _keep(bits), size)
            return stream[skip:].view(dtype).reshape(shape)
        values = self._bytes(offset * dtype.itemsize, count * dtype.itemsize).view(dtype)
        if bits < 8 * dtype.itemsize:
            values &= dtype.type((1 << bits) - 1)
        return values.reshape(shape)

    def _bytes(self, start: int, count: int) -> Array:
        block, skip = divmod(start, _BLOCK_BYTES)
        wanted = skip + count
        if self._cipher is None or start != self._at or skip:
            self._cipher = _cipher(self._key, block)
        out = np.empty(wanted + _BLOCK_BYTES, np.uint8)
        self._at = -1  # until all of it is read
        update, view, written = self._cipher.update_into, out.data, 0
        while written < wanted:
            piece = min(len(_ZEROS), wanted - written)
            written += update(_ZEROS[:piece], view[written:])
        self._at = start + count
        return out[skip:wanted]


def _cipher(key: bytes, block: int) -> CipherContext:
    """A stream that starts at a block. Imported here: a client that expands nothing does without the library."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    return Cipher(algorithms.AES(key), modes.CTR(block.to_bytes(_BLOCK_BYTES, "big"))).encryptor()


def expand(seed: Array, shape: tuple[int, ...]) -> Array:
    """The ring words of a seed that arrived as bytes; while planning, words of that shape."""
    if isinstance(seed, Blank):
        return Blank(shape)
    return Stream(seed.tobytes()).words(shape)
