"""What a client, or a party that is also a client, must not achieve: to learn, or to keep others from being served."""

from __future__ import annotations

import hashlib
import secrets
import socket
import ssl
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest

import hdcos
from hdcos import nn
from hdcos.api.tokens import fingerprint, new_secret
from hdcos.cluster.transport import split_words
from hdcos.errors import (
    DataMissing,
    HdcosError,
    InputError,
    MaterialExhausted,
    MaterialReused,
    ModelError,
    PolicyRefused,
)
from hdcos.link.cluster_file import ClusterFile
from hdcos.offline import Dealer, Mask, MaterialPool, Need, Plan
from hdcos.party import allotment as allotments
from hdcos.party.allotment import Executions, MaterialAllotment
from hdcos.party.store import Store, StoredDataset
from hdcos.ring import encode
from hdcos.secure import compile_network
from party.conftest import command

MODEL = nn.models.mlp([6, 8, 3])
ROWS = np.random.default_rng(0).uniform(-1, 1, (4, 6))


@pytest.fixture(scope="module")
def private(cluster):
    return cluster.share(MODEL, "victim")


@pytest.fixture(scope="module")
def eve(home):
    """A second client, with every role but reveal."""
    secret, cluster_id = new_secret(), ClusterFile.read(home / "cluster.toml").id
    for rank in (0, 1):
        roles = [part for role in ("predict", "upload", "train", "watch") for part in ("--role", role)]
        shown = fingerprint(secret, cluster_id, rank)
        assert command("token", "allow", "eve", shown, "--node", home / f"party{rank}", *roles)[0] == 0
    with hdcos.connect(home / "cluster.toml", token=secret, timeout_s=20) as connection:
        yield connection


@pytest.fixture
def unharmed(raw, private):
    """Whatever happens in a test, the session goes on and the victim is served."""
    before = [raw(rank, "GET", "/v2/status")[1] for rank in (0, 1)]
    yield
    assert np.abs(private.predict(ROWS) - MODEL(ROWS)).max() < 1e-2
    after = [raw(rank, "GET", "/v2/status")[1] for rank in (0, 1)]
    assert [one["session"] for one in after] == [one["session"] for one in before]


def both(raw, calls):
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda call: raw(*call[0], **call[1]), calls))


# ---- single functions


def opened(raw, *said, **more):
    """Statuses and names of the errors of both parties that are told of a function; one for each, or the same."""
    path = f"/v2/functions/{secrets.token_hex(16)}"
    bodies = [{"shapes": [[2, 3]], **(said[rank] if len(said) > 1 else said[0])} for rank in (0, 1)]
    answers = both(raw, [((rank, "PUT", path, bodies[rank]), more) for rank in (0, 1)])
    return path, [(status, meta.get("name", "")) for status, meta, _ in answers]


def evaluated(raw, path, words, number=None, name="input0"):
    meta = {"parameters": {"request_id": number or secrets.token_hex(16)}}
    answers = both(raw, [((rank, "POST", f"{path}/evaluate", meta, {name: words}), {}) for rank in (0, 1)])
    return [(status, said.get("name", "")) for status, said, _ in answers]


def test_a_function_belongs_to_the_client_that_opened_it(raw, eve, unharmed) -> None:
    path, answers = opened(raw, {"function": "cos", "ahead": 1})
    assert answers == [(201, ""), (201, "")]
    for method, more, body in [
        ("GET", "", None),
        ("DELETE", "", None),
        ("POST", "/prepare", {"executions": 1}),
        ("POST", "/evaluate", {"inputs": [], "parameters": {"request_id": secrets.token_hex(16)}}),
        ("PUT", "", {"function": "cos", "shapes": [[2, 3]], "ahead": 1}),
    ]:
        with pytest.raises((PolicyRefused, MaterialReused), match=r"belongs to another client|used before"):
            eve.transport.ask(method, f"{path}{more}", body)
    assert evaluated(raw, path, np.zeros((2, 3), np.uint64)) == [(200, "")] * 2
    raw.both("DELETE", path)


def test_a_function_of_which_the_parties_were_told_differently_is_not_opened(raw, unharmed) -> None:
    for other in ({"function": "sin"}, {"function": "cos", "shapes": [[3, 3]]}, {"function": "cos", "ahead": 1}):
        path, answers = opened(raw, {"function": "cos"}, other)
        assert answers == [(400, "InputError"), (503, "PeerLost")]
        assert [status for status, _, _ in raw.both("GET", path)] == [404, 404]


def test_a_call_that_differs_between_the_parties_touches_no_material(raw, unharmed) -> None:
    path, _ = opened(raw, {"function": "cos"})
    raw.both("POST", f"{path}/prepare", {"executions": 2})
    number = secrets.token_hex(16)
    calls = [
        ((rank, "POST", f"{path}/evaluate", {"parameters": {"request_id": number}}), {"tensors": {"input0": words}})
        for rank, words in enumerate((np.zeros((2, 3), np.uint64), np.zeros((4, 3), np.uint64)))
    ]
    assert [status for status, _, _ in both(raw, calls)] == [409, 409]
    assert [said["left"] for _, said, _ in raw.both("GET", path)] == [2, 2]
    for words, expected in ((np.zeros((4, 3), np.uint64), 200), (np.zeros((2, 3), np.uint64), 409)):
        number = secrets.token_hex(16)
        assert [status for status, _ in evaluated(raw, path, words, number)] == [expected] * 2
    assert evaluated(raw, path, words, number) == [(409, "MaterialReused")] * 2
    raw.both("DELETE", path)


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"function": "no such"}, 400),
        ({"function": "cos", "parameters": {"bits": 3}}, 400),
        ({"function": "cos", "parameters": {"phase_bits": 41}}, 400),
        ({"function": "cos", "parameters": {"program": "x"}}, 400),
        ({"function": "cos", "shapes": []}, 400),
        ({"function": "cos", "shapes": [[]]}, 400),
        ({"function": "cos", "shapes": [[2, 0]]}, 400),
        ({"function": "cos", "shapes": [[2, 3], [2, 3]]}, 400),
        ({"function": "cos", "shapes": [[1 << 24] * 8]}, 400),
        ({"function": "cos", "shapes": [[1 << 12, 1 << 12]]}, 400),
        ({"function": "matmul", "shapes": [[1 << 20, 1], [1, 1 << 20]]}, 400),
        ({"function": "conv2d", "shapes": [[1, 1, 4, 4], [1, 1, 2, 2]], "parameters": {"stride": 0}}, 400),
        ({"function": "conv2d", "shapes": [[1, 1, 4, 4], [1, 1, 2, 2]], "parameters": {"padding": 1 << 16}}, 400),
        ({"function": "polyfit3", "parameters": {"coefficients": [0, 0, 0]}}, 400),
        ({"function": "polyfit3", "parameters": {"coefficients": [1, 1e9, 1], "coefficient_scale": 63}}, 400),
        ({"function": "round", "parameters": {"drop": 63, "bits": 63}}, 400),
        ({"function": "sigmoid", "parameters": {"series": {"period_bits": 3}}}, 400),
        ({"function": "cos", "ahead": 1 << 24}, 400),
    ],
)
def test_functions_that_cannot_be_are_refused_before_they_are_opened(raw, changes, status) -> None:
    before = [raw(rank, "GET", "/v2/status")[1]["functions"] for rank in (0, 1)]
    _, answers = opened(raw, changes)
    assert [found for found, _ in answers] == [status, status]
    assert [raw(rank, "GET", "/v2/status")[1]["functions"] for rank in (0, 1)] == before


def test_inputs_that_do_not_fit_an_open_function_are_refused(raw, unharmed) -> None:
    path, _ = opened(raw, {"function": "multiply", "shapes": [[2, 4], [4]], "ahead": 2})
    meta = {"parameters": {"request_id": secrets.token_hex(16)}}
    for shapes in ([(2, 4)], [(4, 4), (8,)], [(2, 4), (4, 1)], [(), ()], [(0, 4), (0,)]):
        tensors = {f"input{place}": np.zeros(shape, np.uint64) for place, shape in enumerate(shapes)}
        assert [status for status, _, _ in raw.both("POST", f"{path}/evaluate", meta, tensors)] == [400, 400]
    assert evaluated(raw, path, np.zeros((2, 4), np.uint64), name="input1") == [(400, "InputError")] * 2
    raw.both("DELETE", path)
    assert evaluated(raw, path, np.zeros((2, 4), np.uint64)) == [(404, "DataMissing")] * 2


def test_a_client_that_opens_too_many_functions_is_refused_and_others_are_served(eve, cluster, unharmed) -> None:
    known = [eve.function("none", (1, 1)) for _ in range(64)]
    with pytest.raises(PolicyRefused, match="64 functions of this client are open"):
        eve.function("none", (1, 1))
    assert np.abs(cluster.evaluate("cos", ROWS) - np.cos(ROWS)).max() < 2e-4
    known.pop().close()
    assert eve.evaluate("none", ROWS).shape == ROWS.shape
    for function in known:
        function.close()


def test_a_function_that_the_parties_forgot_is_opened_again(cluster, raw) -> None:
    with cluster.function("cos", (1, 6)) as cos:
        cos.prepare(4)
        for use in (lambda: cos(ROWS[:1]), lambda: cos.prepare(1)):
            raw.both("DELETE", cos._opened._path)
            use()
        raw(1, "DELETE", cos._opened._path)
        while raw(0, "GET", cos._opened._path)[0] != 404:  # what one party forgets is closed at both
            time.sleep(0.01)
        assert np.abs(cos(ROWS) - np.cos(ROWS)).max() < 2e-4
        with pytest.raises(MaterialExhausted):
            cos(ROWS[:1])
        raw.both("DELETE", cos._opened._path)
        assert cos.stock == 0


# ---- masks


@pytest.fixture
def allotment(tmp_path):
    plan = Plan((Need(Mask((3,)), 1),))
    dealer = Dealer()
    pool = MaterialPool("scope", plan, 0, dealer.open("scope", plan, 0))
    pool.order(100)
    pool.fill(0, 100, None)
    store = Store(tmp_path / "state")
    yield MaterialAllotment(pool, 1000, store, SimpleNamespace(material_s=1.0, pair_seed=bytes(32)))
    assert store.reused() == []
    store.close()


def test_a_mask_that_has_expired_is_never_handed_out_again(allotment, monkeypatch) -> None:
    numbers = list(range(allotment.allot(3), 3))
    allotment.issue(numbers, "victim", valid_s=0.01)
    allotment.claim(numbers[:1], "victim")
    assert allotment.expired_before() == 0
    monkeypatch.setattr(allotments, "GRACE_S", 0.0)
    time.sleep(0.05)
    assert allotment.expired_before() == 3
    allotment.burn_before(3)
    for wanted in ([0], [1], [2], [2, 3]):
        with pytest.raises(MaterialReused):
            allotment.issue(wanted, "eve", valid_s=10)
    with pytest.raises(MaterialReused):
        allotment.claim([1], "victim")
    with pytest.raises(MaterialReused):
        allotment.executions.take([(0, 1)])
    assert allotment.pool.used == 3
    assert allotment.free == 97


def test_masks_that_are_hoarded_run_out_for_the_hoarder_alone(allotment, monkeypatch) -> None:
    monkeypatch.setattr(allotments, "LEAST_HELD", 10)
    allotment._ahead = 20
    first = allotment.allot(10)
    allotment.issue(range(first, first + 10), "eve", 10)
    with pytest.raises(PolicyRefused, match="not used yet"):
        allotment.issue([allotment.allot(1)], "eve", 10)
    allotment.issue([allotment.allot(1)], "victim", 10)
    allotment.claim([first], "eve")
    allotment.issue([allotment.allot(1)], "eve", 10)


def test_executions_come_in_any_order_and_once(allotment) -> None:
    executions = Executions(allotment.pool, 1.0)
    (fields,) = executions.take([(5, 2), (1, 1)]).pieces[0]
    assert np.array_equal(fields[0], allotment.pool.uniform(0, 5, 2))
    for again in ([(5, 1)], [(1, 1)], [(2, 1), (2, 1)], []):
        with pytest.raises(MaterialReused):
            executions.take(again)
    assert len(executions.take([(0, 1), (2, 3)]).pieces) == 2


def test_masked_rows_must_be_the_same_at_both_parties(raw, unharmed) -> None:
    path = "/v2/models/victim"
    _, meta, zero = raw(0, "POST", f"{path}/masks", {"rows": 1})
    _, _, one = raw(1, "POST", f"{path}/masks", {"mask_ids": meta["mask_ids"]})
    opened = encode(ROWS[:1], 16) + zero["mask"] + one["mask"]
    known = {"request_id": secrets.token_hex(16), "mode": "masked", "mask_ids": meta["mask_ids"]}
    answers = both(
        raw,
        [
            ((rank, "POST", f"{path}/infer", {"parameters": known}, {"input": opened + np.uint64(rank)}), {})
            for rank in (0, 1)
        ],
    )
    assert [status for status, _, _ in answers] == [409, 409]


# ---- other people's data and models


def test_nobody_trains_on_data_without_its_owners_leave(cluster, eve, unharmed) -> None:
    x, y = np.eye(4), np.array([0, 1, 0, 1])
    cluster.upload(x, y, name="patients", outputs=2)
    spy = nn.Sequential([nn.Dense(4, 2)])
    assert "patients" not in {item["name"] for item in eve.datasets()}
    with pytest.raises(PolicyRefused, match="did not allow eve"):
        eve.fit(spy, "patients", epochs=1, batch_size=4, lr=0.5, loss="squared")
    job = eve.fit(spy, "later", epochs=1, batch_size=4, lr=0.5, loss="squared", wait=False)
    cluster.upload(x, y, name="later", outputs=2)
    with pytest.raises(HdcosError, match="did not allow eve"):
        job.wait(20)
    cluster.allow_training("patients", "eve")
    assert "patients" in {item["name"] for item in eve.datasets()}
    assert eve.fit(spy, "patients", epochs=1, batch_size=4, lr=0.5, loss="squared").predict(x).shape == (4, 2)
    with pytest.raises(DataMissing, match="no data set of eve"):
        eve.forget_data("patients")
    with pytest.raises(DataMissing, match="no data set of eve"):
        eve.allow_training("patients", "mallory")
    eve.upload(x[:3], name="patients")  # a name is its owner's own
    owners = {item["owner"]: item["rows"] for item in cluster.datasets() if item["name"] == "patients"}
    assert owners == {"me": 4}
    assert {item["owner"] for item in eve.datasets() if item["name"] == "patients"} == {"me", "eve"}
    eve.forget_data("patients")
    assert "patients" in {item["name"] for item in cluster.datasets()}


def test_a_job_does_not_replace_another_clients_model(cluster, eve, unharmed) -> None:
    job = eve.fit(nn.models.mlp([6, 8, 3]), "absent", epochs=1, batch_size=4, lr=0.1, name="credit", wait=False)
    shared = cluster.share(MODEL, "credit")
    eve.upload(ROWS, [0, 1, 2, 0], name="absent", outputs=3)
    with pytest.raises(HdcosError, match="belongs to another client"):
        job.wait(20)
    assert np.abs(shared.predict(ROWS) - MODEL(ROWS)).max() < 1e-2
    with pytest.raises(PolicyRefused, match="belongs to another client"):
        eve.share(MODEL, "credit")
    with pytest.raises(PolicyRefused, match="belongs to another client"):
        eve.model("credit").delete()


# ---- keeping others from being served


def _put(raw, rank, name, model, version):
    chosen = compile_network(model)
    words = {tensor.name: tensor.words(model.state()[tensor.name]) for tensor in chosen.tensors}
    known = {"architecture": model.architecture(), "phase_bits": 16, "version": version}
    return raw(rank, "PUT", f"/v2/models/{name}", {"parameters": known}, split_words(words)[rank])


def test_a_version_that_differs_between_the_parties_is_not_loaded(raw, unharmed) -> None:
    version = secrets.token_hex(16)
    for rank, outputs in ((0, 2), (1, 3)):
        assert _put(raw, rank, "twofold", nn.Sequential([nn.Dense(4, outputs)]), version)[0] == 201
    assert _put(raw, 0, "twofold", nn.Sequential([nn.Dense(4, 2)]), version)[0] == 400
    time.sleep(1)
    assert raw(0, "GET", "/v2/models/twofold/ready")[0] == 503


def test_data_that_differs_between_the_parties_is_not_used(raw, cluster, unharmed) -> None:
    version, content = secrets.token_hex(16), [bytes(8 * 5 * rows) for rows in (4, 6)]
    for rank, rows in ((0, 4), (1, 6)):
        path = f"/v2/datasets/uneven/{version}"
        known = {"name": "uneven", "version": version, "rows": rows, "features": 4, "outputs": 1}
        assert raw(rank, "POST", "/v2/datasets", known)[0] == 201
        assert raw(rank, "PUT", f"{path}?offset=0", body=content[rank])[0] == 200
        digest = hashlib.sha256(content[rank]).hexdigest()
        assert raw(rank, "POST", f"{path}/complete", {"sha256": digest})[0] == 200
    job = cluster.fit(nn.models.mlp([4, 4, 1]), "uneven", epochs=1, batch_size=2, lr=0.1, wait=False)
    time.sleep(1)
    assert job.done is False
    job.cancel()
    assert job.wait(20)


def test_what_is_too_large_is_refused_before_it_harms(raw, cluster, eve, unharmed) -> None:
    wide = nn.Sequential([nn.Conv2d(1, 1, 1)], input_shape=(1, 6000, 6000))
    with pytest.raises(ModelError, match="works on 108000000 numbers for one row"):
        eve.share(wide, "wide")
    eve.upload(np.zeros((6000, 64)), np.zeros(6000, int), name="long", outputs=10)
    with pytest.raises(InputError, match=r"MB of material at once.*smaller network or batch"):
        eve.fit(nn.models.mlp([64, 4096, 10], structure="dense"), "long", epochs=1, batch_size=6000, lr=0.1)
    started = time.monotonic()
    record = {"input_shape": [30000], "layers": [{"type": "Dense", "in_features": 30000, "out_features": 30000}]}
    known = {"architecture": record, "phase_bits": 16, "version": secrets.token_hex(16)}
    assert raw(0, "PUT", "/v2/models/huge", {"parameters": known}, {})[0] == 400
    assert time.monotonic() - started < 5
    with pytest.raises(InputError, match="named twice"):
        eve.fit(nn.models.mlp([64, 8, 10]), ["long", "long"], epochs=1, batch_size=10, lr=0.1)


def test_models_come_and_go_while_material_is_made(eve, unharmed) -> None:
    for number in range(4):
        eve.share(nn.models.mlp([64, 64, 3], seed=number), "fleeting").delete()
    with pytest.raises(DataMissing):
        eve.model("fleeting")


def test_jobs_that_are_cancelled_at_once_harm_nobody(eve, unharmed) -> None:
    eve.upload(np.zeros((200, 64)), np.zeros(200, int), name="dull", outputs=10)
    for _ in range(4):
        job = eve.fit(nn.models.mlp([64, 64, 10]), "dull", epochs=100, batch_size=50, lr=0.1, wait=False)
        time.sleep(0.3)
        job.cancel()
        assert job.wait(20)


def test_more_rows_than_there_is_material_for_are_served_in_parts(cluster, private, unharmed) -> None:
    model = nn.models.mlp([256, 1024, 10])
    x = np.random.default_rng(1).uniform(-1, 1, (300, 256))
    with cluster.share(model, "large") as large:
        assert np.abs(large.predict(x) - model(x)).max() < 3e-2
        assert np.abs(large.predict(x, mode="masked", batch_rows=16) - model(x)).max() < 3e-2


@pytest.mark.parametrize(
    ("method", "path", "body", "headers"),
    [
        ("GET", "/v2/audit?limit=000000001999", None, {}),
        ("GET", "/v2/audit?limit=99999999999999999999999999999", None, {}),
        ("POST", "/v2/models/victim/infer", b"{}", {"inference-header-content-length": "9" * 5000}),
        (
            "POST",
            "/v2/models/victim/infer",
            b'{"inputs":[{"name":"input","datatype":"UINT64","shape":[0,4294967295,4294967295,4294967295],"data":[]}]}',
            {},
        ),
        ("POST", "/v2/models/victim/masks", b'{"mask_ids": ["\\ud800.aa"]}', {}),
        ("POST", "/v2/models/victim/infer", b"[" + b"[]," * 2_000_000 + b"[]]", {}),
    ],
)
def test_odd_numbers_and_texts_are_refused_by_name(raw, private, method, path, body, headers) -> None:
    for rank in (0, 1):
        status, said, _ = raw(rank, method, path, body=body, headers=headers)
        assert status in (400, 409), said


def dial(home):
    """A connection to party 0 that says what it likes."""
    host, port = ClusterFile.read(home / "cluster.toml").servers["party0"].http.split(":")
    settings = ssl.create_default_context()
    settings.check_hostname, settings.verify_mode = False, ssl.CERT_NONE
    return settings.wrap_socket(socket.create_connection((host, int(port)), timeout=15))


@pytest.fixture(scope="module", autouse=True)
def lazy(home):
    """How long a request that does not go on was waited for, and what came then; the other tests run meanwhile."""

    def linger():
        with dial(home) as connection:
            connection.sendall(b"GET /v2 HTT")
            started = time.monotonic()
            return connection.recv(10), time.monotonic() - started

    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(linger)


def test_endless_and_lazy_heads_are_cut_off(home, lazy) -> None:
    with dial(home) as greedy:
        greedy.sendall(b"GET /v2 HTTP/1.1\r\n")
        with pytest.raises(OSError):
            for _ in range(100_000):
                greedy.sendall(b"x: " + bytes(4000).replace(b"\0", b"y") + b"\r\n")
    answer, waited_s = lazy.result(20)
    assert answer == b""
    assert waited_s < 14


# ---- crashes


def test_an_upload_whose_end_was_not_noted_can_be_completed(tmp_path) -> None:
    store = Store(tmp_path / "state")
    dataset = StoredDataset("d", "0" * 32, 2, 3, 0, False, "me")
    store.begin_dataset(dataset, 1e9)
    store.add_bytes(dataset, 0, bytes(48))
    digest = hashlib.sha256(bytes(48)).hexdigest()
    part = tmp_path / "state" / "datasets" / "d" / f"{dataset.version}.part"
    part.with_suffix(".arrow").write_bytes(b"whole or not")  # the process died before the row was written
    assert store.received(dataset) == 48
    store.complete_dataset(dataset, digest)
    (kept,) = store.datasets("d")
    assert kept.complete
    assert not part.exists()
    assert store.dataset_rows(kept).take(np.arange(2)).shape == (2, 3)
    with pytest.raises(PolicyRefused, match="GB of data"):
        store.begin_dataset(StoredDataset("e", "1" * 32, 1 << 20, 1 << 10, 0, False, "me"), 1e9)
    store.close()


def test_a_job_that_ended_at_one_party_ends_at_the_other(cluster, home, unharmed) -> None:
    cluster.upload(ROWS, [0, 1, 2, 0], name="small", outputs=3)
    cluster.fit(nn.models.mlp([6, 8, 3]), "small", epochs=1, batch_size=2, lr=0.1)
    number = cluster.jobs()[-1]["id"]
    store = Store(home / "party1" / "state")
    store.note_job(number, state="running", step=1)  # as if it had died before it could note the end
    for _ in range(100):
        if store.job(number).state == "done":
            break
        time.sleep(0.1)
    assert store.job(number).state == "done"
    store.close()
