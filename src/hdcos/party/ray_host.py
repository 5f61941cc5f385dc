"""What runs on the machine of a worker that Ray placed there: it starts the worker's process, and looks after it.

By itself, so that Ray's process there imports little before it can start.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any

import ray

from hdcos.api.process import how_it_ended, start_process


class RayHost:
    """An actor; the process that it started ends with it."""

    def start(self, settings: Mapping[str, Any]) -> tuple[str, int]:
        """Where the worker listens."""
        with socket.create_server((ray.util.get_node_ip_address(), 0)) as listener:
            self._process = start_process(settings, listener)
            host, port = listener.getsockname()[:2]
        return host, port

    def state(self) -> str:
        return how_it_ended(self._process)
