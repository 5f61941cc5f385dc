"""Learning rates of a run, epoch by epoch: how they rise and fall, and none below what the arithmetic can take.

A rate is a public integer factor on a gradient at a fixed scale: below some rate it would move nothing. Schedules that
fall towards zero pass that point near their end, where steps are small anyway; the least rate takes their place there.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from math import cos, isfinite, pi

from hdcos.checks import check_whole
from hdcos.errors import InputError, RateRaised
from hdcos.nn import Network
from hdcos.secure.training.rule import LEAST_AMPLITUDE, LEAST_FACTOR, Rule
from hdcos.secure.training.step import plan_rule

Rate = float | Callable[[int], float]
Schedule = str | Callable[[int], float] | None
SCHEDULES: dict[str, Callable[[float], float]] = {
    "constant": lambda done: 1.0,
    "cosine": lambda done: 0.5 * (1 + cos(pi * done)),
    "linear": lambda done: 1.0 - done,
}
"""Shapes by name: what is left of a rate when a part of the epochs is done."""


def epoch_rates(
    model: Network,
    loss: str,
    batch: int,
    lr: Rate,
    schedule: Schedule,
    epochs: int,
    momentum: float,
    decay: float,
    scale_diagonals: bool = True,
    warm_up: int = 0,
    weighted: bool = False,
) -> list[float]:
    """The rate of each epoch: `lr` is a number or a function of the epoch, times what `rate_factors` says.

    A first rate that is too small is refused; rates that fall below the least one are raised to it, with a warning.
    """
    factors = rate_factors(schedule, warm_up, epochs)
    wanted = [_rate(lr, factor, epoch) for epoch, factor in enumerate(factors)]
    Rule(max(wanted), momentum, decay)  # refuses bad numbers
    least = least_rate(model, batch, loss, momentum, decay, scale_diagonals, weighted)
    if max(wanted) < least:
        raise InputError(
            f"a learning rate of {max(wanted):g} is too small for batches of {batch} rows of this network: its steps "
            f"would be lost in rounding. The smallest it can take is {least:.2g}"
        )
    low = [epoch for epoch, rate in enumerate(wanted) if rate < least]
    if low:
        warnings.warn(
            f"the learning rate falls to {min(wanted):.2g} and is kept at {least:.2g} in {len(low)} of {epochs} epochs "
            f"(the first is epoch {low[0] + 1}): smaller steps would be lost in rounding",
            RateRaised,
            stacklevel=2,
        )
    return [max(rate, least) for rate in wanted]


def rate_factors(schedule: Schedule, warm_up: int, epochs: int) -> list[float]:
    """What the rate of each epoch is multiplied with.

    A rate rises in equal steps through the epochs of `warm_up`, and is reached in the one after them. `schedule` is a
    function of the epoch, or names a shape that the epochs after the warm-up follow.
    """
    warm_up = check_whole(warm_up, "warm_up", 0)
    if warm_up >= epochs:
        raise InputError(f"a warm-up of {warm_up} epochs leaves none of {epochs} at the full rate")
    if isinstance(schedule, str) and schedule not in SCHEDULES:
        raise InputError(f"no schedule is called {schedule!r}: choose from {', '.join(SCHEDULES)}")
    rise = [min(1.0, (epoch + 1) / (warm_up + 1)) for epoch in range(epochs)]
    if callable(schedule):
        return [part * schedule(epoch) for epoch, part in enumerate(rise)]
    shape = SCHEDULES[schedule or "constant"]
    return [part * shape(max(0, epoch - warm_up) / (epochs - warm_up)) for epoch, part in enumerate(rise)]


def _rate(lr: Rate, factor: float, epoch: int) -> float:
    rate = float((lr(epoch) if callable(lr) else lr) * factor)
    if not isfinite(rate) or rate < 0:
        raise InputError(f"a learning rate is a positive number, got {rate} in epoch {epoch + 1}")
    return rate


def least_rate(
    model: Network,
    batch: int,
    loss: str,
    momentum: float = 0.0,
    decay: float = 0.0,
    scale_diagonals: bool = True,
    weighted: bool = False,
) -> float:
    """The smallest learning rate whose steps on batches of this size are not lost in rounding."""
    rule = _Noting(1.0, momentum, decay, scale_diagonals=scale_diagonals)
    plan_rule(model, batch, loss, rule, weighted)
    return max(rule.least) * (1 + 1e-9)  # the quotient was rounded


@dataclass(frozen=True)
class _Noting(Rule):
    """Notes the least rate of each layer where a rule refuses smaller ones. Factors are proportional to the rate."""

    least: list[float] = field(default_factory=list)

    def check_factor(self, value: float, name: str) -> float:
        self.least.append(self.rate * LEAST_FACTOR / value)
        return 1.0

    def on_cosine(self, amplitude: float, trig_scale: int, index: int) -> tuple[int, int]:
        self.least.append(self.rate * LEAST_AMPLITUDE / amplitude)
        return 1, trig_scale
