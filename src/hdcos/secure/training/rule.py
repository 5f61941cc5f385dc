"""What a step makes of a gradient: learning rate, momentum, weight decay; and the mean of weights. All local.

Weights move as in PyTorch's SGD: v <- mu v + g + decay w, w <- w - rate v. The velocity is not kept: as v is the last
change of w over the last rate, rate mu v = mu rate / (last rate) * (w before - w), and both come from the rounded
copies that were opened under masks anyway. A rate is applied as a public integer factor; where that has few bits, it
alternates between two integers so that its mean is exact. Nothing is truncated.

A change is a sum over the rows of a batch. Several pairs of workers may each take a part of them: what their parts
change is added up, in the ring and therefore exactly. One of them adds momentum and decay, from copies of its own.

The mean of weights over the last epochs is made of these copies too: weights fill their ring, so that two of them could
not be added, while 2**20 copies can. Each copy is rounded by less than 2**-WEIGHT_SCALE without bias, differently in
every step, and the sum is divided once, by a public factor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import floor, frexp, isfinite

from hdcos.checks import check_whole
from hdcos.errors import InputError
from hdcos.ring import Array
from hdcos.sharing import Share
from hdcos.sharing.share import ring_word

LEAST_FACTOR = 1 / 16
"""Below that a parameter would move in fewer than one of 16 steps."""
LEAST_AMPLITUDE = 2.0**7
"""A rate on a table of cosines keeps seven bits at least."""
BEFORE = " before"
"""Names the rounded copy of a parameter of one step ago."""
SUM = " sum"
"""Names the sum of the rounded copies of a parameter."""
BEST = " best"
"""Names a parameter as it was after the best epoch so far."""
MEAN_BITS = 32
"""A mean is a sum times 2**MEAN_BITS over how many were added, rounded to an integer."""


@dataclass(frozen=True)
class Rule:
    """The numbers of one step, known to both parties."""

    rate: float
    momentum: float = 0.0
    decay: float = 0.0
    last_rate: float | None = None
    """The rate of the step before; None in the first step."""
    number: int = 0
    """How many steps came before."""
    scale_diagonals: bool = True
    """Whether diagonals move at their own rate, sqrt(n) times the others' (`nn.Layer.rate_factors` says why)."""
    averaged: bool = False
    """Whether the rounded copies of the parameters are wanted: a mean of the weights is made of them (`mean`)."""
    batch: int | None = None
    """The rows of the whole batch, where this step sees a part of them."""
    leads: bool = True
    """Whether this part of a step adds momentum and decay."""

    def __post_init__(self) -> None:
        if not (isfinite(self.rate) and self.rate > 0):
            raise InputError(f"a learning rate is a positive number, got {self.rate}")
        if not 0 <= self.momentum < 1:
            raise InputError(f"momentum is a number from 0 to below 1, got {self.momentum}")
        if not (isfinite(self.decay) and self.decay >= 0):
            raise InputError(f"weight decay is a number of at least 0, got {self.decay}")

    @property
    def inertial(self) -> bool:
        """Whether the parameters themselves are needed, which must then be known at a lower scale."""
        return self.momentum > 0 or self.decay > 0 or self.averaged

    def rate_of(self, factor: float) -> float:
        """The rate of a parameter whose layer asks for a public factor."""
        return self.rate * factor if self.scale_diagonals else self.rate

    def check_factor(self, value: float, name: str) -> float:
        """A public factor that is large enough for a parameter to move."""
        if value < LEAST_FACTOR:
            raise self._too_small(name, LEAST_FACTOR / value)
        return value

    def dither(self, value: float) -> int:
        """The integer below or above, such that the mean over many steps is the value."""
        return floor(value * (self.number + 1)) - floor(value * self.number)

    def _too_small(self, name: str, times: float) -> InputError:
        return InputError(
            f"a learning rate of {self.rate:g} is too small for {name}: its steps would be lost in rounding. "
            f"The smallest it can take is {self.rate * times:.2g}"
        )

    def on_cosine(self, amplitude: float, trig_scale: int, index: int) -> tuple[int, int]:
        """A factor on a table of cosines, as an integer and the shift that undoes the table's scale."""
        if amplitude < LEAST_AMPLITUDE:
            raise self._too_small(f"layer {index}", LEAST_AMPLITUDE / amplitude)
        extra = max(0, 31 - frexp(amplitude)[1])
        return round(amplitude * 2.0**extra), trig_scale + extra


@dataclass(frozen=True, eq=False)
class Step:
    """What a batch moves a parameter by: these words, times a factor that each step rounds in its own way."""

    words: Array = field(repr=False)
    factor: float | None = None

    def rounded(self, rule: Rule) -> Array:
        """At the parameter's scale."""
        return self.words if self.factor is None else self.words * ring_word(rule.dither(self.factor))


def changes(
    state: Mapping[str, Share],
    rule: Rule,
    steps: Mapping[str, Step],
    copies: Mapping[str, Share],
    factors: Mapping[str, float],
) -> dict[str, Array]:
    """What a step adds to each parameter, at its scale. Weight decay follows a parameter's rate."""
    added: dict[str, Array] = {}
    for name, step in steps.items():
        words = -step.rounded(rule)
        if rule.inertial and rule.leads:
            copy = copies[name]
            gain = 2.0 ** (state[name].scale - copy.scale)
            if rule.momentum and rule.last_rate is not None:
                moved = copy - state[name + BEFORE]
                words = words + (moved * rule.dither(rule.momentum * rule.rate / rule.last_rate * gain)).words
            if rule.decay:
                words = words - (copy * rule.dither(rule.rate_of(factors[name]) * rule.decay * gain)).words
        added[name] = words
    return added


def apply(
    state: Mapping[str, Share], rule: Rule, added: Mapping[str, Array], copies: Mapping[str, Share]
) -> dict[str, Share]:
    """The parameters after a step; with momentum or a mean, the rounded copies that it began with too."""
    after: dict[str, Share] = {}
    for name, words in added.items():
        share = state[name]
        if rule.momentum or rule.averaged:
            after[name + BEFORE] = copies[name]
        after[name] = Share(share.words + words, share.scale, share.bits)
    return after


def first_averaged(average: int, epochs: int) -> int:
    """The first of the last epochs whose mean the trained weights are; the number of epochs if there is none."""
    if check_whole(average, "average", 0) > epochs:
        raise InputError(f"a run of {epochs} epochs has no {average} over which weights could be averaged")
    return epochs - average


def mean(total: Share, count: int) -> Share:
    """The mean of as many copies, from their sum; exact but for one part in 2**(MEAN_BITS + 1) / count."""
    return (total * round(2.0**MEAN_BITS / count)).rescaled(total.scale + MEAN_BITS)
