"""PyTorch modules compute what the NumPy network computes, learn through the transform, and come back unchanged."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
from scipy.linalg import hadamard

from hdcos.errors import HdcosWarning, ModelError
from hdcos.nn import (
    AdaptiveAvgPool2d,
    Affine,
    Cos,
    Dense,
    HadamardDiagonal,
    Layer,
    RandomProjection,
    Reshape,
    Sequential,
    from_torch,
    models,
)
from hdcos.nn import torch_modules as modules
from hdcos.nn.activations import ACTIVATIONS
from hdcos.nn.hadamard import walsh_hadamard
from hdcos.nn.joins import Join
from hdcos.secure.calibrate import compare_by, state_intervals

EVERYTHING = [models.mlp([13, 20, 5], name, structure) for name in ACTIVATIONS for structure in models.STRUCTURES] + [
    models.lenet5(),
    models.lenet5("tanh", "dense"),
    Sequential([HadamardDiagonal(7, 12, 3, bandwidth=2.0), Cos(), Dense(12, 3, bandwidth=1.5)]),
    Sequential([RandomProjection(30, 11), HadamardDiagonal(11, 2)]),
    Sequential([HadamardDiagonal(7, 12, bandwidth=2.0, terms=5), Cos(), HadamardDiagonal(12, 3, terms=3)]),
    models.kernel_machine(12, 3, 40),
    Sequential([Cos()], input_shape=(3, 2)),
    Sequential([Affine(2), AdaptiveAvgPool2d(2), Reshape((4, 2)), Reshape((8,)), Dense(8, 2)], input_shape=(2, 4, 6)),
]


@pytest.mark.filterwarnings("ignore::hdcos.errors.HdcosWarning")
@pytest.mark.parametrize("model", EVERYTHING, ids=lambda model: " ".join(layer.kind for layer in model.layers))
def test_a_module_computes_the_same_and_comes_back_the_same(model: Sequential) -> None:
    x = np.random.default_rng(3).uniform(-1, 1, (4, *model.input_shape))
    exact = model.to_torch(torch.float64)
    np.testing.assert_allclose(exact(torch.from_numpy(x)).detach().numpy(), model(x), rtol=1e-10, atol=1e-10)
    single = model.to_torch()
    outputs = single(torch.from_numpy(x.astype(np.float32))).detach()
    assert outputs.dtype == torch.float32
    np.testing.assert_allclose(outputs.numpy(), model(x), rtol=1e-3, atol=1e-3)
    back = from_torch(exact)
    assert (back.layers, back.fingerprint) == (model.layers, model.fingerprint)
    state = back.state()
    assert list(exact.state_dict()) == list(state) == list(model.state())
    for name, array in model.state().items():
        np.testing.assert_array_equal(state[name], array)


def test_every_layer_type_has_a_module() -> None:
    chained = {kind for kind in Layer.registry.values() if not issubclass(kind, Join)}
    assert {*modules.MODULES, *modules.NATIVE} == chained


def test_making_a_module_leaves_the_random_numbers_of_pytorch_alone() -> None:
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    models.lenet5(structure="dense").to_torch()
    torch.testing.assert_close(torch.rand(3), expected, rtol=0, atol=0)


@pytest.mark.parametrize("n", [1, 2, 8, 64])
def test_gradients_of_the_transform_are_those_of_the_dense_matrix(n: int) -> None:
    H = torch.from_numpy(hadamard(n) / np.sqrt(n))
    x = torch.randn(3, 2, n, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(3, 2, n, dtype=torch.float64)
    (fast,) = torch.autograd.grad((torch.sin(walsh_hadamard(x)) * weights).sum(), x)
    (dense,) = torch.autograd.grad((torch.sin(x @ H) * weights).sum(), x)
    torch.testing.assert_close(fast, dense)
    some = x[:1, : 1 if n > 8 else 2].detach().requires_grad_()  # each entry is moved, for each entry of the gradient
    assert torch.autograd.gradcheck(walsh_hadamard, some)
    assert torch.autograd.gradgradcheck(walsh_hadamard, some)


@pytest.mark.parametrize("structure", [*models.STRUCTURES, "terms"])
def test_gradients_of_a_network_are_its_finite_differences(structure: str) -> None:
    several = Sequential([HadamardDiagonal(5, 6, terms=4), Cos(), HadamardDiagonal(6, 3, terms=2)])
    model = several if structure == "terms" else models.mlp([5, 6, 3], "cos", structure)
    module = model.to_torch(torch.float64)
    x = np.random.default_rng(0).standard_normal((4, 5))
    (module(torch.from_numpy(x)) ** 2).sum().backward()
    step = 1e-6
    for name, parameter in module.named_parameters():
        numeric = np.zeros(parameter.shape)
        for place in np.ndindex(*parameter.shape):
            losses = []
            for sign in (1, -1):
                state = model.state()
                state[name][place] += sign * step
                losses.append((model.with_state(state)(x) ** 2).sum())
            numeric[place] = (losses[0] - losses[1]) / (2 * step)
        assert parameter.grad is not None
        np.testing.assert_allclose(parameter.grad.numpy(), numeric, rtol=1e-5, atol=1e-6)


def test_a_users_module_is_imported_with_its_parameters() -> None:
    torch.manual_seed(0)
    cosine = modules.Cos()
    module = torch.nn.Sequential(
        torch.nn.Sequential(torch.nn.Conv2d(1, 3, (3, 3), 2, 1, bias=False), cosine),
        torch.nn.AvgPool2d((2, 2)),
        torch.nn.Flatten(),
        torch.nn.Linear(12, 6, bias=False),
        cosine,  # the same object again: it must run twice
        modules.HadamardDiagonal(6, 4, blocks=2),
        torch.nn.Sigmoid(),
    ).double()
    with pytest.warns(HdcosWarning, match=r"assumed \|x\| <= 8 in layer 7 \(Sigmoid\)"):
        model = from_torch(module, input_shape=(1, 8, 8))
    names = ["Conv2d", "Cos", "AvgPool2d", "Flatten", "Dense", "Cos", "HadamardDiagonal", "Sigmoid"]
    assert [layer.kind for layer in model.layers] == names
    x = torch.rand(3, 1, 8, 8, dtype=torch.float64)
    np.testing.assert_allclose(model(x.numpy()), module(x).detach().numpy(), atol=1e-12)


def test_a_module_that_compares_is_imported_and_written_back() -> None:
    torch.manual_seed(0)
    module = torch.nn.Sequential(
        torch.nn.Conv2d(1, 3, 3), torch.nn.ReLU(), torch.nn.MaxPool2d((2, 2)), torch.nn.Flatten(),
        torch.nn.Linear(27, 6), torch.nn.LeakyReLU(0.25), torch.nn.Linear(6, 2),
    ).double()  # fmt: skip
    model = from_torch(module, input_shape=(1, 9, 8))
    x = torch.rand(3, 1, 9, 8, dtype=torch.float64)
    np.testing.assert_allclose(model(x.numpy()), module(x).detach().numpy(), atol=1e-12)
    model = compare_by(model, "dcf")
    again = model.to_torch(torch.float64)
    np.testing.assert_allclose(model(x.numpy()), again(x).detach().numpy(), atol=1e-12)
    assert from_torch(again).layers == model.layers, "how it compares is kept"


def test_activations_are_imported_and_written_back_and_say_what_they_cannot() -> None:
    own = torch.nn
    kinds = [own.ReLU6(), own.Hardtanh(-0.5, 2.0), own.GELU(), own.SiLU(), own.Softplus()]
    module = own.Sequential(*(part for kind in kinds for part in (own.Linear(4, 4), kind))).double()
    with pytest.warns(HdcosWarning, match=r"<= 4 in layer 5 \(GELU\), \|x\| <= 6 in layer 7 \(SiLU\)"):
        model = from_torch(module)
    x = torch.linspace(-30, 30, 400, dtype=torch.float64).reshape(100, 4)
    np.testing.assert_allclose(model(x.numpy()), module(x).detach().numpy(), atol=1e-8)
    for layer, kind in zip(model.layers[1::2], kinds, strict=True):
        np.testing.assert_allclose(layer(x.numpy()), kind(x).numpy(), atol=1e-8)
    fitted = state_intervals(model)
    assert from_torch(fitted.to_torch(torch.float64)).layers == fitted.layers


def test_a_lone_layer_is_a_network_and_trained_parameters_are_read() -> None:
    linear = torch.nn.Linear(3, 2)
    assert from_torch(linear).layers == (Dense(3, 2),)
    module = models.mlp([3, 4, 2]).to_torch()
    with torch.no_grad():
        module[0].bias += 1
    np.testing.assert_array_equal(from_torch(module).state()["0.bias"], np.ones(4))


def test_a_module_that_starts_with_a_convolution_needs_an_input_shape() -> None:
    with pytest.raises(ModelError, match="needs input_shape"):
        from_torch(torch.nn.Conv2d(1, 2, 3))


def test_without_pytorch_everything_else_works_and_the_error_says_what_to_install() -> None:
    program = """
import sys
sys.modules["torch"] = None
import numpy, hdcos.errors, hdcos.nn
model = hdcos.nn.models.mlp([3, 2])
model(numpy.zeros((1, 3)))
for call in (model.to_torch, lambda: hdcos.nn.from_torch(None)):
    try:
        call()
    except hdcos.errors.ModelError as error:
        print(error)
"""
    finished = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=True
    )
    assert (
        finished.stdout.splitlines() == ["PyTorch is not installed. Install it with `pip install 'hdcos[torch]'`."] * 2
    )


def test_importing_the_networks_does_not_load_pytorch() -> None:
    program = "import sys, hdcos.nn; print('torch' in sys.modules, 'cryptography' in sys.modules)"
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert finished.stdout.split() == ["False", "False"]
