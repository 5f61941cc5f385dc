"""What a party keeps on disk: a database and one file of shares per model, data set and job.

state/hdcos.sqlite                               tables of `database`, write-ahead log
state/models/NAME/VERSION.safetensors            this party's share of a model
state/datasets/NAME/VERSION.part, .arrow         this party's share of a data set, see `uploads` and `kept_data`
state/jobs/ID/                                   the initial parameters, and checkpoints, until the job ends
state/reveals/ID.safetensors                     this party's refreshed share, released by both, see `kept_reveals`
state/reserve                                    takes up room for the ledger, see `database`

Security  every file is one party's share: alone it says nothing. Folders and files are their owner's only, whatever the
          umask.

A version is drawn by the client that makes the thing and is the same at both parties, so that shares of different
sharings are never put together. A file is complete before the row that names it is written, and an older version stays
until both parties are known to hold the newer one: whenever a process dies, some version is whole at both.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from safetensors.numpy import save as to_bytes

from hdcos.checks import split_owned
from hdcos.errors import CheckpointMismatch, DataMissing, InputError, PolicyRefused, StorageFull
from hdcos.files import private_folder, remove_empty, write_whole
from hdcos.party.checkpoint import Checkpoints, read_words
from hdcos.party.config import Config
from hdcos.party.database import FILE, STATE, read_beside
from hdcos.party.engine import fingerprint
from hdcos.party.kept_reveals import PENDING, KeptReveals
from hdcos.party.kept_reveals import StoredReveal as StoredReveal
from hdcos.party.uploads import StoredDataset as StoredDataset
from hdcos.ring import Array
from hdcos.secure.compile import ARITHMETIC

ENDED = ("done", "failed", "cancelled")
"""States of jobs that nobody will go on with."""
DISCARD, KEEP = 1, 2
"""What becomes of the model of a job that is cancelled."""
MOST_MODELS, MOST_JOBS = 64, 16
"""Of one client: names, and jobs that have not ended."""
MOST_ENDED = 64
"""Jobs of one client that have ended: the last ones."""
MOST_VERSIONS = 32
"""Of one model. Older ones go when both parties hold a newer one: what one party lacks, or cannot load, piles up."""
MOST_COUNTED = 1024
"""Models that are not here any more whose answered rows are still counted: those with most of them."""
MOST_LEDGERS = 1024
"""Ledgers of jobs that were forgotten: the last ones."""
MOST_AUDITED = MOST_RESERVED = 1_000_000
"""Older records are dropped."""
UNFINISHED = f"state NOT IN {ENDED}"


@dataclass(frozen=True)
class StoredToken:
    name: str
    hash: str
    roles: list[str]


@dataclass(frozen=True)
class StoredModel:
    name: str
    version: str
    architecture: Any
    phase_bits: int
    owner: str
    created: float
    arithmetic: int
    """The version of the arithmetic whose scales its shares have."""


def _told(spec: Mapping[str, Any]) -> dict[str, Any]:
    """What is asked of a job again and again, from what it is told to do."""
    said = fingerprint(json.loads(json.dumps(spec))).hex()  # as it is read again
    return {"model": spec.get("model", ""), "epochs": len(spec.get("rates", ())), "said": said}


def interim_name(job: str) -> str:
    """What the model of a job is called as it is after each epoch."""
    return f"job-{job}"


@dataclass(frozen=True)
class StoredJob:
    id: str
    spec: dict[str, Any] = field(default_factory=dict)
    """What it is told to do: nothing is left of that when it has ended."""
    data: list[list[str]] = field(default_factory=list)
    """Name and version of each data set, once it was begun."""
    owner: str = ""
    state: str = "waiting"
    step: int = 0
    error: str = ""
    cancelled: int = 0
    """Whether it is to be ended: 0, DISCARD or KEEP."""
    report: dict[str, Any] = field(default_factory=dict)
    """What it cost so far, and how long its last epochs took."""
    version: str = ""
    """Of the model that it made."""
    spared: int = 0
    """The last attempt that is not held against it: it found no room on a disk."""
    model: str = ""
    """The name of the model that it makes."""
    epochs: int = 0
    said: str = ""
    """What both parties must have been told alike of it."""

    @property
    def interim(self) -> str:
        """The name of its model as it is after each epoch, for clients that watch it."""
        return interim_name(self.id)


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


class Store(KeptReveals):
    """The state of one party. Any thread may use it."""

    def __init__(self, folder: Path, datasets: str = "") -> None:
        super().__init__(folder, datasets)
        self._note_told()
        with suppress(StorageFull):  # then at the next start: what is served needs none of that
            for row in self._rows(f"SELECT id FROM jobs WHERE ended = 0 AND NOT ({UNFINISHED}) ORDER BY created"):
                self._finish(row["id"])  # if the process died before it could

    def tidy(self) -> None:
        """What has to be looked after now and then: uploads that broke off, what has expired, and the reserve."""
        self.forget_silent()
        self.forget_outdated()
        self.forget_undecided()
        self.forgive_gone()
        self.room.renew_reserve()

    def sweep(self) -> None:
        """At the start of a party: what a process that died was writing, and what is not as private as it should be."""
        for path in self.folder.rglob(".*.tmp"):
            path.unlink(missing_ok=True)
        self.sweep_uploads()
        self.forget_outdated()
        for path in self.folder.rglob("*"):
            if not path.is_symlink() and path.stat().st_mode & 0o077:
                path.chmod(0o700 if path.is_dir() else 0o600)
        self.room.renew_reserve()  # before the first client comes

    # ---- tokens

    def allow(self, name: str, hashed: str, roles: Iterable[str]) -> None:
        with self._changing(heard=False, needed=True) as database:
            known = f"a client named {name!r}, or this token, is known already: revoke it first"
            self._insert(database, "tokens", known, name=name, hash=hashed, roles=list(roles), created=time.time())

    def revoke(self, name: str) -> None:
        with self._changing(heard=False, needed=True) as database:
            if not self._delete(database, "tokens", name=name):
                raise DataMissing(f"no client is named {name!r}")

    def clients(self) -> list[tuple[str, str, tuple[str, ...]]]:
        """Name, token's hash and roles of each client."""
        found = self._records(StoredToken, "tokens", "name")
        return [(token.name, token.hash, tuple(token.roles)) for token in found]

    # ---- models

    def keep_model(
        self,
        name: str,
        version: str,
        architecture: Any,
        phase_bits: int,
        owner: str,
        words: Mapping[str, Array],
        interim: bool = False,
    ) -> None:
        """Keep a new version. A name belongs to the client that used it first, and one of a job does not count."""
        content = to_bytes(dict(words), {"format": "hdcos-model-half", "version": "1"})
        self.require(len(content), f"this party's share of {name}")
        if interim:  # nobody goes back to the models after earlier epochs
            self._forget_older(name)
        with self._making() as made, self._changing() as database:
            self.check_owner(name, owner)
            if self.holds_model(name, version):
                raise InputError(f"version {version} of {name} is here already: draw a new one")
            if not interim:
                self._check_names(name, owner)
                self.check_versions(name)
            made.append(self._model_path(name, version))
            private_folder(made[0].parent)
            write_whole(made[0], content)
            stored = StoredModel(name, version, architecture, phase_bits, owner, time.time(), ARITHMETIC)
            self._insert(database, "models", "it is here already", **asdict(stored))

    def _check_names(self, name: str, owner: str) -> None:
        names = {row["name"] for row in self._rows("SELECT DISTINCT name FROM models WHERE owner = ?", owner)}
        if name not in names and len(names) >= MOST_MODELS:
            raise PolicyRefused(f"{owner} has {MOST_MODELS} models: forget some first")

    def check_versions(self, name: str) -> None:
        """PolicyRefused if versions of a model pile up; those that somebody asked to reveal are counted there."""
        asked = f"SELECT version FROM reveals WHERE model = ? AND state IN {PENDING}"
        held = f"SELECT count(*) FROM models WHERE name = ? AND version NOT IN ({asked})"
        if self._rows(held, name, name)[0][0] >= MOST_VERSIONS:
            raise PolicyRefused(
                f"{MOST_VERSIONS} versions of {name} are here: older ones go when both parties hold a newer one, which "
                f"the other party lacks, or it cannot be loaded. Forget it (`hdcos forget {name}`), then share it with "
                f"both"
            )

    def _forget_older(self, name: str) -> None:
        older = [model.version for model in self.models(name)][: 1 - MOST_VERSIONS]
        if older:
            self.forget_model(name, older)

    def holds_model(self, name: str, version: str) -> bool:
        return bool(self._rows("SELECT 1 FROM models WHERE name = ? AND version = ?", name, version))

    def _model_path(self, name: str, version: str) -> Path:
        return self.folder / "models" / name / f"{version}.safetensors"

    def check_owner(self, name: str, owner: str) -> None:
        """PolicyRefused if a model's name is another client's."""
        if any(model.owner != owner for model in self.models(name)):
            raise PolicyRefused(f"a model named {name!r} belongs to another client: choose another name")

    def models(self, name: str | None = None) -> list[StoredModel]:
        """All versions, newest last."""
        return self._records(StoredModel, "models", **({} if name is None else {"name": name}))

    def model(self, name: str, version: str) -> StoredModel:
        missing = f"version {version} of {name} is not here"
        return self._record(StoredModel, "models", missing, name=name, version=version)

    def model_words(self, name: str, version: str) -> dict[str, Array]:
        return read_words(self._model_path(name, version))

    def forget_model(self, name: str, versions: Iterable[str] | None = None) -> None:
        """Forget these versions of a model, or all."""
        gone = {model.version for model in self.models(name)} if versions is None else set(versions)
        reveals = [item.id for item in self.reveals() if versions is None and item.model == name]
        with self._changing(needed=True) as database:
            for version in gone:
                for table in ("models", "failures"):
                    self._delete(database, table, name=name, version=version)
            for reveal in reveals:
                self._delete(database, "reveals", id=reveal)
        with self._lock:  # nobody makes a file in a folder that is about to go
            for version in gone:
                self._model_path(name, version).unlink(missing_ok=True)
            remove_empty(self.folder / "models" / name)
            for reveal in reveals:
                self._released_path(reveal).unlink(missing_ok=True)

    # ---- jobs

    def keep_job(self, job: str, spec: Mapping[str, Any], owner: str, words: Mapping[str, Array]) -> None:
        content = to_bytes(dict(words))
        self.require(len(content), "this party's share of the first parameters")
        with self._making() as made, self._changing() as database:
            if self._rows("SELECT 1 FROM jobs WHERE id = ?", job):
                raise InputError(f"a job with the id {job} was submitted before")
            (active,) = self._rows(f"SELECT count(*) FROM jobs WHERE owner = ? AND {UNFINISHED}", owner)[0]
            if active >= MOST_JOBS:
                raise PolicyRefused(f"{owner} has {MOST_JOBS} jobs that have not ended: wait for them, or cancel some")
            made.append(self._folder("jobs", job) / "initial.safetensors")
            write_whole(made[0], content)
            stored = StoredJob(job, dict(spec), owner=owner, **_told(spec))
            self._insert(database, "jobs", "it is here already", **asdict(stored), created=time.time())

    def job_words(self, job: str) -> dict[str, Array]:
        return read_words(self.job_folder(job) / "initial.safetensors")

    def job_folder(self, job: str) -> Path:
        return self.folder / "jobs" / job

    def checkpoints(self, job: StoredJob, rank: int, resume: int | None) -> Checkpoints:
        """Where a job keeps its checkpoints; one that begins again finds none."""
        found = Checkpoints.of(self.job_folder(job.id), rank)
        if resume is None:  # what an earlier attempt left at one party only
            found.forget_after(-1)
        return found

    def job_data(self, job: StoredJob, versions: Sequence[Sequence[str]]) -> list[StoredDataset]:
        """The data sets that a job goes on with, in order: those it was begun with, on which its owner may train."""
        if not job.spec:
            raise DataMissing(f"the job {job.id} has ended")
        if job.data and job.data != versions:
            raise CheckpointMismatch("the job was begun with other versions of its data sets")
        found = list[StoredDataset]()
        for reference, (name, version) in zip(job.spec["datasets"], versions, strict=True):
            item, owner = self.dataset(name, version), split_owned(reference)[0]
            if item is None or not item.complete or split_owned(reference)[1] != name or owner not in ("", item.owner):
                raise DataMissing(f"version {version} of the data set {reference!r} is not here")
            if not self.may_train(item, job.owner):
                raise PolicyRefused(f"the owner of the data set {reference!r} did not allow {job.owner} to train on it")
            if item in found:
                raise InputError(f"the data set {item.title} is named twice")
            found.append(item)
        return found

    def in_use(self) -> set[tuple[str, str]]:
        return {(name, version) for job in self.unfinished() for name, version in job.data}

    def jobs(self) -> list[StoredJob]:
        """All jobs without what may be long, what they are told to do and what they cost: for all who ask how they
        are."""
        return self._records(StoredJob, "jobs", without=["spec", "report"])

    def unfinished(self) -> list[StoredJob]:
        """Those of them that have not ended."""
        found = self._records(StoredJob, "jobs", without=["spec", "report"], ended=0)
        return [job for job in found if job.state not in ENDED]

    def job(self, job: str) -> StoredJob:
        return self._record(StoredJob, "jobs", f"no job has the id {job}", id=job)

    def job_record(self, job: str) -> StoredJob:
        """A job without what it is told to do."""
        return self._record(StoredJob, "jobs", f"no job has the id {job}", without=["spec"], id=job)

    def note_job(self, job: str, heard: bool = False, **changes: Any) -> None:
        """Write down what changed of a job: its state, its step, its report."""
        with self._changing(heard, needed=True) as database:
            self._update(database, "jobs", job, **changes)
        if changes.get("state") in ENDED:
            self._finish(job)
            self.forgive("job", job)  # the job itself says how it ended

    def _finish(self, job: str) -> None:
        """After a job has ended: what it held goes, and so do jobs of its owner that ended before the last ones.

        Both parties end jobs in the same order, so they keep the same ones. Where they do not, nothing waits for that:
        a job that has ended here is looked for at the other party only to end it there.
        """
        for known in self._records(StoredJob, "jobs", without=["spec"], id=job):  # unless it was never told of it
            self._drop_shares(known)
            with self._changing(heard=False, needed=True) as database:
                self._log_to_empty = True  # what it was told to do names data sets
                told = (time.time(), job)
                database.execute("UPDATE jobs SET spec = '{}', ended = ? WHERE id = ? AND ended = 0", told)
            wanted = "SELECT id FROM jobs WHERE owner = ? AND ended > 0 ORDER BY ended DESC, id LIMIT -1 OFFSET ?"
            for row in self._rows(wanted, known.owner, MOST_ENDED):
                with suppress(DataMissing):  # its owner has just forgotten it
                    self.forget_job(row["id"])

    def _note_told(self) -> None:
        """What jobs of earlier releases lack."""
        for row in self._rows("SELECT id FROM jobs WHERE said = ''"):  # one by one: they may be long
            told = _told(self.job(row["id"]).spec)
            with self._changing(heard=False, needed=True) as database:
                self._update(database, "jobs", row["id"], **told)

    def _drop_shares(self, job: StoredJob) -> None:
        """Nobody goes on with a job that ended: parameters, checkpoints and rows go, its ledger of material stays."""
        for file in self.job_folder(job.id).rglob("*.safetensors"):
            file.unlink(missing_ok=True)
        self.forget_rows_of(job.id)
        if self.models(job.interim):
            self.forget_model(job.interim)

    def cancel_job(self, job: str, keep: bool) -> None:
        """Note that a job is to be ended; the model as it is then is kept, or nothing is."""
        self.note_job(job, heard=True, cancelled=KEEP if keep else DISCARD)

    def forget_job(self, job: str) -> None:
        """Forget a job that nobody goes on with: what is left of it is its ledger of material."""
        self._drop_shares(self.job_record(job))
        with self._changing(needed=True) as database:
            self._delete(database, "jobs", id=job)
            self._delete(database, "failures", what="job", name=job)
        folder = self.job_folder(job)
        for file in folder.rglob("lock"):
            file.unlink(missing_ok=True)
        for place in (*folder.glob("party*"), folder):
            remove_empty(place)
        if folder.exists():
            self._forget_ledgers()

    def _forget_ledgers(self) -> None:
        """Of jobs that were forgotten the last ledgers stay: their scopes have random names that never come again."""
        with self._lock:
            known = {row["id"] for row in self._rows("SELECT id FROM jobs")}
            gone = [folder for folder in (self.folder / "jobs").iterdir() if folder.name not in known]
            for folder in sorted(gone, key=lambda folder: folder.stat().st_mtime)[:-MOST_LEDGERS]:
                shutil.rmtree(folder)

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
            database.execute(
                "DELETE FROM queries WHERE rowid IN (SELECT rowid FROM queries WHERE model != ? AND model NOT IN "
                "(SELECT name FROM models UNION SELECT model FROM jobs WHERE ended = 0) "
                "ORDER BY set_aside DESC, rowid DESC LIMIT -1 OFFSET ?)",
                (model, MOST_COUNTED),
            )
            return granted

    def queries(self, model: str) -> int:
        """Rows of a model that are counted as answered."""
        found = self._rows("SELECT set_aside FROM queries WHERE model = ?", model)
        return int(found[0][0]) if found else 0

    def counted_as(self, model: str) -> str:
        """The model whose count its answers belong to: what a job shows after an epoch counts for the job's model."""
        found = self._rows("SELECT model FROM jobs WHERE id = ?", model.removeprefix(interim_name("")))
        return str(found[0]["model"]) if found and model.startswith(interim_name("")) else model

    def all_queries(self) -> dict[str, tuple[int, int]]:
        """Rows of each model that are counted, and how many were allowed when that was looked at last."""
        found = self._rows("SELECT * FROM queries ORDER BY model")
        return {row["model"]: (row["set_aside"], row["allowed"]) for row in found}

    def forget_queries(self, model: str) -> None:
        """The operator allows as many again."""
        with self._changing(heard=False, needed=True) as database:
            if not self._delete(database, "queries", model=model):
                raise DataMissing(f"no row of a model named {model!r} was answered here")

    def failure(self, what: str, name: str, version: str) -> Failure:
        """What is held against loading a version of a model, or a job."""
        found = self._records(Failure, "failures", "at", what=what, name=name, version=version)
        return found[0] if found else Failure(what, name, version)

    def failures(self) -> list[Failure]:
        return self._records(Failure, "failures", "at")

    def note_failure(self, failure: Failure) -> None:
        """Remember it, on disk, from now on."""
        with self._changing(heard=bool(failure.why), needed=True) as database:
            self._insert(database, "failures", **asdict(failure), at=time.time())

    def forgive(self, what: str, name: str, version: str = "") -> int:
        """Hold nothing against a model or job any more; without a version, against none of them."""
        with self._changing(needed=True) as database:
            wanted = {"version": version} if version else {}
            return self._delete(database, "failures", what=what, name=name, **wanted)

    def forgive_gone(self) -> None:
        """Hold nothing against what is not here any more: it may have been forgotten while it failed."""
        gone = (
            "(what = 'load' AND NOT EXISTS (SELECT 1 FROM models WHERE (name, version) = (failures.name, "
            "failures.version))) OR (what = 'job' AND NOT EXISTS (SELECT 1 FROM jobs WHERE id = failures.name))"
        )
        if self._rows(f"SELECT 1 FROM failures WHERE {gone} LIMIT 1"):
            with self._changing(heard=False, needed=True) as database:
                database.execute(f"DELETE FROM failures WHERE {gone}")

    # ---- ledger and audit

    def reserve(self, scope: str, first: int, count: int) -> None:
        """Note that executions are about to be used: on disk before the first of them is."""
        with self._changing(heard=False, needed=True) as database:
            self._insert(database, "ledger", scope=scope, first=first, count=count, at=time.time())
            # Of scopes that were closed long ago: their names are random and never come again.
            database.execute("DELETE FROM ledger WHERE id <= (SELECT max(id) FROM ledger) - ?", (MOST_RESERVED,))

    def forget_scope(self, scope: str) -> None:
        """A scope is closed for good: its name is random and is refused if it comes again."""
        with self._changing(heard=False, needed=True) as database:
            database.execute("DELETE FROM ledger WHERE scope = ?", (scope,))

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


def open_state(node: Path) -> Store:
    """The state of a party, by its node's folder."""
    with _database_named(node):
        return Store(node / STATE, Config.read(node).storage.datasets)


@contextmanager
def state(node: Path) -> Iterator[Store]:
    """The state of a party for the length of a block, as operators' commands use it."""
    with _database_named(node), closing(open_state(node)) as store:
        yield store


@contextmanager
def _database_named(node: Path) -> Iterator[None]:
    """A database that SQLite cannot use is an error that names it."""
    try:
        yield
    except sqlite3.Error as error:
        raise CheckpointMismatch(
            f"{node / STATE / FILE} cannot be used as a party's database ({error}): restore it from a backup"
        ) from error


def read_failures(folder: Path) -> list[Failure]:
    """Models that a party gave up, read beside the running party: nothing is changed."""
    if not (folder / FILE).exists():
        return []
    wanted = "SELECT what, name, version, lost, why FROM failures WHERE what = 'load' AND why != ''"
    with closing(read_beside(folder)) as database:
        try:
            return [Failure(*row) for row in database.execute(wanted)]
        except sqlite3.OperationalError:
            return []  # a state of an older version, which knows no failures
