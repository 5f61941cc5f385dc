"""The rows of a batch are divided among workers, equally or not: a step is the same, however many take it."""

from __future__ import annotations

import numpy as np
import pytest

from hdcos import nn
from hdcos.api.commands import AddRows, EndData, KeepData, KeepJob, OpenJob, Steps
from hdcos.cluster.fit import check_run
from hdcos.cluster.transport import split_words
from hdcos.party.group import Group
from hdcos.ring import decode
from hdcos.secure.training.targets import encode_rows
from hdcos.sharing import Share, join
from party.test_lost_parts import Parties

MODEL = nn.Sequential([nn.Flatten(), *nn.models.mlp([36, 8, 3], seed=1).layers], 1, (1, 6, 6))
X = np.random.default_rng(0).uniform(0, 1, (23, 1, 6, 6))
Y = X.reshape(23, -1)[:, :3].argmax(1)
WEIGHTS = np.linspace(0.5, 2.0, 23)
OPTIONS = {"lr": 0.1, "momentum": 0.9, "weight_decay": 1e-3, "seed": 1, "epochs": 2}


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 5, 8])
@pytest.mark.parametrize("batch", [1, 2, 7, 25, 50, 512])
def test_every_row_has_one_worker_and_parts_differ_by_one_row_at_most(batch: int, workers: int) -> None:
    parts = [Group(index, workers).part(batch) for index in range(workers)]
    assert [row for part in parts for row in part] == list(range(batch))
    working = [len(part) for part in parts if part]
    assert len(working) == min(workers, batch), "more workers than rows are too many, not a mistake"
    assert max(working) - min(working) <= 1
    assert parts[0], "the first one adds momentum and decay to what it makes"


@pytest.mark.parametrize(
    ("workers", "batch", "more"),
    [
        (3, 7, {"flip": True, "shift": 1, "sample_weight": WEIGHTS}),
        (2, 5, {"average": 1, "shuffle": "blocks"}),
        (3, 2, {"average": 1}),
    ],
)
def test_unequal_parts_make_the_steps_of_one_worker(workers: int, batch: int, more: dict) -> None:
    """Moved images, weights of rows, momentum, decay and means included; and a worker for which there is no row."""
    (alone,), (first, *others) = trained(1, batch, more), trained(workers, batch, more)
    for other in others:
        assert all(
            np.array_equal(other[rank][name].words, share.words)
            for rank in (0, 1)
            for name, share in first[rank].items()
        )
    for name, before in MODEL.state().items():
        expected = decoded(alone, name)
        assert np.abs(decoded(first, name) - expected).max() < 5e-3, "what two runs of one worker differ by"
        assert np.abs(expected - before.reshape(expected.shape)).max() > 1e-2, "it has moved"


def trained(workers: int, batch: int, more: dict) -> list[list[dict[str, Share]]]:
    """What each pair holds of the parameters when all steps were taken: shares of party 0 and of party 1."""
    parties = Parties(workers)
    try:
        rows = encode_rows(X, Y, 3, weights=more.get("sample_weight"))
        held = (KeepData("d", "v", 36, rows.shape[1] - 36), AddRows("d", "v"), EndData("d", "v", len(X)))
        parties.do(*held, arrays=split_words({"rows": rows}))
        run = check_run(MODEL, X, Y, 26, batch_size=batch, **{**OPTIONS, **more})
        parties.do(KeepJob("j", run.spec), arrays=split_words(run.words))
        parties.do(OpenJob("j", "scope", [["d", "v"]], 1, None, list(range(workers)) if workers > 1 else []))
        each = len(X) // batch
        for epoch in (0, 1):
            parties.do(Steps("j", epoch * each, each, 0.1))
        jobs = [[front._worker.jobs["j"].training for front in pair.fronts] for pair in parties.pairs]
        for index, pair in enumerate(jobs):
            steps = 2 * each if Group(index, workers).part(batch) else 0
            assert [training.pool.used for training in pair] == [steps] * 2
        return [[{name: training.state[name] for name in MODEL.state()} for training in pair] for pair in jobs]
    finally:
        parties.stop()


def decoded(shares: list[dict[str, Share]], name: str) -> np.ndarray:
    zero, one = (each[name] for each in shares)
    return decode(join(zero.words, one.words, zero.bits), zero.scale, zero.bits)
