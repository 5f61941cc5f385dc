"""Private models on real processes: outputs, rounds, bytes, masks, and errors before anything is sent."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import hdcos
from hdcos import nn
from hdcos.api.commands import Infer, IssueMasks
from hdcos.cluster.pair import refilled
from hdcos.cluster.transport import split_words
from hdcos.errors import (
    DataMissing,
    HdcosWarning,
    InputError,
    MaterialExhausted,
    MaterialReused,
    ModelError,
    RangeError,
)
from hdcos.secure.estimate import estimate, total
from hdcos.testing.bounds import error_bound


@pytest.fixture(scope="module")
def cluster():
    with hdcos.local(timeout_s=20) as running:
        yield running


CLOSE = 1e-2
"""Outputs of small networks: LARGEST_NOISE and what a few dithered cosines can add."""


def scope_of(cluster, private):
    """What the parties have open for a model, and its executions."""
    (scope,) = cluster.transport._held[private.name].scopes
    return scope


def used(cluster, private):
    return [facts["used"] for facts in scope_of(cluster, private).count()]


def test_threads_that_predict_at_the_same_time_use_all_that_was_prepared(cluster):
    """Masks are fetched in order and rows come in any: none is lost to a batch that came before its turn."""
    model = nn.models.mlp([6, 8, 3])
    private = cluster.share(model, "threads")
    x = np.random.default_rng(0).uniform(-1, 1, (16, 6))
    private.prepare(30 * len(x))
    cluster.reset_cost()
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda _: private.predict(x), range(30)))
    assert max(np.abs(answer - model(x)).max() for answer in answers) < CLOSE
    assert used(cluster, private) == [30 * len(x)] * 2
    assert cluster.cost.online.rounds == 30 * private.rounds["masked"]
    assert not any(cluster.cost.offline.bytes_sent)  # nothing had to be made again


def test_masks_that_are_dropped_leave_no_material_behind(cluster):
    """Masks of two fetches with other rows between them do not go together: all are dropped, at the parties too."""
    model = nn.models.mlp([6, 8, 3])
    private = cluster.share(model, "dropped")
    x = np.random.default_rng(0).uniform(-1, 1, (32, 6))
    private.prepare(10)
    private.predict(x)  # too few masks: as shares, behind those
    private.prepare(40)
    assert np.abs(private.predict(x) - model(x)).max() < CLOSE
    assert private._mask_ids == []
    assert used(cluster, private) == [10 + 32 + 40 + 32] * 2
    assert np.abs(private.predict(x, mode="masked") - model(x)).max() < CLOSE


@pytest.fixture(scope="module")
def digits(cluster):
    return cluster.share(nn.models.digits(), "digits")


READY = {
    "lenet5": nn.models.lenet5(),
    "lenet5 dense": nn.models.lenet5(structure="dense"),
    "higgs": nn.models.higgs_mlp(),
    "higgs tanh": nn.models.higgs_mlp(activation="tanh"),
    "criteo": nn.models.criteo_mlp(),
    "low rank": nn.models.mlp([20, 16, 4], "cos", "low_rank"),
    "phd square": nn.models.mlp([20, 16, 4], "square", "phd"),
}


@pytest.mark.parametrize("mode", ["masked", "shares"])
@pytest.mark.parametrize("name", READY)
def test_ready_models_cost_what_the_planner_says_and_give_the_plaintext_outputs(cluster, name, mode) -> None:
    model = READY[name]
    x = np.random.default_rng(0).uniform(0, 1, (5, *model.input_shape))
    private = cluster.share(model, f"{name}-{mode}".replace(" ", "-"), calibrate=x)
    model = private.calibration.model
    cluster.reset_cost()
    if mode == "masked":
        private.prepare(5)
    outputs = private.predict(x, mode=mode)
    assert (np.abs(outputs - model(x)) <= error_bound(model, x)).all()
    planned = estimate(model, 5, masked=mode == "masked")
    cost, whole = cluster.cost, total(planned)
    assert cost.online.rounds == whole.online.rounds
    assert cost.online.bytes_sent == (whole.online.bytes_sent,) * 2
    assert cost.online.wire_bytes_sent == (whole.online.wire_bytes_sent,) * 2
    assert cost.offline.bytes_sent[1] == whole.offline.bytes_sent
    metered = {step.name: (step.online.rounds, step.online.bytes_sent[0]) for step in cost.layers}
    talking = {layer.name: (layer.online.rounds, layer.online.bytes_sent) for layer in planned if layer.online.rounds}
    assert metered == talking


def test_a_tanh_network_is_right_once_it_is_calibrated_and_told_of_until_then(cluster) -> None:
    model = nn.Sequential([nn.HadamardDiagonal(12, 16), nn.Tanh(), nn.Dense(16, 3)], seed=1)
    x = np.random.default_rng(0).uniform(-1, 1, (40, 12))
    model = model.with_state({**model.state(), "0.diagonal": 40 * model.state()["0.diagonal"]})
    with pytest.warns(HdcosWarning, match=r"assumed \|x\| <= 4 in layer 1 \(Tanh\).*calibrate=rows") as caught:
        folded = cluster.share(model, "folded")
    assert caught[0].filename == __file__
    assert folded.calibration is None
    assert np.abs(folded.predict(x) - model(x)).max() > 0.5
    private = cluster.share(model, "calibrated", calibrate=x[:20])
    calibrated = private.calibration.model
    assert private.calibration.intervals[0].interval > 4
    cluster.reset_cost()
    private.prepare(1)
    assert cluster.cost.offline.bytes_sent[1] == private.calibration.material_bytes
    outputs, bound = private.predict(x[20:]), error_bound(calibrated, x[20:])
    assert (np.abs(outputs - model(x[20:])) <= bound).all()
    assert bound.max() < 0.2
    assert private.reveal().layers == calibrated.layers


def test_labels_of_the_digits_network_are_those_in_plaintext(cluster, digits) -> None:
    images, labels = hdcos.data.digits("test")
    model = nn.models.digits()
    for private in (digits.predict(images).argmax(1), digits.predict(images, output="label")):
        assert (private == model(images).argmax(1)).mean() >= 0.995
        assert (private == labels).mean() >= 0.96


def test_material_and_masks_are_consumed_row_by_row(cluster) -> None:
    model = nn.models.mlp([6, 8, 2], "cos", "hadamard")
    private = cluster.share(model, "rows")
    x = np.random.default_rng(1).uniform(-1, 1, (20, 6))
    private.prepare(12)
    for rows in (x[:1], x[1:4], x[4:12]):
        assert np.abs(private.predict(rows) - model(rows)).max() < CLOSE
    assert used(cluster, private) == [12, 12]
    assert private.stock == 0
    assert np.abs(private.predict(x, batch_rows=7) - model(x)).max() < CLOSE, "what is missing is made on the way"


@pytest.mark.parametrize("mode", ["masked", "shares"])
def test_a_batch_of_many_pieces_shares_its_rounds_and_costs_what_was_planned(cluster, mode) -> None:
    model = nn.models.mlp([6, 8, 8, 2], "cos", "dense")
    private = cluster.share(model, f"pieces-{mode}")
    x = np.random.default_rng(1).uniform(-1, 1, (1001, 6))
    cluster.reset_cost()
    assert np.abs(private.predict(x, batch_rows=1001, mode=mode) - model(x)).max() < CLOSE
    planned = total(estimate(model, 1001, masked=mode == "masked")).online
    cost = cluster.cost.online
    assert (cost.rounds, cost.bytes_sent[0], cost.wire_bytes_sent[0]) == (
        planned.rounds,
        planned.bytes_sent,
        planned.wire_bytes_sent,
    )


def test_modes_can_be_mixed_and_handed_out_masks_are_passed_over(cluster) -> None:
    model = nn.models.mlp([6, 8, 2], "cos", "hadamard")
    private = cluster.share(model, "modes")
    x = np.random.default_rng(1).uniform(-1, 1, (4, 6))
    private.prepare(6)
    for mode in ("masked", "shares", "masked", "shares"):
        assert np.abs(private.predict(x, mode=mode) - model(x)).max() < CLOSE


def test_a_mask_is_handed_out_once_and_rows_are_run_once(cluster) -> None:
    private = cluster.share(nn.models.mlp([6, 8, 2], "cos", "hadamard"), "once")
    private.prepare(8)  # hands out the masks of rows 0 to 7
    private.predict(np.zeros((2, 6)))
    masked = [{"input": np.zeros((1, 6), np.uint64)}] * 2
    scope, ask = scope_of(cluster, private), cluster.transport.ask

    def run(start, mode):
        ask(Infer(scope.name, mode, ["x"], start, 0), arrays=masked)

    with pytest.raises(MaterialReused, match="handed out or used before"):
        ask(IssueMasks(scope.name, 7, 2))
    with pytest.raises(MaterialReused, match="was used before"):
        run(1, "masked")
    with pytest.raises(MaterialReused, match="cannot come as shares"):
        run(5, "shares")
    scope.prepare(8, wait=True)
    with pytest.raises(InputError, match="were not handed out"):
        run(10, "masked")
    with pytest.raises(InputError, match="shares or masked"):
        run(12, "plain")


def test_a_run_that_failed_does_not_stop_the_next(cluster) -> None:
    model = nn.models.mlp([6, 8, 2], "cos", "hadamard")
    private = cluster.share(model, "again")
    private.prepare(4)
    scope = scope_of(cluster, private)
    scope._refills = False  # nothing is made on the way
    with pytest.raises(MaterialExhausted):
        scope.run([{"input": np.zeros((100, 6), np.uint64)}] * 2, 100, 0, mode="masked")
    with pytest.raises(InputError, match="expected"):
        scope.run([{"input": np.zeros((1, 5), np.uint64)}] * 2, 1, scope.next, mode="masked")
    scope._refills = True
    x = np.random.default_rng(2).uniform(-1, 1, (3, 6))
    assert np.abs(private.predict(x) - model(x)).max() < CLOSE


def test_labels_that_failed_do_not_stop_the_next_and_their_material_is_not_used_again(cluster) -> None:
    model = nn.models.mlp([6, 8, 3], "cos", "hadamard")
    private, x = cluster.share(model, "labels"), np.random.default_rng(2).uniform(-6, 6, (9, 6))
    scope, best = scope_of(cluster, private), np.sort(model(x), axis=1)
    clear = best[:, -1] - best[:, -2] > 0.02
    inputs = split_words({"input": np.zeros((2, 6), np.uint64)})
    scope.pair.ask(Infer(scope.name, "shares", ["x"], 0, 2, "label", 3, 5), arrays=inputs)  # three are passed over
    with pytest.raises(MaterialReused, match="was used before"):
        private.predict(x, mode="shares", output="label")
    assert (scope.next, scope.labels) == (2, 5)
    assert (private.predict(x, mode="shares", output="label") == model(x).argmax(1))[clear].all()
    assert (scope.next, scope.labels) == (11, 14)


def test_a_masked_run_that_failed_at_both_parties_spends_its_masks(cluster) -> None:
    """A retry takes other masks, and gets the right answer."""
    model = nn.models.mlp([6, 8, 2], "cos", "hadamard")
    private = cluster.share(model, "spent")
    x = np.random.default_rng(3).uniform(-1, 1, (3, 6))
    private.prepare(5)
    first = private._masks[:2].copy()
    scope = scope_of(cluster, private)
    scope._refills = False
    with pytest.raises(MaterialExhausted):
        private.predict(np.concatenate([x, x, x]), mode="masked")  # nine rows, material for five, at both parties
    scope._refills = True
    assert not len(private._masks) or not (private._masks[:1] == first[:1]).all()
    for _ in range(3):
        assert np.abs(private.predict(x) - model(x)).max() < CLOSE


def test_leaving_a_block_keeps_the_model_and_delete_ends_it(cluster) -> None:
    model = nn.models.mlp([6, 8, 2], "cos", "hadamard")
    for _ in range(2):
        cluster.share(model, "fraud").prepare(4)
        for _ in range(2):
            with cluster.model("fraud") as private:
                assert private.predict(np.zeros((1, 6))).shape == (1, 2)
        assert used(cluster, private) == [2, 2], "a block wastes no material"
        private.delete()
        with pytest.raises(DataMissing, match="no model is named"):
            cluster.model("fraud")


def test_what_is_kept_ahead_is_not_ordered_twice(cluster) -> None:
    private = cluster.share(nn.models.mlp([6, 8, 2], "cos", "hadamard"), "ahead", ahead=50)
    for _ in range(6):
        private.predict(np.zeros((1, 6)))
    expected = [facts["expected"] for facts in scope_of(cluster, private).count()]
    assert max(expected) <= 6 + 50


def test_more_is_ordered_when_an_eighth_of_what_is_kept_ahead_is_gone(cluster) -> None:
    private = cluster.share(nn.models.mlp([6, 8, 2], "cos", "hadamard"), "eighth", ahead=40)
    expected = []
    for _ in range(6):
        private.predict(np.zeros((1, 6)), mode="shares")
        expected.append([facts["expected"] for facts in scope_of(cluster, private).count()])
    assert expected == [[40, 40]] * 4 + [[45, 45]] * 2
    private.predict(np.zeros((60, 6)), mode="shares")  # more than there is: it is made on the way
    assert [facts["expected"] for facts in scope_of(cluster, private).count()] == [106, 106]


@pytest.mark.parametrize(
    ("ordered", "used", "ahead", "due"),
    [(0, 3, 0, 3), (5, 3, 0, 5), (7, 1, 7, 8), (80, 9, 80, 80), (80, 10, 80, 90), (80, 90, 80, 170)],
)
def test_an_order_is_due_when_a_part_of_what_is_kept_ahead_is_gone(ordered, used, ahead, due) -> None:
    assert refilled(ordered, used, ahead) == due


def test_a_revealed_model_is_the_shared_one_to_the_bits_of_its_scale(cluster, digits) -> None:
    model, revealed = nn.models.digits(), digits.reveal()
    for name, array in model.state().items():
        assert np.abs(revealed.state()[name] - array).max() < 1e-4


def test_models_are_found_by_name(cluster, digits) -> None:
    assert cluster.model("digits") is digits
    with pytest.raises(DataMissing, match="no model is named"):
        cluster.model("nothing")


@pytest.mark.parametrize(
    ("x", "error", "words"),
    [
        (np.zeros((2, 63)), InputError, r"\(rows, 64\)"),
        (np.zeros(64), InputError, r"\(rows, 64\)"),
        (np.full((1, 64), np.nan), InputError, "NaN"),
        (np.full((1, 64), 1e16), RangeError, "scale"),
        (np.full((1, 64), "a"), InputError, "numbers"),
    ],
)
def test_bad_rows_are_refused_before_anything_is_sent(cluster, digits, x, error, words) -> None:
    before = digits.stock
    with pytest.raises(error, match=words):
        digits.predict(x)
    assert digits.stock == before


def test_models_that_cannot_be_shared_are_refused_before_anything_is_sent(cluster) -> None:
    cluster.reset_cost()
    with pytest.raises(ModelError, match="RandomFeatures"):
        cluster.share(nn.Sequential([nn.Dense(3, 3), nn.RandomFeatures(3, 3, 1.0)]))
    large = nn.models.mlp([4, 4, 2], "square", "dense")
    with pytest.raises(ModelError, match=r"0\.weight has values"):
        cluster.share(large.with_state({**large.state(), "0.weight": np.full((4, 4), 1e6)}))
    assert cluster.cost.offline.bytes_sent == (0, 0)


def test_an_empty_batch_gives_an_empty_answer(cluster, digits) -> None:
    assert digits.predict(np.zeros((0, 64))).shape == (0, 10)
