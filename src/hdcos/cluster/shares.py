"""Splitting secrets for two parties: random words for party 0, the rest for party 1."""

from __future__ import annotations

import os
from collections.abc import Mapping

import numpy as np

from hdcos.ring import Array


def split_words(words: Mapping[str, Array]) -> list[dict[str, Array]]:
    """What each party is sent: either share alone is uniform, from the operating system's randomness."""
    zero = {name: _random_words(array.shape) for name, array in words.items()}
    return [zero, {name: array - zero[name] for name, array in words.items()}]


def _random_words(shape: tuple[int, ...]) -> Array:
    words = np.frombuffer(os.urandom(8 * int(np.prod(shape))), "<u8")
    return words.astype(np.uint64, copy=False).reshape(shape)
