"""Owners of data sets: whatever is killed during a run, the parties' disks hold in the end what owners named, and after
`hdcos forget` nothing but ledgers.

`make prove SUITE=tables PART=leftovers RUNS=3` takes a quick look.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np

from benchmarks.nodes import HDCOS, Nodes, cluster_of_nodes, wait_until_ready
from benchmarks.record import Line, at_least, exactly
from hdcos.party.store import ENDED

RUNS = int(os.environ.get("RUNS") or 20)
LEDGERS = {"audit", "ledger", "queries", "tokens"}
"""Tables that may remember a run: who did what, what must not be used twice, what was answered; and clients."""
COMMAND_S, LONGEST_S = 60.0, 700.0
"""What came while a client was killed between its uploads and its job is kept for ten minutes."""


def held(folder: Path) -> set[str]:
    """Files of both parties but their databases and ledgers, and rows of tables that are no ledgers."""
    found = set[str]()
    for rank in (0, 1):
        state = folder / f"party{rank}" / "state"
        for path in state.rglob("*"):
            if path.is_file() and path.name not in ("ledger.jsonl", "reserve") and "sqlite" not in path.name:
                found.add(f"party{rank}/{path.relative_to(state).as_posix()}")
        with closing(sqlite3.connect(state / "hdcos.sqlite", timeout=10)) as database:
            tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            for table in tables - LEDGERS:
                found |= {f"party{rank}/{table}: {row[0]}" for row in database.execute(f"SELECT * FROM {table}")}
    return found


def leftovers(seed: int) -> Iterator[Line]:
    """A client trains on its own file; it, and then a party, is killed at times drawn from the seed, RUNS times."""
    generator = random.Random(seed)
    with tempfile.TemporaryDirectory() as place, cluster_of_nodes(Path(place) / "home", SMALL) as nodes:
        with nodes.connect() as cluster:
            wait_until_ready(cluster)
        before, names = held(nodes.folder), [f"kept-{number}" for number in range(RUNS)]
        for name in names:
            what = generator.choice(("client", "client and party0", "client and party1"))
            _one_run(nodes, _write(Path(place), name), what, generator)
            print(f"{name}, killed: {what}", flush=True)
        ended = _until_ended(nodes)
        found = held(nodes.folder) - before
        unnamed = sum("rows-" in item or "/job-" in item or item.endswith(".part") for item in found)
        jobs = _jobs(nodes)
        for name in (*names, *jobs):
            _forget(nodes, name)
        left = sorted(held(nodes.folder) - before)
        print(f"left: {left}", flush=True)
    runs = f"{RUNS} runs of `hdcos train`, the client killed in each and a party in some"
    yield at_least(f"{runs}: jobs that had begun", len(jobs), RUNS / 4)
    yield exactly(f"{runs}: all jobs ended", ended, True)
    yield exactly(f"{runs}: rows, parts and models of an epoch that were left when the jobs had ended", unnamed, 0)
    yield exactly(f"{runs}, then `hdcos forget`: files and rows of tables at the parties, ledgers aside", len(left), 0)


SMALL = (("megabytes = 256 ", "megabytes = 4 "),)


def _write(place: Path, name: str) -> Path:
    x = np.random.default_rng(0).uniform(-1, 1, (4000, 8))
    table = np.column_stack([x, x[:, 0] > 0])
    np.savetxt(place / "rows.csv", table, delimiter=",", header="a,b,c,d,e,f,g,h,y", comments="", fmt="%.6g")
    config = place / "config.toml"
    config.write_text(
        '[data]\ntrain = "rows.csv"\nlabel = "y"\n[model]\nsizes = [8, 16, 1]\n[training]\nepochs = 5\n'
        f'batch_size = 100\nlr = 0.1\ncheckpoint_every = 20\n[output]\nname = "{name}"\n'
    )
    return config


def _one_run(nodes: Nodes, config: Path, what: str, generator: random.Random) -> None:
    client = subprocess.Popen(
        [*HDCOS, "train", str(config), *_place(nodes)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    before, deadline = held(nodes.folder), time.monotonic() + COMMAND_S
    while held(nodes.folder) == before and client.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)  # until it has begun to upload, however busy the machine is
    time.sleep(generator.uniform(0.0, 4.0))
    client.send_signal(signal.SIGKILL)
    client.wait()
    if "party" in what:
        role = what.split()[-1]
        time.sleep(generator.uniform(0.0, 1.0))
        nodes.kill(role)
        nodes.start(role)


def _place(nodes: Nodes) -> list[str]:
    return ["--cluster", str(nodes.folder / "cluster.toml"), "--token-file", str(nodes.folder / "token")]


def _hdcos(nodes: Nodes, *arguments: str) -> str:
    done = subprocess.run([*HDCOS, *arguments, *_place(nodes)], capture_output=True, text=True, timeout=COMMAND_S)
    if done.returncode:
        raise RuntimeError(f"{arguments}: {done.stderr}")
    return done.stdout


def _forget(nodes: Nodes, name: str) -> None:
    """What a run made, if it came to that; its job goes with the model."""
    try:
        _hdcos(nodes, "forget", name)
    except RuntimeError as error:
        if f"is called {name} at either party" not in str(error):
            raise


def _jobs(nodes: Nodes) -> list[str]:
    return [job["id"] for job in json.loads(_hdcos(nodes, "jobs", "--json"))]


def _until_ended(nodes: Nodes) -> bool:
    """Whether all jobs end, at both parties, and their rows are gone."""
    deadline = time.monotonic() + LONGEST_S
    with nodes.connect() as cluster:
        wait_until_ready(cluster)
        while time.monotonic() < deadline:
            both = [answer.meta["jobs"] for answer in cluster.transport.patiently("GET", "/v2/jobs")]
            rows = any(item["name"].startswith("rows-") for item in cluster.datasets())
            if not rows and all(job["state"] in ENDED for jobs in both for job in jobs):
                return True
            time.sleep(0.2)
    return False


PARTS = {"leftovers": leftovers}
