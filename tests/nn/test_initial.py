"""Fresh parameters have the distribution they should, and random features approximate their kernel."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from hdcos.nn import PHD, Circulant, Conv2d, Dense, HadamardDiagonal, LowRank
from hdcos.nn.layer import Layer, Linear


def initial(layer: Layer, seed: int = 0) -> dict[str, np.ndarray]:
    return layer.initial(np.random.default_rng(seed))


@pytest.mark.parametrize(
    "layer",
    [
        HadamardDiagonal(30, 9, 3),
        HadamardDiagonal(30, 9, terms=3),
        *(kind(30, 9) for kind in (Dense, LowRank, PHD, Circulant)),
        Conv2d(3, 5, 2),
    ],
)
def test_fresh_parameters_have_the_declared_shapes_and_zero_biases(layer: Layer) -> None:
    drawn = initial(layer)
    assert {name: array.shape for name, array in drawn.items()} == layer.parameter_shapes()
    assert all(array.dtype == np.float64 for array in drawn.values())
    assert not drawn["bias"].any()
    again, other = initial(layer), initial(layer, 1)
    assert all(np.array_equal(drawn[name], again[name]) for name in drawn)
    assert not all(np.array_equal(drawn[name], other[name]) for name in drawn)


@pytest.mark.parametrize("name", ["diagonal", "diagonal2", "diagonal3"])
def test_hadamard_diagonals_are_standard_normal(name: str) -> None:
    values = initial(HadamardDiagonal(4096, 4096, blocks=3))[name]
    assert stats.kstest(values, "norm").pvalue > 1e-3


@pytest.mark.parametrize(
    ("layer", "limit"),
    [
        (Dense(300, 100), np.sqrt(6 / 400)),
        (Conv2d(8, 24, 5), np.sqrt(6 / (32 * 25))),
        (Circulant(4000, 2000), np.sqrt(6 / 6000)),
    ],
)
def test_dense_and_convolution_weights_are_glorot_uniform(layer: Layer, limit: float) -> None:
    values = initial(layer)["weight"].ravel()
    assert stats.kstest(values, "uniform", (-limit, 2 * limit)).pvalue > 1e-3


def test_a_low_rank_matrix_has_the_variance_of_a_glorot_matrix() -> None:
    products = [parts["left"] @ parts["right"] for parts in (initial(LowRank(60, 40), seed) for seed in range(200))]
    assert np.var(products) == pytest.approx(2 / 100, rel=0.1)


@pytest.mark.parametrize(
    "layer",
    [
        HadamardDiagonal(256, 256),
        HadamardDiagonal(256, 256, 3),
        HadamardDiagonal(256, 256, terms=4),
        PHD(256, 256),
    ],
)
def test_outputs_of_a_fresh_structured_layer_keep_the_variance_of_the_inputs(layer: Layer) -> None:
    x = np.random.default_rng(9).standard_normal((50, 256))
    outputs = [layer.forward(initial(layer, seed), x) for seed in range(50)]
    assert np.var(outputs) == pytest.approx(1, rel=0.1)


def features(layer: Linear, seed: int, x: np.ndarray) -> np.ndarray:
    return np.sqrt(2 / layer.out_features) * np.cos(layer.forward(initial(layer, seed), x))


@pytest.mark.parametrize("bandwidth", [1.0, 2.5])
@pytest.mark.parametrize(
    "layer",
    [
        lambda s: Dense(20, 64, bandwidth=s),
        lambda s: HadamardDiagonal(20, 64, bandwidth=s),
        lambda s: HadamardDiagonal(32, 32, bandwidth=s),
        lambda s: HadamardDiagonal(20, 20, blocks=2, bandwidth=s),
        lambda s: HadamardDiagonal(20, 64, blocks=3, bandwidth=s),
        lambda s: HadamardDiagonal(20, 20, bandwidth=s, terms=3),
    ],
    ids=["dense", "hadamard wide", "hadamard square", "two blocks", "three blocks", "three terms"],
)
def test_cosines_of_a_layer_with_bandwidth_estimate_the_gaussian_kernel_without_bias(layer, bandwidth: float) -> None:
    """Averaged over 2000 seeds the estimate lies within 5 standard errors of the kernel, for near and far pairs."""
    made = layer(bandwidth)
    rng = np.random.default_rng(5)
    x = rng.standard_normal(made.in_features)
    step = rng.standard_normal(made.in_features)
    step /= np.linalg.norm(step)
    distances = np.array([0.0, 0.5, 1.0, 2.0]) * bandwidth
    points = np.array([x, *(x + distance * step for distance in distances)])
    estimates = []
    for seed in range(2000):
        phi = features(made, seed, points)
        estimates.append(phi[1:] @ phi[0])
    error = np.abs(np.mean(estimates, axis=0) - np.exp(-(distances**2) / (2 * bandwidth**2)))
    assert (error < 5 * np.std(estimates, axis=0) / np.sqrt(2000)).all()
    assert error.max() < 0.03


def test_mixing_blocks_make_single_kernel_estimates_vary_less() -> None:
    """A difference in one feature alone moves all outputs of one block by the same amount; three blocks spread it."""
    x = np.zeros((2, 64))
    x[1, 0] = 1.0

    def spread(layer: HadamardDiagonal) -> float:
        phis = (features(layer, seed, x) for seed in range(300))
        return float(np.std([phi[0] @ phi[1] for phi in phis]))

    assert spread(HadamardDiagonal(64, 64, 3, bandwidth=1.0)) < 0.5 * spread(HadamardDiagonal(64, 64, bandwidth=1.0))


def test_the_phases_of_random_features_are_uniform_over_a_turn() -> None:
    for layer in (HadamardDiagonal(4096, 4096, bandwidth=1.0), Dense(2, 4096, bandwidth=1.0)):
        assert stats.kstest(initial(layer)["bias"], "uniform", (0, 2 * np.pi)).pvalue > 1e-3
