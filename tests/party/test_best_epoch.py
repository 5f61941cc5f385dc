"""The best epoch outlives a party: its shares are in the checkpoints, and no epoch goes unjudged."""

from __future__ import annotations

import os
import signal
import time
from contextlib import ExitStack

import numpy as np

from hdcos import nn
from hdcos.cluster.job import judge
from hdcos.secure.training.plain import plain_fit
from hdcos.secure.training.targets import one_hot
from hdcos.secure.training.watch import Epoch
from party.conftest import connected, running, running_all

GENERATOR = np.random.default_rng(0)
X = GENERATOR.uniform(-1, 1, (120, 6))
Y = (X @ GENERATOR.normal(size=(6, 3))).argmax(1)


def plain(epochs):
    return plain_fit(nn.models.mlp([6, 8, 3], seed=1), X, one_hot(Y, 3), epochs, 20, lambda epoch: 0.5, 3)


def test_epochs_are_judged_by_those_before_them() -> None:
    epochs = {number: Epoch(number, 1.0, loss=loss) for number, loss in enumerate([0.5, 0.3, 0.3, 0.4, 0.2], 1)}
    assert [judge(epochs, number, 2) for number in range(1, 6)] == [
        (True, False),
        (True, False),
        (False, False),
        (False, True),
        (True, False),
    ]
    assert judge({}, 1, 2) == (True, False)


def test_a_party_that_dies_behind_the_best_epoch_takes_nothing_with_it(folder) -> None:
    judged = (X, 1 / (1 + np.exp(-plain(2)(X))))  # from the third epoch on it gets worse
    with ExitStack() as stack:
        nodes = stack.enter_context(running_all(folder, timeout_s=5))
        with connected(folder, timeout_s=40) as cluster:
            job = cluster.fit(
                *(nn.models.mlp([6, 8, 3], seed=1), X, Y),
                **{"epochs": 12, "batch_size": 20, "lr": 0.5, "seed": 3, "name": "best", "validation": judged},
                **{"patience": 4, "checkpoint_every": 6, "wait": False},
            )
            deadline = time.monotonic() + 60
            while max((epoch.number for epoch in job.history), default=0) < 3 and time.monotonic() < deadline:
                time.sleep(0.02)
            os.kill(nodes["party1"].pid, signal.SIGKILL)
            nodes["party1"].wait()
            stack.enter_context(running(folder, "party1", 5))
            trained = job.result(60)
            assert trained.best_epoch == 2
            assert [epoch.number for epoch in trained.history] == [1, 2, 3, 4, 5, 6]
            assert np.abs(trained.predict(X) - plain(2)(X)).max() < 0.02
