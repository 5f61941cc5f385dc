"""Splitting secrets for two parties: random words for party 0, the rest for party 1."""

from __future__ import annotations

import os
from collections.abc import Mapping

import numpy as np

from hdcos.ring import Array


def random_words(shape: tuple[int, ...]) -> Array:
    """Uniform words of the whole ring, from the operating system."""
    words = np.frombuffer(os.urandom(8 * int(np.prod(shape))), "<u8")
    return words.astype(np.uint64, copy=False).reshape(shape)


def halves(words: Mapping[str, Array]) -> list[dict[str, Array]]:
    """What each party is sent: alone, either half is uniform."""
    zero = {name: random_words(array.shape) for name, array in words.items()}
    return [zero, {name: array - zero[name] for name, array in words.items()}]
