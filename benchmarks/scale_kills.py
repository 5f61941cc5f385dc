"""Workers under fire: one worker after another, plain or Ray's, or one machine after another of a party's Ray cluster,
is killed under load and training. Now and then it is the machine that the party itself is on, with the head of its Ray
cluster: their operator starts both again.

Clients, one of whom masks its rows, compare every answer with plaintext. Networks that are trained all the while, every
second one on a data set with a name, must be those that one pair of workers gives, within the noise of training on
shares. At the end both parties must hold every model and, word for word, the data set, every job must have ended well,
and the ledgers of both, of predictions and of steps, must show every execution once.
"""

from __future__ import annotations

import os
import random
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np

import hdcos
from benchmarks.nodes import Nodes, cluster_of_nodes, wait_until_ready
from benchmarks.ray_cluster import RayCluster
from benchmarks.record import Line, at_least, at_most, exactly
from hdcos import nn
from hdcos.cluster.job import Job
from hdcos.cluster.transport import ask_again
from hdcos.errors import HdcosError, PeerLost
from hdcos.party.checkpoint import Checkpoints
from hdcos.party.store import Store, state
from hdcos.ring import Array, encode
from hdcos.secure.training.plan import INPUT_SCALE, TARGET_SCALE

KILLS, MACHINE_KILLS = int(os.environ.get("KILLS", "50")), int(os.environ.get("KILLS", "10"))
PARTIES = ("party0", "party1")
WORKERS, CLIENTS, PATIENCE_S = 3, 3, 120.0
MODEL = nn.models.mlp([12, 16, 3], "cos", "hadamard", seed=2)
TRAINING: Any = {"epochs": 20, "batch_size": 48, "lr": 0.05, "momentum": 0.9, "seed": 3, "watch": 0}
ROWS, SERVED, DATA = np.random.default_rng(0).uniform(-1, 1, (480, 12)), "served", "rows"
LABELS = ROWS[:, :3].argmax(axis=1)
PARTY_EVERY = 4
"""Every fourth machine that is killed is the one that a party is on."""


@dataclass(frozen=True)
class Killed:
    """What was killed, and the party that began again with it, if one did."""

    where: str
    party: str = ""
    at_s: float = field(default_factory=time.monotonic)


Kill = Callable[[Nodes, random.Random, int], Killed]
"""Kills something, given the number of kills before; what an operator has to start again is started."""


@dataclass
class Kept:
    """What the parties hold in the end, and what their ledgers show."""

    models: list[str] = field(default_factory=list)
    data: list[tuple[str, int, bool]] = field(default_factory=list)
    """Name, rows and whether it is complete."""
    rows: Array = field(default_factory=lambda: np.empty(0))
    """Words of the data set, joined."""
    ended: list[set[str]] = field(default_factory=list)
    """The jobs that are done, at each party."""
    reserved: int = 0
    """Reservations of material of steps."""
    reused: list[str] = field(default_factory=list)


def plain(seed: int) -> Iterator[Line]:
    yield from _lines(seed, f"plain workers, {KILLS} kills", KILLS, _kill_worker)


def with_ray(seed: int) -> Iterator[Line]:
    yield from _lines(seed, f"Ray's workers, {KILLS} kills", KILLS, _kill_worker, options=("--ray", "local"))


def machines_of_ray(seed: int) -> Iterator[Line]:
    """Each party has a Ray cluster of its own, of two machines that workers are on and the one that the party is on."""
    with ExitStack() as stack:
        clusters = {role: stack.enter_context(RayCluster.running(rank)) for rank, role in enumerate(PARTIES, 1)}

        def kill(nodes: Nodes, generator: random.Random, number: int) -> Killed:
            role = generator.choice(PARTIES)
            if number % PARTY_EVERY != 1:
                workers = clusters[role].kill_machine(generator)
                return Killed(f"{role}, a machine with {workers} workers")
            killed = Killed(f"{role}, the machine with the party and the head", role)
            nodes.kill(role)
            clusters[role].kill_head()
            clusters[role].restart()
            print(f"Ray of {role} began again within {time.monotonic() - killed.at_s:.1f} s", flush=True)
            nodes.start(role)
            return killed

        what = f"machines of two Ray clusters, {MACHINE_KILLS} kills"
        own = {role: ("--ray", cluster.address) for role, cluster in clusters.items()}
        yield from _lines(seed, what, MACHINE_KILLS, kill, own=own)


def _kill_worker(nodes: Nodes, generator: random.Random, number: int) -> Killed:
    """One that is there: where there is none, or it has just ended, nothing was killed."""
    limit = time.monotonic() + PATIENCE_S
    while time.monotonic() < limit:
        role = generator.choice(("dealer", *PARTIES))
        with suppress(ProcessLookupError):
            if victims := nodes.worker_pids(role):
                os.kill(generator.choice(victims), signal.SIGKILL)
                return Killed(role)
        time.sleep(0.1)
    raise PeerLost(f"there was no worker to kill for {PATIENCE_S:g} s")


def _lines(
    seed: int,
    what: str,
    kills: int,
    kill: Kill,
    options: Sequence[str] = (),
    own: Mapping[str, Sequence[str]] | None = None,
) -> Iterator[Line]:
    generator, ended = random.Random(seed), Event()
    back_s: dict[str, list[float]] = {}
    """Until all work again, after a kill; of the machine with a party, from its next start, and from the kill on."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "c"
        with cluster_of_nodes(folder, options=("--workers", str(WORKERS), *options), own_options=own) as nodes:
            with nodes.connect(PATIENCE_S) as cluster:
                wait_until_ready(cluster, PATIENCE_S)
                starts, _ = _await_full_strength(nodes, [0, 0])
                cluster.share(MODEL, SERVED)
                cluster.upload(ROWS, LABELS, name=DATA, outputs=3)
            with ThreadPoolExecutor(CLIENTS + 1) as pool:
                clients = [pool.submit(_ask, nodes, ended, number) for number in range(CLIENTS)]
                training = pool.submit(_train_on, nodes, ended)
                for number in range(kills):
                    time.sleep(generator.uniform(0.2, 2.0))
                    killed = kill(nodes, generator, number)
                    before = [0 if role == killed.party else n for role, n in zip(PARTIES, starts, strict=True)]
                    starts, took_s = _await_full_strength(nodes, before)
                    back_s.setdefault("party" if killed.party else "worker", []).append(took_s)
                    if killed.party:
                        back_s.setdefault("kill", []).append(time.monotonic() - killed.at_s)
                    print(f"kill {number + 1} at {killed.where}: whole again after {took_s:.1f} s", flush=True)
                ended.set()
                answers = [client.result() for client in clients]
                trained = training.result()
            kept = Kept()
            with nodes.connect(PATIENCE_S) as cluster:
                wait_until_ready(cluster, PATIENCE_S)  # one that cannot be loaded any more is not
                kept.models = [model["name"] for model in cluster.models() if model["ready"]]
                kept.data = [(item["name"], item["rows"], item["complete"]) for item in cluster.datasets()]
        _read_states(folder, kept)
    rows, wrong, lost = (sum(column) for column in zip(*answers, strict=True))
    yield exactly(f"{what}: wrong answers of {rows} rows, one client's masked", wrong, 0)
    yield at_least("rows that were answered of each client, at least", min(each for each, _, _ in answers), 1)
    yield exactly("requests that were not answered in the end", lost, 0)
    models = {SERVED, *(name for name, _, _ in trained)}
    yield exactly(f"models lost, of {len(models)}", sorted(models - set(kept.models)), [])
    yield exactly("data sets that both parties hold", kept.data, [(DATA, len(ROWS), True)])
    yield exactly("words of its rows and labels that are others now", count_changed(kept.rows), 0)
    jobs = {job for _, job, _ in trained}
    yield exactly(f"jobs lost, of {len(jobs)}", sorted(jobs - set.intersection(*kept.ended)), [])
    yield exactly("executions that the ledgers show twice", kept.reused, [])
    yield at_least("reservations of steps in these ledgers", kept.reserved, len(jobs))
    yield at_most("seconds until all workers work again, at most", max(back_s["worker"]), 15.0)
    if "party" in back_s:
        times = len(back_s["party"])
        line = f"the same for {times} of these kills, of the machine with a party and the head of its Ray cluster"
        yield at_most(f"{line}, from the party's next start", max(back_s["party"]), 15.0)
        line = "the same from the kill on, with the time in which its operator starts Ray and the party again"
        yield Line(line, max(back_s["kill"]), "reported", True)
    for kind, number in (("rows that came with the job", 0), ("the data set", 1)):
        apart = [difference for _, _, difference in trained[number::2]]
        yield at_most(f"largest difference of {len(apart)} networks trained on {kind} to one pair's", max(apart), 0.1)


def _read_states(folder: Path, kept: Kept) -> None:
    """What the parties kept on disk: their nodes have ended."""
    for rank, role in enumerate(PARTIES):
        with state(folder / role) as store:
            kept.ended.append({job.id for job in store.jobs() if job.state == "done"})
            reserved, reused = read_ledgers(store, rank)
            kept.reserved, kept.reused = kept.reserved + reserved, kept.reused + reused
            (dataset,) = store.datasets(DATA)
            share = store.dataset_rows(dataset).take(np.arange(dataset.rows))
            kept.rows = share if rank == 0 else kept.rows + share


def read_ledgers(store: Store, rank: int) -> tuple[int, list[str]]:
    """Reservations of material of steps, and what the ledgers of predictions and of steps show twice."""
    steps = [Checkpoints.of(store.job_folder(job.id), rank) for job in store.jobs()]
    return sum(len(job.reserved()) for job in steps), store.reused() + [one for job in steps for one in job.reused()]


def count_changed(rows: Array) -> int:
    """Words of the joined data set that are not those that were uploaded."""
    expected = np.hstack([encode(ROWS, INPUT_SCALE), encode(np.eye(3)[LABELS], TARGET_SCALE)])
    return int((rows != expected).sum()) if rows.shape == expected.shape else expected.size


def _await_full_strength(nodes: Nodes, before: list[int]) -> tuple[list[int], float]:
    """Until all work and some at each party have begun again: how often they have, and the seconds it took."""
    started = time.monotonic()
    while time.monotonic() - started < PATIENCE_S:
        with suppress(HdcosError):
            starts = nodes.starts(WORKERS - 1)
            if starts and all(now > then for now, then in zip(starts, before, strict=True)):
                return starts, time.monotonic() - started
        time.sleep(0.1)
    return before, float("inf")


def _ask(nodes: Nodes, ended: Event, number: int) -> tuple[int, int, int]:
    """Rows asked for, wrong answers, and requests that were given up."""
    generator, rows, wrong, lost = np.random.default_rng(number), 0, 0, 0
    mode = "masked" if number == 0 else "shares"  # those that are masked stay with the first pair, which has the masks
    with nodes.connect(PATIENCE_S) as cluster:
        private = cluster.model(SERVED)
        while not ended.is_set():
            x = generator.uniform(-1, 1, (16, 12))
            try:
                answer = private.predict(x, mode=mode)
            except HdcosError as error:
                lost += 1
                print(f"not answered: {type(error).__name__}: {error}", flush=True)
                continue
            rows, wrong = rows + len(x), wrong + int(np.abs(answer - MODEL(x)).max() > 0.02)
    return rows, wrong, lost


def _train_on(nodes: Nodes, ended: Event) -> list[tuple[str, str, float]]:
    """Train one network after another, by turns on rows that come with the job and on the data set: the name of each,
    its job, and how far it is from what one pair makes."""
    with hdcos.local() as one:
        expected = one.fit(MODEL, ROWS, LABELS, **TRAINING).predict(ROWS)
    found: list[tuple[str, str, float]] = []
    with nodes.connect(PATIENCE_S) as cluster:
        while not ended.is_set() or len(found) < 2:
            name = f"n{len(found)}"
            rows: tuple[Any, Any] = [(ROWS, LABELS), (DATA, None)][len(found) % 2]
            submit = partial(cluster.fit, MODEL, *rows, name=name, wait=False, checkpoint_every=5, **TRAINING)
            job: Job = ask_again(submit, PATIENCE_S)  # a party may be away
            difference = np.abs(job.result().predict(ROWS) - expected).max()
            found.append((name, job.id, float(difference)))
    return found
