"""Who shares a model is told if its weights are such that the number stated for its network does not hold for it."""

from __future__ import annotations

import re
import warnings
from unittest import mock

import numpy as np
import pytest

from hdcos import nn
from hdcos.api.quota import PART, allowed_queries
from hdcos.cluster.cluster import Cluster
from hdcos.errors import HdcosWarning
from hdcos.secure import compile_network, gain
from hdcos.secure.answers import WITHOUT_NOISE, stated_by_stage, stated_queries
from hdcos.secure.gain import find_exposed

N = 256


def hidden(layer: nn.Layer, times: float = 1.0, outputs: int = N) -> nn.Sequential:
    """As it was attacked, with the last weights as many times as large."""
    layers = [nn.HadamardDiagonal(N, N), layer, nn.HadamardDiagonal(N, outputs)]
    model = nn.Sequential(layers, seed=1)
    return model.with_state({**model.state(), "2.diagonal": model.state()["2.diagonal"] * times})


@pytest.mark.parametrize("outputs", [10, N])
@pytest.mark.parametrize("layer", [nn.ReLU(), nn.LeakyReLU(0.1), nn.ReLU6(), nn.HardTanh(), nn.Square(), nn.Tanh()])
def test_numbers_hold_for_the_networks_they_were_measured_on(layer: nn.Layer, outputs: int) -> None:
    model = hidden(layer, outputs=outputs)
    found = find_exposed(model, compile_network(model))
    assert found is None or found.queries > stated_queries(compile_network(model)) / 1.6


@pytest.mark.parametrize(("times", "attacked"), [(8, 1.5e4), (64, 190)])
def test_larger_weights_hold_for_no_more_queries_than_an_attack_on_them_took(times: float, attacked: float) -> None:
    """Both were attacked at the real precision."""
    model = hidden(nn.ReLU(), times)
    found = find_exposed(model, compile_network(model))
    assert found is not None
    assert found.name == "1 ReLU"
    assert attacked / 4 < found.queries <= attacked


def test_a_single_unit_that_outweighs_all_others_counts() -> None:
    model = hidden(nn.ReLU())
    weight = model.state()["2.diagonal"] * 0.5
    weight[17] = 50.0
    heavy = model.with_state({**model.state(), "2.diagonal": weight})
    assert find_exposed(heavy, compile_network(heavy)) is not None


@pytest.mark.parametrize("units", [8, 512])
def test_layers_are_looked_at_through_graphs_and_in_part_where_they_are_large(monkeypatch, units: int) -> None:
    monkeypatch.setattr(gain, "MOST_UNITS", units)
    monkeypatch.setattr(gain, "PIECE_NUMBERS", 300)
    layers = [nn.Dense(20, 20), nn.ReLU(), nn.Dense(20, 20), nn.Add(), nn.ReLU(), nn.Dense(20, 4)]
    graph = nn.Graph(layers, [[0], [1], [2], [3, 1], [4], [5]], seed=2)
    times = {factor: graph.with_state({**graph.state(), "5.weight": graph.state()["5.weight"] * factor})
             for factor in (0.1, 20)}  # fmt: skip
    assert find_exposed(times[0.1], compile_network(graph)) is None
    found = find_exposed(times[20], compile_network(graph))
    assert found is not None
    assert found.name in ("1 ReLU", "4 ReLU")


def mirrored(bias: float = 0.0) -> nn.Sequential:
    """What its comparisons pass is the negative part of a row, less a bias, and that counts too much."""
    model = nn.Sequential([nn.Dense(16, 16), nn.ReLU(), nn.Dense(16, 4)], seed=1)
    state = model.state()
    weights = {"0.weight": -np.eye(16), "0.bias": np.full(16, bias), "2.weight": 50 * state["2.weight"]}
    return model.with_state({**state, **weights})


def test_units_that_only_rows_of_both_signs_activate_are_looked_at() -> None:
    model = mirrored()
    found = find_exposed(model, compile_network(model))
    assert found is not None
    assert found.name == "1 ReLU"


def test_rows_that_the_model_will_meet_are_looked_at_where_they_are_given() -> None:
    model, generator = mirrored(bias=-5.0), np.random.default_rng(3)
    chosen = compile_network(model)
    assert find_exposed(model, chosen) is None
    assert find_exposed(model, chosen, generator.uniform(0, 6, (100, 16))) is None
    found = find_exposed(model, chosen, generator.uniform(-7, -6, (100, 16)))
    assert found is not None
    assert found.gain > 1
    assert find_exposed(model, chosen, [[-6.0] * 16]) is not None, "one row is enough"


def test_of_networks_that_are_very_wide_fewer_units_are_looked_at(monkeypatch) -> None:
    """All 512 took minutes where a row has a million numbers."""
    looked_at = []

    def moved(model, at, number, units):
        looked_at.append(len(units))
        return really(model, at, number, units)

    really = gain._moved
    monkeypatch.setattr(gain, "_moved", moved)
    wide = nn.Sequential([nn.Tanh(interval=4), nn.HadamardDiagonal(1 << 18, 3), nn.GrowingCos()], seed=1)
    find_exposed(wide, compile_network(wide))
    assert max(looked_at) <= 16
    find_exposed(hidden(nn.ReLU()), compile_network(hidden(nn.ReLU())))
    assert looked_at[-1] == N


def test_a_network_of_which_one_row_takes_seconds_is_not_looked_at_and_that_is_said(monkeypatch) -> None:
    """Four units of a network that is eight million numbers wide took two minutes."""
    model, looked_at = hidden(nn.ReLU(), 64), []
    monkeypatch.setattr(gain, "_gains", lambda *given: looked_at.append(given) or (1.0, 1.0))
    monkeypatch.setattr(gain, "MOST_WORK", 1 << 10)
    with pytest.warns(HdcosWarning, match="weights of this network were not looked at"):
        assert find_exposed(model, compile_network(model)) is None
    assert not looked_at


def test_cosines_bring_noise_that_grows_with_the_weights() -> None:
    model = hidden(nn.Cos(), 64)
    assert find_exposed(model, compile_network(model)) is None


@pytest.mark.parametrize("layer", [nn.Identity(), nn.RandomProjection(N, 10)], ids=repr)
def test_a_network_of_public_layers_alone_has_nothing_to_look_at(layer: nn.Layer) -> None:
    model = nn.Sequential([layer], input_shape=(N,))
    assert find_exposed(model, compile_network(model)) is None


def test_what_is_looked_at_rounds_and_has_no_noise_of_its_own() -> None:
    chosen = compile_network(hidden(nn.ReLU(), 64))
    assert next(stage.name for stage, _ in stated_by_stage(chosen) if isinstance(stage, WITHOUT_NOISE)) == "1 ReLU"


def shared(model: nn.Network, left: int | None, rows: np.ndarray | None = None) -> list[str]:
    """What is said when it is shared at parties that answer `left` more rows of it."""
    transport = mock.MagicMock(has_dealer=True)
    transport.queries_left.return_value = left
    with mock.patch.object(Cluster, "model"), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        Cluster(transport).share(model, "m", calibrate=rows)
    assert transport.keep_model.called
    assert all(warning.category is HdcosWarning and warning.filename == __file__ for warning in said)
    return [str(warning.message) for warning in said]


def test_share_says_which_layer_holds_for_how_many_queries_and_what_to_do() -> None:
    model = hidden(nn.ReLU(), 64)
    (said,) = shared(model, allowed_queries(compile_network(model), 0))
    assert "\n" not in said
    assert "the parties answer 300 rows of m, and some 1.2e+02 queries tell" in said
    assert "layer 1 ReLU" in said
    assert "[policy] queries_per_model = 1" in said
    model = hidden(nn.ReLU(), 3)
    (said,) = shared(model, 300)
    number = int(re.findall(r"queries_per_model = (\d+)", said)[0])
    found = find_exposed(model, compile_network(model))
    assert found is not None
    assert number == int(found.queries / PART)
    assert shared(model, number) == [], "operators that did so are not asked again"


def test_share_looks_at_the_rows_it_was_given_to_calibrate_with() -> None:
    model = mirrored(bias=-5.0)
    assert shared(model, 10_000) == []
    assert shared(model, 10_000, np.full((20, 16), 6.0)) == []
    (said,) = shared(model, 10_000, np.full((20, 16), -6.0))
    assert "layer 1 ReLU" in said


def test_nothing_is_said_where_nobody_else_asks_or_what_is_stated_holds() -> None:
    assert shared(hidden(nn.ReLU(), 64), None) == []
    assert shared(hidden(nn.ReLU()), 300) == []
