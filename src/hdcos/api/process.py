"""The process of a node or a worker, `python -m hdcos.party`: how it is started, told who it is, and ended.

It listens on a socket that it inherits, reads one line of JSON (`party.Node.from_json`) and ends with its input: with
the process that started it, whatever ends that one.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import IO, Any

STOP_S = 5.0


def start_process(
    settings: Mapping[str, Any], listener: socket.socket, stderr: IO[bytes] | None = None
) -> subprocess.Popen[bytes]:
    """A new process with these settings; one that ends at once says how by its status."""
    process = subprocess.Popen(
        [sys.executable, "-m", "hdcos.party"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=stderr,
        pass_fds=[listener.fileno()],
        start_new_session=True,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
    )
    assert process.stdin is not None
    with suppress(BrokenPipeError):
        process.stdin.write(json.dumps({**settings, "listener_fd": listener.fileno()}).encode() + b"\n")
        process.stdin.flush()
    return process


def end_process(process: subprocess.Popen[bytes]) -> None:
    """End it in good order, or at once if it does not."""
    assert process.stdin is not None
    with suppress(BrokenPipeError):
        process.stdin.close()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def how_it_ended(process: subprocess.Popen[bytes]) -> str:
    """Why it does not run any more; empty while it does."""
    status = process.poll()
    if status is None:
        return ""
    return "it was killed" if status == -9 else f"it ended with status {status}"
