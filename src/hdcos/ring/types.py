"""What kernels take: arrays, Blanks in their place, and the tuples of fused kernels.

A Blank has a shape and a dtype but no values. A protocol run on Blanks costs nothing and still shows every shape it
would send: this is how a plan is made. Type checkers see arrays. The compiled kernels read the tuples by the order of
their fields.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numpy.lib.mixins import NDArrayOperatorsMixin

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
    D b - w_b first. `more` has what further terms have of their own, one after the other: a and b, or their weight;
    entry j of the z of term t is added to entry j ^ t.
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
    more: Sequence[Array] = ()


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
    2**opened_bits. A weight of several rows has as many terms: all but cos r and sin r follow again for each, with
    entry j ^ t of x for entry j, and the gradients add up.
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


class Blank(NDArrayOperatorsMixin):
    """Stands in for an array: operators and ufuncs broadcast shapes and promote dtypes as NumPy does."""

    __slots__ = ("dtype", "shape")

    def __init__(self, shape: int | tuple[int, ...], dtype: Any = np.uint64) -> None:
        self.shape: tuple[int, ...] = (shape,) if isinstance(shape, int) else tuple(int(n) for n in shape)
        self.dtype: np.dtype[Any] = np.dtype(dtype)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    @property
    def T(self) -> Blank:  # noqa: N802
        return Blank(self.shape[::-1], self.dtype)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a Blank of no dimensions has no length")
        return self.shape[0]

    def __repr__(self) -> str:
        return f"Blank({self.shape}, {self.dtype})"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        raise TypeError(f"{self!r} has no values: only shapes are known while planning")

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        if method != "__call__" or ufunc.signature is not None:
            return NotImplemented
        target = (options.pop("out", None) or (None,))[0]
        shape = np.broadcast_shapes(*(np.shape(_dummy(x)) for x in inputs))
        result = ufunc(*(_empty_like(x) for x in inputs), **options)
        blanks = tuple(Blank(shape, part.dtype) for part in (result if ufunc.nout > 1 else (result,)))
        if target is not None:
            if np.broadcast_shapes(shape, target.shape) != tuple(target.shape):
                raise ValueError(f"shapes {shape} and {target.shape} do not fit in place")
            return target if isinstance(target, Blank) else Blank(target.shape, target.dtype)
        return blanks if ufunc.nout > 1 else blanks[0]

    def __getitem__(self, key: Any) -> Blank:
        keys = key if isinstance(key, tuple) else (key,)
        chosen = [place for place, part in enumerate(keys) if isinstance(part, list | np.ndarray)]
        if len(chosen) != 1 or any(isinstance(part, int | np.integer) for part in keys):
            return self._like(_dummy(self)[key])
        (place,) = chosen
        places = np.asarray(keys[place])
        if places.dtype.kind not in "iu":
            return self._like(_dummy(self)[key])
        # One axis by a list of places: NumPy would make all values of the result, only to tell their shape.
        kept = _dummy(self)[(*keys[:place], slice(None), *keys[place + 1 :])]
        axis = place if Ellipsis not in keys[:place] else kept.ndim - (len(keys) - place)
        np.broadcast_to(np.zeros(()), (kept.shape[axis],))[places]
        return Blank((*kept.shape[:axis], *places.shape, *kept.shape[axis + 1 :]), self.dtype)

    def __setitem__(self, key: Any, value: Any) -> None:
        np.broadcast_to(_dummy(value), self[key].shape)

    def reshape(self, *shape: Any) -> Blank:
        return self._like(np.lib.stride_tricks.as_strided(_dummy(self)).reshape(*shape))

    def ravel(self) -> Blank:
        return Blank(self.size, self.dtype)

    def transpose(self, *axes: Any) -> Blank:
        return self._like(_dummy(self).transpose(*axes))

    def astype(self, dtype: Any, copy: bool = True) -> Blank:
        return Blank(self.shape, dtype)

    def copy(self) -> Blank:
        return Blank(self.shape, self.dtype)

    def sum(self, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False) -> Blank:
        axes = range(self.ndim) if axis is None else (axis if isinstance(axis, tuple) else (axis,))
        gone = {range(self.ndim)[a] for a in axes}
        kept = ((1 if i in gone else n, i in gone) for i, n in enumerate(self.shape))
        shape = tuple(n for n, dropped in kept if keepdims or not dropped)
        return Blank(shape, np.empty(0, self.dtype).sum(dtype=dtype).dtype)

    def _like(self, dummy: Any) -> Blank:
        return Blank(dummy.shape, self.dtype)


def pick(table: Any, places: Any) -> Any:
    """Of each row along the last axis of a table the value at its place."""
    if isinstance(table, Blank) or isinstance(places, Blank):
        return Blank(places.shape, table.dtype)
    return np.take_along_axis(table, places[..., None].astype(np.int64), axis=-1)[..., 0]


def _dummy(x: Any) -> Any:
    """An array of the same shape that takes one element of memory."""
    return np.broadcast_to(np.zeros((), x.dtype), x.shape) if isinstance(x, Blank) else x


def _empty_like(x: Any) -> Any:
    """An empty array of the same dtype; Python scalars stay, because promotion treats them apart."""
    return x if isinstance(x, bool | int | float) else np.empty(0, x.dtype)
