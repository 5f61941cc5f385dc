"""Each ring kernel on a CUDA device, by its name in `reference` and with the same arguments and results.

Sums modulo 2**64 have no order, so blocks may add to the same words and results are still the same in every run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from math import prod
from typing import Any

import numpy as np

from hdcos.ring import trig
from hdcos.ring.backend import compact_dtype
from hdcos.ring.comparison import MOST_BLOCKS, dcf_levels, sign_blocks
from hdcos.ring.cuda import sources
from hdcos.ring.device import Device, contiguous
from hdcos.ring.types import Array, HadamardGradient, HadamardLayer, Opening, Pool

THREADS, SEGMENT, TILE, DEPTH = 256, 4096, 64, 16
"""Of a block; words of a block's row in shared memory; sides of the tiles of a product. As the sources have them."""
NOT_OPENED = Opening(None, 0, 0)


class CudaKernels:
    """The kernels, for arrays of CuPy, or of a module that stands in for it."""

    def __init__(self, device: Device, cupy: Any) -> None:
        self._device, self._cupy = device, cupy
        self._processors = int(cupy.cuda.Device().attributes["MultiProcessorCount"])
        self._function = cache(self._find_function)
        self._table = cache(lambda bits, scale: device.constant(trig.table(bits, scale)))
        self._module = cache(lambda file: cupy.RawModule(code=sources.source(file), options=("-std=c++17",)))

    def _find_function(self, name: str) -> Callable[..., None]:
        function: Callable[..., None] = self._module(sources.file_of(name)).get_function(name)
        return function

    def compile_all(self) -> None:
        """Compile every kernel now."""
        for file in sources.files():
            for name in sources.kernels_of(file):
                self._function(name)

    def _launch(self, name: str, grid: tuple[int, ...], *arguments: Any) -> None:
        if prod(grid):
            self._function(name)(grid, (THREADS,), tuple(map(_as_word, arguments)))

    def _each(self, name: str, count: int, *arguments: Any) -> None:
        """One element after another, by as many threads as the device has room for."""
        self._launch(name, (min(-(-count // THREADS), 16 * self._processors),), *arguments)

    def _each_of_rows(self, name: str, values: Array, *arguments: Any) -> None:
        """One element after another, by blocks that take elements of one row each."""
        rows = values.shape[0]
        each = values.size // max(1, rows)
        pieces = min(-(-each // THREADS), max(1, 16 * self._processors // max(1, rows)))
        self._launch(name, (rows, pieces), each, *arguments)

    def _empty(self, shape: tuple[int, ...], dtype: Any = np.uint64) -> Array:
        made: Array = self._cupy.empty(shape, dtype)
        return made

    def _splits(self, tiles: int, depth: int) -> int:
        """Among how many blocks the inner dimension of a product is divided, for all processors to have work."""
        return max(1, min(2 * self._processors // max(1, tiles), depth // (4 * DEPTH)))

    # ---- products and transforms

    def matmul(self, a: Array, b: Array, out: Array | None = None) -> Array:
        (rows, depth), columns = a.shape, b.shape[1]
        tiles = -(-rows // TILE), -(-columns // TILE)
        splits = self._splits(prod(tiles), depth)
        made = self._empty((rows, columns)) if out is None else out
        if splits > 1:
            made.fill(0)
        self._launch("matmul", (*tiles, splits), a, b, made, rows, depth, columns, splits)
        return made

    def conv2d(self, x: Array, weight: Array, stride: int, padding: int, groups: int = 1, dilation: int = 1) -> Array:
        n, channels, *size = x.shape
        outputs, inputs, *window = weight.shape
        sides = [
            (side + 2 * padding - dilation * (length - 1) - 1) // stride + 1
            for side, length in zip(size, window, strict=True)
        ]
        tiles = -(-n * prod(sides) // TILE), -(-(outputs // groups) // TILE)
        splits = self._splits(prod(tiles) * groups, inputs * prod(window))
        made = self._empty((n, outputs, *sides))
        if splits > 1:
            made.fill(0)
        shapes = (n, channels, *size, outputs, *window, *sides)
        spacing = (stride, padding, groups, dilation, splits)
        self._launch("conv2d", (*tiles, groups * splits), x, weight, made, *shapes, *spacing)
        return made

    def walsh_hadamard(self, x: Array, out: Array | None = None) -> Array:
        made, size = self._empty(x.shape) if out is None else out, x.shape[-1]
        self._launch("walsh_hadamard", (-(-x.size // SEGMENT),), x, made, x.size, min(size, SEGMENT))
        half = SEGMENT
        while half < size:
            self._each("walsh_level", x.size // 2, made, x.size, half)
            half *= 2
        return made

    # ---- openings and packed values

    def round_open(self, x: Array, mask: Array | None, drop: int, bits: int, ties_up: bool) -> Array:
        kind = compact_dtype(bits)
        out = self._empty(x.shape, kind)
        self._each("round_open", x.size, x, mask, out, x.size, drop, bits, ties_up, kind.itemsize)
        return out

    def pack(self, values: Array, bits: int) -> Array:
        if bits == 8 * values.itemsize:
            return values.reshape(-1).view(np.uint8)
        size = (values.size * bits + 7) // 8
        out = self._empty((size,), np.uint8)
        self._each("pack", -(-size // 8), values, out, values.size, bits, values.itemsize, size)
        return out

    def unpack(self, buffer: Array, count: int, bits: int) -> Array:
        return self._unpack(buffer, None, (count,), bits)

    def unpack_sum(self, buffer: Array, values: Array, bits: int) -> Array:
        return self._unpack(buffer, values, values.shape, bits)

    def _unpack(self, buffer: Array, others: Array | None, shape: tuple[int, ...], bits: int) -> Array:
        kind, count = compact_dtype(bits), prod(shape)
        out = self._empty(shape, kind)
        self._each("unpack", count, self._device.put(buffer), others, out, count, bits, kind.itemsize)
        return out

    # ---- cosines

    def trig_words(self, phase: Array, bits: int, scale: int) -> tuple[Array, Array]:
        cos, sin = self._empty(phase.shape, np.int64), self._empty(phase.shape, np.int64)
        table = self._table(bits, scale)
        self._each("trig_words", phase.size, phase, cos, sin, table, phase.size, bits, scale, phase.itemsize)
        return cos, sin

    def dither(self, x: Array, coins: Array, drop: int) -> Array:
        out = self._empty(x.shape)
        self._each("dither", x.size, x, coins, out, x.size, drop)
        return out

    def rotate(
        self,
        phase: Array,
        a: Array,
        b: Array,
        bits: int,
        scale: int,
        cosine: bool,
        sine: bool,
        to_cosine: Array | None = None,
        to_sine: Array | None = None,
    ) -> tuple[Array | None, Array | None]:
        wanted = ((cosine, to_cosine), (sine, to_sine))
        made = [(self._empty(a.shape) if out is None else out) if asked else None for asked, out in wanted]
        known = (self._table(bits, scale), a.size, bits, scale, phase.itemsize)
        self._each("rotate", a.size, phase, a, b, *made, *known)
        return made[0], made[1]

    def trig_combine(
        self,
        phase: Array,
        cos_share: Array,
        sin_share: Array,
        bits: int,
        scale: int,
        cos_coefficients: Array,
        sin_coefficients: Array,
        harmonics: Array,
        shift: int = 0,
    ) -> Array:
        total, known = self._empty(phase.shape), (self._table(bits, scale), phase.size, bits, scale, phase.itemsize)
        if not len(harmonics):
            total.fill(0)
        for number, series in enumerate(zip(cos_coefficients, sin_coefficients, harmonics, strict=True)):
            own = (*map(int, series), number, len(harmonics), shift)
            self._each("trig_combine", phase.size, phase, cos_share, sin_share, total, *known, *own)
        return total

    # ---- Hadamard layers

    def hadamard_cos(self, layer: HadamardLayer) -> Array:
        return self._layer(layer, NOT_OPENED)

    def hadamard_cos_open(self, layer: HadamardLayer, opening: Opening) -> Array:
        return self._layer(layer, opening)

    def _layer(self, layer: HadamardLayer, opening: Opening) -> Array:
        phase, a, b, bits, scale, size, outputs, bias, pool, weight, more = layer
        (rows, units), each = a.shape, 3 if weight else 2
        terms = [tuple(weight) or (a, b), *(more[start : start + each] for start in range(0, len(more), each))]
        _, *spaces = pool or (units, 1, 1, 1)
        before: Array | None = None
        for term, own in enumerate(terms):
            factors = (a, b, *own) if weight else (*own, None, None, None)
            done = term == len(terms) - 1 and size <= SEGMENT
            known = (phase, phase.itemsize, *factors, self._table(bits, scale), bits, scale)
            shapes = (rows, units, *spaces, size, term, before, done)
            out, end = self._target((rows, outputs), opening) if done else self._target((rows, size), NOT_OPENED)
            kept = (outputs, bias) if done else (size, None)
            self._launch("hadamard_cos", (-(-rows * size // SEGMENT),), *known, *shapes, *kept, *end)
            before = out
        assert before is not None
        if size <= SEGMENT:
            return before
        made = self.walsh_hadamard(before, before)[:, :outputs]
        words = contiguous(made if bias is None else made + bias)
        return self.round_open(words, *opening) if opening.bits else words

    def _target(self, shape: tuple[int, ...], opening: Opening) -> tuple[Array, tuple[Any, ...]]:
        """Where the result of a layer goes, and how `finish` is told."""
        mask, drop, bits, ties_up = opening
        kind = compact_dtype(bits or 64)
        out = self._empty(shape, kind)
        return out, (mask, out, kind.itemsize, drop, bits, ties_up)

    def hadamard_back(self, gradient: HadamardGradient, opening: Opening) -> tuple[Array, Array, Array]:
        opened, b, opened_bits, with_public, phase, terms, weight, step, slope, phase_bits, scale, size = gradient
        (rows, units), reach, count = phase.shape, opened.shape[1], len(terms) // 10
        total, moved = self._cupy.zeros((reach,), np.uint64), self._cupy.zeros(weight.shape, np.uint64)
        lifted, each = (opened, opened.itemsize, opened_bits), 64
        blocks = -(-reach // THREADS), -(-rows // each)
        self._launch("lifted_total", blocks, *lifted, b, total, rows, reach, each, with_public)
        before: Array | None = None
        for term in range(count):
            done = term == count - 1 and size <= SEGMENT
            of_phase = (phase, phase.itemsize, self._table(phase_bits, scale), phase_bits, scale)
            dealt = (*terms[:2], *terms[2 + 10 * term : 12 + 10 * term])
            own = (x.reshape(count, units)[term] for x in (weight, moved))
            shapes = (*step, *slope, rows, units, size, term, before, done)
            out, end = self._target((rows, size), opening if done else NOT_OPENED)
            segments = -(-rows * size // SEGMENT)
            self._launch("hadamard_back", (segments,), *lifted, reach, *of_phase, *dealt, *own, *shapes, *end)
            before = out
        assert before is not None
        if size > SEGMENT:
            before = self.round_open(self.walsh_hadamard(before, before), *opening)
        return total, moved, before

    # ---- lifted values and windows

    def lifted_times(self, E: Array, t: Array, factor: Array, m_factor: Array, b_factor: Array, pool: Pool) -> Array:
        units, out = m_factor.shape[1], self._empty(m_factor.shape)
        operands = (E, t, _row_step(E), factor, _row_step(factor), m_factor, b_factor)
        self._each("lifted_times", out.size, *operands, out, out.size, units, *pool[1:])
        return out

    def lifted_product(
        self,
        lifted: Sequence[Array],
        opened: Array,
        mask: Array,
        m_mask: Array,
        b_mask: Array,
        with_public: bool,
        pool: Pool,
    ) -> Array:
        units, out = m_mask.shape[1], self._empty(m_mask.shape)
        operands = (*lifted, _row_step(lifted[0]), opened, mask, _row_step(opened), m_mask, b_mask)
        self._each("lifted_product", out.size, *operands, out, out.size, units, *pool[1:], with_public)
        return out

    def lifted_sums(
        self,
        opened: Array,
        m: Array,
        b: Array,
        bits: int,
        with_public: bool,
        w_opened: Array,
        w_mask: Array,
        m_mask: Array,
        b_mask: Array,
    ) -> tuple[Array, Array]:
        D, units = opened.astype(np.uint64), m_mask.shape[1]
        E, t = D - np.uint64(1 << (bits - 2)), (np.uint64(1) - (D >> np.uint64(bits - 1))) << np.uint64(bits)
        lifted = [contiguous(x[:, :units]) for x in (E, t, m, b)]
        product = self.lifted_product(lifted, w_opened, w_mask, m_mask, b_mask, with_public, (units, 1, 1, 1))
        share = t * b - m + E if with_public else t * b - m
        return share.sum(axis=0, dtype=np.uint64), product.sum(axis=0, dtype=np.uint64)

    def spread(self, x: Array, pool: Pool) -> Array:
        units = prod(pool[:3])
        out = self._empty((*x.shape[:-1], units))
        self._each("spread", out.size, x, out, out.size, units, *pool[1:])
        return out

    def pool_sum(self, x: Array, pool: Pool) -> Array:
        units = prod(pool[:3])
        out = self._empty((*x.shape[:-1], units // pool[3] ** 2))
        self._each("pool_sum", out.size, x, out, out.size, units, *pool[1:])
        return out

    # ---- comparisons

    def sign_lookup(
        self, D: Array, tables: Sequence[Array], masks: Array, bits: int, with_public: bool
    ) -> tuple[Array, Array]:
        first, asked = self._empty(D.shape, np.uint8), self._empty(D.shape, np.uint8)
        widths = sum(width << 8 * block for block, width in enumerate(sign_blocks(bits)))
        given = (*tables, *[None] * (MOST_BLOCKS - len(tables)))
        known = (D.size, bits, widths, len(tables), with_public)
        self._each("sign_lookup", D.size, D, D.itemsize, *given, masks, first, asked, *known)
        return first, asked

    def sign_combine(
        self, opened: Array, masks: Array, products: Array, first: Array, rules: Array, with_public: bool
    ) -> Array:
        out, mask_bits = self._empty(opened.shape, np.uint8), rules.size.bit_length() - 1
        dealt = (masks, products, products.itemsize, first, self._device.constant(rules))
        self._each("sign_combine", out.size, opened, *dealt, out, out.size, mask_bits, with_public)
        return out

    def dcf_words(self, cipher: Array, root0: Array, root1: Array, mask: Array, bits: int) -> Array:
        words = self._empty((*mask.shape, dcf_levels(bits) + 1, 2))
        self._each_of_rows("dcf_words", mask, cipher, root0, root1, mask, mask.itemsize, words, bits)
        return words

    def dcf_share(self, cipher: Array, root: Array, words: Array, D: Array, bits: int, with_public: bool) -> Array:
        out = self._empty(D.shape, np.uint8)
        self._each_of_rows("dcf_share", D, cipher, root, words, D, D.itemsize, out, bits, with_public)
        return out

    # ---- key streams

    def expand(self, keys: Array, fields: Array, start: Array, longest: int, size: int) -> Array:
        """`size` bytes with the streams of all keys, each from an execution on; see the kernel for `fields`.

        The longest of them has this many bytes.
        """
        memory = self._empty((size,), np.uint8)
        blocks = min(-(-(longest // 16 + 2) // THREADS), 4 * self._processors)  # each makes its round keys first
        self._launch("expand", (blocks, len(fields)), keys, fields, start, memory)
        return memory


def _row_step(x: Array) -> int:
    """From one row to the next; none where one serves all rows."""
    return 0 if x.ndim == 1 else int(x.shape[-1])


def _as_word(x: Any) -> Any:
    """An argument of a kernel: an array, or a number of 64 bits; 0 for an array that is not there."""
    if x is None:
        return np.uint64(0)
    return np.uint64(x % (1 << 64)) if isinstance(x, int) else x
