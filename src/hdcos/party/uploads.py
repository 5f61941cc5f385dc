"""Data sets of a party: uploads in pieces that can be resumed, and the files that they become.

state/datasets/NAME/VERSION.part     bytes in the order in which they come, until the upload is complete
state/datasets/NAME/VERSION.arrow    the rows, in groups with checksums; or where [storage] datasets says (`arrow`,
                                     `dataset_folder`)

An upload that is completed is hashed, then written again as an Arrow file: for that time it takes its room twice, so
it is refused, at its beginning or at the piece that is too much, unless there is twice its room. The row that names it
is changed when that file is whole, and the part goes last: whenever the process dies one of the two is there and the
upload can be completed again.

Security  every file is one party's share: alone it says nothing. A version is drawn by the client and is the same at
          both parties, so that shares of different sharings are never put together.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from threading import Lock

import numpy as np

from hdcos.errors import DataMissing, InputError, PolicyRefused, StorageFull
from hdcos.files import full_disk_named, new_file, private_folder
from hdcos.nn.columns import Names
from hdcos.nn.prepared import Prepared
from hdcos.party.arrow import REMEDY, Shape
from hdcos.party.database import Database
from hdcos.party.dataset_folder import DatasetFolder, LocalFolder, dataset_folder
from hdcos.party.rows import RowSource
from hdcos.ring import Array

UPLOAD_S, SILENT_S = 24 * 3600.0, 600.0
"""An upload to which nothing came for that long is forgotten: in any case, and where its room is needed."""


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

    @property
    def width(self) -> int:
        return self.features + self.outputs

    @property
    def key(self) -> tuple[str, str]:
        """Versions are drawn by clients, who may draw one for two names."""
        return self.name, self.version

    @property
    def words(self) -> int:
        return self.rows * self.width

    @property
    def prepared(self) -> tuple[Prepared, ...]:
        """What made its features, as a network trained on it remembers that."""
        return (Prepared((self.owner,), self.columns or (), self.preparation),) if self.preparation else ()

    @property
    def shape(self) -> Shape:
        return Shape(self.rows, self.features, self.width)


class Uploads(Database):
    """The data sets of one party. Any thread may use it."""

    def __init__(self, folder: Path, datasets: str = "") -> None:
        super().__init__(folder)
        own = LocalFolder(self.folder / "datasets")
        self._kept_in: DatasetFolder = dataset_folder(datasets, folder.parent) if datasets else own
        self._folders = [self._kept_in, own] if datasets else [own]
        """Also where they were kept before the operator named another place."""
        self._converting = Lock()
        self._busy: set[tuple[str, str]] = set()
        """Uploads that are being completed."""

    def _folder(self, *names: str) -> Path:
        return private_folder(self.folder.joinpath(*names))

    def _part(self, dataset: StoredDataset) -> Path:
        return self._folder("datasets", dataset.name) / f"{dataset.version}.part"

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

    def begin_dataset(self, dataset: StoredDataset, most_bytes: float) -> None:
        """Make room for an upload."""
        if not dataset.rows and not dataset.by_rows:
            raise InputError("say how many rows there will be, or send the bytes row by row (by_rows)")
        self._require_for(dataset, 0, 8 * dataset.words, f"this party's share of {dataset.name}")
        with self._making() as made, self._changing(heard=False) as database:
            if any(known.owner != dataset.owner for known in self.datasets(dataset.name)):
                raise PolicyRefused(f"a data set named {dataset.name!r} belongs to another client: choose another name")
            self._check_quota(dataset, 8 * dataset.words, most_bytes)
            known = f"an upload of {dataset.name} with this version was begun before"
            self._insert(database, "datasets", known, **asdict(replace(dataset, complete=False)), created=time.time())
            made.append(self._part(dataset))
            new_file(made[0]).close()

    def _check_quota(self, dataset: StoredDataset, size: int, most_bytes: float) -> None:
        """PolicyRefused if an owner would keep too much with this many bytes of one data set."""
        others = [known for known in self.datasets() if known.owner == dataset.owner]
        held = sum(8 * known.words or self.received(known) for known in others if known.key != dataset.key)
        if held + size > most_bytes:
            raise PolicyRefused(f"{dataset.owner} may keep {most_bytes / 1e9:g} GB of data here: forget some first")

    def received(self, dataset: StoredDataset) -> int:
        """Bytes of an upload that are here."""
        if dataset.complete:
            return 8 * dataset.words
        part = self._part(dataset)
        return part.stat().st_size if part.exists() else 0

    def add_bytes(self, dataset: StoredDataset, offset: int, content: bytes, most_bytes: float = float("inf")) -> int:
        """The next bytes of an upload; those that are here already may be sent again. Returns how many are here."""
        with self._lock:
            part, here, end = self._part(dataset), self.received(dataset), offset + len(content)
            if dataset.complete or dataset.key in self._busy or offset > here or not part.exists():
                raise InputError(f"{here} bytes of {dataset.name} are here: go on from there, not from {offset}")
            if dataset.rows and end > 8 * dataset.words:
                raise InputError(f"{dataset.name} has {8 * dataset.words} bytes, these would end later")
            if not dataset.rows and end > here:
                self._check_quota(dataset, end, most_bytes)
            os.utime(part)  # it has not broken off
            self._require_for(dataset, here, max(here, end), f"a piece of {dataset.name}")
            try:
                with full_disk_named(part), open(part, "r+b") as file:
                    file.seek(offset)
                    file.write(content)
            except StorageFull:
                os.truncate(part, here)  # a piece is here or not
                raise
            return self.received(dataset)

    def complete_dataset(self, dataset: StoredDataset, digest: str) -> None:
        """Check what arrived against its hash, and keep it."""
        with self._converting:  # one at a time; a client that asks twice finds it done
            found = [known for known in self.datasets(dataset.name) if known.version == dataset.version]
            if found and found[0].complete:
                return
            with self._lock:
                received, row = self.received(dataset), 8 * dataset.width
                whole = dataset if dataset.rows else replace(dataset, rows=received // row)
                if not received or received != 8 * whole.words:
                    wanted = f"{8 * whole.words}" if dataset.rows else f"a multiple of {row}"
                    raise InputError(f"{received} of {wanted} bytes of {dataset.name} are here")
                self._busy.add(dataset.key)
            try:
                self._convert(whole, digest)
            finally:
                self._busy.discard(dataset.key)

    def _convert(self, dataset: StoredDataset, digest: str) -> None:
        part, name, version = self._part(dataset), dataset.name, dataset.version
        with part.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != digest:
                raise InputError(f"what arrived of {name} has another hash: delete it and upload it again")
        self._kept_in.write(name, version, dataset.shape, _groups(part, dataset))
        with self._lock:  # a look for uploads that broke off sees it as a part or as complete
            with self._changing() as database:
                done = database.execute(
                    "UPDATE datasets SET complete = 1, rows = ? WHERE name = ? AND version = ?",
                    (dataset.rows, name, version),
                ).rowcount
            part.unlink(missing_ok=True)
        if not done:  # its owner forgot it meanwhile
            self._kept_in.forget(name, version)
            raise DataMissing(f"{name} was forgotten before it was complete")

    # ---- data sets

    def datasets(self, name: str | None = None) -> list[StoredDataset]:
        return self._records(StoredDataset, "datasets", **({} if name is None else {"name": name}))

    def dataset_rows(self, dataset: StoredDataset) -> RowSource:
        """The rows of a data set, of which none is read yet."""
        for folder in self._folders:
            if folder.holds(dataset.name, dataset.version):
                return folder.open(dataset.name, dataset.version, dataset.shape)
        raise DataMissing(f"the file of {dataset.name}, version {dataset.version}, is gone. {REMEDY}")

    def dataset_places(self) -> list[str]:
        """Where complete data sets lie, for workers that can read there."""
        return [folder.where for folder in self._folders]

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
            self._delete(database, "datasets", name=name)
            self._delete(database, "grants", dataset=name)
        for dataset in gone:
            self._part(dataset).unlink(missing_ok=True)
            for folder in self._folders:
                folder.forget(name, dataset.version)

    def forget_upload(self, dataset: StoredDataset) -> None:
        """Forget one version that is not complete; others of its name stay."""
        with self._changing(heard=False, needed=True) as database:
            gone = self._delete(database, "datasets", name=dataset.name, version=dataset.version, complete=0)
        if not gone:
            raise InputError(f"this upload of {dataset.name} is complete: forget the data set instead")
        self._part(dataset).unlink(missing_ok=True)

    # ---- room

    def forget_silent(self, silent_s: float | None = None) -> None:
        """Forget uploads to which nothing came for that long."""
        limit = time.time() - (UPLOAD_S if silent_s is None else silent_s)
        with self._lock:
            for dataset in [known for known in self.datasets() if not known.complete]:
                part, busy = self._part(dataset), dataset.key in self._busy
                if not busy and (not part.exists() or part.stat().st_mtime < limit):
                    self.forget_upload(dataset)

    def sweep_uploads(self) -> None:
        """At the start of a party: parts that no record names, or that were not removed when they were complete."""
        for folder in self._folders:
            folder.sweep()
        known = {self._part(dataset) for dataset in self.datasets() if not dataset.complete}
        for path in (self.folder / "datasets").rglob("*.part"):
            if path not in known:
                path.unlink(missing_ok=True)

    def _require_for(self, dataset: StoredDataset, here: int, end: int, what: str) -> None:
        """StorageFull unless an upload can grow from some bytes to more, and then be written once more."""
        again = max(end, 8 * dataset.words)
        if self._kept_in is self._folders[-1]:
            self.require(end - here + again, f"{what}, while it is written once more,")
        else:
            self.require(end - here, what)
            self._kept_in.require(again, what)

    def require(self, size: int, what: str) -> None:
        """StorageFull unless there is room; uploads that broke off give way."""
        try:
            self.room.require(size, what)
        except StorageFull:
            self.forget_silent(SILENT_S)
            self.room.require(size, what)


def _groups(part: Path, dataset: StoredDataset) -> Iterator[Array]:
    """The rows of a whole upload, group by group."""
    shape = dataset.shape
    widths = [dataset.width] if dataset.by_rows else [dataset.features, dataset.outputs]
    with ExitStack() as stack:
        files = [stack.enter_context(part.open("rb")) for _ in widths]
        files[-1].seek(8 * dataset.rows * sum(widths[:-1]))
        for number in range(shape.groups):
            rows = shape.length(number)
            pieces = [
                np.fromfile(file, "<u8", rows * width).reshape(rows, width)
                for file, width in zip(files, widths, strict=True)
            ]
            yield np.hstack(pieces)
