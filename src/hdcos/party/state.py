"""The state in a node's folder, opened: a database that SQLite cannot use is an error that names it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hdcos.errors import CheckpointMismatch
from hdcos.party.room import STATE
from hdcos.party.store import Store


def open_state(node: Path) -> Store:
    """The state of a party, by its node's folder."""
    with _named(node):
        return Store(node / STATE)


@contextmanager
def state(node: Path) -> Iterator[Store]:
    """The state of a party for the length of a block, as operators' commands use it."""
    with _named(node):
        store = Store(node / STATE)
        try:
            yield store
        finally:
            store.close()


@contextmanager
def _named(node: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise CheckpointMismatch(
            f"{node / STATE / 'hdcos.sqlite'} cannot be used as a party's database ({error}): restore it from a backup"
        ) from error
