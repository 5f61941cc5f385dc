"""Predictions over HTTPS: both modes, batches of many clients, and everything that is refused."""

from __future__ import annotations

import secrets
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from jsonschema import Draft202012Validator
from prometheus_client import parser as prometheus
from prometheus_client.openmetrics import parser as openmetrics

import hdcos
from hdcos import nn
from hdcos.api.tokens import fingerprint, new_secret, token
from hdcos.cluster.https import Party
from hdcos.cluster.transport import split_words
from hdcos.errors import DataMissing, HandshakeError, HdcosError, HdcosWarning, InputError, ModelError, PolicyRefused
from hdcos.link.cluster_file import ClusterFile
from hdcos.ring import decode, encode
from hdcos.testing.bounds import error_bound
from party.conftest import Raw, command, connected, secret

MODEL = nn.models.mlp([6, 8, 3])
ROWS = np.random.default_rng(0).uniform(-1, 1, (20, 6))


@pytest.fixture(scope="module")
def private(cluster):
    return cluster.share(MODEL, "tiny")


def infer(raw, rank, words, number, name="tiny", **parameters):
    known = {"request_id": number, "mode": "shares", **parameters}
    return raw(rank, "POST", f"/v2/models/{name}/infer", {"parameters": known}, {"input": words})


def together(*calls):
    with ThreadPoolExecutor(len(calls)) as pool:
        return [call.result() for call in [pool.submit(*call) for call in calls]]


def fresh() -> str:
    return secrets.token_hex(16)


def test_predictions_are_those_of_the_model(cluster, private) -> None:
    expected = MODEL(ROWS)
    assert np.abs(private.predict(ROWS) - expected).max() < 1e-2
    assert np.abs(private.predict(ROWS, mode="masked") - expected).max() < 1e-2
    private.prepare(20)
    cluster.reset_cost()
    assert np.abs(private.predict(ROWS) - expected).max() < 1e-2
    masked = cluster.cost.online.rounds
    cluster.reset_cost()
    private.predict(ROWS, mode="shares")
    assert cluster.cost.online.rounds == masked + 1
    assert private.predict(ROWS, batch_rows=3).shape == (20, 3)
    assert private.predict(np.empty((0, 6))).shape == (0, 3)


@pytest.mark.parametrize("mode", ["shares", "masked"])
def test_answers_leave_with_fresh_noise_of_both_parties(cluster, mode) -> None:
    """Of a linear network, which has no other noise: 5.6e-4 from each, 8e-4 together (docs/security.md)."""
    model = nn.Sequential([nn.Dense(6, 3)], seed=1)
    private, rows = cluster.share(model, "linear"), np.repeat(ROWS[:1], 1000, 0)
    errors = private.predict(rows, mode=mode) - model(rows)
    assert np.abs(errors.std(axis=0) / 8.07e-4 - 1).max() < 0.1, "one party alone gives 0.7 of that"
    assert np.abs(errors.mean(axis=0)).max() < 4 * 8.07e-4 / np.sqrt(1000)
    assert np.abs(np.corrcoef(errors.T) - np.eye(3)).max() < 4 / np.sqrt(1000), "each output has noise of its own"
    assert np.abs([np.corrcoef(error[1:], error[:-1])[0, 1] for error in errors.T]).max() < 4 / np.sqrt(1000)


def test_images_and_other_layers(cluster) -> None:
    model = nn.models.lenet5()
    x = np.random.default_rng(1).uniform(0, 1, (2, 1, 28, 28))
    with cluster.share(model, "lenet") as private:
        assert np.abs(private.predict(x) - model(x)).max() < 3e-2


def test_leaving_a_block_keeps_the_model_and_delete_ends_it(cluster) -> None:
    cluster.share(MODEL, "fraud")
    for _ in range(2):
        with cluster.model("fraud") as held:
            held.prepare(3)
            assert np.abs(held.predict(ROWS) - MODEL(ROWS)).max() < 1e-2
    with pytest.raises(ZeroDivisionError), cluster.model("fraud"):
        raise ZeroDivisionError
    cluster.model("fraud").delete()
    with pytest.raises(DataMissing):
        cluster.model("fraud")


def test_intervals_are_measured_here_and_known_to_both_parties(cluster, raw) -> None:
    model = nn.Sequential([nn.Dense(6, 8), nn.Sigmoid(), nn.Dense(8, 3)], seed=1)
    model = model.with_state({**model.state(), "0.weight": 30 * model.state()["0.weight"]})
    with pytest.warns(HdcosWarning, match=r"assumed \|x\| <= 8 in layer 1 \(Sigmoid\)") as caught:
        folded = cluster.share(model, "wide")
    assert caught[0].filename == __file__
    assert np.abs(folded.predict(ROWS) - model(ROWS)).max() > 0.5
    private = cluster.share(model, "wide", calibrate=ROWS)
    chosen = private.calibration.intervals[0].interval
    assert chosen > 8
    assert (np.abs(private.predict(ROWS) - model(ROWS)) <= error_bound(private.calibration.model, ROWS)).all()
    for rank in (0, 1):
        architecture = raw(rank, "GET", "/v2/models/wide")[1]["parameters"]["architecture"]
        assert architecture["layers"][1] == {"type": "Sigmoid", "interval": chosen}
    assert cluster.model("wide").network.record() == private.network.record()
    private.close()


def test_a_party_refuses_an_interval_that_has_no_series(cluster) -> None:
    architecture = {"input_shape": [4], "layers": [{"type": "Tanh", "interval": 1 << 30}]}
    known = {"architecture": architecture, "phase_bits": 16, "version": fresh()}
    with pytest.raises(ModelError, match="interval must be one of 4, 12"):
        cluster.transport.ask("PUT", "/v2/models/endless", {"parameters": known}, split_words({}))


def test_many_clients_share_batches(cluster, private, raw) -> None:
    def status():
        return raw(0, "GET", "/v2/status")[1]["counters"]

    before = status()
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda row: private.predict(row[None], mode="shares"), np.tile(ROWS, (10, 1))))
    after = status()
    assert np.abs(np.concatenate(answers) - np.tile(MODEL(ROWS), (10, 1))).max() < 1e-2
    assert after["rows"] - before["rows"] == 200
    assert after["batches"] - before["batches"] < 200


def test_a_new_version_takes_the_place_of_the_old(cluster) -> None:
    first, second = nn.models.mlp([4, 4, 2], seed=1), nn.models.mlp([4, 4, 2], seed=2)
    x = ROWS[:, :4]
    private = cluster.share(first, "changing")
    assert np.abs(private.predict(x) - first(x)).max() < 1e-2
    cluster.share(second, "changing")
    assert np.abs(private.predict(x) - second(x)).max() < 1e-2


def test_shares_by_hand(raw, private) -> None:
    """What docs/http.md says, step by step."""
    words = encode(ROWS, 16)
    zero, one = split_words({"input": words})
    number = fresh()
    answers = together((infer, raw, 0, zero["input"], number), (infer, raw, 1, one["input"], number))
    assert [status for status, _, _ in answers] == [200, 200]
    parameters = answers[0][1]["parameters"]
    assert parameters == answers[1][1]["parameters"]
    total = answers[0][2]["output"] + answers[1][2]["output"]
    logits = (
        decode(total & np.uint64((1 << parameters["bits"]) - 1), parameters["scale_bits"], parameters["bits"])
        * parameters["gain"]
    )
    assert np.abs(logits - MODEL(ROWS)).max() < 1e-2


def test_labels_by_hand(raw, private) -> None:
    """What docs/http.md says: the label is all that both answers together hold."""
    rows = 6 * ROWS
    told = [raw(rank, "GET", "/v2/models/tiny")[1]["parameters"]["labels"] for rank in (0, 1)]
    assert told[0] == told[1]
    assert told[0]["rounds"] == 3
    number, (zero, one) = fresh(), split_words({"input": encode(rows, 16)})
    calls = [
        (lambda r=rank, words=side["input"]: infer(raw, r, words, number, output="label"),)
        for rank, side in enumerate((zero, one))
    ]
    answers = together(*calls)
    assert [status for status, _, _ in answers] == [200, 200]
    assert [said["parameters"] for _, said, _ in answers] == [{"scale_bits": 0, "bits": 3, "gain": 1.0}] * 2
    shares = [tensors["output"] for _, _, tensors in answers]
    assert all(share.shape == (20,) and int(share.max()) < 8 for share in shares)
    best = np.sort(MODEL(rows), axis=1)
    clear = best[:, -1] - best[:, -2] > 2e-2
    assert (((shares[0] + shares[1]) % 8) == MODEL(rows).argmax(1))[clear].all()


def test_parties_that_are_asked_for_different_outputs_answer_neither(raw, private) -> None:
    number, words = fresh(), encode(ROWS, 16)
    calls = [(lambda r=rank: infer(raw, r, words, number, output=("label", "logits")[r]),) for rank in (0, 1)]
    answers = together(*calls)
    assert [(status, meta["name"]) for status, meta, _ in answers] == [(409, "InputError")] * 2
    assert "differ in model, version, mode, output" in answers[0][1]["error"]
    for output in ("proba", "scores", 7):
        status, said, _ = infer(raw, 0, words, fresh(), output=output)
        assert (status, said["name"]) == (400, "InputError")
    status, said, _ = raw(0, "POST", "/v2/models/tiny/prepare", {"rows": 1 << 30, "output": "label"})
    assert (status, "prepare fewer at a time" in said["error"]) == (400, True)


def test_what_differs_between_the_parties_is_refused_by_both(raw, private) -> None:
    words = encode(ROWS, 16)
    number = fresh()
    answers = together((infer, raw, 0, words[:3], number), (infer, raw, 1, words[:2], number))
    assert [(status, meta["name"]) for status, meta, _ in answers] == [(409, "InputError")] * 2
    answers = together((infer, raw, 0, words, fresh()), (infer, raw, 1, words, fresh()))
    assert [(status, meta["retryable"]) for status, meta, _ in answers] == [(409, True)] * 2
    assert "party 1 got no request" in answers[0][1]["error"]
    number = fresh()
    together((infer, raw, 0, words, number), (infer, raw, 1, words, number))
    status, meta, _ = infer(raw, 0, words, number)
    assert (status, meta["name"]) == (409, "MaterialReused")


def test_a_mask_is_used_once_and_by_its_owner(raw, private, home) -> None:
    path = "/v2/models/tiny/masks"
    _, meta, zero = raw(0, "POST", path, {"rows": 2})
    _, _, one = raw(1, "POST", path, {"mask_ids": meta["mask_ids"]})
    opened = encode(ROWS[:2], 16) + zero["mask"] + one["mask"]
    number, known = fresh(), {"mode": "masked", "mask_ids": meta["mask_ids"]}
    calls = [(lambda r=rank: infer(raw, r, opened, number, **known),) for rank in (0, 1)]
    assert [status for status, _, _ in together(*calls)] == [200, 200]
    for rank in (0, 1):
        status, said, _ = infer(raw, rank, opened, fresh(), **known)
        assert (status, said["name"]) == (409, "MaterialReused")
    status, said, _ = raw(1, "POST", path, {"mask_ids": meta["mask_ids"]})
    assert (status, said["name"]) == (409, "MaterialReused")
    forged = [f"{int(meta['mask_ids'][0].split('.')[0], 16) + 5:x}.{meta['mask_ids'][0].split('.')[1]}"]
    status, said, _ = raw(1, "POST", path, {"mask_ids": forged})
    assert (status, said["name"]) == (409, "MaterialReused")
    other = new_secret()
    cluster_id = ClusterFile.read(home / "cluster.toml").id
    for rank in (0, 1):
        shown = fingerprint(other, cluster_id, rank)
        assert command("token", "allow", "other", shown, "--node", home / f"party{rank}", "--role", "predict")[0] == 0
    with hdcos.connect(home / "cluster.toml", token=other) as stranger:
        assert stranger.model("tiny").predict(ROWS[:1]).shape == (1, 3)
        with pytest.raises(PolicyRefused, match="does not have the role 'upload'"):
            stranger.share(MODEL)
    _, meta, _ = raw(0, "POST", path, {"rows": 1})
    asking = Raw(home, shown=token(other, cluster_id, 0))
    status, said, _ = infer(asking, 0, opened[:1], fresh(), mode="masked", mask_ids=meta["mask_ids"])
    asking.close()
    assert (status, said["name"]) == (409, "MaterialReused")


@pytest.mark.parametrize(
    ("path", "meta", "tensors", "status"),
    [
        ("/v2/models/none/infer", {}, {}, 404),
        ("/v2/models/%2e%2e/infer", {}, {}, 400),
        ("/v2/models/tiny/infer", {"parameters": {"request_id": "x"}}, {"input": (2, 6)}, 400),
        ("/v2/models/tiny/infer", {"parameters": {"request_id": "0" * 32}}, {}, 400),
        ("/v2/models/tiny/infer", {"parameters": {"request_id": "0" * 32}}, {"input": (2, 7)}, 400),
        ("/v2/models/tiny/infer", {"parameters": {"request_id": "0" * 32}}, {"input": (0, 6)}, 400),
        ("/v2/models/tiny/infer", {"parameters": {"request_id": "0" * 32}}, {"input": (5000, 6)}, 400),
        ("/v2/models/tiny/infer", {"parameters": {"request_id": "0" * 32}}, {"other": (2, 6)}, 400),
        ("/v2/models/tiny/infer", {"parameters": {"request_id": "0" * 32, "mode": "open"}}, {"input": (2, 6)}, 400),
        ("/v2/models/tiny/infer", {"parameters": {"request_id": "0" * 32, "scale_bits": 3}}, {"input": (2, 6)}, 400),
        ("/v2/models/tiny/infer", {"parameters": {"request_id": "0" * 32, "mode": "masked"}}, {"input": (2, 6)}, 400),
        ("/v2/models/tiny/infer", {"parameters": []}, {"input": (2, 6)}, 400),
        ("/v2/models/tiny/masks", {"rows": 0}, None, 400),
        ("/v2/models/tiny/masks", {"rows": "a"}, None, 400),
        ("/v2/models/tiny/masks", {}, None, 400),
        ("/v2/models/tiny/prepare", {"rows": 1 << 39}, None, 400),
        ("/v2/models/tiny/prepare", {"rows": 1, "row": 1}, None, 400),
    ],
)
def test_bad_requests_are_named(raw, private, path, meta, tensors, status) -> None:
    words = None if tensors is None else {name: np.zeros(shape, np.uint64) for name, shape in tensors.items()}
    found, said, _ = raw(0, "POST", path, meta, words)
    assert found == status, said
    assert said["name"] in ("InputError", "DataMissing")
    assert not said["retryable"]


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (b"", {}),
        (b"[]", {}),
        (b"{", {}),
        (b"{}", {"inference-header-content-length": "3"}),
        (b"{}", {"inference-header-content-length": "-1"}),
        (b"{}xx", {"inference-header-content-length": "2"}),
        (b'{"inputs":[{"name":"input","datatype":"FP32","shape":[1,6],"data":[1,2,3,4,5,6]}]}', {}),
        (b'{"inputs":[{"name":"input","datatype":"UINT64","shape":[1,6],"data":[1,2,3,4,5,-6]}]}', {}),
        (b'{"inputs":[{"name":"input","datatype":"UINT64","shape":[1,6],"data":[1]}]}', {}),
        (b'{"inputs":[{"name":"input","datatype":"UINT64","shape":[1,6]}]}', {}),
        (b'{"inputs":[{"name":"input","datatype":"UINT64","shape":[4294967295,4294967295,4294967295],"data":[]}]}', {}),
        (b'{"inputs":7}', {}),
        (b"[" * 100_000, {}),
    ],
)
def test_bodies_that_are_no_tensors(raw, private, body, headers) -> None:
    status, said, _ = raw(0, "POST", "/v2/models/tiny/infer", body=body, headers=headers)
    assert (status, said["name"]) == (400, "InputError")


def test_who_may_not_ask(home, raw, private) -> None:
    for shown in ("", "wrong", token(secret(home), ClusterFile.read(home / "cluster.toml").id, 1)):
        status, said, _ = raw(0, "GET", "/v2/models", headers={"authorization": f"Bearer {shown}"})
        assert (status, said["name"]) == (401, "PolicyRefused")
    with pytest.raises(PolicyRefused, match="no such token"), hdcos.connect(home / "cluster.toml", token="no") as other:
        other.models()
    with pytest.raises(DataMissing, match="HDCOS_CLUSTER"):
        hdcos.connect(token="x")


def test_too_large_and_too_many(home, raw, private) -> None:
    status, said, _ = raw(0, "POST", "/v2/models/tiny/infer", headers={"content-length": str(1 << 40)}, body=b"")
    assert (status, said["name"]) == (413, "InputError")
    status, said, _ = raw(0, "PUT", "/v2/models/tiny/infer", {})
    assert (status, said["name"]) == (405, "InputError")
    status, said, _ = raw(0, "GET", "/v2/nothing")
    assert (status, said["name"]) == (404, "DataMissing")


def test_models_that_cannot_be_shared(cluster, raw) -> None:
    with pytest.raises(ModelError, match="share takes"):
        cluster.share("model")
    with pytest.raises(ModelError, match="RandomFeatures"):
        cluster.share(nn.Sequential([nn.Dense(3, 3), nn.RandomFeatures(3, 3, 1.0)]))
    with pytest.raises(InputError, match="made of up to"):
        cluster.share(MODEL, "../evil")
    for architecture in (None, [], {"layers": 1}, [{"kind": "Dense"}], "x"):
        known = {"architecture": architecture, "phase_bits": 16, "version": fresh()}
        status, said, _ = raw(0, "PUT", "/v2/models/bad", {"parameters": known}, {})
        assert status == 400, said


def test_a_cluster_file_that_names_one_party_twice_is_refused(home, tmp_path) -> None:
    text = (home / "cluster.toml").read_text()
    zero, one = text.index("[party0]"), text.index("[party1]")
    doubled = text[:one] + "[party1]" + text[zero + len("[party0]") : one]
    (tmp_path / "doubled.toml").write_text(doubled)
    with pytest.raises(InputError, match="names one party twice"):
        hdcos.connect(tmp_path / "doubled.toml", token="x")
    swapped = text[:zero] + text[zero:].replace("party0", "x").replace("party1", "party0").replace("[x]", "[party1]")
    (tmp_path / "swapped.toml").write_text(swapped)
    with pytest.raises(HandshakeError, match="not party 0"):
        hdcos.connect(tmp_path / "swapped.toml", token="x")


def test_a_server_with_another_certificate_is_refused(home, tmp_path) -> None:
    code, _ = command("init", "--single-machine", tmp_path / "other")
    assert code == 0
    text, other = (home / "cluster.toml").read_text(), (tmp_path / "other" / "cluster.toml").read_text()
    http = ClusterFile.read(home / "cluster.toml").servers["party0"].http
    foreign = ClusterFile.read(tmp_path / "other" / "cluster.toml").servers["party0"].http
    (tmp_path / "mixed.toml").write_text(other.replace(foreign, http))
    assert text != other
    with pytest.raises(HdcosError, match="its certificate is not the one in the cluster file"):
        hdcos.connect(tmp_path / "mixed.toml", token="x", timeout_s=1)


def test_the_client_needs_numpy_urllib3_and_msgspec_alone(home, private) -> None:
    program = f"""
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("cryptography", "safetensors", "click", "rich", "starlette", "uvicorn", "torch"):
            raise ImportError(name)
sys.meta_path.insert(0, Blocked())
import numpy as np, hdcos
from hdcos import nn
with hdcos.connect({str(home / "cluster.toml")!r}, token={secret(home)!r}) as cluster:
    model = nn.models.mlp([6, 8, 3])
    x = np.ones((2, 6))
    private = cluster.share(model, "light", calibrate=x)
    assert np.abs(private.predict(x) - model(x)).max() < 1e-2
    trained = cluster.fit(model, np.ones((20, 6)), np.zeros(20, int), epochs=1, batch_size=10, lr=0.1)
    assert trained.predict(x).shape == (2, 3)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_watching(raw, private) -> None:
    for rank in (0, 1):
        assert raw(rank, "GET", "/v2/health/live")[0] == 200
        status = raw(rank, "GET", "/v2/status")[1]
        assert status["party"] == rank
        assert status["peer"]["up"]
        text = raw(rank, "GET", "/metrics")[1].decode()
        for name in ("hdcos_rounds_total", "hdcos_stock_rows", "hdcos_predict_seconds_bucket", "hdcos_aborts_total"):
            assert name in text
        records = raw(rank, "GET", "/v2/audit?limit=1000")[1]["records"]
        assert any(record["action"] == "share model" and record["target"] == "tiny" for record in records)
        assert raw(rank, "GET", "/v2/audit?limit=x")[0] == 400
        assert "rounds" in raw(rank, "GET", "/v2/cost")[1]["online"]
        assert raw(rank, "GET", "/openapi.json")[1]["openapi"] == "3.1.0"
        assert b"<html" in raw(rank, "GET", "/")[1].lower()
        assert b"<canvas" in raw(rank, "GET", "/digit")[1].lower()


def test_a_party_remembers_how_it_was_before_anybody_looked(raw, private) -> None:
    private.predict(ROWS)
    time.sleep(2.5)
    for rank in (0, 1):
        now, told = raw(rank, "GET", "/v2/status")[1], raw(rank, "GET", "/v2/status/history")[1]
        ages = [sample["age_s"] for sample in told["samples"]]
        assert len(ages) >= 2
        assert ages == sorted(ages, reverse=True)
        assert ages[-1] < 5
        assert set(told["samples"][-1]["counters"]) == set(now["counters"])
        assert told["samples"][-1]["counters"]["rows"] >= len(ROWS)
        assert any(model["name"] == "tiny" for model in told["samples"][-1]["models"])
    stranger = {"authorization": "Bearer nobody"}
    assert raw(0, "GET", "/v2/status/history", headers=stranger)[0] == 401


def test_metrics_are_read_by_parsers_of_both_formats(raw, private) -> None:
    private.predict(ROWS)
    plain = raw(0, "GET", "/metrics")[1].decode()
    known = {family.name for family in prometheus.text_string_to_metric_families(plain)}
    assert {"hdcos_rounds", "hdcos_stock_rows", "hdcos_predict_seconds", "hdcos_ready"} <= known
    asking = {"accept": "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"}
    open_text = raw(0, "GET", "/metrics", headers=asking)[1].decode()
    families = {family.name: family for family in openmetrics.text_string_to_metric_families(open_text)}
    assert {name for name in known if not name.endswith("_created")} == set(families)
    assert families["hdcos_rounds"].type == "counter"
    assert families["hdcos_rounds"].samples[0].value > 0
    assert open_text.endswith("# EOF\n")
    first = {
        sample.name: sample.value
        for family in families.values()
        for sample in family.samples
        if sample.labels == {"worker": "0"}
    }
    assert first["hdcos_worker_up"] == 1.0
    assert first["hdcos_worker_rows_total"] >= len(ROWS)
    assert first["hdcos_worker_batches_total"] >= 1
    assert first["hdcos_worker_available_rows"] > 0
    assert "hdcos_worker_steps_total" in first
    for accept in ("application/openmetrics-text;version=x", "text/plain;version=y", ",;,", "*/*", ""):
        assert raw(0, "GET", "/metrics", headers={"accept": accept})[0] == 200


def test_a_path_may_name_the_models_version(raw, private) -> None:
    model, other = f"/v2/models/tiny/versions/{private.version}", f"/v2/models/tiny/versions/{fresh()}"
    assert raw(0, "GET", model)[1]["versions"] == [private.version]
    assert raw(1, "GET", f"{model}/ready")[1]["version"] == private.version
    for path in (other, f"{other}/ready", "/v2/models/tiny/versions/1"):
        assert raw(0, "GET", path)[0] == 404
    words = np.zeros((1, 6), np.uint64)
    refused = raw(0, "POST", f"{other}/infer", {"parameters": {"request_id": fresh()}}, {"input": words})
    assert (refused[0], refused[1]["name"]) == (404, "DataMissing")


def test_every_path_and_method_that_is_described_is_there(raw, private) -> None:
    for path, methods in raw(0, "GET", "/openapi.json")[1]["paths"].items():
        for method in methods:
            answer = raw(0, method.upper(), path.format(name="-", id="-", version="-"))
            assert answer[0] != 405, f"{method} {path}"
            assert "there is nothing at" not in str(answer[1]), f"{method} {path}"


def test_answers_are_what_is_described(raw, private) -> None:
    description = raw(0, "GET", "/openapi.json")[1]
    described = 0
    for path, methods in description["paths"].items():
        path = path.format(name="tiny", version=private.version, id="-")
        answer = methods.get("get", {}).get("responses", {}).get("200", {}).get("content", {}).get("application/json")
        if answer is None or not answer["schema"] or "/datasets/" in path or "/statistics/" in path or "/-" in path:
            continue
        for rank in (0, 1):
            status, said, _ = raw(rank, "GET", path)
            assert status == 200, said
            Draft202012Validator({**answer["schema"], "components": description["components"]}).validate(said)
            name = answer["schema"]["$ref"].split("/")[-1]
            assert set(said) == set(description["components"]["schemas"][name]["properties"])
        described += 1
    assert described >= 13


def test_logs_hold_no_share(home, cluster, private, monkeypatch) -> None:
    sent = []
    ask = Party.ask

    def recording(party, method, path, meta, tensors, raw=None):
        sent.extend(tensor for tensor in (tensors or {}).values())
        return ask(party, method, path, meta, tensors, raw)

    monkeypatch.setattr(Party, "ask", recording)
    private.predict(ROWS)
    # Ports, times and ids are short numbers: only what cannot be there by chance counts.
    words = {int(word) for tensor in sent for word in np.asarray(tensor).reshape(-1) if int(word) >= 2**40}
    assert len(words) >= ROWS.size
    for role in ("party0", "party1", "dealer"):
        text = (home / f"{role}.log").read_text()
        assert "Traceback" not in text
        assert not any(f"{word}" in text or f"{word:x}" in text for word in words)
    with connected(home) as again:
        assert again.model("tiny").stock > 0
