"""Convolution, pooling and flattening against their definitions, and the elementwise functions."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.signal import correlate
from scipy.special import ndtr

from hdcos.errors import ModelError
from hdcos.nn import AvgPool2d, Conv2d, Flatten, activation
from hdcos.nn.activations import ACTIVATIONS
from hdcos.protocol.fit import relu_cubic


@pytest.mark.parametrize("rows", [0, 1, 130])
@pytest.mark.parametrize(("stride", "padding"), [(1, 0), (1, 2), (2, 1), (3, 0)])
def test_a_convolution_is_the_correlation_with_its_kernels(rows: int, stride: int, padding: int) -> None:
    rng = np.random.default_rng(2)
    layer = Conv2d(3, 4, 3, stride, padding)
    weight, bias = rng.standard_normal((4, 3, 3, 3)), rng.standard_normal(4)
    x = rng.standard_normal((rows, 3, 9, 7))
    padded = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    found = layer.forward({"weight": weight, "bias": bias}, x)
    assert found.shape == (rows, *layer.output_shape((3, 9, 7)))
    for row in range(0, rows, 43):
        for channel in range(4):
            whole = correlate(padded[row], weight[channel], "valid")[0] + bias[channel]
            np.testing.assert_allclose(found[row, channel], whole[::stride, ::stride], atol=1e-12)


def test_a_convolution_counts_one_multiplication_per_weight_and_output_pixel() -> None:
    assert Conv2d(6, 16, 5).multiplications((6, 14, 14)) == 16 * 6 * 25 * 100
    assert AvgPool2d(2).multiplications((6, 14, 14)) == Flatten().multiplications((6, 14, 14)) == 0


def test_pooling_takes_means_and_drops_what_fills_no_square() -> None:
    x = np.arange(2 * 5 * 4, dtype=float).reshape(1, 2, 5, 4)
    expected = [[[[2.5, 4.5], [10.5, 12.5]], [[22.5, 24.5], [30.5, 32.5]]]]
    np.testing.assert_array_equal(AvgPool2d(2).forward({}, x), expected)
    assert AvgPool2d(2).output_shape((2, 5, 4)) == (2, 2, 2)


def test_flattening_keeps_channels_outermost() -> None:
    x = np.arange(24.0).reshape(2, 3, 2, 2)
    np.testing.assert_array_equal(Flatten().forward({}, x), np.arange(24.0).reshape(2, 12))
    assert Flatten().output_shape((3, 2, 2)) == (12,)


@pytest.mark.parametrize(
    ("layer", "shape", "message"),
    [
        (Conv2d(3, 4, 5), (1, 28, 28), r"Conv2d takes shape \(3, height, width\), got \(1, 28, 28\)"),
        (Conv2d(3, 4, 5), (48,), "Conv2d takes shape"),
        (Conv2d(3, 4, 5), (3, 4, 9), "kernel of 5 with padding 0, too large"),
        (AvgPool2d(3), (3, 2, 9), "AvgPool2d takes shape .* at least 3 pixels"),
        (AvgPool2d(3), (27,), "AvgPool2d takes shape"),
    ],
)
def test_an_image_that_does_not_fit_is_refused_with_both_shapes(layer, shape, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        layer.output_shape(shape)


@pytest.mark.parametrize("fields", [(0, 1, 1), (1, 0, 1), (1, 1, 0), (1, 1, 1, 0), (1, 1, 1, 1, -1)])
def test_a_convolution_of_nothing_is_refused(fields: tuple[int, ...]) -> None:
    with pytest.raises(ModelError, match=r"Conv2d: .* whole number"):
        Conv2d(*fields)


MEANINGS = {
    "cos": np.cos,
    "sin": np.sin,
    "square": lambda x: x**2,
    "expm1": lambda x: np.exp(x) - 1,
    "polyfit3": lambda x: np.polynomial.Polynomial(relu_cubic())(x),
    "relu": lambda x: x * (x > 0),
    "relu6": lambda x: np.minimum(x * (x > 0), 6),
    "hardtanh": lambda x: np.minimum(np.maximum(x, -1), 1),
    "gelu": lambda x: x * ndtr(x),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "softplus": lambda x: np.log(1 + np.exp(x)),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": lambda x: np.sinh(x) / np.cosh(x),
    "growing_cos": lambda x: x * np.cos(x),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_an_activation_is_its_function_and_has_no_parameters(name: str) -> None:
    layer = activation(name)
    assert layer is not None
    x = np.linspace(-6, 6, 101).reshape(1, 101)
    np.testing.assert_allclose(layer.forward({}, x), MEANINGS[name](x), atol=1e-12)
    assert layer.name == name
    assert layer.parameter_shapes() == layer.initial(np.random.default_rng(0)) == {}
    assert layer.output_shape((3, 4)) == (3, 4)
    assert layer.multiplications((3, 4)) == 0


def test_the_sigmoid_of_large_numbers_does_not_overflow() -> None:
    layer = activation("sigmoid")
    assert layer is not None
    np.testing.assert_array_equal(layer.forward({}, np.array([-1e4, 0, 1e4])), [0, 0.5, 1])


def test_no_activation_is_no_layer_and_another_word_lists_the_choices() -> None:
    assert activation("none") is None
    with pytest.raises(ModelError, match=r"no activation is called 'mish': choose from none, cos, sin"):
        activation("mish")
