"""The kernels of every instruction set this host runs, and random ring words."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hdcos.ring import reference

try:
    from hdcos.ring import _native

    LEVELS = {level: _native.Kernels(level) for level in _native.levels()}
except ImportError:  # nothing was compiled here: the reference stands for itself
    LEVELS = {"reference": reference}


@pytest.fixture(params=LEVELS.values(), ids=LEVELS.keys())
def kernels(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def words() -> Callable[..., np.ndarray]:
    rng = np.random.default_rng(20240607)

    def draw(*shape: int, bits: int = 64) -> np.ndarray:
        return rng.integers(0, 2**bits, shape, dtype=np.uint64)

    return draw
