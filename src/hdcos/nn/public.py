"""Public random numbers that every host derives alike from a label.

They come from SHAKE-256 and integer arithmetic only: a library's generator may change between versions, and two
parties that disagree in one bit would compute garbage.
"""

from __future__ import annotations

import hashlib

import numpy as np

from hdcos.ring import Array

SORTED_AT_ONCE = 1 << 18


def public_words(count: int, *label: str | int) -> Array:
    """`count` words of 64 random bits."""
    text = " ".join(["hdcos", *map(str, label)])
    return np.frombuffer(hashlib.shake_256(text.encode()).digest(8 * count), "<u8").astype(np.uint64, copy=False)


def public_signs(count: int, *label: str | int) -> Array:
    """`count` numbers, each +1.0 or -1.0."""
    return 1.0 - 2.0 * (public_words(count, "signs", *label) & np.uint64(1))


def public_choice(rows: int, population: int, count: int, *label: str | int) -> Array:
    """In each row, `count` different indices below `population`, sorted."""
    keys = public_words(rows * population, "choice", *label).reshape(rows, population)
    chosen = np.empty((rows, min(count, population)), np.int64)
    step = max(1, SORTED_AT_ONCE // population)
    for first in range(0, rows, step):
        chosen[first : first + step] = _smallest(keys[first : first + step], chosen.shape[1])
    return chosen


def _smallest(keys: Array, count: int) -> Array:
    """The places of the `count` smallest keys in each row, rising; of equal keys the first."""
    among = keys <= np.partition(keys, count - 1, axis=1)[:, count - 1, None]
    places: Array = np.nonzero(among)[1]
    if places.size == len(keys) * count:
        return places.reshape(len(keys), count)
    return np.sort(np.argsort(keys, axis=1, kind="stable")[:, :count], axis=1)


def public_gaussians(count: int, *label: str | int) -> Array:
    """`count` integers, approximately N(0, 256^2) and never 0: a sum of twelve bytes less its mean."""
    words = public_words((12 * count + 7) // 8, "gaussians", *label)
    bytes_ = words.astype("<u8").view(np.uint8)[: 12 * count].reshape(count, 12)
    sums: Array = bytes_.sum(axis=1, dtype=np.int64) - 6 * 255
    return np.where(sums == 0, 1, sums)
