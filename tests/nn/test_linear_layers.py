"""Every linear layer computes the matrix it stands for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import circulant, hadamard

from hdcos.errors import ModelError
from hdcos.nn import PHD, Circulant, Dense, HadamardDiagonal, LowRank, RandomFeatures, RandomProjection
from hdcos.nn import hadamard as hadamard_layers
from hdcos.nn.hadamard import PHD_FRACTION_BITS, walsh_hadamard
from hdcos.nn.layer import Linear

SIZES = [(1, 1), (1, 5), (5, 1), (8, 8), (28, 16), (16, 28), (64, 10), (400, 120)]


def orthonormal(n: int) -> np.ndarray:
    return hadamard(n) / np.sqrt(n)


def matrix(layer: Linear, parameters: dict[str, np.ndarray]) -> np.ndarray:
    """The layer's matrix, built entry by entry from its definition."""
    ins, outs = layer.in_features, layer.out_features
    match layer:
        case Dense():
            return parameters["weight"]
        case LowRank():
            return parameters["left"] @ parameters["right"]
        case Circulant():
            return circulant(parameters["weight"])[:outs, :ins]
        case PHD():
            return layer.projection_matrix() @ orthonormal(layer.size)[:, :ins] * parameters["diagonal"]
        case HadamardDiagonal(terms=terms) if terms > 1:
            H, signs = orthonormal(layer.size)[:outs, :ins], hadamard(layer.size)
            return sum(signs[:outs, t, None] * H * parameters["diagonal"][t] for t in range(terms))
        case HadamardDiagonal():
            result = orthonormal(layer.size)[:, :ins] * parameters["diagonal"]
            for block in range(2, layer.blocks + 1):
                result = orthonormal(layer.size) * parameters[f"diagonal{block}"] @ result
            return result[:outs]
        case RandomProjection():
            n = layer.size
            return np.sqrt(n / outs) * orthonormal(n)[layer.kept()][:, :ins] * layer.signs()
    raise AssertionError(layer)


def check_forward(layer: Linear) -> None:
    rng = np.random.default_rng(1)
    parameters = {name: rng.standard_normal(shape) for name, shape in layer.parameter_shapes().items()}
    x = rng.standard_normal((7, layer.in_features))
    expected = x @ matrix(layer, parameters).T + parameters.get("bias", 0)
    np.testing.assert_allclose(layer.forward(parameters, x), expected, atol=1e-11)
    assert layer.output_shape((layer.in_features,)) == (layer.out_features,) == expected.shape[1:]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", [Dense, LowRank, Circulant, PHD, HadamardDiagonal, RandomProjection])
def test_a_layer_multiplies_by_its_matrix_and_adds_its_bias(kind: type[Linear], size: tuple[int, int]) -> None:
    check_forward(kind(*size))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("blocks", [2, 3])
def test_blocks_apply_the_first_diagonal_first(size: tuple[int, int], blocks: int) -> None:
    check_forward(HadamardDiagonal(*size, blocks=blocks))


@pytest.mark.parametrize("size", [size for size in SIZES if size[1] > 4])
@pytest.mark.parametrize("terms", [2, 4, 5])
def test_terms_add_up_with_the_signs_of_rows_of_the_transform(size: tuple[int, int], terms: int) -> None:
    check_forward(HadamardDiagonal(*size, terms=terms))


@pytest.mark.parametrize(("ins", "outs"), [(4, 4), (5, 3), (3, 7), (12, 5), (1, 6)])
def test_terms_are_linearly_independent_up_to_any_matrix(ins: int, outs: int) -> None:
    for terms in range(1, outs + 1):
        layer = HadamardDiagonal(ins, outs, terms=terms)
        entries = np.eye(terms * ins).reshape(-1, *layer.parameter_shapes()["diagonal"])
        maps = [layer.forward({"diagonal": entry, "bias": 0.0}, np.eye(ins)).ravel() for entry in entries]
        assert np.linalg.matrix_rank(maps) == terms * ins


def test_one_term_is_the_layer_as_it_was_and_is_not_written_down() -> None:
    plain, single = HadamardDiagonal(6, 4), HadamardDiagonal(6, 4, terms=1)
    assert plain == single
    assert "terms" not in single.to_json()
    assert HadamardDiagonal(6, 4, terms=2).to_json()["terms"] == 2
    assert single.parameter_shapes() == {"diagonal": (6,), "bias": (4,)}


def test_a_higher_rank_and_another_seed_are_respected() -> None:
    check_forward(LowRank(9, 7, rank=5))
    check_forward(PHD(20, 12, seed=3))
    assert not np.array_equal(PHD(20, 12, seed=3).projection_matrix(), PHD(20, 12).projection_matrix())
    assert not np.array_equal(RandomProjection(20, 12, seed=3).kept(), RandomProjection(20, 12).kept())


def test_the_circulant_matrix_is_indexed_by_row_minus_column() -> None:
    layer = Circulant(3, 2)
    parameters = {"weight": np.array([10.0, 20.0, 30.0]), "bias": np.zeros(2)}
    np.testing.assert_allclose(layer.forward(parameters, np.eye(3)).T, [[10, 30, 20], [20, 10, 30]])


@given(st.integers(0, 9), st.integers(0, 2**32 - 1))
def test_the_transform_is_the_sylvester_matrix_and_its_own_inverse(log_n: int, seed: int) -> None:
    x = np.random.default_rng(seed).standard_normal((2, 3, 2**log_n))
    np.testing.assert_allclose(walsh_hadamard(x), x @ orthonormal(2**log_n), atol=1e-12)
    np.testing.assert_allclose(walsh_hadamard(walsh_hadamard(x)), x, atol=1e-12)


def test_wide_rows_have_the_same_transform_by_more_and_smaller_products(monkeypatch) -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 2**13))
    expected, work = walsh_hadamard(x), hadamard_layers.transform_work(2**13)
    monkeypatch.setattr(hadamard_layers, "WIDE", 16)
    monkeypatch.setattr(hadamard_layers, "FACTOR", 8)
    np.testing.assert_allclose(walsh_hadamard(x), expected, atol=1e-12)
    assert hadamard_layers.transform_work(2**13) < work / 3


def test_the_transform_of_no_rows_is_no_rows() -> None:
    assert HadamardDiagonal(5, 3).forward({"diagonal": np.ones(5), "bias": np.ones(3)}, np.zeros((0, 5))).shape == (
        0,
        3,
    )


def test_secure_multiplications_are_those_of_the_paper() -> None:
    d, k = 1024, 256
    assert HadamardDiagonal(d, k).multiplications((d,)) == d
    assert HadamardDiagonal(d, k, terms=4).multiplications((d,)) == 4 * d
    assert HadamardDiagonal(1000, k, blocks=3).multiplications((1000,)) == 1000 + 2 * 1024
    assert Dense(d, k).multiplications((d,)) == d * k
    assert LowRank(d, d).multiplications((d,)) == 4 * d
    assert LowRank(d, k, rank=3).multiplications((d,)) == 3 * (d + k)
    assert PHD(d, k).multiplications((d,)) == d
    assert Circulant(d, k).multiplications((d,)) == d * k
    assert RandomProjection(d, k).multiplications((d,)) == 0


PHD_ROW = ([0, 1, 2, 3, 4, 5, 6, 7], [-1220, 237, -1220, 2992, -553, -1739, 169, 1197])
PROJECTION_KEPT = [1, 2, 5, 7]
PROJECTION_SIGNS = [1, -1, -1, -1, 1, 1]
FEATURES = ([1, 1, 1, -1], [-69, 358, 238, 60])
FEATURE_PHASE = 1.691360346661964


def test_public_matrices_are_the_same_on_every_host() -> None:
    """Changing how they are derived breaks every saved model that uses them."""
    columns, values = PHD(6, 4).projection()
    assert (columns[0].tolist(), values[0].tolist()) == PHD_ROW
    assert RandomProjection(6, 4).kept().tolist() == PROJECTION_KEPT
    assert RandomProjection(6, 4).signs().tolist() == PROJECTION_SIGNS
    signs, gaussians, phases = RandomFeatures(3, 6, 1.0).diagonals()
    assert (signs[1].tolist(), (256 * gaussians[1]).tolist()) == FEATURES
    assert phases[0] == pytest.approx(FEATURE_PHASE, abs=1e-12)


@pytest.mark.parametrize("size", SIZES)
def test_random_features_are_cosines_of_blocks_of_transforms(size: tuple[int, int]) -> None:
    layer = RandomFeatures(*size, bandwidth=0.7, seed=4)
    H, x = orthonormal(layer.size), np.random.default_rng(1).standard_normal((7, size[0]))
    signs, gaussians, phases = layer.diagonals()
    W = np.vstack([H * g @ H * s for s, g in zip(signs, gaussians, strict=True)])[: size[1], : size[0]]
    expected = np.cos(x @ W.T * np.sqrt(layer.size) / 0.7 + phases)
    np.testing.assert_allclose(layer.forward({}, x), expected, atol=1e-10)
    assert layer.output_shape((size[0],)) == (size[1],)
    assert layer.multiplications((size[0],)) == 0


def test_products_of_random_features_estimate_the_kernel() -> None:
    x = np.random.default_rng(0).standard_normal((30, 20))
    distances = ((x[:, None] - x) ** 2).sum(axis=2)
    found = [RandomFeatures(20, 1000, 4.0, seed).forward({}, x) for seed in range(20)]
    estimates = np.array([2 / 1000 * y @ y.T for y in found])
    error = estimates.mean(axis=0) - np.exp(-distances / 32)
    assert np.abs(error).max() < 5 * estimates.std(axis=0).max() / np.sqrt(20)


def test_the_sparse_matrix_has_sixteen_entries_and_norm_one_in_every_row() -> None:
    layer = PHD(1000, 200)
    P = layer.projection_matrix()
    assert P.shape == (200, 1024)
    assert ((P != 0).sum(axis=1) <= 16).all()
    assert all(len(set(row)) == 16 for row in layer.projection()[0].tolist())
    np.testing.assert_allclose(np.linalg.norm(P, axis=1), 1, atol=16 * 2.0**-PHD_FRACTION_BITS)
    entries = layer.projection()[1].ravel() / 2**PHD_FRACTION_BITS * 4
    assert abs(entries.mean()) < 4 / np.sqrt(entries.size)
    assert abs(np.var(entries) - 1) < 0.01


def test_a_random_projection_keeps_lengths_on_average() -> None:
    x = np.random.default_rng(0).standard_normal((1, 300))
    ratios = [
        np.linalg.norm(RandomProjection(300, 40, seed=seed).forward({}, x)) ** 2 / np.linalg.norm(x) ** 2
        for seed in range(400)
    ]
    assert abs(np.mean(ratios) - 1) < 5 * np.std(ratios) / 20


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Dense(0, 3), "Dense: in_features must be a whole number of at least 1, got 0"),
        (lambda: Dense(3, 2.0), "Dense: out_features .* got 2.0"),
        (lambda: Dense(True, 2), "Dense: in_features .* got True"),
        (lambda: HadamardDiagonal(3, 2, blocks=0), "HadamardDiagonal: blocks"),
        (lambda: HadamardDiagonal(3, 2, terms=0), "HadamardDiagonal: terms must be a whole number of at least 1"),
        (lambda: HadamardDiagonal(3, 2, terms=3), "terms must be at most 64 and at most out_features, 2, .* got 3"),
        (lambda: HadamardDiagonal(80, 80, terms=65), "terms must be at most 64 .* got 65"),
        (lambda: HadamardDiagonal(3, 2, 2, terms=2), "several blocks or several terms, not 2 and 2"),
        (lambda: HadamardDiagonal(3, 2, bandwidth=-1.0), "HadamardDiagonal: bandwidth must be a positive number"),
        (lambda: Dense(3, 2, bandwidth=float("nan")), "Dense: bandwidth"),
        (lambda: LowRank(3, 2, rank=0), "LowRank: rank"),
        (lambda: PHD(3, 2, seed=-1), "PHD: seed"),
        (lambda: Dense(3, 2).output_shape((4,)), r"Dense takes shape \(3,\), got \(4,\)$"),
        (lambda: Dense(12, 2).output_shape((3, 2, 2)), r"Dense takes shape \(12,\), got \(3, 2, 2\), put a Flatten"),
    ],
)
def test_a_layer_that_makes_no_sense_is_refused_by_name(build, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        build()


@pytest.mark.parametrize(
    "layer",
    [
        *(kind(12, 5) for kind in (Dense, LowRank, Circulant, PHD, HadamardDiagonal)),
        HadamardDiagonal(12, 5, 3),
        HadamardDiagonal(12, 5, terms=3),
    ],
    ids=repr,
)
def test_factors_lead_from_the_input_to_the_output_and_use_every_weight_once(layer: Linear) -> None:
    parts = layer.factors((12,))
    assert (parts[0].inputs, parts[-1].outputs) == ((12,), (5,))
    assert [part.outputs for part in parts[:-1]] == [part.inputs for part in parts[1:]]
    assert sorted([part.weight for part in parts] + ["bias"]) == sorted(layer.parameter_shapes())
