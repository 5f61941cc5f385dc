"""Errors about what a file holds name the file."""

from __future__ import annotations

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
