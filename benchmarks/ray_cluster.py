"""A Ray cluster of one organisation on this machine: one that the party is on, and two that its workers are on.

Each of the three has a loopback address, and processes, of its own: all of one can be killed at once, as when a machine
loses its power.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Self

from benchmarks.nodes import workers_below
from hdcos.errors import PeerLost
from hdcos.link.ports import find_free_ports

RAY = str(Path(sys.executable).parent / "ray")
START_S, CORES = 90.0, 4
"""Until a machine has started; its cores as Ray counts them, enough for all workers."""
NOTICING = {
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "1000",
    "RAY_health_check_failure_threshold": "3",
}
"""How soon Ray notices that a machine is gone: docs/operations.md."""
OPEN = {"RAY_AUTH_MODE": "disabled"}
"""Newer versions of Ray want a token of everybody, which machines of an organisation share; here it is one machine."""


class RayCluster:
    """`address` is where it answers."""

    def __init__(self, number: int, folder: Path, stack: ExitStack) -> None:
        self._number, self._folder, self._stack = number, folder, stack
        self.address = f"{self._host(0)}:{free_port()}"
        self._machines: dict[int, subprocess.Popen[bytes]] = {}
        self._numbers = count()
        for index in range(3):
            self._start(index)

    @classmethod
    @contextmanager
    def running(cls, number: int) -> Iterator[Self]:
        with ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp"))  # names must be short
            yield cls(number, Path(folder), stack)

    def kill_machine(self, generator: random.Random) -> int:
        """Kill all processes of a machine that workers are on; how many there were. One killed before is back then."""
        for index in (1, 2):
            if self._machines[index].poll() is not None:
                self._start(index)
        hosted = {index: workers_below(self._machines[index].pid) for index in (1, 2)}
        victim = generator.choice([index for index, workers in hosted.items() if workers])
        _kill(self._machines[victim])
        for pid in hosted[victim]:  # they end with what started them; a machine that is gone leaves none for a moment
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return len(hosted[victim])

    def kill_head(self) -> None:
        """Kill all processes of the machine that the party is on; the party itself is not among them."""
        _kill(self._machines[0])

    def restart(self) -> None:
        """What an operator does when the head was lost: Ray's other machines belong to nothing, and begin again too."""
        for machine in self._machines.values():
            _kill(machine)
        for index in range(3):
            self._start(index)

    def _host(self, index: int) -> str:
        return f"127.0.{self._number}.{index + 1}"

    def _start(self, index: int) -> None:
        head = ["--head", "--port", self.address.split(":")[1], "--temp-dir", str(self._folder), "--num-cpus", "0"]
        head += ["--include-dashboard", "false"]
        other = ["--address", self.address, "--num-cpus", str(CORES)]
        ports = ["--dashboard-agent-listen-port", str(free_port())]
        log = self._folder / f"machine{next(self._numbers)}.log"
        with log.open("wb") as said:
            machine = subprocess.Popen(
                [RAY, "start", "--block", "--disable-usage-stats", "--node-ip-address", self._host(index), *ports]
                + (other if index else head),
                stdout=said,
                stderr=said,
                start_new_session=True,
                env={**os.environ, **NOTICING, **OPEN},
            )
        self._stack.callback(_kill, machine)
        self._machines[index] = machine
        limit = time.monotonic() + START_S
        while "Ray runtime started" not in log.read_text():
            if machine.poll() is not None or time.monotonic() > limit:
                raise PeerLost(f"a Ray cluster did not start: {log.read_text()[-500:]}")
            time.sleep(0.1)


def _kill(machine: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(machine.pid, signal.SIGKILL)
    machine.wait()


def free_port() -> int:
    return find_free_ports(1)[0]
