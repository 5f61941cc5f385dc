"""Learning rates of a run, epoch by epoch, none below what the arithmetic can take.

A rate is a public integer factor on a gradient at a fixed scale: below some rate it would move nothing. Schedules that
fall towards zero pass that point near their end, where steps are small anyway; the least rate takes their place there.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from math import isfinite

from hdcos.errors import InputError, RateRaised
from hdcos.nn import Sequential
from hdcos.secure.training.rule import LEAST_AMPLITUDE, LEAST_FACTOR, Rule
from hdcos.secure.training.step import plan_rule

Rate = float | Callable[[int], float]


def epoch_rates(
    model: Sequential,
    loss: str,
    batch: int,
    lr: Rate,
    schedule: Callable[[int], float] | None,
    epochs: int,
    momentum: float,
    decay: float,
    scale_diagonals: bool = False,
) -> list[float]:
    """The rate of each epoch: `lr` is a number or a function of the epoch, and `schedule` multiplies it.

    A first rate that is too small is refused; rates that fall below the least one are raised to it, with a warning.
    """
    wanted = [_rate(lr, schedule, epoch) for epoch in range(epochs)]
    Rule(max(wanted), momentum, decay)  # refuses bad numbers
    least = least_rate(model, batch, loss, momentum, decay, scale_diagonals)
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


def _rate(lr: Rate, schedule: Callable[[int], float] | None, epoch: int) -> float:
    value = lr(epoch) if callable(lr) else lr
    rate = float(value * schedule(epoch) if schedule else value)
    if not isfinite(rate) or rate < 0:
        raise InputError(f"a learning rate is a positive number, got {rate} in epoch {epoch + 1}")
    return rate


def least_rate(
    model: Sequential,
    batch: int,
    loss: str,
    momentum: float = 0.0,
    decay: float = 0.0,
    scale_diagonals: bool = False,
) -> float:
    """The smallest learning rate whose steps on batches of this size are not lost in rounding."""
    rule = _Noting(1.0, momentum, decay, scale_diagonals=scale_diagonals)
    plan_rule(model, batch, loss, rule)
    return max(rule.least) * (1 + 1e-9)  # the quotient was rounded


@dataclass(frozen=True)
class _Noting(Rule):
    """Notes the least rate of each layer where a rule refuses smaller ones. Factors are proportional to the rate."""

    least: list[float] = field(default_factory=list)

    def integer(self, value: float, name: str) -> int:
        self.least.append(self.rate * LEAST_FACTOR / value)
        return 1

    def on_cosine(self, amplitude: float, trig_scale: int, index: int) -> tuple[int, int]:
        self.least.append(self.rate * LEAST_AMPLITUDE / amplitude)
        return 1, trig_scale
