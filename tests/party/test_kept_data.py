"""Whose data sets are: names, versions, expiry, rows of jobs, and removal that a crash interrupts."""

from __future__ import annotations

import hashlib
import logging
import secrets
import sqlite3
import time
from dataclasses import replace

import fsspec
import pytest

from hdcos.errors import DataMissing, InputError, PeerLost, PolicyRefused
from hdcos.party import kept_data, scheduler
from hdcos.party.database import MIGRATIONS, migrate
from hdcos.party.scheduler import Scheduler
from hdcos.party.store import Store, StoredDataset

CONTENT = bytes(8 * 4 * 10)


@pytest.fixture
def store(tmp_path):
    opened = Store(tmp_path / "state")
    yield opened
    opened.close()


def keep(store, name="north", owner="acme", complete=True, **more):
    dataset = StoredDataset(name, secrets.token_hex(16), 10, 3, 1, False, owner, None, True, **more)
    store.begin_dataset(dataset, 1e9)
    store.add_bytes(dataset, 0, CONTENT)
    if complete:
        store.complete_dataset(dataset, hashlib.sha256(CONTENT).hexdigest())
    return next(item for item in store.datasets(name) if item.version == dataset.version)


def files(store) -> list[str]:
    return sorted(path.relative_to(store.folder).as_posix() for path in (store.folder / "datasets").rglob("*"))


def begin_job(store, data, owner="lab", state="running") -> str:
    number = secrets.token_hex(16)
    spec = {"datasets": [item.title for item in data], "model": "m"}
    store.keep_job(number, spec, owner, {})
    store.note_job(number, data=[[item.name, item.version] for item in data], state=state)
    return number


# ---- names


def test_a_name_is_its_owners_own(store) -> None:
    theirs, mine = keep(store), keep(store, owner="lab")
    assert store.find_dataset("north", "lab") == mine, "one's own comes first"
    assert store.find_dataset("north", "acme") == theirs
    with pytest.raises(PolicyRefused, match=r"'acme/north' did not allow lab.* acme runs `hdcos datasets north --"):
        store.find_dataset("acme/north", "lab")
    store.grant("acme", "north", "lab")
    assert store.find_dataset("acme/north", "lab") == theirs
    assert store.find_dataset("lab/north", "lab") == mine
    with pytest.raises(PolicyRefused):
        store.find_dataset("lab/north", "acme")
    store.forget_dataset("north", "lab")
    assert store.find_dataset("north", "lab") == theirs, "the only one that it may train on"
    assert store.find_dataset("south", "lab") is None, "it may still come"


def test_where_several_owners_use_a_name_it_has_to_be_said_which(store) -> None:
    for owner in ("acme", "beta"):
        keep(store, owner=owner)
        store.grant(owner, "north", "lab")
    with pytest.raises(InputError, match="2 owners have a data set called 'north': say which, acme/north or beta/no"):
        store.find_dataset("north", "lab")
    assert store.find_dataset("beta/north", "lab").owner == "beta"
    store.forget_dataset("north", "beta")
    assert store.allowed("acme", "north") == ["lab"], "the other owner's grants stay"
    assert store.allowed("beta", "north") == []


def test_grants_of_earlier_releases_are_those_of_the_names_owner(tmp_path) -> None:
    (tmp_path / "state").mkdir()
    database = sqlite3.connect(tmp_path / "state" / "hdcos.sqlite", isolation_level=None)
    migrate(database, MIGRATIONS[:3])
    known = "INSERT INTO datasets (name, version, rows, features, outputs, complete, owner, created) VALUES "
    database.execute(f"{known}('north', 'v', 10, 3, 1, 1, 'acme', 0.0), ('north', 'w', 10, 3, 1, 1, 'acme', 1.0)")
    database.execute("INSERT INTO grants VALUES ('north', 'lab'), ('gone', 'lab')")
    database.close()
    store = Store(tmp_path / "state")
    assert store.allowed("acme", "north") == ["lab"]
    assert [(item.number, item.expires) for item in store.datasets()] == [(1, 0.0)] * 2
    store.close()


# ---- versions


def test_a_name_used_again_is_a_new_version_and_the_older_one_goes_when_no_job_uses_it(store) -> None:
    first, second = keep(store), keep(store)
    assert (first.number, second.number, keep(store, owner="beta").number) == (1, 2, 1)
    held = {first.key, second.key}
    assert store.find_dataset("north", "acme", held) == second
    assert store.find_dataset("north", "acme", {first.key}) == first, "the newest that both parties hold"
    assert store.older_versions(held) == [first]
    assert store.older_versions({first.key}) == [], "until both hold a newer one"
    job = begin_job(store, [first], "acme")
    assert store.older_versions(held) == [], "a job keeps what it was begun with"
    store.note_job(job, state="done")
    store.forget_version(*store.older_versions(held)[0].key)
    assert store.datasets("north")[0] == second
    assert f"datasets/north/{first.version}.arrow" not in files(store)


def test_the_parties_agree_on_a_number(store) -> None:
    dataset = keep(store, complete=False)
    store.complete_dataset(dataset, hashlib.sha256(CONTENT).hexdigest(), 7)  # the other party has had six before
    assert keep(store).number == 8


def test_a_job_takes_the_versions_that_it_names_and_no_others(store) -> None:
    north, other = keep(store), keep(store, "other")
    job = store.job(begin_job(store, [north], "acme"))
    assert store.job_data(job, [[*north.key]]) == [north]
    fresh = replace(job, data=[])
    with pytest.raises(DataMissing, match="'acme/north' is not here"):
        store.job_data(fresh, [[*other.key]])  # party 0 says another name than the client
    with pytest.raises(PolicyRefused, match="did not allow lab"):
        store.job_data(replace(fresh, owner="lab"), [[*north.key]])
    twice = replace(fresh, spec={"datasets": ["north", "acme/north"]})
    with pytest.raises(InputError, match="acme/north is named twice"):
        store.job_data(twice, [[*north.key]] * 2)


# ---- the end


def test_what_has_expired_is_removed_and_said(store, caplog) -> None:
    soon = keep(store, expires=time.time() + 0.05)
    used = keep(store, "used", expires=time.time() + 0.05)
    lasting = keep(store, "lasting")
    store.grant("acme", "north", "lab")
    job = begin_job(store, [used], "acme")
    time.sleep(0.06)
    assert soon.expired
    with pytest.raises(DataMissing, match=r"'north' expired on 20.*: acme uploads it again, with --keep-days"):
        store.find_dataset("north", "lab")
    with caplog.at_level(logging.INFO, "hdcos"):
        store.tidy()
    assert "data set acme/north, version 1, has expired and is removed" in caplog.text
    assert {item.name for item in store.datasets()} == {"used", "lasting"}, "a job keeps what it uses"
    with pytest.raises(DataMissing, match="expired on"):
        store.find_dataset("used", "acme")  # but none may begin
    with pytest.raises(DataMissing, match="expired on"):
        store.find_dataset("north", "lab")
    with pytest.raises(DataMissing):
        store.dataset_rows(soon)
    assert store.find_dataset("north", "stranger") is None, "who may not use it is not told of it"
    store.note_job(job, state="done")
    store.tidy()
    assert files(store) == ["datasets/lasting", f"datasets/lasting/{lasting.version}.arrow"]
    assert keep(store).number == 1
    assert store.find_dataset("north", "lab") is not None, "uploaded again"
    assert store.expired_at("acme", "north") == 0


def test_who_may_use_an_upload_that_is_given_up_is_forgotten_with_it(store) -> None:
    begun = keep(store, complete=False)
    store.grant("acme", "north", "lab")
    store.remove([begun])
    assert store.allowed("acme", "north") == []


def test_an_owner_says_how_long_within_what_the_operator_does(store) -> None:
    day = 24 * 3600
    assert store.expires_after(None, 0) == 0
    assert store.expires_after(2, 0) == pytest.approx(time.time() + 2 * day, abs=5)
    assert store.expires_after(None, 30) == pytest.approx(time.time() + 30 * day, abs=5)
    assert store.expires_after(7, 30) == pytest.approx(time.time() + 7 * day, abs=5)
    with pytest.raises(PolicyRefused, match="30 days at most, not 31: say --keep-days 30 or less, or ask its operator"):
        store.expires_after(31, 30)


@pytest.mark.parametrize("state", ["done", "failed", "cancelled"])
def test_the_rows_of_a_job_go_with_it_however_it_ends(store, tmp_path, state) -> None:
    number = secrets.token_hex(16)
    keep(store, f"rows-{number}", job=number)
    kept = keep(store)
    store.keep_job(number, {"datasets": [f"rows-{number}"], "model": "m"}, "acme", {})
    store.note_job(number, state="running")
    store.tidy()
    assert len(store.datasets()) == 2
    store.note_job(number, state=state)
    assert store.datasets() == [kept]
    assert files(store) == ["datasets/north", f"datasets/north/{kept.version}.arrow"]


def test_rows_of_a_job_that_ended_as_a_process_died_go_at_the_next_start(store, tmp_path, monkeypatch) -> None:
    number = secrets.token_hex(16)
    keep(store, f"rows-{number}", job=number)
    store.keep_job(number, {"datasets": [f"rows-{number}"], "model": "m"}, "acme", {})
    with store._changing() as database:  # and nothing after it
        store._update(database, "jobs", number, state="done")
    assert len(store.datasets()) == 1
    again = Store(tmp_path / "state")
    assert again.datasets() == []
    again.close()


def test_rows_of_a_job_that_never_came_are_not_kept(store, monkeypatch) -> None:
    keep(store, "rows-x", job="0" * 32)
    kept = keep(store)
    store.tidy()
    assert len(store.datasets()) == 2, "it may still come"
    monkeypatch.setattr(kept_data, "ORPHAN_S", -1.0)
    store.tidy()
    assert store.datasets() == [kept]


def test_a_removal_that_was_interrupted_is_finished(tmp_path, monkeypatch, caplog) -> None:
    """The place does not answer, or the process dies: the mark stays, and the next look goes on."""
    store = Store(tmp_path / "state", "memory://away")
    keep(store)
    kind = type(fsspec.filesystem("memory"))
    working = kind.rm_file

    def failing(*_, **__):
        raise OSError("no route to host")

    monkeypatch.setattr(kind, "rm_file", failing)
    monkeypatch.setattr(kind, "_rm", failing)
    with pytest.raises(PeerLost, match="does not answer"):
        store.forget_dataset("north", "acme")
    assert store.datasets() == [], "nobody trains on it any more"
    for _ in range(2):
        store.tidy()
    assert caplog.text.count("what is to be removed stays for now") == 1
    store.close()
    monkeypatch.setattr(kind, "rm_file", working)
    monkeypatch.undo()
    again = Store(tmp_path / "state", "memory://away")
    again.sweep()
    assert fsspec.filesystem("memory").find("/away") == []
    assert again._rows("SELECT * FROM datasets") == []
    again.close()


def test_a_quota_says_what_is_held_and_what_to_do(store) -> None:
    keep(store)
    dataset = StoredDataset("more", "1" * 32, 10, 3, 1, False, "acme", None, True)
    with pytest.raises(PolicyRefused, match=r"acme may keep .* has 3\.2e-07 GB.*`hdcos forget`.*dataset_gb in node"):
        store.begin_dataset(dataset, 500)
    store.begin_dataset(StoredDataset("more", "1" * 32, 10, 3, 1, False, "beta", None, True), 500)


def test_a_job_that_only_one_party_was_told_of_is_ended_after_a_while(monkeypatch) -> None:
    """Its rows would stay with it for ever."""
    choosing = object.__new__(Scheduler)
    choosing._alone = {}
    job = {"state": "waiting", "said": "x"}
    here = {"both": job, "other": {**job, "said": "y"}, "zero": job, "ended": {**job, "state": "done"}}
    there = {"both": job, "other": job, "one": job}
    assert list(choosing._end_alone(there, here)) == [], "the other party may be told in a moment"
    monkeypatch.setattr(scheduler, "ALONE_S", -1.0)
    closed = list(choosing._end_alone(there, here))
    assert {(item.job, item.state) for item in closed} == {(name, "failed") for name in ("other", "zero", "one")}
    assert list(choosing._end_alone({"both": job}, {"both": job})) == []
    assert choosing._alone == {}


def test_a_party_that_never_heard_of_a_job_can_end_it(store) -> None:
    store.note_job("0" * 32, state="failed", error="the parties were not told the same of it in time")
    assert store.jobs() == []


def test_of_a_job_that_is_forgotten_the_ledger_stays(store) -> None:
    job = begin_job(store, [keep(store)], "acme")
    found = store.checkpoints(store.job(job), 0, None)
    found.lock()
    found.reserve(1, "scope", 0, 4)
    found.unlock()
    store.note_job(job, state="done")
    store.forget_job(job)
    assert store.jobs() == store.failures() == []
    left = [path.relative_to(store.folder).as_posix() for path in (store.folder / "jobs").rglob("*") if path.is_file()]
    assert left == [f"jobs/{job}/party0/ledger.jsonl"]
    with pytest.raises(DataMissing):
        store.forget_job(job)
