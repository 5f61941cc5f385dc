"""Networks as graphs in plaintext: what they compute, their files, and what is refused."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest
import torch

from hdcos import nn
from hdcos.errors import ModelError
from hdcos.nn import limits
from hdcos.nn.limits import Size
from hdcos.secure.training import training_plan


def residual() -> nn.Graph:
    """cos(A x + b) + (B x + c), beside x, through one more layer."""
    layers = [nn.Dense(3, 4), nn.Cos(), nn.Dense(3, 4), nn.Add(), nn.Concat(), nn.Dense(7, 2)]
    return nn.Graph(layers, [[0], [1], [0], [2, 3], [4, 0], [5]], seed=5)


def test_a_graph_computes_what_its_formula_says() -> None:
    model, x = residual(), np.random.default_rng(1).standard_normal((9, 3))
    p = [model.parameters(index) for index in range(6)]
    total = np.cos(x @ p[0]["weight"].T + p[0]["bias"]) + x @ p[2]["weight"].T + p[2]["bias"]
    expected = np.hstack([total, x]) @ p[5]["weight"].T + p[5]["bias"]
    np.testing.assert_allclose(model(x), expected, atol=1e-14)
    assert model.shapes == ((3,), (4,), (4,), (4,), (4,), (7,), (2,))
    assert [value.shape[1:] for value in model.values(x)] == list(model.shapes)


def test_a_graph_is_read_back_from_its_architecture_and_its_file(tmp_path) -> None:
    model = residual().with_feature_names(["a", "b", "c"])
    model.save(tmp_path / "graph.safetensors")
    loaded, outlined = nn.load(tmp_path / "graph.safetensors"), nn.Sequential.outline(model.architecture())
    x = np.random.default_rng(2).standard_normal((4, 3))
    assert isinstance(loaded, nn.Graph)
    assert loaded.inputs == outlined.inputs == model.inputs
    assert loaded.feature_names == ("a", "b", "c")
    assert json.loads(json.dumps(model.architecture())) == model.architecture()
    assert loaded.fingerprint == outlined.fingerprint == model.fingerprint
    np.testing.assert_array_equal(loaded(x), model(x))
    np.testing.assert_array_equal(outlined.with_state(model.state())(x), model(x))


def test_the_fingerprint_of_a_graph_is_that_of_what_its_layers_read() -> None:
    layers = [nn.Dense(3, 3), nn.Dense(3, 3), nn.Add()]
    one, other = nn.Graph(layers, [[0], [1], [1, 2]]), nn.Graph(layers, [[0], [1], [2, 1]])
    assert one.fingerprint != other.fingerprint
    chain, plain = nn.Graph(layers[:2], [[0], [1]]), nn.Sequential(layers[:2])
    assert chain.fingerprint != plain.fingerprint
    np.testing.assert_array_equal(chain(np.ones((1, 3))), plain(np.ones((1, 3))))


def test_architectures_of_chains_are_what_they_were_before_there_were_graphs() -> None:
    model = nn.Sequential([nn.Conv2d(1, 2, 3, 2, 1), nn.Cos(), nn.Flatten(), nn.Dense(8, 2)], input_shape=(1, 4, 4))
    text = (
        '{"input_shape": [1, 4, 4], "layers": [{"in_channels": 1, "kernel_size": 3, "out_channels": 2, "padding": 1, '
        '"stride": 2, "type": "Conv2d"}, {"type": "Cos"}, {"type": "Flatten"}, {"bandwidth": null, "in_features": 8, '
        '"out_features": 2, "type": "Dense"}]}'
    )
    assert json.dumps(model.architecture(), sort_keys=True) == text
    assert model.fingerprint == hashlib.sha256(text.encode()).hexdigest()


DENSE = nn.Dense(3, 3)


@pytest.mark.parametrize(
    ("layers", "inputs", "message"),
    [
        ([DENSE, nn.Add(), DENSE], [[0], [1, 3], [2]], "layer 1, Add, reads value 3, and 0 to 1 are there before it"),
        ([DENSE, nn.Add()], [[0], [1, 2]], "reads value 2"),
        ([DENSE, DENSE], [[0], [-1]], "reads value -1"),
        ([DENSE, nn.Cos(), nn.Add()], [[0], [1], [0, 1]], "value 2, what layer 1, Cos, gives, is read by no layer"),
        ([nn.Add(), DENSE], [[0, 0], [0]], "value 1, what layer 0, Add, gives, is read by no layer"),
        ([DENSE, nn.Add()], [[0], [1]], "layer 1, Add, joins two or more values and reads 1"),
        ([DENSE, DENSE], [[0], [0, 1]], "layer 1, Dense, reads one value, not 2: join them"),
        ([DENSE, DENSE], [[0], []], "reads one value, not 0"),
        ([DENSE, DENSE], [[0]], "2 layers cannot have the inputs of 1"),
        ([DENSE, DENSE], [0, 1], "inputs is a list that has for each layer a list"),
        ([DENSE, DENSE], [[0], [True]], "inputs is a list that has for each layer a list"),
        ([nn.Dense(3, 2), nn.Add()], [[0], [0, 1]], r"layer 1: Add takes values of one shape, got \(3,\), \(2,\)"),
        ([DENSE, nn.Concat(1)], [[0], [0, 1]], r"layer 1: Concat has axis 1, and rows of shape \(3,\) have 1"),
        ([DENSE, nn.Reshape((3, 1)), nn.Concat()], [[0], [1], [0, 2]], "differ along axis 0 alone"),
        ([DENSE, nn.Reshape((2, 2))], [[0], [1]], r"Reshape to \(2, 2\) takes 4 numbers"),
        ([nn.Cos(), nn.Reshape((1, 3)), nn.Reshape((3,))], [[0], [1], [2]], "starts with Reshape needs input_shape"),
    ],
)
def test_what_does_not_fit_is_refused_by_its_layer(layers, inputs, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        nn.Graph(layers, inputs)


@pytest.mark.parametrize("make", [lambda: nn.Reshape(()), lambda: nn.Reshape((3, 0)), lambda: nn.Reshape("ab")])
def test_shapes_are_lists_of_whole_numbers(make) -> None:
    with pytest.raises(ModelError, match="Reshape"):
        make()


def test_joins_in_a_chain_are_refused_with_a_hint() -> None:
    with pytest.raises(ModelError, match="layer 1, Add, joins two or more values and reads 1: a Graph says which"):
        nn.Sequential([DENSE, nn.Add()])


def test_training_of_a_graph_and_of_layers_that_have_no_gradient_here_is_refused_by_name() -> None:
    with pytest.raises(ModelError, match=r"takes a chain of layers, an hdcos\.nn\.Sequential, and this is a Graph"):
        training_plan(residual())
    for layer, shape, name in (
        (nn.Conv2d(2, 2, 3, groups=2), (2, 5, 5), "layer 0, Conv2d, with groups or a dilation, cannot"),
        (nn.Affine(2), (2, 3, 3), "layer 0, Affine, cannot"),
        (nn.Dropout(0.2), (2, 3, 3), "layer 0, Dropout, cannot"),
    ):
        with pytest.raises(ModelError, match=name):
            training_plan(nn.Sequential([layer, nn.Flatten(), nn.Dense(18, 2)], input_shape=shape))


def test_pytorch_gets_no_chain_of_a_graph() -> None:
    with pytest.raises(ModelError, match=r"a Graph is no torch\.nn\.Sequential"):
        residual().to_torch()


def test_values_that_later_layers_read_count_while_they_wait() -> None:
    layers = [nn.Dense(4, 100), nn.Dense(100, 5), nn.Dense(5, 5), nn.Concat()]
    inputs = [[0], [1], [2], [1, 3]]
    model = nn.Graph(layers, inputs)
    # While layer 2 works on 5 + 5 numbers, the 100 that layer 3 reads wait; layer 3 works on 105 and makes 105.
    assert Size.of(model.layers, model.shapes, model.inputs).row == 210
    chain = nn.Sequential(layers[:3])
    assert Size.of(chain.layers, chain.shapes).row == 105
    # 100 waiting branches: each layer works on 8 numbers, and 4 for every branch before it wait.
    branches = nn.Graph([*[nn.Dense(4, 4)] * 100, nn.Add()], [*[[0]] * 100, list(range(1, 101))])
    assert Size.of(branches.layers, branches.shapes, branches.inputs).row == 404


def test_edges_are_counted_before_anything_is_made_of_them(monkeypatch) -> None:
    record = residual().architecture()
    record["inputs"][3] = [2, 3, *[3] * 4000]
    with pytest.raises(ModelError, match="read at most 4000 values here, those of this one 4008"):
        nn.Network.outline(record)
    monkeypatch.setattr(limits, "MOST_ROW", 14)
    with pytest.raises(ModelError, match="layer 3, Add, works on 15 numbers"):
        nn.Network.outline(residual().architecture())


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize(("stride", "padding", "dilation"), [(1, 0, 1), (2, 1, 1), (1, 2, 2), (2, 0, 3)])
def test_convolutions_with_groups_and_dilation_are_pytorchs(groups, stride, padding, dilation) -> None:
    model = nn.Sequential([nn.Conv2d(4, 8, 3, stride, padding, groups, dilation)], 3, (4, 9, 8))
    x = np.random.default_rng(0).standard_normal((3, 4, 9, 8))
    module = model.to_torch(torch.float64)
    np.testing.assert_allclose(model(x), module(torch.from_numpy(x)).detach().numpy(), atol=1e-12)
    layer = model.layers[0]
    assert layer.multiplications((4, 9, 8)) == np.prod(model.output_shape) * 4 // groups * 9
    assert nn.layer_from_json(layer.to_json()) == layer
    assert ("groups" in layer.to_json(), "dilation" in layer.to_json()) == (groups > 1, dilation > 1)


def test_convolutions_whose_groups_or_padding_do_not_fit_are_refused() -> None:
    with pytest.raises(ModelError, match="3 groups do not divide 4 and 6 channels"):
        nn.Conv2d(4, 6, 3, groups=3)
    with pytest.raises(ModelError, match="padding must be below the kernel's size of 5"):
        nn.Conv2d(1, 1, 3, padding=5, dilation=2)
    with pytest.raises(ModelError, match="kernel of 5 with padding 0, too large"):
        nn.Conv2d(1, 1, 3, dilation=2).output_shape((1, 4, 8))


@pytest.mark.parametrize(("size", "shape"), [(1, (3, 7, 7)), (2, (3, 6, 4)), (4, (2, 8, 4))])
def test_pooling_to_a_size_is_pytorchs(size: int, shape) -> None:
    x = np.random.default_rng(0).standard_normal((5, *shape))
    expected = torch.nn.functional.adaptive_avg_pool2d(torch.from_numpy(x), size).numpy()
    np.testing.assert_allclose(nn.AdaptiveAvgPool2d(size).forward({}, x), expected, atol=1e-14)


def test_pooling_to_a_size_that_does_not_divide_the_image_is_refused() -> None:
    with pytest.raises(ModelError, match=r"AdaptiveAvgPool2d to 3 x 3 takes images whose sides it divides"):
        nn.AdaptiveAvgPool2d(3).output_shape((1, 6, 7))


@pytest.mark.parametrize("shape", [(3,), (3, 4, 5)])
def test_an_affine_layer_has_a_weight_and_a_bias_for_each_channel(shape) -> None:
    model = nn.Sequential([nn.Affine(3)], input_shape=shape)
    x = np.random.default_rng(0).standard_normal((2, *shape))
    np.testing.assert_array_equal(model(x), x)
    changed = model.with_state({"0.weight": [1, 2, 3], "0.bias": [10, 20, 30]})(x)
    for channel in range(3):
        np.testing.assert_allclose(changed[:, channel], x[:, channel] * (channel + 1) + 10 * (channel + 1))
    with pytest.raises(ModelError, match="Affine takes shape"):
        nn.Affine(2).output_shape(shape)


@pytest.mark.parametrize("kind", [nn.AvgPool2d, nn.MaxPool2d])
@pytest.mark.parametrize(("size", "stride", "padding"), [(3, 2, 1), (3, 1, 0), (2, 3, 1), (2, None, 0), (3, 3, 1)])
def test_pooling_with_a_stride_and_padding_is_pytorchs(kind, size, stride, padding) -> None:
    layer = kind(size, stride, padding)
    model = nn.Sequential([layer], input_shape=(2, 7, 8))
    x = np.random.default_rng(0).standard_normal((3, 2, 7, 8)) - 2  # mostly below the zeros of padding
    module = model.to_torch(torch.float64)
    np.testing.assert_allclose(model(x), module(torch.from_numpy(x)).numpy(), atol=1e-14)
    assert nn.layer_from_json(layer.to_json()) == layer
    assert ("stride" in layer.to_json(), "padding" in layer.to_json()) == (stride is not None, padding > 0)


def test_pooling_that_would_see_nothing_or_take_forever_is_refused() -> None:
    with pytest.raises(ModelError, match="squares of 3 have a padding of up to 1, got 2"):
        nn.MaxPool2d(3, 1, 2)
    with pytest.raises(ModelError, match="at most 64 pixels a side"):
        nn.AvgPool2d(65, 1)
    with pytest.raises(ModelError, match="layer 0, AvgPool2d, works on"):
        nn.Network.outline({"input_shape": [1, 1024, 1024], "layers": [{"type": "AvgPool2d", "size": 64, "stride": 1}]})
    with pytest.raises(ModelError, match="layer 1, MaxPool2d, with a stride or padding, cannot be trained"):
        training_plan(
            nn.Sequential([nn.Conv2d(1, 1, 1), nn.MaxPool2d(2, 1), nn.Flatten(), nn.Dense(4, 1)], input_shape=(1, 3, 3))
        )
