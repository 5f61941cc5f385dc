"""Comparison on shares: what a ReLU costs as metered, and that no comparison is wrong.

`make prove SUITE=compare COMPARISONS=1000000` makes fewer than the 10^8 comparisons of each way, for a quick look.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from statistics import median
from typing import Any

import numpy as np

import hdcos
from benchmarks.compare_attacks import prove_attacks
from benchmarks.compare_imports import prove_imports, prove_residual
from benchmarks.compare_networks import ROUNDS, prove_lenet, prove_networks
from benchmarks.compare_training import prove_training
from benchmarks.record import Line, at_most, exactly
from hdcos import nn
from hdcos.cluster.cluster import Cluster
from hdcos.protocol import argmax, relu, sign
from hdcos.protocol.rounds import Rounds
from hdcos.ring import Array
from hdcos.secure.estimate import estimate, total
from hdcos.sharing import Share, join
from hdcos.testing.pair import share_pair, simulate

COMPARISONS = int(os.environ.get("COMPARISONS") or 10**8)
BOUNDARIES = max(1000, COMPARISONS // 100)
CHUNK = (200, 1000)
SHAPE = (128, 1024)
WIDTHS = {"tables": (20, 16, 12, 20, 25, 31), "dcf": (20, 16, 12, 20, 33, 48)}
"""Bits of the values that are compared, in turns."""
LIMITS = {"tables": (3, 0, 60), "dcf": (2, 260, 260)}
"""Rounds, and bytes of material to party 0 and to party 1, of a ReLU of 20 bits."""


def prove_price(seed: int) -> Iterator[Line]:
    x = np.random.default_rng(seed).uniform(-60, 60, SHAPE)
    with hdcos.local() as cluster:
        for way, (rounds, zero, one) in LIMITS.items():
            took, cost = _relu(cluster, x, way)
            each = [sent / x.size for sent in cost.offline.bytes_sent]
            online = max(cost.online.bytes_sent) / x.size
            what = f"ReLU of {SHAPE[0]}x{SHAPE[1]} shared values by {way}"
            yield at_most(f"{what}, {took * 1e3:.1f} ms online: rounds", cost.online.rounds, rounds)
            yield at_most(f"{what}: bytes online of a value, each way", online, 5)
            yield at_most(f"{what}: bytes of material of a value to party 0", each[0], zero)
            yield at_most(f"{what}: bytes of material of a value to party 1", each[1], one)
        for way, (rounds, _, _) in LIMITS.items():
            cluster.reset_cost()
            scores = x[:, :10] / 2
            wrong = int((cluster.evaluate("argmax", scores, way=way) != scores.argmax(1)).sum())
            yield exactly(f"argmax of 128 rows of 10 by {way}: rounds", cluster.cost.online.rounds, rounds + 1)
            yield exactly(f"argmax of 128 rows of 10 by {way}: wrong labels", wrong, 0)


def _relu(cluster: Cluster, x: Array, way: str, repeats: int = 5) -> tuple[float, Any]:
    """The median time of a ReLU, and what the first one cost, its material included."""
    seconds, first = [], None
    exact = np.maximum(x, 0)
    with cluster.function("relu", x.shape, way=way) as function:
        for _ in range(repeats):
            cluster.reset_cost()
            function.prepare(1)
            if np.abs(function(x) - exact).max() > 2**-12:
                raise AssertionError(f"a ReLU by {way} is off by more than its rounding")
            cost = cluster.cost
            seconds.append(cost.online.seconds)
            first = first or cost
    return median(seconds), first


def prove_random(seed: int) -> Iterator[Line]:
    """Random values of the whole range, through the protocol itself: ReLU shows the sign and the product with it."""
    for way, widths in WIDTHS.items():
        generator, count, wrong, turn = np.random.default_rng([seed, len(way)]), 0, 0, 0
        while count < COMPARISONS:
            bits = widths[turn % len(widths)]
            values = generator.integers(-(1 << (bits - 2)), 1 << (bits - 2), CHUNK)
            wrong += int((_run(relu.relu, values, bits, way) != np.maximum(values, 0)).sum())
            count, turn = count + values.size, turn + 1
        yield exactly(f"wrong of {count:.3g} ReLUs of random values by {way}, {_listed(widths)} bits", wrong, 0)


def prove_boundaries(seed: int) -> Iterator[Line]:
    """Zero, the ends, powers of two, and all within two of these."""
    for way, widths in WIDTHS.items():
        for bits in sorted(set(widths)):
            generator, T = np.random.default_rng([seed, bits]), 1 << (bits - 2)
            places = [0, -T, T - 1, *(s << n for n in range(bits - 2) for s in (1, -1))]
            near = np.unique([place + step for place in places for step in range(-2, 3) if -T <= place + step < T])
            count, wrong = 0, 0
            while count < BOUNDARIES:
                values = generator.choice(near, CHUNK)
                wrong += int((_run(sign.sign, values, bits, way) != np.where(values >= 0, 1, -1)).sum())
                count += values.size
            name = f"wrong of {count:.3g} signs at and around {len(places)} boundaries of {bits} bits by {way}"
            yield exactly(name, wrong, 0)


def prove_argmax(seed: int) -> Iterator[Line]:
    """Scores that are equal or nearly so, of few classes and of many."""
    for way in WIDTHS:
        for classes in (2, 3, 10, 32, 100):
            generator, rows = np.random.default_rng([seed, classes]), max(100, BOUNDARIES // 10 // classes)
            values = generator.integers(-3, 4, (rows, classes))
            wrong = int((_run(argmax.argmax, values, 16, way) != values.argmax(1)).sum())
            yield exactly(f"wrong of {rows} labels of {classes} classes with many ties by {way}", wrong, 0)
        x = np.random.default_rng(seed).integers(0, 1 << 10, (max(1000, BOUNDARIES // 10), 3))
        labels = _run(argmax.argmax, x, 12, way, drop=10)
        best = np.take_along_axis(x, np.clip(labels, 0, 2)[:, None], 1)[:, 0]
        lost = int(((labels < 0) | (labels > 2) | (x.max(1) - best >= 2 << 10)).sum())
        yield exactly(f"of {len(x)} rows of three scores within one unit by {way}: rows without a winner", lost, 0)


def _run(program: Any, values: Array, bits: int, way: str, drop: int = 0) -> Array:
    """What two parties compute of integers, as integers."""

    def protocol(party: Any, x: Share) -> Rounds[Share]:
        return (yield from program(party, x, drop=drop, bits=bits, way=way))

    (zero, one), _ = simulate(protocol, share_pair(values.astype(np.int64).view(np.uint64), 20))
    spare = np.uint64(64 - zero.bits)
    signed: Array = (join(zero.words, one.words, zero.bits) << spare).view(np.int64) >> spare.astype(np.int64)
    return signed


def _listed(widths: tuple[int, ...]) -> str:
    return ", ".join(map(str, sorted(set(widths))))


def prove_rounds(seed: int) -> Iterator[Line]:
    """From the plan of LeNet-5 whose rows come as shares."""
    for (pooling, way), most in ROUNDS.items():
        network = nn.models.lenet5(activation="relu", structure="dense", pooling=pooling)
        cost = total(estimate(network, masked=False, compare=way))
        what = f"LeNet-5 with ReLU and {pooling}-pooling by {way}, {cost.offline.bytes_sent:,} bytes of material"
        yield at_most(f"{what}: rounds", cost.online.rounds, most)


PARTS = {
    "price": prove_price,
    "rounds": prove_rounds,
    "random": prove_random,
    "boundaries": prove_boundaries,
    "argmax": prove_argmax,
    "imports": prove_imports,
    "residual": prove_residual,
    "lenet": prove_lenet,
    "networks": prove_networks,
    "training": prove_training,
    "attacks": prove_attacks,
}
