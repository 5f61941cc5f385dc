"""The types that signatures of this layer name, and the tuples that fused kernels take whole.

Everything that computes takes arrays; while a cost is planned the same code is handed Blanks, which behave like arrays
of the same shape. Checkers see arrays. The compiled kernels read the tuples by the order of their fields.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Words = npt.NDArray[np.uint64]
Compact = npt.NDArray[np.unsignedinteger[Any]]
Signed = npt.NDArray[np.int64]
Pool = tuple[int, int, int, int]
"""Channels, height, width and window of units that are summed over window x window blocks."""


class HadamardLayer(NamedTuple):
    """A Hadamard layer after a cosine: H z + bias, the first `outputs` of it, for phase, a and b of (rows, units).

    z = cos d * a - sin d * b at d = phase / 2**bits turns, padded with zeros, from a table at `scale`. H is the
    unnormalised Sylvester-Hadamard matrix of `size`, a power of two. With a `pool` the units are images, summed over
    blocks before they are padded. With weight = (D, w_a, w_b), one D for all rows, a and b become D a - w_a and
    D b - w_b first.
    """

    phase: Array
    a: Array
    b: Array
    bits: int
    scale: int
    size: int
    outputs: int
    bias: Array | None = None
    pool: Pool | None = None
    weight: Sequence[Array] = ()


class Opening(NamedTuple):
    """What is sent of words: over 2**drop, rounded, plus the mask, modulo 2**bits."""

    mask: Array | None
    drop: int
    bits: int
    ties_up: bool = True


class HadamardGradient(NamedTuple):
    """From a layer's opened gradient x, of (rows, width), to the layer before, of at most `width` units.

    x = E - m + t b was opened as D in `opened_bits` (17 to 62) bits. `terms` are shares of cos r, sin r, w cos r and
    w sin r (w the weight's mask) and of the products of m and b with each, m w cos r and m w sin r in units of
    2**opened_bits.
    `step` and `slope` are public integers on a table of cosines and of sines at `scale`, with the shift that the
    products are rounded by; `size` is that of the transform before.
    """

    opened: Array
    b: Array
    opened_bits: int
    with_public: bool
    phase: Array
    terms: Sequence[Array]
    weight: Array
    step: tuple[int, int]
    slope: tuple[int, int]
    phase_bits: int
    scale: int
    size: int
