"""Networks on shares: outputs within a bound of plaintext that is derived from the bits, and the rounds promised."""

from __future__ import annotations

import numpy as np
import pytest

from hdcos import nn
from hdcos.errors import ModelError
from hdcos.nn.comparing import Comparing
from hdcos.protocol import fit, fourier
from hdcos.secure.activations import Bent
from hdcos.secure.answers import LARGEST_NOISE, MOST_SQUARE, stated_queries
from hdcos.secure.calibrate import compare_by
from hdcos.secure.compile import compile_network
from hdcos.secure.estimate import estimate, total
from hdcos.secure.program import plan_inference
from hdcos.testing.bounds import error_bound
from hdcos.testing.pair import simulate_private, simulate_transcript

STRUCTURES = ("hadamard", "dense", "low_rank", "phd", "circulant")
ACTIVATIONS = ("none", "cos", "sin", "square", "expm1", "polyfit3", "sigmoid", "tanh", "gelu", "growing_cos")


def check(model: nn.Sequential, x: np.ndarray, phase_bits: int = 16, masked: bool = True) -> int:
    """Assert that private outputs lie within their bound; returns the rounds taken."""
    outputs, transcript = simulate_transcript(model, x, phase_bits, masked=masked)
    error, bound = np.abs(outputs - model(x)), error_bound(model, x, phase_bits)
    assert outputs.shape == (len(x), *model.output_shape)
    assert (error <= bound).all(), f"error {error.max():.2g}, bound {bound.flat[error.argmax()]:.2g}"
    assert bound.max() < 1.0, "a bound that says nothing"
    return len(transcript.rounds)


@pytest.mark.parametrize("masked", [True, False], ids=["masked", "shares"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("structure", STRUCTURES)
def test_every_structure_with_every_activation_gives_the_plaintext_output(structure, activation, masked) -> None:
    model = nn.models.mlp([12, 8, 8, 3], activation, structure, seed=3)
    x = np.random.default_rng(0).uniform(-0.5, 0.5, (5, 12))
    check(model, x, masked=masked)


@pytest.mark.parametrize(
    ("model", "rounds"),
    [
        (nn.models.mlp([12, 8, 8, 8, 3], "cos", "hadamard"), 3),
        (nn.models.mlp([12, 8, 8, 8, 3], "sin", "hadamard"), 3),
        (nn.models.mlp([12, 8, 8, 8, 3], "cos", "phd"), 4),
        (nn.models.mlp([12, 8, 8, 8, 3], "cos", "dense"), 6),
        (nn.models.mlp([12, 8, 8, 8, 3], "square", "hadamard"), 6),
        (nn.models.mlp([12, 8, 8, 8, 3], "none", "dense"), 4),
        (nn.models.lenet5("cos", "hadamard"), 5),
        (nn.models.lenet5("cos", "dense"), 8),
        (nn.models.higgs_mlp(4, "cos", "hadamard"), 4),
    ],
    ids=lambda value: str(value) if isinstance(value, int) else "",
)
def test_networks_take_the_rounds_they_should_and_one_more_for_plain_shares(model, rounds) -> None:
    x = np.random.default_rng(0).uniform(0, 1, (2, *model.input_shape))
    for masked, more in ((True, 0), (False, 1)):
        _, transcript = simulate_transcript(model, x, masked=masked)
        assert len(transcript.rounds) == rounds + more


@pytest.mark.parametrize("blocks", [2, 3])
def test_layers_of_several_blocks_take_a_round_for_each_block_more(blocks: int) -> None:
    layers = [nn.HadamardDiagonal(12, 8, blocks=blocks), nn.Cos(), nn.HadamardDiagonal(8, 3, blocks=blocks)]
    assert check(nn.Sequential(layers), np.random.default_rng(0).uniform(-1, 1, (4, 12))) == 1 + 2 * (blocks - 1)


def with_terms(terms: int, activation: nn.Layer) -> nn.Sequential:
    sizes = [(12, 8), (8, 8), (8, 4)]
    layers = [layer for size in sizes for layer in (nn.HadamardDiagonal(*size, terms=terms), activation)]
    return nn.Sequential(layers[:-1], seed=terms)


@pytest.mark.parametrize("masked", [True, False], ids=["masked", "shares"])
@pytest.mark.parametrize("activation", [nn.Cos(), nn.Tanh()], ids=lambda layer: layer.kind)
def test_several_terms_take_the_rounds_and_the_bytes_of_one(activation, masked: bool) -> None:
    x = np.random.default_rng(0).uniform(-0.5, 0.5, (5, 12))
    one, four = (with_terms(terms, activation) for terms in (1, 4))
    check(four, x, masked=masked)
    assert [planned(model, masked) for model in (one, four)] == [metered(model, x, masked) for model in (one, four)]
    assert metered(one, x, masked) == metered(four, x, masked)


def planned(model: nn.Sequential, masked: bool) -> list[int]:
    return [cost.online.bytes_sent for cost in estimate(model, 5, masked=masked) if cost.online.rounds]


def metered(model: nn.Sequential, x: np.ndarray, masked: bool) -> list[int]:
    return simulate_transcript(model, x, masked=masked)[1].sent_bytes


def test_every_term_takes_products_of_its_own() -> None:
    """Of a layer behind a cosine cos r and sin r are dealt once, and two products for each term."""
    material = [plan_inference(compile_network(with_terms(terms, nn.Cos()))).material for terms in (1, 4)]
    one, four = ([need for need in plan.needs if need.kind.references()] for plan in material)
    assert [need.kind.name for need in one] == ["mask_product", "fused_trig", "fused_trig"]
    assert [need.kind.name for need in four] == [*["mask_product"] * 4, "fused_trig", "fused_trig"]
    assert [len(need.kind.dealt()) for need in one] == [1, 4, 4]
    assert [len(need.kind.dealt()) for need in four] == [1, 1, 1, 1, 10, 10]


def test_parties_that_mean_other_numbers_of_terms_have_not_chosen_alike() -> None:
    three, four = (compile_network(with_terms(terms, nn.Cos())) for terms in (3, 4))
    assert three.record() != four.record()
    assert plan_inference(three).material.fingerprint != plan_inference(four).material.fingerprint


def test_terms_go_through_pooling_and_into_turns_of_any_size() -> None:
    layers = [nn.Conv2d(1, 2, 3, padding=1), nn.Cos(), nn.AvgPool2d(2), nn.Flatten()]
    layers += [nn.HadamardDiagonal(18, 5, terms=5), nn.Cos(), nn.HadamardDiagonal(5, 3, terms=3)]
    model = nn.Sequential(layers, input_shape=(1, 6, 6))
    check(model, np.random.default_rng(6).uniform(-1, 1, (3, 1, 6, 6)))


@pytest.mark.parametrize("depth", range(1, 9))
def test_deep_hd_cos_networks_stay_within_5e_minus_3(depth: int) -> None:
    model = nn.models.mlp([64, *[64] * depth, 10], "cos", "hadamard", seed=depth)
    x = np.random.default_rng(depth).uniform(-1, 1, (16, 64))
    outputs, transcript = simulate_transcript(model, x)
    assert np.abs(outputs - model(x)).max() <= 5e-3
    assert len(transcript.rounds) == depth


@pytest.mark.parametrize("structure", STRUCTURES)
def test_convolutional_networks_of_every_structure_give_the_plaintext_output(structure: str) -> None:
    layers = [
        nn.Conv2d(1, 3, 3, padding=1),
        nn.Cos(),
        nn.AvgPool2d(2),
        nn.Conv2d(3, 4, 3),
        nn.AvgPool2d(2),
        nn.Cos(),
        nn.Flatten(),
        *nn.models.mlp([16, 8, 2], "cos", structure).layers,
    ]
    model = nn.Sequential(layers, input_shape=(1, 12, 12))
    check(model, np.random.default_rng(1).uniform(0, 1, (3, 1, 12, 12)))


def test_public_layers_anywhere_cost_no_round() -> None:
    layers = [
        nn.RandomProjection(40, 16),
        nn.HadamardDiagonal(16, 16),
        nn.Cos(),
        nn.RandomProjection(16, 8),
        nn.Dense(8, 4),
        nn.Tanh(),
        nn.HadamardDiagonal(4, 2),
    ]
    assert check(nn.Sequential(layers), np.random.default_rng(2).uniform(-1, 1, (4, 40))) == 4


def test_a_kernel_machine_costs_no_round_and_its_owner_computes_the_features() -> None:
    model = nn.Sequential([nn.Flatten(), *nn.models.kernel_machine(40, 3, 100).layers], input_shape=(1, 8, 5))
    x = np.random.default_rng(2).uniform(-1, 1, (1100, 1, 8, 5))
    assert check(model, x[:4]) == 0
    assert compile_network(model).input_shape == (100,)
    np.testing.assert_array_equal(compile_network(model).apply_front(x), model.layers[1].forward({}, x.reshape(-1, 40)))
    behind = nn.Sequential([nn.Dense(4, 6), nn.RandomFeatures(6, 8, 1.0), nn.Dense(8, 2)])
    with pytest.raises(ModelError, match="layer 1, RandomFeatures, is computed by the owner"):
        compile_network(behind)


@pytest.mark.parametrize("between", [nn.AvgPool2d(2), nn.AvgPool2d(3), nn.Flatten()], ids=lambda layer: layer.kind)
@pytest.mark.parametrize("activation", [nn.Sin(), nn.Cos(), nn.GrowingCos(), nn.Square()], ids=lambda layer: layer.kind)
def test_public_layers_between_a_linear_layer_and_its_activation(between, activation) -> None:
    layers = [nn.Conv2d(1, 2, 3, padding=1), between, activation]
    model = nn.Sequential(layers, input_shape=(1, 7, 6), seed=3)
    check(model, np.random.default_rng(5).uniform(-1, 1, (3, 1, 7, 6)))


@pytest.mark.parametrize("window", [2, 3, 4])
def test_a_ragged_edge_is_dropped_by_pooling_as_it_is_in_plaintext(window: int) -> None:
    layers = [nn.Conv2d(1, 2, 3), nn.Cos(), nn.AvgPool2d(window), nn.Flatten()]
    size = 2 * (9 // window) * (8 // window)
    model = nn.Sequential([*layers, nn.HadamardDiagonal(size, 3)], input_shape=(1, 11, 10))
    check(model, np.random.default_rng(6).uniform(-1, 1, (3, 1, 11, 10)))


@pytest.mark.parametrize("seed", range(150))
def test_random_networks_stay_within_their_bounds(seed: int) -> None:
    """Layers in orders nobody planned for."""
    generator = np.random.default_rng(seed)
    activations = [nn.Cos(), nn.Sin(), nn.Sigmoid(), nn.Tanh(), nn.GrowingCos(), nn.PolyReLU3()]
    layers: list[nn.Layer] = []
    shape: tuple[int, ...] = (int(generator.integers(3, 12)),)
    if generator.random() < 0.4:
        shape = (int(generator.integers(1, 3)), *(int(n) for n in generator.integers(5, 9, 2)))
    start = shape
    for _ in range(int(generator.integers(2, 7))):
        if len(shape) == 3:
            window = int(generator.integers(1, 4))
            options = [nn.Conv2d(shape[0], 2, window), nn.AvgPool2d(window), nn.Flatten()]
            layer = options[int(generator.integers(3))]
            if min(shape[1:]) < window:
                layer = nn.Flatten()
        else:
            kinds = [nn.HadamardDiagonal, nn.Dense, nn.PHD, nn.Circulant, nn.LowRank, nn.RandomProjection]
            outputs = int(generator.integers(2, 9))
            layer = kinds[int(generator.integers(6))](shape[0], outputs)
        layers.append(layer)
        shape = layer.output_shape(shape)
        if generator.random() < 0.6 and not isinstance(layer, nn.AvgPool2d | nn.Flatten | nn.RandomProjection):
            layers.append(activations[int(generator.integers(len(activations)))])
    model = nn.Sequential(layers, input_shape=start, seed=seed)
    x = generator.uniform(-0.5, 0.5, (3, *start))
    outputs = simulate_private(model, x)
    assert (np.abs(outputs - model(x)) <= error_bound(model, x)).all(), model


def test_growing_cosines_of_large_inputs_do_not_fold() -> None:
    model = nn.Sequential([nn.GrowingCos()], input_shape=(4,))
    check(model, np.array([[12.0, -100.0, 500.0, 3.0]]))


def test_a_network_may_begin_or_end_with_an_activation() -> None:
    x = np.random.default_rng(3).uniform(-1, 1, (4, 6))
    assert check(nn.Sequential([nn.Sin()], input_shape=(6,)), x) == 1
    assert check(nn.Sequential([nn.Square(), nn.Dense(6, 3), nn.GrowingCos()], input_shape=(6,)), x) == 3


@pytest.mark.parametrize("phase_bits", [12, 16, 20])
def test_more_phase_bits_are_more_exact(phase_bits: int) -> None:
    model = nn.models.mlp([12, 8, 3], "cos", "hadamard")
    check(model, np.random.default_rng(4).uniform(-1, 1, (5, 12)), phase_bits)


def test_large_weights_of_a_cosine_layer_wrap_harmlessly() -> None:
    model = nn.models.mlp([8, 8, 3], "cos", "hadamard", seed=5)
    state = model.state()
    state["0.diagonal"] = state["0.diagonal"] + 2 * np.pi * np.sqrt(8) * 1000
    x = np.rint(np.random.default_rng(5).uniform(-1, 1, (4, 8)) * 2**10) / 2**10
    outputs, _ = simulate_transcript(model.with_state(state), x)
    assert np.abs(outputs - model.with_state(state)(x)).max() < 5e-3


def test_relu_without_a_dealer_is_refused_with_advice() -> None:
    model = nn.models.mlp([4, 4, 2], "relu", "dense")
    with pytest.raises(ModelError, match=r"layer 1, ReLU.*hdcos dealer.*Cos"):
        compile_network(model, dealer=False)


RELU_NETWORKS = {
    "dense": nn.models.mlp([12, 16, 16, 3], "relu", "dense", seed=1),
    "hadamard": nn.models.mlp([12, 16, 16, 3], "relu", "hadamard", seed=2),
    "first and last": nn.Sequential([nn.ReLU(), nn.Dense(12, 5), nn.ReLU()], seed=3),
    "with cosines": nn.Sequential([nn.Dense(12, 8), nn.Cos(), nn.Dense(8, 8), nn.ReLU(), nn.Dense(8, 4)], seed=4),
    "twice": nn.Sequential([nn.Dense(12, 8), nn.ReLU(), nn.ReLU(), nn.HadamardDiagonal(8, 4)], seed=5),
    "leaky": nn.Sequential(
        [nn.Dense(12, 8), nn.LeakyReLU(0.2), nn.Dense(8, 6), nn.LeakyReLU(), nn.Dense(6, 3)], seed=7
    ),
    "largest of pictures": nn.Sequential(
        [nn.MaxPool2d(2), nn.Conv2d(1, 3, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Dense(48, 3)],
        input_shape=(1, 21, 20),
        seed=8,
    ),
    "largest among means and cosines": nn.Sequential(
        [
            *(nn.Conv2d(1, 2, 3), nn.MaxPool2d(2), nn.Cos(), nn.MaxPool2d(2), nn.AvgPool2d(2), nn.Flatten()),
            *(nn.HadamardDiagonal(8, 8), nn.LeakyReLU(), nn.Dense(8, 2)),
        ],
        input_shape=(1, 18, 18),
        seed=9,
    ),
    "images": nn.Sequential(
        [nn.Conv2d(1, 3, 3), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Dense(27, 10), nn.ReLU(), nn.Dense(10, 3)],
        input_shape=(1, 8, 8),
        seed=6,
    ),
    "clipped": nn.Sequential(
        [nn.Dense(12, 8), nn.HardTanh(-0.3, 0.7), nn.Dense(8, 8), nn.ReLU6(), nn.HadamardDiagonal(8, 3), nn.HardTanh()],
        seed=10,
    ),
    "the largest of what is clipped": nn.Sequential(
        [nn.Conv2d(1, 3, 3), nn.HardTanh(0.1, 0.5), nn.MaxPool2d(2), nn.Flatten(), nn.Dense(27, 3)],
        input_shape=(1, 8, 8),
        seed=11,
    ),
    "behind series": nn.Sequential(
        [
            *(nn.Conv2d(1, 2, 3), nn.Tanh(), nn.Conv2d(2, 2, 3), nn.MaxPool2d(2), nn.Flatten(), nn.Dense(8, 8)),
            *(nn.Sigmoid(), nn.Dense(8, 8), nn.ReLU(), nn.Dense(8, 8), nn.GELU(), nn.Dense(8, 4), nn.LeakyReLU()),
        ],
        input_shape=(1, 8, 8),
        seed=12,
    ),
}


@pytest.mark.parametrize("name", RELU_NETWORKS)
@pytest.mark.parametrize(("masked", "compare"), [(True, "tables"), (False, "tables"), (True, "dcf")])
def test_networks_with_relu_are_within_their_bound(name: str, masked: bool, compare: str) -> None:
    model = compare_by(RELU_NETWORKS[name], compare)
    x = np.random.default_rng(0).uniform(-2, 2, (20, *model.input_shape))
    outputs, transcript = simulate_transcript(model, x, masked=masked)
    assert (np.abs(outputs - model(x)) <= error_bound(model, x)).all()
    chosen = compile_network(model)
    assert len(transcript.rounds) == plan_inference(chosen).rounds + (not masked)


BENT = [(kind, kind().intervals[place]) for kind in (nn.GELU, nn.SiLU, nn.Softplus) for place in (0, -1)]


@pytest.mark.parametrize(("kind", "interval"), BENT, ids=lambda value: getattr(value, "__name__", str(value)))
def test_bent_activations_are_within_their_stated_error_all_over_their_interval(kind, interval: int) -> None:
    """On shares, on a dense grid: the error of the series, of the arithmetic, and the noise of answers."""
    model = nn.Sequential([kind(interval)], input_shape=(4001,))
    x = np.rint(np.linspace(-interval, interval, 4001) * 2**12)[None] / 2**12
    (stage,) = compile_network(model).stages
    stated = fit.BENT[kind.name].error + fourier.error_bound(stage.series, stage.precision)
    error = np.abs(simulate_private(model, x) - model(x))
    assert error.max() <= stated + LARGEST_NOISE
    assert stated < 0.02
    assert error.mean() < 2e-3


def test_a_bent_activation_takes_one_round_wherever_it_stands() -> None:
    model = nn.models.mlp([12, 8, 8, 8, 3], "gelu", "dense")
    chosen = compile_network(model)
    opened = [stage.bits for stage in chosen.stages if isinstance(stage, Bent)]
    assert opened == [0, 38, 38], "the first needs no rounding, the others open x with 26 fraction bits"
    assert plan_inference(chosen).rounds == 3 + 3
    assert plan_inference(compile_network(model, dealer=False)).rounds == 3 + 3


def _relu_lenet5() -> tuple[nn.Sequential, nn.Sequential]:
    """As it is, and with the largest of each window instead of the mean."""
    model = nn.models.lenet5(activation="relu", structure="dense")
    largest = [nn.MaxPool2d(2) if isinstance(layer, nn.AvgPool2d) else layer for layer in model.layers]
    return model, nn.Sequential(largest, input_shape=(1, 28, 28))


def test_a_relu_lenet5_takes_three_rounds_or_two_for_each_comparison_and_says_what_its_answers_tell() -> None:
    rounds = {("tables", 0): (16, 17), ("tables", 1): (28, 29), ("dcf", 0): (12, 13), ("dcf", 1): (20, 21)}
    for (compare, variant), (masked, shares) in rounds.items():
        model = _relu_lenet5()[variant]
        assert total(estimate(model, compare=compare)).online.rounds == masked
        assert total(estimate(model, masked=False, compare=compare)).online.rounds == shares
        chosen = compile_network(compare_by(model, compare))
        assert plan_inference(chosen).rounds == masked
        assert stated_queries(chosen) == (3e5, 7e4)[variant] * 25 / 10  # units of the first layer over outputs


def test_squares_say_what_their_answers_tell_in_proportion_to_the_outputs() -> None:
    """All outputs together tell about a unit: with more of them fewer queries are enough. With one no more is stated
    than was measured with ten."""
    for outputs, queries in ((64, 3e4), (10, 3e4 * 6.4), (1, MOST_SQUARE)):
        chosen = compile_network(nn.models.mlp([64, 64, outputs], "square", "hadamard"))
        assert stated_queries(chosen) == pytest.approx(queries)


def test_how_a_network_compares_is_part_of_its_architecture_and_of_what_parties_compare() -> None:
    model = RELU_NETWORKS["largest of pictures"]
    other = compare_by(model, "dcf")
    assert {layer.compare for layer in other.layers if isinstance(layer, Comparing)} == {"dcf"}
    assert nn.Sequential.outline(other.architecture()).layers == other.layers
    assert other.fingerprint != model.fingerprint
    assert compile_network(other).record() != compile_network(model).record()
    assert compare_by(other, None) is other
    assert compare_by(other, "tables").layers == model.layers
    for wrong in (
        lambda: compare_by(model, "magic"),
        lambda: nn.ReLU(compare="magic"),
        lambda: nn.MaxPool2d(2, compare=1),
    ):
        with pytest.raises(ModelError, match="compared by tables or dcf, not by"):
            wrong()


def test_keys_cost_several_times_the_material_of_tables_and_both_parties_are_sent_it() -> None:
    model = nn.models.mlp([12, 16, 3], "relu", "dense")
    tables, keys = (plan_inference(compile_network(compare_by(model, way))).material for way in ("tables", "dcf"))
    assert tables.packed_bytes(1, 0) == 0
    assert keys.packed_bytes(1, 0) == 16 * (16 * 24 + 1)  # 31 bits: 23 levels and the leaves; a key of AES for the row
    priced = total(estimate(model, compare="dcf")).offline.bytes_sent
    assert priced == keys.packed_bytes(1, 0) + keys.packed_bytes(1, 1) == keys.sent_bytes(1)


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ([nn.Dense(4, 4), nn.Tanh(), nn.Dense(4, 4), nn.Square(), nn.Dense(4, 2)], r"3 Square has no room.*2\*\*10"),
        ([nn.Dense(4, 4), nn.HardTanh(-1, 600)], "compared with numbers up to 512, got -1 and 600"),
    ],
)
def test_activations_that_would_wrap_are_refused_by_name(layers, message: str) -> None:
    shape = (4,) if isinstance(layers[0], nn.Dense) else (1, 8, 8)
    with pytest.raises(ModelError, match=message):
        compile_network(nn.Sequential(layers, input_shape=shape))


def test_weights_too_large_for_the_scale_are_refused_by_name() -> None:
    model = nn.models.mlp([4, 4, 2], "square", "dense")
    state = model.state()
    state["0.weight"][0, 0] = 1e5
    with pytest.raises(ModelError, match=r"0\.weight has values up to 1e\+05"):
        simulate_transcript(model.with_state(state), np.zeros((1, 4)))


def test_the_largest_is_found_before_relu_compares() -> None:
    """The same result with a quarter of the numbers to rectify, unless a slope turns their order around."""
    for activation, first in (
        (nn.ReLU(), "Largest"),
        (nn.LeakyReLU(0.1), "Largest"),
        (nn.LeakyReLU(-0.5), "Rectified"),
        (nn.ReLU6(), "Largest"),
    ):
        model = nn.Sequential(
            [nn.Conv2d(1, 2, 3), activation, nn.MaxPool2d(2), nn.Flatten(), nn.Dense(18, 2)],
            input_shape=(1, 8, 8),
            seed=3,
        )
        assert type(compile_network(model).stages[1]).__name__ == first
        x = np.random.default_rng(1).uniform(-2, 2, (10, 1, 8, 8))
        outputs, _ = simulate_transcript(model, x)
        assert (np.abs(outputs - model(x)) <= error_bound(model, x)).all()
