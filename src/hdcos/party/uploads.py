"""Data sets of a party: uploads in pieces that can be resumed, and the files that they become.

state/datasets/NAME/VERSION.part     what has come, until the upload is complete (`part`)
state/datasets/NAME/VERSION.arrow    the rows, in groups with checksums; or where [storage] datasets says (`arrow`,
                                     `dataset_folder`)

Rows that come row by row lie where they stay: the part becomes the data set. Any other upload is written once more
when it is completed, as an Arrow file: for that time it takes its room twice, so it is refused, at its beginning or at
the piece that is too much, unless there is twice its room. The row that names it is changed when that file is whole,
and the part goes last: whenever the process dies there is one of the two, and the upload can be completed again. What
is removed is marked first, then its files go, then its row: a process that dies is followed by one that goes on with
it. One that is being completed goes when that has ended. Whose data sets are, and until when they are kept, is in
`kept_data`.

A record may have a megabyte of names of columns. They count as data of their owner, are limited for themselves, and
are read by those alone who need them: `records` does without.

Security  every file is one party's share: alone it says nothing. A version is drawn by the client and is the same at
          both parties, so that shares of different sharings are never put together.
"""

from __future__ import annotations

import json
import logging
import math
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from threading import Lock

from hdcos.errors import DataMissing, InputError, PolicyRefused, StorageFull
from hdcos.files import private_folder
from hdcos.nn.columns import Names
from hdcos.nn.prepared import Prepared
from hdcos.party.arrow import REMEDY, Shape
from hdcos.party.config import Limits
from hdcos.party.database import Database
from hdcos.party.dataset_folder import DatasetFolder, LocalFolder, dataset_folder
from hdcos.party.engine import fingerprint
from hdcos.party.part import AS_IT_CAME, Part, Spacing, spacing_of
from hdcos.party.rows import RowSource

log = logging.getLogger("hdcos")
UPLOAD_S, SILENT_S = 24 * 3600.0, 600.0
"""An upload to which nothing came for that long is forgotten: in any case, and where its room is needed."""
CALLER = "caller"
"""Who prepared the rows of a cluster on this machine, if that is all that is known of them."""
GONE = -1.0
"""Stands for the time when it expires, in the row of a data set that is being removed."""
LIMITS = Limits()
"""Where no operator said otherwise."""


@dataclass(frozen=True)
class StoredDataset:
    name: str
    version: str
    rows: int
    """0 until the upload is complete, if the client did not know it before."""
    features: int
    outputs: int
    complete: bool
    owner: str
    columns: Names | None = None
    by_rows: bool = False
    """Whether its bytes come row by row; otherwise all features come first, then all targets."""
    preparation: str = ""
    """The digest of what made its features of a table, if something did."""
    join_id: str = ""
    """The join that put its rows into their order, if one did."""
    number: int = 1
    """Of the versions of a name that its owner uploaded, which this is: for people."""
    expires: float = 0.0
    """When it is removed, in seconds since 1970; 0 if its owner has to say so."""
    job: str = ""
    """The job whose rows these are, and with which they go."""

    @property
    def width(self) -> int:
        return self.features + self.outputs

    @property
    def key(self) -> tuple[str, str]:
        """Versions are drawn by clients, who may draw one for two names."""
        return self.name, self.version

    @property
    def title(self) -> str:
        """What errors call it."""
        return f"{self.owner}/{self.name}" if self.owner else self.name

    @property
    def expired(self) -> bool:
        return 0 < self.expires <= time.time()

    @property
    def words(self) -> int:
        return self.rows * self.width

    @property
    def prepared(self) -> tuple[Prepared, ...]:
        """What made its features, as a network trained on it remembers that."""
        return (Prepared((self.owner or CALLER,), self.columns or (), self.preparation),) if self.preparation else ()

    @property
    def shape(self) -> Shape:
        return Shape(self.rows, self.features, self.width)


class Uploads(Database):
    """The data sets of one party. Any thread may use it."""

    def __init__(self, folder: Path, datasets: str = "") -> None:
        super().__init__(folder)
        own = LocalFolder(self.folder / "datasets")
        self._own = own
        self._kept_in: DatasetFolder = dataset_folder(datasets, folder.parent) if datasets else own
        self._folders = [self._kept_in, own] if datasets else [own]
        """Also where they were kept before the operator named another place."""
        self._converting = Lock()
        self._busy: set[tuple[str, str]] = set()
        """Uploads that are being completed."""
        self._said: dict[tuple[str, str], str] = {}
        self._parts: dict[tuple[str, str], Part] = {}
        """Of uploads to which something came since the process began, until they are complete or removed."""

    def _folder(self, *names: str) -> Path:
        return private_folder(self.folder.joinpath(*names))

    def _part(self, dataset: StoredDataset) -> Path:
        return self.folder / "datasets" / dataset.name / f"{dataset.version}.part"

    def _arriving(self, dataset: StoredDataset) -> Part:
        """The file of an upload that was begun, and what is known of it."""
        with self._lock:
            widths = [dataset.width] if dataset.by_rows else [dataset.features, dataset.outputs]
            made = Part(self._part(dataset), widths, _spacing(dataset))
            return self._parts.setdefault(dataset.key, made)

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

    # ---- uploads

    def begin_dataset(self, dataset: StoredDataset, most_bytes: float, limits: Limits = LIMITS) -> StoredDataset:
        """Make room for an upload; what it becomes has the next number of its name."""
        if not dataset.rows and not dataset.by_rows:
            raise InputError("say how many rows there will be, or send the bytes row by row (by_rows)")
        names = len(json.dumps(dataset.columns)) if dataset.columns else 0
        self._require_for(dataset, 0, 8 * dataset.words, f"this party's share of {dataset.name}")
        with self._making() as made, self._changing(heard=False) as database:
            self._check_number(dataset.owner, names, limits)
            self._check_quota(dataset, 8 * dataset.words + names, most_bytes)
            known = f"an upload of {dataset.name} with this version was begun before"
            new = replace(dataset, complete=False, number=1 + self._newest_number(dataset))
            self._insert(database, "datasets", known, **asdict(new), created=time.time())
            self._said.pop(dataset.key, None)
            made.append(self._part(dataset))
            self._own.new_file(made[0]).close()
            return new

    def _newest_number(self, dataset: StoredDataset) -> int:
        """Of the versions that its owner has here under this name."""
        others = [known for known in self.records(dataset.name) if known.key != dataset.key]
        return max((known.number for known in others if known.owner == dataset.owner and known.complete), default=0)

    def _check_number(self, owner: str, names: int, limits: Limits) -> None:
        """PolicyRefused if an owner has as many data sets or uploads as it may, or their columns too long names."""
        kept, begun = self._rows("SELECT count(*), total(NOT complete) FROM datasets WHERE owner = ?", owner)[0]
        remedy = f"{owner} forgets some first (`hdcos datasets`, `hdcos forget`), or the operator allows more"
        if begun >= limits.uploads:
            raise PolicyRefused(
                f"{owner} has begun {begun:g} uploads that are not complete, and {limits.uploads} may be: "
                f"{owner} completes or forgets some first (`hdcos datasets`, `hdcos forget`), or the operator allows "
                f"more (uploads in node.toml)"
            )
        if kept >= limits.datasets:
            raise PolicyRefused(
                f"{owner} has {kept} data sets and uploads here, and may have {limits.datasets}: {remedy} (datasets in "
                f"node.toml)"
            )
        if (held := self._name_bytes(owner)) + names > 1e6 * limits.names_mb:
            raise PolicyRefused(
                f"the names of columns in data sets of {owner} take {held / 1e6:.3g} of {limits.names_mb:g} MB, and "
                f"these would be {names / 1e6:.3g} MB more: {owner} gives columns shorter names, or {remedy} "
                f"(names_mb in node.toml)"
            )

    def _name_bytes(self, owner: str) -> int:
        """Bytes that names of columns take, of all data sets of an owner."""
        wanted = "SELECT total(length(columns)) FROM datasets WHERE owner = ? AND columns != 'null'"
        return int(self._rows(wanted, owner)[0][0])

    def _check_quota(self, dataset: StoredDataset, size: int, most_bytes: float) -> None:
        """PolicyRefused if an owner would keep too much with this many bytes of one data set."""
        others = [known for known in self.records() if known.owner == dataset.owner]
        held = sum(8 * known.words or self.received(known) for known in others if known.key != dataset.key)
        held += self._name_bytes(dataset.owner)
        if held + size > most_bytes:
            raise PolicyRefused(
                f"{dataset.owner} may keep {most_bytes / 1e9:g} GB of data here, has {held / 1e9:.3g} GB, and this "
                f"would be {size / 1e9:.3g} GB more: {dataset.owner} forgets some first (`hdcos datasets`, "
                f"`hdcos forget`), or the operator allows more (dataset_gb in node.toml)"
            )

    def received(self, dataset: StoredDataset) -> int:
        """Bytes of an upload that are here."""
        if dataset.complete:
            return 8 * dataset.words
        part, most = self._part(dataset), 8 * dataset.words or math.inf  # behind it there may be a footer
        return int(min(most, _spacing(dataset).held(part.stat().st_size))) if part.exists() else 0

    def add_bytes(self, dataset: StoredDataset, offset: int, content: bytes, most_bytes: float = float("inf")) -> int:
        """The next bytes of an upload; those that are here already may be sent again. Returns how many are here."""
        arriving = self._arriving(dataset)
        with arriving.lock:  # of one upload: what comes is hashed while others go on
            with self._lock:
                part, here, end = arriving.path, self.received(dataset), offset + len(content)
                if dataset.complete or dataset.key in self._busy or offset > here or not part.exists():
                    raise InputError(f"{here} bytes of {dataset.name} are here: go on from there, not from {offset}")
                if dataset.rows and end > 8 * dataset.words:
                    raise InputError(f"{dataset.name} has {8 * dataset.words} bytes, these would end later")
                if not dataset.rows and end > here:
                    self._check_quota(dataset, end, most_bytes)
                os.utime(part)  # it has not broken off
                self._require_for(dataset, here, max(here, end), f"a piece of {dataset.name}")
                new = content[here - offset :]
                arriving.write(here, new)
            arriving.note(here, new)
            return max(here, end)

    def complete_dataset(self, dataset: StoredDataset, digest: str, number: int = 0) -> None:
        """Check what arrived against its hash, and keep it; with a number, if the other party has had more versions."""
        with self._converting:  # one at a time; a client that asks twice finds it done
            known = self.dataset(*dataset.key)
            if known is not None and known.complete:
                return
            with self._lock:
                received, row = self.received(dataset), 8 * dataset.width
                whole = dataset if dataset.rows else replace(dataset, rows=received // row)
                if not received or received != 8 * whole.words:
                    wanted = f"{8 * whole.words}" if dataset.rows else f"a multiple of {row}"
                    raise InputError(f"{received} of {wanted} bytes of {dataset.name} are here")
                self._busy.add(dataset.key)
            try:
                number = max(number, dataset.number, 1 + self._newest_number(whole))
                done = self._convert(replace(whole, number=number), digest)
            finally:
                self._busy.discard(dataset.key)
            if not done:
                self.finish_removing()
                raise DataMissing(f"{dataset.name} was forgotten before it was complete")

    def _convert(self, dataset: StoredDataset, digest: str) -> bool:
        """Write an upload as a data set; whether its owner still wanted it then."""
        part, name, version = self._arriving(dataset), dataset.name, dataset.version
        with part.lock:
            if part.digest(8 * dataset.words) != digest:
                raise InputError(f"what arrived of {name} has another hash: delete it and upload it again")
            if self._stays(dataset):
                with self._changing(heard=False) as database:  # from here on the file does not tell how many there are
                    known = (dataset.rows, name, version)
                    database.execute("UPDATE datasets SET rows = ? WHERE name = ? AND version = ?", known)
                part.finish(dataset.shape)
            else:
                self._kept_in.write(name, version, dataset.shape, part.groups(dataset.shape))
        with self._lock:  # a look for uploads that broke off sees it as a part or as complete
            with self._placed(dataset, part.path), self._changing() as database:
                told = (dataset.rows, dataset.number, time.time(), name, version)
                done = database.execute(
                    "UPDATE datasets SET complete = 1, rows = ?, number = ?, created = ? "
                    "WHERE name = ? AND version = ? AND expires >= 0",
                    told,
                ).rowcount
            part.path.unlink(missing_ok=True)
            self._parts.pop(dataset.key, None)
            self._own.tidy(part.path.parent)  # where data sets are kept elsewhere
        return bool(done)

    @contextmanager
    def _placed(self, dataset: StoredDataset, part: Path) -> Iterator[None]:
        """A part that stays where it is takes the name of a data set, unless what follows fails."""
        if not self._stays(dataset):
            yield
            return
        kept = self._own.take(part, dataset.name, dataset.version)
        try:
            yield
        except BaseException:
            kept.replace(part)
            raise

    def _stays(self, dataset: StoredDataset) -> bool:
        """Whether what comes lies where it stays."""
        return _spacing(dataset) != AS_IT_CAME and self._kept_in is self._own

    # ---- data sets

    def datasets(self, name: str | None = None) -> list[StoredDataset]:
        """All versions, newest last."""
        found = self._records(StoredDataset, "datasets", **({} if name is None else {"name": name}))
        return [dataset for dataset in found if dataset.expires != GONE]

    def records(self, name: str | None = None) -> list[StoredDataset]:
        """The same without the names of columns, which may be long: for all who do not train on them."""
        wanted = {} if name is None else {"name": name}
        found = self._records(StoredDataset, "datasets", without=["columns"], **wanted)
        return [dataset for dataset in found if dataset.expires != GONE]

    def dataset(self, name: str, version: str) -> StoredDataset | None:
        """One version, if it is here."""
        found = self._records(StoredDataset, "datasets", name=name, version=version)
        return found[0] if found and found[0].expires != GONE else None

    def said_of(self, dataset: StoredDataset) -> str:
        """What both parties must have been told alike of a data set besides its shape: made once, and remembered."""
        with self._lock:
            if dataset.key not in self._said:
                known = self.dataset(*dataset.key)
                if known is None:  # forgotten a moment ago
                    return ""
                told = fingerprint(known.columns, known.owner, known.preparation, known.join_id)
                self._said[dataset.key] = told.hex()
            return self._said[dataset.key]

    def dataset_rows(self, dataset: StoredDataset) -> RowSource:
        """The rows of a data set, of which none is read yet."""
        for folder in self._folders:
            if folder.holds(dataset.name, dataset.version):
                return folder.open(dataset.name, dataset.version, dataset.shape)
        raise DataMissing(f"the file of {dataset.name}, version {dataset.version}, is gone. {REMEDY}")

    def dataset_places(self) -> list[str]:
        """Where complete data sets lie, for workers that can read there."""
        return [folder.where for folder in self._folders]

    def remove(self, gone: Sequence[StoredDataset]) -> None:
        """Remove versions of data sets, complete or not; others of their names stay."""
        with self._changing(needed=True) as database:
            for dataset in gone:
                database.execute("UPDATE datasets SET expires = ? WHERE name = ? AND version = ?", (GONE, *dataset.key))
        self.finish_removing()

    def finish_removing(self) -> int:
        """Remove what is marked, and say how many; PeerLost if a place far away does not answer now, and then it stays
        marked."""
        removed = 0
        for dataset in self._records(StoredDataset, "datasets", without=["columns"], expires=GONE):
            with self._lock:  # an upload without its part is not completed
                if dataset.key in self._busy:  # who completes it goes on here, or the next start does
                    continue
                self._part(dataset).unlink(missing_ok=True)
                self._parts.pop(dataset.key, None)
            for folder in self._folders:
                folder.forget(*dataset.key)
            with self._changing(heard=False, needed=True) as database:
                self._delete(database, "datasets", name=dataset.name, version=dataset.version)
                self._said.pop(dataset.key, None)
            removed += 1
        return removed

    # ---- room

    def forget_silent(self, silent_s: float | None = None) -> None:
        """Forget uploads to which nothing came for that long; nobody goes on with the rows of a job after a while."""
        with self._lock:
            for dataset in [known for known in self.records() if not known.complete]:
                part, busy = self._part(dataset), dataset.key in self._busy
                usual_s = SILENT_S if dataset.job else UPLOAD_S
                limit = time.time() - (usual_s if silent_s is None else silent_s)
                if not busy and (not part.exists() or part.stat().st_mtime < limit):
                    self.remove([dataset])

    def sweep_uploads(self) -> None:
        """At the start of a party: files that no record names, and parts that were not removed when they were complete.

        Another place that the operator named may hold what is not this party's: there nothing is taken for left over.
        """
        for folder in self._folders:
            folder.sweep()
        named = {(row["name"], row["version"]) for row in self._rows("SELECT name, version FROM datasets")}
        for path in self._own.forget_others(named):
            log.warning("%s, which no record names, is removed", path)
        begun = [dataset for dataset in self.records() if not dataset.complete]
        for dataset in begun:
            if self._stays(dataset):
                self._own.give_back(self._part(dataset), *dataset.key)
        known = {self._part(dataset) for dataset in begun}
        for path in list((self.folder / "datasets").rglob("*.part")):  # folders go meanwhile
            if path not in known:
                path.unlink(missing_ok=True)
                self._own.tidy(path.parent)

    def _require_for(self, dataset: StoredDataset, here: int, end: int, what: str) -> None:
        """StorageFull unless an upload can grow from some bytes to more, and then be written once more if it must."""
        spacing, again = _spacing(dataset), max(end, 8 * dataset.words)
        more = spacing.room(end) - spacing.room(here)
        if self._stays(dataset):
            self.require(spacing.room(again) - spacing.room(here), what)
        elif self._kept_in is self._own:
            self.require(more + again, f"{what}, while it is written once more,")
        else:
            self.require(more, what)
            self._kept_in.require(again, what)

    def require(self, size: int, what: str) -> None:
        """StorageFull unless there is room; uploads that broke off give way."""
        try:
            self.room.require(size, what)
        except StorageFull:
            self.forget_silent(SILENT_S)
            self.room.require(size, what)


def _spacing(dataset: StoredDataset) -> Spacing:
    """Where the bytes of an upload lie."""
    return spacing_of(dataset.features, dataset.width) if dataset.by_rows else AS_IT_CAME
