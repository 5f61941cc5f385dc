"""Data sets over HTTPS that no process holds whole: uploaded in pieces, kept here and there, damaged, trained on."""

from __future__ import annotations

import hashlib
import secrets
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from hdcos import nn
from hdcos.cluster import pieces
from hdcos.errors import DataDamaged, PolicyRefused
from hdcos.party.http import datasets
from hdcos.secure.training.plain import plain_fit
from party.conftest import Raw, command, connected, make_home, running_all

GENERATOR = np.random.default_rng(8)
X = np.round(GENERATOR.uniform(-1, 1, (3000, 6)), 5)
Y = (X[:, 0] + X[:, 1] > 0).astype(int)
OPTIONS = {"epochs": 1, "batch_size": 100, "lr": 0.5, "seed": 4, "progress": False}


def network():
    return nn.models.mlp([6, 16, 1])


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Party 0 keeps data sets in its state, party 1 through fsspec."""
    folder = make_home(tmp_path_factory.mktemp("cluster") / "home")
    path = folder / "party1" / "node.toml"
    path.write_text(path.read_text().replace('datasets = "" ', 'datasets = "memory://party1/rows" '))
    with running_all(folder):
        yield folder


def test_rows_that_came_in_pieces_are_trained_on_wherever_they_are_kept(cluster, home, monkeypatch) -> None:
    monkeypatch.setattr(pieces, "PIECE_BYTES", 20_000)
    parts = ((X[start : start + 700], Y[start : start + 700]) for start in range(0, 3000, 700))
    assert cluster.upload(parts, name="pieces") == 3000
    (known,) = [item for item in cluster.datasets() if item["name"] == "pieces"]
    assert (known["rows"], known["bytes"], known["complete"]) == (3000, 8 * 3000 * 7, True)
    kept = list((home / "party0" / "state" / "datasets").rglob("*"))
    assert [path.suffix for path in kept if path.is_file()] == [".arrow"]
    assert not [path for path in (home / "party1" / "state" / "datasets").rglob("*") if path.is_file()]
    found = {}
    for shuffle in ("rows", "blocks"):
        plain = plain_fit(network(), X, Y[:, None].astype(float), 1, 100, lambda epoch: 0.5, 4, shuffle=shuffle)
        found[shuffle] = cluster.fit(network(), "pieces", shuffle=shuffle, **OPTIONS).predict(X[:500])
        assert np.abs(found[shuffle] - plain(X[:500])).max() < 0.02
    assert np.abs(found["rows"] - found["blocks"]).max() > 0.05, "the orders differ, and so do the models"
    cluster.forget_data("pieces")


def test_a_command_uploads_a_file_piece_by_piece(cluster, home, tmp_path) -> None:
    lines = [",".join(map(repr, [*row, label])) for row, label in zip(X.tolist(), Y.tolist(), strict=True)]
    path = tmp_path / "rows.csv"
    path.write_text("a,b,c,d,e,f,sick\n" + "\n".join(lines) + "\n")
    reach = ("--cluster", home / "cluster.toml", "--token-file", home / "token")
    code, output = command("upload", path, "--name", "typed", "--label", "sick", *reach)
    assert (code, output) == (0, "typed: 3000 rows with labels\n")
    assert cluster.fit(network(), "typed", **OPTIONS).feature_names == tuple("abcdef")
    lines[2500] = "1,2,3,oops,5,6,0"
    path.write_text("a,b,c,d,e,f,sick\n" + "\n".join(lines) + "\n")
    code, output = command("upload", path, "--name", "typed", "--label", "sick", *reach)
    assert code == 1
    assert "line 2502, column d: 'oops'" in output
    assert [item["rows"] for item in cluster.datasets() if item["name"] == "typed"] == [3000], "nothing else is left"
    cluster.forget_data("typed")


def test_a_damaged_row_group_ends_its_job_by_name_and_nothing_else(cluster, home) -> None:
    for name in ("sound", "harmed"):
        cluster.upload(X, Y, name=name)
    (path,) = (home / "party0" / "state" / "datasets" / "harmed").glob("*.arrow")
    content = path.read_bytes()
    place = len(content) // 2
    path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
    with pytest.raises(DataDamaged, match=r"failed: row group 1 of .*harmed.* is damaged: rows 1024 to 2047"):
        cluster.fit(network(), "harmed", **OPTIONS)
    assert {item["name"] for item in cluster.datasets() if item["complete"]} == {"sound", "harmed"}
    trained = cluster.fit(network(), "sound", **OPTIONS)
    path.write_bytes(content)  # restored
    again = cluster.fit(network(), "harmed", **OPTIONS)
    assert np.abs(again.predict(X[:100]) - trained.predict(X[:100])).max() < 0.05
    for name in ("sound", "harmed"):
        cluster.forget_data(name)


def test_an_upload_of_unknown_length_over_plain_http(raw) -> None:
    version, content = secrets.token_hex(16), secrets.token_bytes(8 * 10 * 3)
    path = f"/v2/datasets/open/{version}"
    known = {"name": "open", "version": version, "features": 2, "outputs": 1}
    assert raw(0, "POST", "/v2/datasets", known)[:2][1]["name"] == "InputError", "all features first needs the rows"
    assert raw(0, "POST", "/v2/datasets", {**known, "by_rows": True})[0] == 201
    assert raw(0, "PUT", f"{path}?offset=0", body=content[:100])[1] == {"received": 100, "bytes": 100}
    assert raw(0, "PUT", f"{path}?offset=100", body=content[100:])[1]["received"] == 240
    digest = hashlib.sha256(content).hexdigest()
    assert raw(0, "POST", f"{path}/complete", {"sha256": "f" * 64})[1]["name"] == "InputError"
    with ThreadPoolExecutor(4) as threads:
        told = list(threads.map(lambda _: raw(0, "POST", f"{path}/complete", {"sha256": digest}), range(4)))
    assert [(status, answer["complete"]) for status, answer, _ in told] == [(200, True)] * 4
    said = raw(0, "POST", f"{path}/complete", {"sha256": digest})[1]
    assert (said["complete"], said["rows"], said["bytes"]) == (True, 10, 240)
    assert raw(0, "DELETE", "/v2/datasets/open")[0] == 200


def test_a_client_is_told_that_an_upload_is_still_being_written(cluster, monkeypatch) -> None:
    """The transport asks again until both parties say that it is complete."""
    transport, asked = cluster.transport, []
    patiently = transport.patiently

    def slow(method, path, *rest, **more):
        answers = patiently(method, path, *rest, **more)
        if path.endswith("/complete"):
            asked.append(path)
            if len(asked) < 3:
                answers[1].meta["complete"] = False
        return answers

    monkeypatch.setattr(transport, "patiently", slow)
    cluster.upload(X, Y, name="slow")
    assert len(asked) == 3
    assert transport.timeout_s > datasets.COMPLETE_S
    cluster.forget_data("slow")


def test_a_job_whose_rows_take_too_much_memory_is_refused_with_the_remedy(tmp_path) -> None:
    folder = make_home(tmp_path / "home")
    for role in ("party0", "party1"):
        path = folder / role / "node.toml"
        path.write_text(path.read_text().replace("job_mb = 8192", "job_mb = 1"))
    with running_all(folder), connected(folder) as cluster:
        with pytest.raises(PolicyRefused, match="MB of memory, this party gives 1 to one"):
            cluster.fit(network(), X, Y, **OPTIONS)
        assert Raw(folder)(0, "GET", "/v2/datasets")[0] == 200
