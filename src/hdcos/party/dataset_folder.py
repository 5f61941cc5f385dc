"""Where a party keeps complete data sets: a folder of this machine, or what [storage] datasets in node.toml names.

FOLDER/NAME/VERSION.arrow          as `arrow` describes it
FOLDER/NAME/VERSION.safetensors    what releases before 0.3 wrote: read as it is, mapped, without checksums

A folder of this machine is a path or file://...; anything else (s3://, gs://, hdfs://, and through fsspec whatever that
knows) is reached by pyarrow, with the rights that the environment of the party gives it.

Security  every file is one party's share: alone it is uniform words. The two parties must not use one bucket, nor two
          that one provider could join: both shares together are the data. Local folders and files are their owner's
          only, whatever the umask; who may read a bucket is its operator's business.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterable
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any, BinaryIO, Protocol
from urllib.parse import unquote, urlsplit

from hdcos.errors import DataDamaged, InputError, PeerLost
from hdcos.files import new_file, private_folder, remove_empty, replace_whole, sync_folder
from hdcos.party.arrow import REMEDY, FetchedFile, MappedFile, Shape, pyarrow, write_rows
from hdcos.party.database import Room
from hdcos.party.mapped import MappedRows, MappedWords
from hdcos.party.rows import RowSource, SideBySide
from hdcos.ring import Array


class DatasetFolder(Protocol):
    """Complete data sets by name and version."""

    @property
    def where(self) -> str:
        """What `dataset_folder` makes it of, on any machine that reaches it."""

    def require(self, size: int, what: str) -> None:
        """StorageFull unless there is room, where that is known."""

    def holds(self, name: str, version: str) -> bool: ...
    def write(self, name: str, version: str, shape: Shape, groups: Iterable[Array]) -> None:
        """Keep a data set: whole, or not at all."""

    def open(self, name: str, version: str, shape: Shape) -> RowSource: ...
    def forget(self, name: str, version: str) -> None: ...
    def sweep(self) -> None:
        """Remove what a process that died was writing."""


def dataset_folder(where: str, node: Path) -> DatasetFolder:
    """What the operator named; a path that is not absolute begins in the node's folder."""
    parts = urlsplit(where)
    if parts.scheme in ("", "file"):
        return LocalFolder(node / (unquote(parts.path) if parts.scheme else where))
    return RemoteFolder(where)


class LocalFolder:
    """A folder of this machine."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._making = folder, Lock()

    @property
    def where(self) -> str:
        return str(self._folder.absolute())

    def _path(self, name: str, version: str) -> Path:
        return self._folder / name / f"{version}.arrow"

    def require(self, size: int, what: str) -> None:
        Room(private_folder(self._folder)).require(size, what)

    def holds(self, name: str, version: str) -> bool:
        path = self._path(name, version)
        return path.exists() or path.with_suffix(".safetensors").exists()

    def write(self, name: str, version: str, shape: Shape, groups: Iterable[Array]) -> None:
        target = self._path(name, version)
        with replace_whole(target, self.new_file) as file:
            write_rows(file, shape, groups)

    def take(self, file: Path, name: str, version: str) -> Path:
        """Keep a file of this folder, whole and on the disk, as a data set; where it is now."""
        target = file.replace(self._path(name, version))
        sync_folder(target.parent)
        return target

    def give_back(self, file: Path, name: str, version: str) -> None:
        """What a process took that died before it could say so."""
        if not file.exists() and self._path(name, version).exists():
            self._path(name, version).replace(file)

    def new_file(self, path: Path) -> BinaryIO:
        """A new file in a folder that nobody removes for being empty meanwhile."""
        with self._making:
            private_folder(path.parent)
            return new_file(path)

    def open(self, name: str, version: str, shape: Shape) -> RowSource:
        path = self._path(name, version)
        older = path.with_suffix(".safetensors")
        return _open_older(older, shape) if older.exists() and not path.exists() else MappedFile(path, shape)

    def forget(self, name: str, version: str) -> None:
        path = self._path(name, version)
        for file in (path, path.with_suffix(".safetensors")):
            file.unlink(missing_ok=True)
        self.tidy(path.parent)

    def tidy(self, folder: Path) -> None:
        """Remove the folder of a name that nothing is kept of any more."""
        with self._making:
            remove_empty(folder)

    def sweep(self) -> None:
        for path in self._folder.glob("*/.*.tmp"):
            path.unlink(missing_ok=True)

    def forget_others(self, named: Container[tuple[str, str]]) -> list[Path]:
        """Remove the files of all data sets but these, and say which they were."""
        files = [path for kind in ("arrow", "safetensors") for path in self._folder.glob(f"*/*.{kind}")]
        others = [path for path in files if (path.parent.name, path.stem) not in named]
        for path in others:
            path.unlink(missing_ok=True)
            self.tidy(path.parent)
        return others


class RemoteFolder:
    """A folder of a file system that pyarrow, or fsspec, reaches by its address."""

    def __init__(self, address: str) -> None:
        pa = pyarrow()
        from pyarrow.fs import FileSystem

        self._address = address
        try:
            self._files, self._folder = FileSystem.from_uri(address)
        except pa.ArrowInvalid:
            self._files, self._folder = _through_fsspec(address)
        except (OSError, ValueError, NotImplementedError) as error:
            raise InputError(f"[storage] datasets: {address} cannot be used: {error}") from error

    @property
    def where(self) -> str:
        return self._address

    def _path(self, name: str, version: str) -> str:
        return f"{self._folder.rstrip('/')}/{name}/{version}.arrow"

    def require(self, size: int, what: str) -> None:
        """Nobody knows how much room is left there."""

    def holds(self, name: str, version: str) -> bool:
        from pyarrow.fs import FileType

        try:
            return bool(self._files.get_file_info(self._path(name, version)).type == FileType.File)
        except OSError as error:
            raise self._lost(error) from error

    def write(self, name: str, version: str, shape: Shape, groups: Iterable[Array]) -> None:
        path = self._path(name, version)
        try:
            self._files.create_dir(path.rpartition("/")[0], recursive=True)
            with self._files.open_output_stream(path) as sink:
                write_rows(sink, shape, groups)
        except BaseException as error:
            with suppress(OSError):  # a piece of it may be there, which no record names
                self._files.delete_file(path)
            if isinstance(error, OSError):
                raise self._lost(error) from error
            raise

    def open(self, name: str, version: str, shape: Shape) -> RowSource:
        return FetchedFile(self._files, self._path(name, version), shape)

    def forget(self, name: str, version: str) -> None:
        try:
            self._files.delete_file(self._path(name, version))
        except FileNotFoundError:
            return
        except OSError as error:
            raise self._lost(error) from error

    def sweep(self) -> None:
        """A file appears when it is whole; what was left of one is written over when its upload is completed again."""

    def _lost(self, error: OSError) -> PeerLost:
        return PeerLost(f"{self._address}, where this party keeps data sets, does not answer ({error}): try again")


def _through_fsspec(address: str) -> tuple[Any, str]:
    try:
        from fsspec.core import url_to_fs
        from pyarrow.fs import FSSpecHandler, PyFileSystem

        files, folder = url_to_fs(address)
    except (ImportError, ValueError) as error:
        raise InputError(
            f"[storage] datasets: neither pyarrow nor fsspec knows how to reach {address} ({error}): name a folder or "
            f"another address, or install what fsspec wants for it"
        ) from error
    return PyFileSystem(FSSpecHandler(files)), folder


def _open_older(path: Path, shape: Shape) -> RowSource:
    """A safetensors file, whose features and targets lie behind each other."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(min(length, 1 << 20)))
            words = MappedWords(file)
        wanted = {"x": (shape.rows, shape.features), "targets": (shape.rows, shape.width - shape.features)}
        parts = []
        for name in ("x", "targets") if wanted["targets"][1] else ("x",):
            start, end = header[name]["data_offsets"]
            if tuple(header[name]["shape"]) != wanted[name] or 8 + length + end > 8 * words.words.size or length % 8:
                raise ValueError(f"{name} has another shape or is cut off")
            parts.append(MappedRows(words, (8 + length + start) // 8, wanted[name]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataDamaged(f"{path} cannot be read ({error}). {REMEDY}") from error
    return parts[0] if len(parts) == 1 else SideBySide(parts)
