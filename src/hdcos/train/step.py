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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hdcos.offline import Reference
from hdcos.protocol.gradient import FusedGradient, fused_gradient
from hdcos.protocol.hadamard import HadamardCosine, transformed
from hdcos.protocol.lifted import Lifted, open_lifted, times_masked, times_trig
from hdcos.protocol.masked import Masked, product
from hdcos.protocol.opening import open_masked, round_lift
from hdcos.protocol.party import Party
from hdcos.protocol.phase import FusedPhase, open_fused_phase
from hdcos.protocol.rounds import Rounds, together
from hdcos.ring import pool_sum, spread
from hdcos.sharing import Share
from hdcos.train.activation import FACTOR_BITS, TWO_PI, activate, settled, slope_of
from hdcos.train.form import (
    ACTIVATION_GRADIENT,
    ACTIVATION_GRADIENT_BITS,
    DIAGONAL_BITS,
    DIAGONAL_OUTPUT,
    FUSED_SLOPE,
    INPUT_SCALE,
    LEAST_RING,
    MATRIX_OUTPUT,
    OPENED_SCALE,
    PHASE_BITS,
    WEIGHT_BITS,
    WEIGHT_SCALE,
    Diagonal,
    Form,
    Matrix,
    Unit,
)
from hdcos.train.loss import error, open_pairs
from hdcos.train.rule import Rule, updated

State = Mapping[str, Share]
Output = Share | HadamardCosine
Gradient = Share | FusedGradient


@dataclass
class _Pass:
    """What the forward pass of one unit leaves for its backward pass."""

    unit: Unit
    lifted: Lifted
    weight: Masked | None = None
    x: Masked | None = None
    """Its input, unless that came as a phase."""
    before: FusedPhase | None = None
    """The phase its input came as."""
    phase: FusedPhase | None = None
    """Its own activation, if the next layer takes it as a phase."""
    slope: Masked | None = None


@dataclass
class _Step:
    """One step at one party."""

    party: Party
    form: Form
    state: State
    rule: Rule
    rows: int
    passes: list[_Pass] = field(default_factory=list)
    waiting: list[tuple[_Pass, Rounds[Masked]]] = field(default_factory=list)
    """Derivatives that are opened with whatever is opened next."""
    steps: dict[str, Share] = field(default_factory=dict)

    # ---- forward

    def run(self, x: Share, targets: Share) -> Rounds[State]:
        party, units = self.party, self.form.units
        openings = [self._open_weight(unit) for unit in units]
        rounded = [self._round_bias(unit) for unit in units] if self.rule.inertial else []
        pairs = [open_pairs(party, targets)] if self.form.loss == "softmax" else []
        x = x.reshape(len(x), *self.form.input_shape)
        opened = yield from together(*openings, self._open_rows(x), *pairs, *rounded)
        self.passes = [_Pass(unit, lifted) for unit, lifted in zip(units, opened, strict=False)]
        X, biases = opened[len(units)], opened[len(units) + 1 + len(pairs) :]
        y = yield from self._first(X)
        for number in range(1, len(units)):
            y = yield from self._next(number, y)
        wanted = opened[len(units) + 1] if pairs else None
        assert isinstance(y, Share)
        gradient = yield from self._with_waiting(error(party, self.form, y, targets, wanted))
        yield from self._backward(gradient)
        return updated(self.state, self.rule, self.steps, self._copies(biases))

    def _copies(self, biases: Sequence[Any]) -> dict[str, Share]:
        """The rounded parameters of this step, as shares."""
        copies = {each.unit.weight.name: each.lifted.share(self.party) for each in self.passes}
        named = [unit.bias.name for unit in self.form.units if unit.bias is not None]
        return {**copies, **dict(zip(named, [bias for bias in biases if bias is not None], strict=bool(biases)))}

    def _open_weight(self, unit: Unit) -> Rounds[Lifted]:
        share = self.state[unit.weight.name]
        drop = unit.weight.scale - WEIGHT_SCALE
        return (yield from open_lifted(self.party, share, drop, min(WEIGHT_BITS, share.bits - drop), whole=True))

    def _round_bias(self, unit: Unit) -> Rounds[Share | None]:
        if unit.bias is None:
            return None
        share = self.state[unit.bias.name]
        drop = share.scale - WEIGHT_SCALE
        row = yield from round_lift(self.party, share.reshape(1, -1), drop, min(40, share.bits - drop))
        return row.reshape(-1)

    def _open_rows(self, x: Share) -> Rounds[Masked]:
        if isinstance(self.form.units[0], Diagonal):
            return (yield from open_masked(self.party, x))
        return (yield from open_masked(self.party, x, INPUT_SCALE - OPENED_SCALE))

    def _first(self, X: Masked) -> Rounds[Output]:
        """The first layer, and all weights in the whole ring under masks that products can refer to."""
        first, *rest = self.passes
        first.x = X
        if not isinstance(first.unit, Diagonal):
            yield from self._remask(self.passes)
            return self._matrix_output(first)
        y = self._diagonal_output(times_masked(self.party, first.lifted, X), first.unit)
        if first.unit.fused:
            # The next weight is opened in the same round as the phase that its mask is multiplied with.
            weight = self.party.next_reference(whole=True)
            _, first.phase = yield from together(self._remask(rest), self._open_phase(first, y, weight))
        else:
            yield from self._remask(rest)
        return y

    def _remask(self, passes: list[_Pass]) -> Rounds[None]:
        shares = (each.lifted.share(self.party) for each in passes)
        weights = yield from together(*(open_masked(self.party, share, whole=True) for share in shares))
        for each, weight in zip(passes, weights, strict=True):
            each.weight = weight

    def _next(self, number: int, y: Output) -> Rounds[Output]:
        """From one layer's result to the next layer's."""
        before, each = self.passes[number - 1], self.passes[number]
        assert each.weight is not None
        if before.unit.fused:
            if before.phase is None:
                before.phase = yield from self._with_waiting(self._open_phase(before, y, each.weight.reference))
            if not isinstance(before.unit, Diagonal):
                self._wait_for_slope(before, slope_of(before.phase))
            each.before = before.phase
            return self._fused_output(before, each)
        if not isinstance(y, Share):
            y = y.share()
        z, slope = yield from self._with_waiting(activate(self.party, before.unit, y))
        if slope is not None:
            self._wait_for_slope(before, slope)
        z = self._pooled(z, before.unit)
        if isinstance(each.unit, Diagonal):
            z = yield from self._with_waiting(settled(self.party, z.reshape(len(z), -1), INPUT_SCALE))
            each.x = yield from self._with_waiting(open_masked(self.party, z))
            return self._diagonal_output(product(self.party, each.x, each.weight), each.unit)
        if z.bits - max(0, z.scale - OPENED_SCALE) < LEAST_RING:
            z = yield from self._with_waiting(settled(self.party, z, OPENED_SCALE))
        z = z.reshape(len(z), *each.unit.inputs)
        each.x = yield from self._with_waiting(open_masked(self.party, z, max(0, z.scale - OPENED_SCALE)))
        return self._matrix_output(each)

    def _fused_output(self, before: _Pass, each: _Pass) -> Output:
        """H (w * cos y'), computed as it is opened, or now if a projection follows."""
        unit, phase, pool = each.unit, before.phase, before.unit.pool
        assert isinstance(unit, Diagonal)
        assert phase is not None
        assert each.weight is not None
        A, B = phase.times(each.weight, pool)
        windows = (pool[0], pool[1], pool[2], pool[3]) if pool else None
        scale = 2 * phase.scale + WEIGHT_SCALE + before.unit.pool_bits
        outputs = unit.size if unit.projection else unit.outputs[0]
        bias = None
        if unit.bias is not None and unit.projection is None and scale >= unit.bias.scale:
            bias = self.state[unit.bias.name].raised(scale).words
        y = HadamardCosine(phase.d, A, B, phase.bits, phase.scale, unit.size, outputs, bias, windows, scale)
        if bias is not None:
            return y.share() if unit.last else y
        made = unit.projection(y.share()) if unit.projection else y.share()
        return self._plus_bias(made.raised(max(made.scale, DIAGONAL_OUTPUT)), unit)

    def _open_phase(self, each: _Pass, y: Output, weight: Reference) -> Rounds[FusedPhase]:
        flat = y.reshape(len(y), -1) if isinstance(y, Share) else y
        return (yield from open_fused_phase(self.party, flat, weight, PHASE_BITS, each.unit.trig_scale, each.unit.pool))

    def _wait_for_slope(self, each: _Pass, slope: Share) -> None:
        self.waiting.append((each, open_masked(self.party, slope.reshape(len(slope), -1))))

    def _with_waiting(self, protocol: Rounds[Any]) -> Rounds[Any]:
        """Run a protocol, and open what waits in its first round."""
        waiting, self.waiting = self.waiting, []
        result, *slopes = yield from together(protocol, *(opening for _, opening in waiting))
        for (each, _), slope in zip(waiting, slopes, strict=True):
            each.slope = slope
        return result

    def _pooled(self, z: Share, unit: Unit) -> Share:
        if not unit.pool:
            return z
        words = pool_sum(z.words.reshape(len(z), -1), unit.pool)
        return Share(words, z.scale + unit.pool_bits, z.bits)

    def _diagonal_output(self, products: Share, unit: Diagonal) -> Share:
        if unit.projection is None:
            y = transformed(products, unit.size, unit.outputs[0])
        else:
            y = unit.projection(transformed(products, unit.size, unit.size))
        return self._plus_bias(y.raised(DIAGONAL_OUTPUT), unit)

    def _matrix_output(self, each: _Pass) -> Share:
        unit = each.unit
        assert isinstance(unit, Matrix)
        assert each.x is not None
        assert each.weight is not None
        y = product(self.party, each.x, each.weight, unit.operation, unit.outputs, unit.stride, unit.padding)
        return self._plus_bias(y.raised(MATRIX_OUTPUT), unit)

    def _plus_bias(self, y: Share, unit: Unit) -> Share:
        if unit.bias is None:
            return y
        bias = self.state[unit.bias.name]
        words = bias.words << np.uint64(y.scale - bias.scale)
        if len(unit.outputs) == 3:
            words = words.reshape(-1, 1, 1)
        return Share(y.words + words, y.scale, min(y.bits, bias.bits))

    # ---- backward

    def _backward(self, error: Share) -> Rounds[None]:
        """Gradients from the last layer to the first; each is by the layer's result, before its activation."""
        gradient: Gradient = error
        for number in range(len(self.passes) - 1, -1, -1):
            each = self.passes[number]
            before = self.passes[number - 1] if number else None
            if isinstance(each.unit, Diagonal):
                gradient = yield from self._diagonal_gradients(each, before, gradient)
            else:
                assert isinstance(gradient, Share)
                gradient = yield from self._matrix_gradients(each, before, gradient)
            if before is not None and not (before.unit.fused and isinstance(before.unit, Diagonal)):
                assert isinstance(gradient, Share)
                gradient = yield from self._through_activation(before, gradient)

    def _diagonal_gradients(self, each: _Pass, before: _Pass | None, gradient: Gradient) -> Rounds[Gradient]:
        unit = each.unit
        assert isinstance(unit, Diagonal)
        party, scale = self.party, unit.gradient_scale
        behind, later = gradient, self.passes[self.passes.index(each) + 1] if not unit.last else None
        if isinstance(gradient, FusedGradient) and unit.projection is not None:
            gradient = gradient.share()
        if unit.projection is not None:
            # It takes bits, and cannot be undone for the bias: the gradient behind it is rounded by itself.
            assert isinstance(gradient, Share)
            assert unit.bias is not None
            gradient = yield from settled(party, gradient, scale)
            self._move(unit.bias.name, gradient.sum(0), unit.bias.squared)
            gradient = unit.projection.adjoint(gradient, unit.size)
        u: Gradient
        if isinstance(gradient, FusedGradient):
            gradient.size, u = unit.size, gradient
        else:
            u = transformed(gradient, unit.size, unit.size)
        drop = u.scale - scale
        opened = yield from open_lifted(party, u, drop, min(DIAGONAL_BITS, u.bits - drop))
        if isinstance(behind, FusedGradient):
            assert later is not None
            self._moved_along(later.unit, behind)
        if each.before is None:
            assert each.x is not None
            self._move_bias(unit, opened.share(party).sum(0))
            self._move(unit.weight.name, times_masked(party, opened, each.x).sum(0), unit.weight.squared)
            if before is None:
                return u
            assert each.weight is not None
            return times_masked(party, opened, each.weight)
        assert before is not None
        assert each.weight is not None
        if isinstance(before.unit, Diagonal):
            phase = each.before
            step = self._on_cosine(unit, phase, opened.scale + phase.scale, before.unit)
            slope = (-TWO_PI, phase.scale + FACTOR_BITS - FUSED_SLOPE)
            return fused_gradient(party, opened, phase, each.weight, step, slope, FUSED_SLOPE)
        self._move_bias(unit, opened.share(party).sum(0))
        products = times_trig(party, opened, each.before, before.unit.pool)
        factor, shift = self._on_cosine(unit, each.before, products.scale, before.unit)
        words = products.combined(factor, 0, shift, unit.weight.scale).sum(0).words
        self.steps[unit.weight.name] = Share(pool_sum(words, before.unit.pool), unit.weight.scale)
        return times_masked(party, opened, each.weight)

    def _moved_along(self, unit: Unit, gradient: FusedGradient) -> None:
        """The steps of a layer whose gradient went on to the layer before it."""
        assert isinstance(unit, Diagonal)
        assert gradient.total is not None
        assert gradient.moved is not None
        self._move_bias(unit, Share(gradient.total, gradient.x.scale))
        self.steps[unit.weight.name] = Share(gradient.moved, unit.weight.scale)

    def _move_bias(self, unit: Diagonal, total: Share) -> None:
        """From the sum of the gradients before the transform; with a projection the bias has moved already."""
        if unit.bias is not None and unit.projection is None:
            gradient = transformed(total, unit.size, unit.outputs[0])
            self._move(unit.bias.name, gradient, unit.bias.squared / unit.size)

    def _on_cosine(self, unit: Diagonal, phase: FusedPhase, scale: int, before: Unit) -> tuple[int, int]:
        """The learning rate in the public factor of a cosine: sum over the batch of g_u cos y' is then the step."""
        amplitude = self.rule.rate / self.rows * unit.weight.squared * 2.0 ** (unit.weight.scale - scale)
        return self.rule.on_cosine(amplitude / 2.0**before.pool_bits, phase.scale, unit.index)

    def _matrix_gradients(self, each: _Pass, before: _Pass | None, gradient: Share) -> Rounds[Share]:
        unit = each.unit
        assert isinstance(unit, Matrix)
        party = self.party
        if unit.activation in ("", "none") and not (unit.last and gradient.bits == 64):
            gradient = yield from settled(party, gradient, ACTIVATION_GRADIENT)
        gradient = gradient.reshape(len(gradient), *unit.outputs)
        G = yield from open_masked(party, gradient, gradient.scale - unit.gradient_scale)
        if unit.bias is not None:
            total = G.share(party).sum(0)
            if len(unit.outputs) == 3:
                total = total.reshape(unit.outputs[0], -1).sum(1)
            self._move(unit.bias.name, total, unit.bias.squared)
        assert each.x is not None
        options = {"stride": unit.stride, "padding": unit.padding}
        step = product(party, each.x, G, f"{unit.operation}.weight", unit.weight.shape, **options)
        self._move(unit.weight.name, step, unit.weight.squared)
        if before is None:
            return gradient
        assert each.weight is not None
        return product(party, G, each.weight, f"{unit.operation}.input", unit.inputs, **options)

    def _through_activation(self, each: _Pass, gradient: Share) -> Rounds[Share]:
        """From the gradient by pooled activations to that by the layer's result."""
        gradient = gradient.reshape(len(gradient), -1)
        if each.slope is None:
            words = spread(gradient.words, each.unit.pool)
            return Share(words, gradient.scale + each.unit.pool_bits, gradient.bits)
        # Of a pooled gradient each unit gets a part: the scale is that of the part.
        drop = gradient.scale + each.unit.pool_bits - ACTIVATION_GRADIENT
        bits = min(ACTIVATION_GRADIENT_BITS, gradient.bits - drop)
        opened = yield from open_lifted(self.party, gradient, drop, bits)
        result = times_masked(self.party, opened, each.slope, each.unit.pool)
        return result.rescaled(result.scale + each.unit.pool_bits)

    def _move(self, name: str, gradient: Share, factor: float) -> None:
        """Note a parameter's step: `factor` times the gradient, summed over the batch, in the parameter's units."""
        share = self.state[name]
        rate = self.rule.rate / self.rows * factor * 2.0 ** (share.scale - gradient.scale)
        integer = self.rule.integer(rate, name)
        self.steps[name] = (gradient * integer).rescaled(share.scale)


def sgd_step(party: Party, form: Form, state: State, x: Share, targets: Share, rule: Rule) -> Rounds[State]:
    """The parameters after one step on a batch."""
    return (yield from _Step(party, form, state, rule, len(x)).run(x, targets))
