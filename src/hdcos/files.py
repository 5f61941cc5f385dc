"""Files: those that people hand over, read whole, and those that are whole or absent whenever the process dies.

What is wrong with a file that is read is an error that names it; `what` says what the file should be ("a cluster
file"), so that the error says what was expected. Files that are written are private, whatever the umask.
"""

from __future__ import annotations

import errno
import os
import secrets
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from hdcos.errors import DataMissing, HdcosError, InputError, StorageFull

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def name_errors(path: str | os.PathLike[str], what: str) -> Iterator[None]:
    """Errors of the operating system while a file is read, as errors that name it."""
    try:
        yield
    except HdcosError:
        raise
    except (FileNotFoundError, NotADirectoryError):
        raise DataMissing(f"there is no file {path}, which should be {what}: check its name") from None
    except IsADirectoryError:
        raise InputError(f"{path} is a folder, not {what}: name a file") from None
    except OSError as error:
        raise InputError(f"{path}, {what}, cannot be read: {error.strerror or error}") from error


def read_bytes(path: str | os.PathLike[str], what: str) -> bytes:
    with name_errors(path, what):
        return Path(path).read_bytes()


def read_text(path: str | os.PathLike[str], what: str) -> str:
    """The text of a file in UTF-8."""
    content = read_bytes(path, what)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InputError(f"{path} is not {what}: line {line} is not text in UTF-8") from None


def read_toml(path: str | os.PathLike[str], what: str) -> dict[str, Any]:
    """The tables of a TOML file."""
    try:
        return tomllib.loads(read_text(path, what).replace("\r\n", "\n"))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(f"{path} is not {what}, it is not a TOML file: {error}") from None


def new_file(path: Path) -> BinaryIO:
    """A file that did not exist, private from its first byte on."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    os.fchmod(descriptor, 0o600)  # an umask may have taken the owner's own rights
    return os.fdopen(descriptor, "w+b")


@contextmanager
def replace_whole(target: Path, make: Callable[[Path], BinaryIO] = new_file) -> Iterator[BinaryIO]:
    """A new file beside a place, which takes that place when the block has ended well and all of it is on the disk."""
    temporary = target.with_name(f".{target.stem}.{secrets.token_hex(4)}.tmp")
    try:
        with full_disk_named(target), make(temporary) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(target.parent)


def write_whole(target: Path, content: bytes) -> None:
    """Write a file that is there whole or not at all; readable by the owner only."""
    with replace_whole(target) as file:
        file.write(content)


def private_folder(place: Path) -> Path:
    """A folder that only its owner enters. Those above it that do not exist yet are made likewise."""
    if not place.is_dir():
        if place.parent.exists() and not place.parent.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(place))
        private_folder(place.parent)
        place.mkdir(mode=0o700, exist_ok=True)
        place.chmod(0o700)
    return place


def remove_empty(folder: Path) -> None:
    """Remove a folder that nothing is in: its name may say what was."""
    try:
        folder.rmdir()
    except FileNotFoundError:
        return
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise


@contextmanager
def full_disk_named(place: Path) -> Iterator[None]:
    """What fails because the disk is full fails by name."""
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
