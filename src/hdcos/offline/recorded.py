"""A function of numbers that a device computes again and again: recorded the second time, and from then on repeated.

What it reads besides its arguments must stay where it is and as it is: seeds, plans, weights that were opened.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hdcos.ring import Array
from hdcos.ring.device import Device, Recorder


class Recorded:
    """Calls of one function, one after the other, with arrays of this machine whose shapes never change."""

    def __init__(self, device: Device, function: Callable[..., Array]) -> None:
        self._device, self._function, self._calls = device, function, 0
        self._recorder: Recorder | None = None
        self._arguments: list[tuple[Array, Array]] = []
        """Of each argument: a room of this machine, and its mirror on the device."""

    def __call__(self, *arguments: Array) -> Array:
        """The result, on the device; it is gone with the next call."""
        self._calls += 1
        if self._calls == 2:  # the first call compiled what there is to compile
            return self._record(arguments)
        if self._recorder is not None:
            self._fill(arguments)
            self._recorder.repeat(0)
            return self._result
        return self._compute(arguments)

    def room(self, number: int, size: int) -> Array | None:
        """Where an argument of this many bytes is read from: one that already lies there is not copied."""
        if number < len(self._arguments) and self._arguments[number][0].nbytes == size:
            return self._arguments[number][0]
        return None

    def _compute(self, arguments: tuple[Array, ...]) -> Array:
        made: Array = self._function(*map(self._device.put, arguments))
        self._device.settle()
        return made

    def _record(self, arguments: tuple[Array, ...]) -> Array:
        recorder = self._device.recorder()
        for x in arguments:
            self._arguments.append((recorder.room(x.nbytes).view(x.dtype).reshape(x.shape), recorder.mirror(x)))
        self._fill(arguments)
        try:
            with recorder.segment():
                for room, mirror in self._arguments:
                    recorder.upload(mirror, room)
                made = self._function(*(mirror for _, mirror in self._arguments))
        except Exception:
            self._arguments.clear()
            return self._compute(arguments)  # what it was, if it was not that something cannot be recorded, comes again
        if recorder.complete:
            self._recorder, self._result = recorder, made
        else:
            self._arguments.clear()
        return made

    def _fill(self, arguments: tuple[Array, ...]) -> None:
        for (room, _), x in zip(self._arguments, arguments, strict=True):
            if x is not room:
                np.copyto(room, x)
