"""Sharing, predicting, versions, names, cost: every case gives the same on both transports."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest

from hdcos import nn
from hdcos.api.cost import Cost
from hdcos.cluster.cluster import Cluster
from hdcos.cluster.model import PrivateModel
from hdcos.errors import DataMissing, HdcosWarning, InputError, ModelError, PeerLost, RangeError
from hdcos.secure.compile import compile_network
from hdcos.secure.estimate import estimate, total
from hdcos.secure.program import plan_inference
from hdcos.testing.bounds import error_bound

MODEL = nn.models.mlp([6, 8, 3])
ROWS = np.random.default_rng(0).uniform(-1, 1, (20, 6))
NAMES = ("a", "b", "c", "d", "e", "f")
CLOSE = 1e-2


@pytest.fixture(scope="module")
def private(cluster):
    return cluster.share(MODEL, "shared")


def close(found, expected) -> bool:
    return found.shape == expected.shape and bool(np.abs(found - expected).max(initial=0) < CLOSE)


def test_a_cluster_and_its_models_are_of_the_same_kind(cluster, private) -> None:
    assert type(cluster) is Cluster
    assert type(private) is PrivateModel
    assert cluster.has_dealer
    assert cluster.phase_bits == 26


@pytest.mark.parametrize("mode", [None, "shares", "masked"])
def test_every_mode_gives_the_networks_outputs(private, mode) -> None:
    assert close(private.predict(ROWS, mode=mode), MODEL(ROWS))


@pytest.mark.parametrize("batch_rows", [1, 7, 20, 5000])
def test_batches_of_any_size_give_the_same(private, batch_rows) -> None:
    assert close(private.predict(ROWS, batch_rows=batch_rows), MODEL(ROWS))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, int, bool])
def test_rows_of_any_numeric_type_are_taken(private, dtype) -> None:
    rows = np.asarray(ROWS, dtype)
    assert close(private.predict(rows), MODEL(rows))


def test_rows_may_be_lists(private) -> None:
    assert close(private.predict(ROWS.tolist()), MODEL(ROWS))


def test_more_rows_than_fit_one_batch_are_answered(private) -> None:
    rows = np.tile(ROWS, (60, 1))
    assert close(private.predict(rows), MODEL(rows))


def test_an_empty_batch_gives_an_empty_answer(private) -> None:
    assert private.predict(np.empty((0, 6))).shape == (0, 3)


def test_images_are_taken_as_they_are(cluster) -> None:
    model = nn.Sequential(
        [nn.Conv2d(1, 2, 3), nn.Cos(), nn.AvgPool2d(2), nn.Flatten(), nn.HadamardDiagonal(18, 4)],
        input_shape=(1, 8, 8),
    )
    x = np.random.default_rng(1).uniform(-1, 1, (3, 1, 8, 8))
    assert close(cluster.share(model, "images").predict(x), model(x))


def test_several_terms_cost_online_what_one_costs(cluster, private) -> None:
    model = nn.Sequential([nn.HadamardDiagonal(6, 8, terms=4), nn.Cos(), nn.HadamardDiagonal(8, 3, terms=3)])
    shared, online = cluster.share(model, "terms"), []
    for each, network in ((shared, model), (private, MODEL)):
        cluster.reset_cost()
        assert close(each.predict(ROWS, mode="shares"), network(ROWS))
        online.append((cluster.cost.online.rounds, cluster.cost.online.bytes_sent))
    assert online[0] == online[1]


def test_a_graph_is_shared_and_costs_what_was_planned(cluster) -> None:
    layers = [nn.Dense(6, 8), nn.ReLU(), nn.Dense(8, 4), nn.Dense(8, 4), nn.Add(), nn.Concat(), nn.Affine(10)]
    graph = nn.Graph([*layers, nn.Dense(10, 3)], [[0], [1], [2], [2], [3, 4], [5, 0], [6], [7]], seed=2)
    with cluster.share(graph, "graph") as shared:
        for mode in ("shares", "masked"):
            cluster.reset_cost()
            assert close(shared.predict(ROWS, mode=mode), graph(ROWS))
            planned = total(estimate(graph, len(ROWS), masked=mode == "masked")).online
            assert cluster.cost.online.rounds == planned.rounds == shared.rounds[mode]
            assert cluster.cost.online.bytes_sent == (planned.bytes_sent, planned.bytes_sent)
        revealed = shared.reveal()
    assert (type(revealed), revealed.fingerprint) == (nn.Graph, graph.fingerprint)
    with pytest.raises(ModelError, match="this is a Graph"):
        cluster.fit(graph, ROWS, np.zeros(len(ROWS), int), epochs=1, batch_size=4, lr=0.1)


def test_prepared_masks_save_a_round(cluster, private) -> None:
    private.prepare(len(ROWS))
    cluster.reset_cost()
    assert close(private.predict(ROWS), MODEL(ROWS))
    masked = cluster.cost.online.rounds
    cluster.reset_cost()
    private.predict(ROWS, mode="shares")
    assert (masked, cluster.cost.online.rounds) == (private.rounds["masked"], private.rounds["shares"])
    assert private.rounds == {"masked": total(estimate(MODEL, 1)).online.rounds, "shares": masked + 1}


def test_modes_may_be_mixed_while_masks_are_held(private) -> None:
    private.prepare(12)
    for mode in ("masked", "shares", None, "masked"):
        assert close(private.predict(ROWS[:3], mode=mode), MODEL(ROWS[:3]))


def test_material_may_be_made_in_the_background(private) -> None:
    private.prepare(5, wait=False)
    assert close(private.predict(ROWS[:5]), MODEL(ROWS[:5]))


def test_what_is_available_is_a_number_of_rows(private) -> None:
    private.prepare(4)
    assert type(private.stock) is int
    assert private.stock >= 0


def test_rows_can_be_kept_ahead(cluster) -> None:
    ahead = cluster.share(MODEL, "ahead", ahead=30)
    for _ in range(3):
        assert close(ahead.predict(ROWS[:2]), MODEL(ROWS[:2]))


@pytest.mark.parametrize("rows", [0, -1, "10", 1e3, True, None])
def test_material_is_prepared_for_whole_numbers(private, rows) -> None:
    with pytest.raises(InputError, match="whole number of at least 1"):
        private.prepare(rows)


def test_more_material_than_can_be_kept_is_refused(private) -> None:
    with pytest.raises(InputError, match="prepare fewer at a time"):
        private.prepare(10**12)


@pytest.mark.parametrize(
    ("x", "error", "words"),
    [
        (np.zeros((2, 5)), InputError, r"\(rows, 6\)"),
        (np.zeros(6), InputError, r"\(rows, 6\)"),
        (np.full((1, 6), np.nan), InputError, "NaN"),
        (np.full((1, 6), 1e16), RangeError, "scale"),
        (np.full((1, 6), "a"), InputError, "numbers"),
        ([[1, 2, 3, 4, 5, 6], [1, 2]], InputError, "same shape"),
    ],
)
def test_bad_rows_are_refused_before_anything_is_sent(cluster, private, x, error, words) -> None:
    cluster.reset_cost()
    with pytest.raises(error, match=words):
        private.predict(x)
    assert cluster.cost.online.bytes_sent == (0, 0)


@pytest.mark.parametrize("options", [{"mode": "open"}, {"batch_rows": 0}])
def test_options_that_make_no_sense_are_refused(private, options) -> None:
    with pytest.raises(InputError):
        private.predict(ROWS, **options)


def test_columns_are_found_by_their_names(cluster) -> None:
    model = MODEL.remembering(NAMES)
    named = cluster.share(model, "columns")
    assert named.feature_names == NAMES
    table = pd.DataFrame(ROWS, columns=NAMES)
    assert close(named.predict(table[list(reversed(NAMES))]), MODEL(ROWS))
    with pytest.raises(InputError, match="'f'"):
        named.predict(table.drop(columns="f"))


def test_many_callers_may_share_one_model(private) -> None:
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda row: private.predict(row[None]), ROWS))
    assert close(np.concatenate(answers), MODEL(ROWS))


@pytest.mark.parametrize("name", ["two words", "../up", "", ".hidden", "x" * 101, "ümlaut"])
def test_names_follow_one_rule(cluster, name) -> None:
    for use in (
        lambda: cluster.share(MODEL, name or " "),
        lambda: cluster.model(name),
        lambda: cluster.upload(ROWS, name=name),
        lambda: cluster.forget_data(name),
        lambda: cluster.fit(MODEL, ROWS, np.zeros(20, int), epochs=1, batch_size=5, lr=0.1, name=name or " "),
    ):
        with pytest.raises(InputError, match="made of up to 100"):
            use()


def test_a_model_without_a_name_gets_one(cluster) -> None:
    one, two = cluster.share(MODEL), cluster.share(MODEL)
    assert one.name != two.name
    assert {one.name, two.name} <= {item["name"] for item in cluster.models()}
    one.delete()
    two.delete()


def test_models_are_listed_with_what_both_parties_know(cluster, private) -> None:
    (found,) = [item for item in cluster.models() if item["name"] == "shared"]
    assert {key: type(value) for key, value in found.items()} == {
        **{"name": str, "version": str, "ready": bool, "queries": int, "queries_allowed": int, "error": str},
    }
    assert found["ready"]
    assert found["version"] == private.version
    private.predict(ROWS)
    (later,) = [item for item in cluster.models() if item["name"] == "shared"]
    assert later["queries"] >= len(ROWS)


def test_a_reused_name_makes_a_new_version_and_old_handles_follow(cluster) -> None:
    other = nn.models.mlp([6, 8, 3], seed=9)
    first = cluster.share(MODEL, "versions")
    first.prepare(3)
    version = first.version
    second = cluster.share(other, "versions")
    assert second.version != version
    for handle in (second, first):
        assert close(handle.predict(ROWS), other(ROWS))
    assert first.version == second.version
    assert [item["name"] for item in cluster.models()].count("versions") == 1


def test_a_replacement_that_takes_other_rows_is_told(cluster) -> None:
    older = cluster.share(MODEL, "replaced")
    cluster.share(nn.models.mlp([5, 8, 3]), "replaced")
    with pytest.raises(InputError, match=r"\(rows, 5\)"):
        older.predict(ROWS)


def test_a_name_asked_for_twice_gives_the_same_model(cluster, private) -> None:
    assert cluster.model("shared") is private


def test_a_model_that_is_not_there_is_missing(cluster) -> None:
    with pytest.raises(DataMissing, match="no model is named 'nothing'"):
        cluster.model("nothing")


def test_leaving_a_block_keeps_the_model_and_delete_ends_it(cluster) -> None:
    cluster.share(MODEL, "fraud")
    for _ in range(2):
        with cluster.model("fraud") as held:
            held.prepare(3)
            assert close(held.predict(ROWS[:3]), MODEL(ROWS[:3]))
    with pytest.raises(ZeroDivisionError), cluster.model("fraud"):
        raise ZeroDivisionError
    cluster.model("fraud").delete()
    with pytest.raises(DataMissing):
        cluster.model("fraud")
    with pytest.raises(DataMissing):
        held.predict(ROWS[:1])
    assert close(cluster.share(MODEL, "fraud").predict(ROWS), MODEL(ROWS)), "its name is free again"


def test_a_deleted_model_cannot_be_deleted_again(cluster) -> None:
    gone = cluster.share(MODEL, "gone")
    gone.delete()
    with pytest.raises(DataMissing):
        gone.delete()


def test_a_revealed_model_is_the_shared_one(cluster, private) -> None:
    revealed = private.reveal(wait_s=20)
    for name, array in MODEL.state().items():
        assert np.abs(revealed.state()[name] - array).max() < 1e-4


def test_intervals_are_calibrated_here_and_assumed_with_a_warning(cluster) -> None:
    model = nn.Sequential([nn.Dense(6, 8), nn.Tanh(), nn.Dense(8, 3)], seed=1)
    with pytest.warns(HdcosWarning, match="assumed") as caught:
        assert cluster.share(model, "assumed").calibration is None
    assert caught[0].filename == __file__
    private = cluster.share(model, "calibrated", calibrate=ROWS)
    assert private.calibration is not None
    assert np.abs(private.predict(ROWS) - model(ROWS)).max() < 0.05


def test_a_network_that_compares_predicts_at_its_planned_price(cluster) -> None:
    layers = [
        nn.Conv2d(1, 2, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dense(18, 8),
        nn.LeakyReLU(),
        nn.Dense(8, 3),
    ]
    model = nn.Sequential(layers, input_shape=(1, 8, 8), seed=1)
    rows = np.random.default_rng(0).uniform(-1, 1, (5, 1, 8, 8))
    private = cluster.share(model, "comparing")
    private.prepare(10)
    planned = plan_inference(compile_network(model))
    for mode, more in (("masked", 0), ("shares", 1)):
        cluster.reset_cost()
        assert (np.abs(private.predict(rows, mode=mode) - model(rows)) <= error_bound(model, rows)).all()
        assert cluster.cost.online.rounds == planned.rounds + more
    assert planned.rounds == 3 + 6 + 1 + 3 + 1
    faster = cluster.share(model, "comparing", compare="dcf")
    faster.prepare(5)
    cluster.reset_cost()
    assert (np.abs(faster.predict(rows, mode="masked") - model(rows)) <= error_bound(model, rows)).all()
    assert cluster.cost.online.rounds == 2 + 4 + 1 + 2 + 1
    with pytest.raises(ModelError, match="compared by tables or dcf, not by 'magic'"):
        cluster.share(model, compare="magic")


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("model.safetensors", "share takes"),
        (None, "share takes"),
        (nn.Sequential([nn.Dense(3, 3), nn.RandomFeatures(3, 3, 1.0)]), "RandomFeatures"),
    ],
)
def test_what_cannot_be_shared_is_a_model_error(cluster, model, words) -> None:
    with pytest.raises(ModelError, match=words):
        cluster.share(model)


def test_cost_counts_rounds_and_bytes_as_planned(cluster, private) -> None:
    cluster.reset_cost()
    private.predict(ROWS, mode="shares")
    cost, planned = cluster.cost, total(estimate(MODEL, len(ROWS), masked=False)).online
    assert type(cost) is Cost
    assert cost.online.rounds == planned.rounds
    assert cost.online.bytes_sent == (planned.bytes_sent,) * 2
    assert cost.online.wire_bytes_sent == (planned.wire_bytes_sent,) * 2
    assert cost.online.seconds > 0


def test_cost_adds_up_until_it_is_reset(cluster, private) -> None:
    cluster.reset_cost()
    assert cluster.cost.online.rounds == 0
    private.predict(ROWS[:1], mode="shares")
    private.predict(ROWS[:1], mode="shares")
    assert cluster.cost.online.rounds == 2 * private.rounds["shares"]
    cluster.reset_cost()
    assert cluster.cost.online.bytes_sent == (0, 0)
    assert cluster.cost.offline.seconds >= 0


def test_precision_is_chosen_when_the_cluster_is_reached(start) -> None:
    x = ROWS[:2]
    with start(phase_bits=24) as coarse:
        assert coarse.phase_bits == 24
        assert np.abs(coarse.share(MODEL, "coarse").predict(x) - MODEL(x)).max() < CLOSE
    with start(exact=True) as exact:
        assert np.abs(exact.share(MODEL, "exact").predict(x) - MODEL(x)).max() < CLOSE


@pytest.mark.parametrize("options", [{"phase_bits": 7}, {"phase_bits": "16"}, {"phase_bits": 16, "exact": True}])
def test_impossible_precision_is_refused(start, options) -> None:
    with pytest.raises(InputError), start(**options):
        raise AssertionError("unreachable")


def test_what_a_cluster_made_cannot_be_used_after_it_ended(start) -> None:
    with start() as ended:
        private = ended.share(MODEL, "ended")
    for use in (
        lambda: private.predict(ROWS),
        lambda: ended.share(MODEL),
        lambda: ended.model("ended"),
        lambda: ended.models(),
        lambda: ended.datasets(),
        lambda: ended.cost,
    ):
        with pytest.raises(PeerLost, match="inside its `with` block"):
            use()
