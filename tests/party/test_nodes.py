"""Setting up and operating nodes: cards, cluster files, the doctor, and what is refused."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace

import numpy as np
import pytest

from hdcos import nn
from hdcos.errors import HdcosError, InputError
from hdcos.link import Identity
from hdcos.link.cluster_file import ClusterFile, NodeCard, make_node
from hdcos.party.config import FILE, TEMPLATE, Config
from hdcos.secure import compile_network
from old_identity import older
from party.conftest import command, connected, running_all


def test_operators_combine_their_cards(tmp_path) -> None:
    for role, port in (("dealer", 7000), ("party0", 7001), ("party1", 7002)):
        http = [] if role == "dealer" else ["--http", f"{role}.example:8443"]
        code, output = command(
            "node", "init", tmp_path / role, "--role", role, "--address", f"{role}.example:{port}", *http
        )
        assert code == 0
        assert re.search(r"fingerprint [0-9a-f]{64}", output)
        assert (tmp_path / role / "key.pem").stat().st_mode & 0o777 == 0o600
    cards = [tmp_path / name / "card.toml" for name in ("dealer", "party0", "party1")]
    code, output = command("init", tmp_path / "cluster.toml", *cards)
    assert code == 0
    cluster_file = ClusterFile.read(tmp_path / "cluster.toml")
    assert cluster_file.servers["party1"].endpoint == ("party1.example", 7002)
    assert cluster_file.servers["party0"].http == "party0.example:8443"
    assert cluster_file.servers["dealer"].certificate.fingerprint in output
    code, output = command("init", tmp_path / "cluster.toml", *cards)
    assert code == 1
    assert "never overwritten" in output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("node", "init", "{}/x", "--role", "party0", "--address", "host:0"), "host:port"),
        (("node", "init", "{}/x", "--role", "party0", "--address", "host:1"), "HTTPS of party0"),
        (("node", "init", "{}/a", "--role", "dealer", "--address", "h:1"), "never overwritten"),
        (("init", "{}/c.toml", "{}/a/card.toml"), "missing: ['party0', 'party1']"),
        (("init", "{}/c.toml", "{}/a/card.toml", "{}/a/card.toml"), "missing"),
        (("party", "--node", "{}/a", "--cluster", "{}/a/card.toml"), "is the node of dealer"),
        (("dealer", "--node", "{}/a", "--cluster", "{}/a/card.toml"), "version None"),
        (("token", "allow", "me", "abc", "--node", "{}/a", "--role", "predict"), "64 hexadecimal digits"),
        (("token", "list", "--node", "{}/a"), "clients talk to parties only"),
    ],
)
def test_mistakes_are_named(tmp_path, arguments, words) -> None:
    make_node(tmp_path / "a", "dealer", "localhost:7000")
    code, output = command(*(argument.format(tmp_path) for argument in arguments))
    assert code == 1
    assert words in output
    assert "Traceback" not in output


def test_a_node_whose_key_is_not_the_one_in_the_file_does_not_start(folder, tmp_path) -> None:
    make_node(tmp_path / "other", "dealer", "127.0.0.1:7000")
    code, output = command("dealer", "--node", tmp_path / "other", "--cluster", folder / "cluster.toml")
    assert code == 1
    assert "another certificate for dealer" in output


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("version = 1", "version = 2"),
        lambda text: re.sub(r'id = "..', 'id = "', text),
        lambda text: text.replace("[party1]", "[party2]"),
        lambda text: text.replace("BEGIN", "START", 1),
        lambda text: text.replace('address = "127.0.0.1:', 'address = "127.0.0.1;', 1),
        lambda text: text.replace('http = "127.0.0.1:', 'http = "127.0.0.1;', 1),
        lambda text: text[: len(text) // 2],
        lambda text: text.replace("certificate", "cert", 1),
    ],
)
def test_damaged_cluster_files_are_refused(folder, change) -> None:
    path = folder / "cluster.toml"
    path.write_text(change(path.read_text()))
    with pytest.raises(HdcosError):
        ClusterFile.read(path)


def test_the_doctor_sees_what_is_wrong(folder, tmp_path) -> None:
    cluster = folder / "cluster.toml"
    code, output = command("doctor", "--cluster", cluster, "--node", folder / "party0")
    assert code == 1
    assert output.count("out of reach") == 4  # two nodes and two HTTPS ports
    with running_all(folder):
        for role in ("party0", "party1", "dealer"):
            for _ in range(20):
                code, output = command("doctor", "--cluster", cluster, "--node", folder / role)
                if code == 0:
                    break
                time.sleep(0.25)  # until the parties have found each other
            assert code == 0, output
            assert "BAD" not in output
            assert "clock of" in output
        cluster_file = ClusterFile.read(cluster)
        ClusterFile("ab" * 16, cluster_file.servers).write(tmp_path / "other.toml")
        code, output = command("doctor", "--cluster", tmp_path / "other.toml", "--node", folder / "party0", "--json")
        assert code == 1
        bad = [finding for finding in json.loads(output) if not finding["ok"]]
        assert {finding["what"].split()[0] for finding in bad} == {"dealer", "party1"}
        assert all("run" in finding["text"] for finding in bad)


def test_the_doctor_warns_before_a_certificate_expires(folder) -> None:
    cluster_file = ClusterFile.read(folder / "cluster.toml")
    ending, known = Identity.create("party0", days=5), cluster_file.servers["party0"]
    changed = {**cluster_file.servers, "party0": NodeCard("party0", ending.certificate, known.address, known.http)}
    ClusterFile(cluster_file.id, changed).write(folder / "cluster.toml")
    code, output = command("doctor", "--cluster", folder / "cluster.toml", "--node", folder / "party0")
    assert code == 1
    assert "BAD  certificate of party0: valid until" in output
    assert "another certificate for party0" in output


def test_a_cluster_from_before_workers_works_as_it_did_and_is_told_what_more_workers_need(folder) -> None:
    cards = {}
    for role in ("dealer", "party0", "party1"):
        card, made = NodeCard.read(folder / role / "card.toml"), older(Identity.load(folder / role))
        (folder / role / "certificate.pem").write_text(made.certificate.pem)
        cards[role] = replace(card, certificate=made.certificate)
        cards[role].write(folder / role)
    ClusterFile(ClusterFile.read(folder / "cluster.toml").id, cards).write(folder / "cluster.toml")
    with running_all(folder):
        for _ in range(80):
            code, output = command("doctor", "--cluster", folder / "cluster.toml", "--node", folder / "party1")
            if code == 0:
                break
            time.sleep(0.25)
        assert code == 0, output
        model, rows = nn.models.mlp([6, 8, 3]), np.ones((2, 6))
        with connected(folder) as cluster:
            assert np.abs(cluster.share(model, "tiny").predict(rows) - model(rows)).max() < 0.02
    for kind, role in (("party", "party0"), ("party", "party1"), ("dealer", "dealer")):
        node = ("--node", folder / role, "--cluster", folder / "cluster.toml", "--workers", 2)
        code, output = command(kind, *node)
        assert code == 1
        assert "those of dealer, party0, party1 in the cluster file are from before workers" in output
        assert "hdcos node renew" in output


def test_a_node_is_renewed_with_the_same_key_and_works_again_with_the_new_file(folder, tmp_path) -> None:
    """As a cluster does that was made before workers: party 0 gets a certificate that issues theirs."""
    before = Identity.load(folder / "party0")
    code, output = command("node", "renew", folder / "party0")
    assert code == 0, output
    after = Identity.load(folder / "party0")
    assert after.fingerprint in output
    assert after.key_pem == before.key_pem
    assert after.fingerprint != before.fingerprint
    kept = folder / "party0" / f"certificate.{before.fingerprint[:16]}.pem"
    assert kept.read_text() == before.certificate.pem
    code, output = command("party", "--node", folder / "party0", "--cluster", folder / "cluster.toml")
    assert code == 1
    assert "another certificate for party0" in output
    make_node(tmp_path / "other", "party1", "127.0.0.1:7002", "127.0.0.1:8002")
    cards = [folder / "dealer" / "card.toml", folder / "party0" / "card.toml", tmp_path / "other" / "card.toml"]
    code, output = command("init", tmp_path / "new.toml", *cards, "--replaces", folder / "cluster.toml")
    assert code == 0
    said = {line.split()[0]: line.endswith("the same key as before") for line in output.splitlines() if "  " in line}
    assert said == {"dealer": True, "party0": True, "party1": False}
    cards[2] = folder / "party1" / "card.toml"
    code, output = command("init", tmp_path / "right.toml", *cards, "--replaces", folder / "cluster.toml")
    assert code == 0
    (tmp_path / "right.toml").replace(folder / "cluster.toml")
    with running_all(folder):
        for _ in range(40):
            code, output = command("doctor", "--cluster", folder / "cluster.toml", "--node", folder / "party1")
            if code == 0:
                break
            time.sleep(0.25)
        assert code == 0, output
    code, output = command("node", "renew", tmp_path)
    assert code == 1
    assert "does not exist" in output


def test_the_template_of_a_nodes_settings_says_the_defaults(tmp_path) -> None:
    (tmp_path / FILE).write_text(TEMPLATE)
    assert Config.read(tmp_path) == Config() == Config.read(tmp_path / "nowhere")


@pytest.mark.parametrize(
    "text",
    [
        "[http",
        "[htp]",
        "[http]\nport = 1",
        "[http]\ncors = 'x'",
        "[policy]\nreveal = 1",
        "[limits]\nrows = -1",
        "http = 1",
    ],
)
def test_mistakes_in_a_nodes_settings_are_named(tmp_path, text) -> None:
    (tmp_path / FILE).write_text(text)
    with pytest.raises(InputError, match=r"node\.toml"):
        Config.read(tmp_path)


def test_the_doctor_helps_clients_who_have_no_node(home, tmp_path, monkeypatch) -> None:
    cluster = ("--cluster", home / "cluster.toml")
    for _ in range(40):
        code, output = command("doctor", *cluster, "--token-file", home / "token")
        if code == 0:
            break
        time.sleep(0.25)  # until the parties have found each other
    assert code == 0, output
    assert "BAD" not in output
    for words in (
        "party0 at",
        "party1 at",
        "clock of party1",
        "your secret at party0: it is known",
        "are those of the",
    ):
        assert words in output
    monkeypatch.setenv("HDCOS_CLUSTER", str(home / "cluster.toml"))
    code, output = command("doctor")
    assert code == 0, output
    assert "without your secret" in output
    (tmp_path / "secret").write_text("hdcos-unknown")
    code, output = command("doctor", "--token-file", tmp_path / "secret")
    assert code == 1
    assert output.count("BAD  your secret at") == 2
    assert "hdcos token allow" in output


def test_the_doctor_reports_a_model_that_waits_for_its_other_share(home, raw) -> None:
    model = nn.models.mlp([6, 8, 3])
    chosen, state = compile_network(model), model.state()
    words = {tensor.name: tensor.words(state[tensor.name]) for tensor in chosen.tensors}
    known = {"architecture": model.architecture(), "phase_bits": 16, "version": "5" * 32}
    status, *_ = raw(0, "PUT", "/v2/models/lonely", {"parameters": known}, words)
    assert status == 201
    seen = [command("doctor", "--cluster", home / "cluster.toml", "--token-file", home / "token")]
    seen += [
        command("doctor", "--cluster", home / "cluster.toml", "--node", home / role)
        for role in ("party0", "party1", "dealer")
    ]
    for code, output in seen:
        assert code == 1
        assert "BAD  model lonely: it waits for its other share, which party1 lacks" in output
        assert "rows are answered" not in output
    raw(0, "DELETE", "/v2/models/lonely")


def test_the_doctor_says_that_a_dealer_is_away_and_nothing_that_only_follows_from_it(folder) -> None:
    client = ("doctor", "--cluster", folder / "cluster.toml", "--token-file", folder / "token")
    with running_all(folder) as processes:
        with connected(folder) as cluster:
            cluster.share(nn.models.mlp([6, 8, 3]), "waiting")
        processes["dealer"].kill()
        processes["dealer"].wait()
        for _ in range(40):
            code, output = command(*client)
            if "BAD" in output:
                break
            time.sleep(0.25)
        seen = [(code, output), command(*client[:3], "--node", folder / "party1")]
    address = ClusterFile.read(folder / "cluster.toml").servers["dealer"].address
    for code, output in seen:
        assert code == 1
        assert f"Start the dealer at {address}" in output
        assert "share it again" not in output
        assert "two versions" not in output


def test_a_dealer_keeps_its_workers_and_ports_of_workers_are_those_of_ray(folder) -> None:
    node = ("--node", folder / "dealer")
    code, output = command("workers", 3, *node)
    assert (code, "start it again with --workers" in output) == (1, True), output
    code, output = command("dealer", *node, "--cluster", folder / "cluster.toml", "--worker-ports", 7200)
    assert (code, "--worker-ports is for workers of a Ray cluster" in output) == (1, True), output
