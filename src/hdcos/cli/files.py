"""Files that commands read rows from and write results to: errors about them name them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hdcos.errors import InputError


@contextmanager
def about(file: str | Path) -> Iterator[None]:
    """Rows of this file are used here: what is wrong with them is said of the file."""
    try:
        yield
    except InputError as error:
        raise type(error)(f"{file}: {error}") from error


def check_output(path: Path) -> None:
    """Before anything is computed: a file can be written there."""
    if path.is_dir():
        raise InputError(f"{path} is a folder: name a file in it for the output")
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise InputError(f"{path} cannot be written: {path.parent} is not a folder in which files can be made")
