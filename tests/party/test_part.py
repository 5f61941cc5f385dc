"""Uploads are written once: what comes row by row lies in the Arrow file that it becomes, whatever happens."""

from __future__ import annotations

import errno
import hashlib
import io
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from hdcos.errors import DataDamaged, InputError, StorageFull
from hdcos.party import arrow
from hdcos.party.arrow import MappedFile, Shape, write_rows
from hdcos.party.dataset_folder import LocalFolder
from hdcos.party.part import AS_IT_CAME, Part, Spacing, spacing_of
from hdcos.party.store import Store, StoredDataset

DATASET = StoredDataset("d", "0" * 32, 0, 3, 1, False, "me", None, True)
ROWS = np.random.default_rng(1).integers(0, 1 << 64, (2500, 4), dtype=np.uint64, endpoint=False)
CONTENT, DIGEST = ROWS.tobytes(), hashlib.sha256(ROWS.tobytes()).hexdigest()


class Died(BaseException):
    """Nothing after it happens."""


@pytest.fixture
def store(tmp_path):
    opened = Store(tmp_path / "state")
    opened.begin_dataset(DATASET, 1e9)
    yield opened
    opened.close()


def again(store: Store) -> Store:
    """The store as the next process finds it."""
    store.close()
    opened = Store(store.folder)
    opened.sweep_uploads()
    return opened


def add(store: Store, *ends: int) -> None:
    """Bytes up to each of these."""
    for end in ends:
        here = store.received(DATASET)
        assert store.add_bytes(DATASET, here, CONTENT[here:end]) == end


def check_whole(store: Store) -> None:
    (whole,) = store.datasets()
    assert (whole.complete, whole.rows) == (True, len(ROWS))
    assert np.array_equal(store.dataset_rows(whole).take(np.arange(len(ROWS))), ROWS)
    assert sorted(path.name for path in (store.folder / "datasets" / "d").iterdir()) == [f"{'0' * 32}.arrow"]


@pytest.mark.parametrize("rows", [1, 1023, 1024, 1025, 2048, 2500])
@pytest.mark.parametrize(("features", "width"), [(1, 1), (3, 4), (28, 29)])
def test_the_file_is_word_for_word_what_writing_all_at_once_gives(tmp_path, rows, features, width) -> None:
    words = np.random.default_rng(rows).integers(0, 1 << 64, (rows, width), dtype=np.uint64, endpoint=False)
    content, shape, known = words.tobytes(), Shape(rows, features, width), spacing_of(features, width)
    arriving, here = Part(tmp_path / "d.part", [width], known), 0
    arriving.path.touch()
    for piece in (5, 8, 8 * width * 1023, 8 * width * 1024 + 3, len(content)):  # in the middle of words and groups
        new = content[here : here + piece]
        arriving.write(here, new)
        arriving.note(here, new)
        here += len(new)
        assert known.held(arriving.path.stat().st_size) == here
    assert arriving.digest(here) == hashlib.sha256(content).hexdigest()
    assert np.array_equal(np.vstack(list(arriving.groups(shape))), words)
    sink = io.BytesIO()
    write_rows(sink, shape, [words[start : start + shape.group] for start in range(0, rows, shape.group)])
    for _ in range(2):  # done again, it is what it was
        arriving.finish(shape)
        assert arriving.path.read_bytes() == sink.getvalue()
    assert known.room(len(content)) >= len(sink.getvalue())
    assert np.array_equal(MappedFile(arriving.path, shape).take(np.arange(rows)), words)


def test_the_bytes_of_rows_are_written_once(store, monkeypatch) -> None:
    add(store, 30_000, len(CONTENT))
    before = (store.folder / "datasets" / "d" / f"{DATASET.version}.part").stat().st_ino
    monkeypatch.setattr(Part, "_take_in", None)  # nor read again
    store.complete_dataset(DATASET, DIGEST)
    assert (store.folder / "datasets" / "d" / f"{DATASET.version}.arrow").stat().st_ino == before
    check_whole(store)


def test_room_for_rows_that_lie_where_they_stay_is_needed_once(store) -> None:
    known, asked = StoredDataset("e", "1" * 32, 100_000, 3, 1, False, "me", None, True), []
    store.room.require = lambda size, what: asked.append((size, what))
    store.begin_dataset(known, 1e9)
    ((size, what),) = asked
    assert 3_200_000 <= size < 1.05 * 3_200_000
    assert what == "this party's share of e"


def test_longer_rows_than_a_group_should_be_are_written_once_more(store) -> None:
    assert spacing_of(1 << 24, 1 << 25) == AS_IT_CAME, "of which nothing is tried: a client asks for it"
    words = np.arange(2 * 140_000, dtype=np.uint64).reshape(2, 140_000)
    long = replace(DATASET, name="long", features=140_000, outputs=0)
    store.begin_dataset(long, 1e9)
    store.add_bytes(long, 0, words.tobytes())
    store.complete_dataset(long, hashlib.sha256(words.tobytes()).hexdigest())
    (kept,) = store.datasets("long")
    assert np.array_equal(store.dataset_rows(kept).take(np.arange(2)), words)


def test_an_upload_goes_on_after_its_process_died(store) -> None:
    add(store, 7, 50_001)
    store = again(store)
    assert store.received(DATASET) == 50_001
    add(store, len(CONTENT))
    store.complete_dataset(DATASET, DIGEST)
    check_whole(store)


def test_what_came_already_may_come_again_and_is_not_looked_at(store) -> None:
    add(store, 40_000)
    assert store.add_bytes(DATASET, 39_000, CONTENT[39_000:45_000]) == 45_000
    assert store.add_bytes(DATASET, 100, CONTENT[100:200]) == 45_000
    with pytest.raises(InputError, match="45000 bytes of d are here: go on from there, not from 45001"):
        store.add_bytes(DATASET, 45_001, b"x")
    add(store, len(CONTENT))
    store.complete_dataset(DATASET, DIGEST)
    check_whole(store)


@pytest.mark.parametrize(("kind", "name"), [(Part, "finish"), (LocalFolder, "take")])
def test_an_upload_whose_process_dies_while_it_is_completed_is_completed_again(store, monkeypatch, kind, name) -> None:
    """The file has its footer, or its new name already, and nobody knows."""
    add(store, len(CONTENT))
    usual = getattr(kind, name)

    def die(*known):
        usual(*known)
        raise Died

    with monkeypatch.context() as dying:
        dying.setattr(kind, name, die)
        with pytest.raises(Died):
            store.complete_dataset(DATASET, DIGEST)
    store = again(store)
    (begun,) = store.datasets()
    assert (begun.complete, store.received(begun)) == (False, len(CONTENT)), "a footer is no row"
    store.complete_dataset(begun, DIGEST)
    check_whole(store)


def test_a_part_that_became_a_data_set_which_nobody_could_be_told_of_is_a_part_again(store, monkeypatch) -> None:
    add(store, len(CONTENT))
    changing, left = Store._changing, [1]

    @contextmanager
    def full(self, *known, **more):
        with changing(self, *known, **more) as database:
            yield database
            if not known and not more:  # what says that it is complete
                for _ in left:
                    raise StorageFull("the disk is full")

    monkeypatch.setattr(Store, "_changing", full)
    with pytest.raises(StorageFull):
        store.complete_dataset(DATASET, DIGEST)
    (begun,) = store.datasets()
    assert (begun.complete, store.received(begun)) == (False, len(CONTENT))
    left.clear()
    store.complete_dataset(begun, DIGEST)
    check_whole(store)


def test_a_piece_that_the_disk_has_no_room_for_leaves_what_was_there(store, monkeypatch) -> None:
    add(store, 40_000)
    length = store._part(DATASET).stat().st_size
    write = Spacing.spans

    def full(self, start, end):  # behind the first of two groups
        yield next(write(self, start, end))
        raise OSError(errno.ENOSPC, "no room")

    with monkeypatch.context() as lacking:
        lacking.setattr(Spacing, "spans", full)
        with pytest.raises(StorageFull, match="is full"):
            store.add_bytes(DATASET, 40_000, CONTENT[40_000:])
    assert (store.received(DATASET), store._part(DATASET).stat().st_size) == (40_000, length)
    add(store, len(CONTENT))
    store.complete_dataset(DATASET, DIGEST)
    check_whole(store)


def test_parts_are_known_until_they_are_complete_or_gone(store) -> None:
    add(store, 40_000)
    for number in range(20):
        with pytest.raises(InputError):
            store.begin_dataset(DATASET, 1e9)
        other = replace(DATASET, name=f"e{number}")
        store.begin_dataset(other, 1e9)
        store.add_bytes(other, 0, CONTENT[:100])
        store.remove([other])
    assert list(store._parts) == [DATASET.key]
    add(store, len(CONTENT))
    store.complete_dataset(DATASET, DIGEST)
    assert not store._parts


def test_files_of_the_first_version_of_the_format_are_read(tmp_path, monkeypatch) -> None:
    """It wrote the number of rows without zeros in front of it."""
    shape, path = Shape(2500, 3, 4), tmp_path / "d.arrow"
    monkeypatch.setattr(arrow, "VERSION", "1")
    monkeypatch.setattr(arrow, "DIGITS", 0)
    with path.open("wb") as file:
        write_rows(file, shape, np.split(ROWS, [1024, 2048]))
    monkeypatch.undo()
    assert np.array_equal(MappedFile(path, shape).take(np.arange(2500)), ROWS)
    monkeypatch.setattr(arrow, "VERSION", "3")
    with path.open("wb") as file:
        write_rows(file, shape, np.split(ROWS, [1024, 2048]))
    with pytest.raises(DataDamaged, match="is not the file that was written"):
        MappedFile(path, shape)
