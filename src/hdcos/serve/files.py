"""Files that are whole or absent, whenever the process dies."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def write_whole(target: Path, content: bytes) -> None:
    """Write beside its place, flush, rename; readable by the owner only."""
    temporary = target.with_name(f".{target.stem}.{secrets.token_hex(4)}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(target.parent)


def sync_folder(folder: Path) -> None:
    """Make new names in a folder last."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
