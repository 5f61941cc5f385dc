"""Files that people write or hand over, read whole: what is wrong with one is an error that names it.

`what` says what the file should be ("a cluster file"), so that the error says what was expected.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hdcos.errors import DataMissing, HdcosError, InputError


@contextmanager
def named(path: str | os.PathLike[str], what: str) -> Iterator[None]:
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
    with named(path, what):
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
