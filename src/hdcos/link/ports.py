"""Ports that stay free until they are listened on: below those that the system gives outgoing connections."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack
from pathlib import Path

RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
LOWEST, USUAL = 20_000, 32_768
"""Where to look, from here to where outgoing connections have theirs; usually that is there. Ray's workers listen
below: it refuses to start on a port from 10,002 to 19,999."""
TRIES = 100


def find_free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """That many different ones, which nobody uses now."""
    with ExitStack() as stack:
        return [stack.enter_context(_listen_somewhere(host)).getsockname()[1] for _ in range(count)]


def candidates() -> range:
    """Where free ports are looked for."""
    return range(LOWEST, int(RANGE.read_text().split()[0]) if RANGE.exists() else USUAL)


def _listen_somewhere(host: str) -> socket.socket:
    if len(candidates()) > TRIES:
        for port in random.sample(candidates(), TRIES):
            try:
                return socket.create_server((host, port))
            except OSError:
                continue
    return socket.create_server((host, 0))  # any, where none of these is to be had
