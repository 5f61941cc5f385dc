"""Training of small tasks: it learns, scales with the learning rate of each model, and reports divergence."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from hdcos.errors import InputError
from paper.cells import Cell
from paper.optimizers import optimizer
from paper.tasks import Task
from paper.trainer import train


@pytest.fixture
def task() -> Task:
    """Rows of 28 numbers whose label is the sign of the first."""
    x = np.random.default_rng(0).standard_normal((600, 28)).astype(np.float32)
    y = (x[:, 0] > 0).astype(np.int64)
    tensors = [torch.from_numpy(part) for part in (x[:512], y[:512], x[512:], y[512:])]
    return Task(*tensors, classes=2, batch_size=32, epochs=40)


@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_training_learns_a_simple_rule(task: Task, name: str) -> None:
    ((run,),) = train([Cell("higgs", "cos", "dense", name, depth=0)], task, [0.1], 1, 10)
    assert run.value > 0.9
    assert run.diverged_at is None
    assert run.curve[10] == run.value


def test_runs_do_not_depend_on_the_cells_and_rates_beside_them(task: Task) -> None:
    cell = Cell("higgs", "relu", "hadamard", depth=2)
    other = Cell("higgs", "expm1", "dense", "adam", depth=1)
    ((alone,),) = train([cell], task, [0.05], 1, 3)
    _, (_, beside) = train([other, cell], task, [0.5, 0.05], 1, 3)
    assert beside == alone


def test_a_model_that_diverges_scores_as_chance_and_says_when(task: Task) -> None:
    wild = replace(task, train_x=task.train_x * 100)
    (runs,) = train([Cell("higgs", "square", "dense", depth=2)], wild, [1e-12, 0.5], 2, 2)
    tame, diverged = runs[:2], runs[2:]
    assert [run.seed for run in runs] == [0, 1, 0, 1]
    assert all(run.diverged_at is None for run in tame)
    assert all((run.diverged_at, run.value, run.curve) == (1, 0.5, {}) for run in diverged)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("sgd", torch.optim.SGD),
        ("momentum", partial(torch.optim.SGD, momentum=0.9)),
        ("adam", torch.optim.Adam),
    ],
)
def test_optimisers_step_like_those_of_pytorch(name: str, kind: type[torch.optim.Optimizer]) -> None:
    generator = torch.Generator().manual_seed(1)
    rates = torch.tensor([0.3, 0.01], dtype=torch.float64)
    parameters = torch.randn(2, 5, generator=generator, dtype=torch.float64)
    copies = [torch.nn.Parameter(row.clone()) for row in parameters]
    theirs = [kind([copy], lr=float(rate)) for copy, rate in zip(copies, rates, strict=True)]  # type: ignore[call-arg]
    ours = optimizer(name, parameters, rates[:, None])
    for _ in range(4):
        gradient = torch.randn(2, 5, generator=generator, dtype=torch.float64)
        ours.step(gradient)
        for copy, their, row in zip(copies, theirs, gradient, strict=True):
            copy.grad = row.clone()
            their.step()
    torch.testing.assert_close(parameters, torch.stack([copy.detach() for copy in copies]))


def test_an_unknown_optimiser_is_named() -> None:
    with pytest.raises(InputError, match="'rmsprop'"):
        optimizer("rmsprop", torch.zeros(1, 1), torch.zeros(1))
