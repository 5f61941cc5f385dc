"""A cluster of separate nodes: set up by its operators' commands, used by a client, restarted, refused to strangers."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import ExitStack, contextmanager

import numpy as np
import pytest
from click.testing import CliRunner

import hdcos
from hdcos import nn
from hdcos.cli import main
from hdcos.errors import HandshakeError, HdcosError, InputError, PeerLost, PolicyRefused
from hdcos.link import Identity
from hdcos.serve.site import Card, Site, make_node


def command(*arguments):
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    return result.exit_code, result.output


@contextmanager
def running(folder, role, *options):
    """A node started by its command; ready when it says that it listens."""
    kind = "dealer" if role == "dealer" else "party"
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "hdcos", kind, "--node", folder / role, "--cluster", folder / "cluster.toml"),
            *("--timeout-s", "10", *options),
        ],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert "listening on" in process.stderr.readline()
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(10)
        process.stderr.close()


@pytest.fixture
def folder(tmp_path):
    code, output = command("init", "--single-machine", tmp_path / "site")
    assert code == 0, output
    return tmp_path / "site"


def test_three_nodes_serve_one_client_after_another_and_survive_a_killed_party(folder) -> None:
    model = nn.models.mlp([6, 8, 3])
    x = np.random.default_rng(0).uniform(-1, 1, (20, 6))
    y = np.random.default_rng(0).integers(0, 3, 20)
    with ExitStack() as stack:
        for role in ("dealer", "party0"):
            stack.enter_context(running(folder, role))
        with running(folder, "party1") as party1:
            for _ in range(2):
                with hdcos.connect(folder / "cluster.toml", folder / "client", timeout_s=10) as cluster:
                    private = cluster.share(model)
                    assert np.abs(private.predict(x) - model(x)).max() < 1e-2
                    with pytest.raises(PolicyRefused, match="does not reveal"):
                        private.reveal()
            with (
                pytest.raises(PeerLost),
                hdcos.connect(folder / "cluster.toml", folder / "client", timeout_s=5) as cluster,
            ):
                private = cluster.share(model)
                os.kill(party1.pid, signal.SIGKILL)
                private.predict(x)
        with running(folder, "party1"), hdcos.connect(folder / "cluster.toml", folder / "client") as cluster:
            trained = cluster.fit(
                model, x, y, epochs=1, batch_size=10, lr=0.1, checkpoint="mine", checkpoint_every=1, progress=False
            )
            assert trained.predict(x).shape == (20, 3)
            with pytest.raises(InputError, match="plain name"):
                cluster.fit(model, x, y, epochs=1, batch_size=10, lr=0.1, checkpoint="/tmp/elsewhere", progress=False)
    for rank in (0, 1):
        kept = folder / f"party{rank}" / "checkpoints" / "mine" / f"party{rank}"
        assert sorted(path.name for path in kept.glob("step-*")) == [
            "step-00000001.safetensors",
            "step-00000002.safetensors",
        ]


def test_a_reveal_takes_the_consent_of_both_parties(folder) -> None:
    model = nn.models.mlp([6, 8, 3])
    for allowed in (("party0",), ("party0", "party1")):
        with ExitStack() as stack:
            for role in ("dealer", "party0", "party1"):
                stack.enter_context(running(folder, role, *(["--allow-reveal"] if role in allowed else [])))
            with hdcos.connect(folder / "cluster.toml", folder / "client", timeout_s=10) as cluster:
                private = cluster.share(model)
                if len(allowed) == 2:
                    state = private.reveal().state()
                    assert np.abs(state["0.diagonal"] - model.state()["0.diagonal"]).max() < 1e-4
                else:
                    with pytest.raises(PolicyRefused):
                        private.reveal()


def test_strangers_are_refused(folder, tmp_path) -> None:
    make_node(tmp_path / "stranger", "client", name="stranger")
    with (
        pytest.raises(PolicyRefused, match="not among the clients"),
        hdcos.connect(folder / "cluster.toml", tmp_path / "stranger"),
    ):
        pass
    site = Site.read(folder / "cluster.toml")
    forged = Site(site.id, site.servers, (Card.read(tmp_path / "stranger" / "card.toml"),))
    forged.write(tmp_path / "forged.toml")
    with ExitStack() as stack:
        for role in ("dealer", "party0", "party1"):
            stack.enter_context(running(folder, role))
        with (
            pytest.raises(HandshakeError, match="refused this node's certificate"),
            hdcos.connect(tmp_path / "forged.toml", tmp_path / "stranger", timeout_s=5),
        ):
            pass


def test_operators_combine_their_cards(tmp_path) -> None:
    for role, port in (("dealer", 7000), ("party0", 7001), ("party1", 7002)):
        code, output = command("node", "init", tmp_path / role, "--role", role, "--address", f"{role}.example:{port}")
        assert code == 0
        assert re.search(r"fingerprint [0-9a-f]{64}", output)
        assert (tmp_path / role / "key.pem").stat().st_mode & 0o777 == 0o600
    assert command("node", "init", tmp_path / "me", "--role", "client", "--name", "lab")[0] == 0
    cards = [tmp_path / name / "card.toml" for name in ("dealer", "party0", "party1", "me")]
    code, output = command("init", tmp_path / "cluster.toml", *cards)
    assert code == 0
    site = Site.read(tmp_path / "cluster.toml")
    assert site.servers["party1"].endpoint == ("party1.example", 7002)
    assert [client.name for client in site.clients] == ["lab"]
    assert site.servers["dealer"].certificate.fingerprint in output
    code, output = command("init", tmp_path / "cluster.toml", *cards)
    assert code == 1
    assert "never overwritten" in output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("node", "init", "{}/x", "--role", "party0"), "host:port"),
        (("node", "init", "{}/x", "--role", "party0", "--address", "host:0"), "host:port"),
        (("node", "init", "{}/x", "--role", "client"), "client's name"),
        (("node", "init", "{}/a", "--role", "dealer", "--address", "h:1"), "never overwritten"),
        (("init", "{}/c.toml", "{}/a/card.toml"), "missing: ['party0', 'party1']"),
        (("init", "{}/c.toml", "{}/a/card.toml", "{}/a/card.toml"), "missing"),
        (("init", "--single-machine", "{}/s", "{}/a/card.toml"), "leave the cards out"),
        (("party", "--node", "{}/a", "--cluster", "{}/a/card.toml"), "is the node of dealer"),
        (("dealer", "--node", "{}/a", "--cluster", "{}/a/card.toml"), "version None"),
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
        lambda text: text[: len(text) // 2],
        lambda text: text.replace("certificate", "cert", 1),
    ],
)
def test_damaged_cluster_files_are_refused(folder, change) -> None:
    path = folder / "cluster.toml"
    path.write_text(change(path.read_text()))
    with pytest.raises(HdcosError):
        Site.read(path)


def test_the_doctor_sees_what_is_wrong(folder, tmp_path) -> None:
    cluster = folder / "cluster.toml"
    code, output = command("doctor", "--cluster", cluster, "--node", folder / "client")
    assert code == 1
    assert output.count("out of reach") == 3
    with ExitStack() as stack:
        for role in ("dealer", "party0", "party1"):
            stack.enter_context(running(folder, role))
        for role in ("client", "party1", "dealer"):
            code, output = command("doctor", "--cluster", cluster, "--node", folder / role)
            assert code == 0, output
            assert "BAD" not in output
        # A node that asked and left must not keep the next client waiting.
        with hdcos.connect(cluster, folder / "client", timeout_s=10) as remote:
            assert remote.evaluate("cos", np.zeros(3)).shape == (3,)
        site = Site.read(cluster)
        Site("ab" * 16, site.servers, site.clients).write(tmp_path / "other.toml")
        code, output = command("doctor", "--cluster", tmp_path / "other.toml", "--node", folder / "client", "--json")
        assert code == 1
        bad = [finding for finding in json.loads(output) if not finding["ok"]]
        assert {finding["what"].split()[0] for finding in bad} == {"party0", "party1"}
        assert all("run" in finding["text"] for finding in bad)


def test_the_doctor_warns_before_a_certificate_expires(folder) -> None:
    site = Site.read(folder / "cluster.toml")
    ending = Identity.create("party0", days=5)
    changed = {**site.servers, "party0": Card("party0", ending.certificate, site.servers["party0"].address)}
    Site(site.id, changed, site.clients).write(folder / "cluster.toml")
    code, output = command("doctor", "--cluster", folder / "cluster.toml", "--node", folder / "party0")
    assert code == 1
    assert "BAD  certificate of party0: valid until" in output
    assert "another certificate for party0" in output
