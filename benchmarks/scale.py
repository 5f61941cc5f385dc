"""What more workers make of a machine with many cores: rows a second, of training and of predictions.

Every worker is a process of each party and of the dealer, so four pairs want twelve cores. Figures are ratios to one
pair in the same run.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np

import hdcos
from benchmarks.record import Line, at_least, at_most, exactly
from benchmarks.streaming import streaming
from benchmarks.training import Training
from hdcos import nn
from hdcos.cluster.cluster import Cluster

COUNTS = (1, 2, 4, 5)
LOAD_S, CLIENTS, BATCH = 8.0, 16, 128
MNIST_ROWS, HIGGS_ROWS = 4_000, 40_960


def pairs(seed: int) -> Iterator[Line]:
    """One, two, four and five pairs on this machine."""
    found: dict[int, dict[str, float]] = {}
    rounds: dict[int, dict[str, float]] = {}
    for count in COUNTS:
        if 3 * count > (os.cpu_count() or 1):
            break
        with hdcos.local(workers=count) as cluster:
            generator = np.random.default_rng(seed)
            rates, taken = {}, {}
            for name, model, batch, steps, size in (
                ("LeNet-5", nn.models.lenet5(), 512 if count != 5 else 640, 8, MNIST_ROWS),
                ("Higgs MLP", nn.models.higgs_mlp(), 2048 if count != 5 else 2560, 40, HIGGS_ROWS),
            ):
                outputs = model.output_shape[0]
                x = generator.uniform(0, 1, (size, *model.input_shape))
                cluster.upload(x, generator.integers(0, max(2, outputs), size), name="rows", outputs=outputs)
                training = Training(cluster, model, batch, 40)
                training.steps(2)
                cluster.reset_cost()
                rates[name] = batch * steps / training.steps(steps)
                taken[name] = cluster.cost.online.rounds / steps
            rates["criteo_mlp"] = _load(cluster, seed)
        found[count], rounds[count] = rates, taken
        print(f"{count} pairs: " + ", ".join(f"{name} {rate:.0f} rows/s" for name, rate in rates.items()), flush=True)
    for name, what, least in (
        ("LeNet-5", "rows a second of training LeNet-5, batch 512", 3.0),
        ("Higgs MLP", "rows a second of training the Higgs MLP, batch 2048", 3.0),
        ("criteo_mlp", f"rows a second of criteo_mlp, {CLIENTS} threads that ask for {BATCH} rows, dealers live", 3.3),
    ):
        shown = ", ".join(f"{count}: {rates[name]:.0f}" for count, rates in found.items())
        if 4 in found:
            yield at_least(f"{what}, four pairs over one ({shown})", found[4][name] / found[1][name], least)
        else:
            yield at_most(f"{what}: {shown} pairs; four want twelve cores, this machine has", os.cpu_count() or 1, 11)
    for name in ("LeNet-5", "Higgs MLP"):
        seen = sorted({taken[name] for taken in rounds.values()})
        yield exactly(f"rounds of a step of {name}, however many pairs", seen, [rounds[1][name]])


def _load(cluster: Cluster, seed: int) -> float:
    """Rows a second that threads get, material included."""
    private = cluster.share(nn.models.criteo_mlp(), "criteo", ahead=4096)
    x = np.random.default_rng(seed).uniform(-1, 1, (BATCH, 1023))
    private.predict(x)
    deadline = time.perf_counter() + LOAD_S

    def ask(_: int) -> int:
        rows = 0
        while time.perf_counter() < deadline:
            private.predict(x)
            rows += len(x)
        return rows

    started = time.perf_counter()
    with ThreadPoolExecutor(CLIENTS) as pool:
        rows = sum(pool.map(ask, range(CLIENTS)))
    return rows / (time.perf_counter() - started)


PARTS = {"pairs": pairs, "streaming": streaming}
