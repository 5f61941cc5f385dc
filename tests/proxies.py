"""Real proxies in front of a party, with the examples in deploy/ as they are but for where things listen."""

from __future__ import annotations

import contextlib
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from hdcos.link.ports import find_free_ports

DEPLOY = Path(__file__).parents[1] / "deploy"
NODE_AND_WORKERS = {"10.0.0.10:7101": "node", "10.0.0.11:7201": "w1", "10.0.0.12:7202": "w2"}
"""Where the tests have them, of the places at which the examples look."""
NOBODY = 1
"""A port at which nothing listens."""


@dataclass(frozen=True)
class Proxy:
    """A program, its example, and how it is called."""

    program: str
    example: Path
    check: tuple[str, ...]
    start: tuple[str, ...]
    public: str
    """Where the example listens, as a regular expression; then where it sends connections."""
    server: str

    def place(self, ports: dict[str, int], public: int) -> str:
        """The example with other addresses."""
        text, count = re.subn(self.public, rf"\g<1>127.0.0.1\g<2>{public}", self.example.read_text())
        local = {place: ports[name] for place, name in NODE_AND_WORKERS.items()}
        text, servers = re.subn(self.server, lambda m: f"127.0.0.1{m[2]}{local.get(f'{m[1]}:{m[3]}', NOBODY)}", text)
        assert (count, servers) == (1, 5)
        return text


HAPROXY = Proxy(
    "haproxy",
    DEPLOY / "haproxy.cfg",
    ("-c", "-f"),
    ("-db", "-f"),
    r"(bind )(:)7101",
    r"(10\.0\.0\.\d+)(:)(\d+)",
)
ENVOY = Proxy(
    "envoy",
    DEPLOY / "envoy.yaml",
    ("--mode", "validate", "-c"),
    ("--concurrency", "1", "--use-dynamic-base-id", "-c"),
    r"(address: )0\.0\.0\.0(, port_value: )7101",
    r"(10\.0\.0\.\d+)(, port_value: )(\d+)",
)


def needs(proxy: Proxy) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(proxy.program) is None, reason=f"no {proxy.program} here")


def free_port() -> int:
    return find_free_ports(1)[0]


@contextlib.contextmanager
def running_proxy(proxy: Proxy, folder: Path, ports: dict[str, int], public: int = 0) -> Iterator[int]:
    """The proxy in front of a node and two workers at these ports of this machine. Its public port."""
    public = public or free_port()
    path, log = folder / proxy.example.name, folder / f"{proxy.program}.log"
    path.write_text(proxy.place(ports, public))
    with log.open("w") as output:
        process = subprocess.Popen([proxy.program, *proxy.start, path], stdout=output, stderr=output)
    try:
        limit = time.monotonic() + 20
        while True:
            assert process.poll() is None, log.read_text()
            with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", public)):
                break
            assert time.monotonic() < limit, log.read_text()
            time.sleep(0.05)
        yield public
    finally:
        process.terminate()
        process.wait(10)
