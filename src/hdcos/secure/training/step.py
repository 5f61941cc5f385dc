"""One step of stochastic gradient descent on shares.

Computes  [parameters], [rows], [targets] -> [parameters after the step].
Offline   a plan of its own for each step: lifted masks of weights and gradients, masks of rows, activations and
          weights, trig pairs of all phases, and the products of these that the step multiplies.
Online    2 L + 3 rounds for L cosines between Hadamard-Diagonal layers and the logistic loss: weights; the first phase
          with all other weights; L - 1 phases; the loss; one gradient per layer. Other layers and activations take
          more, and rows that have weights one round (`weights`).
Error     every opening rounds without bias by less than one unit of its scale; `plan` has the scales. Updates are
          made at the scale parameters are kept at: no rate is rounded to a power of two, nothing is truncated.
Security  all messages are openings under fresh masks, uniform in the ring they are opened in. Weights are opened
          again in every step, under new masks: two openings under one mask would reveal a gradient. Nothing is
          revealed.

Diagonal layer after a cosine: u = w z', y = H u + beta in turns, z = cos y. Backward: g_y = -2 pi sin(y) g_z,
g_u = H g_y, the weight's gradient is the sum over the batch of z' g_u, and g_z' = g_u w. sin y', z' and w are public
combinations of dealt randomness, so that opening g_u makes every product local, that of w g_u sin y' included.

Everything else: a layer's input Z, its weights W, the derivative S of its activation and the gradients G_z and G_y are
opened under masks, each once, and every product of two of them is local.
"""

from __future__ import annotations

from math import prod

from hdcos.nn.network import Network
from hdcos.protocol.party import Party
from hdcos.protocol.plan import Planned, blank_share
from hdcos.protocol.plan import plan as plan_program
from hdcos.protocol.rounds import Rounds
from hdcos.secure.training.backward import Backward
from hdcos.secure.training.forward import Forward, State
from hdcos.secure.training.loss import error, open_pairs
from hdcos.secure.training.plan import INPUT_SCALE, TARGET_SCALE, TrainingPlan, training_plan
from hdcos.secure.training.rule import Rule, Step, apply, changes
from hdcos.secure.training.weights import open_weights, weigh
from hdcos.sharing import Share


def sgd_step(
    party: Party, plan: TrainingPlan, state: State, x: Share, targets: Share, rule: Rule, weights: Share | None = None
) -> Rounds[State]:
    """The parameters after one step on a batch, whose rows may have weights."""
    steps, copies = yield from take_step(party, plan, state, x, targets, rule, weights)
    return apply(state, rule, changes(state, rule, steps, copies, plan.rate_factors), copies)


def take_step(
    party: Party, plan: TrainingPlan, state: State, x: Share, targets: Share, rule: Rule, weights: Share | None = None
) -> Rounds[tuple[dict[str, Step], State]]:
    """What a batch, or a part of one, moves each parameter by, and rounded copies of these where the rule needs them.

    Of the rule, all but its number matters here: what a device recorded of one step serves the next.
    """
    forward = Forward(party, plan, state)
    along = [open_pairs(party, targets)] if plan.loss == "softmax" else []
    along += [] if weights is None else [open_weights(party, weights, plan.outputs)]
    logits, opened = yield from forward.logits(x, rule.inertial, *along)
    pairs = opened[:1] if plan.loss == "softmax" else ()
    gradient = yield from forward.with_waiting(error(party, plan, logits, targets, *pairs))
    if weights is not None:
        gradient = yield from weigh(party, gradient, opened[-1])
    rows = len(x) if rule.batch is None else rule.batch
    steps = yield from Backward(party, forward.passes, state, rule, rows, plan.rate_factors).steps(gradient)
    return steps, forward.copies() if rule.inertial else {}


def plan_step(
    model: Network,
    batch: int,
    loss: str = "logistic",
    rate: float = 0.1,
    momentum: float = 0.0,
    decay: float = 0.0,
    weighted: bool = False,
) -> Planned:
    """Drive one step on a batch of rows over shapes: what it will cost, before anything runs."""
    return plan_rule(model, batch, loss, Rule(rate, momentum, decay), weighted)


def plan_rule(model: Network, batch: int, loss: str, rule: Rule, weighted: bool = False) -> Planned:
    """The same with a rule of the caller's own."""
    plan = training_plan(model, loss, weighted)
    x = blank_share((batch, prod(plan.input_shape)), INPUT_SCALE)
    targets = blank_share((batch, plan.outputs), plan.target_scale)
    state = {tensor.name: blank_share(tensor.shape, tensor.scale, tensor.bits) for tensor in plan.tensors}
    weights = blank_share((batch, 1), TARGET_SCALE) if weighted else None
    return plan_program(sgd_step, plan, state, x, targets, rule, weights)
