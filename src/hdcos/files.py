"""Files that are whole or absent, whenever the process dies, and private, whatever the umask."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from hdcos.errors import StorageFull

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def write_whole(target: Path, content: bytes) -> None:
    """Write beside its place, flush, rename; readable by the owner only."""
    temporary = target.with_name(f".{target.stem}.{secrets.token_hex(4)}.tmp")
    try:
        with full_disk_named(target), new_file(temporary) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(target.parent)


def new_file(path: Path) -> BinaryIO:
    """A file that did not exist, private from its first byte on."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    os.fchmod(descriptor, 0o600)  # an umask may have taken the owner's own rights
    return os.fdopen(descriptor, "w+b")


def private_folder(place: Path) -> Path:
    """A folder that only its owner enters. Those above it that do not exist yet are made likewise."""
    if not place.is_dir():
        if place.parent.exists() and not place.parent.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(place))
        private_folder(place.parent)
        place.mkdir(mode=0o700, exist_ok=True)
        place.chmod(0o700)
    return place


@contextmanager
def full_disk_named(place: Path) -> Iterator[None]:
    """What fails for want of room fails by name."""
    try:
        yield
    except OSError as error:
        if error.errno in NO_ROOM:
            raise StorageFull(f"the disk of {place.parent} is full: free some room there, then try again") from error
        raise


def sync_folder(folder: Path) -> None:
    """Make new names in a folder last."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
