"""One client's uploads are limited in every way, others do not wait for them, and what is forgotten leaves no file."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import threading
import time
from types import SimpleNamespace

import fsspec
import pytest

from hdcos.errors import DataMissing, PolicyRefused
from hdcos.party import database, kept_data
from hdcos.party.batcher import Refused
from hdcos.party.config import TEMPLATE, Config, Limits
from hdcos.party.dataset_folder import RemoteFolder
from hdcos.party.http.datasets import Datasets
from hdcos.party.part import Part
from hdcos.party.scheduler import inventory
from hdcos.party.store import Store, StoredDataset

CONTENT = bytes(8)
DIGEST = hashlib.sha256(CONTENT).hexdigest()
LONG = tuple(f"{number:05d}{'x' * 185}" for number in range(5000))
"""Names of columns that take about a megabyte."""


@pytest.fixture
def store(tmp_path):
    opened = Store(tmp_path / "state")
    yield opened
    opened.close()


def begin(store, name="d", owner="mallory", columns=None, limits=None, most_bytes=1e9, **more):
    features = len(columns) if columns else 1
    dataset = StoredDataset(name, secrets.token_hex(16), 0, features, 0, False, owner, columns, True, **more)
    return store.begin_dataset(dataset, most_bytes, limits or Limits())


def send(store, *arguments, **more):
    dataset = begin(store, *arguments, **more)
    store.add_bytes(dataset, 0, bytes(8 * dataset.width))
    return dataset


def keep(store, *arguments, **more):
    dataset = send(store, *arguments, **more)
    store.complete_dataset(dataset, hashlib.sha256(bytes(8 * dataset.width)).hexdigest())
    return store.dataset(*dataset.key)


# ---- how much


def test_uploads_that_are_begun_and_data_sets_that_are_kept_are_limited_for_each_client(store) -> None:
    limits = Limits(uploads=2, datasets=3)
    begun = [begin(store, limits=limits) for _ in range(2)]
    with pytest.raises(
        PolicyRefused, match=r"mallory has begun 2 uploads .* completes or forgets some .*uploads in node"
    ):
        begin(store, limits=limits)
    begin(store, owner="other", limits=limits)
    for dataset in begun:
        store.add_bytes(dataset, 0, CONTENT)
        store.complete_dataset(dataset, DIGEST)
    last = begin(store, limits=limits)
    with pytest.raises(PolicyRefused, match=r"has 3 data sets and uploads here, and may have 3: .*\(datasets in node"):
        begin(store, limits=limits)
    store.remove([last])
    begin(store, limits=limits)


def test_names_of_columns_are_data_that_a_client_keeps(store) -> None:
    with pytest.raises(PolicyRefused, match=r"may keep 0\.0009 GB of data here, has 0 GB, .* 0\.00097 GB more"):
        begin(store, columns=LONG, most_bytes=9e5)
    first = begin(store, columns=LONG, most_bytes=1e6)
    with pytest.raises(PolicyRefused, match=r"may keep 0\.001 GB"):
        store.add_bytes(first, 0, bytes(8 * 5000), 1e6)
    with pytest.raises(PolicyRefused, match=r"take 0\.97 of 1 MB, and these would be 0\.97 MB more: .*shorter names"):
        begin(store, columns=LONG, limits=Limits(names_mb=1))
    begin(store, "short", columns=("a", "b"), limits=Limits(names_mb=1))


def test_who_looks_after_data_sets_does_not_read_the_names_of_their_columns(store, monkeypatch) -> None:
    (kept, begun), read, reading = (keep(store, "kept", columns=LONG), begin(store, columns=LONG)), [], database._read
    monkeypatch.setattr(database, "_read", lambda name, value: (read.append(name), reading(name, value))[1])
    failures = SimpleNamespace(final=lambda *_: "")
    first = inventory(store, 0, failures)
    assert read.count("columns") == 1
    read.clear()
    for _ in range(3):
        store.tidy()
        store.grant("mallory", "kept", "lab")
        assert inventory(store, 0, failures) == first
    assert store.find_dataset("kept", "mallory").key == kept.key
    store.remove([begun])
    assert "name" in read
    assert "columns" not in read
    store.remove([kept])
    again = StoredDataset(*kept.key, 1, 1, 0, False, "mallory", ("a",), True)  # the same version, with another name
    store.begin_dataset(again, 1e9)
    store.add_bytes(again, 0, CONTENT)
    store.complete_dataset(again, DIGEST)
    assert inventory(store, 0, failures)["datasets"] != first["datasets"]


def test_what_a_client_allows_others_is_limited_and_so_is_what_is_remembered(store, monkeypatch) -> None:
    monkeypatch.setattr(kept_data, "MOST_EXPIRED", 2)
    keep(store)
    for client in ("a", "b", "a"):
        store.grant("mallory", "d", client, 2)
    with pytest.raises(
        PolicyRefused, match=r"train on its data sets 2 times, and may 2 times.*`hdcos forget`.*grants in"
    ):
        store.grant("mallory", "d", "c", 2)
    store.grant("mallory", "d", "b", 2)
    store.grant("other", "d", "c", 2)
    now = time.time()
    for number in range(4):
        keep(store, f"e{number}", expires=now - 10 + number)
    store.tidy()
    assert [store.expired_at("mallory", f"e{number}") > 0 for number in range(4)] == [False, False, True, True]


def test_the_limits_are_the_operators(tmp_path) -> None:
    (tmp_path / "node.toml").write_text(TEMPLATE)
    assert Config.read(tmp_path).limits == Limits()
    (tmp_path / "node.toml").write_text("[limits]\ndatasets = 3\nuploads = 2\nnames_mb = 0.5\ngrants = 4\n")
    limits = Config.read(tmp_path).limits
    assert (limits.datasets, limits.uploads, limits.names_mb, limits.grants) == (3, 2, 0.5, 4)


# ---- others do not wait


def handlers(store, **limits) -> Datasets:
    told = {"limits": Limits(**limits), "audit": lambda *_, **__: None}
    return Datasets(SimpleNamespace(service=SimpleNamespace(store=store), **told))


def call(dataset, digest=DIGEST, client=None):
    async def read():
        return SimpleNamespace(sha256=digest, number=0)

    known = {"client": client or dataset.owner, "name": dataset.name, "version": dataset.version}
    return SimpleNamespace(**known, read=read, hold=lambda size: None)


def test_completions_that_wait_take_no_threads_and_clients_take_turns(store, monkeypatch) -> None:
    convert, writing, written = store._convert, threading.Event(), []

    def slow(dataset, digest):
        written.append(dataset.name)
        writing.wait(1)
        return convert(dataset, digest)

    monkeypatch.setattr(store, "_convert", slow)
    many = [send(store, f"m{number}") for number in range(12)]
    other = send(store, "other", owner="acme")

    async def scene() -> None:
        asking = handlers(store, uploads=12)
        tasks = [asyncio.create_task(asking.complete(call(dataset))) for dataset in (*many, other)]
        while len(asking._completing) < 13 or not written:
            await asyncio.sleep(0.01)
        await asyncio.wait_for(asyncio.gather(*(asyncio.to_thread(int) for _ in range(5))), 1)
        store.remove(many[6:])  # what is forgotten waits all the same
        with pytest.raises(Refused, match="12 uploads of mallory wait until they are complete, and 12 may") as refused:
            await asking.complete(call(send(store, "one-more")))
        assert (refused.value.status, refused.value.retryable) == (429, True)
        writing.set()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert [isinstance(answer, dict) and answer["complete"] for answer in ended] == [True] * 6 + [False] * 6 + [
            True
        ]
        assert not asking._completing
        assert not asking._turns, "nobody is remembered whose uploads are complete"

    asyncio.run(scene())
    assert written[:2] == ["m0", "other"], "not after all that the other client sent"


def test_a_list_is_made_beside_the_event_loop(store, monkeypatch) -> None:
    kept, seen = keep(store, columns=("a",)), []
    keep(store, "hidden", owner="other")
    monkeypatch.setattr(
        store, "_rows", lambda *asked: (seen.append(threading.get_ident()), Store._rows(store, *asked))[1]
    )

    async def scene() -> None:
        asking = handlers(store)
        (found,) = (await asking.all(call(kept)))["datasets"]
        assert (found["name"], found["columns"]) == ("d", ("a",))
        (found,) = (await asking.one(call(kept)))["versions"]
        assert found["complete"]
        with pytest.raises(PolicyRefused, match="d belongs to another client"):
            await asking.one(call(kept, client="other"))
        with pytest.raises(DataMissing, match="no data set of other is named 'd'"):
            await asking.give_up(call(kept, client="other"))
        await asking.give_up(call(kept))

    asyncio.run(scene())
    assert seen
    assert threading.get_ident() not in seen
    assert not store.records("d")


# ---- what is forgotten is gone


class Died(BaseException):
    """Nothing after it happens."""


@pytest.mark.parametrize("where", ["", "memory://forgotten"])
def test_what_is_forgotten_while_it_is_completed_leaves_no_file_though_the_process_dies(
    tmp_path, monkeypatch, where
) -> None:
    store, ending = Store(tmp_path / "state", where), [Died]
    folder, (kind, name) = store.folder / "datasets", (RemoteFolder, "write") if where else (Part, "finish")
    write = getattr(kind, name)

    def interrupted(*all_of_it):
        store.forget_dataset("d", "mallory")
        assert store.datasets() == []
        write(*all_of_it)
        for error in ending:
            raise error

    def left():
        return [*folder.rglob("*.*"), *fsspec.filesystem("memory").find("/forgotten")]

    monkeypatch.setattr(kind, name, interrupted)
    dataset = send(store)
    with pytest.raises(Died):
        store.complete_dataset(dataset, DIGEST)
    assert left()
    store.close()
    store = Store(tmp_path / "state", where)
    store.sweep()
    assert (left(), store._rows("SELECT * FROM datasets")) == ([], [])

    ending.clear()  # and if it lives on
    with pytest.raises(DataMissing, match="d was forgotten before it was complete"):
        keep(store)
    assert (left(), store._rows("SELECT * FROM datasets")) == ([], [])
    store.close()


def test_files_that_no_record_names_go_at_the_start(tmp_path, caplog) -> None:
    """Of this party's own folder; another place may hold what is somebody else's."""
    elsewhere = tmp_path / "elsewhere"
    store = Store(tmp_path / "state", str(elsewhere))
    kept, folder = keep(store), tmp_path / "state" / "datasets"
    store._own.write("older", "0" * 32, kept.shape, [])
    for path in (folder / "gone" / "v.arrow", folder / "gone" / "w.safetensors", elsewhere / "theirs" / "v.arrow"):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"a share")
    with store._changing() as changing:
        changing.execute("UPDATE datasets SET name = 'older', version = ?", ("0" * 32,))
    store.sweep()
    assert [path.name for path in folder.iterdir()] == ["older"]
    assert caplog.text.count("which no record names, is removed") == 2
    assert (elsewhere / "theirs" / "v.arrow").exists()
    store.close()
