"""The same loops compiled, behind the interface of the reference: allocate the result, hand over the memory."""

from __future__ import annotations

import numpy as np

import hdcos.ring._native as compiled
from hdcos.ring import Array

SCHEDULE_BYTES = 176
loops = compiled.oblivious


def available() -> bool:
    """Whether this processor has AES instructions."""
    return bool(loops.available())


def key_schedule(keys: Array) -> Array:
    schedules = np.empty((keys.size // 16, SCHEDULE_BYTES), np.uint8)
    loops.key_schedule(keys, schedules)
    return schedules


def combine(keys: Array, blocks: int, first: int, counters: int, whole: bool) -> tuple[Array | None, Array]:
    u = np.empty((blocks, counters * 16), np.uint8) if whole else None
    v = np.empty((4 * blocks, counters * 16), np.uint8)
    loops.combine(keys, first, u, v)
    return u, v


def transpose(rows: Array) -> Array:
    out = np.empty((8 * rows.shape[1], 16), np.uint8)
    loops.transpose(rows, out)
    return out


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
    messages = np.empty((len(q), vectors.shape[1]), np.uint64)
    loops.send(q, delta, key, vectors, signs, messages, sums, first, fold, index, bit, negative, coarse)
    return messages


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
    loops.receive(t, key, choices, messages, sums, first, fold, index, bit, coarse)
