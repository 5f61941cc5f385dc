from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]
Signed = npt.NDArray[np.int64]
Compact = npt.NDArray[np.unsignedinteger[Any]]
Bytes = npt.NDArray[np.uint8]
Rows = npt.NDArray[np.int32]

oblivious: Any
"""The loops of oblivious transfer: see hdcos.offline.ot.native."""

def levels() -> list[str]: ...
def keep_memory() -> None: ...
def has_keystream() -> bool: ...
def keystream(key: bytes, block: int, keep: int, out: Bytes, /) -> None: ...
def expand(keys: Bytes, offsets: Words, starts: Words, counts: Words, bits: Words, out: Bytes, /) -> None: ...

class Table:
    def __init__(self, rows: Rows, bits: int, scale: int) -> None: ...

class Kernels:
    def __init__(self, level: str) -> None: ...
    @property
    def level(self) -> str: ...
    @property
    def title(self) -> str: ...
    def matmul(self, a: Words, b: Words, out: Words, /) -> None: ...
    def conv2d(self, x: Words, weight: Words, out: Words, stride: int, padding: int, /) -> None: ...
    def walsh_hadamard(self, x: Words, out: Words, /) -> None: ...
    def round_open(
        self, x: Words, mask: Compact | None, out: Compact, drop: int, bits: int, ties_up: bool, /
    ) -> None: ...
    def pack(self, values: Compact, out: Bytes, bits: int, /) -> None: ...
    def unpack(self, buffer: Bytes, out: Compact, bits: int, /) -> None: ...
    def unpack_fields(
        self, buffer: Bytes, froms: Words, starts: Words, counts: Words, bits: Words, out: Bytes, /
    ) -> None: ...
    def correct(
        self,
        keys: Bytes,
        offsets: Words,
        starts: Words,
        counts: Words,
        bits: Words,
        values: Sequence[Words],
        out: Bytes,
        /,
    ) -> None: ...
    def unpack_sum(self, buffer: Bytes, values: Compact, out: Compact, bits: int, /) -> None: ...
    def trig_words(self, phase: Compact, cos: Signed, sin: Signed, table: Table, /) -> None: ...
    def dither(self, x: Signed, coins: Words, out: Words, drop: int, /) -> None: ...
    def trig_combine(
        self,
        phase: Compact,
        cos_share: Words,
        sin_share: Words,
        out: Words,
        table: Table,
        cos: Signed,
        sin: Signed,
        harmonics: Signed,
        shift: int,
        /,
    ) -> None: ...
    def rotate(
        self, phase: Compact, a: Words, b: Words, cosine: Words | None, sine: Words | None, table: Table
    ) -> None: ...
    def hadamard_cos(
        self,
        phase: Compact,
        a: Words,
        b: Words,
        bias: Words | None,
        out: Words,
        table: Table,
        size: int,
        pool: tuple[int, int, int, int],
        weight: Sequence[Words],
        /,
    ) -> None: ...
    def hadamard_cos_open(
        self,
        phase: Compact,
        a: Words,
        b: Words,
        bias: Words | None,
        out: Compact,
        table: Table,
        size: int,
        pool: tuple[int, int, int, int],
        mask: Compact | None,
        drop: int,
        bits: int,
        ties_up: bool,
        weight: Sequence[Words],
        /,
    ) -> None: ...
    def hadamard_back(
        self,
        opened: Compact,
        b: Words,
        bits: int,
        with_public: bool,
        phase: Compact,
        terms: Sequence[Words],
        weight: Words,
        step: int,
        step_shift: int,
        slope: int,
        slope_shift: int,
        total: Words,
        steps: Words,
        out: Compact,
        table: Table,
        mask: Compact,
        drop: int,
        out_bits: int,
        ties_up: bool,
        /,
    ) -> None: ...
    def spread(self, x: Words, out: Words, pool: tuple[int, int, int, int]) -> None: ...
    def pool_sum(self, x: Words, out: Words, pool: tuple[int, int, int, int]) -> None: ...
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
        total: Words,
        sums: Words,
        /,
    ) -> None: ...
    def lifted_times(
        self,
        E: Words,
        t: Words,
        factor: Words,
        m_factor: Words,
        b_factor: Words,
        out: Words,
        pool: Sequence[int],
        /,
    ) -> None: ...
    def lifted_product(
        self,
        E: Words,
        t: Words,
        m: Words,
        b: Words,
        opened: Words,
        mask: Words,
        m_mask: Words,
        b_mask: Words,
        out: Words,
        with_public: bool,
        pool: Sequence[int],
        /,
    ) -> None: ...
