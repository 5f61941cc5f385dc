"""Everything a training step opens is uniform, whatever the data, the labels and the weights are."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from hdcos import nn
from hdcos.protocol.simulate import Opened, share_pair, simulate
from hdcos.train import sgd_step, training_form
from hdcos.train.form import INPUT_SCALE, TARGET_SCALE

FORM = training_form(nn.models.mlp([8, 8, 8, 2], "cos", "hadamard"))
RUNS = 12


def openings(weight: int, data: int) -> list[list[Opened]]:
    """What several steps on constant secrets opened."""
    observed = []
    for _ in range(RUNS):
        pairs = [share_pair(np.full(t.shape, weight, np.uint64), t.scale) for t in FORM.tensors]
        x = share_pair(np.full((64, 8), data, np.uint64), INPUT_SCALE)
        targets = share_pair(np.full((64, 2), data, np.uint64), TARGET_SCALE)

        def program(party, *shares):
            state = {t.name: share for t, share in zip(FORM.tensors, shares, strict=False)}
            return (yield from sgd_step(party, FORM, state, shares[-2], shares[-1], 0.5))

        _, transcript = simulate(program, *pairs, x, targets)
        observed.append([part for round_ in transcript.rounds for part in round_])
    return observed


def least_p(samples: list[tuple[np.ndarray, int]]) -> float:
    worst = 1.0
    for values, bits in samples:
        for shift in {0, (bits - 3) // 2, bits - 3}:
            window = (values.astype(np.uint64) >> np.uint64(shift)) & np.uint64(7)
            worst = min(worst, stats.chisquare(np.bincount(window.astype(int), minlength=8)).pvalue)
    return worst


@pytest.mark.parametrize("secret", [0, 1, 2**64 - 1, 2**40 + 12345])
def test_openings_of_a_step_and_their_differences_are_uniform(secret: int) -> None:
    runs, others = openings(secret, secret), openings(0, 0)
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
    (run,) = [openings(3, 5)[0]]
    layers = len(FORM.layers)
    # Weights and rows; other weights again and the first phase; phases; loss; error and gradient; two per cosine layer.
    assert len(run) == (layers + 1) + (layers - 1 + 1) + (layers - 2) + 1 + 2 + 2 * (layers - 1)
