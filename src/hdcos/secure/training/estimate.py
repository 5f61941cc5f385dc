"""What a step of private training will cost, from the architecture alone: nothing runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

from hdcos.nn.sequential import Sequential
from hdcos.protocol.plan import Planned, blank_share, plan
from hdcos.secure.training.form import INPUT_SCALE, training_plan
from hdcos.secure.training.rule import LEAST_AMPLITUDE, LEAST_FACTOR, Rule
from hdcos.secure.training.step import sgd_step


def plan_step(
    model: Sequential, batch: int, loss: str = "logistic", rate: float = 0.1, momentum: float = 0.0, decay: float = 0.0
) -> Planned:
    """Drive one step on a batch of so many rows over shapes."""
    return _planned(model, batch, loss, Rule(rate, momentum, decay))


def least_rate(model: Sequential, batch: int, loss: str, momentum: float = 0.0, decay: float = 0.0) -> float:
    """The smallest learning rate whose steps on batches of so many rows are not lost in rounding."""
    rule = _Noting(1.0, momentum, decay)
    _planned(model, batch, loss, rule)
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


def _planned(model: Sequential, batch: int, loss: str, rule: Rule) -> Planned:
    form = training_plan(model, loss)
    x = blank_share((batch, prod(form.input_shape)), INPUT_SCALE)
    targets = blank_share((batch, form.outputs), form.target_scale)
    state = {tensor.name: blank_share(tensor.shape, tensor.scale, tensor.bits) for tensor in form.tensors}
    return plan(sgd_step, form, state, x, targets, rule)
