"""More workers of a real service: parties, dealer and clients are processes of their own, and talk over HTTPS.

Clients ask for the outputs of criteo_mlp and then for labels, as shares, which further pairs answer too; a job takes
steps on a data set with a name; and before all that, one client alone asks for one row after another. A cluster whose
nodes have four workers is compared with one whose nodes have one; both are there all the time, so that what else the
machine does falls on both.

What four workers do is judged where they have cores: twelve for workers, and four for clients, who split and join rows
on the same machine. With fewer the lines are reported. Three times as many outputs are asked for, less than of
`hdcos.local`: every request passes through the one process of a party that speaks HTTPS, which is its first worker as
well. Labels and steps are reported: labels take rounds in which further pairs wait for cores, and a step ends when the
first worker's part does. Requests have 64 rows, so that pairs are measured and not that process. A lone request must
not suffer on any machine.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.nodes import Nodes, cluster_of_nodes, wait_until_ready
from benchmarks.record import Line, at_least, at_most, exactly
from hdcos import nn
from hdcos.cluster.cluster import Cluster
from hdcos.cluster.model import PrivateModel
from hdcos.errors import HdcosError, PeerLost
from hdcos.secure.labels import LABEL, LOGITS

ONE, MANY, CORES = 1, 4, 16
"""Workers of a node that are compared, and the cores with which they are judged."""
LEAST_GAIN, MOST_LONE = 3.0, 1.2
"""Of rows and steps a second; of the median time of a lone request."""
ROWS, CLIENTS, AT_ONCE = 64, 4, 6
"""Of a request; processes of clients, and requests of each that are under way."""
WARM_S, LOAD_S, BEGIN_S = 5.0, 15.0, 120.0
LONE = 300
TRAINED = 204_800
TRAINING: Any = {"epochs": 4, "batch_size": 2048, "lr": 0.1, "seed": 0, "watch": 0, "progress": False}
TOLERANCE = 0.02
MODEL, SERVED, DATA = "model.safetensors", "criteo", "rows"


def service(seed: int) -> Iterator[Line]:
    """One after another: lone requests, outputs, labels, training."""
    model, rows_per_s, steps_per_s, wrong = nn.models.criteo_mlp(), dict[str, dict[int, float]](), dict[int, float](), 0
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hdcos-service-")))
        model.save(place / MODEL)
        clusters = {count: stack.enter_context(_Running(place, count)) for count in (ONE, MANY)}
        lone_s = _ask_alone(clusters, seed)
        further = {"rows": clusters[MANY].done("rows")}
        for output in (LOGITS, LABEL):
            rows_per_s[output] = {}
            for count, running in clusters.items():
                rows_per_s[output][count], errors = running.load(output, seed)
                wrong += errors
            further[output] = clusters[MANY].done("rows") - further["rows"]
            further["rows"] += further[output]
        for count, running in clusters.items():
            steps_per_s[count] = running.train(seed)
        further["steps"] = clusters[MANY].done("steps")
    asked = f"{CLIENTS} clients over HTTPS, requests of {ROWS} rows"
    yield exactly(f"criteo_mlp, {asked}: wrong answers", wrong, 0)
    yield _gain(f"criteo_mlp, {asked}: rows a second, outputs", rows_per_s[LOGITS], LEAST_GAIN)
    yield _gain(f"criteo_mlp, {asked}: rows a second, labels", rows_per_s[LABEL])
    batch = TRAINING["batch_size"]
    yield _gain(f"Higgs MLP, batch {batch}, a job on a data set with a name: steps a second", steps_per_s)
    for what, name in ((LOGITS, "rows of outputs"), (LABEL, "rows of labels"), ("steps", "steps")):
        yield at_least(f"{name} that further workers did, the least of a party's", further[what], 1)
    shown = ", ".join(f"{count}: {seconds * 1e3:.1f} ms" for count, seconds in lone_s.items())
    line = f"a lone request of 1 row, median of {LONE}, {MANY} workers over {ONE} ({shown})"
    yield at_most(line, lone_s[MANY] / lone_s[ONE], MOST_LONE)


def _gain(what: str, rates: dict[int, float], least: float | None = None) -> Line:
    cores, gain = os.cpu_count() or 1, rates[MANY] / rates[ONE]
    shown = ", ".join(f"{count}: {rate:.4g}" for count, rate in rates.items())
    name = f"{what}, {MANY} workers over {ONE} ({shown})"
    if cores < CORES:
        return Line(f"{name}; they want {CORES} cores, this machine has {cores}", gain, "reported", True)
    return Line(name, gain, "reported", True) if least is None else at_least(name, gain, least)


class _Running:
    """A cluster whose nodes have `workers` each; the model and the data set are there."""

    def __init__(self, place: Path, workers: int) -> None:
        self._place, self._workers = place, workers

    def __enter__(self) -> _Running:
        with ExitStack() as stack:
            folder, options = self._place / f"c{self._workers}", ("--workers", str(self._workers))
            self._nodes: Nodes = stack.enter_context(cluster_of_nodes(folder, options=options))
            self._cluster: Cluster = stack.enter_context(self._nodes.connect(BEGIN_S))
            wait_until_ready(self._cluster, BEGIN_S)
            self.model: PrivateModel = self._cluster.share(nn.load(self._place / MODEL), SERVED)
            x = np.random.default_rng(0).standard_normal((TRAINED, 28))
            self._cluster.upload(x, (x[:, :4].sum(1) > 0).astype(np.int64), name=DATA)
            self._await_workers()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *raised: object) -> None:
        self._stack.close()

    def _await_workers(self) -> None:
        """Until all further workers have the model."""
        limit = time.monotonic() + BEGIN_S
        while time.monotonic() < limit:
            with suppress(HdcosError):
                both = [self._nodes.workers(rank) for rank in (0, 1)]
                if all(sum(worker["up"] * worker["models"] for worker in each) == self._workers - 1 for each in both):
                    return
            time.sleep(0.2)
        raise PeerLost(f"not all of {self._workers} workers work after {BEGIN_S:g} s")

    def done(self, what: str) -> int:
        """Rows or steps of further workers, the least of a party's."""
        return min(sum(int(worker[what]) for worker in self._nodes.workers(rank)) for rank in (0, 1))

    def load(self, output: str, seed: int) -> tuple[float, int]:
        """Rows a second that all clients get together, and wrong answers."""
        command = [sys.executable, "-m", "benchmarks.scale_service", str(self._nodes.folder), str(self._place / MODEL)]
        command += [output, str(WARM_S), str(LOAD_S)]
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        clients = [subprocess.Popen([*command, str(seed + number)], **pipes) for number in range(CLIENTS)]
        try:
            for client in clients:  # they begin together
                client.stdout.readline()
            for client in clients:
                client.stdin.write("begin\n")
                client.stdin.flush()
            found = [json.loads(client.communicate(timeout=BEGIN_S)[0]) for client in clients]
        finally:
            for client in clients:
                client.kill()
                client.wait()
        rate = sum(each["rows_per_s"] for each in found)
        print(f"{self._workers} workers, {output}: {rate:.0f} rows/s", flush=True)
        return rate, sum(each["wrong"] for each in found)

    def train(self, seed: int) -> float:
        """Steps a second, the median of epochs."""
        trained = self._cluster.fit(nn.models.higgs_mlp(seed=seed % 1000), DATA, **TRAINING)
        rate = TRAINED // TRAINING["batch_size"] / median(epoch.seconds for epoch in trained.history)
        print(f"{self._workers} workers: {rate:.1f} steps/s", flush=True)
        return rate


def _ask_alone(clusters: dict[int, _Running], seed: int) -> dict[int, float]:
    """The median seconds of a request that waits for no other, by workers; the clusters are asked by turns."""
    x = np.random.default_rng(seed).uniform(-1, 1, (1, 1023))
    taken_s: dict[int, list[float]] = {count: [] for count in clusters}
    for number in range(LONE + LONE // 10):
        for count, running in clusters.items():
            started = time.perf_counter()
            running.model.predict(x, mode="shares")
            if number >= LONE // 10:
                taken_s[count].append(time.perf_counter() - started)
    return {count: median(seconds) for count, seconds in taken_s.items()}


# ---- a client, in a process of its own


def _ask(nodes: Nodes, model: nn.Network, output: str, warm_s: float, load_s: float, seed: int) -> dict[str, float]:
    """Rows a second, once it is warm, and wrong answers."""
    x = np.random.default_rng(seed).uniform(-1, 1, (ROWS, *model.input_shape))
    expected = model(x).reshape(ROWS, -1)
    certain = np.abs(expected[:, 0]) > TOLERANCE if output == LABEL else np.full(ROWS, True)
    with nodes.connect(BEGIN_S) as cluster, ThreadPoolExecutor(AT_ONCE) as pool:
        private = cluster.model(SERVED)

        def is_wrong() -> bool:
            answer = private.predict(x, mode="shares", output=output).reshape(ROWS, -1)
            wanted, far = (expected > 0, 0.5) if output == LABEL else (expected, TOLERANCE)
            return bool((np.abs(answer - wanted)[certain] > far).any())

        wrong = int(is_wrong())
        print("ready", flush=True)
        sys.stdin.readline()
        begin = time.perf_counter() + warm_s
        end = begin + load_s

        def work(_: int) -> tuple[int, int]:
            answered = failed = 0
            while time.perf_counter() < end:
                failed += is_wrong()
                answered += begin <= time.perf_counter() < end
            return answered, failed

        answered, failed = (sum(column) for column in zip(*pool.map(work, range(AT_ONCE)), strict=True))
    return {"rows_per_s": answered * ROWS / load_s, "wrong": wrong + failed}


if __name__ == "__main__":
    folder, file, output, *seconds, seed = sys.argv[1:]
    print(json.dumps(_ask(Nodes(Path(folder)), nn.load(file), output, *map(float, seconds), int(seed))))
