"""The compiled kernels behind the interface of the reference: allocate the result, hand over the memory."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import numpy.typing as npt

from hdcos.errors import InputError
from hdcos.ring import _native, trig
from hdcos.ring.checks import UINT8, UINT64, Compact, Pool, Signed, Words, check_trig, compact_dtype


class Native:
    """The kernels of one instruction set: "baseline", "v3" or "v4"; by default the fastest this host runs."""

    def __init__(self, level: str | None = None) -> None:
        levels = _native.levels()
        if level is not None and level not in levels:
            raise InputError(f"this host runs kernels for {', '.join(levels)}, not for {level}")
        self._kernels = _native.Kernels(level or levels[-1])
        self.name = f"native {self._kernels.title}"
        # Kernels of material, which write where `offline.layout` says: many fields in one call.
        self.expand, self.correct = _native.expand, self._kernels.correct
        self.unpack_fields = self._kernels.unpack_fields

    def keep_memory(self) -> None:
        _native.keep_memory()

    @property
    def has_keystream(self) -> bool:
        return self._kernels.level == "v4" and _native.has_keystream()

    def keystream(self, key: bytes, block: int, keep: int, size: int) -> npt.NDArray[np.uint8]:
        out = np.empty(size, UINT8)
        _native.keystream(key, block, keep, out)
        return out

    def matmul(self, a: Words, b: Words, out: Words | None = None) -> Words:
        if out is None:
            out = np.empty((a.shape[0], b.shape[1]), UINT64)
        self._kernels.matmul(a, b, out)
        return out

    def conv2d(self, x: Words, weight: Words, stride: int, padding: int) -> Words:
        size = [(x.shape[i] + 2 * padding - weight.shape[i]) // stride + 1 for i in (2, 3)]
        out = np.empty((x.shape[0], weight.shape[0], *size), UINT64)
        self._kernels.conv2d(x, weight, out, stride, padding)
        return out

    def walsh_hadamard(self, x: Words, out: Words | None = None) -> Words:
        if out is None:
            out = np.empty(x.shape, UINT64)
        self._kernels.walsh_hadamard(x, out)
        return out

    def round_open(self, x: Words, mask: Compact | None, drop: int, bits: int, ties_up: bool = True) -> Compact:
        out = np.empty(x.shape, compact_dtype(bits))
        self._kernels.round_open(x, mask, out, drop, bits, ties_up)
        return out

    def pack(self, values: Compact, bits: int) -> npt.NDArray[np.uint8]:
        out = np.empty((values.size * bits + 7) // 8, UINT8)
        self._kernels.pack(values, out, bits)
        return out

    def unpack(self, buffer: npt.NDArray[np.uint8], count: int, bits: int) -> Compact:
        out = np.empty(count, compact_dtype(bits))
        self._kernels.unpack(buffer, out, bits)
        return out

    def unpack_sum(self, buffer: npt.NDArray[np.uint8], values: Compact, bits: int) -> Compact:
        out = np.empty(values.shape, values.dtype)
        self._kernels.unpack_sum(buffer, values, out, bits)
        return out

    def trig_words(self, phase: Compact, bits: int, scale: int) -> tuple[Signed, Signed]:
        cos, sin = np.empty(phase.shape, np.int64), np.empty(phase.shape, np.int64)
        self._kernels.trig_words(phase, cos, sin, _table(bits, scale))
        return cos, sin

    def dither(self, x: Signed, coins: Words, drop: int) -> Words:
        out = np.empty(x.shape, UINT64)
        self._kernels.dither(x, coins, out, drop)
        return out

    def trig_combine(
        self,
        phase: Compact,
        cos_share: Words,
        sin_share: Words,
        bits: int,
        scale: int,
        cos_coefficients: Signed,
        sin_coefficients: Signed,
        harmonics: Signed,
        coefficient_shift: int = 0,
    ) -> Words:
        out = np.empty(phase.shape, UINT64)
        series = cos_coefficients, sin_coefficients, harmonics, coefficient_shift
        self._kernels.trig_combine(phase, cos_share, sin_share, out, _table(bits, scale), *series)
        return out

    def rotate(
        self,
        phase: Compact,
        a: Words,
        b: Words,
        bits: int,
        scale: int,
        cosine: bool,
        sine: bool,
        to_cosine: Words | None = None,
        to_sine: Words | None = None,
    ) -> tuple[Words | None, Words | None]:
        if not cosine:
            to_cosine = None
        elif to_cosine is None:
            to_cosine = np.empty(a.shape, UINT64)
        if not sine:
            to_sine = None
        elif to_sine is None:
            to_sine = np.empty(a.shape, UINT64)
        self._kernels.rotate(phase, a, b, to_cosine, to_sine, _table(bits, scale))
        return to_cosine, to_sine

    def hadamard_cos(
        self,
        phase: Compact,
        a: Words,
        b: Words,
        bits: int,
        scale: int,
        size: int,
        outputs: int,
        bias: Words | None = None,
        pool: Pool | None = None,
        weight: Sequence[Words] = (),
    ) -> Words:
        out = np.empty((a.shape[0], outputs), UINT64)
        whole = pool or (a.shape[1], 1, 1, 1)
        self._kernels.hadamard_cos(phase, a, b, bias, out, _table(bits, scale), size, whole, weight)
        return out

    def hadamard_cos_open(
        self,
        phase: Compact,
        a: Words,
        b: Words,
        bits: int,
        scale: int,
        size: int,
        outputs: int,
        bias: Words | None,
        pool: Pool | None,
        mask: Compact | None,
        drop: int,
        opened_bits: int,
        ties_up: bool = True,
        weight: Sequence[Words] = (),
    ) -> Compact:
        out = np.empty((a.shape[0], outputs), compact_dtype(opened_bits))
        layer = _table(bits, scale), size, pool or (a.shape[1], 1, 1, 1)
        self._kernels.hadamard_cos_open(phase, a, b, bias, out, *layer, mask, drop, opened_bits, ties_up, weight)
        return out

    def hadamard_back(
        self,
        opened: Compact,
        b: Words,
        opened_bits: int,
        with_public: bool,
        phase: Compact,
        terms: Sequence[Words],
        weight: Words,
        step: tuple[int, int],
        slope: tuple[int, int],
        phase_bits: int,
        scale: int,
        size: int,
        mask: Compact,
        drop: int,
        bits: int,
        ties_up: bool,
    ) -> tuple[Words, Words, Compact]:
        total, steps = np.empty(b.shape[1], UINT64), np.empty(phase.shape[1], UINT64)
        out = np.empty((b.shape[0], size), compact_dtype(bits))
        table = _table(phase_bits, scale)
        self._kernels.hadamard_back(
            opened, b, opened_bits, with_public, phase, terms, weight, *step, *slope, total, steps, out,
            table, mask, drop, bits, ties_up,
        )  # fmt: skip
        return total, steps, out

    def spread(self, x: Words, pool: Pool) -> Words:
        out = np.empty((*x.shape[:-1], pool[0] * pool[1] * pool[2]), UINT64)
        self._kernels.spread(x, out, pool)
        return out

    def pool_sum(self, x: Words, pool: Pool) -> Words:
        out = np.empty((*x.shape[:-1], x.shape[-1] // pool[3] ** 2), UINT64)
        self._kernels.pool_sum(x, out, pool)
        return out

    def lifted_sums(
        self,
        opened: Compact,
        m: Words,
        b: Words,
        bits: int,
        with_public: bool,
        w_opened: Words,
        w_mask: Words,
        m_mask: Words,
        b_mask: Words,
    ) -> tuple[Words, Words]:
        total, sums = np.empty(m.shape[1], UINT64), np.empty(m_mask.shape[1], UINT64)
        self._kernels.lifted_sums(opened, m, b, bits, with_public, w_opened, w_mask, m_mask, b_mask, total, sums)
        return total, sums

    def lifted_times(
        self, E: Words, t: Words, factor: Words, m_factor: Words, b_factor: Words, pool: Sequence[int] = ()
    ) -> Words:
        out = np.empty(m_factor.shape, UINT64)
        self._kernels.lifted_times(E, t, factor, m_factor, b_factor, out, pool or (m_factor.shape[-1], 1, 1, 1))
        return out

    def lifted_product(
        self,
        lifted: Sequence[Words],
        opened: Words,
        mask: Words,
        m_mask: Words,
        b_mask: Words,
        with_public: bool,
        pool: Sequence[int] = (),
    ) -> Words:
        out = np.empty(m_mask.shape, UINT64)
        E, t, m, b = lifted
        whole = pool or (m_mask.shape[-1], 1, 1, 1)
        self._kernels.lifted_product(E, t, m, b, opened, mask, m_mask, b_mask, out, with_public, whole)
        return out


@cache
def _table(bits: int, scale: int) -> _native.Table:
    check_trig(bits, scale)
    return _native.Table(trig.direct_table(bits, scale) if bits <= trig.DIRECT_BITS else trig.high_table(), bits, scale)
