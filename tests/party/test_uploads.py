"""Uploads become data sets: in either order of bytes, of a length that is told or not, here or far away."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from concurrent.futures import ThreadPoolExecutor

import fsspec
import numpy as np
import pytest

from hdcos.errors import DataDamaged, DataMissing, InputError, PeerLost, PolicyRefused
from hdcos.party.config import TEMPLATE, Config
from hdcos.party.database import MIGRATIONS, migrate
from hdcos.party.store import Store, StoredDataset, open_state

GENERATOR = np.random.default_rng(1)
ROWS = GENERATOR.integers(0, 1 << 64, (2500, 4), dtype=np.uint64, endpoint=False)
ALL, CONTENT = np.arange(len(ROWS)), ROWS.tobytes()


def send(store, name="d", rows=0, by_rows=True, content=CONTENT, version="0" * 32, piece=10_000):
    dataset = StoredDataset(name, version, rows, 3, 1, False, "me", None, by_rows)
    store.begin_dataset(dataset, 1e9)
    for start in range(0, len(content), piece):
        store.add_bytes(dataset, start, content[start : start + piece])
    store.complete_dataset(dataset, hashlib.sha256(content).hexdigest())
    return next(known for known in store.datasets(name) if known.version == version)


@pytest.fixture
def store(tmp_path):
    opened = Store(tmp_path / "state")
    yield opened
    opened.close()


def test_rows_come_one_by_one_or_all_features_first(store, tmp_path) -> None:
    by_rows = send(store)
    assert (by_rows.rows, by_rows.complete) == (2500, True), "the bytes tell how many rows there are"
    columns = ROWS[:, :3].tobytes() + ROWS[:, 3:].tobytes()
    others = [send(store, "e", 2500, True), send(store, "f", 2500, False, columns)]
    for dataset in (by_rows, *others):
        assert np.array_equal(store.dataset_rows(dataset).take(ALL), ROWS)
    held = sorted(path.name for path in (tmp_path / "state" / "datasets").rglob("*") if path.is_file())
    assert held == [f"{'0' * 32}.arrow"] * 3
    store.forget_dataset("e")
    with pytest.raises(DataMissing, match=r"the file of e, .* is gone"):
        store.dataset_rows(others[0])


def test_what_cannot_be_rows_is_refused(store) -> None:
    with pytest.raises(InputError, match="say how many rows"):
        store.begin_dataset(StoredDataset("d", "0" * 32, 0, 3, 1, False, "me"), 1e9)
    with pytest.raises(InputError, match="79998 of a multiple of 32 bytes"):
        send(store, content=CONTENT[:-2])
    with pytest.raises(InputError, match="0 of a multiple of 32 bytes"):
        send(store, content=b"", version="1" * 32)
    dataset = store.datasets("d")[0]
    store.add_bytes(dataset, 79998, CONTENT[-2:])
    with pytest.raises(InputError, match="another hash"):
        store.complete_dataset(dataset, "0" * 64)
    store.complete_dataset(dataset, hashlib.sha256(CONTENT).hexdigest())
    (whole,) = [known for known in store.datasets("d") if known.complete]
    assert np.array_equal(store.dataset_rows(whole).take(ALL), ROWS), "nothing was lost by that"


def test_an_owner_keeps_no_more_than_allowed_though_nobody_said_how_much_would_come(store) -> None:
    send(store)
    dataset = StoredDataset("more", "1" * 32, 0, 3, 1, False, "me", None, True)
    store.begin_dataset(dataset, 100_000)
    assert store.add_bytes(dataset, 0, bytes(16_000), 100_000) == 16_000
    with pytest.raises(PolicyRefused, match=r"may keep 0\.0001 GB"):
        store.add_bytes(dataset, 16_000, bytes(16_000), 100_000)
    again = StoredDataset("again", "0" * 32, 0, 3, 1, False, "me", None, True)  # a version that "d" has too
    store.begin_dataset(again, 100_000)
    with pytest.raises(PolicyRefused):
        store.add_bytes(again, 0, bytes(16_000), 100_000)
    other = StoredDataset("others", "2" * 32, 0, 3, 1, False, "you", None, True)
    store.begin_dataset(other, 100_000)
    assert store.add_bytes(other, 0, bytes(64_000), 100_000) == 64_000


def test_an_upload_may_be_completed_twice_at_once(store) -> None:
    content = CONTENT
    dataset = StoredDataset("d", "0" * 32, 0, 3, 1, False, "me", None, True)
    store.begin_dataset(dataset, 1e9)
    store.add_bytes(dataset, 0, content)
    with ThreadPoolExecutor(4) as threads:
        asked = [threads.submit(store.complete_dataset, dataset, hashlib.sha256(content).hexdigest()) for _ in range(4)]
    assert [call.result() for call in asked] == [None] * 4
    assert np.array_equal(store.dataset_rows(store.datasets("d")[0]).take(ALL), ROWS)


def test_files_of_earlier_releases_are_read_as_they_are(tmp_path) -> None:
    state = tmp_path / "state"
    (state / "datasets" / "old").mkdir(parents=True)
    database = sqlite3.connect(state / "hdcos.sqlite", isolation_level=None)
    migrate(database, MIGRATIONS[:2])
    known = "INSERT INTO datasets (name, version, rows, features, outputs, complete, owner, created) VALUES "
    database.execute(f"{known}('old', 'v', 2500, 3, 1, 1, 'me', 0.0), ('begun', 'v', 2500, 3, 1, 0, 'me', 0.0)")
    database.close()
    from safetensors.numpy import save_file

    path = state / "datasets" / "old" / "v.safetensors"
    save_file({"x": ROWS[:, :3].copy(), "targets": ROWS[:, 3:].copy()}, path)
    store = Store(state)
    (dataset,) = store.datasets()
    assert dataset.name == "old", "an upload that an earlier release began is begun again"
    rows = store.dataset_rows(dataset)
    assert np.array_equal(rows.take(ALL[::-1]), ROWS[::-1])
    content = path.read_bytes()
    for wrong in (content[:100], b"", content[:8] + b"{" * 50 + content[58:], content[:-9]):
        path.write_bytes(wrong)
        with pytest.raises(DataDamaged, match="cannot be read"):
            store.dataset_rows(dataset)
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    header["x"]["shape"] = [2500, 4]
    text = json.dumps(header).encode().ljust(length)
    path.write_bytes(len(text).to_bytes(8, "little") + text + content[8 + length :])
    with pytest.raises(DataDamaged, match="another shape"):
        store.dataset_rows(dataset)
    store.forget_dataset("old")
    assert not path.exists()
    store.close()


@pytest.mark.parametrize("where", ["elsewhere", "file://{tmp_path}/with%20space", "memory://bucket/rows"])
def test_data_sets_are_kept_where_the_operator_says(tmp_path, where) -> None:
    node = tmp_path / "node"
    node.mkdir()
    before = open_state(node)
    send(before, "before")
    before.close()
    (node / "node.toml").write_text(f'[storage]\ndatasets = "{where.format(tmp_path=tmp_path)}"\n')
    store = open_state(node)
    send(store, "after")
    for dataset in store.datasets():
        assert np.array_equal(store.dataset_rows(dataset).take(ALL), ROWS), "what was kept before is found"
    state = node / "state" / "datasets"
    assert sorted(path.parent.name for path in state.rglob("*") if path.is_file()) == ["before"]
    if where.startswith("memory"):
        kept = fsspec.filesystem("memory")
        assert kept.find("/bucket/rows") == [f"/bucket/rows/after/{'0' * 32}.arrow"]
    else:
        folder = tmp_path / "with space" if "file" in where else node / "elsewhere"
        (file,) = folder.rglob("*.arrow")
        assert file.stat().st_mode & 0o077 == folder.stat().st_mode & 0o077 == 0
        file.with_name(".torn.tmp").write_bytes(b"by a process that died")
        store.sweep()
        assert list(file.parent.iterdir()) == [file]
    for name in ("before", "after"):
        store.forget_dataset(name)
    assert not [path for path in tmp_path.rglob("*.arrow") if path.is_file()]
    assert not fsspec.filesystem("memory").find("/bucket")
    store.close()


def test_a_damaged_row_group_far_away_is_named(tmp_path) -> None:
    store = Store(tmp_path / "state", "memory://damaged")
    dataset, files = send(store), fsspec.filesystem("memory")
    (path,) = files.find("/damaged")
    content = bytearray(files.cat(path))
    content[content.index(ROWS[2000].tobytes())] ^= 1
    files.pipe(path, bytes(content))
    rows = store.dataset_rows(dataset)
    assert np.array_equal(rows.take(ALL[:1000]), ROWS[:1000])
    with pytest.raises(DataDamaged, match="row group 1 of /damaged/d/"):
        rows.take(ALL)
    files.rm("/damaged", recursive=True)
    with pytest.raises(DataMissing, match="is gone"):
        store.dataset_rows(dataset)
    store.close()


def test_a_bucket_that_does_not_answer_is_no_damage_and_loses_nothing(tmp_path, monkeypatch) -> None:
    store = Store(tmp_path / "state", "memory://flaky")
    kind = type(fsspec.filesystem("memory"))
    working = kind._open

    def failing(*_, **__):
        raise OSError("no route to host")

    monkeypatch.setattr(kind, "_open", failing)
    with pytest.raises(PeerLost, match="memory://flaky, where this party keeps data sets, does not answer"):
        send(store)
    monkeypatch.setattr(kind, "_open", working)
    dataset = store.datasets()[0]
    store.complete_dataset(dataset, hashlib.sha256(CONTENT).hexdigest())
    (dataset,) = store.datasets()
    rows = store.dataset_rows(dataset)
    assert np.array_equal(rows.take(ALL), ROWS)
    monkeypatch.setattr(kind, "_open", failing)
    with pytest.raises(PeerLost, match="no route to host"):
        store.dataset_rows(dataset)
    store.close()


def test_an_address_that_nobody_knows_is_refused_at_the_start(tmp_path) -> None:
    with pytest.raises(InputError, match=r"\[storage\] datasets: neither pyarrow nor fsspec .* carrier-pigeon://loft"):
        Store(tmp_path / "state", "carrier-pigeon://loft")
    (tmp_path / "node.toml").write_text(TEMPLATE)
    assert Config.read(tmp_path).storage.datasets == ""
