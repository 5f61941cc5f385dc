"""A disk of eight megabytes: a file system in memory where mounting is allowed, else one that is said to be small."""

from __future__ import annotations

import errno
import os
import secrets
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

SIZE = 8 << 20


@contextmanager
def mounted(place: Path) -> Iterator[bool]:
    """A small disk at this place; False where mounting is refused."""
    place.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "hdcos", place], capture_output=True)
    try:
        yield done.returncode == 0
    finally:
        if done.returncode == 0:
            subprocess.run(["umount", "--lazy", place], check=True)


def said_to_be_small(place: Path, statvfs=os.statvfs):
    """What `os.statvfs` says where a folder may hold SIZE bytes."""

    def look(path):
        if not Path(path).is_relative_to(place):
            return statvfs(path)
        used = sum(-(-file.stat().st_size // 4096) * 4096 for file in place.rglob("*") if file.is_file())
        return SimpleNamespace(f_bavail=max(0, SIZE - used) // 4096, f_frsize=4096)

    return look


def fill(place: Path, leave: int = 0) -> Path:
    """Take up all room but so much, as somebody else on this disk would, while others go on writing to it."""
    path = place / f"somebody-elses-{secrets.token_hex(4)}"
    with path.open("wb") as file:
        while True:
            found = os.statvfs(place)
            if (free := found.f_bavail * found.f_frsize - leave) <= 0:
                return path
            try:
                os.posix_fallocate(file.fileno(), os.fstat(file.fileno()).st_size, free)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
