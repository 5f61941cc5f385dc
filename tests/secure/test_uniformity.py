"""Everything a training step opens is uniform, whatever data, labels and weights are; and what a comparison opens."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest

from chi_square import p_value
from hdcos import nn
from hdcos.secure.training import Rule, TrainingPlan, sgd_step, training_plan
from hdcos.secure.training.plan import INPUT_SCALE, TARGET_SCALE
from hdcos.testing.pair import Opened, share_pair, simulate, simulate_transcript

PLANS = {
    "diagonal": training_plan(nn.models.mlp([8, 8, 8, 2])),
    "terms, softmax": training_plan(
        nn.Sequential([layer for out in (8, 8, 3) for layer in (nn.HadamardDiagonal(8, out, terms=3), nn.Cos())][:-1]),
        "softmax",
    ),
    "dense": training_plan(nn.models.mlp([8, 8, 2], "cos", "dense")),
    "mixed": training_plan(
        nn.Sequential([nn.Dense(8, 8), nn.Cos(), nn.HadamardDiagonal(8, 8, terms=3), nn.Tanh(), nn.Dense(8, 2)])
    ),
    "images": training_plan(
        nn.Sequential(
            [nn.Conv2d(1, 2, 3, padding=1), nn.Cos(), nn.AvgPool2d(2), nn.Flatten(), nn.HadamardDiagonal(8, 2)],
            0,
            (1, 4, 4),
        )
    ),
}
RUNS = 12


def openings(training: TrainingPlan, weight: int, data: int) -> list[list[Opened]]:
    """What several steps on constant secrets opened."""
    observed = []
    for _ in range(RUNS):
        pairs = [share_pair(np.full(t.shape, weight, np.uint64), t.scale, t.bits) for t in training.tensors]
        x = share_pair(np.full((64, prod(training.input_shape)), data, np.uint64), INPUT_SCALE)
        targets = share_pair(np.full((64, training.outputs), data, np.uint64), TARGET_SCALE)

        def program(party, *shares):
            state = {t.name: share for t, share in zip(training.tensors, shares, strict=False)}
            return (yield from sgd_step(party, training, state, shares[-2], shares[-1], Rule(0.5, 0.9)))

        _, transcript = simulate(program, *pairs, x, targets)
        observed.append([part for round_ in transcript.rounds for part in round_])
    return observed


def least_p(samples: list[tuple[np.ndarray, int]]) -> float:
    worst = 1.0
    for values, bits in samples:
        size = min(3, bits)
        for shift in {0, (bits - size) // 2, bits - size}:
            window = (values.astype(np.uint64) >> np.uint64(shift)) & np.uint64((1 << size) - 1)
            worst = min(worst, p_value(np.bincount(window.astype(int), minlength=1 << size)))
    return worst


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("secret", [0, 2**64 - 1, 2**40 + 12345])
def test_openings_of_a_step_and_their_differences_are_uniform(name: str, secret: int) -> None:
    training = PLANS[name]
    runs, others = openings(training, secret, secret), openings(training, 0, 0)
    parts = range(len(runs[0]))
    singles = [(np.concatenate([run[i].values.ravel() for run in runs]), runs[0][i].bits) for i in parts]
    pairs = list(zip(runs, others, strict=True))
    between = [
        (np.concatenate([(a[i].values - b[i].values).ravel() for a, b in pairs]), runs[0][i].bits) for i in parts
    ]
    assert least_p(singles) > 1e-9
    assert least_p(between) > 1e-9


def test_a_step_opens_as_many_values_as_it_has_masks_for() -> None:
    """Weights, rows, phases, loss, gradients: every opening has material of its own, used once."""
    training = PLANS["diagonal"]
    (run,) = [openings(training, 3, 5)[0]]
    layers = len(training.blocks)
    # All weights, rows and, for the momentum, biases; other weights again; phases; loss; one gradient per layer.
    assert len(run) == (1 + 1 + layers) + 1 + (layers - 1) + 1 + layers


@pytest.mark.parametrize("pixel", [0.0, -1.5, 1.5])
def test_openings_of_a_network_that_compares_are_uniform_whatever_the_signs(pixel: float) -> None:
    """Behind the first layer all values have one sign, or none: neither comparisons nor products may show it."""
    layers = [nn.Conv2d(1, 2, 2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Dense(8, 8), nn.LeakyReLU(0.5)]
    model = nn.Sequential([*layers, nn.Dense(8, 3)], input_shape=(1, 5, 5))
    model = model.with_state({name: np.full_like(values, 0.25) for name, values in model.state().items()})
    x = np.full((400, 1, 5, 5), pixel)
    (first, _), (second, other) = (simulate_transcript(model, x, masked=False) for _ in range(2))
    assert (np.abs(first - model(x)) < 0.02).all()
    assert (np.abs(second - model(x)) < 0.02).all()
    opened = [part for round_ in other.rounds for part in round_]
    assert len(opened) == 1 + 3 + 6 + 1 + 3 + 1
    assert least_p([(part.values.ravel(), part.bits) for part in opened]) > 1e-9


@pytest.mark.parametrize("feature", [0.0, -1.5, 1.5])
def test_openings_of_a_graph_are_uniform_whatever_is_added_or_read_twice(feature: float) -> None:
    """The rows are read by three layers, a sum by two products for which it is opened once, and one by a cosine."""
    layers = [nn.Dense(4, 4), nn.ReLU(), nn.Dense(4, 4), nn.Add(), nn.Dense(4, 4), nn.Dense(4, 4), nn.Add(), nn.Add()]
    inputs = [[0], [1], [2], [3, 0], [4], [4], [5, 6], [7, 4, 0]]
    model = nn.Graph([*layers, nn.Affine(4), nn.Cos(), nn.Add()], [*inputs, [8], [9], [10, 9]])
    model = model.with_state({name: np.full_like(values, 0.25) for name, values in model.state().items()})
    x = np.full((1500, 4), feature)
    outputs, transcript = simulate_transcript(model, x, masked=False)
    assert (np.abs(outputs - model(x)) < 0.02).all()
    opened = [part for round_ in transcript.rounds for part in round_]
    assert len(opened) == 1 + 3 + 1 + 1 + 2 + 1  # rows, ReLU, its product, the sum for two, one rounded, the cosine
    assert least_p([(part.values.ravel(), part.bits) for part in opened]) > 1e-9
