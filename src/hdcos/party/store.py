"""What a party keeps on disk: a database and one file of shares per model, data set and job.

state/hdcos.sqlite                               tables of `schema`, write-ahead log
state/models/NAME/VERSION.safetensors            this party's share of a model
state/datasets/NAME/VERSION.safetensors          this party's share of a data set; `.part` until it is complete
state/jobs/ID/                                   the initial parameters, and checkpoints, until the job ends
state/reveals/ID.safetensors                     this party's refreshed share, released by both
state/reserve                                    takes up room for the ledger, see `room`

Security  every file is one party's share: alone it says nothing. Folders and files are their owner's only, whatever the
          umask.

A version is drawn by the maker of the thing and is the same at both parties, so that shares of different sharings are
never put together. A file is complete before the row that names it is written, and an older version stays until both
parties are known to hold the newer one: whenever a process dies, some version is whole at both.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_bytes

from hdcos.errors import CheckpointMismatch, DataMissing, InputError, PolicyRefused, StorageFull
from hdcos.files import full_disk_named, new_file, private_folder, sync_folder, write_whole
from hdcos.nn.columns import Names
from hdcos.party.room import SCARCE_BYTES, Room
from hdcos.party.schema import migrate
from hdcos.ring import Array
from hdcos.secure.compile import ARITHMETIC

BUSY_S = 10.0
ENDED = ("done", "failed", "cancelled")
DISCARD, KEEP = 1, 2
"""What becomes of the model of a job that is cancelled."""
"""States of jobs that nobody will go on with."""
MOST_MODELS, MOST_JOBS = 64, 16
"""Of one client."""
MOST_AUDITED = 1_000_000
"""Older records are dropped."""
UPLOAD_S, SILENT_S = 24 * 3600.0, 600.0
"""An upload to which nothing came for so long is forgotten: in any case, and where its room is needed."""
LOG_PAGES = 128
"""Of the write-ahead log, before it goes into the database: half a megabyte, so that it fits into the reserve."""
CACHE_KIB = 256
"""Of the database in memory: the tables that are asked again and again are small, those that grow are asked rarely."""


@dataclass(frozen=True)
class StoredModel:
    name: str
    version: str
    architecture: Any
    phase_bits: int
    owner: str
    created: float
    arithmetic: int
    """Whose scales its shares have: see `secure.compile`."""


@dataclass(frozen=True)
class StoredDataset:
    name: str
    version: str
    rows: int
    features: int
    outputs: int
    complete: bool
    owner: str
    columns: Names | None = None

    @property
    def words(self) -> int:
        return self.rows * (self.features + self.outputs)


@dataclass(frozen=True)
class StoredJob:
    id: str
    spec: dict[str, Any]
    data: list[list[str]]
    """Name and version of each data set, once it was begun."""
    owner: str
    state: str
    step: int
    error: str
    cancelled: int
    """Whether it is to be ended: 0, DISCARD or KEEP."""
    report: dict[str, Any]
    """What it cost so far, and how long its last epochs took."""
    version: str
    """Of the model that it made."""

    @property
    def interim(self) -> str:
        """The name of its model as it is after each epoch, for clients that watch it."""
        return f"job-{self.id}"


@dataclass(frozen=True)
class StoredReveal:
    id: str
    model: str
    version: str
    owner: str
    state: str


@dataclass(frozen=True)
class Failure:
    """What is held against a version of a model that was to be loaded ("load"), or against a job ("job")."""

    what: str
    name: str
    version: str
    lost: int = 0
    """Times in a row that the process or the session ended meanwhile."""
    why: str = ""
    """Why it is not tried again, if it is not."""


class Store:
    """The state of one party. Any thread may use it."""

    def __init__(self, folder: Path) -> None:
        self.folder = private_folder(folder)
        folder.chmod(0o700)
        self.room = Room(folder)
        self._lock = threading.RLock()
        path = folder / "hdcos.sqlite"
        with suppress(FileExistsError):
            new_file(path).close()  # private before SQLite writes to it; its log and index get the same mode
        path.chmod(0o600)
        self.room.use_reserve()
        self._database = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
        self._database.row_factory = sqlite3.Row
        with self._full_disk_named():
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.execute("PRAGMA synchronous = FULL")
            self._database.execute(f"PRAGMA wal_autocheckpoint = {LOG_PAGES}")
            self._database.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
            migrate(self._database)
        self._seen_version = 0
        self.changes = 0
        """Grows whenever something changes that the other party should hear of."""
        for job in self.jobs():
            if job.state in ENDED:  # if the process died before it could
                self._drop_shares(job)

    def close(self) -> None:
        with self._lock:
            self._database.close()

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

    @contextmanager
    def _full_disk_named(self) -> Iterator[None]:
        try:
            with full_disk_named(self.folder / "hdcos.sqlite"):
                yield
        except sqlite3.OperationalError as error:
            kind = error.sqlite_errorcode & 0xFF
            # Where its shared index cannot grow, SQLite speaks of an I/O error, or cannot open it.
            lacking = kind in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN) and self.room.free_bytes < SCARCE_BYTES
            if kind != sqlite3.SQLITE_FULL and not lacking:
                raise
            self.room.give_up_reserve()  # if it was not enough as it is, the next attempt has that much more
            raise StorageFull(f"the disk of {self.folder} is full: free some room there, then try again") from error

    @staticmethod
    @contextmanager
    def _making() -> Iterator[list[Path]]:
        """Files that are named here are gone again if what follows fails."""
        made: list[Path] = []
        try:
            yield made
        except BaseException:
            for path in made:
                path.unlink(missing_ok=True)
            raise

    def tidy(self) -> None:
        """What has to be looked after now and then: uploads that broke off, and the reserve."""
        self._forget_silent(UPLOAD_S)
        self.room.renew_reserve()

    def sweep(self) -> None:
        """At the start of a party: what a process that died was writing, and what is not as private as it should be."""
        known = {self._part(dataset) for dataset in self.datasets() if not dataset.complete}
        for path in [*self.folder.rglob(".*.tmp"), *self.folder.rglob("*.part")]:
            if path not in known:
                path.unlink(missing_ok=True)
        for path in self.folder.rglob("*"):
            if not path.is_symlink() and path.stat().st_mode & 0o077:
                path.chmod(0o700 if path.is_dir() else 0o600)
        self.room.renew_reserve()  # before the first client comes

    def _rows(self, query: str, *values: Any) -> list[sqlite3.Row]:
        with self._lock:
            return self._database.execute(query, values).fetchall()

    def poll(self) -> None:
        """Notice what another process changed: an operator's approval."""
        (version,) = self._rows("PRAGMA data_version")[0]
        if version != self._seen_version:
            self._seen_version = version
            self.changes += 1

    # ---- tokens

    def allow(self, name: str, hashed: str, roles: Iterable[str]) -> None:
        with self._changing(heard=False, needed=True) as database:
            try:
                database.execute(
                    "INSERT INTO tokens VALUES (?, ?, ?, ?)", (name, hashed, json.dumps(list(roles)), time.time())
                )
            except sqlite3.IntegrityError:
                raise InputError(f"a client named {name!r}, or this token, is known already: revoke it first") from None

    def revoke(self, name: str) -> None:
        with self._changing(heard=False, needed=True) as database:
            if not database.execute("DELETE FROM tokens WHERE name = ?", (name,)).rowcount:
                raise DataMissing(f"no client is named {name!r}")

    def clients(self) -> list[tuple[str, str, tuple[str, ...]]]:
        """Name, token's hash and roles of each client."""
        found = self._rows("SELECT * FROM tokens ORDER BY name")
        return [(row["name"], row["hash"], tuple(json.loads(row["roles"]))) for row in found]

    # ---- models

    def keep_model(
        self,
        name: str,
        version: str,
        architecture: Any,
        phase_bits: int,
        owner: str,
        words: Mapping[str, Array],
        most: float = MOST_MODELS,
    ) -> None:
        """Keep a new version. A name belongs to the client that used it first."""
        content = to_bytes(dict(words), {"format": "hdcos-model-half", "version": "1"})
        self._require(len(content), f"this party's share of {name}")
        with self._making() as made, self._changing() as database:
            known = self.models(name)
            if any(model.owner != owner for model in known):
                raise PolicyRefused(f"a model named {name!r} belongs to another client: choose another name")
            if any(model.version == version for model in known):
                raise InputError(f"version {version} of {name} is here already: draw a new one")
            if name not in {m.name for m in self.models()} and self._owned("models", owner) >= most:
                raise PolicyRefused(f"{owner} has {most} models: forget some first")
            made.append(self._path("models", name, version))
            write_whole(made[0], content)
            database.execute(
                "INSERT INTO models VALUES (?, ?, ?, ?, ?, ?, ?)",
                (name, version, json.dumps(architecture), phase_bits, owner, time.time(), ARITHMETIC),
            )

    def _owned(self, table: str, owner: str) -> int:
        """How many names a client uses."""
        return int(self._rows(f"SELECT count(DISTINCT name) FROM {table} WHERE owner = ?", owner)[0][0])

    def models(self, name: str | None = None) -> list[StoredModel]:
        """All versions, newest last."""
        where = "" if name is None else "WHERE name = ?"
        found = self._rows(f"SELECT * FROM models {where} ORDER BY created", *([] if name is None else [name]))
        return [StoredModel(**{**dict(row), "architecture": json.loads(row["architecture"])}) for row in found]

    def model_words(self, name: str, version: str) -> dict[str, Array]:
        return _read(self._path("models", name, version))

    def forget_model(self, name: str, versions: Iterable[str] | None = None) -> None:
        """Forget these versions of a model, or all."""
        gone = {model.version for model in self.models(name)} if versions is None else set(versions)
        with self._changing(needed=True) as database:
            for version in gone:
                database.execute("DELETE FROM models WHERE name = ? AND version = ?", (name, version))
                database.execute("DELETE FROM failures WHERE name = ? AND version = ?", (name, version))
        for version in gone:
            self._path("models", name, version).unlink(missing_ok=True)

    # ---- data sets

    def begin_dataset(self, dataset: StoredDataset, most_bytes: float) -> None:
        """Make room for an upload. The file is a safetensors file from its first byte on: its header comes first."""
        self._require(8 * dataset.words, f"this party's share of {dataset.name}")
        with self._making() as made, self._changing(heard=False) as database:
            if any(known.owner != dataset.owner for known in self.datasets(dataset.name)):
                raise PolicyRefused(f"a data set named {dataset.name!r} belongs to another client: choose another name")
            held = sum(8 * known.words for known in self.datasets() if known.owner == dataset.owner)
            if held + 8 * dataset.words > most_bytes:
                raise PolicyRefused(f"{dataset.owner} may keep {most_bytes / 1e9:g} GB of data here: forget some first")
            try:
                database.execute(
                    "INSERT INTO datasets VALUES (?, ?, ?, ?, ?, 0, ?, ?, ?)",
                    (
                        *(dataset.name, dataset.version, dataset.rows, dataset.features, dataset.outputs),
                        *(dataset.owner, time.time(), json.dumps(dataset.columns)),
                    ),
                )
            except sqlite3.IntegrityError:
                raise InputError(f"an upload of {dataset.name} with this version was begun before") from None
            made.append(self._part(dataset))
            with new_file(made[0]) as file:
                file.write(_header(dataset))

    def received(self, dataset: StoredDataset) -> int:
        """Bytes of an upload that are here."""
        if dataset.complete:
            return 8 * dataset.words
        for path in (self._path("datasets", dataset.name, dataset.version), self._part(dataset)):
            if path.exists():  # whole, if the process died before it could say so
                return path.stat().st_size - len(_header(dataset))
        return 0

    def add_bytes(self, dataset: StoredDataset, offset: int, content: bytes) -> int:
        """The next bytes of an upload; those that are here already may be sent again. Returns how many are here."""
        with self._lock:
            here = self.received(dataset)
            if dataset.complete or offset > here or not self._part(dataset).exists():
                raise InputError(f"{here} bytes of {dataset.name} are here: go on from there, not from {offset}")
            if offset + len(content) > 8 * dataset.words:
                raise InputError(f"{dataset.name} has {8 * dataset.words} bytes, these would end later")
            part, start = self._part(dataset), len(_header(dataset))
            os.utime(part)  # it has not broken off
            self._require(offset + len(content) - here, f"a piece of {dataset.name}")
            try:
                with full_disk_named(part), open(part, "r+b") as file:
                    file.seek(start + offset)
                    file.write(content)
            except StorageFull:
                os.truncate(part, start + here)  # a piece is here or not
                raise
            return self.received(dataset)

    def complete_dataset(self, dataset: StoredDataset, digest: str) -> None:
        """Check what arrived against its hash, and keep it."""
        if dataset.complete:
            return
        if self.received(dataset) != 8 * dataset.words:
            raise InputError(f"{self.received(dataset)} of {8 * dataset.words} bytes of {dataset.name} are here")
        part, whole = self._part(dataset), self._path("datasets", dataset.name, dataset.version)
        with open(whole if whole.exists() else part, "r+b") as file:
            file.seek(len(_header(dataset)))
            if _sha256(file) != digest:
                raise InputError(f"what arrived of {dataset.name} has another hash: delete it and upload it again")
            os.fsync(file.fileno())
        if not whole.exists():
            part.replace(whole)
            sync_folder(part.parent)
        with self._changing() as database:
            database.execute(
                "UPDATE datasets SET complete = 1 WHERE name = ? AND version = ?", (dataset.name, dataset.version)
            )

    def datasets(self, name: str | None = None) -> list[StoredDataset]:
        where = "" if name is None else "WHERE name = ?"
        found = self._rows(f"SELECT * FROM datasets {where} ORDER BY created", *([] if name is None else [name]))
        known = ("name", "version", "rows", "features", "outputs", "owner")
        return [
            StoredDataset(
                complete=bool(row["complete"]), columns=_names(row["columns"]), **{key: row[key] for key in known}
            )
            for row in found
        ]

    def dataset_words(self, name: str, version: str) -> dict[str, Array]:
        return _read(self._path("datasets", name, version))

    def grant(self, name: str, client: str) -> None:
        """Let another client train on a data set."""
        with self._changing() as database:
            database.execute("INSERT OR IGNORE INTO grants VALUES (?, ?)", (name, client))

    def may_train(self, name: str, client: str) -> bool:
        """Whether a client may train on a data set: it is its own, or its owner said so."""
        owners = {dataset.owner for dataset in self.datasets(name)}
        return owners == {client} or bool(
            owners and self._rows("SELECT 1 FROM grants WHERE dataset = ? AND client = ?", name, client)
        )

    def forget_dataset(self, name: str) -> None:
        gone = self.datasets(name)
        with self._changing(needed=True) as database:
            database.execute("DELETE FROM datasets WHERE name = ?", (name,))
            database.execute("DELETE FROM grants WHERE dataset = ?", (name,))
        for dataset in gone:
            self._part(dataset).unlink(missing_ok=True)
            self._path("datasets", name, dataset.version).unlink(missing_ok=True)

    def forget_upload(self, dataset: StoredDataset) -> None:
        """Forget one version that is not complete; others of its name stay."""
        with self._changing(heard=False, needed=True) as database:
            gone = database.execute(
                "DELETE FROM datasets WHERE name = ? AND version = ? AND complete = 0", (dataset.name, dataset.version)
            ).rowcount
        if not gone:
            raise InputError(f"this upload of {dataset.name} is complete: forget the data set instead")
        self._part(dataset).unlink(missing_ok=True)

    def _forget_silent(self, silent_s: float) -> None:
        """Forget uploads to which nothing came for so long."""
        limit = time.time() - silent_s
        for dataset in [known for known in self.datasets() if not known.complete]:
            part, whole = self._part(dataset), self._path("datasets", dataset.name, dataset.version)
            if not whole.exists() and (not part.exists() or part.stat().st_mtime < limit):
                self.forget_upload(dataset)

    def _require(self, size: int, what: str) -> None:
        """StorageFull unless there is room; uploads that broke off give way."""
        try:
            self.room.require(size, what)
        except StorageFull:
            self._forget_silent(SILENT_S)
            self.room.require(size, what)

    # ---- jobs

    def keep_job(self, job: str, spec: Mapping[str, Any], owner: str, words: Mapping[str, Array]) -> None:
        content = to_bytes(dict(words))
        self._require(len(content), "this party's share of the first parameters")
        with self._making() as made, self._changing() as database:
            if self._rows("SELECT id FROM jobs WHERE id = ?", job):
                raise InputError(f"a job with the id {job} was submitted before")
            active = self._rows("SELECT 1 FROM jobs WHERE owner = ? AND state IN ('waiting', 'running')", owner)
            if len(active) >= MOST_JOBS:
                raise PolicyRefused(f"{owner} has {MOST_JOBS} jobs that have not ended: wait for them, or cancel some")
            made.append(self._folder("jobs", job) / "initial.safetensors")
            write_whole(made[0], content)
            database.execute(
                "INSERT INTO jobs VALUES (?, ?, '[]', ?, 'waiting', 0, '', 0, ?, '{}', '')",
                (job, json.dumps(spec), owner, time.time()),
            )

    def fix_data(self, job: str, versions: list[list[str]]) -> None:
        """Note which versions of its data sets a job was begun with: it goes on with these or not at all."""
        with self._changing(heard=False, needed=True) as database:
            database.execute("UPDATE jobs SET data = ? WHERE id = ?", (json.dumps(versions), job))

    def note_report(self, job: str, report: Mapping[str, Any]) -> None:
        with self._changing(heard=False, needed=True) as database:
            database.execute("UPDATE jobs SET report = ? WHERE id = ?", (json.dumps(report), job))

    def note_version(self, job: str, version: str) -> None:
        """The model that a job made."""
        with self._changing(heard=False, needed=True) as database:
            database.execute("UPDATE jobs SET version = ? WHERE id = ?", (version, job))

    def job_words(self, job: str) -> dict[str, Array]:
        return _read(self.job_folder(job) / "initial.safetensors")

    def job_folder(self, job: str) -> Path:
        return self.folder / "jobs" / job

    def jobs(self) -> list[StoredJob]:
        found = self._rows("SELECT * FROM jobs ORDER BY created")
        return [_job(row) for row in found]

    def job(self, job: str) -> StoredJob:
        found = self._rows("SELECT * FROM jobs WHERE id = ?", job)
        if not found:
            raise DataMissing(f"no job has the id {job}")
        return _job(found[0])

    def note_job(self, job: str, state: str, step: int, error: str = "") -> None:
        with self._changing(needed=True) as database:
            database.execute("UPDATE jobs SET state = ?, step = ?, error = ? WHERE id = ?", (state, step, error, job))
        if state in ENDED:
            self._drop_shares(self.job(job))
            self.forgive("job", job)  # the job itself says how it ended

    def _drop_shares(self, job: StoredJob) -> None:
        """Nobody goes on with a job that ended: its parameters and checkpoints go, its ledger of material stays."""
        for file in self.job_folder(job.id).rglob("*.safetensors"):
            file.unlink(missing_ok=True)
        if self.models(job.interim):
            self.forget_model(job.interim)

    def cancel_job(self, job: str, keep: bool) -> None:
        """Note that a job is to be ended; the model as it is then is kept, or nothing is."""
        with self._changing(needed=True) as database:
            database.execute("UPDATE jobs SET cancelled = ? WHERE id = ?", (KEEP if keep else DISCARD, job))

    # ---- reveals

    def keep_reveal(self, reveal: StoredReveal) -> None:
        with self._changing() as database:
            try:
                database.execute(
                    "INSERT INTO reveals VALUES (?, ?, ?, ?, ?, ?)",
                    (reveal.id, reveal.model, reveal.version, reveal.owner, reveal.state, time.time()),
                )
            except sqlite3.IntegrityError:
                raise InputError(f"a reveal with the id {reveal.id} was asked for before") from None

    def reveals(self) -> list[StoredReveal]:
        known = ("id", "model", "version", "owner", "state")
        return [StoredReveal(**{key: row[key] for key in known}) for row in self._rows("SELECT * FROM reveals")]

    def reveal(self, reveal: str) -> StoredReveal:
        for known in self.reveals():
            if known.id == reveal:
                return known
        raise DataMissing(f"no reveal has the id {reveal}")

    def decide_reveal(self, reveal: str, state: str) -> None:
        """What the operator, or both parties, decided: what waits is approved or refused, what is approved released."""
        before = "approved" if state == "released" else "waiting"
        now = self.reveal(reveal).state
        with self._changing() as database:
            changed = database.execute(
                "UPDATE reveals SET state = ? WHERE id = ? AND state = ?", (state, reveal, before)
            ).rowcount
        if not changed:
            raise InputError(f"reveal {reveal} is {now} already")

    def release(self, reveal: str, words: Mapping[str, Array]) -> None:
        self._folder("reveals")
        write_whole(self.folder / "reveals" / f"{reveal}.safetensors", to_bytes(dict(words)))
        self.decide_reveal(reveal, "released")

    def released_words(self, reveal: str) -> dict[str, Array]:
        return _read(self.folder / "reveals" / f"{reveal}.safetensors")

    # ---- queries and failures

    def set_aside(self, model: str, rows: int, most: int = 0) -> int:
        """Count up to this many more rows of a model as answered, while there are fewer than `most`; returns how many.

        A negative number of rows was counted too much.
        """
        with self._changing(heard=False, needed=True) as database:
            before = self.queries(model)
            granted = min(rows, max(0, most - before)) if rows > 0 else max(rows, -before)
            database.execute(
                "INSERT INTO queries VALUES (?, ?, ?) ON CONFLICT (model) DO UPDATE "
                "SET set_aside = excluded.set_aside, allowed = coalesce(nullif(excluded.allowed, 0), queries.allowed)",
                (model, before + granted, most),
            )
            return granted

    def queries(self, model: str) -> int:
        """Rows of a model that are counted as answered."""
        found = self._rows("SELECT set_aside FROM queries WHERE model = ?", model)
        return int(found[0][0]) if found else 0

    def counted_as(self, model: str) -> str:
        """The model whose count its answers belong to: what a job shows after an epoch counts for the job's model."""
        found = self._rows("SELECT spec FROM jobs WHERE 'job-' || id = ?", model)
        return str(json.loads(found[0]["spec"])["model"]) if found else model

    def all_queries(self) -> dict[str, tuple[int, int]]:
        """Rows of each model that are counted, and how many were allowed when that was looked at last."""
        found = self._rows("SELECT * FROM queries ORDER BY model")
        return {row["model"]: (row["set_aside"], row["allowed"]) for row in found}

    def forget_queries(self, model: str) -> None:
        """The operator allows as many again."""
        with self._changing(heard=False, needed=True) as database:
            if not database.execute("DELETE FROM queries WHERE model = ?", (model,)).rowcount:
                raise DataMissing(f"no row of a model named {model!r} was answered here")

    def failure(self, what: str, name: str, version: str) -> Failure:
        """What is held against loading a version of a model, or a job."""
        for known in self.failures():
            if (known.what, known.name, known.version) == (what, name, version):
                return known
        return Failure(what, name, version)

    def failures(self) -> list[Failure]:
        keys = ("what", "name", "version", "lost", "why")
        return [Failure(**{key: row[key] for key in keys}) for row in self._rows("SELECT * FROM failures ORDER BY at")]

    def note_failure(self, failure: Failure) -> None:
        """Remember it, on disk, from now on."""
        with self._changing(heard=bool(failure.why), needed=True) as database:
            values = (failure.what, failure.name, failure.version, failure.lost, failure.why, time.time())
            database.execute("INSERT OR REPLACE INTO failures VALUES (?, ?, ?, ?, ?, ?)", values)

    def forgive(self, what: str, name: str, version: str = "") -> int:
        """Hold nothing against a model or job any more; without a version, against none of them."""
        with self._changing(needed=True) as database:
            where, values = "what = ? AND name = ?", [what, name]
            if version:
                where, values = f"{where} AND version = ?", [*values, version]
            return database.execute(f"DELETE FROM failures WHERE {where}", values).rowcount

    # ---- ledger and audit

    def reserve(self, scope: str, first: int, count: int) -> None:
        """Note that executions are about to be used: on disk before the first of them is."""
        with self._changing(heard=False, needed=True) as database:
            database.execute(
                "INSERT INTO ledger (scope, first, count, at) VALUES (?, ?, ?, ?)", (scope, first, count, time.time())
            )

    def reused(self) -> list[str]:
        """What must never happen: executions of a scope that were reserved twice."""
        found, last = [], ("", 0)
        for row in self._rows("SELECT scope, first, count FROM ledger ORDER BY scope, first"):
            if row["scope"] == last[0] and row["first"] < last[1]:
                found.append(f"{row['scope']}: {row['first']}")
            last = (row["scope"], row["first"] + row["count"])
        return found

    def audit(self, records: Iterable[tuple[float, str, str, str, str, str]]) -> None:
        """Who did what: time, actor, action, target, status, detail."""
        with self._changing(heard=False, needed=True) as database:
            database.executemany(
                "INSERT INTO audit (at, actor, action, target, status, detail) VALUES (?, ?, ?, ?, ?, ?)", records
            )
            database.execute("DELETE FROM audit WHERE id <= (SELECT max(id) FROM audit) - ?", (MOST_AUDITED,))

    def audited(self, limit: int) -> list[dict[str, Any]]:
        return [dict(row) for row in self._rows("SELECT * FROM audit ORDER BY id DESC LIMIT ?", limit)]

    # ---- files

    def _folder(self, *names: str) -> Path:
        return private_folder(self.folder.joinpath(*names))

    def _path(self, kind: str, name: str, version: str) -> Path:
        return self._folder(kind, name) / f"{version}.safetensors"

    def _part(self, dataset: StoredDataset) -> Path:
        return self._folder("datasets", dataset.name) / f"{dataset.version}.part"


def _names(text: str) -> Names | None:
    names = json.loads(text)
    return None if names is None else tuple(names)


def recorded_failures(folder: Path) -> list[Failure]:
    """Models that a party gave up, read beside the running party: nothing is changed."""
    if not (folder / "hdcos.sqlite").exists():
        return []
    database = sqlite3.connect(f"file:{folder / 'hdcos.sqlite'}?mode=ro", uri=True, timeout=BUSY_S)
    try:
        found = database.execute(
            "SELECT what, name, version, lost, why FROM failures WHERE what = 'load' AND why != ''"
        )
        return [Failure(*row) for row in found]
    except sqlite3.OperationalError:
        return []  # a state of an older version, which knows no failures
    finally:
        database.close()


def _job(row: sqlite3.Row) -> StoredJob:
    return StoredJob(
        row["id"],
        json.loads(row["spec"]),
        json.loads(row["data"]),
        row["owner"],
        row["state"],
        row["step"],
        row["error"],
        int(row["cancelled"]),
        json.loads(row["report"]),
        row["version"],
    )


def _header(dataset: StoredDataset) -> bytes:
    """The start of the safetensors file of a data set."""
    middle, end = 8 * dataset.rows * dataset.features, 8 * dataset.words
    entries: dict[str, Any] = {
        "x": {"dtype": "U64", "shape": [dataset.rows, dataset.features], "data_offsets": [0, middle]}
    }
    if dataset.outputs:
        entries["targets"] = {"dtype": "U64", "shape": [dataset.rows, dataset.outputs], "data_offsets": [middle, end]}
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _sha256(file: Any) -> str:
    digest = hashlib.sha256()
    while piece := file.read(1 << 20):
        digest.update(piece)
    return digest.hexdigest()


def _read(path: Path) -> dict[str, Array]:
    """All words of a file of shares."""
    try:
        with safe_open(os.fspath(path), framework="np") as file:
            words = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise DataMissing(f"{path} is gone") from None
    except (OSError, SafetensorError) as error:
        raise CheckpointMismatch(f"{path} cannot be read: {error}") from error
    if any(array.dtype != np.uint64 for array in words.values()):
        raise CheckpointMismatch(f"{path} does not hold shares")
    return words
