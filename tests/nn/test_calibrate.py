"""Intervals of series: what is measured, what is chosen, what it costs, and what is said where nobody measured."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest
import torch

from hdcos import nn
from hdcos.errors import HdcosWarning, InputError, ModelError, RangeError
from hdcos.nn.activations import SeriesActivation
from hdcos.protocol import fit
from hdcos.secure.calibrate import MARGIN, intervals
from hdcos.secure.compile import compile_network
from hdcos.secure.estimate import estimate, total
from hdcos.testing.bounds import error_bound
from hdcos.testing.pair import simulate_private

X = np.random.default_rng(0).uniform(-1, 1, (60, 12))
KINDS = (nn.Tanh, nn.Sigmoid, nn.ExpM1, nn.GELU, nn.SiLU, nn.Softplus)
SERIES = [(kind, interval) for kind in KINDS for interval in kind().intervals]


def reaching(model: nn.Sequential, x: np.ndarray, largest: float) -> nn.Sequential:
    """The model with its first layer scaled so that the largest value that reaches the next is as asked."""
    state = model.state()
    first = nn.Sequential(model.layers[:1], input_shape=model.input_shape)
    own = {name: state[name] for name in state if name.startswith("0.")}
    factor = largest / np.abs(first.with_state(own)(x)).max()
    scaled = {name: array * factor for name, array in own.items() if name != "0.right"}  # one factor of two is enough
    return model.with_state({**state, **scaled})


def imported(largest: float) -> nn.Sequential:
    """A PyTorch network whose tanh is reached by values up to `largest`."""
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(12, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3))
    with pytest.warns(HdcosWarning, match=r"assumed \|x\| <= 4 in layer 1 \(Tanh\)") as caught:
        model = nn.from_torch(module.double())
    assert caught[0].filename == __file__, "the warning names the line that imported"
    return reaching(model, X, largest)


def largest_error(model: nn.Sequential, x: np.ndarray = X) -> float:
    return float(np.abs(simulate_private(model, x) - model(x)).max())


def test_an_imported_tanh_network_with_values_up_to_30_is_right_after_calibration() -> None:
    model = imported(30.0)
    assert largest_error(model) > 0.5, "without calibration the series folds back"
    calibrated = model.calibrate(X).model
    error, bound = np.abs(simulate_private(calibrated, X) - model(X)), error_bound(calibrated, X)
    assert (error <= bound).all()
    assert bound.max() < 0.05, "a bound that says nothing"
    np.testing.assert_array_equal(calibrated(X), model(X))


def test_calibration_shows_what_was_measured_and_what_it_costs() -> None:
    found = imported(30.0).calibrate(X)
    (now,), (before,) = found.intervals, found.before
    assert (before.interval, before.assumed, before.harmonics) == (4, True, 7)
    assert (now.layer, now.kind, now.interval, now.assumed, now.harmonics) == (1, "Tanh", 60, False, 56)
    planned = {step.name: step.offline.bytes_sent for step in estimate(found.model)}
    assert now.material_bytes == planned["1 Tanh"] == 8 * before.material_bytes
    assert found.material_bytes == total(estimate(found.model)).offline.bytes_sent
    assert found.material_bytes - found.bytes_before == now.material_bytes - before.material_bytes
    assert max(map(abs, found.reached[0])) == pytest.approx(30.0)
    shown = str(found)
    assert "60 rows, with a margin of 1.5" in shown
    assert f"layer 1, Tanh: right for |x| <= 60; 56 harmonics, {now.material_bytes:,} bytes of material a row" in shown
    assert f"{found.material_bytes:,} bytes of material from a dealer in all, {found.bytes_before:,} before" in shown


@pytest.mark.parametrize(("kind", "interval"), SERIES, ids=lambda value: getattr(value, "__name__", str(value)))
def test_the_narrowest_interval_with_room_for_the_margin_is_chosen(kind: type[SeriesActivation], interval: int) -> None:
    model = nn.Sequential([nn.Dense(12, 8), kind(), nn.Dense(8, 2)])
    found = reaching(model, X, 0.999 * interval / MARGIN).calibrate(X)
    assert found.intervals[0].interval == interval
    others = [each for each in kind().intervals if each > interval]
    if others:
        assert reaching(model, X, 1.001 * interval / MARGIN).calibrate(X).intervals[0].interval == others[0]


@pytest.mark.parametrize("seed", range(40))
def test_calibrated_networks_of_any_scale_stay_within_their_bounds(seed: int) -> None:
    """Also for rows that were not measured, up to the margin."""
    generator = np.random.default_rng(seed)
    kind = KINDS[seed % 6]
    linear = (nn.Dense, nn.HadamardDiagonal, nn.Circulant, nn.LowRank, nn.PHD)[int(generator.integers(5))]
    size = int(generator.integers(3, 9))
    layers = [
        linear(12, size),
        kind(),
        nn.Dense(size, size),
        (nn.Tanh, nn.Cos)[seed % 2](),
        nn.HadamardDiagonal(size, 2),
    ]
    largest = float(np.exp(generator.uniform(np.log(0.5), np.log(kind().intervals[-1] / MARGIN))))
    model = reaching(nn.Sequential(layers, seed=seed), X, largest)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        calibrated = model.calibrate(X).model
    for x in (X[:8], (1.4 if kind is not nn.ExpM1 else 1.0) * X[:8]):
        y = model.layers[0].forward(model.parameters(0), x)
        reach = calibrated.layers[1].reach
        linear = y / 2 if kind.name in fit.BENT else 0.0
        gap = np.abs(fit.series(kind.name, reach)(y) + linear - kind()(y)).max()
        assert gap <= 6e-4 * max(1.0, kind()(reach) / 10), "no value folds back"
        error, bound = np.abs(simulate_private(calibrated, x) - model(x)), error_bound(calibrated, x)
        assert (error <= bound).all(), f"{largest:.3g}: error {error.max():.2g}, bound {bound.flat[error.argmax()]:.2g}"


@pytest.mark.parametrize(("kind", "interval"), SERIES, ids=lambda value: getattr(value, "__name__", str(value)))
def test_every_interval_is_computed_right_to_its_end_on_shares(kind: type[SeriesActivation], interval: int) -> None:
    model = nn.Sequential([kind(interval=interval)], input_shape=(41,))
    x = np.linspace(-interval, interval, 41)[None]
    assert (np.abs(simulate_private(model, x) - model(x)) <= error_bound(model, x)).all()
    assert error_bound(model, x).max() <= 0.02 * max(1.0, float(model(x).max()) / 10)


def test_values_beyond_every_series_are_refused_and_little_margin_is_said() -> None:
    model = nn.Sequential([nn.Dense(12, 8), nn.Tanh(), nn.Dense(8, 2)])
    with pytest.raises(RangeError, match=r"layer 1, Tanh, is reached by values from .*widest series ends at 252.*Cos"):
        reaching(model, X, 253.0).calibrate(X)
    with pytest.warns(HdcosWarning, match="layer 1, Tanh.*rows that bring larger values will be computed wrong"):
        assert reaching(model, X, 200.0).calibrate(X).intervals[0].interval == 252
    with pytest.raises(RangeError, match="layer 0, ExpM1"):
        nn.Sequential([nn.ExpM1(), nn.Square()], input_shape=(1,)).calibrate([[1e4]])
    with pytest.raises(InputError, match="got none"):
        model.calibrate(np.empty((0, 12)))
    with pytest.raises(InputError, match="takes an array of shape"):
        model.calibrate(np.ones((3, 11)))


@pytest.mark.parametrize("activation", ["square", "polyfit3", "growing_cos", "none"])
def test_values_that_leave_the_range_of_the_arithmetic_are_told(activation: str) -> None:
    model = nn.models.mlp([12, 8, 2], activation, "dense")
    model.calibrate(X)
    with pytest.warns(HdcosWarning, match=r"layer 0, Dense, gives values .* leaves the 2\*\*10"):
        reaching(model, X, 700.0).calibrate(X)
    reaching(nn.models.mlp([12, 8, 2], "cos", "dense"), X, 1e6).calibrate(X)  # whole turns are no matter


def test_rows_are_measured_in_pieces_and_none_is_passed_over() -> None:
    x = np.zeros((1000, 1))
    x[999] = -9.0
    found = nn.Sequential([nn.Tanh(), nn.Sigmoid()], input_shape=(1,)).calibrate(x)
    assert found.reached == ((-9.0, 0.0), (pytest.approx(-1.0, abs=1e-6), 0.0))
    assert [each.interval for each in found.intervals] == [28, 8]


def test_intervals_are_part_of_the_architecture(tmp_path) -> None:
    model = imported(30.0).calibrate(X).model
    assert model.layers[1] == nn.Tanh(interval=60)
    record = json.loads(json.dumps(model.architecture()))
    outline = nn.Sequential.outline(record)
    assert outline.layers == model.layers
    plain = nn.Sequential.outline({**record, "layers": [record["layers"][0], {"type": "Tanh"}, record["layers"][2]]})
    assert plain.layers[1] == nn.Tanh(), "files without an interval are read as before"
    assert plain.fingerprint != outline.fingerprint
    assert compile_network(plain).record() != compile_network(outline).record(), (
        "parties compare the integers themselves"
    )
    model.save(tmp_path / "model")
    assert nn.load(tmp_path / "model").layers == model.layers
    assert nn.from_torch(model.to_torch()).layers == model.layers, "and no warning: the interval was chosen"


@pytest.mark.parametrize("interval", [16, 60.0, "60", True, 0, -4, 1 << 40, [4]])
def test_an_interval_that_has_no_series_is_refused_by_every_reader(interval: object) -> None:
    record = {"input_shape": [2], "layers": [{"type": "Tanh", "interval": interval}]}
    with pytest.raises(ModelError, match=r"layer 0: Tanh: interval must be one of 4, 12, 28, 60, 124, 252 or None"):
        nn.Sequential.outline(record)


def test_series_behind_cosines_are_told_apart_from_them() -> None:
    layers = [nn.Dense(12, 8), nn.Cos(), nn.Dense(8, 8), nn.Sigmoid(interval=24), nn.Dense(8, 8), nn.Tanh()]
    found, _ = intervals(nn.Sequential(layers))
    assert [(each.layer, each.interval, each.assumed, each.harmonics) for each in found] == [
        (3, 24, False, 14),
        (5, 4, True, 7),
    ]


def test_a_calibrated_network_remembers_its_columns() -> None:
    model = nn.Sequential([nn.Dense(2, 3), nn.Tanh(), nn.Dense(3, 1)], seed=1).with_feature_names(["age", "income"])
    assert model.calibrate(np.ones((4, 2))).model.feature_names == ("age", "income")
