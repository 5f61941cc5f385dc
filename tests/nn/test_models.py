"""Ready networks have the sizes of the paper; every structure goes with every activation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from hdcos.errors import InputError, ModelError
from hdcos.nn import AvgPool2d, Conv2d, Dense, HadamardDiagonal, RandomFeatures, load, models
from hdcos.nn.activations import ACTIVATIONS

WORDS = ["none", *ACTIVATIONS]
INTERFACE_WORDS = [
    *("cos", "expm1", "gelu", "growing_cos", "hardtanh", "none", "polyfit3", "relu", "relu6"),
    *("sigmoid", "silu", "sin", "softplus", "square", "tanh"),
]


@pytest.mark.parametrize("structure", models.STRUCTURES)
@pytest.mark.parametrize("activation", WORDS)
def test_every_structure_goes_with_every_activation(structure: str, activation: str) -> None:
    model = models.mlp([6, 9, 3], activation, structure)
    outputs = model(np.random.default_rng(0).uniform(size=(4, 6)))
    assert outputs.shape == (4, 3)
    assert np.isfinite(outputs).all()
    assert len(model.layers) == (2 if activation == "none" else 3)
    lenet = models.lenet5(activation, structure)
    assert lenet(np.random.default_rng(0).uniform(size=(2, 1, 28, 28))).shape == (2, 10)


@pytest.mark.parametrize("name", models.READY)
def test_ready_models_take_activation_structure_and_seed_by_name(name: str) -> None:
    model = models.READY[name](activation="sin", structure="low_rank", seed=1)
    kinds = {layer.kind for layer in model.layers}
    assert {"Sin", "LowRank"} <= kinds
    assert kinds & {"Dense", "HadamardDiagonal", "Cos"} == ({"Dense"} if name == "convnet" else set())


def test_word_lists_are_those_of_the_interface() -> None:
    assert sorted(WORDS) == INTERFACE_WORDS
    assert list(models.STRUCTURES) == ["dense", "hadamard", "low_rank", "phd", "circulant"]
    assert list(models.READY) == ["lenet5", "convnet", "higgs_mlp", "criteo_mlp"]


def test_lenet_has_the_layers_of_the_paper() -> None:
    model = models.lenet5()
    assert model.shapes[:8] == (
        (1, 28, 28),
        (6, 28, 28),
        (6, 28, 28),
        (6, 14, 14),
        (16, 10, 10),
        (16, 10, 10),
        (16, 5, 5),
        (400,),
    )
    assert [layer.kind for layer in model.layers[:3]] == ["Conv2d", "Cos", "AvgPool2d"]
    assert (model.layers[0], model.layers[2]) == (Conv2d(1, 6, 5, padding=2), AvgPool2d(2))
    assert model.layers[-1] == HadamardDiagonal(84, 10)


@pytest.mark.parametrize(
    ("model", "count"),
    [
        (models.lenet5(), 156 + 2416 + (400 + 120) + (120 + 84) + (84 + 10)),
        (models.lenet5(structure="dense"), 61706),
        (models.lenet5(structure="phd"), 156 + 2416 + (400 + 120) + (120 + 84) + (84 + 10)),
        (models.lenet5(structure="circulant"), 156 + 2416 + (400 + 120) + (120 + 84) + (84 + 10)),
        (models.lenet5(structure="low_rank"), 156 + 2416 + 2 * 520 + 120 + 2 * 204 + 84 + 2 * 94 + 10),
        (models.higgs_mlp(), (28 + 16) + 3 * 32 + 17),
        (models.higgs_mlp(7, structure="dense"), 29 * 16 + 6 * 17 * 16 + 17),
        (models.criteo_mlp(), (1023 + 1024) + 3 * 2048 + 1025),
        (models.criteo_mlp(structure="dense"), 1024 * 1024 + 3 * 1025 * 1024 + 1025),
    ],
)
def test_parameters_are_counted(model, count: int) -> None:
    assert model.parameter_count == count == sum(array.size for array in model.state().values())


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: models.lenet5("mish"), "no activation is called 'mish': choose from none, cos"),
        (lambda: models.criteo_mlp(structure="sparse"), "'sparse': choose from dense, hadamard, low_rank, phd, circ"),
        (lambda: models.higgs_mlp(0), "hidden_layers must be a whole number of at least 1, got 0"),
        (lambda: models.kernel_machine(0), "in_features must be a whole number of at least 1, got 0"),
        (lambda: models.kernel_machine(4, bandwidth=-1.0), "bandwidth must be a positive number"),
        (lambda: RandomFeatures(4, 8, None), "bandwidth must be a positive number, got None"),
        (lambda: models.mlp([4]), r"at least two sizes, its inputs and its outputs, got \[4\]"),
        (lambda: models.pretrained("vgg"), "'vgg': choose from digits, lenet5_mnist, lenet5_fashion_mnist"),
    ],
)
def test_wrong_words_list_the_choices(build, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        build()


def test_a_kernel_machine_is_a_linear_layer_on_random_features(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).standard_normal((600, 50))
    assert models.median_distance(rows) == pytest.approx(10, rel=0.02)
    assert models.median_distance(rows.reshape(600, 5, 10)) == models.median_distance(rows)
    model = models.kernel_machine(50, 3, features=70, seed=2)
    assert model.layers == (RandomFeatures(50, 70, 10.0, seed=2), Dense(70, 3))
    assert models.kernel_machine(50, 3, 70, bandwidth=2).layers[0].bandwidth == 2
    model.save(tmp_path / "machine.safetensors")
    np.testing.assert_array_equal(load(tmp_path / "machine.safetensors")(rows), model(rows))
    with pytest.raises(InputError, match="two rows at least, got 1"):
        models.median_distance(rows[:1])


def test_the_digits_model_classifies_test_digits() -> None:
    """The split of scripts/make_digits_model.py: the last 397 rows after a seeded shuffle were not trained on."""
    images, labels = load_digits(return_X_y=True)
    test = np.random.default_rng(0).permutation(len(images))[-397:]
    assert (models.digits()(images[test] / 16).argmax(axis=1) == labels[test]).mean() >= 0.96


@pytest.mark.parametrize("name", ["lenet5_mnist", "lenet5_fashion_mnist"])
def test_trained_lenets_are_hd_cos_networks(name: str) -> None:
    assert models.pretrained(name).fingerprint == models.lenet5("cos", "hadamard").fingerprint


@pytest.mark.parametrize("name", ["convnet_mnist", "convnet_fashion_mnist"])
def test_trained_convnets_are_hd_cos_networks(name: str) -> None:
    assert models.pretrained(name).fingerprint == models.convnet("cos", "hadamard").fingerprint
