"""One step of stochastic gradient descent on shares.

Computes  [parameters], [rows], [targets] -> [parameters after the step].
Offline   a plan of its own for each step: lifted masks of weights and gradients, masks of rows, activations and
          weights, trig pairs of all phases, and the products of these that the step multiplies.
Online    2 L + 3 rounds for L cosines between Hadamard-Diagonal layers and the logistic loss: weights; the first phase
          with all other weights; L - 1 phases; the loss; one gradient per layer. Other layers and activations take
          more.
Error     every opening rounds without bias by less than one unit of its scale; `form` has the scales. Updates are
          made at the scale parameters are kept at: no rate is rounded to a power of two, nothing is truncated.
Security  all messages are openings under fresh masks, uniform in the ring they are opened in. Weights are opened
          anew in every step, under new masks: two openings under one mask would reveal a gradient. Nothing is
          revealed.

Diagonal layer after a cosine: u = w z', y = H u + beta in turns, z = cos y. Backward: g_y = -2 pi sin(y) g_z,
g_u = H g_y, the weight's gradient is the sum over the batch of z' g_u, and g_z' = g_u w. sin y', z' and w are public
combinations of dealt randomness, so that opening g_u makes every product local, that of w g_u sin y' included.

Everything else: a layer's input Z, its weights W, the derivative S of its activation and the gradients G_z and G_y are
opened under masks, each once, and every product of two of them is local.
"""

from __future__ import annotations

from hdcos.protocol.party import Party
from hdcos.protocol.rounds import Rounds
from hdcos.secure.training.backward import Backward
from hdcos.secure.training.form import TrainingPlan
from hdcos.secure.training.forward import Forward, State
from hdcos.secure.training.loss import error, open_pairs
from hdcos.secure.training.rule import Rule, updated
from hdcos.sharing import Share


def sgd_step(party: Party, form: TrainingPlan, state: State, x: Share, targets: Share, rule: Rule) -> Rounds[State]:
    """The parameters after one step on a batch."""
    forward = Forward(party, form, state)
    pairs = [open_pairs(party, targets)] if form.loss == "softmax" else []
    logits, opened = yield from forward.logits(x, rule.inertial, *pairs)
    gradient = yield from forward.with_waiting(error(party, form, logits, targets, *opened))
    steps = yield from Backward(party, forward.passes, state, rule, len(x)).steps(gradient)
    return updated(state, rule, steps, forward.copies() if rule.inertial else {})
