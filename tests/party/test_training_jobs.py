"""Data sets, jobs and reveals over HTTPS, and what survives when nodes are killed."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import numpy as np
import pytest

import hdcos
from hdcos import data, nn
from hdcos.errors import DataMissing, HdcosError, InputError, PolicyRefused, RangeError
from hdcos.party.checkpoint import Checkpoints
from hdcos.party.store import Store
from hdcos.secure.training.plain import plain_fit
from hdcos.secure.training.step import plan_step
from hdcos.secure.training.targets import one_hot
from party.conftest import Raw, command, connected, running, running_all
from serve_nodes import await_that


@pytest.fixture(scope="module")
def digits():
    x, y = data.digits("train")
    return x[:600], y[:600]


def network():
    return nn.models.mlp([64, 32, 10])


def test_training_gives_what_plain_training_gives(cluster, digits) -> None:
    x, y = digits
    options = {"epochs": 4, "batch_size": 50, "seed": 3}
    private = cluster.fit(network(), x, y, lr=0.5, validation=(x[:100], y[:100]), name="digits", **options)
    assert [epoch.number for epoch in private.history] == [1, 2, 3, 4]
    assert all(epoch.accuracy is not None and epoch.watched == "validation rows" for epoch in private.history)
    plain = plain_fit(network(), x, one_hot(y, 10), rate=lambda epoch: 0.5, **options)
    assert np.abs(private.predict(x) - plain(x)).max() < 0.05
    assert cluster.jobs()[-1]["state"] == "done"
    assert not any(item["name"].startswith("rows-") for item in cluster.datasets())


def test_of_a_job_that_ended_only_the_ledger_is_kept(cluster, home, digits) -> None:
    x, y = digits
    cluster.fit(network(), x[:200], y[:200], epochs=3, batch_size=50, lr=0.1, checkpoint_every=4, name="brief")
    job = cluster.jobs()[-1]
    assert (job["model"], job["state"]) == ("brief", "done")
    for folder in (home / f"party{rank}" / "state" / "jobs" / job["id"] for rank in (0, 1)):
        deadline = time.monotonic() + 10  # the second party may note the end a moment later
        while (held := list(folder.rglob("*.safetensors"))) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not held
        assert list(folder.rglob("ledger.jsonl"))


def test_rows_and_columns_of_several_owners(cluster, digits) -> None:
    x, y = digits
    cluster.upload(x[:, :40], name="left")
    cluster.upload(x[:, 40:], y, name="right", outputs=10)
    private = cluster.fit(network(), ("left", "right"), epochs=1, batch_size=100, lr=0.1, seed=1)
    cluster.upload(x[:300], y[:300], name="first", outputs=10)
    cluster.upload(x[300:], y[300:], name="second", outputs=10)
    other = cluster.fit(network(), ["first", "second"], epochs=1, batch_size=100, lr=0.1, seed=1)
    assert np.abs(private.predict(x) - other.predict(x)).max() < 1e-2
    for name in ("left", "right", "first", "second"):
        cluster.forget_data(name)
    with pytest.raises(DataMissing):
        cluster.forget_data("left")


def test_an_upload_goes_on_where_it_stopped(raw) -> None:
    version, content = secrets.token_hex(16), secrets.token_bytes(8 * 10 * 3)
    path = f"/v2/datasets/pieces/{version}"
    known = {"name": "pieces", "version": version, "rows": 10, "features": 2, "outputs": 1}
    assert raw(0, "POST", "/v2/datasets", known)[0] == 201
    assert raw(0, "POST", "/v2/datasets", known)[0] == 400
    assert raw(0, "PUT", f"{path}?offset=0", body=content[:100])[1]["received"] == 100
    assert raw(0, "PUT", f"{path}?offset=120", body=content[120:])[0] == 400
    assert raw(0, "POST", f"{path}/complete", {"sha256": "0"})[0] == 400
    assert raw(0, "PUT", f"{path}?offset=60", body=content[60:])[1]["received"] == 240
    assert raw(0, "PUT", f"{path}?offset=200", body=content)[0] == 400
    status, said, _ = raw(0, "POST", f"{path}/complete", {"sha256": hashlib.sha256(b"x").hexdigest()})
    assert (status, said["name"]) == (400, "InputError")
    digest = hashlib.sha256(content).hexdigest()
    assert raw(0, "POST", f"{path}/complete", {"sha256": digest})[1]["complete"]
    assert raw(0, "POST", f"{path}/complete", {"sha256": digest})[0] == 200
    assert raw(0, "PUT", f"{path}?offset=0", body=content)[0] == 400
    assert raw(0, "PUT", f"{path}?offset=x", body=content)[0] == 400
    assert raw(0, "GET", "/v2/datasets/pieces")[1]["versions"][0]["received"] == 240
    assert raw(0, "DELETE", "/v2/datasets/pieces")[0] == 200
    assert raw(0, "GET", "/v2/datasets/pieces")[0] == 404


def test_a_job_can_be_watched_and_cancelled(cluster, raw, digits) -> None:
    x, y = digits
    job = cluster.fit(network(), x, y, epochs=2000, batch_size=20, lr=0.1, name="endless", wait=False)
    seen = []
    for status in job.events():
        seen.append(status["state"])
        if status["step"] > 10:
            break
    assert "running" in seen
    assert not job.done
    job.cancel()
    assert job.wait(20)
    assert job.state == "cancelled"
    kept = job.result()
    assert (kept.name, kept.predict(x[:3]).shape) == ("endless", (3, 10)), "the model so far"
    assert cluster.job(job.id).state == "cancelled"
    status, said, _ = raw(0, "POST", f"/v2/jobs/{job.id}/cancel", {"keep": "perhaps"})
    assert (status, said["name"]) == (400, "InputError")


def test_a_job_that_cannot_run_fails_by_name(cluster, digits) -> None:
    x, y = digits
    cluster.upload(x, y, name="odd", outputs=10)
    job = cluster.fit(nn.models.mlp([32, 16, 10]), "odd", epochs=1, batch_size=20, lr=0.1, wait=False)
    with pytest.raises(HdcosError, match="64 features"):
        job.wait(20)
    job = cluster.fit(network(), "odd", epochs=1, batch_size=601, lr=0.1, wait=False)
    with pytest.raises(HdcosError, match="cannot be drawn from 600"):
        job.wait(20)


@pytest.mark.parametrize("own", [True, False])
def test_a_job_that_diverges_is_told_and_ended(cluster, digits, own) -> None:
    x, y = digits
    validation, before = None if own else (x, y), cluster.datasets()
    with pytest.raises(RangeError, match=r"diverged in epoch 1.*smaller learning rate"):
        cluster.fit(network(), x, y, epochs=50, batch_size=20, lr=500.0, validation=validation)
    assert cluster.jobs()[-1]["state"] == "cancelled"
    assert cluster.datasets() == before
    assert not any(item["name"].startswith("job-") for item in cluster.models())


def test_every_epoch_is_shown_however_short(cluster, digits) -> None:
    x, y = digits
    options = {"epochs": 30, "batch_size": 100, "lr": 0.5, "progress": False}
    watched = cluster.fit(network(), x[:100], y[:100], watch=20, **{**options, "epochs": 6})
    assert [epoch.number for epoch in watched.history] == list(range(1, 7))
    assert all(epoch.loss is not None and epoch.watched == "training rows" for epoch in watched.history)
    assert watched.history[-1].loss < watched.history[0].loss
    cluster.upload(x[:100], y[:100], name="few", outputs=10)
    unwatched = cluster.fit(network(), "few", **options)
    assert [epoch.number for epoch in unwatched.history] == list(range(1, 31))
    assert all(epoch.loss is None and 0 < epoch.seconds < 10 for epoch in unwatched.history)


def test_a_model_in_use_is_not_replaced_before_training_has_ended(cluster, home, digits) -> None:
    x, y = digits
    older, rows = network(), x[:5]
    served = cluster.share(older, "in-use")
    options = {"epochs": 6, "batch_size": 20, "lr": 1.0, "seed": 1, "name": "in-use", "progress": False}
    with ThreadPoolExecutor(1) as pool, connected(home) as other:
        training, looked = pool.submit(other.fit, network(), x, y, validation=(x[:50], y[:50]), **options), 0
        while not training.done():
            answer, epochs = served.predict(rows), [job["epoch"] for job in cluster.jobs() if job["model"] == "in-use"]
            if epochs and 1 <= epochs[-1] < 6:
                assert np.abs(answer - older(rows)).max() < 1e-2
                looked += 1
        trained = training.result().predict(rows)
    assert looked
    plain = plain_fit(network(), x, one_hot(y, 10), 6, 20, lambda epoch: 1.0, 1)
    assert np.abs(trained - plain(rows)).max() < 0.05, "the model that was trained, not the older one"


def test_a_job_knows_its_own_cost(cluster, digits) -> None:
    """Not that of the nodes' lives, nor that of other work meanwhile."""
    x, y = digits
    other = cluster.share(nn.models.mlp([6, 8, 3]), "busy")
    cluster.upload(x, y, name="costly", outputs=10)
    job = cluster.fit(network(), "costly", epochs=3, batch_size=50, lr=0.1, wait=False)
    while not job.done:
        other.predict(np.ones((20, 6)))
    planned, steps = plan_step(network(), 50), 3 * (len(x) // 50)
    assert job.cost.online.rounds == steps * planned.rounds
    assert job.cost.online.bytes_sent == (steps * planned.online_bytes,) * 2
    assert job.cost.offline.bytes_sent[1] >= steps * planned.material.packed_bytes(1)
    assert job.result().cost == job.cost


@pytest.mark.parametrize(
    "change",
    [
        {"id": "x"},
        {"model": "../x"},
        {"architecture": []},
        {"rates": []},
        {"rates": ["a"]},
        {"rates": [-1.0]},
        {"batch_size": 0},
        {"loss": "none"},
        {"join": "both"},
        {"datasets": []},
        {"datasets": "x"},
        {"seed": -1},
        {"momentum": 2.0},
        {"publish": "never"},
    ],
)
def test_jobs_that_make_no_sense_are_refused(raw, change) -> None:
    status, said = submitted(raw, change)
    assert status == 400, said


@pytest.mark.parametrize(
    ("change", "words"),
    [({"flip": True}, "for images"), ({"shift": -1}, "shift"), ({"average": 2}, "a run of 1 epochs has no 2")],
)
def test_a_party_itself_refuses_options_that_do_not_fit_the_network(raw, change, words) -> None:
    status, said = submitted(raw, change)
    assert (status, words in str(said)) == (400, True), said


def submitted(raw, change):
    spec = {
        **{"id": secrets.token_hex(16), "model": "m", "architecture": network().architecture(), "datasets": ["d"]},
        **{"rates": [0.1], "batch_size": 10, "seed": 1, **change},
    }
    status, said, _ = raw(0, "POST", "/v2/jobs", {"parameters": spec}, {})
    return status, said


def test_a_reveal_takes_both_operators(cluster, home) -> None:
    model = nn.models.mlp([6, 8, 3])
    private = cluster.share(model, "secret")
    with pytest.raises(PolicyRefused, match="hdcos approve") as refusal:
        private.reveal(wait_s=0.1)
    number = str(refusal.value).split("reveal ")[1].split()[0]
    assert number in command("approve", "list", "--node", home / "party0")[1]
    assert command("approve", number, "--node", home / "party0")[0] == 0
    with pytest.raises(PolicyRefused, match="waits for party 1"):
        private.reveal(wait_s=0.1, request=number)
    assert command("approve", number, "--node", home / "party1")[0] == 0
    state = private.reveal(wait_s=20, request=number).state()
    assert np.abs(state["0.diagonal"] - model.state()["0.diagonal"]).max() < 1e-4
    code, output = command("approve", number, "--node", home / "party1")
    assert code == 1
    assert "released already" in output
    with pytest.raises(PolicyRefused) as refusal:
        private.reveal(wait_s=0.1)
    number = str(refusal.value).split("reveal ")[1].split()[0]
    assert command("approve", number, "--node", home / "party1", "--refuse")[0] == 0
    with pytest.raises(PolicyRefused, match="refused to reveal"):
        private.reveal(request=number)


def test_what_one_operator_refuses_no_longer_waits_at_the_other_party(cluster, home) -> None:
    private = cluster.share(nn.models.mlp([6, 8, 3]), "withheld")
    with pytest.raises(PolicyRefused) as refusal:
        private.reveal(wait_s=0.1)
    number = str(refusal.value).split("reveal ")[1].split()[0]
    assert command("approve", number, "--node", home / "party0")[0] == 0
    assert command("approve", number, "--node", home / "party1", "--refuse")[0] == 0

    def listed() -> str:
        return " ".join(command("approve", "list", "--node", home / "party0")[1].split())

    await_that(lambda: f"{number} refused" in listed())


def test_revoked_clients_are_shut_out(home) -> None:
    secret_file = home / "second"
    code, output = command("token", "new", "--cluster", home / "cluster.toml", "--output", secret_file)
    assert code == 0
    assert secret_file.stat().st_mode & 0o777 == 0o600
    lines = [line for line in output.splitlines() if "hdcos token allow" in line]
    for rank, line in enumerate(lines):
        hashed = line.split("NAME ")[1].split()[0]
        assert command("token", "allow", "two", hashed, "--node", home / f"party{rank}", "--role", "predict")[0] == 0
        assert "two" in command("token", "list", "--node", home / f"party{rank}")[1]
    with hdcos.connect(home / "cluster.toml", token=secret_file.read_text()) as second:
        second.models()
        assert command("token", "revoke", "two", "--node", home / "party0")[0] == 0
        time.sleep(1.2)
        with pytest.raises(PolicyRefused):
            second.models()


def test_everything_survives_killed_nodes(folder, digits) -> None:
    x, y = digits
    model = nn.models.mlp([6, 8, 3])
    rows = np.random.default_rng(0).uniform(-1, 1, (5, 6))
    with ExitStack() as stack:
        nodes = stack.enter_context(running_all(folder, timeout_s=5))
        with connected(folder, timeout_s=40) as cluster:
            private = cluster.share(model, "kept")
            job = cluster.fit(
                network(),
                x,
                y,
                epochs=10,
                batch_size=20,
                lr=0.3,
                seed=5,
                name="trained",
                checkpoint_every=20,
                wait=False,
            )
            for role in ("party1", "dealer", "party0"):
                step = job.step
                while not job.done and job.step < step + 25:
                    time.sleep(0.05)
                os.kill(nodes[role].pid, signal.SIGKILL)
                nodes[role].wait()
                stack.enter_context(running(folder, role, 5))
                assert np.abs(private.predict(rows) - model(rows)).max() < 1e-2
            trained = job.result(60)
            plain = plain_fit(network(), x, one_hot(y, 10), 10, 20, lambda epoch: 0.3, 5)
            agree = (trained.predict(x).argmax(1) == plain(x).argmax(1)).mean()
            assert agree > 0.97
    for rank in (0, 1):
        store = Store(folder / f"party{rank}" / "state")
        assert store.reused() == []
        assert Checkpoints.of(store.job_folder(job.id), rank).reused() == []
        assert Checkpoints.of(store.job_folder(job.id), rank).attempt >= 2
        store.close()


def test_a_job_that_is_cancelled_while_it_is_paused_keeps_the_model_of_its_last_checkpoint(folder, digits) -> None:
    x, y = digits
    options = {"epochs": 2000, "batch_size": 20, "lr": 0.3, "name": "kept", "checkpoint_every": 10, "watch": 0}
    with ExitStack() as stack:
        nodes = stack.enter_context(running_all(folder, timeout_s=5))
        with connected(folder, timeout_s=40) as cluster:
            job = cluster.fit(network(), x, y, wait=False, **options)
            while job.step < 20:
                time.sleep(0.02)
            os.kill(nodes["dealer"].pid, signal.SIGKILL)  # without it the parties take no step
            nodes["dealer"].wait()
            while any(status["state"] != "waiting" for status in cluster.transport.job(job.id)):
                time.sleep(0.02)
            job.cancel()
            stack.enter_context(running(folder, "dealer", 5))
            assert job.wait(40)
            kept = job.result()
            assert (job.state, kept.name, job.step % 10) == ("cancelled", "kept", 0)
            assert job.step >= 20
            assert np.abs(kept.predict(x[:5]) - network()(x[:5])).max() > 0.05, "it has learnt"


def test_requests_under_way_when_a_party_dies_fail_retryably(folder) -> None:
    model = nn.models.mlp([6, 8, 3])
    row = np.ones((1, 6))
    with ExitStack() as stack:
        nodes = stack.enter_context(running_all(folder, timeout_s=5))
        with connected(folder, timeout_s=40) as cluster:
            private = cluster.share(model, "kept")
            wrong, stop, answered = [], threading.Event(), []

            def ask():
                while not stop.is_set():
                    try:
                        answered.append(np.abs(private.predict(row) - model(row)).max() < 1e-2)
                    except HdcosError as error:
                        wrong.append(error)

            threads = [threading.Thread(target=ask) for _ in range(4)]
            for thread in threads:
                thread.start()
            time.sleep(1)
            os.kill(nodes["party1"].pid, signal.SIGKILL)
            nodes["party1"].wait()
            raw = Raw(folder)
            status, said, _ = raw(0, "GET", "/v2/health/ready")
            raw.close()
            assert status in (200, 503)
            assert "ready" in said
            before = len(answered)
            stack.enter_context(running(folder, "party1", 5))
            while len(answered) < before + 20 and not wrong:
                time.sleep(0.1)
            stop.set()
            for thread in threads:
                thread.join()
    assert not wrong
    assert all(answered)


def test_bad_labels_are_refused_before_anything_is_sent(cluster, digits) -> None:
    x, y = digits
    for labels, words in ((y + 5, "do not fit classes"), (y[:-1], "do not belong together")):
        with pytest.raises(InputError, match=words):
            cluster.fit(network(), x, labels, epochs=1, batch_size=10, lr=0.1)
    with pytest.raises(InputError, match="epochs"):
        cluster.fit(network(), x, y, epochs=0, batch_size=10, lr=0.1)
    with pytest.raises(InputError, match="leave y out"):
        cluster.fit(network(), "digits", y, epochs=1, batch_size=10, lr=0.1)
    assert json.dumps(cluster.jobs())


def test_a_regression_takes_one_number_for_each_row(cluster, home, tmp_path) -> None:
    x = np.random.default_rng(0).uniform(-1, 1, (200, 3))
    y = x @ [1.5, -2.0, 0.5]
    model, options = nn.models.mlp([3, 16, 1], seed=1), {"epochs": 3, "batch_size": 20, "lr": 0.2, "seed": 2}
    private = cluster.fit(model, x, y, loss="squared", **options)
    assert private.history[-1].loss < private.history[0].loss
    table = np.column_stack([x, y])
    np.savetxt(tmp_path / "rows.csv", table, delimiter=",", header="a,b,c,y", comments="", fmt="%.9g")
    place = ("--cluster", home / "cluster.toml", "--token-file", home / "token")
    rows = (tmp_path / "rows.csv", "--label", "y", "--name", "prices", *place)
    code, output = command("upload", *rows)
    assert code == 1
    assert "loss='squared'" in output
    assert command("upload", *rows, "--loss", "squared") == (0, "prices: 200 rows with labels\n")
    named = cluster.fit(model, "prices", loss="squared", **options)
    assert np.abs(private.predict(x) - named.predict(x)).max() < 0.02
