"""Rows and classes that count more than others: a step on shares is the weighted step, and opens nothing else."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from chi_square import p_value
from hdcos import nn
from hdcos.errors import InputError
from hdcos.protocol.plan import blank_share, plan
from hdcos.ring import decode, encode
from hdcos.secure.training import Rule, sgd_step, training_plan
from hdcos.secure.training.plain import plain_fit
from hdcos.secure.training.plan import INPUT_SCALE, TARGET_SCALE
from hdcos.secure.training.step import plan_step
from hdcos.secure.training.targets import one_hot
from hdcos.secure.training.weights import RowWeights, check_weights, class_weights, row_weights
from hdcos.sharing import join
from hdcos.testing.pair import share_pair, simulate

ROWS = 32
GENERATOR = np.random.default_rng(0)
MODELS = {
    "hadamard": nn.models.mlp([12, 16, 3], seed=1),
    "dense": nn.models.mlp([12, 16, 3], "cos", "dense", seed=1),
    "linear": nn.Sequential([nn.Dense(12, 3)], 1),
    "diagonal": nn.Sequential([nn.HadamardDiagonal(12, 3)], 1),
    "one output": nn.models.mlp([12, 16, 1], seed=1),
}
CASES = [(name, loss) for name in MODELS for loss in ("logistic", "squared", "softmax")]
CASES.remove(("one output", "softmax"))


def batch(model):
    x = np.rint(GENERATOR.uniform(-1, 1, (ROWS, 12)) * 2**12) / 2**12
    return x, one_hot(GENERATOR.integers(0, max(2, model.output_shape[0]), ROWS), model.output_shape[0])


def private_step(model, x, targets, weights, loss, rate):
    training = training_plan(model, loss, weighted=True)
    state = model.state()
    pairs = [share_pair(t.words(state[t.name]), t.scale, t.bits) for t in training.tensors]
    rows = share_pair(encode(x, INPUT_SCALE), INPUT_SCALE)
    wanted = share_pair(encode(targets, training.target_scale), training.target_scale)
    known = share_pair(encode(weights[:, None], TARGET_SCALE), TARGET_SCALE)

    def program(party, *shares):
        held = {t.name: share for t, share in zip(training.tensors, shares, strict=False)}
        after = yield from sgd_step(party, training, held, shares[-3], shares[-2], Rule(rate), shares[-1])
        return tuple(after[t.name] for t in training.tensors)

    (zero, one), transcript = simulate(program, *pairs, rows, wanted, known)
    after = {}
    for t, a, b in zip(training.tensors, zero, one, strict=True):
        shift = np.uint64(64 - t.bits)
        words = ((join(a.words, b.words) << shift).view(np.int64) >> shift.astype(np.int64)).view(np.uint64)
        after[t.name] = t.parameter(words)
    return model.with_state(after), transcript


def plain_step(model, x, targets, weights, loss, rate):
    """One step of the plaintext trainer, which the next test holds against autograd."""
    return plain_fit(model, x, targets, 1, len(x), lambda epoch: rate, 0, loss=loss, weights=weights)


def moved(model, after):
    return {name: value - model.state()[name] for name, value in after.state().items()}


def rms(x):
    return float(np.sqrt((np.asarray(x) ** 2).mean()))


@pytest.mark.parametrize(("name", "loss"), CASES)
def test_a_weighted_step_on_shares_is_the_weighted_step(name: str, loss: str) -> None:
    model, rate = MODELS[name], 0.3
    x, targets = batch(model)
    weights = check_weights(GENERATOR.choice([0.0, 0.25, 1.0, 4.0], ROWS), model.output_shape[0], loss, "weights")
    private, transcript = private_step(model, x, targets, weights, loss, rate)
    expected, usual = (plain_step(model, x, targets, each, loss, rate) for each in (weights, np.ones(ROWS)))
    steps, others = moved(model, expected), moved(model, usual)
    for parameter, value in private.state().items():
        error = value - expected.state()[parameter]
        assert rms(error) <= 8e-2 * rms(steps[parameter]) + 1e-3 * rate, parameter
    assert any(rms(steps[each] - others[each]) > 0.2 * rms(steps[each]) for each in steps), "weights matter here"
    planned = plan_step(model, ROWS, loss, rate, weighted=True)
    assert (planned.rounds, planned.online_bytes) == (len(transcript.rounds), sum(transcript.sent_bytes))


@pytest.mark.parametrize(
    ("name", "loss", "more"),
    [
        *(("hadamard", "logistic", 1), ("hadamard", "softmax", 1), ("hadamard", "squared", 2)),
        *(("dense", "logistic", 2), ("dense", "softmax", 1), ("linear", "squared", 2)),
    ],
)
def test_weights_cost_the_rounds_that_are_stated(name: str, loss: str, more: int) -> None:
    usual, weighted = (plan_step(MODELS[name], ROWS, loss, weighted=each) for each in (False, True))
    assert weighted.rounds - usual.rounds == more


@pytest.mark.parametrize("loss", ["logistic", "squared", "softmax"])
def test_the_plaintext_trainer_weighs_and_decays_as_autograd_does(loss: str) -> None:
    model = nn.models.mlp([6, 8, 3], "cos", "dense", seed=2)
    x, targets = GENERATOR.normal(size=(40, 6)), one_hot(GENERATOR.integers(0, 3, 40), 3)
    weights = GENERATOR.uniform(0, 3, 40)
    trained = plain_fit(
        model, x, targets, 2, 10, lambda epoch: 0.2, 7, momentum=0.9, loss=loss, weight_decay=0.05, weights=weights
    )
    module = model.to_torch(torch.float64)
    optimizer = torch.optim.SGD(module.parameters(), 0.2, momentum=0.9, weight_decay=0.05)
    for epoch in range(2):
        order = np.random.default_rng([7, epoch]).permutation(40)
        for start in range(0, 40, 10):
            rows = order[start : start + 10]
            z, t, w = (torch.from_numpy(each) for each in (x[rows], targets[rows], weights[rows]))
            logits = module(z)
            if loss == "squared":
                each = 0.5 * ((logits - t) ** 2).sum(1)
            elif loss == "logistic":
                each = torch.nn.functional.binary_cross_entropy_with_logits(logits, t, reduction="none").sum(1)
            else:
                label = logits.gather(1, t.argmax(1)[:, None])
                each = (torch.nn.functional.softplus(logits - label) * (1 - t)).sum(1)
            optimizer.zero_grad()
            ((w * each).sum() / 10).backward()
            optimizer.step()
    expected = nn.from_torch(module).state()
    for name, value in trained.state().items():
        np.testing.assert_allclose(value, expected[name], atol=1e-12)


@pytest.mark.parametrize("outputs", [1, 3])
def test_the_weight_of_a_class_follows_from_secret_targets(outputs: int) -> None:
    labels = GENERATOR.integers(0, max(2, outputs), 50)
    known = class_weights([0.5, 2.25, 3.0][: max(2, outputs)], outputs, "logistic")
    targets = share_pair(encode(one_hot(labels, outputs), TARGET_SCALE), TARGET_SCALE)
    rows = RowWeights(classes=known)

    def program(party, share):
        yield from ()
        return rows.take(party, share.words, outputs)[1]

    (zero, one), transcript = simulate(program, targets)
    assert not transcript.rounds, "it is local"
    assert decode(join(zero.words, one.words), rows.scale)[:, 0].tolist() == [known[label] for label in labels]


def test_what_weights_open_is_uniform_whatever_they_are() -> None:
    """The opened sums of a step with constant weights: 0, and the largest."""
    model = nn.models.mlp([8, 8, 2])
    training = training_plan(model, weighted=True)
    seen: dict[int, list[np.ndarray]] = {}
    usual = plan(sgd_step, *_blank(training, False)).rounds
    for weight in (0, 200):
        for _ in range(6):
            pairs = [share_pair(np.zeros(t.shape, np.uint64), t.scale, t.bits) for t in training.tensors]
            x, targets = (share_pair(np.zeros((64, n), np.uint64), s) for n, s in ((8, INPUT_SCALE), (2, TARGET_SCALE)))
            known = share_pair(encode(np.full((64, 1), float(weight)), TARGET_SCALE), TARGET_SCALE)

            def program(party, *shares):
                held = {t.name: share for t, share in zip(training.tensors, shares, strict=False)}
                return (yield from sgd_step(party, training, held, shares[-3], shares[-2], Rule(0.5), shares[-1]))

            _, transcript = simulate(program, *pairs, x, targets, known)
            assert len(transcript.rounds) == usual + 1
            for part in [part for round_ in transcript.rounds for part in round_]:
                if part.bits == 32 and part.values.shape == (64, 2):
                    seen.setdefault(weight, []).append(part.values.ravel())
    assert all(len(values) == 12 for values in seen.values()), "a weight and a derivative in each of six steps"
    for values in seen.values():
        for shift in (0, 14, 29):
            window = (np.concatenate(values).astype(np.uint64) >> np.uint64(shift)) & np.uint64(7)
            assert p_value(np.bincount(window.astype(int), minlength=8)) > 1e-6


def _blank(training, weighted):
    state = {t.name: blank_share(t.shape, t.scale, t.bits) for t in training.tensors}
    chosen = training_plan(nn.models.mlp([8, 8, 2]), weighted=weighted)
    rows = (blank_share((64, 8), INPUT_SCALE), blank_share((64, 2), TARGET_SCALE), Rule(0.5))
    return chosen, state, *rows


# ---- at the caller


def test_balanced_weights_are_those_of_scikit_learn() -> None:
    from sklearn.utils.class_weight import compute_class_weight

    labels = GENERATOR.choice(4, 300, p=[0.5, 0.3, 0.15, 0.05])
    found = class_weights("balanced", 4, "softmax", labels)
    expected = compute_class_weight("balanced", classes=np.arange(4), y=labels)
    np.testing.assert_allclose(found, expected, atol=2**-9)


def test_a_row_counts_by_itself_and_by_its_class() -> None:
    targets = one_hot([0, 1, 1, 0], 1)
    assert row_weights(None, (), targets, "logistic") is None
    assert row_weights([1, 2, 3, 4], (0.5, 2.0), targets, "logistic").tolist() == [0.5, 4.0, 6.0, 2.0]
    assert class_weights({1: 3.0}, 1, "logistic") == (1.0, 3.0)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: class_weights("even", 1, "logistic"), "or 'balanced', not 'even'"),
        (lambda: class_weights("balanced", 1, "logistic"), "cannot see in uploaded data sets"),
        (lambda: class_weights("balanced", 3, "softmax", np.array([0, 1, 1])), r"classes \[2\] have none"),
        (lambda: class_weights([1.0], 1, "logistic"), "2 classes cannot have 1 weights"),
        (lambda: class_weights({2: 1.0}, 1, "logistic"), "there are 0 to 1"),
        (lambda: class_weights([1.0, -1.0], 1, "logistic"), "at least 0"),
        (lambda: class_weights([1.0, 2.0], 1, "squared"), "with loss='squared' weigh the rows"),
        (lambda: row_weights([1.0], (), np.zeros((2, 1)), "logistic"), "2 rows cannot have weights"),
        (lambda: row_weights([1.0, np.nan], (), np.zeros((2, 1)), "logistic"), "at least 0"),
        (lambda: row_weights([1.0, 300.0], (), np.zeros((2, 1)), "logistic"), "divide them by their mean"),
        (lambda: row_weights([1.0, 3.0], (), np.full((2, 1), 100.0), "squared"), "may reach 1.28 here"),
        (lambda: row_weights(None, (1.0, 2.0), np.full((2, 2), 1.0), "logistic"), "one class per row"),
    ],
)
def test_weights_that_make_no_sense_are_refused(call, words: str) -> None:
    with pytest.raises(InputError, match=words):
        call()
