"""Starting workers: processes that end with the one that started them, whatever ends it.

A worker is told who it is and whom it works with by one line of JSON (`Node.from_json`). On one machine it has no port
of its own: others ask the node's port for its name, and the doorman hands it their connections. Workers may be started
elsewhere: a launcher is anything with `start`.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from typing import Any, Protocol

from hdcos.errors import InputError
from hdcos.link import Doorman

STOP_S = 5.0
Address = tuple[str, int]


class Running(Protocol):
    """A worker that was started."""

    address: Address
    """Where it listens."""

    def state(self) -> str:
        """Why it does not run any more; empty while it does."""

    def stop(self) -> None:
        """End it, at once if it does not end by itself."""


class Launcher(Protocol):
    @property
    def host(self) -> str:
        """The address of this machine that workers reach it by."""

    def start(self, name: str, settings: Mapping[str, Any]) -> Running:
        """A worker that others call by this name."""


class WorkerProcess:
    """A process of this machine."""

    def __init__(self, doorman: Doorman, address: Address, name: str, settings: Mapping[str, Any]) -> None:
        self._doorman, self._name, self.address = doorman, name, address
        with doorman.serve(name) as listener:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "hdcos.party"],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                pass_fds=[listener.fileno()],
                start_new_session=True,
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
            )
            assert self._process.stdin is not None
            told = {**settings, "listener_fd": listener.fileno()}
            try:
                self._process.stdin.write(json.dumps(told).encode() + b"\n")
                self._process.stdin.flush()
            except BrokenPipeError:  # it ended at once: `state` says how
                return

    @property
    def pid(self) -> int:
        return self._process.pid

    def state(self) -> str:
        status = self._process.poll()
        if status is None:
            return ""
        return "it was killed" if status == -9 else f"it ended with status {status}"

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._doorman.forget(self._name)
        try:
            self._process.stdin.close()
        except BrokenPipeError:
            self._process.kill()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class ProcessLauncher:
    """Workers are processes of this machine."""

    @property
    def host(self) -> str:
        return "127.0.0.1"

    def __init__(self, doorman: Doorman, listener: socket.socket) -> None:
        host, port = listener.getsockname()[:2]
        self._doorman = doorman
        self._address = ({"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), port)

    def start(self, name: str, settings: Mapping[str, Any]) -> WorkerProcess:
        return WorkerProcess(self._doorman, self._address, name, settings)


def choose_launcher(ray: str, doorman: Doorman, listener: socket.socket) -> Launcher:
    """Processes of this machine, or the workers of the Ray cluster at an address."""
    if not ray:
        return ProcessLauncher(doorman, listener)
    try:
        from hdcos.party.ray_launcher import RayLauncher
    except ModuleNotFoundError as error:
        raise InputError(f"--ray needs {error.name}, which is not installed: pip install 'hdcos[ray]'") from None
    return RayLauncher(ray, doorman)
