"""Nodes started by their own commands, for tests of whole clusters."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from click.testing import CliRunner

import hdcos
from hdcos.cli import main
from hdcos.link.cluster_file import ClusterFile
from hdcos.party.store import state
from tests.proxies import HAPROXY, free_port, running_proxy


def command(*arguments: object) -> tuple[int, str]:
    """The exit code and output of an hdcos command."""
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    return result.exit_code, result.output


@contextmanager
def running_all(folder: Path, options: Mapping[str, Sequence[str]]) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """Nodes of a folder made by `hdcos init --single-machine`, started and stopped at once; ready when all listen."""
    processes = {}
    for role, more in options.items():
        kind = "dealer" if role == "dealer" else "party"
        place = ("--node", folder / role, "--cluster", folder / "cluster.toml", "--timeout-s", "10")
        with (folder / f"{role}.log").open("wb") as log:
            processes[role] = subprocess.Popen([sys.executable, "-m", "hdcos", kind, *place, *more], stderr=log)
    try:
        for role, process in processes.items():
            await_that(lambda: process.poll() is not None or "listening on" in _said(folder, role), 150.0, 0.02)  # noqa: B023
            assert process.poll() is None, _said(folder, role)
        yield processes
    finally:
        for process in processes.values():
            process.send_signal(signal.SIGTERM)
        for process in processes.values():
            process.wait(20)


def _said(folder: Path, role: str) -> str:
    return (folder / f"{role}.log").read_text()


@contextmanager
def running(folder: Path, role: str, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """One such node."""
    with running_all(folder, {role: options}) as processes:
        yield processes[role]


def await_that(what: Callable[[], object], within_s: float = 40.0, every_s: float = 0.1) -> None:
    limit = time.monotonic() + within_s
    while not what():
        assert time.monotonic() < limit, "it did not come to that"
        time.sleep(every_s)


def children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


def family(pid: int) -> list[int]:
    """A process and all that it started, and these."""
    return [pid, *(each for child in children(pid) for each in family(child))]


def listening(pid: int) -> set[str]:
    """The addresses, as the kernel writes them, of the TCP sockets at which a process listens."""
    open_files = set()
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            open_files.add(os.readlink(file))
    tables = [Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:] for table in ("tcp", "tcp6")]
    sockets = [line.split() for lines in tables for line in lines]
    return {each[1].partition(":")[0] for each in sockets if each[3] == "0A" and f"socket:[{each[9]}]" in open_files}


class Nodes:
    """A cluster of one machine and a client of it."""

    def __init__(self, folder: Path, processes: dict[str, subprocess.Popen[bytes]]) -> None:
        self.folder, self.processes = folder, processes
        self.cluster = self.connect()

    def connect(self) -> hdcos.Cluster:
        return hdcos.connect(self.folder / "cluster.toml", token=(self.folder / "token").read_text().strip())

    def workers(self, rank: int) -> list[dict]:
        """The further workers of a party, as it describes them."""
        return self.all_workers(rank)[1:]

    def all_workers(self, rank: int) -> list[dict]:
        return self.cluster.transport.both[rank].ask("GET", "/v2/status", None, None).meta["workers"]

    def all_up(self, count: int) -> bool:
        return all(sum(worker["up"] for worker in self.workers(rank)) == count for rank in (0, 1))

    def worker_pids(self, role: str) -> list[int]:
        return children(self.processes[role].pid)

    def listens_at(self, role: str) -> set[str]:
        """The addresses, as the kernel writes them, at which a node or what it started takes connections."""
        return {address for pid in family(self.processes[role].pid) for address in listening(pid)}

    def job(self) -> str:
        """The last job, by number."""
        return str(self.cluster.jobs()[-1]["id"])

    def said(self) -> str:
        """What the nodes have logged last."""
        return "\n".join(f"{role}: {_said(self.folder, role)[-4000:]}" for role in self.processes)

    def reused(self) -> list[str]:
        """What must never happen: material that was used twice, by the ledgers of both parties."""
        found = []
        for role in ("party0", "party1"):
            with state(self.folder / role) as store:
                found += store.reused()
        return found


@contextmanager
def starting(folder: Path) -> Iterator[Callable[..., Nodes]]:
    """Gives a function that starts a cluster with as many workers at each node as it is told; none is no node."""
    with ExitStack() as stack:

        def behind_proxy(role: str) -> tuple[str, ...]:
            """HAProxy is where the cluster file says that the party is, and the party listens elsewhere."""
            public, inner = ClusterFile.read(folder / "c" / "cluster.toml").servers[role].address, free_port()
            (folder / role).mkdir()
            # The example names workers of party 0, and finds them itself; the node of party 1 passes on to its own.
            ports = {"node": inner, "w1": free_port(), "w2": inner}
            stack.enter_context(running_proxy(HAPROXY, folder / role, ports, int(public.rpartition(":")[2])))
            own = ("--worker-ports", str(ports["w1"] - 1)) if role == "party0" else ()
            return ("--listen", f"127.0.0.1:{inner}", *own)

        def start(
            party0: int,
            party1: int,
            dealer: int = 1,
            init: tuple[str, ...] = (),
            ray: bool = False,
            proxies: bool = False,
            timeout_s: int = 30,
            datasets: Mapping[str, str] | None = None,
        ) -> Nodes:
            """`datasets` is where parties keep them, by their roles, if not in their states."""
            assert command("init", folder / "c", "--single-machine", *init)[0] == 0
            for role, place in (datasets or {}).items():
                settings = folder / "c" / role / "node.toml"
                settings.write_text(settings.read_text().replace('datasets = ""', f'datasets = "{place}"'))
            slow = ("--timeout-s", str(timeout_s))  # as machines may be
            own = (*slow, *(("--ray", "local") if ray else ()))
            options = {"dealer": own}
            for role in ("party0", "party1"):
                options[role] = (*own, *(behind_proxy(role) if proxies else ()))
            counts = {"dealer": dealer, "party0": party0, "party1": party1}
            wanted = {role: ("--workers", str(count), *options[role]) for role, count in counts.items() if count}
            return Nodes(folder / "c", stack.enter_context(running_all(folder / "c", wanted)))

        yield start
