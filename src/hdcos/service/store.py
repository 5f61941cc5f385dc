"""What a party keeps on disk: a database and one file of shares per model, data set and job.

state/hdcos.sqlite                               tables of `schema`, write-ahead log
state/models/NAME/VERSION.safetensors            this party's half of a model
state/datasets/NAME/VERSION.safetensors          this party's half of a data set; `.part` until it is complete
state/jobs/ID/                                   the initial parameters, and checkpoints, until the job ends
state/reveals/ID.safetensors                     this party's refreshed half, released by both

Security  every file is one party's half: alone it says nothing. Files are readable by their owner only.

A version is drawn by whoever makes the thing and is the same at both parties, so that halves of different sharings are
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
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_bytes

from hdcos.errors import CheckpointMismatch, DataMissing, InputError, PolicyRefused
from hdcos.nn.columns import Names
from hdcos.ring import Array
from hdcos.serve.files import sync_folder, write_whole
from hdcos.service.schema import migrate

BUSY_S = 10.0
ENDED = ("done", "failed", "cancelled")
"""States of jobs that nobody will go on with."""
MOST_MODELS, MOST_JOBS = 64, 16
"""Of one client."""
MOST_AUDITED = 1_000_000
"""Older records are dropped."""


@dataclass(frozen=True)
class StoredModel:
    name: str
    version: str
    architecture: Any
    phase_bits: int
    owner: str
    created: float


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
    cancelled: bool
    report: dict[str, Any]
    """What it cost so far, and how long its last epochs took."""
    version: str
    """Of the model that it made."""

    @property
    def interim(self) -> str:
        """The name of its model as it is after each epoch, for whoever watches it."""
        return f"job-{self.id}"


@dataclass(frozen=True)
class StoredReveal:
    id: str
    model: str
    version: str
    owner: str
    state: str


class Store:
    """The state of one party. Any thread may use it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = threading.RLock()
        self._database = sqlite3.connect(
            folder / "hdcos.sqlite", timeout=BUSY_S, isolation_level=None, check_same_thread=False
        )
        os.chmod(folder / "hdcos.sqlite", 0o600)
        self._database.row_factory = sqlite3.Row
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = FULL")
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
    def _changing(self, heard: bool = True) -> Iterator[sqlite3.Connection]:
        """One transaction."""
        with self._lock:
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield self._database
            except BaseException:
                self._database.execute("ROLLBACK")
                raise
            self._database.execute("COMMIT")
            self.changes += heard

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
        with self._changing(heard=False) as database:
            try:
                database.execute(
                    "INSERT INTO tokens VALUES (?, ?, ?, ?)", (name, hashed, json.dumps(list(roles)), time.time())
                )
            except sqlite3.IntegrityError:
                raise InputError(f"a client named {name!r}, or this token, is known already: revoke it first") from None

    def revoke(self, name: str) -> None:
        with self._changing(heard=False) as database:
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
        with self._changing() as database:
            known = self.models(name)
            if any(model.owner != owner for model in known):
                raise PolicyRefused(f"a model named {name!r} belongs to another client: choose another name")
            if any(model.version == version for model in known):
                raise InputError(f"version {version} of {name} is here already: draw a new one")
            if name not in {m.name for m in self.models()} and self._owned("models", owner) >= most:
                raise PolicyRefused(f"{owner} has {most} models: forget some first")
            content = to_bytes(dict(words), {"format": "hdcos-model-half", "version": "1"})
            write_whole(self._path("models", name, version), content)
            database.execute(
                "INSERT INTO models VALUES (?, ?, ?, ?, ?, ?)",
                (name, version, json.dumps(architecture), phase_bits, owner, time.time()),
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
        with self._changing() as database:
            for version in gone:
                database.execute("DELETE FROM models WHERE name = ? AND version = ?", (name, version))
        for version in gone:
            self._path("models", name, version).unlink(missing_ok=True)

    # ---- data sets

    def begin_dataset(self, dataset: StoredDataset, most_bytes: float) -> None:
        """Make room for an upload. The file is a safetensors file from its first byte on: its header comes first."""
        with self._changing(heard=False) as database:
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
            with open(self._part(dataset), "wb") as file:
                file.write(_header(dataset))
            os.chmod(self._part(dataset), 0o600)

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
            with open(self._part(dataset), "r+b") as file:
                file.seek(len(_header(dataset)) + offset)
                file.write(content)
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
        with self._changing() as database:
            database.execute("DELETE FROM datasets WHERE name = ?", (name,))
            database.execute("DELETE FROM grants WHERE dataset = ?", (name,))
        for dataset in gone:
            self._part(dataset).unlink(missing_ok=True)
            self._path("datasets", name, dataset.version).unlink(missing_ok=True)

    # ---- jobs

    def keep_job(self, job: str, spec: Mapping[str, Any], owner: str, words: Mapping[str, Array]) -> None:
        with self._changing() as database:
            if self._rows("SELECT id FROM jobs WHERE id = ?", job):
                raise InputError(f"a job with the id {job} was submitted before")
            active = self._rows("SELECT 1 FROM jobs WHERE owner = ? AND state IN ('waiting', 'running')", owner)
            if len(active) >= MOST_JOBS:
                raise PolicyRefused(f"{owner} has {MOST_JOBS} jobs that have not ended: wait for them, or cancel some")
            self._folder("jobs", job)
            write_whole(self.job_folder(job) / "initial.safetensors", to_bytes(dict(words)))
            database.execute(
                "INSERT INTO jobs VALUES (?, ?, '[]', ?, 'waiting', 0, '', 0, ?, '{}', '')",
                (job, json.dumps(spec), owner, time.time()),
            )

    def fix_data(self, job: str, versions: list[list[str]]) -> None:
        """Note which versions of its data sets a job was begun with: it goes on with these or not at all."""
        with self._changing(heard=False) as database:
            database.execute("UPDATE jobs SET data = ? WHERE id = ?", (json.dumps(versions), job))

    def note_report(self, job: str, report: Mapping[str, Any]) -> None:
        with self._changing(heard=False) as database:
            database.execute("UPDATE jobs SET report = ? WHERE id = ?", (json.dumps(report), job))

    def note_version(self, job: str, version: str) -> None:
        """The model that a job made."""
        with self._changing(heard=False) as database:
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
        with self._changing() as database:
            database.execute("UPDATE jobs SET state = ?, step = ?, error = ? WHERE id = ?", (state, step, error, job))
        if state in ENDED:
            self._drop_shares(self.job(job))

    def _drop_shares(self, job: StoredJob) -> None:
        """Nobody goes on with a job that ended: its parameters and checkpoints go, its ledger of material stays."""
        for file in self.job_folder(job.id).rglob("*.safetensors"):
            file.unlink(missing_ok=True)
        if self.models(job.interim):
            self.forget_model(job.interim)

    def cancel_job(self, job: str) -> None:
        with self._changing() as database:
            database.execute("UPDATE jobs SET cancelled = 1 WHERE id = ?", (job,))

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

    # ---- ledger and audit

    def reserve(self, scope: str, first: int, count: int) -> None:
        """Note that executions are about to be used: on disk before the first of them is."""
        with self._changing(heard=False) as database:
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
        with self._changing(heard=False) as database:
            database.executemany(
                "INSERT INTO audit (at, actor, action, target, status, detail) VALUES (?, ?, ?, ?, ?, ?)", records
            )
            database.execute("DELETE FROM audit WHERE id <= (SELECT max(id) FROM audit) - ?", (MOST_AUDITED,))

    def audited(self, limit: int) -> list[dict[str, Any]]:
        return [dict(row) for row in self._rows("SELECT * FROM audit ORDER BY id DESC LIMIT ?", limit)]

    # ---- files

    def _folder(self, *names: str) -> Path:
        place = self.folder.joinpath(*names)
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        return place

    def _path(self, kind: str, name: str, version: str) -> Path:
        return self._folder(kind, name) / f"{version}.safetensors"

    def _part(self, dataset: StoredDataset) -> Path:
        return self._folder("datasets", dataset.name) / f"{dataset.version}.part"


def _names(text: str) -> Names | None:
    names = json.loads(text)
    return None if names is None else tuple(names)


def _job(row: sqlite3.Row) -> StoredJob:
    return StoredJob(
        row["id"],
        json.loads(row["spec"]),
        json.loads(row["data"]),
        row["owner"],
        row["state"],
        row["step"],
        row["error"],
        bool(row["cancelled"]),
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
