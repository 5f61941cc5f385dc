"""Workers under fire: one worker after another, plain or Ray's, or one machine after another of a party's Ray cluster,
is killed under load and training.

Clients compare every answer with plaintext. A job that trains all the while must end with the network that one pair of
workers gives, within the noise of training on shares. The ledgers of both parties must show every execution once.
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
from pathlib import Path
from threading import Event

import numpy as np

import hdcos
from benchmarks.nodes import Nodes, cluster_of_nodes, wait_until_ready
from benchmarks.ray_cluster import RayCluster
from benchmarks.record import Line, at_most, exactly
from hdcos import nn
from hdcos.errors import HdcosError
from hdcos.party.store import state

KILLS, MACHINE_KILLS = int(os.environ.get("KILLS", "50")), int(os.environ.get("KILLS", "10"))
PARTIES = ("party0", "party1")
WORKERS, CLIENTS, PATIENCE_S = 3, 3, 60.0
MODEL = nn.models.mlp([12, 16, 3], "cos", "hadamard", seed=2)
TRAINING = {"batch_size": 48, "lr": 0.05, "momentum": 0.9, "seed": 3, "watch": 0}


Kill = Callable[[Nodes, random.Random], str]
"""Kills something, and says where."""


def plain(seed: int) -> Iterator[Line]:
    yield from _lines(seed, f"plain workers, {KILLS} kills", KILLS, _kill_worker)


def with_ray(seed: int) -> Iterator[Line]:
    yield from _lines(seed, f"Ray's workers, {KILLS} kills", KILLS, _kill_worker, options=("--ray", "local"))


def machines_of_ray(seed: int) -> Iterator[Line]:
    """Each party has a Ray cluster of its own, of two machines that workers are on and the one that the party is on."""
    with ExitStack() as stack:
        clusters = {role: stack.enter_context(RayCluster.running(rank)) for rank, role in enumerate(PARTIES, 1)}

        def kill(nodes: Nodes, generator: random.Random) -> str:
            role = generator.choice(PARTIES)
            return f"{role}, a machine with {clusters[role].kill_machine(generator)} workers"

        what = f"machines of two Ray clusters, {MACHINE_KILLS} kills"
        own = {role: ("--ray", cluster.address) for role, cluster in clusters.items()}
        yield from _lines(seed, what, MACHINE_KILLS, kill, own=own)


def _kill_worker(nodes: Nodes, generator: random.Random) -> str:
    role = generator.choice(("dealer", *PARTIES))
    if victims := nodes.worker_pids(role):
        with suppress(ProcessLookupError):
            os.kill(generator.choice(victims), signal.SIGKILL)
    return role


def _lines(
    seed: int,
    what: str,
    kills: int,
    kill: Kill,
    options: Sequence[str] = (),
    own: Mapping[str, Sequence[str]] | None = None,
) -> Iterator[Line]:
    generator, ended = random.Random(seed), Event()
    back_s: list[float] = []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "c"
        with cluster_of_nodes(folder, options=("--workers", str(WORKERS), *options), own_options=own) as nodes:
            with nodes.connect() as cluster:
                wait_until_ready(cluster)
                starts, _ = _await_full_strength(nodes, [0, 0])
                cluster.share(MODEL, "served")
            with ThreadPoolExecutor(CLIENTS + 1) as pool:
                clients = [pool.submit(_ask, nodes, ended, number) for number in range(CLIENTS)]
                job = pool.submit(_train_on, nodes, ended)
                for number in range(kills):
                    time.sleep(generator.uniform(0.2, 2.0))
                    where = kill(nodes, generator)
                    starts, took_s = _await_full_strength(nodes, starts)
                    back_s.append(took_s)
                    print(f"kill {number + 1} at {where}: whole again after {back_s[-1]:.1f} s", flush=True)
                ended.set()
                answers = [client.result() for client in clients]
                trained = job.result()
            with nodes.connect() as cluster:
                held = [model["name"] for model in cluster.models()]
        reused = []
        for role in PARTIES:
            with state(folder / role) as store:
                reused += store.reused()
                left = [item.id for item in store.jobs() if item.state == "failed"]
    rows, wrong, lost = (sum(column) for column in zip(*answers, strict=True))
    yield exactly(f"{what}: wrong answers of {rows} rows", wrong, 0)
    yield exactly("requests that were not answered in the end", lost, 0)
    yield exactly("models, data sets and jobs lost", [len(left), "served" in held], [0, True])
    yield exactly("executions that the ledgers show twice", len(reused), 0)
    yield at_most("seconds until all workers work again, at most", max(back_s), 15.0)
    yield at_most(f"largest difference of {len(trained)} trained networks to one pair's", max(trained), 0.1)


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
    with nodes.connect() as cluster:
        private = cluster.model("served")
        while not ended.is_set():
            x = generator.uniform(-1, 1, (16, 12))
            try:
                answer = private.predict(x, mode="shares")
            except HdcosError as error:
                lost += 1
                print(f"not answered: {type(error).__name__}: {error}", flush=True)
                continue
            rows, wrong = rows + len(x), wrong + int(np.abs(answer - MODEL(x)).max() > 0.02)
    return rows, wrong, lost


def _train_on(nodes: Nodes, ended: Event) -> list[float]:
    """Train one network after another; how far each is from what one pair makes."""
    x = np.random.default_rng(0).uniform(-1, 1, (480, 12))
    y, epochs = x[:, :3].argmax(axis=1), 20
    with hdcos.local() as one:
        expected = one.fit(MODEL, x, y, epochs=epochs, **TRAINING).predict(x)
    found: list[float] = []
    with nodes.connect() as cluster:
        while not ended.is_set() or not found:
            trained = cluster.fit(MODEL, x, y, epochs=epochs, checkpoint_every=5, name=f"n{len(found)}", **TRAINING)
            found.append(float(np.abs(trained.predict(x) - expected).max()))
    return found
