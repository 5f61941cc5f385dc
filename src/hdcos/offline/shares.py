"""One party's shares of many fields: expanded from its root seed, and where they lie.

Each field of each position has a stream of its own, read by execution: whatever executions are expanded together, and
by whom, those of execution i are the same words. All streams are read in one call where the processor has vector AES.
Fields lie side by side in a party's memory, and packed as the dealer sends them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property, lru_cache
from math import prod

import numpy as np

from hdcos.errors import FrameError
from hdcos.offline.material import Plan, Sharing, Slot
from hdcos.ring import Array, compact_dtype, modulo, packed_size, streaming, unpack
from hdcos.ring.device import Device
from hdcos.ring.kernels import pack_there
from hdcos.sharing import Stream, derive

LINE_BYTES = 64
"""Fields begin at whole cache lines."""


class Room:
    """One piece of memory for the fields of some executions, each value in the smallest type that holds it."""

    def __init__(self, slots: Sequence[Slot], executions: int) -> None:
        types = [compact_dtype(slot.field.bits) for slot in slots]
        self.counts = _row(slot.count(executions) for slot in slots)
        self.bits = _row(slot.field.bits for slot in slots)
        starts, self.size = [], 0
        for slot, kind in zip(slots, types, strict=True):
            starts.append(self.size)
            # A line more than is needed: fields of 2**n bytes would otherwise compete for the same places in a cache.
            self.size += (slot.count(executions) * kind.itemsize // LINE_BYTES + 2) * LINE_BYTES
        self.starts = _row(starts)
        self._places = [
            (slot.shape(executions), kind, start) for slot, kind, start in zip(slots, types, starts, strict=True)
        ]

    def memory(self) -> Array:
        whole = np.empty(self.size + LINE_BYTES, np.uint8)
        start = -whole.__array_interface__["data"][0] % LINE_BYTES
        return whole[start : start + self.size]

    def arrays(self, memory: Array) -> list[Array]:
        """The fields in a piece of memory."""
        if type(memory) is np.ndarray:
            return [np.ndarray(shape, kind, memory, start) for shape, kind, start in self._places]
        return [
            memory[start : start + prod(shape) * kind.itemsize].view(kind).reshape(shape)
            for shape, kind, start in self._places
        ]


class Corrections:
    """What a party is sent of some executions as bytes, each field packed by itself, in the order of `Plan.sent`."""

    def __init__(self, plan: Plan, executions: int, rank: int = 1) -> None:
        self._slots, self._executions = plan.sent(rank), executions
        ends, self.places = 0, []
        for slot in self._slots:
            start, ends = ends, ends + packed_size(slot.count(executions), slot.field.bits)
            self.places.append(slice(start, ends))
        self.size = ends
        self.starts = _row(place.start for place in self.places)
        common = [slot.field.sharing is Sharing.COMMON for slot in self._slots]
        self._places_of_common = [place for place, alike in zip(self.places, common, strict=True) if alike]
        self.places_of_shares = [place for place, alike in zip(self.places, common, strict=True) if not alike]
        self.starts_of_shares = _row(place.start for place in self.places_of_shares)
        self._whole = sum(slot.field.fills_its_type for slot in self._slots)  # they come first
        self._room = Room(self._slots[self._whole :], executions)
        partly = [
            (place.stop - 1, rest)
            for slot, place in zip(self._slots, self.places, strict=True)
            if (rest := slot.count(executions) * slot.field.bits % 8)
        ]
        self._last, self._rest = np.array(partly, np.int64).reshape(-1, 2).T

    def put_common(self, packed: Array, slots: Sequence[Slot], values: Sequence[Array]) -> None:
        """Write the fields that both parties are sent where they belong."""
        for slot, place, value in zip(slots, self._places_of_common, values, strict=True):
            bits = slot.field.bits
            packed[place] = pack_there(value.reshape(-1).astype(compact_dtype(bits), copy=False), bits)

    def check(self, received: Array) -> Array:
        """What was received in one piece; FrameError if it is not what was packed."""
        received = np.ascontiguousarray(received)
        if len(received) != self.size:
            raise FrameError(f"{self.size} bytes of material expected, got {len(received)}")
        if (received[self._last] >> self._rest).any():
            raise FrameError("the padding of material is not zero")
        return received

    def unpack(self, received: Array, device: Device | None = None) -> list[Array]:
        """The fields of what was checked, those that fill their types where they arrived."""
        if device is not None:
            received = device.put(received)
            return [
                device.kernels.unpack(received[place], slot.count(self._executions), slot.field.bits).reshape(
                    slot.shape(self._executions)
                )
                for slot, place in zip(self._slots, self.places, strict=True)
            ]
        native = streaming()
        alone = len(self._slots) if native is None else self._whole
        fields = [
            unpack(received[place], slot.count(self._executions), slot.field.bits).reshape(slot.shape(self._executions))
            for slot, place in zip(self._slots[:alone], self.places, strict=False)
        ]
        if native is None:
            return fields
        memory, room = self._room.memory(), self._room
        native.unpack_fields(received, self.starts[self._whole :], room.starts, room.counts, room.bits, memory)
        return fields + room.arrays(memory)


SIZES_KEPT = 8
"""Numbers of executions for which it is remembered where fields lie."""


def field_seed(root: bytes, position: int, name: str) -> bytes:
    """The seed that one party's shares of one field of one position come from."""
    return derive(root, position, name)


def field_stream(root: bytes, position: int, name: str) -> Stream:
    """The stream of that seed."""
    return Stream(field_seed(root, position, name))


class FieldShares:
    """A party's shares of some fields of a plan, in memory of this machine or of a device."""

    def __init__(self, root: bytes, slots: Sequence[Slot], device: Device | None = None) -> None:
        self._slots, self._device = slots, device
        self._seeds = [field_seed(root, slot.position, slot.field.name) for slot in slots]
        self._keys = np.frombuffer(b"".join(self._seeds), np.uint8)
        self._strides = np.array([slot.count(1) * compact_dtype(slot.field.bits).itemsize for slot in slots], np.uint64)
        self._by_xor = _row(slot.field.sharing is Sharing.XOR for slot in slots)
        self._room = lru_cache(SIZES_KEPT)(lambda executions: Room(slots, executions))
        self._fields = lru_cache(SIZES_KEPT)(self._find_fields)

    @cached_property
    def _streams(self) -> list[Stream]:
        return [Stream(seed) for seed in self._seeds]

    def expand(self, start: int | Array, executions: int) -> list[Array]:
        """The shares of executions [start, start + executions), field by field.

        For a device the start may be a word that lies there.
        """
        if self._device is not None:
            first = self._device.put(np.array([start], np.uint64)) if isinstance(start, int) else start
            return self._expand_there(self._device, first, executions)
        assert isinstance(start, int)
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

    def _expand_there(self, device: Device, start: Array, executions: int) -> list[Array]:
        room = self._room(executions)
        fields, longest = self._fields(executions)
        return room.arrays(device.expand(self._placed_keys, fields, start, longest, room.size))

    @cached_property
    def _placed_keys(self) -> Array:
        assert self._device is not None
        return self._device.put(self._keys)

    def _find_fields(self, executions: int) -> tuple[Array, int]:
        """What a device is told of each field, and the bytes of the longest one's stream."""
        assert self._device is not None
        room = self._room(executions)
        widths = np.array([compact_dtype(int(each)).itemsize for each in room.bits], np.uint64)
        keys = np.arange(0, 32 * len(self._slots), 32, dtype=np.uint64)
        fields = np.stack([keys, self._strides, room.starts, room.counts, room.bits, widths], axis=1)
        return self._device.put(fields), int((room.counts * widths).max(initial=0))

    def rest(self, values: Sequence[Array], start: int | Array, executions: int, corrections: Corrections) -> Array:
        """What is left of the values of these fields for the other party, packed; with room for common fields."""
        native, places = streaming(), corrections.places_of_shares
        if self._device is not None:
            packed = self._device.empty((corrections.size,), np.uint8)
        else:
            packed = np.empty(corrections.size, np.uint8)
        if native is None or self._device is not None:
            shares = self.expand(start, executions)
            for slot, place, value, share in zip(self._slots, places, values, shares, strict=True):
                words, bits = share.astype(np.uint64), slot.field.bits
                rest = value ^ words if slot.field.sharing is Sharing.XOR else value - words
                packed[place] = pack_there(modulo(rest, bits).reshape(-1), bits)
            return packed
        assert isinstance(start, int)
        room, offsets, starts = self._room(executions), self._strides * np.uint64(start), corrections.starts_of_shares
        native.correct(self._keys, offsets, starts, room.counts, room.bits, values, packed, self._by_xor)
        return packed


def _row(values: Iterable[int]) -> Array:
    return np.fromiter(values, np.uint64)
