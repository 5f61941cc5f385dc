"""The core's figures: exactness over 10^8 values, prices, precision, and speed as ratios of one run.

`python -m benchmarks.core` measures the speed lines alone.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from statistics import median

import numpy as np

import hdcos
from benchmarks import ring
from benchmarks.record import RESULTS, Line, at_least, at_most, exactly, write
from hdcos.api.commands import ReadCost
from hdcos.cli.cost import measure_activations
from hdcos.cluster.cluster import Cluster
from hdcos.protocol import cosine
from hdcos.protocol.catalogue import ACTIVATIONS, FUNCTIONS
from hdcos.protocol.opening import open_masked, round_lift
from hdcos.ring import decode
from hdcos.sharing import Share, join
from hdcos.testing.pair import share_pair, simulate

VALUES = 10**8
CHUNK = (1000, 1000)
ROUNDS = {name: {"none": 0, "cos_paper": 2}.get(name, 1) for name in ACTIVATIONS}


def prove(seed: int) -> Iterator[Line]:
    yield from speed()
    with hdcos.local() as cluster:
        yield from prices(cluster, seed)
        yield from precision(cluster, seed)
        activations = [asdict(row) for row in measure_activations(cluster)]
        (RESULTS / "activations.json").write_text(json.dumps(activations, indent=1) + "\n")
    yield from rounding("with lift", seed)
    yield from rounding("without lift", seed)
    yield from cosines(seed)
    yield test_time()


def speed() -> Iterator[Line]:
    """Ratios, each taken in one run."""
    kernels = ring.measure()
    name = f"ring matmul 128x1024x1024, multiply-adds per second over float64 A @ B ({kernels['backend']})"
    yield at_least(name, float(kernels["matmul_ratio_median"]), 0.5)
    name = "Walsh-Hadamard of 128x1024 int64, time over np.copyto"
    yield at_most(name, float(kernels["walsh_hadamard_ratio_median"]), 8)
    with hdcos.local() as cluster:
        yield from cosine_speed(cluster)


def cosine_speed(cluster: Cluster, repeats: int = 30) -> Iterator[Line]:
    """One-round cosine between two processes, against numpy.cos and the round trip of the same run."""
    x = np.random.default_rng(0).uniform(-20, 20, (128, 1024))
    numpy_s = median(ring.timed(lambda: np.cos(x), repeats))
    cosine_s = []
    with cluster.function("cos", x.shape) as cos:
        cos.prepare(repeats + 3)
        for _ in range(repeats + 3):
            cluster.reset_cost()
            cos(x)
            cosine_s.append(cluster.cost.online.seconds)
    round_trip_s = cluster.round_trip_s(1000)
    private_s = median(cosine_s[3:])
    yield at_most(
        f"cosine of 128x1024 shared values, {private_s * 1e3:.2f} ms, over twice numpy.cos "
        f"({numpy_s * 1e3:.2f} ms) plus two round trips ({round_trip_s * 1e6:.0f} us each)",
        private_s / (2 * numpy_s + 2 * round_trip_s),
        1,
    )


def prices(cluster: Cluster, seed: int) -> Iterator[Line]:
    """Declared, planned, metered and counted by the operating system, for every function."""
    generator = np.random.default_rng(seed)
    shapes = {"matmul": [(9, 17), (17, 5)], "multiply": [(9, 17)] * 2, "conv2d": [(4, 2, 12, 12), (3, 2, 5, 5)]}
    shapes |= dict.fromkeys(("greater_equal", "maximum", "minimum"), [(9, 17)] * 2)
    rounds, agreeing, sockets = {}, 0, 0
    for name, function in FUNCTIONS.items():
        low, high = function.interval or (-1.0, 1.0)
        inputs = [generator.uniform(low, high, shape) for shape in shapes.get(name, [(33, 65)])]
        cluster.reset_cost()
        with cluster.function(name, *(array.shape for array in inputs)) as private:
            private.prepare(1)
            private(*inputs)
            planned = private.planned
        cost = cluster.cost
        declared = function.price(*(array.shape for array in inputs), **function.parameters)
        agreeing += (
            (declared.rounds, declared.online_bytes, declared.offline_bytes)
            == (planned.rounds, planned.online_bytes, planned.offline_bytes)
            == (cost.online.rounds, cost.online.bytes_sent[0], cost.offline.bytes_sent[1])
        )
        rounds[name] = cost.online.rounds
        answers = cluster.transport.ask(ReadCost())
        sockets += all(meta["socket"]["metered"] == meta["socket"]["counted"] for meta, _ in answers)
    yield exactly("functions whose declared, planned and metered rounds and bytes agree", agreeing, len(FUNCTIONS))
    yield exactly("functions after which metered wire bytes equal TCP_INFO's", sockets, len(FUNCTIONS))
    for name in ACTIVATIONS:
        yield exactly(f"online rounds of {name}", rounds[name], ROUNDS[name])


def precision(cluster: Cluster, seed: int) -> Iterator[Line]:
    """Bytes and largest error of the one-round cosine."""
    generator = np.random.default_rng(seed)
    for bound, phase_bits, limit in ((20, 16, 2.5e-4), (1000, 16, 2.5e-4), (20, 24, 4e-6)):
        x = generator.uniform(-bound, bound, (512, 1024))
        cluster.reset_cost()
        error = float(np.abs(cluster.evaluate("cos", x, phase_bits=phase_bits) - np.cos(x)).max())
        yield at_most(f"largest error of cos at {phase_bits} bits, |x| <= {bound}", error, limit)
        if phase_bits == 16:
            sent = cluster.cost.online.bytes_sent[0] / x.size
            yield exactly(f"online bytes per element each way of cos, |x| <= {bound}", sent, 2.0)


def rounding(kind: str, seed: int) -> Iterator[Line]:
    """Openings that round, of random values up to the bound, through the protocol itself."""
    generator = np.random.default_rng([seed, kind == "with lift"])
    largest, total, squares, count, chunk = 0.0, 0.0, 0.0, 0, CHUNK[0] * CHUNK[1]
    widths = [(38, 26), (20, 30), (1, 20), (3, 40), (12, 52), (30, 33), (8, 16), (24, 24), (40, 24), (2, 58)]
    while count < VALUES:
        drop, bits = widths[count // chunk % len(widths)]
        lift = kind == "with lift"
        bound = 2 ** (drop + bits - 2)
        exact = generator.integers(-bound + 1, bound, CHUNK)
        exact[0, :500], exact[0, 500:] = bound - 1, 1 - bound  # the ends themselves
        program = _lifted if lift else _opened
        (share0, share1), _ = simulate(program, share_pair(exact.astype(np.uint64), 0), drop=drop, bits=bits)
        spare = np.uint64(64 - share0.bits)
        rounded = (join(share0.words, share1.words, share0.bits) << spare).astype(np.int64) >> spare.astype(np.int64)
        # Integers are compared with integers, and only the remainder is a float: nothing is lost.
        whole, rest = np.divmod(exact, 2**drop)
        error = (rounded - whole) - rest / 2.0**drop
        largest = max(largest, float(np.abs(error).max()))
        total, squares, count = total + float(error.sum()), squares + float((error**2).sum()), count + exact.size
    deviation = (squares / count) ** 0.5
    yield Line(f"largest error of {count:.0e} rounding openings {kind}, in units", largest, "< 1", largest < 1)
    sigmas = abs(total / count) / (deviation / count**0.5)
    yield at_most(f"their mean error {total / count:.1e}, in standard deviations of a mean of zero", sigmas, 4)


def _opened(party, x, drop, bits):  # type: ignore[no-untyped-def]
    return (yield from open_masked(party, x, drop, bits)).share(party)


def _lifted(party, x, drop, bits):  # type: ignore[no-untyped-def]
    return (yield from round_lift(party, x, drop, bits))


def cosines(seed: int) -> Iterator[Line]:
    """One-round cosines of shares that wrap the ring."""
    generator = np.random.default_rng([seed, 2])
    scale, largest, count = 40, 0.0, 0
    while count < VALUES:
        words = generator.integers(0, 2**64, CHUNK, dtype=np.uint64)
        # The second share is so large that both add up to more than 2**64 nearly always, and in the first row by one.
        share1 = np.uint64(0) - generator.integers(1, 2**40, CHUNK, dtype=np.uint64)
        share1[0] = np.uint64(2**64 - 1)
        pair = Share(words - share1, scale), Share(share1, scale)
        (zero, one), _ = simulate(cosine.cos, pair)
        turns = (words & np.uint64(2**scale - 1)).astype(np.float64) / 2**scale
        error = np.abs(decode(join(zero.words, one.words), zero.scale) - np.cos(2 * np.pi * turns))
        largest, count = max(largest, float(error.max())), count + words.size
    bound = cosine.error_bound(16)
    yield at_most(f"largest error of {count:.0e} one-round cosines of shares that wrap", largest, bound)


def test_time() -> Line:
    """A full run of the tests."""
    started = time.monotonic()
    finished = subprocess.run([sys.executable, "-m", "pytest", "-q"], capture_output=True, text=True, check=False)
    if finished.returncode:
        sys.exit(finished.stdout[-3000:])
    return at_most("seconds of a full `make test`", time.monotonic() - started, 600)


if __name__ == "__main__":
    write("bench_core", speed(), 0, "make bench")
