"""The memory of a device that a process takes: one limit for all its pools, those of recordings among them."""

from __future__ import annotations

import threading
from typing import Any

OUT_OF_MEMORY = 2
"""What CUDA calls it (cudaErrorMemoryAllocation) if there is no block of this size; CuPy has no name for it."""


class Budget:
    """What the pools of this process take from the driver, counted block by block."""

    def __init__(self, cupy: Any, limit: int) -> None:
        self.limit, self.taken = limit, 0
        self._lock = threading.RLock()  # a block may be let go at any moment, by who takes one, too
        self._cupy, self._block = cupy, _counted_block(cupy.cuda.Memory, self)
        self.pool = cupy.cuda.MemoryPool(self.allocate)
        """That of everything that is not recorded."""

    def allocate(self, size: int) -> Any:
        """A block for a pool. Where there is none, blocks that nobody uses go back first; those of recordings stay,
        whose graphs write to them."""
        try:
            return self._allocate(size)
        except MemoryError:
            self.pool.free_all_blocks()
        return self._allocate(size)

    def _allocate(self, size: int) -> Any:
        runtime = self._cupy.cuda.runtime
        try:
            return self._cupy.cuda.MemoryPointer(self._block(size), 0)
        except runtime.CUDARuntimeError as error:
            if error.status != OUT_OF_MEMORY:
                raise
            raise MemoryError(f"others have taken the memory of the device: {size} bytes are not there") from None

    def take(self, size: int) -> None:
        with self._lock:
            if self.taken + size > self.limit:
                raise MemoryError(f"{self.taken} bytes are taken, {size} more were wanted")
            self.taken += size

    def give_back(self, size: int) -> None:
        with self._lock:
            self.taken -= size


def _counted_block(base: Any, budget: Budget) -> Any:
    class Block(base):  # type: ignore[misc]  # of a module that is imported where there is a device
        """Memory of the driver that is counted for as long as it lives."""

        counted = 0

        def __init__(self, size: int) -> None:
            budget.take(size)
            self.counted = size
            super().__init__(size)

        def __del__(self) -> None:
            budget.give_back(self.counted)

    return Block
