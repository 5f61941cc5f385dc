"""Real nodes with small budgets: what is too much is refused by name, remembered, and shown; others are served."""

from __future__ import annotations

import secrets
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import numpy as np
import pytest

import hdcos
from hdcos import nn
from hdcos.api.tokens import fingerprint, new_secret
from hdcos.cli.doctor import examine_as_client, examine_from_node
from hdcos.errors import PolicyRefused
from hdcos.link.cluster_file import ClusterFile
from hdcos.party.database import STATE
from hdcos.party.store import Failure, Store
from nn.test_limits import BOMBS
from party.conftest import Raw, command, connected, make_home, running, running_all, secret, set_limits

MODEL = nn.models.mlp([6, 8, 3])
ROWS = np.random.default_rng(0).uniform(-1, 1, (10, 6))
QUOTA = 60
PARTIES = ("party0", "party1")


def another_client(folder):
    """The secret of one more client that may predict."""
    secret, cluster_id = new_secret(), ClusterFile.read(folder / "cluster.toml").id
    for rank, role in enumerate(PARTIES):
        hashed = fingerprint(secret, cluster_id, rank)
        assert command("token", "allow", "other", hashed, "--node", folder / role, "--role", "predict")[0] == 0
    return secret


@pytest.fixture(scope="module")
def tight(tmp_path_factory):
    folder = make_home(tmp_path_factory.mktemp("tight") / "home")
    set_limits(folder, queries_per_model=QUOTA, client_mb=1, waiting_mb=1.5)
    with running_all(folder):
        yield folder


@pytest.fixture(scope="module")
def client(tight):
    with connected(tight) as connection:
        yield connection


@pytest.fixture(scope="module")
def asking(tight):
    raw = Raw(tight)
    yield raw
    raw.close()


def shown(client, name):
    return next(model for model in client.models() if model["name"] == name)


@pytest.mark.parametrize("name", BOMBS)
def test_an_architecture_that_is_too_large_is_refused_in_a_moment(asking, name) -> None:
    given = {"architecture": BOMBS[name][0], "phase_bits": 16}
    model = {"version": secrets.token_hex(16)}
    job = {"id": secrets.token_hex(16), "model": "bomb", "datasets": ["d"], "rates": [0.1], "batch_size": 5, "seed": 1}
    started = time.monotonic()
    for rank, method, path, more in ((0, "PUT", "/v2/models/bomb", model), (1, "POST", "/v2/jobs", job)):
        status, said, _ = asking(rank, method, path, {"parameters": {**given, **more}}, {})
        assert (status, said["name"]) == (400, "ModelError")
    assert time.monotonic() - started < 2


def test_a_job_is_measured_before_it_is_kept(client) -> None:
    wide = nn.models.mlp([64, 4096, 10])
    with pytest.raises(hdcos.errors.InputError, match="smaller network or batch"):
        client.fit(wide, "long", epochs=1, batch_size=6000, lr=0.1)
    assert client.jobs() == []


# ---- the quota


def test_each_party_answers_a_model_so_often_and_says_so(client, tight) -> None:
    with client.share(MODEL, "asked") as private:
        for _ in range(QUOTA // 10):
            assert np.abs(private.predict(ROWS) - MODEL(ROWS)).max() < 1e-2
        with pytest.raises(PolicyRefused, match=f"{QUOTA} of the {QUOTA} rows .* are used up"):
            private.predict(ROWS[:1])
        client.share(nn.models.mlp([6, 8, 3], seed=1), "asked")  # new masks, and a new version
        with pytest.raises(PolicyRefused, match="are used up"):
            client.model("asked").predict(ROWS[:1])
        assert (shown(client, "asked")["queries"], shown(client, "asked")["queries_allowed"]) == (QUOTA, QUOTA)
        code, output = command("quota", "--node", tight / "party1")
        assert (code, f"{QUOTA} of {QUOTA} rows" in output) == (0, True)
        found = {item.what: item.text for item in examine_as_client(tight / "cluster.toml", secret(tight))}
        assert f"all {QUOTA} rows are answered: see `hdcos quota asked` at party1" in found["asked at party1"]
        code, output = command("quota", "asked", "--reset", "--node", tight / "party0")
        assert code == 0
        with pytest.raises(PolicyRefused, match=r"party 1: .* are used up"):  # which counts for itself
            client.model("asked").predict(ROWS)
        assert command("quota", "asked", "--reset", "--node", tight / "party1")[0] == 0
        client.model("asked").predict(ROWS)
        assert shown(client, "asked")["queries"] == 10
        assert command("quota", "missing", "--reset", "--node", tight / "party0")[0] == 1


def test_rows_that_validate_a_training_job_are_counted(client) -> None:
    y = np.zeros(50, int)
    client.upload(np.tile(ROWS, (5, 1)), y, name="rows", outputs=3)
    network = nn.models.mlp([6, 8, 3])
    trained = client.fit(
        network, "rows", epochs=2, batch_size=25, lr=0.1, loss="softmax", name="taught", validation=(ROWS, y[:10])
    )
    assert trained.history
    assert shown(client, "taught")["queries"] == 10 * len(trained.history)


def test_requests_that_are_not_computed_are_not_counted(client, asking) -> None:
    private = client.share(MODEL, "lonely")
    # Without the other share, at the other party:
    meta = {"parameters": {"request_id": secrets.token_hex(16), "mode": "shares"}}
    assert asking(0, "POST", "/v2/models/lonely/infer", meta, {"input": np.zeros((20, 6), np.uint64)})[0] == 409
    assert shown(client, "lonely")["queries"] == 0
    private.predict(ROWS)
    assert shown(client, "lonely")["queries"] == 10


# ---- bytes that wait


def test_who_holds_too_many_bytes_waits_and_others_are_served(client, asking, tight) -> None:
    client.share(MODEL, "good")

    def ask(_):
        """A request of 400 kB whose other share never comes: the JSON's unknown fields are as long as one likes."""
        meta = {"parameters": {"request_id": secrets.token_hex(16)}, "padding": "x" * 200_000}
        return asking(0, "POST", "/v2/models/good/infer", meta, {"input": np.zeros((1, 6), np.uint64)})

    with ThreadPoolExecutor(6) as pool, hdcos.connect(tight / "cluster.toml", token=another_client(tight)) as other:
        answers = pool.map(ask, range(6))
        time.sleep(1)
        assert np.abs(other.model("good").predict(ROWS) - MODEL(ROWS)).max() < 1e-2
        answers = [(status, said["name"]) for status, said, _ in answers]
    assert sorted(answers) == [(409, "InputError")] * 2 + [(429, "PolicyRefused")] * 4
    assert asking(0, "POST", "/v2/models/good/infer", body=b"x" * 300_000)[0] == 413
    metrics = asking(0, "GET", "/metrics")[1].decode()
    assert "hdcos_held_bytes 0.0" in metrics  # everything was given back
    assert 'hdcos_queries_allowed{model="good"} 60.0' in metrics


# ---- loads that fail


def test_models_that_cannot_be_loaded_are_remembered_through_restarts_and_shown(tmp_path) -> None:
    folder = make_home(tmp_path / "home")

    @contextmanager
    def parties():
        with ExitStack() as stack:
            for role in reversed(PARTIES):  # party 0, which would wait for party 1, is stopped first
                stack.enter_context(running(folder, role))
            yield stack.enter_context(connected(folder))

    with running(folder, "dealer"):
        with parties() as cluster:
            cluster.share(MODEL, "good")
            cluster.share(nn.models.mlp([600, 600, 3], structure="dense"), "large")
            version = cluster.share(MODEL, "bad").version
        store = Store(folder / "party1" / STATE)  # three processes of party 1 wrote that they load it, and no more
        store.note_failure(Failure("load", "bad", version, lost=3))
        store.close()
        set_limits(folder, model_mb=8)
        with parties() as cluster:
            wait_for(lambda: shown(cluster, "large")["error"])
            assert "PolicyRefused" in shown(cluster, "large")["error"]
            assert "ended 3 times in a row" in shown(cluster, "bad")["error"]
            assert not shown(cluster, "bad")["ready"]
            cluster.share(MODEL, "bad")  # a new version
            for name in ("good", "bad"):
                assert np.abs(cluster.model(name).predict(ROWS) - MODEL(ROWS)).max() < 1e-2
            assert not shown(cluster, "bad")["error"]
        set_limits(folder, model_mb=2048)
        with parties() as cluster:
            assert np.abs(cluster.model("good").predict(ROWS) - MODEL(ROWS)).max() < 1e-2
            assert "[limits] model_mb" in shown(cluster, "large")["error"]
            found = list(examine_from_node(folder / "cluster.toml", folder / "dealer"))
            bad = {finding.what: finding.text for finding in found if not finding.ok}
            assert set(bad) == {"large at party0", "large at party1"}
            assert "hdcos retry large" in bad["large at party0"]
            found = list(examine_as_client(folder / "cluster.toml", secret(folder)))
            assert {finding.what: finding.text for finding in found if not finding.ok} == bad
            for role in PARTIES:
                found = list(examine_from_node(folder / "cluster.toml", folder / role))
                assert f"large at {role}" in {finding.what for finding in found if not finding.ok}
                assert command("retry", "large", "--node", folder / role)[0] == 0
            assert command("retry", "large", "--node", folder / "party0")[0] == 1
            wait_for(lambda: shown(cluster, "large")["ready"])


def wait_for(condition, within_s=20.0):
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)
