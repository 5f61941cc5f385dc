"""CUDA graphs: work that was recorded once, launched as a whole.

Memory  what is made while recording comes from a pool of its own, which nobody else takes memory from: an array that
        is gone leaves its place to later ones of the same recording, in the same order each time.
Order   a recorder has a stream of its own, which waits for no other. Those who make what it reads settle it first.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from hdcos.ring.types import Array

_here = threading.local()


def give_up_recording() -> None:
    """What follows cannot be recorded: do what was recorded so far, and all else as it comes."""
    recorder: CudaRecorder | None = getattr(_here, "recorder", None)
    if recorder is not None:
        recorder.give_up()


class CudaRecorder:
    """See `ring.device.Recorder`."""

    def __init__(self, cupy: Any, memory: int) -> None:
        self._cupy, self.complete = cupy, True
        self._stream = cupy.cuda.Stream(non_blocking=True)
        self._pool = cupy.cuda.MemoryPool()
        self._pool.set_limit(size=memory)
        self._graphs: list[Any] = []
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
            if graph is not None:
                self._graphs.append(graph)
                graph.launch(self._stream)
            self._stream.synchronize()

    def _end_capture(self) -> Any:
        if not self._capturing:
            return None
        self._capturing = False
        return self._stream.end_capture()

    def give_up(self) -> None:
        """Do what was recorded of this segment; the rest, and all later ones, are done as they come."""
        self.complete = False
        graph = self._end_capture()
        if graph is not None:
            graph.launch(self._stream)
            self._stream.synchronize()

    def repeat(self, number: int) -> None:
        self._graphs[number].launch(self._stream)
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
    """What the collector of garbage gives back to the device could end a recording."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
