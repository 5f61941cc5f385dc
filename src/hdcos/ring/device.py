"""Where arrays lie: in the memory of this machine, or in that of a device whose kernels are called for them.

A device has arrays of a type of its own. They follow NumPy's protocols, so protocols are written once: operators and
`np` functions dispatch, kernels look at what they are given, and nothing mixes both memories silently. Arrays change
sides at few places: packed bytes are always of this machine (`pack`, `unpack`), seeds are expanded where the words are
wanted, rows and parameters are put, results are fetched.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from hdcos.errors import InputError
from hdcos.ring.types import Array

_NESTED = (tuple, list)


class Device(Protocol):
    """What computes in memory of its own."""

    name: str
    kernels: Any
    """Functions by the names and with the arguments of `reference`, for arrays of this device."""

    def put(self, x: Array) -> Array:
        """A copy of an array of this machine on the device; one that is there already as it is."""
        ...

    def constant(self, x: Array) -> Array:
        """The same for public words that are wanted again and again: put once, never written."""
        ...

    def room(self, size: int) -> Array:
        """Bytes of this machine that can be copied to the device and from it at full speed."""
        ...

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Array:
        """Room on the device."""
        ...

    def get(self, x: Array) -> Array:
        """A copy in the memory of this machine."""
        ...

    def expand(self, keys: Array, fields: Array, start: Array, longest: int, size: int) -> Array:
        """`size` bytes into which the streams of keys were expanded; all of the device, see `offline.shares`."""
        ...

    def guard(self) -> AbstractContextManager[None]:
        """Around what may not fit: DeviceError then, which says what to do."""
        ...

    def settle(self) -> None:
        """Wait until what this thread launched is done, so that other threads may use it."""
        ...

    def recorder(self) -> Recorder:
        """Records work of this device, for it to be repeated."""
        ...


class Recorder(Protocol):
    """Work of a device that is recorded in segments, each of which is repeated by one launch.

    A repetition computes with the same memory, which nobody else is given while the recorder lives: what it reads is
    put where the recorded work read it, and what it makes is fetched from where that lay.
    """

    complete: bool
    """Whether everything was recorded: not where a segment had words of the device fetched, or put there."""

    def segment(self) -> AbstractContextManager[None]:
        """Record what this thread launches in here; it is done when the context is left."""
        ...

    def repeat(self, number: int) -> None:
        """Do what a segment did, and wait until it is done."""
        ...

    def mirror(self, x: Array) -> Array:
        """Room on the device for words like these, for as long as the recorder lives."""
        ...

    def room(self, size: int) -> Array:
        """Bytes of this machine that copies to and from the device are recorded with."""
        ...

    def copy(self, pairs: Iterable[tuple[Array, Array]]) -> None:
        """Copy arrays of the device into others, (target, source); not recorded."""
        ...

    def upload(self, target: Array, source: Array) -> None:
        """Copy what lies in a `room` to the device; recorded in a segment."""
        ...

    def download(self, target: Array, source: Array) -> None:
        """Copy an array of the device into a `room`; recorded in a segment."""
        ...


@dataclass(frozen=True)
class Place:
    """Where processes compute: `cpu`, or devices by their names, with commas between them, which workers take in turn;
    and the most bytes that each process may take of its device's memory."""

    name: str = "cpu"
    memory: int | None = None

    def check(self) -> None:
        """Refuse devices that are not there, or have less memory, without using them."""
        self._check_words()
        for name in self._names():
            if name != "cpu":
                from hdcos.ring.cuda import check_device

                check_device(name, self.memory)

    def of_worker(self, index: int) -> Place:
        """That of one worker."""
        names = self._names()
        return replace(self, name=names[index % len(names)])

    def open(self) -> Device | None:
        """The device of the first worker, ready for use; None for this machine."""
        self._check_words()
        name = self._names()[0]
        if name == "cpu":
            return None
        from hdcos.ring.cuda import open_device

        return open_device(name, self.memory)

    def _check_words(self) -> None:
        """Refuse names that no device can have, those of later workers too, and a limit for nothing."""
        devices = [name for name in self._names() if name != "cpu"]
        if self.memory is not None and not devices:
            raise InputError("a limit of device memory is for a GPU: name one, such as cuda:0 (--device, device=)")
        for name in devices:
            from hdcos.ring.cuda import read_number

            read_number(name)

    def _names(self) -> list[str]:
        return [name.strip() for name in self.name.split(",")]


CPU = Place()
DEVICES: dict[type, Device] = {}
"""By the type of their arrays: a process has one of a type."""


def register(kind: type, device: Device) -> None:
    """Have kernels called by a device for arrays of a type."""
    DEVICES[kind] = device


def device_of(x: Any) -> Device | None:
    """The device that an array lies on; None for this machine."""
    return DEVICES.get(type(x))


def find_device(arguments: Iterable[Any]) -> Device | None:
    """The device of the first array that is on one, among arguments or in the tuples and lists among them."""
    for x in arguments:
        device = find_device(x) if isinstance(x, _NESTED) else DEVICES.get(type(x))
        if device is not None:
            return device
    return None


def guarded(device: Device | None) -> AbstractContextManager[None]:
    """Around what takes memory of a device, if there is one."""
    return nullcontext() if device is None else device.guard()


def beside(x: Array, like: Any) -> Array:
    """An array in the memory that another one lies in."""
    device = DEVICES.get(type(like))
    return x if device is None else device.put(x)


def constant_beside(x: Array, like: Any) -> Array:
    """Public words, always the same ones, in the memory that an array lies in. Never what is drawn or secret."""
    device = DEVICES.get(type(like))
    return x if device is None else device.constant(x)


def to_host(x: Array) -> Array:
    """An array in the memory of this machine."""
    device = DEVICES.get(type(x))
    return x if device is None else device.get(x)


def contiguous(x: Array) -> Array:
    """The array itself if it is C-contiguous, else a copy that is."""
    return x if x.flags.c_contiguous else x.copy()


def empty_beside(shape: tuple[int, ...], like: Any) -> Array:
    """Room for values of the type of another array, in the memory that it lies in."""
    device = DEVICES.get(type(like))
    return np.empty(shape, like.dtype) if device is None else device.empty(shape, like.dtype)


def empty_of_bytes(size: int, like: Any) -> Array:
    """Room for bytes, in the memory that an array lies in."""
    device = DEVICES.get(type(like))
    return np.empty(size, np.uint8) if device is None else device.empty((size,), np.uint8)


def join_flat(arrays: Sequence[Array]) -> Array:
    """The words of all arrays, one behind the other, in the memory that the first lies in."""
    if type(arrays[0]) is np.ndarray:
        return np.concatenate([x.ravel() for x in arrays])
    # Devices have a list of addresses copied for a concatenation, which cannot be recorded.
    made, start = empty_beside((sum(x.size for x in arrays),), arrays[0]), 0
    for x in arrays:
        made[start : start + x.size] = x.reshape(-1)
        start += x.size
    return made


def zeros_beside(shape: tuple[int, ...], like: Any) -> Array:
    """Zeros of the type of another array, in the memory that it lies in."""
    made = empty_beside(shape, like)
    made.fill(0)
    return made
