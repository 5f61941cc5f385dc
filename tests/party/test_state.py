"""State on disk, and a party that must not start."""

from __future__ import annotations

import asyncio
import datetime
import sqlite3
from contextlib import closing

import numpy as np
import pytest

from hdcos.errors import CheckpointMismatch, DataMissing, InputError
from hdcos.link import Identity
from hdcos.link.cluster_file import ClusterFile, NodeCard
from hdcos.party.batcher import Refused
from hdcos.party.config import Limits
from hdcos.party.database import MIGRATIONS, migrate
from hdcos.party.http import auth
from hdcos.party.http.auth import HELD, Auth, Held
from hdcos.party.store import Store
from hdcos.party.training import PATIENCE_S, Viewing
from party.conftest import command


def test_an_older_database_is_brought_up_to_date_and_a_newer_one_refused(tmp_path) -> None:
    steps = ("CREATE TABLE a (x INTEGER);", "ALTER TABLE a ADD COLUMN y INTEGER DEFAULT 7;")
    database = sqlite3.connect(tmp_path / "old", isolation_level=None)
    migrate(database, steps[:1])
    database.execute("INSERT INTO a VALUES (1)")
    migrate(database, steps)
    assert database.execute("SELECT * FROM a").fetchall() == [(1, 7)]
    migrate(database, steps)
    with pytest.raises(CheckpointMismatch, match="written by a newer hdcos"):
        migrate(database, steps[:1])
    with pytest.raises(sqlite3.OperationalError):
        migrate(database, (*steps, "CREATE TABLE b (x INTEGER); nonsense;"))
    assert database.execute("SELECT name FROM sqlite_master WHERE name = 'b'").fetchall() == []
    assert database.execute("PRAGMA user_version").fetchone() == (2,)
    database.close()


def test_state_is_there_again_after_a_restart(tmp_path) -> None:
    words = {"w": np.arange(6, dtype=np.uint64).reshape(2, 3)}
    store = Store(tmp_path / "state")
    store.keep_model("m", "0" * 32, {"layers": []}, 16, "me", words)
    store.allow("me", "f" * 64, ["predict"])
    store.reserve("scope", 0, 10)
    store.close()
    again = Store(tmp_path / "state")
    assert np.array_equal(again.model_words("m", "0" * 32)["w"], words["w"])
    assert again.clients() == [("me", "f" * 64, ("predict",))]
    again.reserve("scope", 10, 5)
    assert again.reused() == []
    again.reserve("scope", 12, 5)
    assert again.reused() == ["scope: 12"]
    assert (tmp_path / "state" / "hdcos.sqlite").stat().st_mode & 0o077 == 0
    path = tmp_path / "state" / "models" / "m" / f"{'0' * 32}.safetensors"
    assert path.stat().st_mode & 0o077 == 0
    path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(CheckpointMismatch, match="cannot be read"):
        again.model_words("m", "0" * 32)
    path.unlink()
    with pytest.raises(DataMissing):
        again.model_words("m", "0" * 32)
    (version,) = again._rows("PRAGMA user_version")[0]
    assert version == len(MIGRATIONS)
    again.close()


def test_state_of_the_first_release_is_read(tmp_path) -> None:
    """Data sets and jobs that know nothing of columns and reports."""
    (tmp_path / "state").mkdir()
    database = sqlite3.connect(tmp_path / "state" / "hdcos.sqlite", isolation_level=None)
    migrate(database, MIGRATIONS[:1])
    database.execute("INSERT INTO datasets VALUES ('d', 'v', 2, 3, 1, 1, 'me', 0.0)")
    database.execute("INSERT INTO jobs VALUES ('j', '{}', '[]', 'me', 'done', 5, '', 0, 0.0)")
    database.close()
    store = Store(tmp_path / "state")
    assert store.datasets("d")[0].columns is None
    assert (store.job("j").report, store.job("j").version) == ({}, "")
    store.close()


def test_a_job_waits_for_a_client_who_watches_it_but_not_for_ever(monkeypatch) -> None:
    now = [100.0]
    monkeypatch.setattr("hdcos.party.training.time.monotonic", lambda: now[0])
    progress = Viewing()
    assert not progress.waits, "nothing was shown yet"
    progress.show(1, "v1")
    assert progress.waits
    progress.look(1, best=False, stop=False)
    assert not progress.waits
    progress.show(2, "v2")
    assert progress.waits
    now[0] += PATIENCE_S + 1
    assert not progress.waits
    assert not progress.watched, "nobody looks: no more models are made for looking at"
    progress.look(2, best=False, stop=False)
    assert progress.watched


def test_a_party_whose_certificate_has_expired_does_not_start(folder) -> None:
    expired = Identity.create("party0", days=1, start=datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC))
    for name in ("key.pem", "certificate.pem"):
        (folder / "party0" / name).unlink()
    expired.save(folder / "party0")
    cluster_file = ClusterFile.read(folder / "cluster.toml")
    known = cluster_file.servers["party0"]
    changed = {**cluster_file.servers, "party0": NodeCard("party0", expired.certificate, known.address, known.http)}
    ClusterFile(cluster_file.id, changed).write(folder / "cluster.toml")
    code, output = command("party", "--node", folder / "party0", "--cluster", folder / "cluster.toml")
    assert code == 1
    assert "expired" in output
    assert "Traceback" not in output


def test_a_client_that_dawdles_over_its_request_is_refused(tmp_path, monkeypatch) -> None:
    class Slow:
        headers = {}  # noqa: RUF012

        async def stream(self):
            yield b"x"
            await asyncio.sleep(10)

    class Endless:
        headers = {}  # noqa: RUF012

        async def stream(self):
            while True:
                yield bytes(1000)

    store = Store(tmp_path / "state")
    guard = Auth(store, Limits(body_mb=0.01))
    monkeypatch.setattr(auth, "BODY_S", 0.05)
    for request, status in ((Slow(), 408), (Endless(), 413)):
        request.scope = {HELD: Held(guard.waiting, "me")}
        with pytest.raises(Refused) as refused:
            asyncio.run(guard.body(request))
        assert refused.value.status == status
        assert isinstance(refused.value.error, InputError)
    store.close()


def test_the_ledger_forgets_scopes_that_are_closed_for_good(tmp_path) -> None:
    with closing(Store(tmp_path / "state")) as store:
        store.reserve("function cos 1", 0, 10)
        store.reserve("model m 2", 0, 10)
        store.forget_scope("function cos 1")
        assert [row["scope"] for row in store._rows("SELECT scope FROM ledger")] == ["model m 2"]
        store.reserve("model m 2", 5, 10)
        assert store.reused() == ["model m 2: 5"]
