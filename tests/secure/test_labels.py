"""Labels on shares: the label of the very answer that logits would have been, and nothing else is shown to anybody."""

from __future__ import annotations

from itertools import cycle

import numpy as np
import pytest

from hdcos import nn
from hdcos.errors import InputError, ModelError
from hdcos.offline import limits
from hdcos.offline.sign_kinds import MOST_CLASSES
from hdcos.protocol.argmax import label_bits
from hdcos.protocol.plan import blank_share
from hdcos.protocol.rounds import Price
from hdcos.ring import decode, encode
from hdcos.secure import answers, compile_network
from hdcos.secure.activations import RANGE_BITS
from hdcos.secure.answers import LARGEST_NOISE
from hdcos.secure.compile import OUTPUT_SCALE
from hdcos.secure.estimate import estimate, total
from hdcos.secure.labels import LABEL, LOGITS, PROBA, check_output, label, plan_label, probabilities
from hdcos.sharing import join, refresh
from hdcos.testing.bounds import error_bound
from hdcos.testing.pair import share_pair, simulate, simulate_transcript
from protocol.test_uniformity import (
    LEAST_P,
    SECRETS,
    broken,
    differences_between,
    differences_within,
    least_p,
    openings,
    p_value,
    singles,
)
from protocol_cases import Case

RUNS = 24
ROUNDS = {1: 2, 2: 2, 3: 3, 10: 3, 32: 3, 33: 12, 100: 14}
SCALES = {"behind a dense layer": 50, "behind a Hadamard-Diagonal layer": 53}


def found(shares, classes) -> np.ndarray:
    assert all(share.bits == label_bits(max(2, classes)) for share in shares)
    words = [share.words for share in shares]
    return decode(join(*words, shares[0].bits), 0, shares[0].bits).astype(int)


def expected(logits: np.ndarray) -> np.ndarray:
    return logits.argmax(axis=1) if logits.shape[1] > 1 else (logits[:, 0] > 0).astype(int)


@pytest.mark.parametrize("scale", SCALES.values(), ids=SCALES)
@pytest.mark.parametrize("classes", ROUNDS)
def test_it_is_the_first_of_the_largest_in_the_rounds_that_were_planned(classes: int, scale: int) -> None:
    logits = np.random.default_rng(classes).uniform(-200, 200, (max(20, 600 // classes), classes))
    rest = np.sort(logits, axis=1)
    clear = np.abs(logits[:, 0] if classes == 1 else rest[:, -1] - rest[:, -2]) > 2 * LARGEST_NOISE
    pair = share_pair(encode(logits, scale), scale)
    shares, transcript = simulate(label, pair)
    assert (found(shares, classes) == expected(logits))[clear].all()
    assert clear.mean() > 0.9
    planned = plan_label(blank_share((1, classes), scale), has_dealer=True)
    assert len(transcript.rounds) == planned.rounds == ROUNDS[classes]


@pytest.mark.parametrize("at", [50, OUTPUT_SCALE])
@pytest.mark.parametrize("classes", [1, 2, 3, 10, 33])
def test_it_is_exactly_the_label_of_the_answer_that_logits_would_have_been(classes: int, at: int, monkeypatch) -> None:
    """So whatever labels tell, logits would have told: here the noise decides, and both are made of the same."""
    logits = np.random.default_rng(classes).uniform(-3e-4, 3e-4, (300, classes))
    pair = share_pair(encode(logits, at), at)
    drawn = cycle([answers.noise(logits.shape, at), answers.noise(logits.shape, at)])
    monkeypatch.setattr(answers, "noise", lambda shape, scale: next(drawn))
    (scale, bits, zero), (_, _, one) = (answers.answer(share, rank) for rank, share in enumerate(pair))
    shown = decode(join(zero, one, bits), scale, bits)
    shares, _ = simulate(label, pair)
    assert (found(shares, classes) == expected(shown)).all()
    assert (expected(shown) != expected(logits)).mean() > 0.1, "the noise decided nothing"
    if classes > 1:
        tied = np.sort(shown, axis=1)
        assert (tied[:, -1] == tied[:, -2]).any(), "there was no tie"


@pytest.mark.parametrize("own", [0, 1])
@pytest.mark.parametrize("classes", [1, 3, 10])
def test_a_row_between_two_classes_shows_noise_that_neither_party_knows(classes: int, own: int, monkeypatch) -> None:
    """Without it an error of any size, which a party may know, would be seen there: one that leaves its own noise out
    still meets the other's."""
    real, turn = answers.noise, cycle([0, 1])  # simulations call party 0 first
    monkeypatch.setattr(answers, "noise", lambda *known: real(*known) * np.uint64(next(turn) != own))
    shares, _ = simulate(label, share_pair(encode(np.zeros((600, classes)), 50), 50))
    counts = np.bincount(found(shares, classes), minlength=max(2, classes))
    assert counts.min() > 600 / max(2, classes) / 4


def case(classes: int) -> Case:
    return Case(
        "label", lambda party, x: label(party, x), lambda x: x, Price(), shapes=((640 // classes, classes),), scale=50
    )


@pytest.mark.parametrize("classes", [1, 10])
def test_all_that_is_opened_is_uniform_and_unrelated_whatever_the_logits_are(classes: int) -> None:
    runs = {name: openings(case(classes), SECRETS[name], RUNS) for name in ("-1", "large")}
    again = openings(case(classes), SECRETS["0"], RUNS)
    for observed in runs.values():
        assert least_p(singles(observed)) > LEAST_P
        assert least_p(differences_within(observed)) > LEAST_P
        assert least_p(differences_between(observed, again)) > LEAST_P
    assert least_p(singles(openings(case(classes), SECRETS["1"], RUNS, broken))) < LEAST_P


@pytest.mark.parametrize("classes", [2, 10])
def test_what_a_client_is_given_is_a_uniform_sharing_of_the_label_and_nothing_else(classes: int) -> None:
    logits = np.tile(np.linspace(0, 1, classes), (1000, 1))
    shares, _ = simulate(label, share_pair(encode(logits, 50), 50))
    left = [answers.round_answer(refresh(share, rank, bytes(32), "once"), 0, rank) for rank, share in enumerate(shares)]
    bits = label_bits(classes)
    for scale, told, words in left:
        assert (scale, told, words.shape) == (0, bits, (1000,))
        assert int(words.max()) < 1 << bits
        assert p_value(words, bits) > LEAST_P
    assert (join(left[0][2], left[1][2], bits) == classes - 1).all()


@pytest.mark.parametrize("seed", range(6))
def test_labels_of_random_networks_are_those_in_plaintext(seed: int) -> None:
    generator = np.random.default_rng(seed)
    activation, structure = [("cos", "hadamard"), ("relu", "dense"), ("square", "dense")][seed % 3]
    classes = int(generator.choice([1, 2, 5, 10]))
    model = nn.models.mlp([12, 16, classes], activation, structure, seed=seed)
    x = generator.uniform(-1, 1, (40, 12)) * (6 if activation == "cos" else 1)
    plain, bound = model(x), error_bound(model, x)
    found_labels, transcript = simulate_transcript(model, x, output=LABEL)
    rest = np.sort(plain, axis=1)
    margin = np.abs(plain[:, 0]) if classes == 1 else rest[:, -1] - rest[:, -2]
    clear = margin > 2 * bound.max(axis=1)
    assert len(set(expected(plain)[clear])) > 1
    assert (found_labels == expected(plain))[clear].all()
    assert clear.mean() > 0.5
    logits, labelled = (total(estimate(model, len(x), output=output)) for output in (LOGITS, LABEL))
    assert len(transcript.rounds) == labelled.online.rounds == logits.online.rounds + ROUNDS[min(classes, 3)]
    assert labelled.offline.bytes_sent > logits.offline.bytes_sent


def test_probabilities_are_the_softmax_of_several_outputs_and_the_sigmoid_of_one() -> None:
    logits = np.array([[1.0, 2.0, 3.0], [-1e3, 0.0, 1e3], [5.0, 5.0, 5.0]])
    made = probabilities(logits)
    assert np.allclose(made.sum(axis=1), 1)
    assert np.allclose(made[0], np.exp(logits[0]) / np.exp(logits[0]).sum())
    assert np.allclose(made[2], 1 / 3)
    assert np.allclose(probabilities(np.array([[0.0], [1e3], [-1e3], [1.0]]))[:, 0], [0.5, 1, 0, 0.7310586])
    assert probabilities(np.empty((0, 3))).shape == (0, 3)


def test_what_cannot_be_answered_is_refused_by_name() -> None:
    flat, image = nn.models.mlp([4, 4, 3]), nn.Sequential([nn.Conv2d(1, 2, 3)], input_shape=(1, 6, 6))
    check_output(LABEL, compile_network(flat), has_dealer=True)
    check_output(PROBA, compile_network(flat), has_dealer=False)
    with pytest.raises(InputError, match="logits, label or proba, not 'scores'"):
        check_output("scores", compile_network(flat), has_dealer=True)
    with pytest.raises(ModelError, match="start one with `hdcos dealer`, or ask for logits"):
        check_output(LABEL, compile_network(flat), has_dealer=False)
    for output in (LABEL, PROBA):
        with pytest.raises(ModelError, match=r"the shape \(2, 4, 4\): ask for logits"):
            check_output(output, compile_network(image), has_dealer=True)
    assert plan_label(blank_share((1, 2, 4, 4), 50), has_dealer=True) is None
    assert plan_label(blank_share((1, 3), 50), has_dealer=False) is None


def test_labels_are_of_one_to_the_most_classes() -> None:
    for classes in (1, 2, MOST_CLASSES):
        assert plan_label(blank_share((1, classes), 50), has_dealer=True) is not None
    for classes in (0, MOST_CLASSES + 1):
        assert plan_label(blank_share((1, classes), 50), has_dealer=True) is None


@pytest.mark.parametrize("classes", [1, 2, 10, 33])
def test_logits_are_compared_over_the_range_that_is_promised_and_no_bit_more(classes: int) -> None:
    """A comparison of `bits` bits holds for differences below 2**(bits-2), and each bit is paid for."""
    for scale, bits in ((OUTPUT_SCALE, OUTPUT_SCALE + RANGE_BITS + 3), (50, OUTPUT_SCALE + RANGE_BITS + 3), (53, 24)):
        planned = plan_label(blank_share((1, classes), scale), has_dealer=True)
        compared = {need.kind.bits for need in planned.material.needs if need.kind.name == "sign_keys"}
        assert compared == {bits}


def test_labels_that_a_dealer_would_refuse_are_refused_when_they_are_planned(monkeypatch) -> None:
    logits = blank_share((1, 10), 50)
    most = plan_label(logits, has_dealer=True).material.execution_bytes
    monkeypatch.setattr(limits, "MOST_DEALT_BYTES", most)
    plan_label(logits, has_dealer=True)
    monkeypatch.setattr(limits, "MOST_DEALT_BYTES", most - 1)
    with pytest.raises(InputError, match="of material at once"):
        plan_label(logits, has_dealer=True)
