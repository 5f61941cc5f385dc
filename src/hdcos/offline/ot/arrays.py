"""The few array operations that makers need, for arrays and for Blanks alike."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from hdcos.ring import Array, Blank


def joined(parts: Sequence[Array], axis: int = 0) -> Array:
    """Arrays one after the other along an axis."""
    if not any(isinstance(part, Blank) for part in parts):
        return np.concatenate(parts, axis=axis)
    shape = list(parts[0].shape)
    shape[axis] = sum(part.shape[axis] for part in parts)
    return Blank(tuple(shape), parts[0].dtype)  # type: ignore[return-value]


def stacked(*parts: Array) -> Array:
    """Arrays of one shape side by side, along a new last axis."""
    return joined([part.reshape(*part.shape, 1) for part in parts], axis=-1)


def flat(x: Array, *shape: int) -> Array:
    """A contiguous array of another shape; -1 may stand for one of its lengths."""
    if isinstance(x, Blank):
        known = prod(n for n in shape if n >= 0)
        return Blank(tuple(x.size // max(1, known) if n < 0 else n for n in shape), x.dtype)
    return np.ascontiguousarray(x).reshape(shape)


def moved(x: Array, *axes: int) -> Array:
    """A contiguous array with its axes in another order."""
    turned = x.transpose(*axes)
    return turned if isinstance(turned, Blank) else np.ascontiguousarray(turned)


def repeated(x: Array, times: int) -> Array:
    """Each row of x so many times in a row."""
    if times == 1:
        return x
    if isinstance(x, Blank):
        return Blank((x.shape[0] * times, *x.shape[1:]), x.dtype)
    return np.repeat(x, times, axis=0)
