"""A service of two parties and nobody else."""

from __future__ import annotations

import os
import signal
import time
from contextlib import ExitStack

import numpy as np
import pytest

from hdcos import nn
from hdcos.cluster.transport import split_words
from hdcos.errors import HdcosError, InputError, MaterialExhausted, ModelError
from hdcos.link.cluster_file import ClusterFile, NodeCard
from party.conftest import command, connected, running, running_all


def test_two_parties_serve_train_and_recover_without_a_dealer(tmp_path) -> None:
    folder = tmp_path / "home"
    code, output = command("init", "--single-machine", "--no-dealer", folder)
    assert code == 0, output
    assert "hdcos dealer" not in output
    assert 'dealer = "none"' in (folder / "cluster.toml").read_text()
    assert sorted(ClusterFile.read(folder / "cluster.toml").servers) == ["party0", "party1"]
    for role in ("party0", "party1"):
        path = folder / role / "node.toml"
        path.write_text(path.read_text().replace("megabytes = 256 ", "megabytes = 2 "))
    model = nn.models.mlp([6, 8, 3], "cos", "hadamard")
    x = np.random.default_rng(0).uniform(-1, 1, (4, 6))
    with ExitStack() as stack:
        nodes = stack.enter_context(running_all(folder, ("party0", "party1")))
        with connected(folder, timeout_s=60) as cluster:
            private = cluster.share(model, "tiny")
            assert np.abs(private.predict(x) - model(x)).max() < 1e-2
            assert np.abs(private.predict(x, mode="masked") - model(x)).max() < 1e-2
            parties, record = cluster.transport, private._record
            for ask in (
                lambda: private.predict(x, output="label"),
                lambda: parties.infer(record, split_words({"input": np.zeros((4, 6), np.uint64)}), None, "label"),
                lambda: parties.prepare(record, 4, False, "label"),
            ):
                with pytest.raises(ModelError, match="needs a dealer"):
                    ask()
            trained = cluster.fit(model, x, [0, 1, 2, 0], epochs=2, batch_size=2, lr=0.1)
            assert trained.predict(x).shape == (4, 3)
            cos = cluster.function("cos", (2, 6))
            cos.prepare(3)
            assert np.abs(cos(x) - np.cos(x)).max() < 2e-4
            os.kill(nodes["party1"].pid, signal.SIGKILL)
            nodes["party1"].wait()
            stack.enter_context(running(folder, "party1"))
            assert np.abs(private.predict(x) - model(x)).max() < 1e-2
            assert np.abs(cos(x[:2]) - np.cos(x[:2])).max() < 2e-4, "opened again, with what was not used"
            with pytest.raises(MaterialExhausted):
                cos(x[:2])
        for _ in range(60):  # party 1 came back a moment ago: its material is being made
            code, output = command("doctor", "--cluster", folder / "cluster.toml", "--node", folder / "party0")
            if code == 0:
                break
            time.sleep(0.5)
        assert code == 0, output


def test_a_dealer_that_a_cluster_does_without_is_refused(tmp_path) -> None:
    command("init", "--single-machine", tmp_path / "home")
    cards = [NodeCard.read(tmp_path / "home" / role / "card.toml") for role in ("dealer", "party0", "party1")]
    with pytest.raises(InputError, match="party0, party1"):
        ClusterFile.of(cards, dealer=False)
    with pytest.raises(InputError, match="dealer"):
        ClusterFile.of(cards[1:])
    with pytest.raises(HdcosError):
        ClusterFile.read(tmp_path / "home" / "card.toml")
