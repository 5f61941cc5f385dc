"""The database of a party: its tables, and how an older file becomes a newer one.

The version is SQLite's user_version. Migration n turns version n into n + 1, in one transaction: a crash in between
leaves the old file. A database from a newer release is refused, not guessed at.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from hdcos.errors import CheckpointMismatch

MIGRATIONS: Sequence[str] = (
    """
    CREATE TABLE tokens (name TEXT PRIMARY KEY, hash TEXT NOT NULL UNIQUE, roles TEXT NOT NULL, created REAL NOT NULL);
    CREATE TABLE models (
        name TEXT NOT NULL, version TEXT NOT NULL, architecture TEXT NOT NULL, phase_bits INTEGER NOT NULL,
        owner TEXT NOT NULL, created REAL NOT NULL, PRIMARY KEY (name, version)
    );
    CREATE TABLE datasets (
        name TEXT NOT NULL, version TEXT NOT NULL, rows INTEGER NOT NULL, features INTEGER NOT NULL,
        outputs INTEGER NOT NULL, complete INTEGER NOT NULL, owner TEXT NOT NULL, created REAL NOT NULL,
        PRIMARY KEY (name, version)
    );
    CREATE TABLE grants (dataset TEXT NOT NULL, client TEXT NOT NULL, PRIMARY KEY (dataset, client));
    CREATE TABLE jobs (
        id TEXT PRIMARY KEY, spec TEXT NOT NULL, data TEXT NOT NULL, owner TEXT NOT NULL, state TEXT NOT NULL,
        step INTEGER NOT NULL, error TEXT NOT NULL, cancelled INTEGER NOT NULL, created REAL NOT NULL
    );
    CREATE TABLE reveals (
        id TEXT PRIMARY KEY, model TEXT NOT NULL, version TEXT NOT NULL, owner TEXT NOT NULL, state TEXT NOT NULL,
        created REAL NOT NULL
    );
    CREATE TABLE ledger (
        id INTEGER PRIMARY KEY, scope TEXT NOT NULL, first INTEGER NOT NULL, count INTEGER NOT NULL, at REAL NOT NULL
    );
    CREATE INDEX ledger_scope ON ledger (scope, first);
    CREATE TABLE audit (
        id INTEGER PRIMARY KEY, at REAL NOT NULL, actor TEXT NOT NULL, action TEXT NOT NULL, target TEXT NOT NULL,
        status TEXT NOT NULL, detail TEXT NOT NULL
    );
    """,
    """
    ALTER TABLE models ADD COLUMN arithmetic INTEGER NOT NULL DEFAULT 1;
    ALTER TABLE datasets ADD COLUMN columns TEXT NOT NULL DEFAULT 'null';
    ALTER TABLE jobs ADD COLUMN report TEXT NOT NULL DEFAULT '{}';
    ALTER TABLE jobs ADD COLUMN version TEXT NOT NULL DEFAULT '';
    CREATE TABLE queries (model TEXT PRIMARY KEY, set_aside INTEGER NOT NULL, allowed INTEGER NOT NULL);
    CREATE TABLE failures (
        what TEXT NOT NULL, name TEXT NOT NULL, version TEXT NOT NULL, lost INTEGER NOT NULL, why TEXT NOT NULL,
        at REAL NOT NULL, PRIMARY KEY (what, name, version)
    );
    """,
)


def migrate(database: sqlite3.Connection, migrations: Sequence[str] = MIGRATIONS) -> None:
    """Bring a database, new or old, to the version of this release."""
    (version,) = database.execute("PRAGMA user_version").fetchone()
    if version > len(migrations):
        raise CheckpointMismatch(
            f"the state was written by a newer hdcos (format {version}, this one knows {len(migrations)}): upgrade it"
        )
    for number in range(version, len(migrations)):
        try:
            database.executescript(f"BEGIN IMMEDIATE;{migrations[number]};PRAGMA user_version = {number + 1};COMMIT;")
        except sqlite3.Error:
            if database.in_transaction:
                database.execute("ROLLBACK")
            raise
