"""The backward pass of a training step: gradients from the last block to the first, and every parameter's step.

Diagonal blocks after a cosine go on as one lazy product (`protocol.gradient`), whose two sums, the steps of bias and
weight, are there once it was opened for the block before. The learning rate rides in public factors: a step is an
integer multiple of a gradient, or a sum over cosines whose table carries the rate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod

from hdcos.offline.bilinear import as_rows
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
from hdcos.ring import pool_sum, spread
from hdcos.secure.activations import FACTOR_BITS, TWO_PI
from hdcos.secure.stages import settle
from hdcos.secure.training.comparing import through
from hdcos.secure.training.forward import Pass
from hdcos.secure.training.plan import (
    ACTIVATION_GRADIENT,
    ACTIVATION_GRADIENT_BITS,
    DIAGONAL_BITS,
    FUSED_SLOPE,
    LinearBlock,
)
from hdcos.secure.training.rule import Rule, Step
from hdcos.sharing import Share

Gradient = Share | FusedGradient


@dataclass
class Backward:
    """The backward pass at one party."""

    party: Party
    passes: list[Pass]
    state: Mapping[str, Share]
    rule: Rule
    rows: int
    factors: Mapping[str, float]
    """Of the learning rate, by parameter."""
    made: dict[str, Step] = field(default_factory=dict)
    """That of each parameter."""

    def steps(self, error: Share) -> Rounds[dict[str, Step]]:
        """Each parameter's step, from the loss's derivative by the network's result."""
        gradient: Gradient = error  # by a block's result, before its activation
        for number in range(len(self.passes) - 1, -1, -1):
            each, before = self.passes[number], self.passes[number - 1] if number else None
            fused = before is not None and before.block.fused and before.block.diagonal
            if not each.block.diagonal:
                assert isinstance(gradient, Share)
                gradient = yield from self._matrix_gradients(each, before, gradient)
            elif before is not None and fused:
                to_open = yield from self._to_open(each.block, gradient)
                rows = yield from open_lifted_rows(self.party, to_open, *_opening(each.block, to_open))
                self._note_fused_steps(number + 1, gradient)
                gradient = self._fused_gradient(each, before.block, rows)
            else:
                to_open = yield from self._to_open(each.block, gradient)
                opened = yield from open_lifted(self.party, to_open, *_opening(each.block, to_open))
                self._note_fused_steps(number + 1, gradient)
                gradient = self._diagonal_gradients(each, before, opened)
            if before is not None and not fused:
                assert isinstance(gradient, Share)
                gradient = yield from self._through_activation(before, gradient)
        return self.made

    # ---- Hadamard-Diagonal blocks

    def _to_open(self, block: LinearBlock, gradient: Gradient) -> Rounds[Gradient]:
        """The gradient before the transform."""
        if block.projection is not None:
            # It takes bits, and cannot be undone for the bias: the gradient behind it is rounded by itself.
            assert block.bias is not None
            share = gradient.share() if isinstance(gradient, FusedGradient) else gradient
            rounded = yield from settle(self.party, share, block.gradient_scale)
            self._move(block.bias.name, rounded.sum(0), block.bias.squared)
            gradient = block.projection.adjoint(rounded, block.size)
        if isinstance(gradient, FusedGradient):
            gradient.size = block.size
            return gradient
        return transformed(gradient, block.size, block.size)

    def _fused_gradient(self, each: Pass, before: LinearBlock, opened: LiftedRows) -> FusedGradient:
        """The gradient behind the cosine before a block; the block's steps are there once that is opened."""
        assert each.before is not None
        factor = self._on_cosine(each.block, each.before, opened.scale + each.before.scale, before)
        slope = (-TWO_PI, each.before.scale + FACTOR_BITS - FUSED_SLOPE)
        return fused_gradient(self.party, opened, each.before, each.weight, factor, slope, FUSED_SLOPE)

    def _diagonal_gradients(self, each: Pass, before: Pass | None, opened: Lifted) -> Gradient:
        """The steps of a block, and the gradient by the activations before it."""
        block, party = each.block, self.party
        moved = [opened.moved(term) for term in range(prod(block.weight.shape[:-1]))]
        if each.before is None:
            (total, step), *others = [summed_product(party, x, each.x) for x in moved]
            self._move_bias(block, total)
            step = Share(as_rows([step.words, *(other.words for _, other in others)]), step.scale)
            self._move(block.weight.name, step, block.weight.squared)
            return step if before is None else self._behind_weight(each, moved)
        assert before is not None
        factor = self._on_cosine(block, each.before, opened.scale + each.before.scale, before.block)
        self._move_bias(block, opened.share(party).sum(0))
        products = [times_trig(party, x, each.before, before.block.pool) for x in moved]
        steps = [x.combine(factor[0], 0, factor[1], block.weight.scale).sum(0).words for x in products]
        self.made[block.weight.name] = Step(as_rows([pool_sum(words, before.block.pool) for words in steps]))
        return self._behind_weight(each, moved)

    def _behind_weight(self, each: Pass, moved: list[Lifted]) -> Share:
        """The gradient by what a block's weight was multiplied with: the sum over its terms."""
        first, *others = [times_masked(self.party, x, w) for x, w in zip(moved, each.weight.terms(), strict=True)]
        return sum(others, first)

    def _note_fused_steps(self, number: int, gradient: Gradient) -> None:
        """The steps of a block whose gradient went on to the block before it, and was opened there."""
        if not isinstance(gradient, FusedGradient):
            return
        block = self.passes[number].block
        assert gradient.total is not None
        assert gradient.moved is not None
        self._move_bias(block, Share(gradient.total, gradient.x.scale))
        self.made[block.weight.name] = Step(gradient.moved)

    def _move_bias(self, block: LinearBlock, total: Share) -> None:
        """From the sum of the gradients before the transform; with a projection the bias has moved already."""
        if block.bias is not None and block.projection is None:
            gradient = transformed(total, block.size, block.part.factor.outputs[0])
            self._move(block.bias.name, gradient, block.bias.squared / block.size)

    def _on_cosine(self, block: LinearBlock, phase: FusedPhase, scale: int, before: LinearBlock) -> tuple[int, int]:
        """The learning rate in the public factor of a cosine: sum over the batch of g_u cos y' is then the step."""
        rate = self.rule.rate_of(self.factors[block.weight.name])
        amplitude = rate / self.rows * block.weight.squared * 2.0 ** (block.weight.scale - scale)
        return self.rule.on_cosine(amplitude / 2.0**before.pool_bits, phase.scale, block.part.index)

    # ---- matrix blocks, activations

    def _matrix_gradients(self, each: Pass, before: Pass | None, gradient: Share) -> Rounds[Share]:
        block, factor, party = each.block, each.block.part.factor, self.party
        if block.activation is None and not block.largest and not (block.last and gradient.bits == 64):
            gradient = yield from settle(party, gradient, ACTIVATION_GRADIENT)
        gradient = gradient.reshape(len(gradient), *factor.outputs)
        G = yield from open_masked(party, gradient, gradient.scale - block.gradient_scale, block.ring)
        if block.bias is not None:
            total = G.share(party).sum(0)
            if len(factor.outputs) == 3:
                total = total.reshape(factor.outputs[0], -1).sum(1)
            self._move(block.bias.name, total, block.bias.squared)
        options = {"stride": factor.stride, "padding": factor.padding}
        step = product(party, each.x, G, f"{factor.operation}.weight", block.weight.shape, **options)
        self._move(block.weight.name, step, block.weight.squared)
        if before is None:
            return gradient
        return product(party, G, each.weight, f"{factor.operation}.input", factor.inputs, **options)

    def _through_activation(self, each: Pass, gradient: Share) -> Rounds[Share]:
        """From the gradient by pooled activations to that by the layer's result."""
        gradient = gradient.reshape(len(gradient), -1)
        if each.choice is not None:
            gradient = yield from through(self.party, each.block, each.choice, gradient)
            if each.slope is None:
                return gradient
        if each.slope is None:
            words = spread(gradient.words, each.block.pool)
            return Share(words, gradient.scale + each.block.pool_bits, gradient.bits)
        # Of a pooled gradient each element gets a part: the scale is that of the part.
        drop = gradient.scale + each.block.pool_bits - ACTIVATION_GRADIENT
        bits = min(ACTIVATION_GRADIENT_BITS, gradient.bits - drop)
        opened = yield from open_lifted(self.party, gradient, drop, bits)
        result = times_masked(self.party, opened, each.slope, each.block.pool, each.slope.bits)
        return result.rescaled(result.scale + each.block.pool_bits)

    def _move(self, name: str, gradient: Share, factor: float) -> None:
        """Note a parameter's step: `factor` times the gradient, summed over the batch, in the parameter's units."""
        rate = self.rule.rate_of(self.factors[name])
        rate *= factor / self.rows * 2.0 ** (self.state[name].scale - gradient.scale)
        self.made[name] = Step(gradient.words, self.rule.check_factor(rate, name))


def _opening(block: LinearBlock, gradient: Gradient) -> tuple[int, int]:
    """The bits that are dropped and kept where a diagonal block's gradient is opened."""
    drop = gradient.scale - block.gradient_scale
    return drop, min(DIAGONAL_BITS, gradient.bits - drop)
