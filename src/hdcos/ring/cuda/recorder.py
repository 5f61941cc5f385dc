"""CUDA graphs: work that was recorded once, launched as a whole.

Memory  what is made while recording comes from a pool of its own, which nobody else takes memory from: an array that
        is gone leaves its place to later ones of the same recording, in the same order each time.
        What the graphs read besides, and others may let go, is kept (`keep_for_recording`).
Order   a recorder has a stream of its own, which waits for no other. Those who make what it reads settle it first.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from hdcos.ring.cuda.memory import Budget
from hdcos.ring.types import Array

_here = threading.local()
_counting, _recording, _collects = threading.Lock(), 0, True
"""Threads that record, and whether garbage was collected before the first of them."""


def keep_for_recording(*arrays: Array) -> None:
    """Have what is recorded keep arrays that it reads and that somebody else may let go."""
    recorder: CudaRecorder | None = getattr(_here, "recorder", None)
    if recorder is not None:
        recorder.kept += arrays


def give_up_recording() -> None:
    """What follows cannot be recorded: do what was recorded so far, and all else as it comes."""
    recorder: CudaRecorder | None = getattr(_here, "recorder", None)
    if recorder is not None:
        recorder.give_up()


class CudaRecorder:
    """See `ring.device.Recorder`."""

    def __init__(self, cupy: Any, budget: Budget) -> None:
        self._cupy, self.complete = cupy, True
        self._stream = cupy.cuda.Stream(non_blocking=True)
        self._pool = cupy.cuda.MemoryPool(budget.allocate)
        self._graphs: list[Any] = []
        self.kept: list[Array] = []
        """Tables and constants that the graphs read: repetitions find them by their address."""
        self._capturing = False

    @contextmanager
    def _own(self) -> Iterator[None]:
        with self._cupy.cuda.using_allocator(self._pool.malloc), self._stream:
            yield

    @contextmanager
    def segment(self) -> Iterator[None]:
        with self._own(), _without_collection():
            _here.recorder = self
            if self.complete:
                self._stream.begin_capture()
                self._capturing = True
            try:
                yield
            except BaseException:
                self.complete = False
                self._end_capture()
                raise
            finally:
                _here.recorder = None
            graph = self._end_capture()
            try:
                if graph is not None:
                    self._graphs.append(graph)
                    graph.launch(self._stream)
            finally:
                self._stream.synchronize()  # whatever ends this, nothing that is read or written is let go before

    def _end_capture(self) -> Any:
        if not self._capturing:
            return None
        self._capturing = False
        try:
            return self._stream.end_capture()
        except BaseException:
            self.complete = False  # something ended the capture before
            raise

    def give_up(self) -> None:
        """Do what was recorded of this segment; the rest, and all later ones, are done as they come."""
        self.complete = False
        graph = self._end_capture()
        if graph is not None:
            graph.launch(self._stream)
            self._stream.synchronize()

    def repeat(self, number: int) -> None:
        try:
            self._graphs[number].launch(self._stream)
        finally:
            self._stream.synchronize()

    def mirror(self, x: Array) -> Array:
        with self._own():
            made: Array = self._cupy.empty(x.shape, x.dtype)
            return made

    def room(self, size: int) -> Array:
        return np.frombuffer(self._cupy.cuda.alloc_pinned_memory(max(1, size)), np.uint8, max(1, size))[:size]

    def copy(self, pairs: Iterable[tuple[Array, Array]]) -> None:
        target: Any
        source: Any
        for target, source in pairs:
            if not source.flags.c_contiguous:
                raise ValueError("only arrays that lie in one piece are copied")
            target.data.copy_from_device_async(source.data, source.nbytes, self._stream)

    def upload(self, target: Array, source: Array) -> None:
        there: Any = target
        self._copy(there.data.ptr, source.ctypes.data, source.nbytes, "HostToDevice")

    def download(self, target: Array, source: Array) -> None:
        there: Any = source
        self._copy(target.ctypes.data, there.data.ptr, target.nbytes, "DeviceToHost")

    def _copy(self, target: int, source: int, size: int, direction: str) -> None:
        """As it is: CuPy does not know that what is copied from and to will still be there."""
        runtime = self._cupy.cuda.runtime
        if size:
            runtime.memcpyAsync(target, source, size, getattr(runtime, f"memcpy{direction}"), self._stream.ptr)


@contextmanager
def _without_collection() -> Iterator[None]:
    """What the collector of garbage gives back to the device could end a recording, of any thread."""
    global _recording, _collects
    with _counting:
        if not _recording:
            _collects = gc.isenabled()
            gc.disable()
        _recording += 1
    try:
        yield
    finally:
        with _counting:
            _recording -= 1
            if _collects and not _recording:
                gc.enable()
