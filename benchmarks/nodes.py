"""Nodes started by their commands, for the proofs of the service."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hdcos
from hdcos.cluster.cluster import Cluster
from hdcos.errors import HdcosError

ROLES = ("dealer", "party0", "party1")
HDCOS = [sys.executable, "-m", "hdcos"]


@dataclass
class Nodes:
    """A cluster in a folder, set up by `hdcos init --single-machine`."""

    folder: Path
    timeout_s: float = 5.0
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    descriptors: int | None = None
    """How many a party may have."""
    options: Sequence[str] = ()
    """Of the commands, for all nodes."""
    own_options: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Of the commands, for single nodes."""
    entering: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """What comes before the command of a node: it enters the host that the node is on."""

    def start(self, role: str) -> None:
        kind = "dealer" if role == "dealer" else "party"
        place = ["--node", str(self.folder / role), "--cluster", str(self.folder / "cluster.toml")]
        with open(self.folder / f"{role}.log", "ab") as log:
            options = [*self.options, *self.own_options.get(role, ())]
            self.processes[role] = subprocess.Popen(
                [*self.entering.get(role, ()), *HDCOS, kind, *place, "--timeout-s", str(self.timeout_s), *options],
                stdout=log,
                stderr=log,
                preexec_fn=self._limit if kind == "party" and self.descriptors else None,
            )

    def _limit(self) -> None:
        assert self.descriptors is not None
        resource.setrlimit(resource.RLIMIT_NOFILE, (self.descriptors, self.descriptors))

    def kill(self, role: str) -> None:
        """As a crash would."""
        process = self.processes.pop(role)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()

    def worker_pids(self, role: str) -> list[int]:
        """The processes that a node, or a Ray cluster that it started, runs for its workers."""
        return workers_below(self.processes[role].pid)

    def workers(self, rank: int) -> list[dict[str, Any]]:
        """The further workers of a party, as it describes them."""
        with self.connect() as cluster:
            status = cluster.transport.both[rank].ask("GET", "/v2/status", None, None).meta
        found: list[dict[str, Any]] = status["workers"][1:]
        return found

    def starts(self, count: int) -> list[int]:
        """How often the workers of each party have begun, if as many work now; else nothing."""
        found = [self.workers(rank) for rank in (0, 1)]
        up = all(sum(worker["up"] for worker in workers) == count for workers in found)
        return [sum(worker["starts"] for worker in workers) for workers in found] if up else []

    def connect(self, timeout_s: float = 30.0) -> Cluster:
        return hdcos.connect(self.folder / "cluster.toml", self.secret, timeout_s=timeout_s)

    @property
    def secret(self) -> str:
        return (self.folder / "token").read_text().strip()

    def logs(self) -> str:
        return "".join((self.folder / f"{role}.log").read_text() for role in ROLES)


@contextmanager
def cluster_of_nodes(
    folder: Path,
    changes: Sequence[tuple[str, str]] = (),
    prepare: Callable[[Path], None] = lambda folder: None,
    descriptors: int | None = None,
    options: Sequence[str] = (),
    own_options: Mapping[str, Sequence[str]] | None = None,
    entering: Mapping[str, Sequence[str]] | None = None,
    clients: Sequence[str] = (),
) -> Iterator[Nodes]:
    """Three running nodes; `changes` are made to node.toml of both parties first, then the folder is prepared. Further
    `clients` have their secrets in it.

    They answer as many rows as a proof asks for: what the quota does is shown where it is the subject.
    """
    changes = [("queries_per_model = 0 ", "queries_per_model = 900000000 "), *changes]
    further = [word for client in clients for word in ("--client", client)]
    subprocess.run([*HDCOS, "init", "--single-machine", str(folder), *further], check=True, capture_output=True)
    for role in ("party0", "party1"):
        path = folder / role / "node.toml"
        text = path.read_text()
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        path.write_text(text)
    prepare(folder)
    known: Any = {"descriptors": descriptors, "options": options}
    nodes = Nodes(folder, **known, own_options=own_options or {}, entering=entering or {})
    try:
        for role in ROLES:
            nodes.start(role)
        yield nodes
    finally:
        for process in nodes.processes.values():
            process.terminate()
        for process in nodes.processes.values():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


def workers_below(process: int) -> list[int]:
    """The processes of workers that a process started, or that those did which it started."""
    found, seen = [], [process]
    while seen:
        tasks = Path(f"/proc/{seen.pop()}/task")
        for task in tasks.iterdir() if tasks.exists() else ():
            with suppress(OSError):  # one that has just ended
                for pid in (task / "children").read_text().split():
                    seen.append(int(pid))
                    if "hdcos.party" in Path(f"/proc/{pid}/cmdline").read_text():
                        found.append(int(pid))
    return found


def wait_until_ready(cluster: Cluster, within_s: float = 60.0) -> float:
    """Seconds until both parties say that they are ready."""
    started = time.monotonic()
    while time.monotonic() - started < within_s:
        try:
            answers = cluster.transport.ask("GET", "/v2/health/ready")
            if all(answer.meta["ready"] for answer in answers):
                return time.monotonic() - started
        except HdcosError:
            pass  # not ready is what is being waited out
        time.sleep(0.05)
    return float("inf")
