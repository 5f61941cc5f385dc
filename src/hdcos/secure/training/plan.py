"""A network as it is trained on shares: one block per factor of a linear layer, with the scale of every tensor.

Two kinds of blocks. *Diagonal*: H (w * x); its gradients are elementwise products in the whole ring, its weights are
kept at scale 60. *Matrix*: dense, convolution or circulant; its products are computed modulo 2**ring, where `ring` is
what is left of the 64 bits after the gradient was rounded. Its weights are kept in that ring, and everything that meets
in its products is opened there: rows, weights and gradients.

Weights of layers that feed a cosine are in turns, w / (2 pi), and the normalisation of H rides in them as well. A
parameter p is held as p * factor; its gradient is factor times that of p, so a step is rate * factor**2 * gradient.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from math import log2, prod, sqrt
from typing import Any

from hdcos import nn
from hdcos.errors import InputError, ModelError
from hdcos.nn.activations import Activation
from hdcos.nn.comparing import Comparing
from hdcos.nn.layer import Layer
from hdcos.protocol.fit import LOGITS
from hdcos.protocol.sign import TABLES
from hdcos.ring import Array
from hdcos.secure.activations import SLOPE_SCALE
from hdcos.secure.compile import INPUT_SCALE as INPUT_SCALE
from hdcos.secure.reader import TURNS, VALUE, Part, Reader, purpose_of
from hdcos.secure.stages import Projection, Tensor
from hdcos.sharing import Share

Shape = tuple[int, ...]
RECTIFIED = (nn.ReLU, nn.LeakyReLU)
LOSSES = ("squared", "logistic", "softmax")

MOST_CLASSES = 256
"""Of softmax: every two of them take a sigmoid, and a step a matrix of pairs by classes."""
TARGET_SCALE = 32
"""Labels as they are uploaded, and errors of the logistic loss."""
PHASE_BITS = 16
"""Of activations; the loss takes LOSS_PHASE_BITS."""
LOSS_PHASE_BITS = 20
WEIGHT_SCALE = 18
"""Weights as they are opened: |w| < 4 for diagonals, 1 (turn) for matrices in turns, 4 for others."""
WEIGHT_BITS = 22
DIAGONAL_SCALE = 60
"""Diagonal weights as they are kept: |w| < 8."""
DIAGONAL_OUTPUT = 50
"""Pre-activations and biases of diagonal blocks; one turn is 2**50."""
DIAGONAL_TRIG = 16
DIAGONAL_BITS = 24
"""Of opened gradients in diagonal blocks."""
FUSED_SLOPE = 6
"""Scale of the public factor 2 pi sin d in the fused backward pass."""
MATRIX_TRIG = 12
MATRIX_OUTPUT = 36
"""Pre-activations and biases of matrix blocks."""
OPENED_SCALE = 11
"""Activations as they are opened for a matrix product."""
ERROR_RING = 50
"""Bits that the derivative of a loss has at least where it meets the weights of rows."""
LEAST_RING = 48
"""An activation that leaves fewer bits than this when it is opened is lifted first."""
ACTIVATION_GRADIENT = 12
"""Gradients by activations as they are opened, in ACTIVATION_GRADIENT_BITS bits."""
ACTIVATION_GRADIENT_BITS = 28
OPENED_SLOPE = 12
"""Derivatives of activations as they are opened: no finer than the dealt cosines that they are made of."""
MATRIX_GRADIENT = 14
"""Gradients by pre-activations of matrix blocks as they are opened."""
LEAK_SCALE = 12
"""The public slope of a LeakyReLU, in its value and in its derivative."""
ROOM_BITS = 2
"""Matrix weights in turns are kept in `ring` bits at scale ring - ROOM_BITS, |w| < 1; others have two bits more."""


@dataclass(frozen=True, kw_only=True)
class LinearBlock:
    """A factor of a linear layer, the activation after it, and the pooling after that."""

    part: Part
    weight: Tensor
    bias: Tensor | None
    activation: Activation | None
    pool: Shape
    """(channels, height, width, window) of the average over windows of its activations, if any."""
    largest: Shape
    """The same of the largest of windows. One of both is empty."""
    last: bool
    size: int = 0
    """Of the transform of a diagonal block."""
    projection: Projection | None = None
    """Public, behind the transform."""
    gradient: int = 0
    """Scale of the gradient by a matrix block's result before it is opened."""
    fused: bool = False
    """Whether the next block is computed from this one's opened phase."""

    @property
    def diagonal(self) -> bool:
        return self.part.factor.operation == "diagonal"

    @property
    def periodic(self) -> bool:
        """Whether its result matters modulo one turn only."""
        return self.part.purpose == TURNS

    @property
    def pool_bits(self) -> int:
        """An average over a window is a sum at a scale that is higher by these bits."""
        return _pool_bits(self.pool)

    @property
    def windows(self) -> Shape:
        """Of its pooling, whichever it is."""
        return self.pool or self.largest

    @property
    def rectified(self) -> bool:
        """Whether its activation is computed by comparison with zero."""
        return isinstance(self.activation, RECTIFIED)

    @property
    def compares(self) -> bool:
        return self.rectified or bool(self.largest)

    @property
    def way(self) -> str:
        """How it compares: by tables, whatever `compare` of its layers says; see `protocol.sign`."""
        return TABLES

    @property
    def leak(self) -> int:
        """What a LeakyReLU leaves of negative numbers, over 2**LEAK_SCALE."""
        return round(self.activation.slope * 2**LEAK_SCALE) if isinstance(self.activation, nn.LeakyReLU) else 0

    @property
    def leak_bits(self) -> int:
        """What that adds to the scale of the result, and of the gradient."""
        return LEAK_SCALE if isinstance(self.activation, nn.LeakyReLU) else 0

    @property
    def gradient_ring(self) -> int:
        """Modulo which power of two the gradient behind a comparison is needed: opening it leaves LEAST_RING bits."""
        return LEAST_RING + (0 if self.diagonal else self.gradient - self.gradient_scale)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (self.weight,) if self.bias is None else (self.weight, self.bias)

    @property
    def ring(self) -> int:
        """Modulo which power of two its products with the opened weight are needed."""
        return 64 if self.diagonal else self.weight.bits

    @property
    def slope_ring(self) -> int:
        """Modulo which power of two the derivative of its activation is needed.

        Multiplied with it, the gradient is rounded to `gradient_scale` and keeps the bits that are opened. A projection
        wants what there is.
        """
        if self.projection is not None:
            return 64 - (SLOPE_SCALE - OPENED_SLOPE)
        kept = DIAGONAL_BITS if self.diagonal else self.ring
        return kept + ACTIVATION_GRADIENT + OPENED_SLOPE - self.gradient_scale

    @property
    def trig_scale(self) -> int:
        """Of dealt cosines: lower where the derivative is opened, so that it leaves room for gradients."""
        return DIAGONAL_TRIG if self.fused and self.diagonal else MATRIX_TRIG

    @property
    def gradient_scale(self) -> int:
        """Of the gradient as it is opened; that before a transform grows with sqrt(n)."""
        return 12 - round(log2(self.size) / 2) if self.diagonal else min(MATRIX_GRADIENT, self.gradient)


@dataclass(frozen=True)
class WeightRow:
    """Weights that are opened at one scale in one ring, and therefore side by side, as one row."""

    drop: int
    bits: int
    ring: int
    """In which they are masked again."""
    weights: tuple[Tensor, ...]
    first_lifted: bool
    """Whether the first one is used as it was lifted, and all others under another mask."""

    @cached_property
    def places(self) -> tuple[tuple[Tensor, int], ...]:
        """Each weight, and where it begins."""
        ends = accumulate(prod(weight.shape) for weight in self.weights)
        return tuple(zip(self.weights, (0, *ends), strict=False))

    @cached_property
    def masked_again(self) -> tuple[tuple[Tensor, int], ...]:
        return self.places[1:] if self.first_lifted else self.places


@dataclass(frozen=True)
class TrainingPlan:
    """A network that can be trained on shares, with its loss."""

    blocks: tuple[LinearBlock, ...]
    loss: str
    front: tuple[Layer, ...]
    """Leading public layers, which the owner of the rows applies before sharing them."""
    input_shape: Shape
    outputs: int
    rate_factors: Mapping[str, float]
    """The public factor of every parameter's learning rate."""
    weighted: bool = False
    """Whether every row's gradient is multiplied by a secret weight (`weights`)."""

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return tuple(tensor for block in self.blocks for tensor in block.tensors)

    @cached_property
    def weight_rows(self) -> tuple[WeightRow, ...]:
        """All weights as they are opened. That of a first diagonal block begins the first row."""
        rows: dict[tuple[int, int, int], list[Tensor]] = {}
        for block in self.blocks:
            drop = block.weight.scale - WEIGHT_SCALE
            opened = drop, min(WEIGHT_BITS, block.weight.bits - drop), block.ring
            rows.setdefault(opened, []).append(block.weight)
        lifted = self.blocks[0].weight if self.blocks[0].diagonal else None
        return tuple(WeightRow(*opened, tuple(weights), weights[0] is lifted) for opened, weights in rows.items())

    def words(self, model: nn.Network) -> dict[str, Array]:
        """A model's parameters as words; ModelError if one does not fit."""
        state = model.state()
        return {tensor.name: tensor.words(state[tensor.name]) for tensor in self.tensors}

    def shares(self, words: Mapping[str, Array]) -> dict[str, Share]:
        """Words as one party holds them, each in its ring."""
        return {tensor.name: Share(words[tensor.name], tensor.scale, tensor.bits) for tensor in self.tensors}

    def decode(self, model: nn.Network, words: Mapping[str, Array]) -> nn.Network:
        """The model with the parameters that joined words stand for."""
        return model.with_state({tensor.name: tensor.parameter(words[tensor.name]) for tensor in self.tensors})

    @property
    def error_bits(self) -> int:
        """Modulo which power of two the derivative of the loss is needed.

        A diagonal layer adds and subtracts derivatives, and opens DIAGONAL_BITS of the sums from its gradient's scale.
        """
        last = self.blocks[-1]
        if last.diagonal and last.projection is None:
            least = ERROR_RING if self.weighted else 0
            return min(64, max(least, TARGET_SCALE - last.gradient_scale + DIAGONAL_BITS))
        return 64

    @property
    def largest_logit(self) -> int:
        """Logits, or for softmax their differences, that the loss is computed for; beyond it gradients turn round.

        Nothing holds the logits of a single layer: where classes separate they pass 56 on the way, outliers first.
        """
        return LOGITS[len(self.blocks) == 1]

    @property
    def target_scale(self) -> int:
        """The scale that targets are compared at."""
        fine = self.loss == "squared" and self.blocks[-1].diagonal and not self.weighted
        return DIAGONAL_OUTPUT if fine else TARGET_SCALE


def training_plan(model: nn.Network, loss: str = "logistic", weighted: bool = False) -> TrainingPlan:
    """How a network is trained; ModelError names the layer that cannot be trained on shares.

    `weighted` is for rows that have weights, be they their own or those of their classes.
    """
    if not isinstance(model, nn.Sequential):
        raise ModelError(
            "training on shares takes a chain of layers, an hdcos.nn.Sequential, and this is a Graph: train it in "
            "plaintext and share what comes out"
        )
    if loss not in LOSSES:
        raise InputError(f"no loss is called {loss!r}: choose from {', '.join(LOSSES)}")
    if len(model.output_shape) != 1:
        raise ModelError(f"a network that is trained gives a row of numbers, this one gives {model.output_shape}")
    if loss == "softmax" and model.output_shape[0] < 2:
        raise ModelError("softmax compares outputs, and this network has one: use the logistic loss")
    if loss == "softmax" and model.output_shape[0] > MOST_CLASSES:
        raise ModelError(
            f"softmax compares every two outputs and takes at most {MOST_CLASSES}, this network has "
            f"{model.output_shape[0]}: use the logistic loss"
        )
    reader = _Planner(model, loss, weighted)
    start = reader.position
    blocks = reader.blocks()
    if len(blocks[-1].part.factor.outputs) != 1:
        raise ModelError("a network that is trained ends with a linear layer that gives a row of numbers")
    shape, outputs = model.shapes[start], model.output_shape[0]
    return TrainingPlan(blocks, loss, reader.front, shape, outputs, model.rate_factors(), weighted)


class _Planner(Reader):
    """Reads layers in groups: a linear one, an activation, pooling."""

    def __init__(self, model: nn.Network, loss: str, weighted: bool) -> None:
        super().__init__(model)
        for index, layer in enumerate(self.layers):
            grouped = isinstance(layer, nn.Conv2d) and (layer.groups, layer.dilation) != (1, 1)
            overlapping = isinstance(layer, nn.AvgPool2d | nn.MaxPool2d) and not layer.plain
            if grouped or overlapping or isinstance(layer, nn.Affine | nn.Identity | nn.Reshape):
                what = "with groups or a dilation, " if grouped else "with a stride or padding, " if overlapping else ""
                raise ModelError(
                    f"layer {index}, {layer.kind}, {what}cannot be trained on shares: leave it out, or train in "
                    f"plaintext"
                )
        # What comes from a product in a small ring is lifted, and rounded on the way.
        self.error_scale = ACTIVATION_GRADIENT if loss == "softmax" or weighted else TARGET_SCALE

    def blocks(self) -> tuple[LinearBlock, ...]:
        made: list[LinearBlock] = []
        while self.position < len(self.layers):
            made += self._group(not made)
        if not made or not made[-1].last:
            raise ModelError("a network that is trained ends with a linear layer")
        return tuple(
            replace(block, fused=_gives_phase(block) and _takes_phase(following))
            for block, following in zip(made, [*made[1:], None], strict=True)
        )

    def _group(self, first: bool) -> list[LinearBlock]:
        index, layer = self.position, self.layers[self.position]
        activation, pool, largest = self._after(index)
        parts = self.parts(index, purpose_of(activation))
        end = self.position == len(self.layers)
        if end and (activation or pool or largest):
            raise ModelError("a network that is trained ends with a linear layer")
        if not parts:
            raise ModelError(
                f"layer {index}, {layer.kind}, cannot be trained on shares here: a linear layer should come"
            )
        after: tuple[Activation | None, Shape, Shape, bool] = activation, pool, largest, end
        inside: tuple[None, Shape, Shape, bool] = None, (), (), False
        return [self._block(part, first and part.first, *(after if part.last else inside)) for part in parts]

    def _after(self, index: int) -> tuple[Activation | None, Shape, Shape]:
        """The activation and pooling after a linear layer, behind which the next one is read.

        The largest of windows may come before ReLU, with the same result.
        """
        at, early = index + 1, self._largest(index + 1)
        at += bool(early)
        found = self.layers[at] if at < len(self.layers) else None
        activation = found if isinstance(found, Activation) else None
        at += activation is not None
        late = () if early else self._largest(at)
        pool, self.position = self.pooling(at + bool(late))
        self._check_pooling(index, pool or (), early or late)
        self._check_comparisons(index, activation, early, late)
        return activation, pool or (), early or late

    def _largest(self, index: int) -> Shape:
        """The windows of a MaxPool2d, if one stands there."""
        layer = self.layers[index] if index < len(self.layers) else None
        return (*self.shapes[index], layer.size) if isinstance(layer, nn.MaxPool2d) else ()

    def _check_pooling(self, index: int, pool: Shape, largest: Shape) -> None:
        pools = [
            at for at in range(index, len(self.layers)) if isinstance(self.layers[at], nn.AvgPool2d | nn.MaxPool2d)
        ]
        windows = pool or largest
        ragged = bool(largest) and (largest[3] < 2 or any(side % largest[3] for side in largest[1:3]))
        if self.position in pools or (pool and largest) or ragged or (windows and windows[3] & (windows[3] - 1)):
            wrong = self.position if self.position in pools else pools[bool(pool and largest)]
            raise ModelError(
                f"layer {wrong}, {self.layers[wrong].kind}: training takes one pooling after a linear layer and its "
                f"activation, of windows of 2, 4 or 8 that divide the image"
            )

    def _check_comparisons(self, index: int, activation: Activation | None, early: Shape, late: Shape) -> None:
        """Of what compares, ReLU and LeakyReLU have derivatives; only these can change places with the largest."""
        name = f"layer {index + 1 + bool(early)}, {activation.kind}" if activation else ""
        if isinstance(activation, Comparing) and not isinstance(activation, RECTIFIED):
            raise ModelError(f"{name}, cannot be trained on shares: use ReLU, LeakyReLU or Cos")
        if early and activation and not isinstance(activation, RECTIFIED):
            raise ModelError(f"{name}, cannot be trained on shares behind MaxPool2d: put MaxPool2d behind it")
        if (early or late) and isinstance(activation, nn.LeakyReLU) and activation.slope < 0:
            raise ModelError(f"{name}, cannot be trained on shares beside MaxPool2d with a slope below zero")

    def _block(
        self, part: Part, first: bool, activation: Activation | None, pool: Shape, largest: Shape, last: bool
    ) -> LinearBlock:
        layer = part.layer
        place: dict[str, Any] = {
            "part": part, "activation": activation, "pool": pool, "largest": largest, "last": last
        }  # fmt: skip
        if part.factor.operation == "diagonal":
            assert isinstance(layer, nn.HadamardDiagonal | nn.PHD)
            weight = part.weight(DIAGONAL_SCALE, 1 / (part.unit * sqrt(layer.size)), limit=3.9)
            bias = part.bias(DIAGONAL_OUTPUT, 1 / part.unit)
            return LinearBlock(weight=weight, bias=bias, size=layer.size, projection=Projection.of(layer), **place)
        gradient = ACTIVATION_GRADIENT
        if last:
            gradient = self.error_scale
        elif isinstance(activation, RECTIFIED):
            gradient += _pool_bits(pool) + (LEAK_SCALE if isinstance(activation, nn.LeakyReLU) else 0)
        elif activation:
            gradient = ACTIVATION_GRADIENT + OPENED_SLOPE
        # Behind an activation a gradient is dealt as wide as it is needed, so that the first block needs no more.
        ring = LEAST_RING if not first or activation or largest else 64 - max(0, INPUT_SCALE - OPENED_SCALE)
        ring = min(ring, 64 - max(0, gradient - MATRIX_GRADIENT))
        # A step is an integer multiple of the gradient: the fewer bits weights need, the finer it is.
        room = ROOM_BITS if part.purpose != VALUE else ROOM_BITS + 2
        weight = part.weight(ring - room, 1 / part.unit, ring, 0.99 * 2 ** (room - ROOM_BITS))
        bias = part.bias(MATRIX_OUTPUT, 1 / part.unit, ring, 2.0 ** (ring - MATRIX_OUTPUT - 2))
        return LinearBlock(weight=weight, bias=bias, gradient=gradient, **place)


def _pool_bits(pool: Shape) -> int:
    return 2 * round(log2(pool[3])) if pool else 0


def _gives_phase(block: LinearBlock) -> bool:
    """Whether a block's result may be left as the phase of its cosine."""
    return isinstance(block.activation, nn.Cos) and not block.largest


def _takes_phase(block: LinearBlock | None) -> bool:
    """Whether a block can be fused with the cosine before it; a projection leaves room for a result in turns only."""
    return block is not None and block.diagonal and (block.projection is None or block.part.purpose != VALUE)
