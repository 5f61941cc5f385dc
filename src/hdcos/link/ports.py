"""Ports that stay free until they are listened on: below those that the system gives outgoing connections."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack, suppress
from pathlib import Path

RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
LOWEST, USUAL = 20_000, 32_768
"""Where to look, from here to where outgoing connections have theirs; usually that is there. Ray's workers listen
below: it refuses to start on a port from 10,002 to 19,999."""
TRIES = 100


def find_free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """That many different ones, which nobody uses now."""
    with ExitStack() as stack:
        return [stack.enter_context(bind_somewhere(host)).getsockname()[1] for _ in range(count)]


def bind_somewhere(host: str) -> socket.socket:
    """A socket at a port that no other one is bound to, be it that it listens or that it only keeps the port."""
    candidates = range(LOWEST, int(RANGE.read_text().split()[0]) if RANGE.exists() else USUAL)
    tried = random.sample(candidates, TRIES) if len(candidates) > TRIES else []
    found = socket.socket()  # without SO_REUSEADDR, with which ports may be shared until somebody listens
    try:
        for port in tried:
            with suppress(OSError):
                found.bind((host, port))
                return found
        found.bind((host, 0))  # any, where none of these is to be had
    except OSError:
        found.close()
        raise
    return found
