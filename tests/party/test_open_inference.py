"""NVIDIA's Triton client, as it comes, against both parties: what any client of the Open Inference Protocol can do."""

from __future__ import annotations

import re
import secrets
import time
from contextlib import ExitStack
from pathlib import Path
from urllib.error import URLError

import gevent.ssl
import numpy as np
import pytest
from tritonclient.http import InferenceServerClient, InferInput
from tritonclient.utils import InferenceServerException

from hdcos import nn
from hdcos.api.tokens import token
from hdcos.link.cluster_file import ClusterFile
from party.conftest import secret

MODEL = nn.models.mlp([6, 8, 3])
ROWS = np.random.default_rng(0).uniform(-1, 1, (5, 6))


def trusting(cafile):
    """TLS of gevent, which the client runs on: with the standard library's, requests to two parties would wait for
    each other."""
    context = gevent.ssl.SSLContext(gevent.ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cafile)
    return context


def triton(address, certificate):
    """A client that trusts this certificate alone. It names no host, so the host is not compared with it."""
    return InferenceServerClient(
        address,
        ssl=True,
        ssl_options={"ca_certs": str(certificate)},
        ssl_context_factory=trusting,
        insecure=True,
    )


@pytest.fixture(scope="module")
def certificates(home, tmp_path_factory):
    """The certificate of each party, out of the cluster file."""
    folder, known = tmp_path_factory.mktemp("certificates"), ClusterFile.read(home / "cluster.toml")
    paths = [folder / f"party{rank}.pem" for rank in (0, 1)]
    for path in paths:
        path.write_text(known.servers[path.stem].certificate.pem)
    return paths


@pytest.fixture(scope="module")
def parties(home, certificates):
    """One client per party, and what each shows its party."""
    known = ClusterFile.read(home / "cluster.toml")
    with ExitStack() as stack:
        yield [
            (
                stack.enter_context(triton(known.servers[f"party{rank}"].http, certificates[rank])),
                {"Authorization": f"Bearer {token(secret(home), known.id, rank)}"},
            )
            for rank in (0, 1)
        ]


@pytest.fixture(scope="module")
def version(cluster, parties):
    """Of a model that both parties hold, with material at hand."""
    private, deadline = cluster.share(MODEL, "tiny"), time.monotonic() + 20
    while not all(client.is_server_ready(headers) for client, headers in parties) and time.monotonic() < deadline:
        time.sleep(0.1)
    return private.version


def split(rows, scale_bits):
    """Rows as two tensors of words, each uniformly random alone."""
    words = np.round(rows * 2.0**scale_bits).astype(np.int64).astype(np.uint64)
    first = np.frombuffer(secrets.token_bytes(words.nbytes), np.uint64).reshape(words.shape)
    return first, words - first


def joined(answers):
    said = answers[0].get_response()["parameters"]
    words = sum(answer.as_numpy("output") for answer in answers) << np.uint64(64 - said["bits"])
    return (words.view(np.int64) >> (64 - said["bits"])) * said["gain"] / 2.0 ** said["scale_bits"]


@pytest.fixture(params=["newest", "named"])
def asked(request, version):
    return "" if request.param == "newest" else version


def test_a_triton_client_finds_the_server_and_the_model(parties, version, asked) -> None:
    for rank, (client, headers) in enumerate(parties):
        assert client.is_server_live(headers)
        assert client.is_server_ready(headers)
        assert client.get_server_metadata(headers)["parameters"]["party"] == rank
        assert client.is_model_ready("tiny", asked, headers)
        told = client.get_model_metadata("tiny", asked, headers)
        assert (told["name"], told["versions"]) == ("tiny", [version])
        assert told["inputs"] == [{"name": "input", "datatype": "UINT64", "shape": [-1, 6]}]
        assert told["outputs"] == [{"name": "output", "datatype": "UINT64", "shape": [-1, 3]}]


def test_two_triton_clients_with_a_share_each_get_the_models_predictions(parties, version, asked) -> None:
    scale_bits = parties[0][0].get_model_metadata("tiny", asked, parties[0][1])["parameters"]["scale_bits"]
    number, waiting = secrets.token_hex(16), []
    for (client, headers), share in zip(parties, split(ROWS, scale_bits), strict=True):
        tensor = InferInput("input", list(share.shape), "UINT64")
        tensor.set_data_from_numpy(share)
        waiting.append(client.async_infer("tiny", [tensor], asked, request_id=number, headers=headers))
    answers = [each.get_result(timeout=20) for each in waiting]
    for answer in answers:
        assert answer.get_response()["model_version"] == version
        assert answer.get_response()["id"] == number
    assert np.abs(joined(answers) - MODEL(ROWS)).max() < 1e-2


def test_two_triton_clients_get_labels_by_a_parameter_of_the_request(parties, version) -> None:
    scale_bits = parties[0][0].get_model_metadata("tiny", "", parties[0][1])["parameters"]["scale_bits"]
    number, waiting, wanted = secrets.token_hex(16), [], {"output": "label"}
    for (client, headers), share in zip(parties, split(6 * ROWS, scale_bits), strict=True):
        tensor = InferInput("input", list(share.shape), "UINT64")
        tensor.set_data_from_numpy(share)
        known = {"request_id": number, "headers": headers, "parameters": wanted}
        waiting.append(client.async_infer("tiny", [tensor], **known))
    answers = [each.get_result(timeout=20) for each in waiting]
    assert all(answer.as_numpy("output").shape == (5,) for answer in answers)
    assert (joined(answers) == MODEL(6 * ROWS).argmax(axis=1)).all()


def test_a_version_that_is_not_there_is_not_found(parties, version) -> None:
    client, headers = parties[0]
    for other in ("1", secrets.token_hex(16)):
        assert not client.is_model_ready("tiny", other, headers)
        with pytest.raises(InferenceServerException, match=f"no version '{other}' here: .* {version}") as found:
            client.get_model_metadata("tiny", other, headers)
        assert found.value.status() == "404"
        tensor = InferInput("input", [1, 6], "UINT64")
        tensor.set_data_from_numpy(np.zeros((1, 6), np.uint64))
        with pytest.raises(InferenceServerException, match="has no version"):
            client.infer("tiny", [tensor], other, request_id=secrets.token_hex(16), headers=headers)


def documented(word: str) -> str:
    """The Python code in docs/http.md that has this word in it."""
    text = (Path(__file__).parents[2] / "docs" / "http.md").read_text()
    (found,) = [code for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if word in code]
    return found


@pytest.fixture
def documented_folder(home, certificates, tmp_path, monkeypatch):
    """What docs/http.md lets its readers prepare: certificates and tokens as files beside the cluster file."""
    known = ClusterFile.read(home / "cluster.toml")
    (tmp_path / "cluster.toml").write_text((home / "cluster.toml").read_text())
    for rank, certificate in enumerate(certificates):
        (tmp_path / certificate.name).write_text(certificate.read_text())
        (tmp_path / f"party{rank}.token").write_text(token(secret(home), known.id, rank) + "\n")
    monkeypatch.chdir(tmp_path)
    return known


def test_the_documented_way_to_pin_a_certificate_works(documented_folder, version) -> None:
    names = {}
    exec(documented("urlopen"), names)
    (tiny,) = [model for model in names["models"]["models"] if model["name"] == "tiny"]
    assert (tiny["version"], tiny["ready"]) == (version, True)
    known = documented_folder
    impostor = (Path("cluster.toml").read_text()).replace(known.servers["party0"].http, known.servers["party1"].http)
    Path("cluster.toml").write_text(impostor)
    with pytest.raises(URLError, match="CERTIFICATE_VERIFY_FAILED"):
        exec(documented("urlopen"), {})


def test_the_documented_way_to_predict_with_tritons_client_works(documented_folder, version) -> None:
    code, names = documented("tritonclient"), {}
    addresses = [documented_folder.servers[f"party{rank}"].http for rank in (0, 1)]
    exec(code.replace('f"party{rank}.example:8443"', f"{addresses}[rank]").replace('"fraud"', '"tiny"'), names)
    for client in names["clients"]:
        client.close()
    assert np.abs(names["logits"] - MODEL(np.zeros((1, 6)))).max() < 1e-2


def test_a_party_with_another_certificate_gets_nothing(home, certificates) -> None:
    address = ClusterFile.read(home / "cluster.toml").servers["party0"].http
    with triton(address, certificates[1]) as client, pytest.raises(gevent.ssl.SSLCertVerificationError):
        client.is_server_live()
