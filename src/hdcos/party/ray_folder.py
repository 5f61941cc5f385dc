"""The folder of a Ray cluster that a node starts on its own machine: it goes when the node does, however that ends.

A process waits for the end of a pipe that only the node holds, and removes the folder then: a node that was killed
could not. Ray's processes end with the node as well, but may still be writing for a moment.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

REMOVE = """
import os, shutil, sys, time
sys.stdin.read()
for _ in range(100):
    shutil.rmtree(sys.argv[1], ignore_errors=True)
    if not os.path.exists(sys.argv[1]):
        break
    time.sleep(0.1)
"""


class RayFolder:
    """A folder for as long as this object or its process lives."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="hdcos-ray-", dir="/tmp"))  # names of Ray's sockets must be short
        command, nowhere = [sys.executable, "-I", "-S", "-c", REMOVE, str(self.path)], subprocess.DEVNULL
        self._remover = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=nowhere, stderr=nowhere, start_new_session=True
        )

    def remove(self) -> None:
        self._remover.communicate()
