"""One party's halves of many fields, expanded from its root seed.

Each field of each position has a stream of its own, read by execution: whatever executions are expanded together, and
by whom, those of execution i are the same words. All streams are read in one call where the processor has vector AES.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache

import numpy as np

from hdcos.offline.layout import Corrections, Room
from hdcos.offline.material import Slot
from hdcos.ring import Array, compact_dtype, modulo, pack, streaming
from hdcos.sharing import Stream, derive

LAYOUTS = 8
"""Numbers of executions whose layout is remembered."""


def field_seed(root: bytes, position: int, name: str) -> bytes:
    """The seed that one party's halves of one field of one position come from."""
    return derive(root, position, name)


def field_stream(root: bytes, position: int, name: str) -> Stream:
    """The stream of that seed."""
    return Stream(field_seed(root, position, name))


class Halves:
    """A party's halves of some fields of a plan."""

    def __init__(self, root: bytes, slots: Sequence[Slot]) -> None:
        self._slots = slots
        self._seeds = [field_seed(root, slot.position, slot.field.name) for slot in slots]
        self._keys = np.frombuffer(b"".join(self._seeds), np.uint8)
        self._strides = np.array([slot.count(1) * compact_dtype(slot.field.bits).itemsize for slot in slots], np.uint64)
        self._room = lru_cache(LAYOUTS)(lambda executions: Room(slots, executions))

    @cached_property
    def _streams(self) -> list[Stream]:
        return [Stream(seed) for seed in self._seeds]

    def expand(self, start: int, executions: int) -> list[Array]:
        """The halves of executions [start, start + executions), field by field."""
        native = streaming()
        if native is None:
            return [
                stream.words(slot.shape(executions), slot.field.bits, slot.count(start))
                for stream, slot in zip(self._streams, self._slots, strict=True)
            ]
        room = self._room(executions)
        memory = room.memory()
        native.expand(self._keys, self._strides * np.uint64(start), room.starts, room.counts, room.bits, memory)
        return room.arrays(memory)

    def rest(self, values: Sequence[Array], start: int, executions: int, corrections: Corrections) -> Array:
        """What is left of the values of these fields for the other party, packed."""
        packed = np.empty(corrections.size, np.uint8)
        native = streaming()
        if native is None:
            halves = self.expand(start, executions)
            for slot, place, value, half in zip(self._slots, corrections.places, values, halves, strict=True):
                bits = slot.field.bits
                packed[place] = pack(modulo(value - half.astype(np.uint64), bits).reshape(-1), bits)
            return packed
        room, offsets = self._room(executions), self._strides * np.uint64(start)
        native.correct(self._keys, offsets, corrections.starts, room.counts, room.bits, values, packed)
        return packed
