"""What runs on the machine of a worker that Ray placed there: it starts the worker's process, and looks after it.

By itself, so that Ray's process there imports little before it can start.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any

import ray

from hdcos.api.process import how_it_ended, start_worker, tell_process


class RayHost:
    """An actor; the process that it started ends with it."""

    def start(self, port: int) -> tuple[tuple[str, int], bytes]:
        """Where the worker listens (port 0: at any), and the public part of the key that it has made there."""
        self._listener = socket.create_server((ray.util.get_node_ip_address(), port))
        self._process, public = start_worker(self._listener)
        host, port = self._listener.getsockname()[:2]
        return (host, port), public

    def begin(self, settings: Mapping[str, Any]) -> None:
        """Say to the worker who it is."""
        with self._listener as listener:
            tell_process(self._process, settings, listener)

    def state(self) -> str:
        return how_it_ended(self._process)
