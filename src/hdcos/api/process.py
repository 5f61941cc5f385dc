"""The process of a node or a worker, `python -m hdcos.party`: how it is started, told who it is, and ended.

It listens on a socket that it inherits, reads one line of JSON (`party.Node.from_json`) and ends with its input: with
the process that started it, whatever ends that one. A worker of a node first makes its key, which stays with it, and
says the public part on its output: what it is told then has a certificate for that, and no key.
"""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import IO, Any

from hdcos.errors import PeerLost

STOP_S, KEY_S = 5.0, 30.0
OWN_KEY = "--own-key"
"""Has a new process make its key."""


def start_process(
    settings: Mapping[str, Any], listener: socket.socket, stderr: IO[bytes] | None = None
) -> subprocess.Popen[bytes]:
    """A new process with these settings; one that ends at once says how by its status."""
    process = _start([], listener, subprocess.DEVNULL, stderr)
    tell_process(process, settings, listener)
    return process


def start_worker(listener: socket.socket) -> tuple[subprocess.Popen[bytes], bytes]:
    """A new process, which waits to be told who it is, and the public part of the key that it has made."""
    process = _start([OWN_KEY], listener, subprocess.PIPE, None)
    assert process.stdout is not None
    with process.stdout as output:
        said = select.poll()
        said.register(output, select.POLLIN)
        public = os.read(output.fileno(), select.PIPE_BUF) if said.poll(1000 * KEY_S) else b""
    if not public:
        end_process(process, 0.0)
        raise PeerLost(f"a process for a worker did not make its key within {KEY_S:g} s ({how_it_ended(process)})")
    return process, public


def tell_process(process: subprocess.Popen[bytes], settings: Mapping[str, Any], listener: socket.socket) -> None:
    """Say to a process that inherited this listener who it is."""
    assert process.stdin is not None
    with suppress(BrokenPipeError):
        process.stdin.write(json.dumps({**settings, "listener_fd": listener.fileno()}).encode() + b"\n")
        process.stdin.flush()


def _start(
    options: list[str], listener: socket.socket, stdout: int, stderr: IO[bytes] | None
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "hdcos.party", *options],
        stdin=subprocess.PIPE,
        stdout=stdout,
        stderr=stderr,
        pass_fds=[listener.fileno()],
        start_new_session=True,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
    )


def end_process(process: subprocess.Popen[bytes], within_s: float = STOP_S) -> None:
    """End it in good order, or at once if it does not."""
    assert process.stdin is not None
    with suppress(BrokenPipeError):
        process.stdin.close()
    try:
        process.wait(within_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def how_it_ended(process: subprocess.Popen[bytes]) -> str:
    """Why it does not run any more; empty while it does."""
    status = process.poll()
    if status is None:
        return ""
    return "it was killed" if status == -9 else f"it ended with status {status}"
