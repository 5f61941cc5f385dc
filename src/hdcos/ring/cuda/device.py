"""A CUDA device by its name, `cuda:0`: whether it is there, what its memory may hold, and what crosses to it.

CuPy is imported when a device is asked for. HDCOS_CUPY names a module that stands in for it, for tests without a
device. One process uses one device, in all its threads: the others are hidden from it.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from hdcos.errors import DeviceError, InputError
from hdcos.ring.cuda.kernels import CudaKernels
from hdcos.ring.cuda.memory import Budget
from hdcos.ring.cuda.recorder import CudaRecorder, give_up_recording, keep_for_recording
from hdcos.ring.device import DEVICES, register
from hdcos.ring.types import Array

GIB = 1 << 30
CONSTANTS = 1024
"""That are kept on the device at most."""
PINNED_BYTES = 1 << 16
"""From which size on copies go through pinned memory."""
NO_DEVICE = 100
"""What CUDA calls it (cudaErrorNoDevice) if a process can see none; CuPy has no name for it."""
STREAMS = "CUPY_CUDA_PER_THREAD_DEFAULT_STREAM"


class CudaDevice:
    """One device of this process."""

    def __init__(self, name: str, cupy: Any, memory: int | None = None) -> None:
        self.name, self._cupy = name, cupy
        self.kernels = CudaKernels(self, cupy)
        self._budget = Budget(cupy, self._find_limit(memory))
        cupy.cuda.set_allocator(self._budget.pool.malloc)
        self._constants: dict[tuple[str, tuple[int, ...], bytes], Array] = {}

    @property
    def memory(self) -> int:
        """Bytes that arrays may take, with all that is kept for later ones."""
        return self._budget.limit

    def _find_limit(self, wanted: int | None) -> int:
        """Bytes that arrays may take in all: what was asked for, or what is there."""
        free, total = self._cupy.cuda.runtime.memGetInfo()
        if wanted is None:
            return int(total)
        if not 0 < wanted <= free:
            raise DeviceError(
                f"{self.name} has {free / GIB:.1f} of {total / GIB:.1f} GiB free, {wanted / GIB:.1f} GiB were asked "
                f"for: give less by --device-memory, or end what else runs there"
            )
        return wanted

    def put(self, x: Array) -> Array:
        if type(x) in DEVICES:
            return x
        give_up_recording()
        with self.guard():
            if x.nbytes >= PINNED_BYTES and x.flags.c_contiguous and self._is_pinned(x):
                return self._put_pinned(x)
            made: Array = self._cupy.asarray(x)
            return made

    def _is_pinned(self, x: Any) -> bool:
        """Whether an array lies in a `room`."""
        while isinstance(x, np.ndarray):
            x = x.base
        return isinstance(x.obj if isinstance(x, memoryview) else x, self._cupy.cuda.PinnedMemoryPointer)

    def _put_pinned(self, x: Array) -> Array:
        """Without the copy that CuPy makes to such memory; it is done when this returns."""
        runtime, stream = self._cupy.cuda.runtime, self._cupy.cuda.get_current_stream()
        made = self.empty(x.shape, x.dtype)
        there: Any = made
        runtime.memcpyAsync(there.data.ptr, x.ctypes.data, x.nbytes, runtime.memcpyHostToDevice, stream.ptr)
        stream.synchronize()
        return made

    def room(self, size: int) -> Array:
        if size < PINNED_BYTES:
            return np.empty(size, np.uint8)
        return np.frombuffer(self._cupy.cuda.alloc_pinned_memory(size), np.uint8, size)

    def constant(self, x: Array) -> Array:
        if type(x) in DEVICES:  # a public result that never left the device
            return x
        key = x.dtype.str, x.shape, x.tobytes()
        made = self._constants.get(key)
        if made is None:
            if len(self._constants) >= CONSTANTS:
                self._constants.clear()
            made = self.put(x)
            self.settle()  # other threads will read it
            self._constants[key] = made
        keep_for_recording(made)
        return made

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Array:
        made: Array = self._cupy.empty(shape, dtype)
        return made

    def get(self, x: Array) -> Array:
        give_up_recording()
        source: Any = x
        if x.nbytes < PINNED_BYTES:
            small: Array = source.get()
            return small
        # Pages that stay where they are take copies at several times the speed; CuPy keeps them for the next.
        target: Array = self.room(x.nbytes).view(x.dtype).reshape(x.shape)
        source.get(out=target)
        return target

    def wait(self) -> None:
        """Until everything that was launched so far is done: for measurements."""
        self._cupy.cuda.runtime.deviceSynchronize()

    def expand(self, keys: Array, fields: Array, start: Array, longest: int, size: int) -> Array:
        keep_for_recording(keys, fields)
        return self.kernels.expand(keys, fields, start, longest, size)

    def settle(self) -> None:
        self._cupy.cuda.get_current_stream().synchronize()

    def recorder(self) -> CudaRecorder:
        return CudaRecorder(self._cupy, self._budget)

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Around what may not fit: an error that says what to do."""
        try:
            yield
        except MemoryError as error:
            raise DeviceError(
                f"the {self.memory / GIB:.1f} GiB of {self.name} do not suffice ({error}): take smaller batches, "
                f"prepare fewer rows ahead, or give more by --device-memory"
            ) from None


def open_device(name: str, memory: int | None = None) -> CudaDevice | None:
    """The device of this process, ready for use; None for `cpu`, this machine. `memory` is the most it may take."""
    if name == "cpu":
        return None
    index = read_number(name)
    for device in DEVICES.values():
        if isinstance(device, CudaDevice):
            if device.name != name:
                raise InputError(f"this process uses {device.name}: one of {name} is another process")
            return device
    with _showing_only(index):
        cupy = _import_cupy()
        found = _count(cupy)
    if not found:
        raise DeviceError(f"there is no device {name}: `nvidia-smi -L` lists those of this machine; or use cpu")
    if found > 1:
        raise DeviceError(f"CUDA was begun before {name} was asked for: set CUDA_VISIBLE_DEVICES={index}, use cuda:0")
    _check_compiler(cupy)
    opened = CudaDevice(name, cupy, memory)
    register(cupy.ndarray, opened)
    return opened


def check_device(name: str, memory: int | None = None) -> None:
    """Refuse a device that is not there, or has less memory; nothing is begun on it."""
    index, cupy = read_number(name), _import_cupy()
    found = _count(cupy)
    if index >= found:
        raise DeviceError(f"there is no device {name}: this machine has {found}, which `nvidia-smi -L` lists")
    total = int(cupy.cuda.runtime.getDeviceProperties(index)["totalGlobalMem"])
    if memory is not None and not 0 < memory <= total:
        raise DeviceError(f"{name} has {total / GIB:.1f} GiB, {memory / GIB:.1f} GiB cannot be taken of it")


def read_number(name: str) -> int:
    """The number of a device; a name that no device can have is refused, without CuPy."""
    match = re.fullmatch(r"cuda:(\d{1,3})", name)
    if match is None:
        raise InputError(f"a device is cpu, cuda:0, cuda:1 and so on, not {name!r}")
    return int(match[1])


def _count(cupy: Any) -> int:
    """Devices that this process can see."""
    try:
        return int(cupy.cuda.runtime.getDeviceCount())
    except cupy.cuda.runtime.CUDARuntimeError as error:
        if error.status == NO_DEVICE:  # a driver is there
            return 0
        raise DeviceError(f"no CUDA device can be used: {error}. Install a driver, or use cpu") from None


@contextmanager
def _showing_only(index: int) -> Iterator[None]:
    """Hides all devices but one from this process, which has not looked for any yet: the driver reads the variable when
    it is first called. Afterwards it is as it was, for processes that this one starts and that may use other devices.
    """
    shown = os.environ.get("CUDA_VISIBLE_DEVICES")
    known = shown.split(",") if shown else []
    if known and index >= len(known):
        raise DeviceError(f"CUDA_VISIBLE_DEVICES={shown} shows {len(known)} devices, cuda:{index} is none of them")
    os.environ["CUDA_VISIBLE_DEVICES"] = known[index] if known else str(index)
    try:
        yield
    finally:
        if shown is None:
            del os.environ["CUDA_VISIBLE_DEVICES"]
        else:
            os.environ["CUDA_VISIBLE_DEVICES"] = shown


def _check_compiler(cupy: Any) -> None:
    """Refuse a CuPy that cannot compile: it looks for its compiler only when it first needs it, amid some work."""
    try:
        cupy.cuda.nvrtc.getVersion()
    except RuntimeError as error:
        raise DeviceError(
            f"the compiler of kernels (NVRTC) is not there: {_as_line(error)}. pip install 'hdcos[gpu]' brings it"
        ) from None


def _import_cupy() -> Any:
    """CuPy. Its streams must be those of a process: what one thread launched is read by others that wait for nothing
    else, and a stream of its own for each thread would take that order away, silently."""
    if os.environ.get(STREAMS, "0").strip() not in ("", "0"):
        raise DeviceError(f"{STREAMS}={os.environ[STREAMS]} would let threads read what is not computed yet: unset it")
    module = os.environ.get("HDCOS_CUPY", "cupy")
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise DeviceError(f"a CUDA device needs {error.name}: pip install 'hdcos[gpu]'") from None
    except ImportError as error:
        raise DeviceError(
            f"{module} cannot be imported: {_as_line(error)}. pip install 'hdcos[gpu]' installs what fits"
        ) from None


def _as_line(error: Exception) -> str:
    """What another library said, over however many lines."""
    return " ".join(str(error).split())
