"""One step of stochastic gradient descent on shares.

Computes  [weights], [rows], [targets] -> [weights after the step]. Losses: squared, or logistic one against all.
Offline   a plan of its own for each step: lifted masks of weights, gradients and error, masks of rows and weights, trig
          pairs of all phases, and the products of these that the step multiplies.
Online    3 L + 3 rounds for L cosine layers, one less for the squared loss: weights; the first phase with all other
          weights; L - 1 phases; the loss; the last layer's gradient; two openings per cosine layer.
Error     every opening rounds without bias by less than one unit of its scale; `form` has the scales. Updates are
          made at the scale weights are kept at: no rate is rounded to a power of two, nothing is truncated.
Security  all messages are openings under fresh masks, uniform in the ring they are opened in. Weights are opened
          anew in every step, under new masks: two openings under one mask would reveal a gradient. Nothing is
          revealed.

Layer l: u = w z', y = H u + beta in turns, z = cos y. Backward: g_y = -2 pi sin(y) g_z, g_u = H g_y, the weight's
gradient is the sum over the batch of z' g_u, and g_z' = g_u w. sin y, z' and w are public combinations of dealt
randomness, so that opening g_z and g_u makes every product local.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import pi

import numpy as np

from hdcos.errors import InputError
from hdcos.offline import FusedTrig, Reference
from hdcos.protocol import fit
from hdcos.protocol.fourier import Series, fourier
from hdcos.protocol.hadamard import transformed
from hdcos.protocol.lifted import Lifted, Phase, open_lifted, times_masked, times_trig
from hdcos.protocol.masked import Masked
from hdcos.protocol.opening import open_half, open_masked, round_lift
from hdcos.protocol.party import Party
from hdcos.protocol.rounds import Rounds, together
from hdcos.ring import Array, hadamard_cos
from hdcos.sharing import Share
from hdcos.train.form import (
    ACTIVATION_GRADIENT_SCALE,
    GRADIENT_BITS,
    INPUT_SCALE,
    MASTER_SCALE,
    PHASE_BITS,
    PHASE_SCALE,
    SLOPE_SCALE,
    TRIG_SCALE,
    WEIGHT_BITS,
    WEIGHT_SCALE,
    Form,
    TrainedLayer,
)

FACTOR_BITS = 12
LOSSES = ("squared", "logistic")
State = Mapping[str, Share]


def loss_series() -> Series:
    """The sigmoid of the logistic loss: wide, because logits of training pass 16 and a narrow fit folds back."""
    return fit.sigmoid(5, 40)


@dataclass(frozen=True)
class _Opened:
    """A layer's phase, and the products of the next weight's mask that came with it."""

    phase: Phase
    weight_cos: Array
    weight_sin: Array


def sgd_step(
    party: Party, form: Form, state: State, x: Share, targets: Share, rate: float, loss: str = "logistic"
) -> Rounds[State]:
    """The parameters after one step on a batch; `rate` is the learning rate of the mean loss."""
    first, *rest = form.layers
    # 1. All weights, rounded, and the rows of the batch.
    openings = [
        open_lifted(party, state[layer.weight.name], MASTER_SCALE - WEIGHT_SCALE, WEIGHT_BITS, whole=True)
        for layer in form.layers
    ]
    *lifted, X = yield from together(*openings, open_masked(party, x))
    # 2. The first phase, with all other weights in the whole ring, where they can meet cosines.
    products = times_masked(party, lifted[0], X)
    y = _plus_bias(transformed(products, first.size, first.outputs).raised(PHASE_SCALE), state, first)
    base = party.next_reference(whole=True).position
    remasked = [open_masked(party, weight.share(party), whole=True) for weight in lifted[1:]]
    *weights, opened = yield from together(*remasked, _open_phase(party, y, Reference(base, whole=True)))
    # 3. The other phases; the last layer's result is local.
    forward: list[_Opened] = [opened]
    for number, layer in enumerate(rest):
        y = _plus_bias(_layer(forward[-1], weights[number], layer), state, layer)
        if not layer.last:
            forward.append((yield from _open_phase(party, y, Reference(base + number + 1, whole=True))))
    error = (yield from _error(party, y, loss)) - targets
    return (yield from _backward(party, form, state, X, weights, [each.phase for each in forward], error, rate))


def _open_phase(party: Party, y: Share, weight: Reference) -> Rounds[_Opened]:
    """Open y's phase with material for its product with the next weight."""
    reference = party.next_reference()
    kind = FusedTrig(y.shape[1:], PHASE_BITS, TRIG_SCALE, weight)
    minus_r, cos_r, sin_r, weight_cos, weight_sin = party.take(kind, len(y))
    d = yield from open_half(party, y, minus_r, y.scale - PHASE_BITS, PHASE_BITS)
    return _Opened(Phase(d, cos_r, sin_r, PHASE_BITS, TRIG_SCALE, reference), weight_cos, weight_sin)


def _layer(before: _Opened, weight: Masked, layer: TrainedLayer) -> Share:
    """H (w * cos y), at PHASE_SCALE."""
    phase = before.phase
    A = weight.opened * phase.cos_r - before.weight_cos
    B = weight.opened * phase.sin_r - before.weight_sin
    words = hadamard_cos(phase.d, A, B, PHASE_BITS, TRIG_SCALE, layer.size, layer.outputs)
    return Share(words, PHASE_SCALE)


def _plus_bias(y: Share, state: State, layer: TrainedLayer) -> Share:
    return Share(y.words + state[layer.bias.name].words, y.scale)


def _error(party: Party, logits: Share, loss: str) -> Rounds[Share]:
    """The loss's derivative by the logits, but for the targets, which come at the same scale."""
    if loss == "squared":
        return logits
    if loss != "logistic":
        raise InputError(f"no loss is called {loss!r}: choose from {', '.join(LOSSES)}")
    return (yield from fourier(party, logits, loss_series(), PHASE_BITS, TRIG_SCALE))


def _backward(
    party: Party,
    form: Form,
    state: State,
    X: Masked,
    weights: list[Masked],
    phases: list[Phase],
    error: Share,
    rate: float,
) -> Rounds[State]:
    """Gradients from the last layer to the first, and the parameters after the step."""
    rows = error.shape[0]
    updated = dict(state)
    gradient = error
    for number in range(len(form.layers) - 1, -1, -1):
        layer = form.layers[number]
        if not layer.last:
            drop = gradient.scale - ACTIVATION_GRADIENT_SCALE
            opened = yield from open_lifted(party, gradient, drop, GRADIENT_BITS)
            gradient, moved = _through_cosine(party, opened, phases[number], rate / rows)
            updated[layer.bias.name] = state[layer.bias.name] - moved
        scale = layer.gradient_scale
        before = transformed(gradient, layer.size, layer.inputs)
        drop = before.scale - scale
        opening = open_lifted(party, before, drop, min(GRADIENT_BITS, 64 - drop))
        if layer.last:
            # The error itself is opened along: its sum, at a scale that leaves room for the rate, moves the bias.
            opened, total = yield from together(opening, _rounded(party, error, scale))
            factor = _factor(rate / rows * 2.0 ** (PHASE_SCALE - scale), layer)
            updated[layer.bias.name] = state[layer.bias.name] - (total.sum(0) * factor).rescaled(PHASE_SCALE)
        else:
            opened = yield from opening
        amplitude = rate / (rows * layer.size * layer.unit**2) * 2.0 ** (MASTER_SCALE - TRIG_SCALE - scale)
        if number == 0:
            products = times_masked(party, opened, X).sum(0)
            step = (products * _factor(amplitude * 2.0 ** (TRIG_SCALE - INPUT_SCALE), layer)).rescaled(MASTER_SCALE)
        else:
            product = times_trig(party, opened, phases[number - 1])
            a, shift = _amplitude(amplitude, layer)
            step = product.combined(a, 0, shift, MASTER_SCALE).sum(0)
            gradient = times_masked(party, opened, weights[number - 1])
        updated[layer.weight.name] = state[layer.weight.name] - step
    return updated


def _rounded(party: Party, x: Share, scale: int) -> Rounds[Share]:
    """x at a lower scale, in the whole ring."""
    drop = x.scale - scale
    return (yield from round_lift(party, x, drop, min(GRADIENT_BITS, 64 - drop)))


def _through_cosine(party: Party, opened: Lifted, phase: Phase, rate: float) -> tuple[Share, Share]:
    """g_y = -2 pi sin(y) g_z, and the bias's step, the sum over the batch at its own scale."""
    product = times_trig(party, opened, phase)
    slope = -round(2 * pi * 2**FACTOR_BITS)
    shift = TRIG_SCALE + FACTOR_BITS - SLOPE_SCALE
    gradient = product.combined(0, slope, shift, SLOPE_SCALE + product.scale)
    # In turns: d beta = rate / (4 pi^2) * g_y; the factor 2 pi of g_y is in the amplitude.
    amplitude = rate / (2 * pi) * 2.0 ** (PHASE_SCALE - product.scale)
    size, shift = _scaled(amplitude)
    return gradient, product.combined(0, -size, shift, PHASE_SCALE).sum(0)


def _amplitude(amplitude: float, layer: TrainedLayer) -> tuple[int, int]:
    """A public factor on a cosine as an integer over a power of two."""
    if amplitude < 2**7:
        raise InputError(f"the learning rate is too small for layer {layer.index}: its steps would be lost in rounding")
    return _scaled(amplitude)


def _scaled(amplitude: float) -> tuple[int, int]:
    """round(amplitude * 2**s) and the shift that makes of it, times a table entry, the factor amplitude * cos d."""
    s = max(0, 30 - int(np.log2(amplitude)))
    return round(amplitude * 2.0**s), TRIG_SCALE + s


def _factor(value: float, layer: TrainedLayer) -> int:
    """A public integer factor that keeps a learning rate to a few parts in a thousand."""
    if value < 2**5:
        raise InputError(f"the learning rate is too small for layer {layer.index}: its steps would be lost in rounding")
    return round(value)
