"""Measures what a network takes of a party, a dealer and a client, on a cluster of this machine.

The thread that computes and the one that unpacks material are told apart: the first is the main thread of a party's
process, everything else of the process is the second. A few sizes of a batch give a line: a part that does not depend
on the rows, and a part for each of them.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
from msgspec.structs import replace

from hdcos import nn
from hdcos.cluster.cluster import Cluster
from hdcos.cluster.connect import connect
from hdcos.cluster.fit import check_run
from hdcos.cluster.local import local
from hdcos.cluster.transport import split_words
from hdcos.errors import HdcosError, InputError, ModelError, PeerLost
from hdcos.offline.limits import MOST_DEALT_BYTES
from hdcos.planning.events import coldness
from hdcos.planning.figures import Measured, NetworkFigures, Work
from hdcos.planning.slices import measure_slice, on_one_core
from hdcos.ring import Array, backend
from hdcos.secure.calibrate import state_intervals
from hdcos.secure.training import training_plan
from hdcos.secure.training.step import plan_step

SMALL, MIDDLE = 1, 32
"""Rows of the batches that are measured, besides a large one."""
COUNTS = {SMALL: 16, MIDDLE: 8}
"""How many of them come one after another."""
LARGE, LARGE_S = range(128, 1025), 0.1
"""What a large batch may have, and about how long a thread works on it: little work on a row wants many of them."""
PARTS, PART_S = range(64, 2049), 0.3
"""The same for the part of a step that one pair takes."""
FEW = 4
"""Rows of a step in which little is computed: what it takes to add the changes of two workers shows."""
TURNS, WARM_UP, STEPS, RUNS = 8, 2, 10, 3
"""How often batches and rounds are measured, how often anything runs before that, steps of training, and runs of it."""
APART_S = 0.01
"""Between batches that are measured: those of clients do not come one right after another, and until the next one comes
processors have other work or sleep. One that finds its code and data in their caches takes half the time."""
ROUNDS = 100
REQUESTS, CLIENTS = {1: 400, 64: 100}, 16
"""Requests over HTTPS by their rows, and clients that ask for them at the same time."""
PROC = Path("/proc")
START_S, STOP_S = 120.0, 20.0


@dataclass(frozen=True)
class Spent:
    """Seconds of processor time, by process and kind of work."""

    online: Array
    """Party 0, party 1."""
    material: Array
    dealer: float
    caller: float

    def __sub__(self, before: Spent) -> Spent:
        return Spent(
            self.online - before.online,
            self.material - before.material,
            self.dealer - before.dealer,
            self.caller - before.caller,
        )

    def each(self, times: int) -> Spent:
        """What one of these times took, on average."""
        return Spent(self.online / times, self.material / times, self.dealer / times, self.caller / times)


def _thread_s(pid: int) -> tuple[float, float]:
    """Of the main thread of a process, and of all its others that live."""
    times = {
        int(task.name): int((task / "schedstat").read_text().split()[0]) * 1e-9
        for task in (PROC / str(pid) / "task").iterdir()
    }
    main = times.pop(pid)
    return main, sum(times.values())


def spent(pids: Mapping[str, int]) -> Spent:
    """What the processes of the first pair of a local cluster, and this one, have spent so far."""
    parties = [_thread_s(pids[role]) for role in ("party0", "party1")]
    online, material = np.array(parties).T
    return Spent(online, material, sum(_thread_s(pids["dealer"])), time.process_time())


def check_machine() -> None:
    """That this operating system tells what threads spent."""
    if not (PROC / "self" / "schedstat").exists():
        raise InputError(
            f"{platform.system()} does not say what the threads of other processes spend: measure on Linux, "
            "and read the file there with --figures"
        )


def describe_machine() -> str:
    """The processor, its cores and the kernels in use."""
    cpuinfo = PROC / "cpuinfo"
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    named = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    model = named[0] if named else platform.processor() or platform.machine()
    return f"{model}, {os.cpu_count()} cores, kernels {backend()}"


def measure_network(
    name: str, model: nn.Network, say: Callable[[str], None] = lambda text: None, steps: bool = True
) -> NetworkFigures:
    """Predictions with a network and, if it can be trained on shares and `steps` are wanted, steps of training."""
    check_machine()
    say(f"predictions with {name}")
    with local() as cluster:
        party_mb = max(_resident_mb(cluster.pids[role]) for role in ("party0", "party1"))
        round_s = _measure_round(cluster)
        inference, switch_s = _measure_inference(cluster, model)
        dealer_mb = _resident_mb(cluster.pids["dealer"])
    training, adding_s = None, 0.0
    if steps and _can_be_trained(model):
        say(f"steps of training {name}")
        training, adding_s = _measure_training(model)
    turns = (round_s, measure_slice(), switch_s)
    return NetworkFigures(name, inference, training, adding_s, *turns, party_mb, dealer_mb)


def _resident_mb(pid: int) -> float:
    pages = int((PROC / str(pid) / "statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / 1e6


def _measure_round(cluster: Cluster) -> float:
    """What an empty exchange takes besides work: until both are awake again."""
    cluster.round_trip_s(ROUNDS)
    waits = []
    for _ in range(TURNS):
        before = spent(cluster.pids)
        passed_s = cluster.round_trip_s(ROUNDS)
        waits.append(passed_s - float((spent(cluster.pids) - before).online.max()) / ROUNDS)
    return max(0.0, min(waits))


def _fit(sizes: Sequence[int], seconds: Sequence[float]) -> Work:
    """The line through what some sizes took. All count in proportion: the smallest is not drowned by the largest."""
    if not any(seconds):
        return Work(0.0, 0.0)
    rows, taken = np.array(sizes, float), np.maximum(np.array(seconds, float), 1e-9)
    weighted = np.stack([1 / taken, rows / taken], axis=1)
    (fixed, row), *_ = np.linalg.lstsq(weighted, np.ones(len(rows)))
    if fixed < 0:
        return Work(0.0, float(np.mean(taken / rows)))
    return Work(float(fixed), max(0.0, float(row)))


def _measured(found: Mapping[int, Spent]) -> Measured:
    """Lines through what was spent on each number of rows."""

    def fit(of: Callable[[Spent], float]) -> Work:
        return _fit(list(found), [float(of(each)) for each in found.values()])

    return Measured(
        online=fit(lambda each: each.online.max()),
        material=(fit(lambda each: each.material[0]), fit(lambda each: each.material[1])),
        dealer=fit(lambda each: each.dealer),
        caller=fit(lambda each: each.caller),
    )


class _Batches:
    """Batches of predictions on a cluster, whose answers nobody looks at."""

    def __init__(self, cluster: Cluster, model: nn.Network) -> None:
        self._cluster, self._shape = cluster, model.input_shape
        self._private = cluster.share(state_intervals(model))
        self.waiting_s = 0.0
        """What a small batch takes besides work: until all that take part in it are awake."""

    def measure(self, rows: int, count: int) -> Spent:
        """What a batch takes, and material for it: each made and asked for several at a time, so that neither makes the
        other slower."""
        made, asked, waits = [], [], []
        for _ in range(TURNS):
            before = spent(self._cluster.pids)
            for _ in range(WARM_UP + count):
                self._private.prepare(rows, wait=False)
            self._cluster.cost  # noqa: B018  it is read when all material that was ordered is there
            made.append((spent(self._cluster.pids) - before).each(WARM_UP + count))
            work, passed_s = self._ask(rows, count)
            asked.append(work)
            waits.append(passed_s - work.caller - float(work.online.max()))
        if rows == SMALL:
            self.waiting_s = max(0.0, median(waits))
        material, work = _least(made), _least(asked)
        return Spent(work.online, material.material, material.dealer, work.caller)

    def measure_switch(self, alone: Spent, rows: int, count: int) -> float:
        """What a turn takes more after a long wait, from what turns take more where all processes share a core and
        material is made meanwhile; a batch took `alone`."""
        self._private.keep_ahead(2 * rows)
        with on_one_core(self._cluster.pids.values()):
            turns_before, waited_before_s = self._turns()
            work = [self._ask(rows, count)[0] for _ in range(TURNS)]
            turns, waited_s = self._turns()
        self._cluster.cost  # noqa: B018
        given, waited_s = turns - turns_before, waited_s - waited_before_s
        if not waited_s:
            return 0.0
        more_s = max(0.0, float((_least(work).online - alone.online).sum()))
        return more_s * TURNS * (WARM_UP + count) / (given * coldness(waited_s / given))

    def _ask(self, rows: int, count: int) -> tuple[Spent, float]:
        """What one of some batches takes that come a moment apart, and how long it is until its answer."""
        x = np.random.default_rng(0).uniform(0, 1, (rows, *self._shape))
        for _ in range(WARM_UP):
            self._private.predict(x, mode="shares")
        before, passed_s = spent(self._cluster.pids), 0.0
        for _ in range(count):
            time.sleep(APART_S)
            asked_at = time.perf_counter()
            self._private.predict(x, mode="shares")
            passed_s += time.perf_counter() - asked_at
        return (spent(self._cluster.pids) - before).each(count), passed_s / count

    def _turns(self) -> tuple[int, float]:
        """How often the threads that compute were given a core so far, and the seconds that they waited for one."""
        places = [PROC / str(self._cluster.pids[role]) / "schedstat" for role in ("party0", "party1")]
        told = [place.read_text().split() for place in places]
        return sum(int(turns) for *_, turns in told), sum(int(waited_ns) for _, waited_ns, _ in told) * 1e-9


def _least(several: Sequence[Spent]) -> Spent:
    """The least of each: other work on the machine, which leaves caches cold, only adds to it."""
    online, material = (np.min([getattr(each, part) for each in several], axis=0) for part in ("online", "material"))
    return Spent(online, material, min(each.dealer for each in several), min(each.caller for each in several))


def _measure_inference(cluster: Cluster, model: nn.Network) -> tuple[Measured, float]:
    """Batches of several sizes, and what a thread spends besides when others had its core."""
    batches = _Batches(cluster, model)
    found = {rows: batches.measure(rows, count) for rows, count in COUNTS.items()}
    large = _rows_in(LARGE, LARGE_S, found[MIDDLE])
    measured = replace(_measured({**found, large: batches.measure(large, 1)}), waiting_s=batches.waiting_s)
    return measured, batches.measure_switch(found[MIDDLE], MIDDLE, COUNTS[MIDDLE])


def _rows_in(sizes: range, seconds: float, middle: Spent) -> int:
    """About as many rows as keep a thread busy for some seconds, by what MIDDLE rows took."""
    taken_s = max(middle.dealer, *middle.online, *middle.material)
    return min(sizes[-1], max(sizes[0], int(MIDDLE * seconds / taken_s)))


# ---- training


def _can_be_trained(model: nn.Network) -> bool:
    try:
        training_plan(model, "logistic")
    except ModelError:
        return False
    return True


def _measure_training(model: nn.Network) -> tuple[Measured, float]:
    """Steps at one pair, and what it takes to add the changes of a second one."""
    with local() as cluster:
        few, middle = _steps(cluster, model, FEW), _steps(cluster, model, MIDDLE)
        large = min(_rows_in(PARTS, PART_S, middle), most_part(model))
        measured = _measured({MIDDLE: middle, large: _steps(cluster, model, large)})
    with local(workers=2) as cluster:
        together = _steps(cluster, model, 2 * FEW)
    return measured, max(0.0, float((together.online - few.online).max()))


def most_part(model: nn.Network) -> int:
    """Rows of a step whose material a dealer makes at once."""
    return int(MIDDLE * MOST_DEALT_BYTES / plan_step(model, MIDDLE).material.execution_bytes)


def _steps(cluster: Cluster, model: nn.Network, batch: int) -> Spent:
    """What one of some steps takes. The first run of a size also gets the memory that it works in."""
    return _least([_run_steps(cluster, model, batch) for _ in range(RUNS)])


def _run_steps(cluster: Cluster, model: nn.Network, batch: int) -> Spent:
    """Of the first two steps only the material counts, which is made for all of them then."""
    generator, outputs = np.random.default_rng(0), model.output_shape[0]
    x = generator.uniform(0, 1, (batch * STEPS, *model.input_shape))
    y = generator.integers(0, max(2, outputs), len(x))
    run = check_run(model, x, y, cluster.phase_bits, epochs=1, batch_size=batch, lr=0.1, seed=0)
    assert run.own is not None
    cluster.upload(run.own.shared, run.own.targets, name=run.spec["datasets"][0], outputs=run.plan.outputs)
    cluster.transport.submit(run.spec, split_words(run.words))
    first, readings = spent(cluster.pids), []
    for status in cluster.transport.events(run.spec["id"]):
        if status["state"] == "running":
            readings.append((status["step"], spent(cluster.pids)))
        elif status["error"]:
            raise HdcosError(f"training could not be measured with {batch} rows a step: {status['error']}")
    (begun, warm), (_, last) = readings[0], readings[-1]
    made = (last - first).each(STEPS)
    return Spent((last - warm).each(STEPS - begun).online, made.material, made.dealer, 0.0)


# ---- requests over HTTPS


def measure_requests(say: Callable[[str], None] = lambda text: None) -> Work:
    """What a request takes at each party besides its batch: TLS, HTTP, matching and handing over.

    Clients ask at the same time, as those of a busy cluster do: much is then done for several requests at once. How
    many batches they made is told by the rounds.
    """
    check_machine()
    say("requests over HTTPS")
    model = nn.models.higgs_mlp()
    with local() as cluster:
        alone, _ = _measure_inference(cluster, model)
    found = []
    with tempfile.TemporaryDirectory(prefix="hdcos-") as folder, _nodes(Path(folder)) as (cluster, pids):
        private = cluster.share(model)
        for rows, requests in REQUESTS.items():
            x = np.random.default_rng(0).uniform(0, 1, (rows, *model.input_shape))
            with ThreadPoolExecutor(CLIENTS) as clients:

                def ask(times: int, x: Array = x, clients: ThreadPoolExecutor = clients) -> None:
                    for answer in [clients.submit(private.predict, x, mode="shares") for _ in range(times)]:
                        answer.result()

                ask(2 * CLIENTS)
                cluster.reset_cost()
                before = [sum(_thread_s(pid)) for pid in pids]
                ask(requests)
                taken = max(sum(_thread_s(pid)) - then for pid, then in zip(pids, before, strict=True))
            batches = cluster.cost.online.rounds / private.rounds["shares"]
            of_batches = batches * alone.online.fixed + requests * rows * (alone.online.row + alone.material[1].row)
            found.append(max(0.0, taken - of_batches) / requests)
    return _fit(list(REQUESTS), found)


@contextmanager
def _nodes(folder: Path) -> Iterator[tuple[Cluster, list[int]]]:
    """Three nodes as operators run them, their client, and the processes of the two parties."""
    command = [sys.executable, "-m", "hdcos"]
    home, cluster_file = folder / "nodes", folder / "nodes" / "cluster.toml"
    made = subprocess.run([*command, "init", "--single-machine", str(home)], capture_output=True, text=True)
    if made.returncode:
        raise HdcosError(f"no nodes could be made to measure requests: {made.stderr.strip()}")
    with ExitStack() as stack:
        pids = {}
        for role in ("dealer", "party0", "party1"):
            place = ["--node", str(home / role), "--cluster", str(cluster_file)]
            kind = "dealer" if role == "dealer" else "party"
            log = stack.enter_context(open(folder / f"{role}.log", "wb"))
            process = subprocess.Popen([*command, kind, *place], stdout=log, stderr=log)
            stack.callback(process.wait, STOP_S)
            stack.callback(process.terminate)
            pids[role] = process.pid
        cluster = stack.enter_context(connect(cluster_file, (home / "token").read_text().strip(), timeout_s=START_S))
        _wait_until_ready(cluster)
        yield cluster, [pids["party0"], pids["party1"]]


def _wait_until_ready(cluster: Cluster) -> None:
    """Nodes take their time to start, more of it on a machine that has other work."""
    deadline = time.monotonic() + START_S
    while True:
        try:
            cluster.models()
            return
        except PeerLost:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
