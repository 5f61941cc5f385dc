"""What is tried: networks from a single layer (logistic or linear regression) to two hidden ones, and their rates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import product
from math import inf

from hdcos import nn
from hdcos.errors import ModelError
from hdcos.secure.estimate import LayerCost, estimate, total
from hdcos.secure.training.rates import least_rate
from hdcos.suggest.scaling import NONE, STANDARD

RATES = (0.01, 0.03, 0.1, 0.3)
DECAYS = (0.0, 0.002, 0.01)
MOMENTUM = 0.9
SMALL, LARGE = 32, 128
"""Rows of a batch; the large one where there are many."""
MANY_ROWS = 5000
LEAST_STEPS = 10
"""Of an epoch: smaller tables take smaller batches."""


@dataclass(frozen=True)
class Candidate:
    """Settings of a run, as a configuration has them."""

    sizes: tuple[int, ...]
    structure: str
    loss: str
    lr: float
    batch_size: int
    weight_decay: float = 0.0
    momentum: float = MOMENTUM
    scale: str = STANDARD
    epochs: int = 1

    @property
    def kind(self) -> str:
        """What one would call it."""
        if len(self.sizes) > 2:
            hidden = " and ".join(map(str, self.sizes[1:-1]))
            return f"a {self.structure} cosine network with {hidden} hidden units"
        return "linear regression" if self.loss == "squared" else "logistic regression"

    def network(self, seed: int = 0) -> nn.Sequential:
        return nn.models.mlp(self.sizes, "cos", self.structure, seed)

    @cached_property
    def price(self) -> LayerCost:
        """Of one private prediction."""
        return total(estimate(self.network()))

    @property
    def possible(self) -> bool:
        """Whether it can be trained on shares: its steps are not lost in rounding."""
        return _least(self.sizes, self.structure, self.batch_size, self.loss) <= self.lr

    def lasting(self, epochs: int) -> Candidate:
        return replace(self, epochs=epochs)


@cache
def _least(sizes: tuple[int, ...], structure: str, batch: int, loss: str) -> float:
    """The smallest rate that a network can be trained with on shares; infinite if it cannot be."""
    try:
        return least_rate(nn.models.mlp(sizes, "cos", structure), batch, loss, MOMENTUM)
    except ModelError:
        return inf


def candidates(features: int, outputs: int, losses: tuple[str, ...], rows: int, scaled: bool) -> Iterator[Candidate]:
    """All that are tried; the simplest and cheapest networks first. `scaled` rows need no other scale."""
    batch = LARGE if rows >= MANY_ROWS else min(SMALL, max(1, rows // LEAST_STEPS))
    width = 1 << max(3, (features - 1).bit_length())
    shapes = [((), "dense"), ((16,), "dense"), ((32,), "dense")]
    if width <= 1024:
        shapes += [((width,), "hadamard"), ((width, width), "hadamard")]
    # Numbers to be guessed may be of any size: unless they are small, they are scaled with the columns.
    scales = (NONE,) if scaled else (STANDARD,) if losses == ("squared",) else (STANDARD, NONE)
    for scale, loss, (hidden, structure), decay, rate in product(scales, losses, shapes, DECAYS, RATES):
        known = Candidate((features, *hidden, outputs), structure, loss, rate, batch, decay, scale=scale)
        if known.possible:
            yield known
