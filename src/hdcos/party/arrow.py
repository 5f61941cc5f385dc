"""This party's share of a data set as an Arrow IPC file: rows in groups, each with a checksum of its own.

Schema     one column `row`, a fixed-size list of uint64 (features, then targets), nothing null. Its metadata has the
           format, its version, and how many rows there are, words of a row that are features, and rows of a group.
Groups     record batches, uncompressed: uniform words do not compress. All have as many rows but the last
           (`secure.training.shuffle.block_rows`), and the CRC-32 of their words as custom metadata.

A file on a disk of this machine is mapped and rows are copied out of it. Of a file elsewhere whole groups are fetched,
and the last KEPT_BYTES of them stay in memory. Either way a group is checked before its first row is used; what is not
as it was written is DataDamaged, by number. pyarrow is imported when the first file is opened: clients do without.

Security  a checksum tells damage, not tampering: the file is this party's own share, which it may compute on as it
          likes. The words alone are uniform, so a file says how large a data set is, and nothing else.
"""

from __future__ import annotations

import zlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import local
from typing import Any

import numpy as np

from hdcos.errors import DataDamaged, DataMissing, HdcosError, InputError, PeerLost
from hdcos.party.mapped import MappedWords
from hdcos.ring import Array
from hdcos.secure.training.shuffle import block_rows

FORMAT, VERSION = "hdcos-rows", "2"
READ = ("1", VERSION)
"""Versions of the format that are read. The first wrote the number of rows with as many digits as it has."""
DIGITS = 15
"""Of the number of rows, always as many: where groups begin does not depend on how many there will be."""
KEPT_BYTES = 1 << 27
"""Of groups that were fetched: those that a shuffle by blocks mixes, twice."""
FETCHES = 8
"""Groups that are fetched at once."""


@dataclass(frozen=True)
class Shape:
    """How the rows of a file lie."""

    rows: int
    features: int
    width: int

    @property
    def group(self) -> int:
        return block_rows(self.width)

    @property
    def groups(self) -> int:
        return -(-self.rows // self.group)

    def length(self, group: int) -> int:
        return min(self.group, self.rows - group * self.group)


def pyarrow() -> Any:
    """The package, imported by what reads or writes the first file."""
    try:
        import pyarrow
    except ImportError:
        raise InputError("a party keeps data sets with pyarrow: pip install 'hdcos[server]'") from None
    return pyarrow


def write_rows(sink: Any, shape: Shape, groups: Iterable[Array]) -> None:
    """Write all rows, group by group, to a file that is open for writing."""
    flat = (np.ascontiguousarray(words).reshape(-1) for words in groups)
    write_groups(sink, shape, ((words, zlib.crc32(words.data)) for words in flat))


def write_groups(sink: Any, shape: Shape, groups: Iterable[tuple[Array, int]]) -> None:
    """The same of groups whose checksums are known."""
    pa = pyarrow()

    item = pa.field("word", pa.uint64(), nullable=False)
    known = {"format": FORMAT, "version": VERSION, "features": shape.features, "group": shape.group}
    schema = pa.schema(
        [pa.field("row", pa.list_(item, shape.width), nullable=False)],
        metadata={name: str(value) for name, value in known.items()} | {"rows": f"{shape.rows:0{DIGITS}d}"},
    )
    with pa.ipc.new_file(sink, schema) as writer:
        for words, known_sum in groups:
            rows = pa.FixedSizeListArray.from_arrays(pa.array(words, pa.uint64()), type=schema.field("row").type)
            checksum = {"crc32": f"{known_sum:08x}"}
            writer.write_batch(pa.RecordBatch.from_arrays([rows], schema=schema), custom_metadata=checksum)


def group_starts(shape: Shape) -> list[int]:
    """Where the words of each group begin in a file of this shape."""
    pa = pyarrow()

    sink = pa.BufferOutputStream()
    nothing = np.zeros(shape.group * shape.width, np.uint64)
    write_groups(sink, shape, ((nothing[: shape.length(i) * shape.width], 0) for i in range(shape.groups)))
    content = sink.getvalue()
    groups = _Groups(content, "a sample", shape)
    return [int(groups.locate(number)[0].address - content.address) for number in range(shape.groups)]


class _Groups:
    """The groups of an open file, checked as they are read."""

    def __init__(self, source: Any, name: str, shape: Shape, unread: type[HdcosError] = DataDamaged) -> None:
        pa = pyarrow()

        self._name, self._shape, self._unread = name, shape, unread
        with self._damage_named("its footer"):
            self._reader = pa.ipc.open_file(source)
            found = {key.decode(): value.decode() for key, value in (self._reader.schema.metadata or {}).items()}
            rows, version = int(found.get("rows", -1)), found.get("version")
            told = (found.get("format"), found.get("features"), found.get("group"))
            known = (FORMAT, str(shape.features), str(shape.group))
            if (rows, told) != (shape.rows, known) or version not in READ:
                raise DataDamaged(f"{name} is not the file that was written: it says {found}. {REMEDY}")
            if self._reader.num_record_batches != shape.groups:
                raise DataDamaged(
                    f"{name} has {self._reader.num_record_batches} row groups, not {shape.groups}. {REMEDY}"
                )

    @contextmanager
    def _damage_named(self, what: str) -> Iterator[None]:
        pa = pyarrow()

        try:
            yield
        except OSError as error:
            raise self._unread(f"{self._name} cannot be read at {what} ({error}). {REMEDY}") from error
        except (pa.ArrowException, ValueError, KeyError) as error:
            raise DataDamaged(f"{self._name} is damaged at {what} ({error}). {REMEDY}") from error

    def locate(self, number: int) -> tuple[Any, int]:
        """The buffer with the words of a group, and the checksum that they should have."""
        length = self._shape.length(number)
        with self._damage_named(f"row group {number}"):
            batch, metadata = self._reader.get_batch_with_custom_metadata(number)
            column = batch.column(0)
            if len(column) != length or column.offset or column.null_count:
                raise ValueError(f"{len(column)} rows, not {length}")
            words = column.flatten().buffers()[1]
            if words.size < 8 * length * self._shape.width:
                raise ValueError(f"{words.size} bytes")
            return words, int((metadata or {})[b"crc32"].decode(), 16)

    def check(self, number: int, words: Any, checksum: int) -> None:
        if zlib.crc32(words) != checksum:
            first = number * self._shape.group
            raise DataDamaged(
                f"row group {number} of {self._name} is damaged: rows {first} to "
                f"{first + self._shape.length(number) - 1} are not as they were written. {REMEDY}"
            )


REMEDY = (
    "Restore this party's state from the backup that belongs to the other party's, or have its owner forget the data "
    "set and upload it again"
)


class MappedFile:
    """Rows of an Arrow file on this machine."""

    def __init__(self, path: Path, shape: Shape) -> None:
        pa = pyarrow()

        try:
            with path.open("rb") as file:
                self._file = MappedWords(file)
        except FileNotFoundError:
            raise DataMissing(f"{path} is gone. {REMEDY}") from None
        except (OSError, ValueError) as error:
            raise DataDamaged(f"{path} cannot be read ({error}). {REMEDY}") from error
        content = pa.py_buffer(self._file.content)
        self._groups, self._shape, self._address = _Groups(content, str(path), shape), shape, content.address
        self._starts = np.full(shape.groups, -1, np.int64)
        """The word that each group begins with, once it was checked."""

    @property
    def shape(self) -> tuple[int, int]:
        return self._shape.rows, self._shape.width

    @property
    def resident_words(self) -> int:
        return self._file.resident_words + self._starts.size

    def take(self, rows: Array) -> Array:
        groups, places = np.divmod(rows.astype(np.int64), self._shape.group)
        for number in np.unique(groups[self._starts[groups] < 0]):
            self._check(int(number))
        return self._file.take(self._starts[groups] + places * self._shape.width, self._shape.width)

    def _check(self, number: int) -> None:
        words, checksum = self._groups.locate(number)
        start, odd = divmod(words.address - self._address, 8)
        if odd:
            raise DataDamaged(f"row group {number} does not begin with a whole word. {REMEDY}")
        end = start + self._shape.length(number) * self._shape.width
        self._file.fetch(start, end)
        with self._file.looking(start, end) as content:
            self._groups.check(number, content, checksum)
        self._starts[number] = start


class FetchedFile:
    """Rows of an Arrow file elsewhere, of any file system that pyarrow opens."""

    def __init__(self, files: Any, path: str, shape: Shape) -> None:
        self._files, self._path, self._shape = files, path, shape
        self._threads, self._own = ThreadPoolExecutor(FETCHES, thread_name_prefix="rows"), local()
        self._kept: OrderedDict[int, Array] = OrderedDict()
        self._threads.submit(self._opened).result()  # what is not there, or damaged, is told at once

    @property
    def shape(self) -> tuple[int, int]:
        return self._shape.rows, self._shape.width

    @property
    def _most(self) -> int:
        """Groups that are kept."""
        return max(FETCHES, KEPT_BYTES // (8 * self._shape.group * self._shape.width))

    @property
    def resident_words(self) -> int:
        return self._shape.width * min(self._shape.rows, (self._most + FETCHES) * self._shape.group)

    def take(self, rows: Array) -> Array:
        groups, places = np.divmod(rows.astype(np.int64), self._shape.group)
        taken = np.empty((len(rows), self._shape.width), np.uint64)
        wanted = np.unique(groups).tolist()
        for first in range(0, len(wanted), FETCHES):
            some = wanted[first : first + FETCHES]
            missing = [number for number in some if number not in self._kept]
            self._kept.update(zip(missing, self._threads.map(self._fetch, missing), strict=True))
            for number in some:
                self._kept.move_to_end(number)
                mine = groups == number
                taken[mine] = self._kept[number][places[mine]]
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)
        return taken

    def _opened(self) -> _Groups:
        """The file as this thread has it open."""
        if not hasattr(self._own, "groups"):
            try:
                source = self._files.open_input_file(self._path)
            except FileNotFoundError:
                raise DataMissing(f"{self._path} is gone. {REMEDY}") from None
            except OSError as error:
                raise PeerLost(f"{self._path} cannot be reached ({error}): the run goes on when it can") from error
            # What fails there may go well another time: the session begins again, and the run where it was.
            self._own.groups = _Groups(source, self._path, self._shape, PeerLost)
        groups: _Groups = self._own.groups
        return groups

    def _fetch(self, number: int) -> Array:
        groups, length = self._opened(), self._shape.length(number)
        content, checksum = groups.locate(number)
        words: Array = np.frombuffer(content, np.uint64, length * self._shape.width)
        groups.check(number, words.data, checksum)
        return words.reshape(length, self._shape.width)
