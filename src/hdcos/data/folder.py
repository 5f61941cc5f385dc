"""Where data files are, and how they are opened.

HDCOS_DATA names the folder; without it they are in hdcos under the user's cache folder. A file may be compressed
by gzip, with .gz after its name, or not.
"""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from hdcos.errors import DataMissing, InputError

VARIABLE = "HDCOS_DATA"


def folder() -> Path:
    """The folder of the data files; it need not exist."""
    chosen = os.environ.get(VARIABLE)
    if chosen:
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "hdcos"


def locate(name: str, origin: str = "the file") -> Path:
    """The path of a data file such as "mnist/train-images-idx3-ubyte", compressed or not.

    `origin` says in the error what to get where there is none.
    """
    for path in (folder() / f"{name}.gz", folder() / name):
        if path.is_file():
            return path
    source = f"named by {VARIABLE}" if os.environ.get(VARIABLE) else f"used because {VARIABLE} is not set"
    raise DataMissing(
        f"{name}.gz (or {name}) is not in {folder()}, the folder {source}.\n"
        f"Get {origin} and put it at {folder() / name}.gz or {folder() / name},\n"
        f"or name the folder that has it: `export {VARIABLE}=/path/to/data`."
    )


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """The uncompressed bytes of a file; damage found while reading them is an InputError."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            yield cast(BinaryIO, stream)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InputError(f"{path} is not a whole gzip file: {error}") from error
