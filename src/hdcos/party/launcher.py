"""Starting workers: processes that end with the one that started them, whatever ends it.

A worker is told who it is and whom it works with by one line of JSON (`Node.from_json`), and listens on a socket that
it is given. Others may start workers elsewhere: a launcher is anything with `start`.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any, Protocol

STOP_S = 5.0
Address = tuple[str, int]
Settings = Callable[[Address], Mapping[str, Any]]
"""What a worker is told, once it is known where it listens."""


class Running(Protocol):
    """A worker that was started."""

    address: Address
    """Where it listens."""

    def state(self) -> str:
        """Why it does not run any more; empty while it does."""

    def stop(self) -> None:
        """End it, at once if it does not end by itself."""


class Launcher(Protocol):
    def start(self, index: int, settings: Settings) -> Running: ...


class WorkerProcess:
    """A process of this machine."""

    def __init__(self, settings: Settings, host: str = "127.0.0.1") -> None:
        with socket.create_server((host, 0)) as listener:
            self.address: Address = listener.getsockname()[:2]
            self._process = subprocess.Popen(
                [sys.executable, "-m", "hdcos.party"],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                pass_fds=[listener.fileno()],
                start_new_session=True,
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
            )
            assert self._process.stdin is not None
            told = {**settings(self.address), "listener_fd": listener.fileno()}
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

    def start(self, index: int, settings: Settings) -> WorkerProcess:
        return WorkerProcess(settings)
