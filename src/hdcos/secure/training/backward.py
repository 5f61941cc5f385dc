"""The backward pass of a training step: gradients from the last unit to the first, and every parameter's step.

Diagonal units after a cosine go on as one lazy product (`protocol.gradient`), whose two sums, the steps of bias and
weight, are there once it was opened for the unit before. The learning rate rides in public factors: a step is an
integer multiple of a gradient, or a sum over cosines whose table carries the rate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hdcos.protocol.cosine import FusedPhase
from hdcos.protocol.gradient import FusedGradient, fused_gradient
from hdcos.protocol.hadamard import transformed
from hdcos.protocol.lifted import (
    Lifted,
    LiftedRows,
    open_lifted,
    open_lifted_rows,
    summed_product,
    times_masked,
    times_trig,
)
from hdcos.protocol.masked import product
from hdcos.protocol.opening import open_masked
from hdcos.protocol.party import Party
from hdcos.protocol.rounds import Rounds
from hdcos.ring import Array, pool_sum, spread
from hdcos.secure.training.activation import FACTOR_BITS, TWO_PI, settled
from hdcos.secure.training.form import (
    ACTIVATION_GRADIENT,
    ACTIVATION_GRADIENT_BITS,
    DIAGONAL_BITS,
    FUSED_SLOPE,
    Diagonal,
    LinearBlock,
    Matrix,
)
from hdcos.secure.training.forward import Pass
from hdcos.secure.training.rule import Rule
from hdcos.sharing import Share
from hdcos.sharing.share import ring_word

Gradient = Share | FusedGradient


@dataclass
class Backward:
    """The backward pass at one party."""

    party: Party
    passes: list[Pass]
    state: Mapping[str, Share]
    rule: Rule
    rows: int
    made: dict[str, Array] = field(default_factory=dict)
    """The step of each parameter, at the parameter's scale."""

    def steps(self, error: Share) -> Rounds[dict[str, Array]]:
        """Each parameter's step, from the loss's derivative by the network's result."""
        gradient: Gradient = error  # by a unit's result, before its activation
        for number in range(len(self.passes) - 1, -1, -1):
            each = self.passes[number]
            before = self.passes[number - 1] if number else None
            if isinstance(each.unit, Diagonal):
                to_open = yield from self._to_open(each.unit, gradient)
                if before is not None and before.unit.fused and isinstance(before.unit, Diagonal):
                    rows = yield from open_lifted_rows(self.party, to_open, *_opening(each.unit, to_open))
                    self._moved_along(number + 1, gradient)
                    gradient = self._fused_gradient(each, before.unit, rows)
                else:
                    opened = yield from open_lifted(self.party, to_open, *_opening(each.unit, to_open))
                    self._moved_along(number + 1, gradient)
                    gradient = self._diagonal_gradients(each, before, opened)
            else:
                assert isinstance(gradient, Share)
                gradient = yield from self._matrix_gradients(each, before, gradient)
            if before is not None and not (before.unit.fused and isinstance(before.unit, Diagonal)):
                assert isinstance(gradient, Share)
                gradient = yield from self._through_activation(before, gradient)
        return self.made

    # ---- Hadamard-Diagonal units

    def _to_open(self, unit: Diagonal, gradient: Gradient) -> Rounds[Gradient]:
        """The gradient before the transform."""
        if unit.projection is not None:
            # It takes bits, and cannot be undone for the bias: the gradient behind it is rounded by itself.
            assert unit.bias is not None
            share = gradient.share() if isinstance(gradient, FusedGradient) else gradient
            rounded = yield from settled(self.party, share, unit.gradient_scale)
            self._move(unit.bias.name, rounded.sum(0), unit.bias.squared)
            gradient = unit.projection.adjoint(rounded, unit.size)
        if isinstance(gradient, FusedGradient):
            gradient.size = unit.size
            return gradient
        return transformed(gradient, unit.size, unit.size)

    def _fused_gradient(self, each: Pass, before: LinearBlock, opened: LiftedRows) -> FusedGradient:
        """The gradient behind the cosine before a unit; the unit's steps are there once that is opened."""
        assert isinstance(each.unit, Diagonal)
        assert each.before is not None
        factor = self._on_cosine(each.unit, each.before, opened.scale + each.before.scale, before)
        slope = (-TWO_PI, each.before.scale + FACTOR_BITS - FUSED_SLOPE)
        return fused_gradient(self.party, opened, each.before, each.weight, factor, slope, FUSED_SLOPE)

    def _diagonal_gradients(self, each: Pass, before: Pass | None, opened: Lifted) -> Gradient:
        """The steps of a unit, and the gradient by the activations before it."""
        unit, party = each.unit, self.party
        assert isinstance(unit, Diagonal)
        if each.before is None:
            total, step = summed_product(party, opened, each.x)
            self._move_bias(unit, total)
            self._move(unit.weight.name, step, unit.weight.squared)
            return step if before is None else times_masked(party, opened, each.weight)
        assert before is not None
        factor = self._on_cosine(unit, each.before, opened.scale + each.before.scale, before.unit)
        self._move_bias(unit, opened.share(party).sum(0))
        products = times_trig(party, opened, each.before, before.unit.pool)
        words = products.combine(factor[0], 0, factor[1], unit.weight.scale).sum(0).words
        self.made[unit.weight.name] = pool_sum(words, before.unit.pool)
        return times_masked(party, opened, each.weight)

    def _moved_along(self, number: int, gradient: Gradient) -> None:
        """The steps of a unit whose gradient went on to the unit before it, and was opened there."""
        if not isinstance(gradient, FusedGradient):
            return
        unit = self.passes[number].unit
        assert isinstance(unit, Diagonal)
        assert gradient.total is not None
        assert gradient.moved is not None
        self._move_bias(unit, Share(gradient.total, gradient.x.scale))
        self.made[unit.weight.name] = gradient.moved

    def _move_bias(self, unit: Diagonal, total: Share) -> None:
        """From the sum of the gradients before the transform; with a projection the bias has moved already."""
        if unit.bias is not None and unit.projection is None:
            gradient = transformed(total, unit.size, unit.outputs[0])
            self._move(unit.bias.name, gradient, unit.bias.squared / unit.size)

    def _on_cosine(self, unit: Diagonal, phase: FusedPhase, scale: int, before: LinearBlock) -> tuple[int, int]:
        """The learning rate in the public factor of a cosine: sum over the batch of g_u cos y' is then the step."""
        amplitude = self.rule.rate / self.rows * unit.weight.squared * 2.0 ** (unit.weight.scale - scale)
        return self.rule.on_cosine(amplitude / 2.0**before.pool_bits, phase.scale, unit.index)

    # ---- matrix units, activations

    def _matrix_gradients(self, each: Pass, before: Pass | None, gradient: Share) -> Rounds[Share]:
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
        options = {"stride": unit.stride, "padding": unit.padding}
        step = product(party, each.x, G, f"{unit.operation}.weight", unit.weight.shape, **options)
        self._move(unit.weight.name, step, unit.weight.squared)
        if before is None:
            return gradient
        return product(party, G, each.weight, f"{unit.operation}.input", unit.inputs, **options)

    def _through_activation(self, each: Pass, gradient: Share) -> Rounds[Share]:
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
        rate = self.rule.rate / self.rows * factor * 2.0 ** (self.state[name].scale - gradient.scale)
        self.made[name] = gradient.words * ring_word(self.rule.integer(rate, name))


def _opening(unit: Diagonal, gradient: Gradient) -> tuple[int, int]:
    """The bits that are dropped and kept where a unit's gradient is opened."""
    drop = gradient.scale - unit.gradient_scale
    return drop, min(DIAGONAL_BITS, gradient.bits - drop)
