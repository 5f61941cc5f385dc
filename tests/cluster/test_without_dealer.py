"""Two processes and nobody else: inference, training and failures without a dealer."""

from __future__ import annotations

import os
import signal
import time

import numpy as np
import pytest

import hdcos
from hdcos import data, nn
from hdcos.errors import ModelError, PeerLost
from hdcos.secure.compile import compile_network
from hdcos.secure.estimate import ot_traffic


@pytest.fixture(scope="module")
def cluster():
    with hdcos.local(dealer=False, timeout_s=20) as both:
        yield both


def test_there_are_two_processes(cluster) -> None:
    assert sorted(cluster.pids) == ["party0", "party1"]


def test_functions_give_the_same_answers_at_the_same_online_price(cluster) -> None:
    x = np.random.default_rng(0).uniform(-3, 3, (5, 7))
    with hdcos.local() as dealt:
        for name, exact in (("cos", np.cos(x)), ("sigmoid", 1 / (1 + np.exp(-x))), ("square", x * x)):
            online = []
            for each in (cluster, dealt):
                each.reset_cost()
                assert np.abs(each.evaluate(name, x) - exact).max() < 2e-3
                online.append((each.cost.online.rounds, each.cost.online.bytes_sent))
            assert online[0] == online[1]


def test_comparisons_are_refused_before_anything_is_sent(cluster) -> None:
    cluster.reset_cost()
    for name in ("relu", "argmax"):
        for way in ("tables", "dcf"):
            with pytest.raises(ModelError, match="start a dealer with `hdcos dealer`"):
                cluster.evaluate(name, np.zeros((2, 3)), way=way)
    assert cluster.cost.online.bytes_sent == cluster.cost.offline.bytes_sent == (0, 0)


def test_labels_are_refused_before_anything_is_sent_and_probabilities_are_not(cluster) -> None:
    private = cluster.share(nn.models.mlp([6, 8, 3]), "unlabelled")
    cluster.reset_cost()
    for use in (
        lambda: private.predict(np.zeros((2, 6)), output="label"),
        lambda: private.prepare(2, output="label"),
        lambda: private.label_rounds,
    ):
        with pytest.raises(ModelError, match="needs a dealer: start one with `hdcos dealer`, or ask for logits"):
            use()
    assert cluster.cost.online.bytes_sent == cluster.cost.offline.bytes_sent == (0, 0)
    assert private.predict(np.zeros((2, 6)), output="proba").sum() == pytest.approx(2)


def test_private_inference_is_plain_inference_and_costs_what_was_planned(cluster) -> None:
    model = nn.Sequential(
        [
            nn.Conv2d(1, 2, 3),
            nn.Cos(),
            nn.AvgPool2d(2),
            nn.Flatten(),
            nn.HadamardDiagonal(18, 16, terms=4),
            nn.Cos(),
            nn.HadamardDiagonal(16, 4),
        ],
        input_shape=(1, 8, 8),
    )
    x = np.random.default_rng(1).uniform(-1, 1, (6, 1, 8, 8))
    private = cluster.share(model)
    cluster.reset_cost()
    private.prepare(6)
    assert np.abs(private.predict(x) - model(x)).max() < 1e-2
    cost = cluster.cost
    assert cost.online.rounds == 2
    assert sum(cost.offline.bytes_sent) == ot_traffic(compile_network(model, dealer=False), 6).bytes


def test_pools_are_refilled_in_the_background(cluster) -> None:
    model = nn.models.mlp([6, 8, 3], "cos", "hadamard")
    private = cluster.share(model, ahead=4)
    x = np.random.default_rng(0).uniform(-1, 1, (3, 6))
    for _ in range(5):
        assert np.abs(private.predict(x, batch_rows=3) - model(x)).max() < 1e-2


def test_private_training_without_a_dealer_follows_training_with_one(cluster) -> None:
    x, y = data.digits("train")
    images, _ = data.digits("test")
    model = nn.models.mlp([64, 16, 10], "cos", "hadamard", seed=7)
    options = {"epochs": 1, "batch_size": 50, "lr": 0.5, "seed": 3, "progress": False}
    made = cluster.fit(model, x[:150], y[:150], **options).predict(images[:40])
    with hdcos.local() as dealt:
        expected = dealt.fit(model, x[:150], y[:150], **options).predict(images[:40])
    assert np.abs(made - expected).max() < 2e-2


def test_a_party_killed_while_material_is_made_ends_the_work_with_a_named_error() -> None:
    with hdcos.local(dealer=False, timeout_s=3) as both:
        cos = both.function("cos", (200, 1000))
        cos.prepare(50, wait=False)
        time.sleep(0.3)
        os.kill(both.pids["party1"], signal.SIGKILL)
        started = time.monotonic()
        with pytest.raises(PeerLost):
            cos.prepare(20)
        assert time.monotonic() - started < 15
        both.transport.shutdown = lambda: None
