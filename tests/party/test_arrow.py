"""A party's share of a data set as an Arrow file: any row without the others, and damage by name."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from pyarrow.fs import LocalFileSystem

from hdcos.errors import DataDamaged, DataMissing, PeerLost
from hdcos.party import arrow
from hdcos.party.arrow import FetchedFile, MappedFile, Shape, write_rows

GENERATOR = np.random.default_rng(5)


def words(shape: Shape):
    return GENERATOR.integers(0, 1 << 64, (shape.rows, shape.width), dtype=np.uint64, endpoint=False)


def written(path, shape, rows):
    with path.open("wb") as file:
        write_rows(file, shape, np.split(rows, range(shape.group, shape.rows, shape.group)))
    return path


def fetched(path, shape):
    return FetchedFile(LocalFileSystem(), str(path), shape)


@pytest.mark.parametrize("opened", [MappedFile, fetched])
@pytest.mark.parametrize(("rows", "width"), [(1, 1), (1024, 3), (5000, 29), (700, 600), (3, 200_000)])
def test_any_rows_can_be_taken_in_any_order(tmp_path, opened, rows, width) -> None:
    shape = Shape(rows, width - 1, width)
    share = words(shape)
    source = opened(written(tmp_path / "rows.arrow", shape, share), shape)
    assert source.shape == share.shape
    for count in (1, 17, rows):
        taken = GENERATOR.integers(0, rows, count)
        assert np.array_equal(source.take(taken), share[taken])
    assert np.array_equal(source.take(np.arange(rows, dtype=np.uint32)), share)


def test_the_file_is_what_every_reader_of_arrow_reads(tmp_path) -> None:
    shape = Shape(3000, 28, 29)
    share = words(shape)
    path = written(tmp_path / "rows.arrow", shape, share)
    with pa.ipc.open_file(path) as reader:
        table = reader.read_all()
        assert reader.num_record_batches == 3
    assert table.schema.field("row").type == pa.list_(pa.field("word", pa.uint64(), nullable=False), 29)
    assert np.array_equal(table["row"].combine_chunks().flatten().to_numpy().reshape(-1, 29), share)


@pytest.mark.parametrize("opened", [MappedFile, fetched])
def test_a_damaged_row_group_is_named_and_others_can_be_used(tmp_path, opened) -> None:
    shape = Shape(3000, 28, 29)
    share = words(shape)
    path = written(tmp_path / "rows.arrow", shape, share)
    content = bytearray(path.read_bytes())
    place = content.index(share[1500].tobytes())
    content[place + 100] ^= 1
    path.write_bytes(content)
    source = opened(path, shape)
    assert np.array_equal(source.take(np.array([0, 2999])), share[[0, 2999]])
    with pytest.raises(DataDamaged, match=r"row group 1 of .*rows\.arrow is damaged: rows 1024 to 2047 .*Restore"):
        source.take(np.array([0, 1100]))
    assert np.array_equal(source.take(np.array([1023, 2048])), share[[1023, 2048]])


@pytest.mark.parametrize("opened", [MappedFile, fetched])
def test_whatever_byte_is_changed_rows_are_right_or_the_damage_has_a_name(tmp_path, opened) -> None:
    shape = Shape(40, 2, 3)
    share = words(shape)
    path = written(tmp_path / "rows.arrow", shape, share)
    content = path.read_bytes()
    right = 0
    for place in range(0, len(content), 1 if opened is MappedFile else 7):
        path.write_bytes(content[:place] + bytes([content[place] ^ 0x41]) + content[place + 1 :])
        try:
            assert np.array_equal(opened(path, shape).take(np.arange(40)), share), place
            right += 1
        except (DataDamaged, PeerLost):
            continue
    assert right < len(content) / 2, "padding, magic numbers and names of fields may change"


@pytest.mark.parametrize("opened", [MappedFile, fetched])
def test_a_file_that_is_cut_off_another_or_gone_has_a_name(tmp_path, opened) -> None:
    shape = Shape(3000, 28, 29)
    path = written(tmp_path / "rows.arrow", shape, words(shape))
    content = path.read_bytes()
    for wrong in (b"", content[:-1], content[:1000], b"x" * 5000):
        path.write_bytes(wrong)
        with pytest.raises((DataDamaged, PeerLost)):
            opened(path, shape).take(np.arange(3000))
    path.write_bytes(content)
    for other in (Shape(2999, 28, 29), Shape(3000, 27, 29), Shape(3000, 28, 30)):
        with pytest.raises(DataDamaged):
            opened(path, other).take(np.arange(1))
    path.unlink()
    with pytest.raises(DataMissing, match="is gone"):
        opened(path, shape)


def test_groups_that_were_fetched_are_kept_as_far_as_there_is_room(tmp_path, monkeypatch) -> None:
    shape = Shape(20_000, 28, 29)
    share = words(shape)
    path = written(tmp_path / "rows.arrow", shape, share)
    monkeypatch.setattr(arrow, "KEPT_BYTES", 10 * 8 * 1024 * 29)
    source = fetched(path, shape)
    reads = []
    fetch = source._fetch
    monkeypatch.setattr(source, "_fetch", lambda number: reads.append(number) or fetch(number))
    for first in range(0, 8192, 512):
        source.take(np.arange(first, first + 512))
    assert sorted(reads) == list(range(8)), "rows in order: each group is fetched once"
    assert np.array_equal(source.take(np.arange(20_000)), share)
    assert len(source._kept) <= 10
    assert source.resident_words == 18 * 1024 * 29


def test_what_a_writer_left_that_broke_off_is_not_taken_for_the_data_set(tmp_path) -> None:
    def broken():
        yield np.zeros((1024, 29), np.uint64)
        raise RuntimeError("the disk is gone")

    shape, path = Shape(3000, 28, 29), tmp_path / "rows.arrow"
    with path.open("wb") as file, pytest.raises(RuntimeError, match="the disk is gone"):
        write_rows(file, shape, broken())
    with pytest.raises(DataDamaged, match="has 1 row groups, not 3"):
        MappedFile(path, shape)
