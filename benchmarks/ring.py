"""How the ring kernels compare with what NumPy does to floating-point arrays of the same size.

matmul_ratio          multiply-adds per second of the ring product over those of one-thread float64 `A @ B`
walsh_hadamard_ratio  time of the transform over the time of np.copyto on the same array
*_call_us             time of a call on one element: what a kernel costs before it computes
"""

from __future__ import annotations

import statistics
import time
import timeit
from collections.abc import Callable
from typing import Any

import numpy as np

from hdcos import ring


def timed(work: Callable[[], object], repeats: int) -> list[float]:
    """Seconds of each of `repeats` runs, after one to warm up."""
    work()
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return seconds


def measure(repeats: int = 30) -> dict[str, float | str]:
    """Milliseconds of each kernel and its yardstick on 128 x 1024 words, and the ratios."""
    rng = np.random.default_rng(1)
    floats = rng.normal(size=(128, 1024)), rng.normal(size=(1024, 1024))
    a, b, c = (rng.integers(0, 2**64, (n, 1024), dtype=np.uint64) for n in (128, 1024, 128))
    phase, out = rng.integers(0, 2**16, (128, 1024), dtype=np.uint16), np.zeros_like(a)
    layer = ring.HadamardLayer(phase, a, c, 16, 16, 1024, 1024, c[0])
    seconds = {
        "float_matmul": timed(lambda: floats[0] @ floats[1], repeats),
        "ring_matmul": timed(lambda: ring.matmul(a, b), repeats),
        "copy": timed(lambda: np.copyto(out, a), 5 * repeats),
        "walsh_hadamard": timed(lambda: ring.walsh_hadamard(a, out=out), 5 * repeats),
        "rotate": timed(lambda: ring.rotate(phase, a, c, 16, 16, sine=False), 5 * repeats),
        "hadamard_cos": timed(lambda: ring.hadamard_cos(layer), 5 * repeats),
        "hadamard_cos_open": timed(lambda: opened_layer(phase, a, c, c[0]), 5 * repeats),
        "hadamard_cos_open_row": timed(lambda: opened_layer(phase[:1], a[:1], c[:1], c[0]), 50 * repeats),
        "row_matmul": timed(lambda: ring.matmul(a[:1], b), 5 * repeats),
    }
    result: dict[str, float | str] = {"backend": ring.backend()}
    for name, runs in seconds.items():
        result[f"{name}_min_ms"] = 1e3 * min(runs)
        result[f"{name}_median_ms"] = 1e3 * statistics.median(runs)
    for kind, best in (("min", min), ("median", statistics.median)):
        time_of = {name: best(runs) for name, runs in seconds.items()}
        result[f"matmul_ratio_{kind}"] = time_of["float_matmul"] / time_of["ring_matmul"]
        result[f"walsh_hadamard_ratio_{kind}"] = time_of["walsh_hadamard"] / time_of["copy"]
    return result | call_overheads(repeats)


def opened_layer(phase: Any, a: Any, b: Any, bias: Any) -> Any:
    """A Hadamard layer as wide as its input, rounded to the width of the phases and masked by them."""
    size = a.shape[1]
    layer = ring.HadamardLayer(phase, a, b, 16, 16, size, size, bias)
    return ring.hadamard_cos_open(layer, ring.Opening(phase, 40, 16))


def call_overheads(repeats: int) -> dict[str, float]:
    """Microseconds of each call on one element."""
    x, phase = np.ones((1, 1), np.uint64), np.ones((1, 1), np.uint16)
    packed = ring.pack(phase, 12).tobytes()
    calls: dict[str, Callable[[], object]] = {
        "round_open": lambda: ring.round_open(x, phase, 40, 16),
        "rotate": lambda: ring.rotate(phase, x, x, 16, 16, sine=False),
        "pack": lambda: ring.pack(phase, 12),
        "unpack": lambda: ring.unpack(packed, 1, 12),
        "hadamard_cos_open": lambda: opened_layer(phase, x, x, x[0]),
    }
    best = {name: min(timeit.repeat(call, number=100, repeat=repeats)) for name, call in calls.items()}
    return {f"{name}_call_us": 1e6 * seconds / 100 for name, seconds in best.items()}


if __name__ == "__main__":
    for name, value in measure().items():
        print(f"{name:28} {value if isinstance(value, str) else format(value, '.3f')}")
