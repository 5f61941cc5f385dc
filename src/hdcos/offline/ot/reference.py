"""The loops of oblivious transfer in NumPy and `cryptography`: the specification, and the fallback.

Seeds expand with AES-128 in counter mode, counters as little-endian numbers. A pad is P(P(x) + (j, n)) + P(x), where P
is AES-128 under the session's public key, j the transfer's number and n the block's: the tweakable hash of Guo, Katz,
Wang, Weng and Yu (CRYPTO 2020). Bits of a byte count from the lowest.
"""

from __future__ import annotations

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from hdcos.ring import Array

BLOCK_BYTES = 16


def key_schedule(keys: Array) -> Array:
    """Keys as the other functions want them: here, as they are."""
    return keys.reshape(-1, BLOCK_BYTES)


def combine(keys: Array, blocks: int, first: int, counters: int, whole: bool) -> tuple[Array | None, Array]:
    """Per block of 16 seeds, u = sum of all streams and v_i = sum of the streams x with bit i set.

    Without `whole` there is no u, and stream 0 does not matter.
    """
    counter = np.zeros((counters, 2), np.uint64)
    counter[:, 0] = np.arange(first, first + counters, dtype=np.uint64)
    u = np.zeros((blocks, counters * BLOCK_BYTES), np.uint8)
    v = np.zeros((blocks, 4, counters * BLOCK_BYTES), np.uint8)
    for index, key in enumerate(keys):
        block, x = divmod(index, 16)
        if x == 0 and not whole:
            continue
        stream = _encrypt(key, counter.view(np.uint8).reshape(-1))
        u[block] ^= stream
        for bit in range(4):
            if x >> bit & 1:
                v[block, bit] ^= stream
    return (u if whole else None), v.reshape(4 * blocks, -1)


def transpose(rows: Array) -> Array:
    """Bit j of row i becomes bit i of row j."""
    bits = np.unpackbits(rows, axis=1, bitorder="little")
    return np.packbits(np.ascontiguousarray(bits.T), axis=1, bitorder="little")


def send(
    q: Array,
    delta: Array,
    key: Array,
    vectors: Array,
    signs: Array | None,
    sums: Array,
    first: int,
    fold: int,
    index: int,
    bit: int,
    negative: bool,
    coarse: int = 0,
) -> Array:
    """The words pad(q) + x - pad(q + delta); takes pad(q) * 2**bit off the sums.

    With `coarse`, sums are in units of 2**coarse and x is rounded to units of 2**(coarse - bit); ties go up in even
    rows and down in odd ones, so that they cancel in the mean.
    """
    elements = np.arange(first, first + len(q))
    rows = elements % len(vectors)
    x = vectors[rows]
    if coarse > bit:
        half = (1 << (coarse - bit - 1)) - (rows % 2)[:, None]
        x = ((x.view(np.int64) + half) >> np.int64(coarse - bit)).view(np.uint64)
    shift = np.uint64(max(0, bit - coarse))
    flips = np.full(len(q), negative)
    if signs is not None:
        flips = flips ^ ((signs[rows] >> np.uint64(bit)) & np.uint64(1)).astype(bool)
    x = np.where(flips[:, None], np.uint64(0) - x, x)
    zero = _pads(q, key, index, vectors.shape[1])
    np.subtract.at(sums, elements // fold, zero << shift)
    words: Array = zero + x - _pads(q ^ delta, key, index, vectors.shape[1])
    return words


def receive(
    t: Array,
    key: Array,
    choices: Array,
    messages: Array,
    sums: Array,
    first: int,
    fold: int,
    index: int,
    bit: int,
    coarse: int = 0,
) -> None:
    """Adds (pad(t) + choice * message) * 2**bit to the sums, which are in units of 2**coarse."""
    chosen = (choices >> np.uint64(bit)) & np.uint64(1)
    got = _pads(t, key, index, messages.shape[1]) + messages * chosen[:, None]
    np.add.at(sums, np.arange(first, first + len(t)) // fold, got << np.uint64(max(0, bit - coarse)))


def _pads(x: Array, key: Array, index: int, length: int) -> Array:
    blocks = (length + 1) // 2
    once = _encrypt(key, np.ascontiguousarray(x).reshape(-1)).view(np.uint64).reshape(-1, 1, 2)
    tweaks = np.zeros((len(x), blocks, 2), np.uint64)
    tweaks[..., 0] = np.arange(index, index + len(x), dtype=np.uint64)[:, None]
    tweaks[..., 1] = np.arange(blocks, dtype=np.uint64)
    twice = _encrypt(key, (tweaks ^ once).view(np.uint8).reshape(-1)).view(np.uint64).reshape(tweaks.shape)
    pads: Array = (twice ^ once).reshape(len(x), 2 * blocks)[:, :length]
    return pads


def _encrypt(key: Array, data: Array) -> Array:
    encryptor = Cipher(algorithms.AES(key.tobytes()), modes.ECB()).encryptor()
    return np.frombuffer(encryptor.update(data.tobytes()), np.uint8)
