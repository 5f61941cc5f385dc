"""The networks behind cells: what is varied changes, and everything else stays."""

from __future__ import annotations

from dataclasses import replace
from math import pi

import numpy as np
import pytest
import torch

from hdcos.errors import InputError
from hdcos.nn import HadamardDiagonal, RandomProjection
from hdcos.secure.estimate import estimate, total
from paper import results
from paper.cells import Cell
from paper.tasks import Task
from paper.trainer import Training

PLAIN = Cell("mnist", "cos", "hadamard")


def test_signs_change_the_diagonals_alone() -> None:
    before, after = (cell.network(3).state() for cell in (PLAIN, replace(PLAIN, initial="signs")))
    for name, array in after.items():
        if "diagonal" in name:
            assert set(np.unique(array)) == {-1.0, 1.0}
        else:
            np.testing.assert_array_equal(array, before[name])


def test_phases_fill_the_circle_before_activations_and_leave_the_output_alone() -> None:
    before, after = (cell.network(3).state() for cell in (PLAIN, replace(PLAIN, initial="phases")))
    *inner, last = [name for name in after if name.endswith("bias")]
    assert all(after[name].min() >= 0 and after[name].max() < 2 * pi for name in inner)
    assert max(after[name].max() for name in inner) > 5
    np.testing.assert_array_equal(after[last], 0)
    np.testing.assert_array_equal(after["0.weight"], before["0.weight"])


def test_a_projection_stands_before_the_first_hadamard_layer_and_makes_it_cheaper() -> None:
    model = replace(PLAIN, projection=64).network(0)
    index = next(i for i, layer in enumerate(model.layers) if isinstance(layer, RandomProjection))
    assert model.layers[index] == RandomProjection(400, 64)
    assert model.layers[index + 1] == HadamardDiagonal(64, 120)
    plain, projected = (total(estimate(network, 1)) for network in (PLAIN.network(0), model))
    assert projected.multiplications == plain.multiplications - (400 - 64)


def test_a_sum_over_the_batch_is_a_mean_at_a_larger_rate() -> None:
    rows = torch.from_numpy(np.random.default_rng(0).random((8, 28))).float()
    task = Task(rows, torch.arange(8) % 2, rows, torch.arange(8) % 2, classes=2, batch_size=8, epochs=1)
    cell = Cell("higgs", "cos", "hadamard", depth=1)
    summed, meant = Training(replace(cell, reduction="sum"), [0.01], 1, task), Training(cell, [0.08], 1, task)
    for training in (summed, meant):
        training.step(task.train_x, task.train_y)
    torch.testing.assert_close(summed.batch.parameters, meant.batch.parameters)


def test_rows_older_than_a_field_have_its_default() -> None:
    row = {"dataset": "mnist", "activation": "cos", "structure": "hadamard", "optimizer": "sgd", "depth": None}
    assert results.cell_of(row) == PLAIN


def test_what_cannot_be_is_named() -> None:
    with pytest.raises(InputError, match="'ones'"):
        replace(PLAIN, initial="ones").network(0)
    with pytest.raises(InputError, match="dense networks have none"):
        Cell("mnist", "cos", "dense", projection=64).network(0)


def test_the_last_two_activations_can_be_replaced_alone() -> None:
    kinds = [layer.kind for layer in Cell("mnist", "expm1", "hadamard", convolutions="relu").network(0).layers]
    assert kinds.count("ReLU") == 2
    assert kinds.count("ExpM1") == 2
    with pytest.raises(InputError, match="no activation after convolutions"):
        Cell("mnist", "none", "dense", convolutions="relu").network(0)


def test_circulant_weights_can_start_as_diagonals_do() -> None:
    usual, wide = (Cell("mnist", "cos", "circulant", initial=name).network(0) for name in ("default", "normal"))
    key = next(key for key, array in usual.state().items() if key.endswith("weight") and array.ndim == 1)
    assert wide.state()[key].std() == pytest.approx(1, abs=0.2)
    assert usual.state()[key].std() < 0.2
