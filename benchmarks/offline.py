"""Material without a dealer: traffic, rates, correctness of millions of items, whole networks, and failures.

Rates are of two processes on two cores, over TLS on loopback, and stand beside one core's AES throughput of the same
run.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from statistics import median
from typing import Any

import numpy as np
from scipy import stats

import hdcos
from benchmarks.record import Line, at_least, at_most, exactly
from benchmarks.two_parties import aes_bytes_per_second, run_both
from hdcos import data, nn
from hdcos.offline import (
    FusedTrig,
    GrowingTrig,
    LiftedPowers,
    LiftedTimesMask,
    LiftedTimesTrig,
    LiftedTotal,
    Mask,
    MaskProduct,
    Need,
    Plan,
    Powers,
    Reference,
    RoundingMask,
    TrigPair,
)
from hdcos.offline.ot import OtSource, traffic
from hdcos.offline.ot.product import Product
from hdcos.offline.ot.session import talk_over
from hdcos.secure.compile import compile_network
from hdcos.secure.estimate import ot_traffic
from hdcos.secure.program import plan_inference
from hdcos.testing.ot_pair import Pair, joined, wrong_fields

TRANSFERS = 1 << 22
PAIRS = 100_000


def rates(seed: int) -> Iterator[Line]:
    """Correlated transfers and trig pairs per second, traffic planned and metered."""
    aes = aes_bytes_per_second()
    seconds = [max(pair) for pair in zip(*run_both(_transfer, repeats=9), strict=True)]
    rate = 2 * TRANSFERS / min(seconds)
    name = "correlated transfers of 64-bit words per second, both directions together"
    yield at_least(f"{name}, best of {len(seconds)} runs", rate, 4e6)
    yield at_least(f"{name}, median", 2 * TRANSFERS / median(seconds), 4e6)
    yield Line("bytes of the best run's words over one core's AES throughput", 8 * rate / aes, "reported", True)
    yield Line("one core's AES-128-CTR throughput in the same run, GB/s", aes / 1e9, "reported", True)
    for name, plan, others, executions, limit in (
        ("trig pair", _pairs(PAIRS), {}, 1, 1200.0),
        ("fused HD-cos unit, 64 inputs at once", _fused(1024), {"model": _weights(1024)}, 64, 3000.0),
        ("fused HD-cos unit, one input at a time", _fused(1024), {"model": _weights(1024)}, 1, 3000.0),
    ):
        sides = run_both(_fill, plan=plan, others=others, executions=executions, repeats=5)
        units = executions * sum(item.size for item in plan.needs[-1].kind.fields()[:1]) * plan.needs[-1].units
        planned = traffic(plan, executions, others).bytes
        yield at_most(f"bytes per {name}, both directions together", planned / units, limit)
        yield exactly(f"metered bytes of {units:,} of them, less planned", sum(s["bytes"] for s in sides) - planned, 0)
        spent = median(max(pair) for pair in zip(*(side["seconds"] for side in sides), strict=True))
        if name == "trig pair":
            yield at_least("trig pairs per second", units / spent, 20_000)
            ratio = units / spent / (aes / 16)
            yield Line("trig pairs per AES block that one core does meanwhile", ratio, "reported", True)
        else:
            yield Line(f"{name}: units per second", units / spent, "reported", True)


def _pairs(count: int) -> Plan:
    return Plan((Need(TrigPair((count,), 16, 16), 1),))


def _weights(units: int) -> Plan:
    return Plan((Need(Mask((units,)), 1),))


def _fused(units: int) -> Plan:
    return Plan((Need(FusedTrig((units,), 16, 16, Reference(0, "model", whole=True)), 1),))


def _transfer(source: OtSource, options: dict[str, Any]) -> list[float]:
    """Seconds of each run of 2 * TRANSFERS transfers, half of them in each direction."""
    link, count = source.link, TRANSFERS // 64
    session = source._session
    rng = np.random.default_rng()
    numbers, vectors = (
        rng.integers(0, 2**64, count, dtype=np.uint64),
        rng.integers(0, 2**64, (count, 1), dtype=np.uint64),
    )
    seconds = []
    for _ in range(options["repeats"]):
        started = time.perf_counter()
        products = [
            Product(chooser, numbers if source.rank == chooser else vectors, count, count, 1, 64, 64)
            for chooser in (0, 1)
        ]
        talk_over(session.products(products), link, "transfers")
        seconds.append(time.perf_counter() - started)
    return seconds


def _fill(source: OtSource, options: dict[str, Any]) -> dict[str, Any]:
    for name, plan in options["others"].items():
        source.fill(source.open(name, plan), 1)
    seconds, sizes = [], 0
    for number in range(options["repeats"]):
        pool = source.open(f"work {number}", options["plan"])
        before = source.meter.snapshot().sections["offline"].bytes_received
        started = time.perf_counter()
        source.fill(pool, options["executions"])
        seconds.append(time.perf_counter() - started)
        sizes = source.meter.snapshot().sections["offline"].bytes_received - before
    return {"seconds": seconds, "bytes": sizes}


# ---- correctness


ROWS = 125
WIDTH = 16


def material_plan() -> Plan:
    """Every kind, and every operation on masks; WIDTH or more numbers per row."""
    whole, rows = {"whole": True}, {"rows": True}
    return Plan(
        (
            Need(Mask((WIDTH,)), ROWS),
            Need(Mask((WIDTH, WIDTH)), 1),
            Need(MaskProduct("matmul", (WIDTH,), Reference(0), Reference(1, **whole)), ROWS),
            Need(MaskProduct("matmul.input", (WIDTH,), Reference(0), Reference(1, **whole)), ROWS),
            Need(MaskProduct("matmul.weight", (WIDTH, WIDTH), Reference(0, **rows), Reference(0, **rows)), 1),
            Need(MaskProduct("multiply", (WIDTH,), Reference(0), Reference(0)), ROWS),
            Need(Mask((WIDTH,)), 1),
            Need(MaskProduct("circulant", (WIDTH,), Reference(0), Reference(6, **whole)), ROWS),
            Need(MaskProduct("circulant.input", (WIDTH,), Reference(0), Reference(6, **whole)), ROWS),
            Need(MaskProduct("circulant.weight", (WIDTH,), Reference(0, **rows), Reference(0, **rows)), 1),
            Need(Mask((2, 5, 5), 40), ROWS),
            Need(Mask((2, 2, 3, 3), 40), 1),
            Need(MaskProduct("conv2d", (2, 3, 3), Reference(10), Reference(11, **whole), 40), ROWS),
            Need(Mask((2, 3, 3), 40), ROWS),
            Need(MaskProduct("conv2d.input", (2, 5, 5), Reference(13), Reference(11, **whole), 40), ROWS),
            Need(MaskProduct("conv2d.weight", (2, 2, 3, 3), Reference(10, **rows), Reference(13, **rows), 40), 1),
            Need(RoundingMask((WIDTH,), 26), ROWS),
            Need(Powers((WIDTH,), 3), ROWS),
            Need(Powers((WIDTH,), 2, 41), ROWS),
            Need(TrigPair((WIDTH,), 20, 18), ROWS),
            Need(TrigPair((4,), 20, 24, (1, 3, 5, 7)), ROWS),
            Need(FusedTrig((WIDTH,), 16, 16, Reference(6, **whole)), ROWS),
            Need(FusedTrig((4 * WIDTH,), 16, 16, Reference(6, **whole), (4, 4, 4, 2)), ROWS),
            Need(GrowingTrig((WIDTH,), 24, 16, 14), ROWS),
            Need(RoundingMask((WIDTH,), 24, summed=True), ROWS),
            Need(LiftedPowers((WIDTH,), 3, 24), ROWS),
            Need(LiftedTimesMask((WIDTH,), Reference(24), Reference(6, **whole), 24), ROWS),
            Need(LiftedTimesTrig((WIDTH,), Reference(24), Reference(21), 24, weight=True), ROWS),
            Need(LiftedTimesTrig((4 * WIDTH,), Reference(24), Reference(22), 24, pool=(4, 4, 4, 2)), ROWS),
            Need(LiftedTotal((WIDTH,), Reference(24, **rows), 24), 1),
        )
    )


def gradient_plans() -> dict[str, tuple[Plan, int]]:
    """Kinds that sum over rows and so give few numbers: plans of their own, and their executions."""
    rows = {"rows": True}

    def plan(kind: MaskProduct, x: Mask, g: Mask) -> Plan:
        return Plan((Need(x, 2), Need(g, 2), Need(kind, 1)))

    left, right = Reference(0, **rows), Reference(1, **rows)
    matrix = MaskProduct("matmul.weight", (100, 100), left, right)
    images = MaskProduct("conv2d.weight", (16, 8, 5, 5), left, right, 40)
    ring = MaskProduct("circulant.weight", (128,), left, right, 24)
    total = Plan((Need(RoundingMask((2000,), 24, summed=True), 2), Need(LiftedTotal((2000,), left, 24), 1)))
    return {
        "lifted_total": (total, 50),
        "mask_product matmul.weight": (plan(matrix, Mask((100,)), Mask((100,))), 10),
        "mask_product conv2d.weight": (plan(images, Mask((8, 8, 8), 40), Mask((16, 4, 4), 40)), 32),
        "mask_product circulant.weight": (plan(ring, Mask((128,), 24), Mask((128,), 24)), 782),
    }


def material(seed: int) -> Iterator[Line]:
    """A million trig pairs and 10^5 items of every other kind, joined and compared; shares tested for uniformity."""
    pair, plan, count = Pair(), _pairs(PAIRS), 0
    bad, worst, sums, squares = 0, 0.0, 0.0, 0.0
    uniform = _Uniform()
    for number in range(10):
        allocations = [pool.begin(1) for pool in pair.fill(plan, 1, f"pairs {number}")]
        for rank, allocation in enumerate(allocations):
            for item, share in zip(plan.needs[0].kind.fields(), allocation.peek(0), strict=True):
                uniform.add((f"party {rank}", item.name), share, item.bits)
        values = joined(plan, allocations)
        bad += sum(wrong_fields(plan, values).values())
        angle = -2 * np.pi * values[0]["mask"].astype(float) / 2**16
        error = np.concatenate(
            [values[0][n].astype(np.int64) - 2**16 * f(angle) for n, f in (("cos", np.cos), ("sin", np.sin))], axis=None
        )
        worst, count = max(worst, float(np.abs(error).max())), count + error.size // 2
        sums, squares = sums + float(error.sum()), squares + float((error**2).sum())
    yield at_least("trig pairs joined and compared", count, 10**6)
    yield exactly("wrong ones among them", bad, 0)
    yield at_most("largest error of a cosine or sine, units of 2**-16", worst, 1.5)
    yield at_most("mean error in standard errors", float(abs(sums) / np.sqrt(squares)), 5)
    plan, items = material_plan(), {}
    found: dict[str, int] = {}
    executions = 50
    pools = pair.fill(plan, executions, "every kind")
    for _ in range(executions):
        allocations = [pool.begin(1) for pool in pools]
        for rank, allocation in enumerate(allocations):
            for position, need in enumerate(plan.needs):
                for item, share in zip(need.kind.fields(), allocation.peek(position), strict=True):
                    uniform.add((f"party {rank}", position, item.name), share, item.bits)
        values = joined(plan, allocations)
        for name, wrong in wrong_fields(plan, values).items():
            found[name] = found.get(name, 0) + wrong
        for need, fields in zip(plan.needs, values, strict=True):
            operation = getattr(need.kind, "operation", "")
            name = f"{need.kind.name} {operation}".strip()
            items[name] = items.get(name, 0) + max(array.size for array in fields.values())
    for name, (gradients, count) in gradient_plans().items():
        pools = pair.fill(gradients, count, name)
        for _ in range(count):
            values = joined(gradients, [pool.begin(1) for pool in pools])
            found[name] = found.get(name, 0) + sum(wrong_fields(gradients, values).values())
            items[name] += max(array.size for array in values[-1].values())
    for name, size in items.items():
        yield at_least(f"numbers of {name} joined and compared", size, 10**5)
    yield exactly("wrong numbers among them", sum(found.values()), 0)
    yield at_least(f"smallest of {uniform.tests} p-values of uniformity, times their number", uniform.smallest(), 1e-4)


class _Uniform:
    """Chi-square tests of the low, middle and high bits of shares."""

    def __init__(self) -> None:
        self._counts: dict[tuple[Any, ...], np.ndarray] = {}

    def add(self, name: tuple[Any, ...], share: np.ndarray, bits: int) -> None:
        for shift in {0, max(0, (bits - 8) // 2), max(0, bits - 8)}:
            window = (share.ravel().astype(np.uint64) >> np.uint64(shift)) & np.uint64((1 << min(8, bits)) - 1)
            counts = np.bincount(window.astype(np.int64), minlength=1 << min(8, bits))
            known = self._counts.get((*name, shift))
            self._counts[*name, shift] = counts if known is None else known + counts

    @property
    def tests(self) -> int:
        return sum(counts.sum() >= 10_000 for counts in self._counts.values())

    def smallest(self) -> float:
        p = [stats.chisquare(counts).pvalue for counts in self._counts.values() if counts.sum() >= 10_000]
        return float(min(p) * len(p))


# ---- protocols, networks, failures


def protocols(seed: int) -> Iterator[Line]:
    """The protocol tests, uniformity included, with both sources."""
    yield from _pytest("protocol tests with both sources: failed", ["tests/protocol"], {"HDCOS_ALL_SOURCES": "1"})


def failures(seed: int) -> Iterator[Line]:
    """Peers that stop, lie about counts or repeat themselves, and a flipped bit."""
    paths = ["tests/offline/test_ot.py", "tests/offline/test_ot_source.py"]
    yield from _pytest(
        "tests of transfers and of their failures: failed", [*paths, "tests/cluster/test_without_dealer.py"]
    )


def _pytest(line: str, paths: list[str], environment: dict[str, str] | None = None) -> Iterator[Line]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *paths]
    done = subprocess.run(
        command, env={**os.environ, **(environment or {})}, capture_output=True, text=True, check=False
    )
    last = done.stdout.strip().splitlines()[-1]
    yield exactly(f"{line} ({last.split(' in ')[0]})", done.returncode, 0)


def networks(seed: int) -> Iterator[Line]:
    """Inference and training in two processes, with nobody else."""
    model = nn.models.pretrained("lenet5_mnist")
    images, labels = data.mnist("test")
    x, y = images[:5], labels[:5]
    results, online = {}, {}
    for dealer in (True, False):
        with hdcos.local(dealer=dealer, timeout_s=120) as cluster:
            yield exactly(
                f"processes {'with' if dealer else 'without'} a dealer", len(cluster.pids), 3 if dealer else 2
            )
            private = cluster.share(model)
            cluster.reset_cost()
            started = time.perf_counter()
            private.prepare(5)
            made_s = time.perf_counter() - started
            results[dealer] = private.predict(x)
            cost = cluster.cost
            online[dealer] = (cost.online.rounds, cost.online.bytes_sent)
            offline = sum(cost.offline.bytes_sent)
        error = float(np.abs(results[dealer] - model(x)).max())
        yield at_most(f"LeNet-5 HD-cos, 5 MNIST images, largest error of a logit, dealer {dealer}", error, 1e-2)
    yield exactly(
        "the same predictions as the plain model", bool((results[False].argmax(1) == model(x).argmax(1)).all()), True
    )
    yield Line("of the 5 images recognised", int((results[False].argmax(1) == y).sum()), "reported", True)
    yield exactly("online rounds and bytes are the same with both sources", online[True] == online[False], True)
    planned = ot_traffic(compile_network(model, dealer=False), 5).bytes
    yield exactly("metered less planned traffic of their material without a dealer", offline - planned, 0)
    yield Line("MB of traffic per image without a dealer", offline / 5e6, "reported", True)
    yield Line(
        "the same from a dealer, MB",
        plan_inference(compile_network(model)).material.dealt_bytes(1) / 1e6,
        "reported",
        True,
    )
    yield Line("seconds per image to make material without a dealer", made_s / 5, "reported", True)
    yield from _digits(seed)


def _digits(seed: int) -> Iterator[Line]:
    """One epoch of digits."""
    x, y = data.digits("train")
    images, _ = data.digits("test")
    model = nn.models.mlp([64, 64, 10], "cos", "hadamard", seed=7)
    scores, seconds, spent = {}, {}, {}
    for dealer in (True, False):
        with hdcos.local(dealer=dealer, timeout_s=120) as cluster:
            started = time.perf_counter()
            trained = cluster.fit(model, x, y, epochs=1, batch_size=100, lr=1.0, seed=11, progress=False)
            seconds[dealer], spent[dealer] = time.perf_counter() - started, sum(cluster.cost.offline.bytes_sent)
            scores[dealer] = trained.predict(images)
    difference = float(np.sqrt(((scores[True] - scores[False]) ** 2).mean()))
    yield at_most(
        f"digits, one epoch of {len(x)} rows: rms difference of logits, trained without and with a dealer",
        difference,
        5e-3,
    )
    for dealer, name in ((True, "with"), (False, "without")):
        yield Line(f"the epoch {name} a dealer, seconds", seconds[dealer], "reported", True)
        yield Line(f"the epoch {name} a dealer, MB of material", spent[dealer] / 1e6, "reported", True)


PARTS = {"rates": rates, "material": material, "networks": networks, "failures": failures, "protocols": protocols}
