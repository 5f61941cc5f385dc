"""Nodes started by their own commands, for tests of whole clusters."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from click.testing import CliRunner

import hdcos
from hdcos.cli import main
from hdcos.party.store import state


def command(*arguments: object) -> tuple[int, str]:
    """The exit code and output of an hdcos command."""
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    return result.exit_code, result.output


@contextmanager
def running(folder: Path, role: str, *options: str) -> Iterator[subprocess.Popen[str]]:
    """A node of a folder made by `hdcos init --single-machine`; ready when it says that it listens."""
    kind = "dealer" if role == "dealer" else "party"
    node, cluster = str(folder / role), str(folder / "cluster.toml")
    process = subprocess.Popen(
        [sys.executable, "-m", "hdcos", kind, "--node", node, "--cluster", cluster, "--timeout-s", "10", *options],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        said = process.stderr.readline()
        while "listening on" not in said:  # others may say something first
            assert said, "it ended before it listened"
            said = process.stderr.readline()
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(10)
        process.stderr.close()


def await_that(what: Callable[[], object], within_s: float = 40.0) -> None:
    limit = time.monotonic() + within_s
    while not what():
        assert time.monotonic() < limit, "it did not come to that"
        time.sleep(0.1)


class Nodes:
    """A cluster of one machine and a client of it."""

    def __init__(self, folder: Path, processes: dict[str, subprocess.Popen[str]]) -> None:
        self.folder, self.processes = folder, processes
        self.cluster = self.connect()

    def connect(self) -> hdcos.Cluster:
        return hdcos.connect(self.folder / "cluster.toml", token=(self.folder / "token").read_text().strip())

    def workers(self, rank: int) -> list[dict]:
        return self.cluster.transport.both[rank].ask("GET", "/v2/status", None, None).meta["workers"]

    def all_up(self, count: int) -> bool:
        return all(sum(worker["up"] for worker in self.workers(rank)) == count for rank in (0, 1))

    def worker_pids(self, role: str) -> list[int]:
        tasks = Path(f"/proc/{self.processes[role].pid}/task")
        return [int(pid) for task in tasks.iterdir() for pid in (task / "children").read_text().split()]

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

        def start(party0: int, party1: int, dealer: int = 1, init: tuple[str, ...] = (), ray: bool = False) -> Nodes:
            assert command("init", folder / "c", "--single-machine", *init)[0] == 0
            slow = ("--timeout-s", "30")  # as machines may be
            options = {
                "dealer": slow,
                **dict.fromkeys(("party0", "party1"), (*slow, *(("--ray", "local") if ray else ()))),
            }
            wanted = {"dealer": dealer, "party0": party0, "party1": party1}
            return Nodes(
                folder / "c",
                {
                    role: stack.enter_context(running(folder / "c", role, "--workers", str(count), *options[role]))
                    for role, count in wanted.items()
                    if count
                },
            )

        yield start
