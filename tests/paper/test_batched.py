"""Models trained as one compute what each would alone, and no model influences another."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hdcos.errors import ModelError
from hdcos.nn import Cos, HadamardDiagonal, Sequential, models
from paper.batched import Batch
from paper.cells import Cell
from paper.experiments import ACTIVATIONS
from paper.trainer import loss_slopes

STRUCTURES = ("dense", "low_rank", "hadamard", "phd", "circulant")
CELLS = [Cell("mnist", activation, structure) for activation in ACTIVATIONS for structure in STRUCTURES] + [
    Cell("mnist", "cos", "hadamard", blocks=3),
    Cell("mnist", "cos", "hadamard", projection=64),
    Cell("mnist", "cos", "hadamard", initial="phases"),
    *(Cell("higgs", activation, "hadamard", depth=2) for activation in ACTIVATIONS),
    *(Cell("higgs", "cos", structure, depth=1) for structure in STRUCTURES),
]


def some_rows(cell: Cell, rows: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    generator = np.random.default_rng(7)
    shape = cell.network(0).input_shape
    classes = 10 if cell.dataset == "mnist" else 2
    return torch.from_numpy(generator.random((rows, *shape))), torch.from_numpy(generator.integers(0, classes, rows))


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_every_model_of_a_batch_has_the_outputs_and_gradients_of_its_own_module(cell: Cell) -> None:
    x, y = some_rows(cell)
    networks = [cell.network(seed) for seed in (3, 4)]
    batch = Batch(networks, "cpu", torch.float64)
    outputs = batch(x)
    gradient = batch.gradient(outputs, loss_slopes(outputs, y))
    for index, network in enumerate(networks):
        module = network.to_torch(torch.float64)
        expected = module(x)
        if expected.shape[1] == 1:
            loss = torch.nn.functional.binary_cross_entropy_with_logits(expected[:, 0], y.double())
        else:
            loss = torch.nn.functional.cross_entropy(expected, y)
        loss.backward()
        torch.testing.assert_close(outputs[index], expected, rtol=1e-10, atol=1e-12)
        slopes = dict(module.named_parameters())
        wanted = torch.cat([slopes[name].grad.flatten() for name in network.state()])
        torch.testing.assert_close(gradient[index], wanted, rtol=1e-8, atol=1e-12)


def test_terms_are_those_of_the_layer() -> None:
    networks = [
        Sequential([HadamardDiagonal(12, 10, terms=6), Cos(), HadamardDiagonal(10, 3, terms=2)], seed)
        for seed in (0, 1)
    ]
    x = np.random.default_rng(2).uniform(-1, 1, (5, 12))
    outputs = Batch(networks, "cpu", torch.float64)(torch.from_numpy(x)).detach().numpy()
    for index, network in enumerate(networks):
        np.testing.assert_allclose(outputs[index], network(x), atol=1e-12)


@pytest.mark.parametrize("structure", STRUCTURES)
def test_a_model_that_is_not_finite_leaves_the_others_as_they_are(structure: str) -> None:
    cell = Cell("mnist", "square", structure)
    x, y = some_rows(cell)
    networks = [cell.network(seed) for seed in (0, 1, 2)]
    healthy, spoilt = (Batch(networks, "cpu", torch.float64) for _ in range(2))
    spoilt.parameters.data[1] = torch.nan
    first, second = healthy(x), spoilt(x)
    gradients = [b.gradient(o, loss_slopes(o, y)) for b, o in ((healthy, first), (spoilt, second))]
    assert second[1].isnan().all()
    for index in (0, 2):
        torch.testing.assert_close(second[index], first[index])
        torch.testing.assert_close(gradients[1][index], gradients[0][index])


def test_models_of_different_architecture_cannot_be_one_batch() -> None:
    with pytest.raises(ModelError, match="same architecture"):
        Batch([models.mlp([4, 2]), models.mlp([4, 3])], "cpu")
