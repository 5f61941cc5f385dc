"""The forward pass of a training step: weights and rows are opened, activations become what comes after them.

What the backward pass needs is kept for each unit: its weight and input under masks, the phase of its cosine, the
derivative of its activation. Derivatives wait for the next opening and travel with it, so they cost no round.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hdcos.offline import Reference
from hdcos.protocol.cosine import FusedPhase, open_fused_phase
from hdcos.protocol.hadamard import HadamardCosine, transformed
from hdcos.protocol.lifted import times_masked
from hdcos.protocol.masked import Masked, product
from hdcos.protocol.opening import open_masked, round_lift
from hdcos.protocol.party import Party
from hdcos.protocol.rounds import Rounds, together
from hdcos.ring import HadamardLayer, pool_sum
from hdcos.secure.training.activation import activate, settled, slope_of
from hdcos.secure.training.form import (
    DIAGONAL_OUTPUT,
    INPUT_SCALE,
    LEAST_RING,
    MATRIX_OUTPUT,
    OPENED_SCALE,
    PHASE_BITS,
    WEIGHT_SCALE,
    Diagonal,
    LinearBlock,
    Matrix,
    TrainingPlan,
)
from hdcos.secure.training.weights import Weights
from hdcos.sharing import Share

State = Mapping[str, Share]
Output = Share | HadamardCosine
BIAS_BITS = 40
"""Of biases as momentum and decay need them, at the scale of opened weights."""


@dataclass
class Pass:
    """What the forward pass of one unit leaves for its backward pass."""

    unit: LinearBlock
    masked_weight: Masked | None = None
    masked_input: Masked | None = None
    """Its input, unless that came as a phase."""
    before: FusedPhase | None = None
    """The phase its input came as."""
    phase: FusedPhase | None = None
    """Its own activation, if the next layer takes it as a phase."""
    slope: Masked | None = None

    @property
    def weight(self) -> Masked:
        assert self.masked_weight is not None
        return self.masked_weight

    @property
    def x(self) -> Masked:
        assert self.masked_input is not None
        return self.masked_input


@dataclass
class Forward:
    """The forward pass at one party."""

    party: Party
    form: TrainingPlan
    state: State
    weights: Weights = field(init=False)
    passes: list[Pass] = field(init=False)
    waiting: list[tuple[Pass, Rounds[Masked]]] = field(default_factory=list)
    """Derivatives that are opened with whatever is opened next."""
    biases: dict[str, Share] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.weights = Weights(self.party, self.form, self.state)
        self.passes = [Pass(unit) for unit in self.form.units]

    def logits(self, x: Share, inertial: bool, *along: Rounds[Any]) -> Rounds[tuple[Share, tuple[Any, ...]]]:
        """The network's result, and what the protocols `along` gave, which shared the first round.

        `inertial` steps need the biases rounded as well.
        """
        biases = [self._round_biases()] if inertial else []
        rows = self._open_rows(x.reshape(len(x), *self.form.input_shape))
        _, X, *others = yield from together(self.weights.open(), rows, *biases, *along)
        y = yield from self._first(X)
        for number in range(1, len(self.passes)):
            y = yield from self._next(number, y)
        assert isinstance(y, Share)
        return y, tuple(others[len(biases) :])

    def copies(self) -> dict[str, Share]:
        """The rounded parameters of this step, as shares."""
        return {**self.weights.copies(), **self.biases}

    def _round_biases(self) -> Rounds[None]:
        biases = [unit.bias for unit in self.form.units if unit.bias is not None]
        rounded = yield from together(*(self._rounded(self.state[bias.name]) for bias in biases))
        self.biases = {bias.name: row.reshape(-1) for bias, row in zip(biases, rounded, strict=True)}

    def _rounded(self, bias: Share) -> Rounds[Share]:
        drop = bias.scale - WEIGHT_SCALE
        return round_lift(self.party, bias.reshape(1, -1), drop, min(BIAS_BITS, bias.bits - drop))

    def _open_rows(self, x: Share) -> Rounds[Masked]:
        drop = 0 if isinstance(self.form.units[0], Diagonal) else INPUT_SCALE - OPENED_SCALE
        return open_masked(self.party, x, drop)

    def _first(self, X: Masked) -> Rounds[Output]:
        """The first layer, and all weights in the whole ring under masks that products can refer to."""
        first = self.passes[0]
        first.masked_input = X
        if not isinstance(first.unit, Diagonal):
            yield from self._remask()
            return self._matrix_output(first)
        # H adds and subtracts whole turns, so that products may lose them; a projection multiplies by fractions.
        whole_turns = first.unit.periodic and first.unit.projection is None
        ring = WEIGHT_SCALE + X.scale if whole_turns else 64
        product = times_masked(self.party, self.weights.first, X, ring=ring)
        y = self._diagonal_output(product, first.unit)
        if first.unit.fused:
            # The next weight is opened in the same round as the phase that its mask is multiplied with.
            weight = self.weights.masked_at(self.passes[1].unit.weight.name)
            _, first.phase = yield from together(self._remask(), self._open_phase(first, y, weight))
        else:
            yield from self._remask()
        return y

    def _remask(self) -> Rounds[None]:
        weights = yield from self.weights.remask()
        for each in self.passes:
            each.masked_weight = weights.get(each.unit.weight.name)

    def _next(self, number: int, y: Output) -> Rounds[Output]:
        """From one layer's result to the next layer's."""
        before, each = self.passes[number - 1], self.passes[number]
        if before.unit.fused:
            if before.phase is None:
                before.phase = yield from self.with_waiting(self._open_phase(before, y, each.weight.reference))
            if not isinstance(before.unit, Diagonal):
                self._wait_for_slope(before, slope_of(before.phase))
            each.before = before.phase
            return self._fused_output(before, each)
        if not isinstance(y, Share):
            y = y.share()
        z, slope = yield from self.with_waiting(activate(self.party, before.unit, y))
        if slope is not None:
            self._wait_for_slope(before, slope)
        z = self._pooled(z, before.unit)
        if isinstance(each.unit, Diagonal):
            z = yield from self.with_waiting(settled(self.party, z.reshape(len(z), -1), INPUT_SCALE))
            each.masked_input = yield from self.with_waiting(open_masked(self.party, z))
            return self._diagonal_output(product(self.party, each.x, each.weight), each.unit)
        if z.bits - max(0, z.scale - OPENED_SCALE) < LEAST_RING:
            z = yield from self.with_waiting(settled(self.party, z, OPENED_SCALE))
        z = z.reshape(len(z), *each.unit.inputs)
        each.masked_input = yield from self.with_waiting(open_masked(self.party, z, max(0, z.scale - OPENED_SCALE)))
        return self._matrix_output(each)

    def _fused_output(self, before: Pass, each: Pass) -> Output:
        """H (w * cos y'), computed as it is opened, or now if a projection follows."""
        unit, phase, pool = each.unit, before.phase, before.unit.pool
        assert isinstance(unit, Diagonal)
        assert phase is not None
        windows = (pool[0], pool[1], pool[2], pool[3]) if pool else None
        scale = 2 * phase.scale + WEIGHT_SCALE + before.unit.pool_bits
        outputs = unit.size if unit.projection else unit.outputs[0]
        bias = None
        if unit.bias is not None and unit.projection is None and scale >= unit.bias.scale:
            bias = self.state[unit.bias.name].raised(scale).words
        rotation = (phase.d, phase.cos_r, phase.sin_r, phase.bits, phase.scale)
        weight = phase.weight_terms(each.weight, pool)
        y = HadamardCosine(HadamardLayer(*rotation, unit.size, outputs, bias, windows, weight), scale)
        if bias is not None:
            return y.share() if unit.last else y
        made = unit.projection(y.share()) if unit.projection else y.share()
        return self._plus_bias(made.raised(max(made.scale, DIAGONAL_OUTPUT)), unit)

    def _open_phase(self, each: Pass, y: Output, weight: Reference) -> Rounds[FusedPhase]:
        flat = y.reshape(len(y), -1) if isinstance(y, Share) else y
        return open_fused_phase(self.party, flat, weight, PHASE_BITS, each.unit.trig_scale, each.unit.pool)

    def _wait_for_slope(self, each: Pass, slope: Share) -> None:
        self.waiting.append((each, open_masked(self.party, slope.reshape(len(slope), -1))))

    def with_waiting(self, protocol: Rounds[Any]) -> Rounds[Any]:
        """A protocol that opens what waits in its first round."""
        return self._along(protocol) if self.waiting else protocol

    def _along(self, protocol: Rounds[Any]) -> Rounds[Any]:
        waiting, self.waiting = self.waiting, []
        result, *slopes = yield from together(protocol, *(opening for _, opening in waiting))
        for (each, _), slope in zip(waiting, slopes, strict=True):
            each.slope = slope
        return result

    def _pooled(self, z: Share, unit: LinearBlock) -> Share:
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

    def _matrix_output(self, each: Pass) -> Share:
        unit = each.unit
        assert isinstance(unit, Matrix)
        y = product(self.party, each.x, each.weight, unit.operation, unit.outputs, unit.stride, unit.padding)
        return self._plus_bias(y.raised(MATRIX_OUTPUT), unit)

    def _plus_bias(self, y: Share, unit: LinearBlock) -> Share:
        if unit.bias is None:
            return y
        bias = self.state[unit.bias.name]
        words = bias.words << np.uint64(y.scale - bias.scale)
        if len(unit.outputs) == 3:
            words = words.reshape(-1, 1, 1)
        return Share(y.words + words, y.scale, min(y.bits, bias.bits))
