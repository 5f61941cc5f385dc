"""A network as it is trained on shares: one unit per linear layer, with the scale of every tensor.

Two kinds of units. *Diagonal*: a Hadamard-Diagonal layer; its gradients are elementwise products in the whole ring, its
weights are kept at scale 60. *Matrix*: dense, convolution or circulant; its products are computed modulo 2**ring, where
`ring` is what is left of the 64 bits after the gradient was rounded, and its weights are kept in that ring.

Weights of layers that feed a cosine are in turns, w / (2 pi), and the normalisation of H rides in them as well. A
parameter p is held as p * factor; its gradient is factor times that of p, so a step is rate * factor**2 * gradient.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from math import log2, pi, prod, sqrt

import numpy as np

from hdcos import nn
from hdcos.errors import InputError, ModelError
from hdcos.nn.activations import Activation, SeriesActivation
from hdcos.nn.layer import Layer
from hdcos.nn.structured import PHD_FRACTION_BITS
from hdcos.protocol import fit
from hdcos.protocol.fourier import Series
from hdcos.ring import Array
from hdcos.secure.stages import Projection, Tensor
from hdcos.sharing import Share

Shape = tuple[int, ...]
LOSSES = ("squared", "logistic", "softmax")

MOST_CLASSES = 256
"""Of softmax: every two of them take a sigmoid, and a step a matrix of pairs by classes."""
INPUT_SCALE = 16
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
"""Pre-activations and biases of diagonal units; one turn is 2**50."""
DIAGONAL_TRIG = 16
DIAGONAL_BITS = 24
"""Of opened gradients in diagonal units."""
FUSED_SLOPE = 6
"""Scale of the public factor 2 pi sin d in the fused backward pass."""
MATRIX_TRIG = 12
MATRIX_OUTPUT = 36
"""Pre-activations and biases of matrix units."""
OPENED_SCALE = 11
"""Activations as they are opened for a matrix product."""
LEAST_RING = 48
"""An activation that leaves fewer bits than this when it is opened is lifted first."""
SLOPE_SCALE = 18
"""An activation's derivative as it is opened."""
ACTIVATION_GRADIENT = 12
"""Gradients by activations as they are opened, in ACTIVATION_GRADIENT_BITS bits."""
ACTIVATION_GRADIENT_BITS = 28
MATRIX_GRADIENT = 14
"""Gradients by pre-activations of matrix units as they are opened."""
ROOM_BITS = 2
"""Matrix weights in turns are kept in `ring` bits at scale ring - ROOM_BITS, |w| < 1; others have two bits more."""


@dataclass(frozen=True, kw_only=True)
class LinearBlock:
    """A linear layer, the activation after it, and the pooling after that."""

    index: int
    weight: Tensor
    bias: Tensor | None
    inputs: Shape
    outputs: Shape
    """Shapes of a row before and after the linear layer."""
    activation: str = ""
    """Empty for the last unit."""
    series: Series | None = None
    """What its activation is computed as, if it is a series."""
    turns: bool = False
    pool: Shape = ()
    """(channels, height, width, window) of the average over windows of its activations, if any."""
    fused: bool = False
    """Whether the next layer is computed from this unit's opened phase."""

    @property
    def last(self) -> bool:
        return not self.activation

    @property
    def periodic(self) -> bool:
        """Whether its result matters modulo one turn only."""
        return self.activation in ("cos", "sin")

    @property
    def pool_bits(self) -> int:
        """An average over a window is a sum at a scale higher by so many bits."""
        return 2 * round(log2(self.pool[3])) if self.pool else 0

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (self.weight,) if self.bias is None else (self.weight, self.bias)

    @property
    def trig_scale(self) -> int:
        """Of dealt cosines: lower where the derivative is opened, so that it leaves room for gradients."""
        return DIAGONAL_TRIG if self.fused and isinstance(self, Diagonal) else MATRIX_TRIG


@dataclass(frozen=True, kw_only=True)
class Diagonal(LinearBlock):
    """y = H (w * x), perhaps with a public projection, and a bias."""

    size: int
    projection: Projection | None = None

    @property
    def gradient_scale(self) -> int:
        """Of the gradient before the transform, which grows with sqrt(n)."""
        return 12 - round(log2(self.size) / 2)


@dataclass(frozen=True, kw_only=True)
class Matrix(LinearBlock):
    """y = x by a bilinear product with w, and a bias."""

    operation: str
    stride: int = 1
    padding: int = 0
    gradient: int
    """Scale of the gradient by y before it is opened."""
    ring: int
    """Weights and their gradients are known modulo 2**ring."""

    @property
    def gradient_scale(self) -> int:
        return min(MATRIX_GRADIENT, self.gradient)


@dataclass(frozen=True)
class WeightRow:
    """Weights that are opened at one scale in one ring, and therefore side by side, as one row."""

    drop: int
    bits: int
    weights: tuple[Tensor, ...]

    @cached_property
    def places(self) -> tuple[tuple[Tensor, int], ...]:
        """Each weight, and where it begins."""
        ends = accumulate(prod(weight.shape) for weight in self.weights)
        return tuple(zip(self.weights, (0, *ends), strict=False))


@dataclass(frozen=True)
class MaskedAgain:
    """What is masked again of a row of weights: all from `start` on, with the place of each weight behind that."""

    row: int
    start: int
    places: tuple[tuple[Tensor, int], ...]


@dataclass(frozen=True)
class TrainingPlan:
    """A network that can be trained on shares, with its loss."""

    units: tuple[LinearBlock, ...]
    loss: str
    front: tuple[Layer, ...]
    """Leading public layers, which the owner of the rows applies before sharing them."""
    input_shape: Shape
    outputs: int

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return tuple(tensor for unit in self.units for tensor in unit.tensors)

    @cached_property
    def weight_rows(self) -> tuple[WeightRow, ...]:
        """The weights of all units as they are opened."""
        rows: dict[tuple[int, int], list[Tensor]] = {}
        for unit in self.units:
            drop = unit.weight.scale - WEIGHT_SCALE
            rows.setdefault((drop, min(WEIGHT_BITS, unit.weight.bits - drop)), []).append(unit.weight)
        return tuple(WeightRow(drop, bits, tuple(weights)) for (drop, bits), weights in rows.items())

    @cached_property
    def masked_again(self) -> tuple[MaskedAgain, ...]:
        """All weights but that of a first diagonal unit, which begins the first row and is used as it was lifted."""
        left_out = isinstance(self.units[0], Diagonal)
        made = []
        for number, row in enumerate(self.weight_rows):
            places = row.places[1:] if left_out and number == 0 else row.places
            if places:
                start = places[0][1]
                made.append(MaskedAgain(number, start, tuple((weight, place - start) for weight, place in places)))
        return tuple(made)

    def words(self, model: nn.Sequential) -> dict[str, Array]:
        """A model's parameters as words; ModelError if one does not fit."""
        state = model.state()
        return {tensor.name: tensor.words(state[tensor.name]) for tensor in self.tensors}

    def shares(self, words: Mapping[str, Array]) -> dict[str, Share]:
        """Words as one party holds them, each in its ring."""
        return {tensor.name: Share(words[tensor.name], tensor.scale, tensor.bits) for tensor in self.tensors}

    def trained(self, model: nn.Sequential, words: Mapping[str, Array]) -> nn.Sequential:
        """The model with the parameters that joined words stand for."""
        return model.with_state({tensor.name: tensor.parameter(words[tensor.name]) for tensor in self.tensors})

    @property
    def error_bits(self) -> int:
        """Modulo which power of two the derivative of the loss is needed.

        A diagonal layer adds and subtracts derivatives, and opens DIAGONAL_BITS of the sums from its gradient's scale.
        """
        last = self.units[-1]
        if isinstance(last, Diagonal) and last.projection is None:
            return min(64, TARGET_SCALE - last.gradient_scale + DIAGONAL_BITS)
        return 64

    @property
    def target_scale(self) -> int:
        """The scale that targets are compared at."""
        wide = self.loss == "squared" and isinstance(self.units[-1], Diagonal)
        return DIAGONAL_OUTPUT if wide else TARGET_SCALE


def training_plan(model: nn.Sequential, loss: str = "logistic") -> TrainingPlan:
    """The form of a network, or ModelError naming the layer that cannot be trained on shares."""
    if loss not in LOSSES:
        raise InputError(f"no loss is called {loss!r}: choose from {', '.join(LOSSES)}")
    front = 0
    while front < len(model.layers) and isinstance(
        model.layers[front], nn.Flatten | nn.RandomProjection | nn.AvgPool2d
    ):
        front += 1
    if len(model.output_shape) != 1:
        raise ModelError(f"a network that is trained gives a row of numbers, this one gives {model.output_shape}")
    if loss == "softmax" and model.output_shape[0] < 2:
        raise ModelError("softmax compares outputs, and this network has one: use the logistic loss")
    if loss == "softmax" and model.output_shape[0] > MOST_CLASSES:
        raise ModelError(
            f"softmax compares every two outputs and takes at most {MOST_CLASSES}, this network has "
            f"{model.output_shape[0]}: use the logistic loss"
        )
    units = _Reader(model.layers, model.shapes, front, loss).units()
    if len(units[-1].outputs) != 1:
        raise ModelError("a network that is trained ends with a linear layer that gives a row of numbers")
    return TrainingPlan(units, loss, tuple(model.layers[:front]), model.shapes[front], model.output_shape[0])


@dataclass
class _Reader:
    """Reads layers in groups: a linear one, an activation, pooling."""

    layers: Sequence[Layer]
    shapes: Sequence[Shape]
    position: int
    loss: str

    def units(self) -> tuple[LinearBlock, ...]:
        made: list[LinearBlock] = []
        while self.position < len(self.layers):
            made += self._group(not made)
        if not made or not made[-1].last:
            raise ModelError("a network that is trained ends with a linear layer")
        return tuple(
            replace(unit, fused=unit.activation == "cos" and _takes_phase(following))
            for unit, following in zip(made, [*made[1:], None], strict=True)
        )

    def _group(self, first: bool) -> list[LinearBlock]:
        index = self.position
        layer = self.layers[index]
        activation, series, pool, self.position = self._after(index)
        last = self.position == len(self.layers)
        if last and (activation != "none" or pool):
            raise ModelError("a network that is trained ends with a linear layer")
        activation = "" if last else activation
        turns = activation in ("cos", "sin", "growing_cos")
        shared = {"index": index, "activation": activation, "series": series, "turns": turns, "pool": pool}
        if isinstance(layer, nn.HadamardDiagonal | nn.PHD):
            return self._diagonal(layer, shared)
        ring = 64 - max(0, INPUT_SCALE - OPENED_SCALE) if first else LEAST_RING
        inputs, outputs = self.shapes[index], self.shapes[index + 1]
        if isinstance(layer, nn.Dense):
            return [self._matrix("matmul", "weight", True, inputs, outputs, ring, shared)]
        if isinstance(layer, nn.Circulant):
            return [self._matrix("circulant", "weight", True, inputs, outputs, ring, shared)]
        if isinstance(layer, nn.Conv2d):
            return [self._matrix("conv2d", "weight", True, inputs, outputs, ring, shared, layer.stride, layer.padding)]
        if isinstance(layer, nn.LowRank):
            middle = {**shared, "activation": "none", "series": None, "turns": False, "pool": ()}
            right = self._matrix("matmul", "right", False, inputs, (layer.rank,), ring, middle)
            return [right, self._matrix("matmul", "left", True, (layer.rank,), outputs, LEAST_RING, shared)]
        raise ModelError(f"layer {index}, {layer.kind}, cannot be trained on shares here: a linear layer should come")

    def _after(self, index: int) -> tuple[str, Series | None, Shape, int]:
        """The activation and pooling after a linear layer, and where the next one is."""
        activation, position = "none", index + 1
        series: Series | None = None
        pool: Shape = ()
        following = self.layers[position] if position < len(self.layers) else None
        if isinstance(following, Activation):
            activation = following.name
            if isinstance(following, SeriesActivation):
                series = fit.series(activation, following.reach)
            if activation == "relu":
                raise ModelError(
                    f"layer {position}, ReLU, cannot be computed on shares: use Cos, which costs one round"
                )
            position += 1
        while position < len(self.layers) and isinstance(self.layers[position], nn.AvgPool2d | nn.Flatten):
            layer = self.layers[position]
            if isinstance(layer, nn.AvgPool2d):
                channels, height, width = self.shapes[position]
                whole = height % layer.size == 0 and width % layer.size == 0
                if pool or not whole or layer.size & (layer.size - 1):
                    raise ModelError(
                        f"layer {position}, AvgPool2d: training takes one pooling after an activation, of windows of "
                        f"2, 4 or 8 that divide the image"
                    )
                pool = (channels, height, width, layer.size)
            position += 1
        return activation, series, pool, position

    def _diagonal(self, layer: nn.HadamardDiagonal | nn.PHD, shared: dict) -> list[LinearBlock]:  # type: ignore[type-arg]
        index = shared["index"]
        names = layer.diagonals if isinstance(layer, nn.HadamardDiagonal) else ("diagonal",)
        made: list[LinearBlock] = []
        for block, name in enumerate(names):
            last = block == len(names) - 1
            options = shared if last else {**shared, "activation": "none", "series": None, "turns": False, "pool": ()}
            unit = 2 * pi if options["turns"] else 1.0
            shape = layer.parameter_shapes()[name]
            projection = None
            if isinstance(layer, nn.PHD):
                columns, values = layer.projection()
                projection = Projection(columns, values.astype(np.int64).astype(np.uint64), PHD_FRACTION_BITS)
            weight = Tensor(f"{index}.{name}", shape, DIAGONAL_SCALE, 1 / (unit * sqrt(layer.size)), limit=3.9)
            bias = None
            if last:
                bias = Tensor(f"{index}.bias", (layer.out_features,), DIAGONAL_OUTPUT, 1 / unit, masked=False)
            outputs = (layer.out_features,) if last else (layer.size,)
            made.append(
                Diagonal(
                    weight=weight,
                    bias=bias,
                    inputs=shape,
                    outputs=outputs,
                    size=layer.size,
                    projection=projection,
                    **options,
                )
            )
        return made

    def _matrix(
        self,
        operation: str,
        weight: str,
        biased: bool,
        inputs: Shape,
        outputs: Shape,
        ring: int,
        shared: dict,  # type: ignore[type-arg]
        stride: int = 1,
        padding: int = 0,
    ) -> LinearBlock:
        index = shared["index"]
        if shared["activation"] == "":
            gradient = ACTIVATION_GRADIENT if self.loss == "softmax" else TARGET_SCALE
        elif shared["activation"] == "none":
            gradient = ACTIVATION_GRADIENT
        else:
            gradient = ACTIVATION_GRADIENT + SLOPE_SCALE
        ring = min(ring, 64 - max(0, gradient - MATRIX_GRADIENT))
        # A step is an integer multiple of the gradient: the fewer bits weights need, the finer it is.
        room = ROOM_BITS if shared["turns"] else ROOM_BITS + 2
        factor = 1 / (2 * pi) if shared["turns"] else 1.0
        flipped = operation == "matmul"
        shape = self.layers[index].parameter_shapes()[weight]
        tensor = Tensor(
            f"{index}.{weight}",
            shape[::-1] if flipped else shape,
            ring - room,
            factor,
            bits=ring,
            transposed=flipped,
            limit=0.99 * 2 ** (room - ROOM_BITS),
        )
        bias = None
        if biased:
            name = f"{index}.bias"
            shape = self.layers[index].parameter_shapes()["bias"]
            bias = Tensor(
                name, shape, MATRIX_OUTPUT, factor, bits=ring, masked=False, limit=2.0 ** (ring - MATRIX_OUTPUT - 2)
            )
        return Matrix(
            weight=tensor,
            bias=bias,
            inputs=inputs,
            outputs=outputs,
            operation=operation,
            gradient=gradient,
            ring=ring,
            stride=stride,
            padding=padding,
            **shared,
        )


def _takes_phase(unit: LinearBlock | None) -> bool:
    """Whether a unit can be fused with the cosine before it; a projection leaves room for a result in turns only."""
    return isinstance(unit, Diagonal) and (unit.projection is None or unit.turns)
