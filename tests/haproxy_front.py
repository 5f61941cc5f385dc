"""A real HAProxy with deploy/haproxy.cfg."""

from __future__ import annotations

import contextlib
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[1] / "deploy" / "haproxy.cfg"
needs_haproxy = pytest.mark.skipif(shutil.which("haproxy") is None, reason="no haproxy here")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def proxy(folder: Path, ports: dict[str, int], public: int = 0) -> Iterator[int]:
    """HAProxy with the example as it is, but for where things listen. Its public port."""
    public = public or free_port()
    text, binds = re.subn(r"(?m)^    bind :7101$", f"    bind 127.0.0.1:{public}", EXAMPLE.read_text())
    text, servers = re.subn(
        r"(?m)^    server (\w+) 10\.0\.0\.\d+:7101", lambda m: f"    server {m[1]} 127.0.0.1:{ports[m[1]]}", text
    )
    assert (binds, servers) == (1, 3)
    path = folder / "haproxy.cfg"
    path.write_text(text)
    with (folder / "haproxy.log").open("w") as log:
        process = subprocess.Popen(["haproxy", "-db", "-f", path], stdout=log, stderr=log)
    try:
        limit = time.monotonic() + 10
        while True:
            assert process.poll() is None, (folder / "haproxy.log").read_text()
            with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", public)):
                break
            assert time.monotonic() < limit
            time.sleep(0.05)
        yield public
    finally:
        process.terminate()
        process.wait(10)
