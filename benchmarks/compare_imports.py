"""Networks that were made elsewhere: random PyTorch modules, imported and computed on shares, or refused by name."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np
import torch

from benchmarks.random_modules import Generator
from benchmarks.record import Line, at_most, exactly
from hdcos import nn
from hdcos.errors import HdcosWarning, ModelError
from hdcos.testing.bounds import error_bound
from hdcos.testing.pair import simulate_private

IMPORTED, REFUSED, ROWS = 200, 50, 3


def prove_imports(seed: int) -> Iterator[Line]:
    """The plaintext network against PyTorch, and the network on shares against the bound that follows from its bits."""
    apart, over, wrong = 0.0, 0.0, 0
    for number in range(IMPORTED):
        module, shape = Generator(seed + number).module()
        x = np.random.default_rng([seed, number]).normal(size=(ROWS, *shape))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", HdcosWarning)
            model = nn.from_torch(module, x).calibrate(x).model
        expected = module[0](torch.from_numpy(x)).detach().numpy()
        apart = max(apart, float(np.abs(model(x) - expected).max()))
        over = max(over, float((np.abs(simulate_private(model, x) - model(x)) / error_bound(model, x)).max()))
    yield at_most(f"{IMPORTED} random PyTorch modules, imported: largest difference from PyTorch in float64", apart, 1e-9)
    yield at_most(f"{IMPORTED} random PyTorch modules, on shares: largest error over its derived bound", over, 1.0)
    for number in range(REFUSED):
        module, shape, name = Generator(seed + number).spoilt()
        try:
            nn.from_torch(module, shape)
        except ModelError as error:
            wrong += f"({name})" not in str(error)
        else:
            wrong += 1
    yield exactly(f"of {REFUSED} modules with an unsupported part: not refused by its name", wrong, 0)
