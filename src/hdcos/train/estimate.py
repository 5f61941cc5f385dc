"""What a step of private training will cost, from the architecture alone: nothing runs."""

from __future__ import annotations

from math import prod

from hdcos.nn.sequential import Sequential
from hdcos.protocol.plan import Planned, blank_share, plan
from hdcos.train.form import INPUT_SCALE, training_form
from hdcos.train.rule import Rule
from hdcos.train.step import sgd_step


def plan_step(
    model: Sequential, batch: int, loss: str = "logistic", rate: float = 0.1, momentum: float = 0.0, decay: float = 0.0
) -> Planned:
    """Drive one step on a batch of so many rows over shapes."""
    form = training_form(model, loss)
    x = blank_share((batch, prod(form.input_shape)), INPUT_SCALE)
    targets = blank_share((batch, form.outputs), form.target_scale)
    state = {tensor.name: blank_share(tensor.shape, tensor.scale, tensor.bits) for tensor in form.tensors}
    return plan(sgd_step, form, state, x, targets, Rule(rate, momentum, decay))
