"""The NumPy trainer of the demo is PyTorch's SGD."""

import numpy as np
import pytest
import torch

from hdcos import nn
from hdcos.errors import ModelError
from hdcos.secure.training.plain import plain_fit

LAYERS = [nn.HadamardDiagonal(6, 8), nn.Cos(), nn.HadamardDiagonal(8, 4), nn.Cos(), nn.Dense(4, 3)]
RECTIFIED = [nn.Dense(6, 8), nn.ReLU(), nn.HadamardDiagonal(8, 4), nn.LeakyReLU(0.2), nn.Dense(4, 3)]
TERMS = [nn.HadamardDiagonal(6, 8, terms=5), nn.Cos(), nn.HadamardDiagonal(8, 3, terms=2)]


@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize("layers", [LAYERS, TERMS, RECTIFIED], ids=["one term", "terms", "relu"])
def test_it_takes_the_steps_of_autograd(layers: list, scaled: bool) -> None:
    model = nn.Sequential(layers, seed=2)
    generator = np.random.default_rng(0)
    x, targets = generator.normal(size=(40, 6)), np.eye(3)[generator.integers(0, 3, 40)]
    trained = plain_fit(model, x, targets, 3, 10, lambda epoch: 0.5 / (1 + epoch), 7, scaled, momentum=0.9)
    module = model.to_torch(torch.float64)
    optimizer = torch.optim.SGD(nn.parameter_groups(module, 0.5, scaled), momentum=0.9)
    first = [group["lr"] for group in optimizer.param_groups]
    for epoch in range(3):
        for group, rate in zip(optimizer.param_groups, first, strict=True):
            group["lr"] = rate / (1 + epoch)
        order = np.random.default_rng([7, epoch]).permutation(40)
        for start in range(0, 40, 10):
            rows = order[start : start + 10]
            loss = torch.nn.functional.binary_cross_entropy_with_logits(
                module(torch.from_numpy(x[rows])), torch.from_numpy(targets[rows]), reduction="sum"
            )
            optimizer.zero_grad()
            (loss / 10).backward()
            optimizer.step()
    expected = nn.from_torch(module).state()
    for name, value in trained.state().items():
        np.testing.assert_allclose(value, expected[name], atol=1e-12)


def test_other_layers_are_pytorch_s_business() -> None:
    with pytest.raises(ModelError, match="LowRank"):
        plain_fit(
            nn.models.mlp([4, 2], structure="low_rank"), np.zeros((2, 4)), np.zeros((2, 2)), 1, 1, lambda _: 0.1, 0
        )
