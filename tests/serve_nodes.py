"""Nodes started by their own commands, for tests of whole clusters."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from click.testing import CliRunner

from hdcos.cli import main


def command(*arguments: object) -> tuple[int, str]:
    """The exit code and output of an hdcos command."""
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    return result.exit_code, result.output


@contextmanager
def running(folder: Path, role: str, *options: str) -> Iterator[subprocess.Popen[str]]:
    """A node of a folder made by `hdcos init --single-machine`; ready when it says that it listens."""
    kind = "dealer" if role == "dealer" else "party"
    node, cluster = str(folder / role), str(folder / "cluster.toml")
    process = subprocess.Popen(
        [sys.executable, "-m", "hdcos", kind, "--node", node, "--cluster", cluster, "--timeout-s", "10", *options],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        said = process.stderr.readline()
        while "listening on" not in said:  # others may say something first
            assert said, "it ended before it listened"
            said = process.stderr.readline()
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(10)
        process.stderr.close()
