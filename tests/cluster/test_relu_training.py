"""Networks that compare, trained by processes of this machine: with a dealer, from checkpoints, by several workers."""

from __future__ import annotations

import numpy as np
import pytest

import hdcos
from hdcos import nn
from hdcos.errors import ModelError
from hdcos.party.checkpoint import Checkpoints
from hdcos.secure.training.step import plan_step

GENERATOR = np.random.default_rng(0)
X = GENERATOR.uniform(-1, 1, (96, 1, 8, 8))
Y = X[:, 0, :3, :3].reshape(96, 9).argmax(1) // 3
OPTIONS = {"epochs": 2, "batch_size": 16, "lr": 0.1, "momentum": 0.5, "seed": 3, "watch": 0, "progress": False}
STEPS = 2 * 6
MODEL = nn.Sequential(
    [
        *(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Dense(64, 16), nn.LeakyReLU(0.1), nn.Dense(16, 3)),
    ],
    1,
    (1, 8, 8),
)


@pytest.fixture(scope="module")
def cluster():
    with hdcos.local(timeout_s=20) as running:
        yield running


@pytest.fixture(scope="module")
def trained(cluster):
    """What a run without interruption gives for the rows, and its cost."""
    private = cluster.fit(MODEL, X, Y, **OPTIONS)
    return private.predict(X), private.cost


def close(scores: np.ndarray, others: np.ndarray) -> bool:
    """In plaintext, weights that begin 2**-12 apart end 0.011 apart, and the run moves scores by 0.7, rms."""
    return bool(np.sqrt(np.mean((scores - others) ** 2)) < 0.03)


def plain_scores() -> np.ndarray:
    import torch

    from hdcos.secure.training.shuffle import batches

    module = MODEL.to_torch(torch.float64)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.5)
    rows, wanted = torch.from_numpy(X), torch.from_numpy(np.eye(3)[Y])
    for epoch in range(2):
        for chosen in batches(3, epoch, len(X), 16):
            optimizer.zero_grad()
            loss = torch.nn.functional.binary_cross_entropy_with_logits(
                module(rows[chosen]), wanted[chosen], reduction="sum"
            )
            (loss / 16).backward()
            optimizer.step()
    return nn.from_torch(module)(X)


def test_a_run_follows_plaintext_and_costs_what_was_planned(trained) -> None:
    scores, cost = trained
    planned = plan_step(MODEL, 16, rate=0.1, momentum=0.5)
    assert cost.online.rounds == STEPS * planned.rounds
    assert cost.online.bytes_sent == (STEPS * planned.online_bytes,) * 2
    assert cost.offline.bytes_sent[0] == 0
    assert close(scores, plain_scores())


def test_a_run_that_was_stopped_goes_on_as_if_it_had_not(cluster, trained, tmp_path) -> None:
    job = cluster.fit(MODEL, X, Y, checkpoint=tmp_path, checkpoint_every=1, wait=False, **OPTIONS)
    job.cancel()
    job.result(timeout_s=30)
    assert 0 < Checkpoints.of(tmp_path, 0).steps()[-1] < STEPS
    resumed = cluster.fit(MODEL, X, Y, resume=tmp_path, **OPTIONS).predict(X)
    assert close(resumed, trained[0])
    for rank in (0, 1):
        assert Checkpoints.of(tmp_path, rank).reused() == []


def test_several_workers_learn_the_same_for_the_same_rounds(trained) -> None:
    with hdcos.local(workers=2, timeout_s=20) as two:
        private = two.fit(MODEL, X, Y, **OPTIONS)
        assert private.cost.online.rounds == trained[1].online.rounds
        assert close(private.predict(X), trained[0])


def test_without_a_dealer_it_is_refused_by_name_before_anything_is_sent() -> None:
    with hdcos.local(dealer=False, timeout_s=20) as both:
        for wait in (True, False):
            with pytest.raises(ModelError, match=r"layer 1, ReLU, .*need a dealer.*hdcos dealer"):
                both.fit(MODEL, X, Y, **OPTIONS, wait=wait)
        assert both.jobs() == both.datasets() == []
