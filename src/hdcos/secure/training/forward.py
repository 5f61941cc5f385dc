"""The forward pass of a training step: weights and rows are opened, activations become what comes after them.

Weights that are opened at one scale in one ring lie side by side: one opening instead of one for each layer, and
products refer to their part of the row's mask. They are opened rounded and lifted at the start of a step, then once
more in the ring of the products that they enter.

What the backward pass needs is kept for each block: its weight and input under masks, the phase of its cosine, the
derivative of its activation, the bits of its comparison. Derivatives wait for the next opening and travel with it, so
they cost no round.

Security  all openings are under fresh masks that mask nothing else; see lifted, opening and phase.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import Any, TypeVar

from hdcos import nn
from hdcos.nn.activations import SeriesActivation
from hdcos.offline import Reference
from hdcos.protocol.cosine import FusedPhase, even, open_fused_phase
from hdcos.protocol.hadamard import HadamardCosine
from hdcos.protocol.lifted import Lifted, open_lifted, times_masked
from hdcos.protocol.masked import Masked, product
from hdcos.protocol.opening import open_masked, round_lift
from hdcos.protocol.party import Party
from hdcos.protocol.rounds import Rounds, together
from hdcos.ring import Array, Blank, HadamardLayer, pool_sum
from hdcos.ring.device import join_flat
from hdcos.secure.activations import activation_stage, cosine_slope, quarter_back
from hdcos.secure.stages import plus_bias, settle, transform
from hdcos.secure.training.comparing import Choice, compare
from hdcos.secure.training.plan import (
    DIAGONAL_OUTPUT,
    INPUT_SCALE,
    LEAST_RING,
    MATRIX_OUTPUT,
    OPENED_SCALE,
    OPENED_SLOPE,
    PHASE_BITS,
    WEIGHT_SCALE,
    LinearBlock,
    TrainingPlan,
    WeightRow,
)
from hdcos.sharing import Share

T = TypeVar("T")
State = Mapping[str, Share]
Output = Share | HadamardCosine
BIAS_BITS = 40
"""Of biases as momentum and decay need them, at the scale of opened weights."""
SERIES_SCALE, SQUARE_SCALE = 13, 12
"""Of dealt cosines of series; of values that are squared as they are opened."""


class Weights:
    """The weights of all blocks at one party: all are lifted, and those that products refer to masked as well."""

    def __init__(self, party: Party, plan: TrainingPlan, state: State) -> None:
        self._party, self._state = party, state
        self._rows, self._first = plan.weight_rows, plan.blocks[0].weight
        self._lifted: tuple[Lifted, ...] = ()
        self._shares: list[Share] = []

    def open(self) -> Rounds[None]:
        """All weights, rounded and lifted: one round."""
        self._lifted = yield from together(*(self._open_row(row) for row in self._rows))
        self._shares = [lifted.share(self._party) for lifted in self._lifted]

    def copies(self) -> dict[str, Share]:
        """The rounded weights."""
        return {
            weight.name: share[start : start + prod(weight.shape)].reshape(*weight.shape)
            for row, share in zip(self._rows, self._shares, strict=True)
            for weight, start in row.places
        }

    @property
    def first(self) -> list[Lifted]:
        """The terms of the first block's weight, which begins the first row."""
        *terms, width = self._first.shape
        return [self._lifted[0].part(term * width, (width,)) for term in range(prod(terms))]

    def masked_at(self, name: str) -> Reference:
        """Where the mask of a weight will be, if `remask` comes next."""
        position = self._party.source.position
        for number, row in enumerate(row for row in self._rows if row.masked_again):
            for weight, start in row.masked_again:
                if weight.name == name:
                    place = start - row.masked_again[0][1]
                    return Reference.of(position + number, True, start=place, shape=weight.shape)
        raise KeyError(name)

    def remask(self) -> Rounds[dict[str, Masked]]:
        """The weights in the rings of their products, under masks that these can refer to: one round."""
        again = [(row, share) for row, share in zip(self._rows, self._shares, strict=True) if row.masked_again]
        opened = yield from together(*(self._mask_row(row, share) for row, share in again))
        return {
            weight.name: masked.part(start - row.masked_again[0][1], weight.shape)
            for masked, (row, _) in zip(opened, again, strict=True)
            for weight, start in row.masked_again
        }

    def _mask_row(self, row: WeightRow, share: Share) -> Rounds[Masked]:
        return open_masked(self._party, share[row.masked_again[0][1] :], bits=row.ring, whole=True)

    def _open_row(self, row: WeightRow) -> Rounds[Lifted]:
        shares = [self._state[weight.name] for weight in row.weights]
        flat = Share(_side_by_side([share.words for share in shares]), shares[0].scale, shares[0].bits)
        return open_lifted(self._party, flat, row.drop, row.bits, whole=True)


def _side_by_side(tensors: list[Array]) -> Array:
    if any(isinstance(tensor, Blank) for tensor in tensors):
        return Blank(sum(tensor.size for tensor in tensors))  # type: ignore[return-value]
    return join_flat(tensors)


@dataclass
class Pass:
    """What the forward pass of one block leaves for its backward pass."""

    block: LinearBlock
    weight: Masked = field(init=False)
    """In the ring of its products; that of a first diagonal block is used as it was lifted."""
    x: Masked = field(init=False)
    """Its input, unless that came as a phase."""
    before: FusedPhase | None = None
    """The phase its input came as."""
    phase: FusedPhase | None = None
    """Its own activation, if the next layer takes it as a phase."""
    slope: Masked | None = None
    """The derivative of its activation, unless that is made of bits."""
    choice: Choice | None = None
    """That of its comparison, behind which the activation was computed."""


@dataclass
class Forward:
    """The forward pass at one party."""

    party: Party
    plan: TrainingPlan
    state: State
    weights: Weights = field(init=False)
    passes: list[Pass] = field(init=False)
    waiting: list[tuple[Callable[[Any], None], Rounds[Any]]] = field(default_factory=list)
    """Derivatives that are opened with whatever is opened next, and who keeps them."""
    biases: dict[str, Share] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.weights = Weights(self.party, self.plan, self.state)
        self.passes = [Pass(block) for block in self.plan.blocks]

    def logits(self, x: Share, inertial: bool, *along: Rounds[Any]) -> Rounds[tuple[Share, tuple[Any, ...]]]:
        """The network's result, and what the protocols `along` gave, which shared the first round.

        `inertial` steps need the biases rounded as well.
        """
        biases = [self._round_biases()] if inertial else []
        rows = self._open_rows(x.reshape(len(x), *self.plan.input_shape))
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
        biases = [block.bias for block in self.plan.blocks if block.bias is not None]
        rounded = yield from together(*(self._round(self.state[bias.name]) for bias in biases))
        self.biases = {bias.name: row.reshape(-1) for bias, row in zip(biases, rounded, strict=True)}

    def _round(self, bias: Share) -> Rounds[Share]:
        drop = bias.scale - WEIGHT_SCALE
        return round_lift(self.party, bias.reshape(1, -1), drop, min(BIAS_BITS, bias.bits - drop))

    def _open_rows(self, x: Share) -> Rounds[Masked]:
        first = self.plan.blocks[0]
        return open_masked(self.party, x, 0 if first.diagonal else INPUT_SCALE - OPENED_SCALE, first.ring)

    def _first(self, X: Masked) -> Rounds[Output]:
        """The first layer, and all weights under masks that products can refer to."""
        first = self.passes[0]
        first.x = X
        if not first.block.diagonal:
            yield from self._remask()
            return self._matrix_output(first)
        # H adds and subtracts whole turns, so that products may lose them; a projection multiplies by fractions.
        whole_turns = first.block.periodic and first.block.projection is None
        ring = WEIGHT_SCALE + X.scale if whole_turns else 64
        products = [times_masked(self.party, term, X, ring=ring) for term in self.weights.first]
        y = self._diagonal_output(products, first.block)
        if first.block.fused:
            # The next weight is opened in the same round as the phase that its mask is multiplied with.
            weight = self.weights.masked_at(self.passes[1].block.weight.name)
            _, first.phase = yield from together(self._remask(), self._open_phase(first, y, weight))
        else:
            yield from self._remask()
        return y

    def _remask(self) -> Rounds[None]:
        weights = yield from self.weights.remask()
        for each in self.passes:
            if each.block.weight.name in weights:
                each.weight = weights[each.block.weight.name]

    def _next(self, number: int, y: Output) -> Rounds[Output]:
        """From one layer's result to the next layer's."""
        before, each = self.passes[number - 1], self.passes[number]
        if before.block.fused:
            if before.phase is None:
                before.phase = yield from self.with_waiting(self._open_phase(before, y, each.weight.reference))
            if not before.block.diagonal:
                self._wait_for_slope(before, cosine_slope(before.phase))
            each.before = before.phase
            return self._fused_output(before, each)
        if not isinstance(y, Share):
            y = y.share()
        z = yield from self._activated(before, y, each.block)
        if each.block.diagonal:
            z = yield from self.with_waiting(settle(self.party, z.reshape(len(z), -1), INPUT_SCALE))
            each.x = yield from self.with_waiting(open_masked(self.party, z))
            return self._diagonal_output([product(self.party, each.x, w) for w in each.weight.terms()], each.block)
        if z.bits - max(0, z.scale - OPENED_SCALE) < LEAST_RING:
            z = yield from self.with_waiting(settle(self.party, z, OPENED_SCALE))
        z = z.reshape(len(z), *each.block.part.factor.inputs)
        drop = max(0, z.scale - OPENED_SCALE)
        each.x = yield from self.with_waiting(open_masked(self.party, z, drop, each.block.ring))
        return self._matrix_output(each)

    def _activated(self, each: Pass, y: Share, following: LinearBlock) -> Rounds[Share]:
        """A block's activation, pooled."""
        z = y
        if not each.block.rectified:
            z, slope = yield from self.with_waiting(activate(self.party, each.block, y))
            if slope is not None:
                self._wait_for_slope(each, slope)
        if not each.block.compares:
            return self._pool(z, each.block)
        z, choice = yield from self.with_waiting(compare(self.party, each.block, z, following))
        self.waiting.append((partial(setattr, each, "choice"), choice))
        return z

    def _fused_output(self, before: Pass, each: Pass) -> Output:
        """H (w * cos y'), computed as it is opened, or now if a projection follows."""
        block, phase, pool = each.block, before.phase, before.block.pool
        assert phase is not None
        windows = (pool[0], pool[1], pool[2], pool[3]) if pool else None
        scale = 2 * phase.scale + WEIGHT_SCALE + before.block.pool_bits
        outputs = block.size if block.projection else block.part.factor.outputs[0]
        bias = None
        if block.bias is not None and block.projection is None and scale >= block.bias.scale:
            bias = self.state[block.bias.name].raised(scale).words
        rotation = (phase.d, phase.cos_r, phase.sin_r, phase.bits, phase.scale)
        weight, *more = phase.weight_terms(each.weight, pool)
        others = [array for term in more for array in term]
        y = HadamardCosine(HadamardLayer(*rotation, block.size, outputs, bias, windows, weight, others), scale)
        if bias is not None:
            return y.share() if block.last else y
        made = block.projection(y.share()) if block.projection else y.share()
        return self._plus_bias(made.raised(max(made.scale, DIAGONAL_OUTPUT)), block)

    def _open_phase(self, each: Pass, y: Output, weight: Reference) -> Rounds[FusedPhase]:
        flat = y.reshape(len(y), -1) if isinstance(y, Share) else y
        return open_fused_phase(self.party, flat, weight, PHASE_BITS, each.block.trig_scale, each.block.pool)

    def _wait_for_slope(self, each: Pass, slope: Share) -> None:
        drop, flat = slope.scale - OPENED_SLOPE, slope.reshape(len(slope), -1)
        opening = open_masked(self.party, flat, drop, each.block.slope_ring)
        self.waiting.append((partial(setattr, each, "slope"), opening))

    def with_waiting(self, protocol: Rounds[T]) -> Rounds[T]:
        """A protocol that opens what waits in its first round."""
        return self._along(protocol) if self.waiting else protocol

    def _along(self, protocol: Rounds[T]) -> Rounds[T]:
        waiting, self.waiting = self.waiting, []
        result: T
        result, *derivatives = yield from together(protocol, *(opening for _, opening in waiting))
        for (keep, _), derivative in zip(waiting, derivatives, strict=True):
            keep(derivative)
        return result

    def _pool(self, z: Share, block: LinearBlock) -> Share:
        if not block.pool:
            return z
        words = pool_sum(z.words.reshape(len(z), -1), block.pool)
        return Share(words, z.scale + block.pool_bits, z.bits)

    def _diagonal_output(self, products: list[Share], block: LinearBlock) -> Share:
        y = transform(products, block.size, block.part.factor.outputs[0], block.projection)
        return self._plus_bias(y.raised(DIAGONAL_OUTPUT), block)

    def _matrix_output(self, each: Pass) -> Share:
        factor = each.block.part.factor
        y = product(self.party, each.x, each.weight, factor.operation, factor.outputs, factor.stride, factor.padding)
        return self._plus_bias(y.raised(MATRIX_OUTPUT), each.block)

    def _plus_bias(self, y: Share, block: LinearBlock) -> Share:
        return plus_bias(y, self.state[block.bias.name].raised(y.scale) if block.bias else None)


def activate(party: Party, block: LinearBlock, y: Share) -> Rounds[tuple[Share, Share | None]]:
    """f(y) and f'(y), the latter so that it can be opened rounded; no derivative where there is no activation."""
    layer = block.activation
    if layer is None:
        return y, None
    if isinstance(layer, nn.Sin):
        y = quarter_back(party, y)
    precision = even(PHASE_BITS, SERIES_SCALE if isinstance(layer, SeriesActivation) else block.trig_scale)
    stage = activation_stage(layer, "", y.scale, y.bits, True, precision, SQUARE_SCALE)
    value, slope = yield from stage.run_with_slope(party, y)
    slope = slope.raised(max(slope.scale, OPENED_SLOPE))
    if slope.bits - (slope.scale - OPENED_SLOPE) < block.slope_ring:
        slope = yield from settle(party, slope, OPENED_SLOPE)
    return value, slope
