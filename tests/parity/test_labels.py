"""Labels and probabilities: every case gives the same on both transports, and labels are all that a caller is sent."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from hdcos import nn
from hdcos.errors import InputError, ModelError
from hdcos.protocol.argmax import label_bits
from hdcos.secure.estimate import estimate, total
from hdcos.sharing import join

MODEL = nn.models.mlp([6, 16, 10], seed=3)
ROWS = np.random.default_rng(0).uniform(-6, 6, (60, 6))
PLAIN = MODEL(ROWS)
BEST = np.sort(PLAIN, axis=1)
CLEAR = BEST[:, -1] - BEST[:, -2] > 2e-2
"""Rows whose two best classes are further apart than answers err."""


@pytest.fixture(scope="module")
def private(cluster):
    return cluster.share(MODEL, "labelled")


def right(labels, rows=slice(None)) -> bool:
    good = labels == PLAIN[rows].argmax(axis=1)
    return labels.dtype == np.int64 and bool(good[CLEAR[rows]].all())


def test_most_rows_have_a_clear_label() -> None:
    assert CLEAR.mean() > 0.8
    assert len(set(PLAIN.argmax(axis=1))) > 3


@pytest.mark.parametrize("mode", [None, "shares", "masked"])
@pytest.mark.parametrize("batch_rows", [7, 1024])
def test_labels_are_those_of_the_largest_outputs(private, mode, batch_rows) -> None:
    assert right(private.predict(ROWS, mode=mode, batch_rows=batch_rows, output="label"))


def test_a_batch_of_many_pieces_gives_labels_in_its_order(private) -> None:
    labels = private.predict(np.tile(ROWS, (10, 1)), output="label")
    assert all(right(part) for part in labels.reshape(10, 60))


def test_no_rows_have_no_labels(private) -> None:
    assert private.predict(np.empty((0, 6)), output="label").shape == (0,)


@pytest.mark.parametrize("mode", ["masked", "shares"])
def test_labels_take_three_rounds_more_than_logits_and_cost_what_was_planned(cluster, private, mode) -> None:
    if mode == "masked":
        private.prepare(len(ROWS), output="label")
    cluster.reset_cost()
    assert right(private.predict(ROWS, mode=mode, output="label"))
    cost, planned = cluster.cost, estimate(MODEL, len(ROWS), masked=mode == "masked", output="label")
    assert cost.online.rounds == private.rounds[mode] + 3 == private.rounds[mode] + private.label_rounds
    whole = total(planned).online
    assert (cost.online.rounds, cost.online.bytes_sent) == (whole.rounds, (whole.bytes_sent,) * 2)
    cluster.reset_cost()
    private.predict(ROWS, mode="shares")
    assert cluster.cost.online.rounds == private.rounds["shares"], "logits pay nothing for it"


def test_the_caller_is_sent_shares_of_labels_and_no_logit(cluster, private, monkeypatch) -> None:
    sent = []

    def recording(*asked):
        sent.append(real(*asked))
        return sent[-1]

    real = cluster.transport.infer
    monkeypatch.setattr(cluster.transport, "infer", recording)
    labels = private.predict(ROWS, output="label")
    ((zero, one),) = sent
    for reply in (zero, one):
        assert (reply.scale, reply.bits, reply.words.shape) == (0, label_bits(10), (60,))
        assert int(reply.words.max()) < 1 << reply.bits
        assert len(np.unique(reply.words)) > 10, "a share looks like its label"
    assert (join(zero.words, one.words, zero.bits) == labels).all()


def test_one_output_is_compared_with_zero_and_several_outputs_need_not_be_classes(cluster) -> None:
    model = nn.models.mlp([6, 8, 1], seed=2)
    single, plain = cluster.share(model, "single"), model(ROWS)[:, 0]
    labels = single.predict(ROWS, output="label")
    assert single.label_rounds == 2
    assert set(labels) == {0, 1}
    assert (labels == (plain > 0))[np.abs(plain) > 1e-2].all()
    assert np.abs(single.predict(ROWS, output="proba")[:, 0] - 1 / (1 + np.exp(-plain))).max() < 1e-2
    image = cluster.share(nn.Sequential([nn.Conv2d(1, 2, 3)], input_shape=(1, 6, 6)), "image")
    x = np.zeros((1, 1, 6, 6))
    for output in ("label", "proba"):
        with pytest.raises(ModelError, match=r"outputs have the shape \(2, 4, 4\): ask for logits"):
            image.predict(x, output=output)
    assert image.predict(x).shape == (1, 2, 4, 4)


def test_probabilities_are_made_of_logits_for_nothing(cluster, private) -> None:
    cluster.reset_cost()
    made = private.predict(ROWS, mode="shares", output="proba")
    assert cluster.cost.online.rounds == private.rounds["shares"]
    assert np.allclose(made.sum(axis=1), 1)
    plain = np.exp(PLAIN) / np.exp(PLAIN).sum(axis=1, keepdims=True)
    assert np.abs(made - plain).max() < 1e-2


def test_labels_and_logits_may_be_asked_for_at_the_same_time(private) -> None:
    def ask(number: int) -> bool:
        part = slice(10 * (number % 6), 10 * (number % 6) + 10)
        if number % 2:
            return right(private.predict(ROWS[part], output="label"), part)
        return bool(np.abs(private.predict(ROWS[part]) - PLAIN[part]).max() < 1e-2)

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(ask, range(18)))


@pytest.mark.parametrize("output", ["labels", "", None, 1])
def test_an_output_that_nobody_knows_is_refused_before_anything_is_sent(cluster, private, output) -> None:
    cluster.reset_cost()
    for use in (lambda: private.predict(ROWS, output=output), lambda: private.prepare(3, output=output)):
        with pytest.raises(InputError, match="an answer is logits, label or proba"):
            use()
    assert cluster.cost.online.bytes_sent == (0, 0)
