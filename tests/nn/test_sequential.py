"""A network checks its shapes, its inputs and its parameters, and can be rebuilt from its description."""

from __future__ import annotations

import copy
import json

import numpy as np
import pytest

from hdcos.errors import InputError, ModelError
from hdcos.nn import (
    GELU,
    PHD,
    AdaptiveAvgPool2d,
    Add,
    Affine,
    AvgPool2d,
    Circulant,
    Concat,
    Conv2d,
    Cos,
    Dense,
    Dropout,
    ExpM1,
    Flatten,
    GrowingCos,
    HadamardDiagonal,
    HardTanh,
    Identity,
    Layer,
    LeakyReLU,
    LowRank,
    MaxPool2d,
    PolyReLU3,
    RandomFeatures,
    RandomProjection,
    ReLU,
    ReLU6,
    Reshape,
    Sequential,
    Sigmoid,
    SiLU,
    Sin,
    Softplus,
    Square,
    Tanh,
    layer_from_json,
)

EVERY_LAYER: list[Layer] = [
    HadamardDiagonal(5, 3, blocks=3, bandwidth=2.5),
    HadamardDiagonal(5, 3, bandwidth=2.5, terms=3),
    Dense(4, 2, bandwidth=0.5),
    LowRank(4, 2, rank=3),
    PHD(4, 2, seed=7),
    Circulant(4, 2),
    Conv2d(1, 2, 3, 2, 1),
    AvgPool2d(2),
    MaxPool2d(2),
    Flatten(),
    RandomProjection(9, 4, seed=1),
    RandomFeatures(9, 40, 2.5, seed=1),
    Cos(),
    Sin(),
    Square(),
    PolyReLU3(),
    ExpM1(),
    Sigmoid(),
    Tanh(),
    GrowingCos(),
    GELU(),
    SiLU(interval=22),
    Softplus(),
    ReLU(),
    LeakyReLU(0.2, compare="dcf"),
    ReLU6(),
    HardTanh(-0.5, 2),
    Conv2d(2, 4, 3, groups=2, dilation=2),
    MaxPool2d(3, 2, 1),
    AdaptiveAvgPool2d(2),
    Affine(3),
    Add(),
    Concat(1),
    Identity(),
    Dropout(0.25),
    Reshape((2, 3)),
]


def small() -> Sequential:
    return Sequential([HadamardDiagonal(5, 6), Cos(), Dense(6, 2)], seed=3)


def test_every_layer_type_survives_json() -> None:
    assert {layer.kind for layer in EVERY_LAYER} == set(Layer.registry)
    for layer in EVERY_LAYER:
        assert layer_from_json(json.loads(json.dumps(layer.to_json()))) == layer


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"type": "Attention"}, "unknown layer type 'Attention': this version knows AdaptiveAvgPool2d, Add, Affine"),
        ({"type": "Dense", "in_features": 3}, r"Dense lacks the field \['out_features'\]"),
        ({"type": "Cos", "frequency": 3}, r"Cos has no field \['frequency'\]"),
        ({"type": "Dense", "in_features": "3", "out_features": 1}, "Dense: in_features must be a whole number"),
        ({"type": "Dense", "in_features": 3, "out_features": 1, "bandwidth": "wide"}, "Dense: bandwidth"),
        ({"type": "HardTanh", "low": 1.0, "high": -1.0}, "HardTanh: low and high must be two numbers in order"),
        ({"type": "HardTanh", "low": float("nan")}, "HardTanh: low and high"),
        ({"type": "GELU", "interval": 5}, "GELU: interval must be one of 4, 12, 28, 60, 124 or None, got 5"),
        ({"type": "ReLU", "compare": ["dcf"]}, "ReLU: numbers are compared by tables or dcf"),
        ({"in_features": 3}, "a layer is an object with a type"),
        ("Dense", "a layer is an object with a type"),
    ],
)
def test_a_description_that_is_no_layer_is_refused_by_name(record, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        layer_from_json(record)


def test_a_network_applies_its_layers_in_order() -> None:
    model = small()
    state = model.state()
    assert list(state) == ["0.diagonal", "0.bias", "2.weight", "2.bias"]
    x = np.random.default_rng(0).standard_normal((4, 5))
    hidden = np.cos(HadamardDiagonal(5, 6).forward({"diagonal": state["0.diagonal"], "bias": state["0.bias"]}, x))
    np.testing.assert_allclose(model(x), hidden @ state["2.weight"].T + state["2.bias"])
    assert model.parameter_count == 5 + 6 + 12 + 2
    assert model.shapes == ((5,), (6,), (6,), (2,))
    assert (model.input_shape, model.output_shape) == ((5,), (2,))
    assert model(np.zeros((0, 5))).shape == (0, 2)
    assert model(np.ones((2, 5), dtype=np.uint8)).dtype == np.float64


def test_the_seed_decides_the_parameters_and_layers_do_not_share_them() -> None:
    model = Sequential([Dense(4, 4), Dense(4, 4)], seed=3)
    again = Sequential([Dense(4, 4), Dense(4, 4)], seed=3)
    other = Sequential([Dense(4, 4), Dense(4, 4)], seed=4)
    np.testing.assert_array_equal(model.state()["0.weight"], again.state()["0.weight"])
    assert not np.array_equal(model.state()["0.weight"], other.state()["0.weight"])
    assert not np.array_equal(model.state()["0.weight"], model.state()["1.weight"])
    with pytest.raises(ModelError, match="seed must be"):
        Sequential([Cos()], seed=-1, input_shape=(2,))


def test_the_input_shape_follows_from_the_first_layer_with_features() -> None:
    assert Sequential([Square(), Cos(), Dense(7, 2)]).input_shape == (7,)
    assert Sequential([Cos()], input_shape=[3, 4]).output_shape == (3, 4)
    for layers in ([Conv2d(1, 2, 3)], [Cos()], [Flatten(), Dense(4, 2)]):
        with pytest.raises(ModelError, match="needs input_shape"):
            Sequential(layers)
    for shape in ((), (0,), (2.0,), "5", 5):
        with pytest.raises(ModelError, match="input_shape must be"):
            Sequential([Cos()], input_shape=shape)


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ([], "at least one layer"),
        ([Dense(4, 3), Cos(), Dense(4, 2)], r"layer 2: Dense takes shape \(4,\), got \(3,\)"),
        ([Dense(4, 3), AvgPool2d(2)], "layer 1: AvgPool2d takes shape"),
        ([Dense(4, 3), "cos"], "layer 1 is a str, not a layer"),
        ([Dense(4, 3), Cos], "layer 1 is a type, not a layer"),
    ],
)
def test_layers_that_do_not_fit_are_refused_when_the_network_is_made(layers, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        Sequential(layers)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.zeros((3, 4)), r"takes an array of shape \(rows, 5\), got \(3, 4\)"),
        (np.zeros(5), r"got \(5,\)"),
        (np.zeros((2, 3, 5)), r"got \(2, 3, 5\)"),
        ([[0, 0, np.nan, 0, 0]], "contains NaN or infinity"),
        ([[0, 0, np.inf, 0, 0]], "contains NaN or infinity"),
        ([["a"] * 5], "numbers expected"),
        (np.zeros((1, 5), complex), "numbers expected"),
    ],
)
def test_inputs_that_cannot_be_used_are_refused(x, message: str) -> None:
    with pytest.raises(InputError, match=message):
        small()(x)


def test_a_state_is_a_copy_and_the_network_never_changes() -> None:
    model = small()
    x = np.ones((1, 5))
    before = model(x)
    model.state()["2.bias"][:] = 9
    np.testing.assert_array_equal(model(x), before)
    with pytest.raises(ValueError, match="read-only"):
        model.parameters(2)["bias"][:] = 9
    given = model.state()
    changed = model.with_state({**given, "2.bias": [1, 2]})
    given["2.weight"][:] = 0
    np.testing.assert_allclose(changed(x), before - model.state()["2.bias"] + [1, 2])
    assert changed.fingerprint == model.fingerprint
    np.testing.assert_array_equal(copy.deepcopy(model)(x), before)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"2.bias": None}, r"missing \['2.bias'\], unknown \[\]"),
        ({"1.weight": np.zeros(3)}, r"missing \[\], unknown \['1.weight'\]"),
        ({"2.bias": np.zeros(3)}, r"2.bias must be numbers of shape \(2,\), got float64 of shape \(3,\)"),
        ({"2.bias": ["a", "b"]}, "2.bias must be numbers"),
        ({"2.bias": [0, np.nan]}, "2.bias contains NaN or infinity"),
    ],
)
def test_a_state_that_does_not_fit_is_refused_by_name(changes, message: str) -> None:
    state = {name: array for name, array in (small().state() | changes).items() if array is not None}
    with pytest.raises(ModelError, match=message):
        small().with_state(state)


def test_an_architecture_is_json_that_rebuilds_the_network() -> None:
    model = small()
    record = json.loads(json.dumps(model.architecture()))
    fresh = Sequential.from_architecture(record, seed=3)
    assert (fresh.layers, fresh.shapes, fresh.fingerprint) == (model.layers, model.shapes, model.fingerprint)
    np.testing.assert_array_equal(fresh.state()["0.diagonal"], model.state()["0.diagonal"])
    assert len(model.fingerprint) == 64
    assert Sequential([HadamardDiagonal(5, 6), Sin(), Dense(6, 2)]).fingerprint != model.fingerprint
    assert repr(model).startswith("Sequential([HadamardDiagonal(in_features=5")
    for wrong in (None, [], {"layers": 3}, {}):
        with pytest.raises(ModelError, match="an architecture is an object"):
            Sequential.from_architecture(wrong)
    with pytest.raises(ModelError, match="layer 0: unknown layer type 'Attention'"):
        Sequential.from_architecture({"input_shape": [2], "layers": [{"type": "Attention"}]})
