"""Stands in for CuPy where there is no CUDA device: HDCOS_CUPY=hdcos.testing.emulated_cupy.

Arrays are as strict as CuPy's: NumPy never converts them silently, and operations that mix them with arrays of the host
raise TypeError. Kernels are the CUDA sources themselves, compiled by the C++ compiler of this machine with a header
that runs the threads of a block as fibres. So a whole cluster can be tried, bit for bit; what it cannot show is speed,
and faults that only many threads at once have.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import subprocess
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import takewhile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

HEADER = Path(__file__).with_name("cuda_emulation.h")
DISPATCHED = {
    np.concatenate, np.split, np.stack, np.repeat, np.pad, np.may_share_memory, np.take_along_axis, np.where, np.shape,
    np.moveaxis, np.broadcast_to, np.lib.stride_tricks.sliding_window_view, np.sum, np.array_equal,
}  # fmt: skip
"""Functions of NumPy that CuPy has too; a protocol that takes another fails here before it fails there."""
SCALARS = (bool, int, float, np.generic)
_here = threading.local()
"""`tape`: what this thread's stream captures, if it does."""


def _tape() -> list[Callable[[], Any]] | None:
    return getattr(_here, "tape", None)


_unsettled: dict[int, weakref.ref[Any]] = {}
"""Memory that was written since anybody waited for it, on the stream that is nobody's own."""


def _memory_of(host: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    while isinstance(host.base, np.ndarray):
        host = host.base
    return host


def _write(*hosts: np.ndarray[Any, Any]) -> None:
    """Note that memory is written, which other streams must not read yet."""
    if _tape() is None and not get_current_stream().non_blocking:
        _unsettled.update((id(memory), weakref.ref(memory)) for memory in map(_memory_of, hosts))


def _check_settled(host: np.ndarray[Any, Any]) -> None:
    """A stream that waits for no other reads only what was waited for before."""
    memory = _memory_of(host)
    if (known := _unsettled.get(id(memory))) is not None and known() is memory:
        raise RuntimeError("words are read by a stream of its own before anybody waited for them")


def _do(work: Callable[[], Any], *targets: np.ndarray[Any, Any]) -> None:
    """Change something on the device: now, or when the graph that is captured runs."""
    tape = _tape()
    if tape is None:
        work()
        _write(*targets)
    else:
        tape.append(work)


def _compute(work: Callable[[], Any], *sources: Any) -> Any:
    """What a computation makes: new memory, whose words a captured one has when its graph has run; or a view."""
    made, tape = work(), _tape()
    if any(_shares(made, x) for x in sources):
        return made
    if tape is None:
        _write(*(x for x in (made if isinstance(made, list | tuple) else (made,)) if isinstance(x, np.ndarray)))
        return made
    targets = made if isinstance(made, list | tuple) else (np.asarray(made),)

    def again() -> None:
        new = work()
        for target, words in zip(targets, new if isinstance(new, list | tuple) else (new,), strict=True):
            target[...] = words

    for target in targets:
        _spoil(target)
    tape.append(again)
    return made if isinstance(made, list | tuple) else targets[0]


def _shares(made: Any, source: Any) -> bool:
    if isinstance(source, list | tuple):
        return any(_shares(made, x) for x in source)
    if isinstance(made, list | tuple):
        return any(_shares(x, source) for x in made)
    return isinstance(source, np.ndarray) and np.may_share_memory(np.asarray(made), source)


def _spoil(host: np.ndarray[Any, Any]) -> None:
    """What was never written shows."""
    host[...] = np.frombuffer(bytes([0xA5]) * host.itemsize, host.dtype)[0]


_noted: list[tuple[Any, ...]] | None = None


@contextmanager
def noting_numbers() -> Iterator[list[tuple[Any, ...]]]:
    """What each computation is called and given besides arrays of the device: a graph repeats it with just that."""
    global _noted
    made: list[tuple[Any, ...]] = []
    before, _noted = _noted, made
    try:
        yield made
    finally:
        _noted = before


def _note(name: str, *arguments: Any) -> None:
    if _noted is not None:
        _noted.append((name, *map(_describe, arguments)))


def _describe(x: Any) -> Any:
    if isinstance(x, ndarray):
        return x.shape, x.dtype.str
    if isinstance(x, np.ndarray):
        return x.shape, x.dtype.str, x.tobytes()
    return tuple(map(_describe, x)) if isinstance(x, list | tuple) else repr(x)


def _refuse_capturing(what: str) -> None:
    if _tape() is not None:
        raise RuntimeError(f"{what}: operation not permitted when stream is capturing")


class ndarray(NDArrayOperatorsMixin):  # noqa: N801  as CuPy has it
    """An array that lies on the device, or so everybody must believe."""

    __array_priority__ = 100

    def __init__(self, host: np.ndarray[Any, Any], base: ndarray | None = None) -> None:
        self._host, self.base = host, base

    shape = property(lambda self: self._host.shape)
    dtype = property(lambda self: self._host.dtype)
    ndim = property(lambda self: self._host.ndim)
    size = property(lambda self: self._host.size)
    nbytes = property(lambda self: self._host.nbytes)
    itemsize = property(lambda self: self._host.itemsize)
    flags = property(lambda self: self._host.flags)
    T = property(lambda self: self._wrap(self._host.T))

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Please use `.get()`")

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        _note(f"{ufunc.__name__}.{method}", inputs)
        out = options.pop("out", ())
        places = inputs[1:2] if method == "at" else ()  # places of the host are put on the device, as in an index
        for x in (*inputs, *out):
            if not isinstance(x, (ndarray, np.ndarray, *SCALARS)):
                return NotImplemented
            if isinstance(x, np.ndarray) and not any(x is place for place in places):
                raise TypeError(f"Unsupported type {type(x)}")
        if out:
            options["out"] = tuple(_unwrap(x) for x in out)
        if places and isinstance(places[0], np.ndarray):
            _refuse_capturing("places of the host")
        known = [x._host if isinstance(x, ndarray) else x for x in inputs]
        work = partial(getattr(ufunc, method), *known, **options)
        if out or method == "at":
            _do(work, *(_unwrap(x) for x in out), *known[:1])
            return out[0] if out else None
        return _wrap(_compute(work))

    def __array_function__(self, function: Any, types: Any, arguments: Any, options: Any) -> Any:
        if function not in DISPATCHED:
            return NotImplemented
        _note(function.__name__, arguments, tuple(options.items()))
        if function in (np.concatenate, np.stack) and len(arguments[0]) > 8:
            _refuse_capturing("a list of addresses")  # of more than eight arrays CuPy copies one to the device
        known, named = _unwrap(arguments), _unwrap(options)
        return _wrap(_compute(lambda: function(*known, **named), *known))

    def _made(self, work: Callable[[], Any]) -> Any:
        return self._wrap(_compute(work, self._host))

    def _wrap(self, host: Any) -> Any:
        """A result, which keeps the memory alive that it may be a view of."""
        base = self if self.base is None else self.base
        host = np.asarray(host)
        return ndarray(host, base if np.may_share_memory(host, self._host) else None)

    def __len__(self) -> int:
        return len(self._host)

    def __iter__(self) -> Any:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, key: Any) -> Any:
        _note("getitem", key)
        known = _as_key(key)
        return self._made(lambda: self._host[known])

    def __setitem__(self, key: Any, value: Any) -> None:
        _note("setitem", key, value)
        known, words = _as_key(key), _unwrap(value)
        _do(lambda: self._host.__setitem__(known, words), self._host)

    def __repr__(self) -> str:
        return f"emulated_cupy.ndarray({self.shape}, {self.dtype})"

    def astype(self, dtype: Any, copy: bool = True) -> Any:
        return self if not copy and self.dtype == dtype else self._made(lambda: self._host.astype(dtype))

    def reshape(self, *shape: Any) -> Any:
        return self._made(lambda: self._host.reshape(*shape))

    def ravel(self) -> Any:
        return self._made(self._host.ravel)

    def transpose(self, *axes: Any) -> Any:
        return self._wrap(self._host.transpose(*axes))

    def view(self, dtype: Any) -> Any:
        return self._wrap(self._host.view(dtype))

    def copy(self) -> Any:
        return self._made(self._host.copy)

    def sum(self, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False) -> Any:
        return self._made(lambda: self._host.sum(axis=axis, dtype=dtype, keepdims=keepdims))

    def repeat(self, times: Any, axis: int | None = None) -> Any:
        return self._made(lambda: self._host.repeat(times, axis))

    def fill(self, value: Any) -> None:
        _note("fill", value)
        _do(lambda: self._host.fill(value), self._host)

    @property
    def data(self) -> _Memory:
        return _Memory(self._host)

    def get(self, out: np.ndarray[Any, Any] | None = None) -> np.ndarray[Any, Any]:
        _refuse_capturing("a copy to the host")
        if out is None:
            return self._host.copy()
        out[...] = self._host
        return out


class _Memory:
    """Where an array lies, for copies that a stream does in its turn."""

    def __init__(self, host: np.ndarray[Any, Any]) -> None:
        self._host = host

    def _bytes(self, size: int) -> Any:
        return self._host.reshape(-1).view(np.uint8)[:size]

    def copy_from_device_async(self, source: _Memory, size: int, stream: Stream) -> None:
        if stream.non_blocking:
            _check_settled(source._host)
        _do(lambda: self._bytes(size).__setitem__(..., source._bytes(size)))

    @property
    def ptr(self) -> int:
        """Those who copy from or to an address keep what lies there."""
        if (tape := _tape()) is not None:
            tape.append(partial(id, self._host))
        return int(self._host.ctypes.data)


def _copy(target: int, source: int, size: int, direction: int, stream: int) -> None:
    _do(lambda: ctypes.memmove(target, source, size))


class Stream:
    """Does everything at once, except what it captures."""

    def __init__(self, non_blocking: bool = False) -> None:
        self.non_blocking, self.ptr = non_blocking, 1

    def __enter__(self) -> Stream:
        _here.stream = self
        return self

    def __exit__(self, *error: object) -> None:
        _here.stream = NULL
        if _tape() is not None:
            raise RuntimeError("a stream is left while it captures")

    def begin_capture(self) -> None:
        _refuse_capturing("a capture")
        _here.tape = []

    def end_capture(self) -> Graph:
        graph, _here.tape = Graph(_here.tape), None
        return graph

    def synchronize(self) -> None:
        _refuse_capturing("waiting")
        if not self.non_blocking:
            _unsettled.clear()


NULL = Stream()


def get_current_stream() -> Stream:
    return getattr(_here, "stream", NULL)


class Graph:
    """What was captured."""

    def __init__(self, work: list[Callable[[], Any]]) -> None:
        self._work = work

    def launch(self, stream: Stream) -> None:
        for each in self._work:
            each()


def _unwrap(x: Any) -> Any:
    """What NumPy computes with in place of arguments; no array of the host among them."""
    if isinstance(x, ndarray):
        return x._host
    if isinstance(x, np.ndarray):
        raise TypeError(f"Unsupported type {type(x)}")
    if isinstance(x, list | tuple):
        return type(x)(_unwrap(part) for part in x)
    return {name: _unwrap(part) for name, part in x.items()} if isinstance(x, dict) else x


def _wrap(x: Any) -> Any:
    if isinstance(x, np.ndarray | np.generic):
        return ndarray(np.asarray(x))
    return type(x)(_wrap(part) for part in x) if isinstance(x, list | tuple) else x


def _as_key(key: Any) -> Any:
    """An index: arrays of either side may say which elements."""
    if isinstance(key, list | np.ndarray):
        _refuse_capturing("places of the host")
    if isinstance(key, tuple):
        return tuple(_as_key(part) for part in key)
    return key._host if isinstance(key, ndarray) else key


def asarray(x: Any, dtype: Any = None) -> ndarray:
    """A copy on the device."""
    if isinstance(x, ndarray):
        return x
    _refuse_capturing("a copy from the host")
    host = np.array(x, dtype)
    _take(host)
    _write(host)
    return ndarray(host)


def empty(shape: Any, dtype: Any = np.float64) -> ndarray:
    host = np.empty(shape, dtype)
    _take(host)
    _spoil(host)
    _write(host)
    return ndarray(host)


def zeros(shape: Any, dtype: Any = np.float64) -> ndarray:
    made = empty(shape, dtype)
    made.fill(0)
    return made


TOTAL_BYTES = 1 << 33
"""Of the device that is not there."""


class CUDARuntimeError(RuntimeError):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Memory:
    """A block of the driver's."""

    left, _lock = TOTAL_BYTES, threading.RLock()
    size = 0

    def __init__(self, size: int) -> None:
        with Memory._lock:
            if size > Memory.left:
                raise CUDARuntimeError(2, "cudaErrorMemoryAllocation: out of memory")
            Memory.left -= size
        self.size = size
        weakref.finalize(self, Memory._give_back, size)

    @classmethod
    def _give_back(cls, size: int) -> None:
        with cls._lock:
            cls.left += size


class MemoryPool:
    """Keeps the last block that nobody uses, as CuPy's keeps all of them."""

    def __init__(self, allocator: Any = lambda size: (Memory(size), 0)) -> None:
        self._allocator, self._free = allocator, list[Any]()

    def malloc(self, size: int) -> Any:
        if self._free and self._free[-1].size == size:
            return self._free.pop()
        return self._allocator(size)[0]

    def free_all_blocks(self) -> None:
        self._free.clear()

    def take_back(self, block: Any) -> None:
        self._free[:] = [block]


def set_allocator(malloc: Any) -> None:
    global _malloc
    _malloc = malloc


@contextmanager
def using_allocator(malloc: Any) -> Iterator[None]:
    """For this thread."""
    before, _here.malloc = getattr(_here, "malloc", None), malloc
    try:
        yield
    finally:
        _here.malloc = before


_malloc = MemoryPool().malloc


def _take(host: np.ndarray[Any, Any]) -> None:
    """Count an array that is made, until it is gone."""
    malloc: Any = getattr(_here, "malloc", None) or _malloc
    weakref.finalize(host, malloc.__self__.take_back, malloc(host.nbytes))


class PinnedMemoryPointer(bytearray):
    """Memory of the host that stays where it is."""


def _count_devices() -> int:
    """As many as the variable HDCOS_EMULATED_DEVICES says, as far as CUDA's own shows them: up to the first that is not
    there. With `none` there is no driver either."""
    said, shown = os.environ.get("HDCOS_EMULATED_DEVICES", "1"), os.environ.get("CUDA_VISIBLE_DEVICES")
    if said == "none":
        raise CUDARuntimeError(35, "cudaErrorInsufficientDriver: CUDA driver version is insufficient")
    there = [str(number) for number in range(int(said))]
    seen = there if shown is None else list(takewhile(there.__contains__, shown.split(",")))
    if not seen:
        raise CUDARuntimeError(100, "cudaErrorNoDevice: no CUDA-capable device is detected")
    return len(seen)


def _compiler_version() -> tuple[int, int]:
    """That of NVRTC, unless the variable HDCOS_EMULATED_NVRTC is `none`."""
    if os.environ.get("HDCOS_EMULATED_NVRTC") == "none":
        raise RuntimeError('Failure finding "libnvrtc.so.13":\n  No such file')
    return 13, 0


cuda = SimpleNamespace(
    alloc_pinned_memory=PinnedMemoryPointer,
    PinnedMemoryPointer=PinnedMemoryPointer,
    Stream=Stream,
    get_current_stream=get_current_stream,
    Memory=Memory,
    MemoryPointer=lambda memory, offset: (memory, offset),
    MemoryPool=MemoryPool,
    set_allocator=set_allocator,
    using_allocator=using_allocator,
    Device=lambda: SimpleNamespace(attributes={"MultiProcessorCount": 2}),
    runtime=SimpleNamespace(
        getDeviceCount=_count_devices,
        getDeviceProperties=lambda index: {"totalGlobalMem": 1 << 34},
        memGetInfo=lambda: (TOTAL_BYTES, 1 << 34),
        deviceSynchronize=NULL.synchronize,
        memcpyAsync=_copy,
        memcpyHostToDevice=1,
        memcpyDeviceToHost=2,
        CUDARuntimeError=CUDARuntimeError,
    ),
    nvrtc=SimpleNamespace(getVersion=_compiler_version),
)

_emulating = threading.Lock()
"""The fibres of one kernel at a time."""


class RawModule:
    """Kernels from their source."""

    def __init__(self, code: str, options: tuple[str, ...] = ()) -> None:
        self._library = ctypes.CDLL(str(_compile(code, options)))

    def get_function(self, name: str) -> Any:
        address = ctypes.cast(getattr(self._library, name), ctypes.c_void_p)

        def launch(grid: tuple[int, ...], block: tuple[int, ...], arguments: tuple[Any, ...]) -> None:
            _note(name, grid, block, arguments)
            words = (ctypes.c_uint64 * len(arguments))(*map(_as_word, arguments))
            sides = [ctypes.c_uint(side) for side in (*grid, 1, 1)[:3]]

            def work(kept: tuple[Any, ...] = arguments) -> None:  # the memory of its arguments
                with _emulating:
                    divided = self._library.emulate(address, words, len(arguments), *sides, ctypes.c_uint(block[0]))
                if divided:
                    raise RuntimeError(f"threads of a block of {name} disagree about a barrier")

            _do(work)

        return launch


def _as_word(x: Any) -> int:
    if isinstance(x, ndarray):
        if not x.flags.c_contiguous:
            raise TypeError("a kernel takes contiguous arrays")
        return int(x._host.ctypes.data)
    if not isinstance(x, np.uint64):
        raise TypeError(f"a kernel takes arrays and words of 64 bits, not {type(x)}")
    return int(x)


def _compile(code: str, options: tuple[str, ...]) -> Path:
    """The library of a source; kept from one process to the next."""
    whole = f'#include "{HEADER}"\n{code}'
    name = hashlib.sha256((HEADER.read_text() + whole).encode()).hexdigest()[:24]
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hdcos" / "emulation"
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / f"{name}.so"
    if not library.exists():
        source, made = folder / f"{name}.{os.getpid()}.cpp", folder / f"{name}.{os.getpid()}.so"
        source.write_text(whole)
        flags = [*options, "-O2", "-U_FORTIFY_SOURCE", "-shared", "-fPIC", "-w", "-o", str(made)]
        subprocess.run([os.environ.get("CXX", "c++"), *flags, str(source)], check=True)
        made.rename(library)
        source.unlink()
    return library
