"""Starting workers: processes that end with the one that started them, whatever ends it.

On one machine a worker has no port of its own: others ask the node's port for its name, and the doorman hands it their
connections. Workers may be started elsewhere: a launcher is anything with `start`.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from hdcos.api.process import end_process, how_it_ended, start_worker, tell_process
from hdcos.errors import InputError
from hdcos.link import Doorman
from hdcos.ring.device import Place

Address = tuple[str, int]
Settings = Callable[[bytes], Mapping[str, Any]]
"""What a worker is told, which has made a key with this public part: a certificate for it, and no key."""
LOCAL, CLUSTERS = "local", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""A Ray cluster of this machine alone, and what has Ray listen on loopback only: it asks when it is imported."""


@dataclass(frozen=True)
class Placement:
    """Where workers run and listen: processes of this machine, behind the node's port, unless it says otherwise."""

    ray: str = ""
    """The Ray cluster on whose machines they run."""
    first_port: int = 0
    """Worker i listens at the i-th port after this one there, where a proxy finds it; at any, if this is 0."""
    gpus: float = 1.0
    """The part of a GPU that Ray sets aside for a worker that computes on one."""


BESIDE = Placement()


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

    def start(self, name: str, settings: Settings) -> Running:
        """A worker that others call by this name."""


class WorkerProcess:
    """A process of this machine."""

    def __init__(self, doorman: Doorman, address: Address, name: str, settings: Settings) -> None:
        self._doorman, self.address = doorman, address
        self._channel = doorman.serve(name)
        with self._channel as listener:
            self._process, public = start_worker(listener)
            try:
                tell_process(self._process, settings(public), listener)
            except BaseException:
                self.stop()
                raise

    def state(self) -> str:
        return how_it_ended(self._process)

    def stop(self) -> None:
        self._doorman.forget(self._channel)
        end_process(self._process)


class ProcessLauncher:
    """Workers are processes of this machine."""

    @property
    def host(self) -> str:
        return "127.0.0.1"

    def __init__(self, doorman: Doorman, listener: socket.socket) -> None:
        host, port = listener.getsockname()[:2]
        self._doorman = doorman
        self._address = ({"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), port)

    def start(self, name: str, settings: Settings) -> WorkerProcess:
        return WorkerProcess(self._doorman, self._address, name, settings)


def choose_launcher(placement: Placement, doorman: Doorman, listener: socket.socket, place: Place) -> Launcher:
    """Processes of this machine, or the workers of the Ray cluster at an address; they compute at their place."""
    if not placement.ray:
        return ProcessLauncher(doorman, listener)
    if placement.ray == LOCAL:
        os.environ[CLUSTERS] = "0"
    try:
        from hdcos.party.ray_launcher import RayLauncher
    except ModuleNotFoundError as error:
        raise InputError(f"--ray needs {error.name}, which is not installed: pip install 'hdcos[ray]'") from None
    return RayLauncher(placement, doorman, place)
