"""A worker dies at one party when that of its pair at the other has contributed: nothing of the step is used.

Party 0 then adds two parts of the batch and party 1 one, so their shares are shares of nothing. Both go on from the
last checkpoint, with the pair that is left, to the parameters that they would have had.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pytest

from hdcos import nn
from hdcos.api.commands import AddRows, EndData, KeepData, KeepJob, OpenJob, Steps
from hdcos.cluster.fit import check_run
from hdcos.cluster.transport import split_words
from hdcos.errors import WorkerLost
from hdcos.offline import Dealer
from hdcos.party.checkpoint import Checkpoints
from hdcos.party.group import ALONE, Group
from hdcos.ring import decode
from hdcos.secure.training.targets import encode_rows
from hdcos.sharing import join
from hdcos.testing.pair import memory_pair
from party.test_worker import Pair

ROWS, EVERY, LOST_IN, STEPS = 48, 3, 4, 9
"""Rows, steps between checkpoints, the step in which a worker is lost, and all steps."""


class Parties:
    """Pairs that take steps together, each party's workers with links in memory."""

    def __init__(self, count: int = 2) -> None:
        dealer = Dealer()
        self.pairs = [Pair(dealer) for _ in range(count)]
        for rank in (0, 1):
            ends: dict[str, Any] = {}
            for index, pair in enumerate(self.pairs):
                pair.fronts[rank]._engine.gather = partial(self._gather, ends, index)
        self._pool = ThreadPoolExecutor(count)

    @staticmethod
    def _gather(ends: dict[str, Any], index: int, workers: list[int], scope: str) -> Group:
        if len(workers) < 2:
            return ALONE
        pairs = ends.setdefault(scope, [memory_pair(("worker0", f"worker{other}"), 3.0) for other in workers[1:]])
        return Group(index, len(workers), lambda: [pairs[index - 1][1]] if index else [first for first, _ in pairs])

    def do(self, *commands, arrays=({}, {})):
        """All pairs at the same time."""
        for running in [self._pool.submit(pair.do, *commands, arrays=arrays) for pair in self.pairs]:
            running.result()

    def kill_worker_1_of_party_1(self, job: str, step: int) -> None:
        """Before it sends its part of this step to the first worker of its party."""
        training = self.pairs[1].fronts[1]._worker.jobs[job].training
        exchange = training.group._exchange

        def exchange_or_die(words):
            if training.step == step:
                training.group.close()
            return exchange(words)

        training.group._exchange = exchange_or_die

    def parameters(self, job: str) -> np.ndarray:
        """What the first pair's shares are shares of."""
        zero, one = (front._worker.jobs[job].training for front in self.pairs[0].fronts)
        name = zero.plan.tensors[0].name
        share, other = zero.state[name], one.state[name]
        return decode(join(share.words, other.words, 64), share.scale, 64)

    def stop(self) -> None:
        self._pool.shutdown()
        for pair in self.pairs:
            pair.stop()


@pytest.fixture
def parties():
    made = Parties()
    yield made
    made.stop()


def test_a_step_that_a_worker_left_after_its_pair_had_contributed_is_taken_back(parties, tmp_path) -> None:
    model, x = nn.models.mlp([6, 8, 3]), np.random.default_rng(0).uniform(-1, 1, (ROWS, 6))
    y = x[:, :3].argmax(1)
    parties.do(KeepData("d", "v", 6, 3))
    parties.do(AddRows("d", "v"), EndData("d", "v", ROWS), arrays=split_words({"rows": encode_rows(x, y, 3)}))

    def begin(name: str) -> None:
        options = {"epochs": 3, "batch_size": 16, "lr": 0.1, "momentum": 0.9, "weight_decay": 1e-3, "seed": 1}
        run = check_run(model, x, y, 26, **options, checkpoint=tmp_path / name, checkpoint_every=EVERY)
        parties.do(KeepJob(name, run.spec), arrays=split_words(run.words))
        parties.do(OpenJob(name, name, [["d", "v"]], 1, None, [0, 1]))

    begin("whole")
    parties.do(Steps("whole", 0, STEPS, 0.1))
    begin("broken")
    parties.kill_worker_1_of_party_1("broken", LOST_IN)
    with pytest.raises(WorkerLost, match="said goodbye"):
        parties.do(Steps("broken", 0, LOST_IN + 1, 0.1))
    wrong = parties.parameters("broken") - parties.parameters("whole")
    assert np.abs(wrong).max() > 1, "the parties have added different parts, and what they hold is noise"
    steps = [Checkpoints.of(tmp_path / "broken", rank).steps() for rank in (0, 1)]
    last = max(set(steps[0]) & set(steps[1]))
    assert last == EVERY, "nothing of the step that was lost is kept"
    parties.pairs[0].do(OpenJob("broken", "again", [["d", "v"]], 2, last), Steps("broken", last, STEPS - last, 0.1))
    assert np.abs(parties.parameters("broken") - parties.parameters("whole")).max() < 1e-3
