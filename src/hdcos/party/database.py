"""The database of a party: its tables, how an older file becomes a newer one, and room on its disk.

The version is SQLite's user_version. Migration n turns version n into n + 1, in one transaction: a crash in between
leaves the old file. A database from a newer release is refused, not guessed at.

What clients send must leave some room on the disk, what a party must write always finds some. An upload, a model or a
job is refused by name unless SPARE_BYTES stay free. The spare, and when it is gone the reserve (a file that only takes
up room and is given up), belong to the ledger, without which no prediction may run, and to whatever frees room:
forgetting, revoking, ending jobs. So a party with a full disk goes on serving, and says so.

What is deleted is gone from the disk: SQLite overwrites it in the file, and the write-ahead log is emptied. The names
of features are in these tables, and those of one-hot columns hold the values of cells.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

from hdcos.errors import CheckpointMismatch, DataMissing, InputError, StorageFull
from hdcos.files import full_disk_named, new_file, private_folder

STATE = "state"
"""The folder, in that of a node, that a party keeps its state in."""
FILE = "hdcos.sqlite"
SPARE_BYTES = 1 << 21
RESERVE_BYTES = 1 << 20
SCARCE_BYTES = 1 << 18
"""With less than this the reserve is given up."""
BUSY_S = 10.0
LOG_PAGES = 128
"""Of the write-ahead log, before it goes into the database: half a megabyte, so that it fits into the reserve."""
CACHE_KIB = 256
"""Of the database in memory: the tables that are asked again and again are small, those that grow are asked rarely."""
T = TypeVar("T")

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
    # Parts of uploads were files of another kind: what is not complete is begun again.
    """
    ALTER TABLE datasets ADD COLUMN by_rows INTEGER NOT NULL DEFAULT 0;
    DELETE FROM datasets WHERE complete = 0;
    """,
    # Names of data sets are their owners' own, so grants name the owner.
    """
    ALTER TABLE datasets ADD COLUMN number INTEGER NOT NULL DEFAULT 1;
    ALTER TABLE datasets ADD COLUMN expires REAL NOT NULL DEFAULT 0;
    ALTER TABLE datasets ADD COLUMN job TEXT NOT NULL DEFAULT '';
    ALTER TABLE datasets ADD COLUMN preparation TEXT NOT NULL DEFAULT '';
    ALTER TABLE datasets ADD COLUMN join_id TEXT NOT NULL DEFAULT '';
    ALTER TABLE grants RENAME TO older_grants;
    CREATE TABLE grants (
        owner TEXT NOT NULL, dataset TEXT NOT NULL, client TEXT NOT NULL, PRIMARY KEY (owner, dataset, client)
    );
    INSERT OR IGNORE INTO grants SELECT owner, dataset, client FROM older_grants JOIN datasets ON name = dataset;
    DROP TABLE older_grants;
    CREATE TABLE expired (owner TEXT NOT NULL, name TEXT NOT NULL, at REAL NOT NULL, PRIMARY KEY (owner, name));
    """,
    "ALTER TABLE jobs ADD COLUMN spared INTEGER NOT NULL DEFAULT 0;",
    # What a job is told to do may be long: it stands last, where nobody reads over it who asks how the job is. What is
    # asked again and again stands beside it, and the store fills that in.
    """
    ALTER TABLE jobs RENAME TO older_jobs;
    CREATE TABLE jobs (
        id TEXT PRIMARY KEY, owner TEXT NOT NULL, state TEXT NOT NULL, cancelled INTEGER NOT NULL,
        step INTEGER NOT NULL, spared INTEGER NOT NULL, ended REAL NOT NULL DEFAULT 0, created REAL NOT NULL,
        said TEXT NOT NULL DEFAULT '', model TEXT NOT NULL DEFAULT '', epochs INTEGER NOT NULL DEFAULT 0,
        version TEXT NOT NULL, error TEXT NOT NULL, data TEXT NOT NULL, report TEXT NOT NULL, spec TEXT NOT NULL
    );
    INSERT INTO jobs (id, owner, state, cancelled, step, spared, created, version, error, data, report, spec)
        SELECT id, owner, state, cancelled, step, spared, created, version, error, data, report, spec FROM older_jobs;
    DROP TABLE older_jobs;
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


class Room:
    """The disk that holds a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._reserve = folder, folder / "reserve"

    @property
    def free_bytes(self) -> int:
        """What this process may still write."""
        found = os.statvfs(self._folder)
        return found.f_bavail * found.f_frsize

    @property
    def trouble(self) -> str:
        """What is wrong with the disk, or nothing."""
        if self.free_bytes >= SPARE_BYTES:
            return ""
        return f"the disk of {self._folder} is full: nothing new is kept until there is room again"

    def require(self, size: int, what: str) -> None:
        """StorageFull unless this many bytes can be kept and the spare stays."""
        free = self.free_bytes
        if free < size + SPARE_BYTES:
            raise StorageFull(
                f"{what} takes {size} bytes, and this party's disk has {max(0, free - SPARE_BYTES)} left for clients: "
                f"forget something first, or ask its operator for room"
            )

    def use_reserve(self) -> None:
        """Before something that must be written: give the reserve up if nothing else is left."""
        if self.free_bytes < SCARCE_BYTES:
            self.give_up_reserve()

    def give_up_reserve(self) -> None:
        self._reserve.unlink(missing_ok=True)

    def renew_reserve(self) -> None:
        """Make the reserve again once there is room for more than that."""
        if self._reserve.exists() or self.free_bytes < SPARE_BYTES + 2 * RESERVE_BYTES:
            return
        try:
            with new_file(self._reserve) as file:
                os.posix_fallocate(file.fileno(), 0, RESERVE_BYTES)
        except OSError:  # somebody else took the room meanwhile: another time
            self.give_up_reserve()


JSON_COLUMNS = ("architecture", "columns", "data", "report", "roles", "spec")


def _read(name: str, value: Any) -> Any:
    """A value of a column."""
    if name in JSON_COLUMNS:
        value = json.loads(value)
    if name == "columns" and value is not None:
        return tuple(value)
    return bool(value) if name in ("complete", "by_rows") else value


def _write(name: str, value: Any) -> Any:
    return json.dumps(value) if name in JSON_COLUMNS else value


class Database:
    """Tables of records. Any thread may use it."""

    def __init__(self, folder: Path) -> None:
        self.folder = private_folder(folder)
        folder.chmod(0o700)
        self.room = Room(folder)
        self._lock = threading.RLock()
        path = folder / FILE
        with suppress(FileExistsError):
            new_file(path).close()  # private before SQLite writes to it; its log and index get the same mode
        path.chmod(0o600)
        self.room.use_reserve()
        self._database = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
        self._database.row_factory = sqlite3.Row
        with self._full_disk_named():
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.execute("PRAGMA synchronous = FULL")
            self._database.execute("PRAGMA secure_delete = ON")
            self._database.execute(f"PRAGMA wal_autocheckpoint = {LOG_PAGES}")
            self._database.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
            migrate(self._database)
        self._seen_version = 0
        self._log_to_empty = True
        """Whether the write-ahead log may hold what was deleted, now or before a crash."""
        self.changes = 0
        """Grows whenever something changes that the other party should hear of."""

    def close(self) -> None:
        with self._lock:
            self._database.close()

    def poll(self) -> None:
        """Notice what another process changed: an operator's approval. Empty the log, where that was not possible."""
        self._empty_log()
        (version,) = self._rows("PRAGMA data_version")[0]
        if version != self._seen_version:
            self._seen_version = version
            self.changes += 1

    @contextmanager
    def _changing(self, heard: bool = True, needed: bool = False) -> Iterator[sqlite3.Connection]:
        """One transaction. One that is needed, for the ledger or to free room, may use what is kept for that."""
        with self._lock, self._full_disk_named():
            if needed:
                self.room.use_reserve()
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield self._database
                self._database.execute("COMMIT")
            except BaseException:
                if self._database.in_transaction:  # a full disk has ended it already
                    self._database.execute("ROLLBACK")
                raise
            self.changes += heard
            self._empty_log()

    def _empty_log(self) -> None:
        """Take what was deleted out of the write-ahead log, unless somebody reads there or the disk is full: then
        later."""
        with self._lock, suppress(sqlite3.OperationalError):
            if self._log_to_empty:
                self._database.execute("PRAGMA busy_timeout = 0")
                try:
                    (busy, _, _) = self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
                    self._log_to_empty = bool(busy)
                finally:
                    self._database.execute(f"PRAGMA busy_timeout = {round(1000 * BUSY_S)}")

    @contextmanager
    def _full_disk_named(self) -> Iterator[None]:
        try:
            with full_disk_named(self.folder / FILE):
                yield
        except sqlite3.OperationalError as error:
            kind = error.sqlite_errorcode & 0xFF
            # Where its shared index cannot grow, SQLite speaks of an I/O error, or cannot open it.
            lacking = kind in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN) and self.room.free_bytes < SCARCE_BYTES
            if kind != sqlite3.SQLITE_FULL and not lacking:
                raise
            self.room.give_up_reserve()  # if it was not enough as it is, the next attempt has that much more
            raise StorageFull(f"the disk of {self.folder} is full: free some room there, then try again") from error

    def _rows(self, query: str, *values: Any) -> list[sqlite3.Row]:
        with self._lock:
            return self._database.execute(query, values).fetchall()

    def _records(
        self, kind: type[T], table: str, order: str = "created", without: Sequence[str] = (), **wanted: Any
    ) -> list[T]:
        """The rows of a table, as dataclasses whose fields are columns; some may be left as they are by default."""
        where = " AND ".join(f"{name} = ?" for name in wanted) or "1"
        names = [item.name for item in fields(kind) if item.name not in without]  # type: ignore[arg-type]
        found = self._rows(f"SELECT {', '.join(names)} FROM {table} WHERE {where} ORDER BY {order}", *wanted.values())
        return [kind(**{name: _read(name, row[name]) for name in names}) for row in found]

    def _record(self, kind: type[T], table: str, missing: str, **wanted: Any) -> T:
        """The one row that is wanted; DataMissing with this message without it."""
        for found in self._records(kind, table, **wanted):
            return found
        raise DataMissing(missing)

    @staticmethod
    def _insert(database: sqlite3.Connection, table: str, known: str = "", **values: Any) -> None:
        """Add a row; one that is there already is replaced, or refused with the message that says it is known."""
        names, marks = ", ".join(values), ", ".join("?" * len(values))
        command = f"INSERT {'' if known else 'OR REPLACE '}INTO {table} ({names}) VALUES ({marks})"
        try:
            database.execute(command, [_write(name, value) for name, value in values.items()])
        except sqlite3.IntegrityError:
            raise InputError(known) from None

    @staticmethod
    def _update(database: sqlite3.Connection, table: str, id: str, **changes: Any) -> None:
        setting = ", ".join(f"{name} = ?" for name in changes)
        values = [_write(name, value) for name, value in changes.items()]
        database.execute(f"UPDATE {table} SET {setting} WHERE id = ?", [*values, id])

    def _delete(self, database: sqlite3.Connection, table: str, **wanted: Any) -> int:
        """Drop rows; returns how many there were."""
        where = " AND ".join(f"{name} = ?" for name in wanted)
        dropped = database.execute(f"DELETE FROM {table} WHERE {where}", list(wanted.values())).rowcount
        self._log_to_empty |= dropped > 0
        return dropped


def read_beside(folder: Path) -> sqlite3.Connection:
    """The database of a party that may be running: what is read there is not changed."""
    return sqlite3.connect(f"{(folder / FILE).resolve().as_uri()}?mode=ro", uri=True, timeout=BUSY_S)
