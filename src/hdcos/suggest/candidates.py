"""What is tried: networks from a single layer (logistic or linear regression) to two hidden ones, and their rates.

Where others have features of the same rows, only the caller's own are tried, and `whole` is what is trained: the first
layer takes all features, a Hadamard-Diagonal one is as wide as they need. The curvature of a loss grows with what a
layer reads, so the rate of a network falls by the part of the features that were tried, or of its width. A single
layer's is at most what is stable for all features, of variance 1: a larger one may have done well on few of them.
Epochs are more where a rate became smaller than that part of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import product
from math import ceil, inf, sqrt

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
STABLE = {"squared": 1.0, "logistic": 4.0, "softmax": 4.0}
"""Over one more than the features, and for softmax over the classes: a rate that is stable with momentum and batches.
Features of variance 1 give a squared loss a curvature of at most their number, a logistic one of a quarter of that."""


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
    others: int = 0
    """Features of other owners, which stand beside those that are tried."""

    @property
    def average(self) -> int:
        """The last epochs, half of them, whose mean the weights are: the noise of batches cancels, at no cost."""
        return averaged_epochs(self.epochs)

    @property
    def single(self) -> bool:
        """Whether it is one layer alone."""
        return len(self.sizes) == 2

    @property
    def kind(self) -> str:
        """What one would call it."""
        if not self.single:
            hidden = " and ".join(map(str, self.sizes[1:-1]))
            return f"a {self.structure} cosine network with {hidden} hidden units"
        return "linear regression" if self.loss == "squared" else "logistic regression"

    def network(self, seed: int = 0) -> nn.Sequential:
        return nn.models.mlp(self.sizes, "cos", self.structure, seed)

    @cached_property
    def price(self) -> LayerCost:
        """Of one private prediction, by all features."""
        return total(estimate(self.whole.network()))

    @property
    def possible(self) -> bool:
        """Whether it can be trained on shares, as it is tried and as a whole: its steps are not lost in rounding."""
        both = (self, self.whole)
        return all(_least(each.sizes, each.structure, each.batch_size, each.loss) <= each.lr for each in both)

    @property
    def whole(self) -> Candidate:
        """With the features of other owners."""
        if not self.others:
            return self
        tried, *hidden, outputs = self.sizes
        features = tried + self.others
        part, epochs = tried / features, self.epochs
        if self.single:
            stable = STABLE[self.loss] / (1 + features) / (outputs if self.loss == "softmax" else 1)
            lr = min(self.lr, stable)
            epochs = ceil(epochs * max(1.0, self.lr * part / lr))
        elif self.structure == "hadamard":
            width = hadamard_width(features)
            lr, hidden = self.lr * hidden[0] / width, [width] * len(hidden)
        else:
            lr = self.lr * part
        rounded = float(f"{lr:.3g}")
        return replace(self, sizes=(features, *hidden, outputs), lr=rounded, epochs=epochs, others=0)

    @property
    def room(self) -> float:
        """What the logits of a single layer may grow by when others' features are added to it, each as much as one of
        those that are tried and apart from them."""
        return sqrt(self.whole.sizes[0] / self.sizes[0]) if self.single else 1.0

    def lasting(self, epochs: int) -> Candidate:
        return replace(self, epochs=epochs)


@cache
def _least(sizes: tuple[int, ...], structure: str, batch: int, loss: str) -> float:
    """The smallest rate that a network can be trained with on shares; infinite if it cannot be."""
    try:
        return least_rate(nn.models.mlp(sizes, "cos", structure), batch, loss, MOMENTUM)
    except ModelError:
        return inf


def averaged_epochs(epochs: int) -> int:
    """How many of the last epochs of a run are averaged over."""
    return epochs // 2


def hadamard_width(features: int) -> int:
    """Of a Hadamard-Diagonal layer that takes these features."""
    return 1 << max(3, (features - 1).bit_length())


def candidates(
    features: int, outputs: int, losses: tuple[str, ...], rows: int, scaled: bool, others: int = 0
) -> Iterator[Candidate]:
    """All that are tried; the simplest and cheapest networks first. `scaled` rows need no other scale."""
    batch = LARGE if rows >= MANY_ROWS else min(SMALL, max(1, rows // LEAST_STEPS))
    width = hadamard_width(features)
    shapes = [((), "dense"), ((16,), "dense"), ((32,), "dense")]
    if hadamard_width(features + others) <= 1024:
        shapes += [((width,), "hadamard"), ((width, width), "hadamard")]
    # Numbers to be guessed may be of any size: unless they are small, they are scaled with the columns.
    scales = (NONE,) if scaled else (STANDARD,) if losses == ("squared",) else (STANDARD, NONE)
    for scale, loss, (hidden, structure), decay, rate in product(scales, losses, shapes, DECAYS, RATES):
        sizes = (features, *hidden, outputs)
        known = Candidate(sizes, structure, loss, rate, batch, decay, scale=scale, others=others)
        if known.possible:
            yield known
