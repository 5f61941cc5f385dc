"""Pseudo-random ring words from a 32-byte seed: AES-256 in counter mode.

Computes  seed -> an endless stream of words, the same on every host, readable from any offset.
Security  seeds come from the operating system; derived seeds from BLAKE2b keyed with their parent. To
          whoever lacks the seed the stream is indistinguishable from uniform words. One seed feeds one
          stream, and no offset of it may be used twice: the callers' addresses see to that.
"""

from __future__ import annotations

import hashlib
import os

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from hdcos.errors import InputError
from hdcos.ring import Array, Blank, compact_dtype

SEED_BYTES = 32
_BLOCK_BYTES = 16
_ZEROS = np.zeros(1 << 20, np.uint8)


def fresh_seed() -> bytes:
    """A new seed from the operating system's randomness."""
    return os.urandom(SEED_BYTES)


def derive(seed: bytes, *labels: str | int) -> bytes:
    """The child seed that `labels` name; different labels give independent seeds."""
    digest = hashlib.blake2b(key=_checked(seed), digest_size=SEED_BYTES, person=b"hdcos.derive")
    for label in labels:
        text = f"{type(label).__name__}:{label}".encode()
        digest.update(len(text).to_bytes(4, "little") + text)
    return digest.digest()


def _checked(seed: bytes) -> bytes:
    if len(seed) != SEED_BYTES:
        raise InputError(f"a seed has {SEED_BYTES} bytes, this one has {len(seed)}")
    return seed


class Stream:
    """The words that one seed expands to, by element offset."""

    def __init__(self, seed: bytes) -> None:
        self._key = _checked(seed)

    def words(self, shape: tuple[int, ...], bits: int = 64, offset: int = 0) -> Array:
        """Elements [offset, offset + size) of the stream of uniform values of `bits` bits."""
        dtype = compact_dtype(bits)
        count = int(np.prod(shape, dtype=np.int64))
        values = self._bytes(offset * dtype.itemsize, count * dtype.itemsize).view(dtype)
        if bits < 8 * dtype.itemsize:
            values &= dtype.type((1 << bits) - 1)
        return values.reshape(shape)

    def _bytes(self, start: int, count: int) -> Array:
        block, skip = divmod(start, _BLOCK_BYTES)
        out = np.empty(skip + count + _BLOCK_BYTES, np.uint8)
        counter = modes.CTR(block.to_bytes(_BLOCK_BYTES, "big"))
        cipher = Cipher(algorithms.AES(self._key), counter).encryptor()
        view, written, wanted = out.data, 0, skip + count
        while written < wanted:
            piece = min(len(_ZEROS), wanted - written)
            written += cipher.update_into(_ZEROS[:piece].data, view[written:])
        return out[skip:wanted]


def expand(seed: Array, shape: tuple[int, ...]) -> Array:
    """The ring words of a seed that arrived as bytes; while planning, words of that shape."""
    if isinstance(seed, Blank):
        return Blank(shape)
    return Stream(seed.tobytes()).words(shape)
