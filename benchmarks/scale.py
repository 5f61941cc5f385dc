"""What more workers make of a machine with many cores: rows a second, of training and of predictions.

Every worker is a process of each party and of the dealer, so four pairs want twelve cores. Figures are ratios to one
pair in the same run.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from math import ceil
from pathlib import Path
from statistics import median
from threading import Lock, Thread
from typing import Any

import numpy as np
import numpy.typing as npt

import hdcos
from benchmarks import scale_kills
from benchmarks.record import Line, at_least, at_most, exactly, machine
from benchmarks.scale_hosts import prove_hosts
from benchmarks.scale_service import service
from benchmarks.stepping import Training, bytes_of_pair
from benchmarks.streaming import streaming
from hdcos import data, nn
from hdcos.cluster.cluster import Cluster
from hdcos.cluster.model import PrivateModel
from hdcos.errors import PeerLost, WorkerLost
from hdcos.link import Emulation
from hdcos.party.batcher import Answer, Batcher, Request
from hdcos.party.checkpoint import Checkpoints
from hdcos.party.config import Config
from hdcos.planning.costs import ServingCosts, serving_costs, training_costs
from hdcos.planning.machines import Machines
from hdcos.planning.measure import measure_network
from hdcos.planning.serving import Load, Serving
from hdcos.planning.training import Training as PlannedTraining

Outputs = npt.NDArray[np.float64]
COUNTS = (1, 2, 4, 5)
LOAD_S, CLIENTS, BATCH = 8.0, 16, 128
MNIST_ROWS, HIGGS_ROWS = 4_000, 40_960
MODELS, RTT_MS = 8, 40.0
REPLICA_EPOCHS, REPLICA_EVERY, SAME_RUNS, LEAST_SPREAD = 250, 100, 3, 0.1
"""Of the run whose replicas are compared, and steps between its checkpoints; runs of one pair that they are held
against, and what these may always differ by."""
HIGGS_TRAINED, HIGGS_TESTED = 51_200, 20_000
PLANNED, PLANNED_PART = (1, 2, 4), 0.6
"""Pairs for which the planner is compared with what they do, and the part of their most rows at which latencies are."""
REPEATS = 3
"""Times that steps are timed, and that a plan is compared with a load: the median counts."""
PLANNED_CORES = 12
"""With which four pairs do more than one."""
PARTS_OF_LOAD = 8
"""Of a run, whose p99 is the median of theirs: other work for a moment would be all of its last hundredth."""
QUEUE_ROWS, QUEUE_MOST, QUEUE_AHEAD = 8, 8, 512
"""Rows of a request, requests of a batch at most (larger ones are spread over pairs), rows that a pair keeps ahead."""


@dataclass(frozen=True)
class _Run:
    """Training whose steps are timed."""

    name: str
    model: nn.Sequential
    batch: int
    steps: int
    """That are timed."""
    size: int
    """Rows of its data set."""

    def begin(self, cluster: Cluster, seed: int, first: int = 2) -> Training:
        """Its first steps are not timed."""
        generator, outputs = np.random.default_rng(seed), self.model.output_shape[0]
        x = generator.uniform(0, 1, (self.size, *self.model.input_shape))
        cluster.upload(x, generator.integers(0, max(2, outputs), self.size), name="rows", outputs=outputs)
        training = Training(cluster, self.model, self.batch, 40)
        training.steps(first)
        return training

    def rows_per_s(self, training: Training) -> float:
        return self.batch * self.steps / training.steps(self.steps)


TRAINED = (
    _Run("LeNet-5", nn.models.lenet5(), 512, 8, MNIST_ROWS),
    _Run("Higgs MLP", nn.models.higgs_mlp(), 2048, 40, HIGGS_ROWS),
)


def pairs(seed: int) -> Iterator[Line]:
    """One, two, four and five pairs on this machine: the median of several clusters of each, by turns, since one may be
    a quarter slower than the next for as long as it lives."""
    each: dict[int, list[dict[str, float]]] = {}
    rounds: dict[int, dict[str, float]] = {}
    sent: dict[str, dict[int, _Sent]] = {}
    for count in [count for _ in range(REPEATS) for count in COUNTS if 3 * count <= (os.cpu_count() or 1)] or [1]:
        with hdcos.local(workers=count) as cluster:
            rates, taken = {}, {}
            for run in TRAINED:
                training = run.begin(cluster, seed)
                cluster.reset_cost()
                rates[run.name] = run.rows_per_s(training)
                taken[run.name] = cluster.cost.online.rounds / run.steps
                known = _Sent(run.batch, training.bytes_per_step, count * bytes_of_pair(run.model))
                sent.setdefault(run.name, {})[count] = known
            rates["criteo_mlp"] = _load(cluster, seed)
        each.setdefault(count, []).append(rates)
        rounds[count] = taken
        print(f"{count} pairs: " + ", ".join(f"{name} {rate:.0f} rows/s" for name, rate in rates.items()), flush=True)
    found = {count: {name: median(rates[name] for rates in runs) for name in runs[0]} for count, runs in each.items()}
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
    yield from _row_bytes(sent)


@dataclass(frozen=True)
class _Sent:
    """What a party's workers send in a step."""

    rows: int
    bytes: int
    weights: int
    """Those of them that do not depend on rows: each pair opens all weights for itself."""

    @property
    def row(self) -> float:
        """The part of a row, but for what an odd number of them is rounded up by."""
        return round((self.bytes - self.weights) / self.rows, 1)


def _row_bytes(sent: Mapping[str, Mapping[int, _Sent]]) -> Iterator[Line]:
    """Bytes of a row are those of one pair; the weights are opened by each."""
    for name, of_counts in sent.items():
        shown = ", ".join(f"{count}: {known.bytes:,} with {known.weights:,}" for count, known in of_counts.items())
        rows = sorted({known.row for known in of_counts.values()})
        line = f"bytes of a row in a step of {name}, however many pairs; of a step with the weights, which each opens"
        line = f"{line} (by pairs, {shown})"
        yield exactly(line, rows, [of_counts[1].row])


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


def models(seed: int) -> Iterator[Line]:
    """Eight models over a slow link, where a batch holds rows of one: pairs wait for their rounds side by side."""
    rates = {}
    for count in (1, MODELS):
        with hdcos.local(workers=count, rtt_ms=RTT_MS) as cluster:
            network = nn.models.mlp([64, 64, 64, 10], "cos", "hadamard", seed=seed % 1000)
            shared = [cluster.share(network, f"m{number}", ahead=4096) for number in range(MODELS)]
            x = np.random.default_rng(seed).uniform(-1, 1, (8, 64))
            for private in shared:
                private.predict(x)
            deadline = time.perf_counter() + LOAD_S

            def ask(private: PrivateModel, deadline: float = deadline, x: np.ndarray = x) -> int:
                rows = 0
                while time.perf_counter() < deadline:
                    private.predict(x)
                    rows += len(x)
                return rows

            with ThreadPoolExecutor(MODELS) as pool:
                rates[count] = sum(pool.map(ask, shared)) / LOAD_S
    shown = f"{rates[MODELS]:.0f}, over one's, {rates[1]:.0f}"
    line = f"{MODELS} models, link of {RTT_MS:g} ms: rows a second of {MODELS} pairs, {shown}"
    yield at_least(line, rates[MODELS] / rates[1], 5.0)


# ---- what is learned


def learned(seed: int) -> Iterator[Line]:
    """Four pairs learn what one does: as far from it as another run of one is, and no further."""
    x, y = data.higgs()
    order = np.random.default_rng(0).permutation(len(x))
    x, y = x[order], y[order]
    rows, test = min(HIGGS_TRAINED, len(x) - HIGGS_TESTED), slice(len(x) - HIGGS_TESTED, None)
    options: Any = {"epochs": 3, "batch_size": 256, "lr": 0.5, "momentum": 0.9, "watch": 0}
    yield from _learned("HIGGS", nn.models.higgs_mlp(seed=seed % 1000), x[:rows], y[:rows], x[test], y[test], options)
    images, digits = data.mnist("train")
    shown, labels = data.mnist("test")
    known = (images[:MNIST_ROWS], digits[:MNIST_ROWS], shown, labels)
    options = {
        "epochs": 4,
        "batch_size": 64,
        "lr": 0.1,
        "momentum": 0.9,
        "schedule": "cosine",
        "warm_up": 1,
        "watch": 0,
    }
    yield from _learned("MNIST", nn.models.lenet5(seed=seed % 1000), *known, options)


def _learned(
    name: str, model: nn.Sequential, x: np.ndarray, y: np.ndarray, shown: np.ndarray, labels: np.ndarray, options: Any
) -> Iterator[Line]:
    found: dict[str, list[float]] = {}
    for count, seeds in ((1, (1, 2, 3)), (4, (1,))):
        with hdcos.local(workers=count) as cluster:
            for seed in seeds:
                logits = cluster.fit(model, x, y, seed=seed, **options).predict(shown)
                guessed = (logits[:, 0] > 0) if logits.shape[1] == 1 else logits.argmax(axis=1)
                found.setdefault(str(count), []).append(100 * float((guessed == labels).mean()))
        print(name, found, flush=True)
    one, (four,) = found["1"], found["4"]
    spread = max(one) - min(one)
    line = f"{name}: accuracy with four pairs, {four:.2f} %, from that with one, {', '.join(f'{v:.2f}' for v in one)} %"
    yield at_most(line, abs(four - one[0]), round(max(spread, 0.5), 2))


def replicas(seed: int) -> Iterator[Line]:
    """A thousand steps with momentum and decay: workers compare a hash of their parameters after each epoch.

    Then once more, and the pair that adds momentum and decay is killed on the way: three go on from its checkpoint.
    Gradients are rounded differently in every run, and a thousand steps may make much of that: what is learned is held
    against several runs of one pair, and against how much these differ from each other.
    """
    model = nn.models.mlp([12, 16, 3], "cos", "hadamard", seed=seed % 1000)
    x = np.random.default_rng(seed).uniform(-1, 1, (192, 12))
    y = x[:, :3].argmax(axis=1)
    options: Any = {"batch_size": 48, "lr": 0.05, "momentum": 0.9, "weight_decay": 1e-4, "watch": 0, "seed": 1}
    options["epochs"] = REPLICA_EPOCHS
    with hdcos.local(workers=4) as cluster:  # replicas that differ end the job by name
        four = cluster.fit(model, x, y, **options).predict(x)
    with tempfile.TemporaryDirectory() as folder, hdcos.local(workers=4, timeout_s=10) as cluster:
        checkpoints: Any = {"checkpoint_every": REPLICA_EVERY, **options}
        killer = Thread(target=_kill_first_pair, args=(cluster, Path(folder)), daemon=True)
        killer.start()
        ended = "all of its steps"
        try:
            cluster.fit(model, x, y, checkpoint=folder, **checkpoints)
        except (PeerLost, WorkerLost) as error:
            ended = type(error).__name__
        killer.join()
        held = max(set.intersection(*(set(Checkpoints.of(folder, rank).steps()) for rank in (0, 1))))
        three = cluster.fit(model, x, y, resume=folder, **checkpoints).predict(x)
    steps = REPLICA_EPOCHS * len(x) // options["batch_size"]
    line = f"the first pair killed: training by four ended with {ended} and went on from this step of {steps:,}"
    yield Line(line, held, f"> 0 and < {steps}", ended != "all of its steps" and 0 < held < steps)
    with hdcos.local() as cluster:
        ones = [cluster.fit(model, x, y, **options).predict(x) for _ in range(SAME_RUNS)]
    spread = max(_apart(a, b) for a in ones for b in ones)
    known = f"of one pair's runs, an output at most (these differ by {spread:.3f})"
    line = f"four replicas, hashes equal after each of {REPLICA_EPOCHS} epochs ({steps:,} steps): from the nearest"
    yield at_most(f"{line} {known}", min(_apart(four, one) for one in ones), max(LEAST_SPREAD, spread))
    line = "the first pair, which adds momentum and decay, killed on the way: the three left from the nearest"
    yield at_most(f"{line} {known}", min(_apart(three, one) for one in ones), max(LEAST_SPREAD, spread))


def _apart(a: Outputs, b: Outputs) -> float:
    return float(np.abs(a - b).max())


def _kill_first_pair(cluster: Cluster, folder: Path) -> None:
    """Once both parties hold a checkpoint."""
    while not all(Checkpoints.of(folder, rank).steps() for rank in (0, 1)):
        time.sleep(0.05)
    os.kill(cluster.pids["party1"], signal.SIGKILL)


# ---- the planner against measurement


def planner(seed: int) -> Iterator[Line]:
    """What the planner says of one, two and four pairs on this machine, and what they do."""
    yield from _planned_serving(seed)
    yield from _planned_training(seed)


def _planned_training(seed: int) -> Iterator[Line]:
    """Rows a second of training, when as much material is used as is made: what was made ahead is used up before.

    As with `hdcos plan --train`, what is measured are steps of one pair with fewer rows, and of two with few.
    """
    cores = os.cpu_count() or 1
    for run in TRAINED:
        measured = measure_network(run.name, run.model)
        print(f"measured: {measured.training}, adding {measured.adding_s * 1e3:.2f} ms", flush=True)
        for count in PLANNED:
            costs = training_costs(run.model, measured, ceil(run.batch / count))
            machines, adding_s = Machines(count, count, cores, on_one=True), (count - 1) * measured.adding_s
            told = PlannedTraining(costs, machines, Emulation(), adding_s).run()
            with hdcos.local(workers=count) as cluster:
                training = run.begin(cluster, seed, 2 + costs.ahead)
                rows_per_s = median(run.rows_per_s(training) for _ in range(REPEATS))
            planned = run.batch / told.step_s
            print(f"{count} pairs, {run.name}: {rows_per_s:.0f} rows/s, planned {planned:.0f}; {told.use}", flush=True)
            shown = f"{count} pair{'s' if count > 1 else ''} on {cores} cores, training {run.name}, batch {run.batch}"
            yield _close(f"{shown}: rows a second, planned over measured", planned, rows_per_s, "rows/s")


def _planned_serving(seed: int) -> Iterator[Line]:
    """Predictions under load.

    Compared is a cluster of `hdcos.local`: requests come to the batcher of a party (party/batcher.py), a thread of this
    process for each pair takes batches from it and asks for them, and from there on all is as at two organisations: the
    workers of both parties, and dealers that make material meanwhile. Not compared are HTTPS, the matching of requests
    of two parties and the choice between pairs that are free, which have no part in a cluster of one caller.

    A machine may be a third slower in one minute than in the next, as virtual ones are: costs and loads are measured
    several times by turns, and the median of their ratios counts.

    With two cores, more pairs do no more, and a plan that knew of no pairs would be right as well. Where there are
    cores for four pairs they must do more than twice what one does, so that a plan within the limits knows of them.
    """
    cores, model = os.cpu_count() or 1, nn.models.criteo_mlp()
    found: dict[int, list[_Planned]] = {count: [] for count in PLANNED}
    for _ in range(REPEATS):
        measured = measure_network("criteo_mlp", model, steps=False)
        print(f"measured: {measured.inference}, a cold turn {measured.switch_s * 1e3:.3f} ms", flush=True)
        costs = replace(serving_costs(model, measured), most_rows=QUEUE_MOST * QUEUE_ROWS, ahead=QUEUE_AHEAD)
        for count, several in found.items():
            several.append(_serve(model, costs, count, seed))
            print(f"{count} pairs: {several[-1]}", flush=True)
    for count, several in found.items():
        shown = f"{count} pair{'s' if count > 1 else ''} on {cores} cores, criteo_mlp"
        middle = sorted(several, key=lambda each: each.planned_rows_per_s / each.rows_per_s)[REPEATS // 2]
        name = f"{shown}: rows a second, planned over measured"
        yield _close(name, middle.planned_rows_per_s, middle.rows_per_s, "rows/s")
        middle = sorted(several, key=lambda each: each.planned_p99_ms / each.p99_ms)[REPEATS // 2]
        name = f"{shown}, {PLANNED_PART:.0%} of that load: p99, planned over measured"
        yield _close(name, middle.planned_p99_ms, middle.p99_ms, "ms")
    if cores >= PLANNED_CORES:
        most, one = (median(each.rows_per_s for each in found[count]) for count in (PLANNED[-1], 1))
        yield at_least(f"what {PLANNED[-1]} pairs do over what one does, measured", most / one, 2.0)


@dataclass(frozen=True)
class _Planned:
    """What some pairs did, with as much to do as they can and with a part of that, and what was planned of both."""

    rows_per_s: float
    planned_rows_per_s: float
    p50_ms: float
    planned_p50_ms: float
    p99_ms: float
    planned_p99_ms: float


def _serve(model: nn.Network, costs: ServingCosts, count: int, seed: int) -> _Planned:
    machines = Machines(count, count, os.cpu_count() or 1, on_one=True)
    full = Serving(costs, machines, Emulation(), Load(rows=QUEUE_ROWS), batches=400, seed=seed).run()
    with hdcos.local(workers=count) as cluster:
        private = cluster.share(model, "criteo", ahead=count * QUEUE_AHEAD)
        private.predict(np.zeros((QUEUE_ROWS, 1023)))
        done = _arrivals(private, count, np.zeros(1 + int(3 * LOAD_S * full.rows_per_s / QUEUE_ROWS)), LOAD_S)
        rows_per_s = done.rows / done.seconds
        rate = PLANNED_PART * rows_per_s / QUEUE_ROWS
        gaps = np.random.default_rng(seed).exponential(1 / rate, int(rate * 5 * LOAD_S))
        seen = _arrivals(private, count, np.cumsum(gaps)).latencies_s
    load = Load(rate, QUEUE_ROWS)
    told = Serving(costs, machines, Emulation(), load, batches=4000, seed=seed).run()
    p99_s = median(float(np.quantile(part, 0.99)) for part in np.array_split(seen, PARTS_OF_LOAD))
    times_s = (float(np.median(seen)), told.quantile(0.5), p99_s, told.quantile(0.99))
    return _Planned(rows_per_s, full.rows_per_s, *(1e3 * time_s for time_s in times_s))


@dataclass
class _Done:
    """What was answered, and how long each request took from its arrival on."""

    rows: int = 0
    seconds: float = 0.0
    latencies_s: list[float] = field(default_factory=list)


class _Requests:
    """Requests that come to party 0 at these times and to party 1 at the same moment; its batcher has those that came.

    A thread that asks for a batch first tells the batcher what came since the last one.
    """

    def __init__(self, times_s: np.ndarray, name: str) -> None:
        self._times_s, self._name, self._first, self._lock = times_s, name, 0, Lock()
        self._words = np.zeros((QUEUE_ROWS, 1), np.uint64)
        self._loop = asyncio.new_event_loop()  # where answers would go to clients
        self._batcher = Batcher(self._loop, 0, np.inf, Config().limits.waiting)
        self._batcher.open()

    def batch(self, now_s: float) -> np.ndarray:
        """When those arrived that are to be answered together now."""
        with self._lock:
            while self.next_s <= now_s and len(self._batcher) < Config().limits.waiting:
                future = self._loop.create_future()
                request = Request(f"{self._first}", self._name, "", "shares", (), self._words, future)
                self._batcher.add(request)
                self._batcher.hear([[request.id, request.said]])
                self._first += 1
            taken = self._batcher.batch(lambda _: QUEUE_MOST * QUEUE_ROWS)
            self._batcher.settle([(request, Answer(self._words, 0, 64)) for request in taken])
            return self._times_s[[int(request.id) for request in taken]]

    @property
    def next_s(self) -> float:
        """When the next one comes that has not yet."""
        return float(self._times_s[self._first]) if self._first < len(self._times_s) else np.inf

    def close(self) -> None:
        self._loop.close()


def _arrivals(private: PrivateModel, pairs: int, times_s: np.ndarray, longest_s: float = np.inf) -> _Done:
    """Requests that arrive at these times, and are answered by as many threads as there are pairs."""
    x = np.random.default_rng(0).uniform(-1, 1, (QUEUE_MOST * QUEUE_ROWS, 1023))
    done, requests, lock, started = _Done(), _Requests(times_s, private.name), Lock(), time.perf_counter()

    def work(_: int) -> None:
        while (now := time.perf_counter() - started) <= longest_s:
            taken = requests.batch(now)
            if not len(taken):
                if requests.next_s == np.inf:
                    return
                time.sleep(max(0.0, requests.next_s - now))
                continue
            private.predict(x[: len(taken) * QUEUE_ROWS], mode="shares")
            ended = time.perf_counter() - started
            with lock:
                done.rows += len(taken) * QUEUE_ROWS
                done.latencies_s += list(ended - taken)

    with closing(requests), ThreadPoolExecutor(pairs) as pool:
        list(pool.map(work, range(pairs)))
    done.seconds = time.perf_counter() - started
    return done


def _close(name: str, planned: float, measured: float, unit: str) -> Line:
    ratio = planned / measured
    return Line(f"{name} ({planned:.4g} and {measured:.4g} {unit})", ratio, "0.75 to 1.25", 0.75 <= ratio <= 1.25)


PARTS = {
    "pairs": pairs,
    "models": models,
    "learned": learned,
    "replicas": replicas,
    "planner": planner,
    "service": service,
    "streaming": streaming,
    "hosts": prove_hosts,
    "kills": scale_kills.plain,
    "kills-ray": scale_kills.with_ray,
    "kills-node": scale_kills.machines_of_ray,
}


def main() -> None:
    """Print the lines of some parts, or of all: for machines that have the files alone, and no history to record at."""
    for part in sys.argv[1:] or PARTS:
        for line in PARTS[part](0):
            print(json.dumps({**asdict(line), "machine": machine()}, default=float), flush=True)


if __name__ == "__main__":
    main()
