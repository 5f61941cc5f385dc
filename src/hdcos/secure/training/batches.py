"""Which rows a step is made of: public indices, the same for both parties and for plaintext training."""

from __future__ import annotations

import numpy as np

from hdcos.ring import Array


def batches(seed: int, epoch: int, rows: int, batch: int) -> list[Array]:
    """The rows of each step of an epoch: a fresh shuffle of all, cut into whole batches; what is left over sits out."""
    order = np.random.default_rng([seed, epoch]).permutation(rows)
    return [order[start : start + batch] for start in range(0, rows - batch + 1, batch)]
