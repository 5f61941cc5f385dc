"""Intervals of series: an imported network on a real cluster before and after calibration, and scales at random."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np
import torch

import hdcos
from benchmarks.record import Line, at_least, at_most, exactly
from hdcos import nn
from hdcos.errors import HdcosWarning
from hdcos.secure.calibrate import MARGIN, intervals
from hdcos.testing.bounds import error_bound
from hdcos.testing.pair import simulate_private

NETWORKS = 600
ROWS = 2000


def prove(seed: int) -> Iterator[Line]:
    yield from imported(seed)
    yield from any_scale(seed)
    yield from cost()


def imported(seed: int) -> Iterator[Line]:
    """A PyTorch network whose two layers of tanh are reached by values up to 30, calibrated on half the rows."""
    x = np.random.default_rng(seed).uniform(-1, 1, (2 * ROWS, 32))
    torch.manual_seed(seed)
    parts = [
        torch.nn.Linear(32, 64),
        torch.nn.Tanh(),
        torch.nn.Linear(64, 64),
        torch.nn.Tanh(),
        torch.nn.Linear(64, 10),
    ]
    module = torch.nn.Sequential(*parts).double()
    with torch.no_grad():
        for end in (1, 3):
            factor = 30.0 / module[:end](torch.from_numpy(x[:ROWS])).abs().max()
            module[end - 1].weight *= factor
            module[end - 1].bias *= factor
    with warnings.catch_warnings(record=True) as said, hdcos.local() as cluster:
        warnings.simplefilter("always", HdcosWarning)
        model = nn.from_torch(module)
        folded = np.abs(cluster.share(model).predict(x[ROWS:]) - model(x[ROWS:])).max()
        told = sum("assumed |x| <= 4" in str(warning.message) for warning in said)
        private = cluster.share(model, calibrate=x[:ROWS])
        assert private.calibration is not None
        error = np.abs(private.predict(x[ROWS:]) - model(x[ROWS:]))
        silent = len(said) - told
    bound = error_bound(private.calibration.model, x[ROWS:])
    yield exactly("warnings with the assumed interval, from from_torch and share, and others", (told, silent), (2, 0))
    yield at_least("tanh reached by 30, assumed interval of 4: largest error of a logit", float(folded), 0.5)
    yield at_most("the same calibrated on other rows: largest error of a logit", float(error.max()), 2e-2)
    yield exactly("logits outside their bound", int((error > bound).sum()), 0)


def any_scale(seed: int) -> Iterator[Line]:
    """Networks whose values are of any size that series exist for; rows that bring up to the margin more."""
    outside = 0
    for number in range(NETWORKS):
        generator = np.random.default_rng([seed, number])
        kind = (nn.Tanh, nn.Sigmoid, nn.ExpM1)[number % 3]
        structure = (nn.Dense, nn.HadamardDiagonal, nn.Circulant)[number // 3 % 3]
        largest = float(np.exp(generator.uniform(np.log(0.5), np.log(kind().intervals[-1] / MARGIN))))
        model = nn.Sequential([structure(12, 8), kind(), nn.Dense(8, 3)], seed=number)
        x = generator.uniform(-1, 1, (40, 12))
        state = model.state()
        factor = largest / np.abs(model.layers[0].forward(model.parameters(0), x)).max()
        model = model.with_state({name: a * factor if name.startswith("0.") else a for name, a in state.items()})
        calibrated = model.calibrate(x).model
        rows = np.concatenate([x[:8], (1.0 if kind is nn.ExpM1 else 0.99 * MARGIN) * x[:8]])
        outside += int((np.abs(simulate_private(calibrated, rows) - model(rows)) > error_bound(calibrated, rows)).sum())
    yield exactly(f"outputs of {NETWORKS} calibrated networks outside their bound", outside, 0)


def cost() -> Iterator[Line]:
    """Material of one value by interval: it grows with the harmonics, and they with the interval."""
    narrow, bytes_of = None, {}
    for interval in nn.Tanh().intervals:
        (series,), _ = intervals(nn.Sequential([nn.Tanh(interval=interval)], input_shape=(1,)))
        narrow = narrow or series
        bytes_of[f"{interval}: {series.harmonics} harmonics"] = series.material_bytes
    assert narrow is not None
    expected = {name: narrow.material_bytes << number for number, name in enumerate(bytes_of)}
    yield exactly("bytes of material of one tanh by interval", bytes_of, expected)
