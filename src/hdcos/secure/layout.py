"""A network as a list of stages, with the scale of every value chosen.

The budget is 64 bits: what a value's fraction, the next weights' fraction and the result's range take together.
A cosine swallows all fractions before it, so layers that feed one keep their weights in turns at a high scale and only
ever need their result modulo one turn. Everything public rides in the weights: the normalisation of the Hadamard
transform, the division of pooling, the factor 1 / (2 pi) of turns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from math import log2, pi, sqrt
from typing import Any

import numpy as np

from hdcos import nn
from hdcos.errors import InputError, ModelError
from hdcos.nn.activations import Activation, SeriesActivation
from hdcos.nn.layer import Layer
from hdcos.nn.structured import PHD_FRACTION_BITS
from hdcos.protocol import fit
from hdcos.protocol.cosine import Precision
from hdcos.protocol.fourier import Series
from hdcos.ring import Array
from hdcos.secure import stages
from hdcos.secure.stages import Projection, Stage, Tensor

Shape = tuple[int, ...]

ARITHMETIC = 2
"""Raised whenever a scale below changes: shares of a model that were kept under another number mean something else."""
INPUT_SCALE = 16
PHASE_BITS = 26
"""Bits of a turn that are opened, unless the caller says otherwise."""
WHOLE_TURN = 64
"""As phase bits: turns are opened unrounded, whatever they have."""
OPENED_SCALE = 21
"""Fraction bits of a value that must be rounded as it is opened for a product."""
OUTPUT_SCALE = 13
"""Fraction bits of results as they leave; `answers` adds the noise around that size."""
RANGE_BITS = 10
"""Values that feed anything but a cosine may reach 2**10."""
LIFT_BITS = OPENED_SCALE + RANGE_BITS + 4
SQUARE_SCALE = 18
SERIES_SCALE = 37
"""Fraction bits of a series' result: as many as a product with dense weights leaves room for."""
MOST_PHASE_BITS = 28
PUBLIC = (nn.Flatten, nn.AvgPool2d, nn.RandomProjection)

TURNS, TURNS_VALUE, VALUE = "turns", "turns and value", "value"


@dataclass(frozen=True)
class CompiledNetwork:
    """How a network is computed on shares."""

    front: tuple[Layer, ...]
    """Leading public layers, which the owner of the input applies before sharing it."""
    input_shape: Shape
    """The shape of a row after the front."""
    input_bits: int
    stages: tuple[Stage, ...]
    output_shape: Shape
    output_gain: float
    """The network's output is this times what the parties hold."""
    input_scale: int = INPUT_SCALE

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return tuple(tensor for stage in self.stages for tensor in stage.tensors())

    def record(self) -> list[Any]:
        """Everything the two parties must have chosen alike, as JSON: stages with their scales, and tensors."""
        chosen = [[type(stage).__name__, _plain_fields(stage)] for stage in self.stages]
        return [self.input_bits, self.output_gain, chosen, [asdict(tensor) for tensor in self.tensors]]

    def prepared(self, x: Array) -> Array:
        """Rows as the parties expect them."""
        for layer in self.front:
            x = layer.forward({}, x)
        return x


def chosen_bits(phase_bits: int | None, exact: bool) -> int | None:
    """The phase bits that a caller asks for, or None for the defaults; InputError if they cannot be had."""
    if exact and phase_bits is not None:
        raise InputError("exact=True opens phases unrounded: phase_bits cannot be chosen besides")
    if exact:
        return WHOLE_TURN
    if phase_bits is None or (type(phase_bits) is int and 8 <= phase_bits <= MOST_PHASE_BITS):
        return phase_bits
    raise InputError(f"phases have 8 to {MOST_PHASE_BITS} bits, not {phase_bits!r}")


DITHERED = Precision(PHASE_BITS, 24, 10, dither=True)
ROUNDED, ROUNDED_TURNS = Precision(PHASE_BITS, 18, 18), Precision(PHASE_BITS, 22, 20)
"""Of cosines, with and without a dealer. What a party knows of an answer's error must be small against what it does not
know (docs/security.md). The table's error is public; a dealer's is noise to both parties, so its cosines are coarse and
the table takes what the ring has left. Without a dealer each party rounds its own share, and both must be fine.
"""


def layout(model: nn.Sequential, phase_bits: int = PHASE_BITS, dealer: bool = True) -> CompiledNetwork:
    """Choose the stages and scales of a network; ModelError names a layer that cannot be computed on shares.

    `phase_bits` of each turn are opened, or all of them for WHOLE_TURN. Without a `dealer` no rounding is secret, and
    the scales are others.
    """
    for index, layer in enumerate(model.layers):
        if isinstance(layer, nn.ReLU):
            raise ModelError(f"layer {index}, ReLU, cannot be computed on shares: use Cos, which costs one round")
    front = 0
    while front < len(model.layers) and isinstance(model.layers[front], PUBLIC):
        front += 1
    return _Builder(model.layers, model.shapes, front, phase_bits, dealer).build()


@dataclass
class _Builder:
    """Walks the layers and keeps track of the value: its scale, ring, gain, and whether it is in turns."""

    layers: Sequence[Layer]
    shapes: Sequence[Shape]
    position: int
    phase_bits: int
    dealer: bool
    made: list[Stage] = field(default_factory=list)
    scale: int = INPUT_SCALE
    bits: int = 64
    gain: float = 1.0
    masked: bool = True
    turns: bool = False
    input_bits: int = 64

    def build(self) -> CompiledNetwork:
        front, start = tuple(self.layers[: self.position]), self.shapes[self.position]
        while self.position < len(self.layers):
            layer = self.layers[self.position]
            if isinstance(layer, Activation):
                self._activation(layer)
            elif isinstance(layer, PUBLIC):
                self._public(layer)
            else:
                self._linear(layer, self.position)
                self.position += 1
        return CompiledNetwork(front, start, self.input_bits, tuple(self.made), self.shapes[-1], self.gain)

    # ---- linear layers

    def _linear(self, layer: Layer, index: int, fused: dict[str, object] | None = None) -> None:
        mode, after = self._ahead(index)
        name = f"{index} {layer.kind}"
        before, self.gain = self.gain, 1.0
        if isinstance(layer, nn.HadamardDiagonal | nn.PHD):
            self._diagonal(layer, index, name, mode, before, after, fused)
        elif isinstance(layer, nn.LowRank):
            # Scales that let two openings in a row do without a lift where a cosine follows: 63 bits in all.
            right = min(14, (59 - self.scale) // 2)
            self._product("matmul", f"{name} right", index, "right", None, VALUE, before, 1.0, weight_scale=right)
            narrow = min(18, 63 - self.scale) if mode == TURNS else 16
            self._product("matmul", f"{name} left", index, "left", "bias", mode, 1.0, after, weight_scale=narrow)
        elif isinstance(layer, nn.Dense):
            self._product("matmul", name, index, "weight", "bias", mode, before, after)
        elif isinstance(layer, nn.Circulant):
            outputs = {"outputs": layer.out_features}
            self._product("circulant", name, index, "weight", "bias", mode, before, after, outputs)
        elif isinstance(layer, nn.Conv2d):
            window = {"stride": layer.stride, "padding": layer.padding}
            self._product("conv2d", name, index, "weight", "bias", mode, before, after, window)
        else:
            raise ModelError(f"layer {index}, {layer.kind}, cannot be computed on shares")
        self.turns = mode != VALUE
        if mode != TURNS and self.bits - self.scale <= RANGE_BITS:
            raise ModelError(f"layer {index}, {layer.kind}, leaves no room for values up to 2**{RANGE_BITS}")

    def _product(
        self,
        operation: str,
        name: str,
        index: int,
        weight: str,
        bias: str | None,
        mode: str,
        before: float,
        after: float,
        options: dict[str, int] | None = None,
        weight_scale: int = 0,
    ) -> None:
        """A bilinear product with an opened value."""
        drop = 0
        if self.masked:
            weight_scale = weight_scale or (24 if mode == TURNS else 16)
            scale = self.scale + weight_scale
            bits = scale if mode == TURNS else 64
            self.input_bits, self.masked = bits, False
        else:
            weight_scale = weight_scale or (22 if mode == TURNS else 16)
            needed = weight_scale if mode == TURNS else weight_scale + RANGE_BITS + 1
            if self.scale + needed > self.bits or self.scale + weight_scale > 63:  # it does not fit unrounded
                self._room(min(self.scale, OPENED_SCALE) + needed, name)
                drop = max(0, self.scale - OPENED_SCALE)
            scale = self.scale - drop + weight_scale
            bits = scale if mode == TURNS else self.bits - drop
        factor = before * after * (1 / (2 * pi) if mode != VALUE else 1.0)
        layer_shape = self.layers[index].parameter_shapes()[weight]
        flipped = operation == "matmul"
        tensor = self._weight(f"{index}.{weight}", layer_shape, weight_scale, factor, bits, mode, flipped)
        biased = self._bias(index, bias, scale, after, mode)
        self.made.append(
            stages.Product(
                name=name,
                operation=operation,
                weight=tensor,
                bias=biased,
                drop=drop,
                bits=bits,
                **(options or {}),
            )
        )
        self.scale, self.bits = scale, bits

    def _diagonal(
        self,
        layer: nn.HadamardDiagonal | nn.PHD,
        index: int,
        name: str,
        mode: str,
        before: float,
        after: float,
        fused: dict[str, object] | None,
    ) -> None:
        projection = None
        if isinstance(layer, nn.PHD):
            columns, values = layer.projection()
            projection = Projection(columns, values.astype(np.int64).astype(np.uint64), PHD_FRACTION_BITS)
        diagonals = layer.diagonals if isinstance(layer, nn.HadamardDiagonal) else ("diagonal",)
        for block, diagonal in enumerate(diagonals):
            last = block == len(diagonals) - 1
            block_mode = mode if last else VALUE
            extra = projection.scale if projection else 0
            factor = (before if block == 0 else 1.0) / sqrt(layer.size)
            if last:
                factor *= after * (1 / (2 * pi) if mode != VALUE else 1.0)
            drop = kept = 0
            if fused is not None and block == 0:
                trig = self._trig(block_mode)
                fused = {**fused, "precision": self._precision(trig)}
                most, room = (24, 62) if block_mode == TURNS else (18, 63 - RANGE_BITS)
                weight_scale = min(most, room - trig.scale - extra)
                scale, bits, mask_bits = trig.scale + weight_scale + extra, 64, 64
            elif self.masked:
                weight_scale = 24 if block_mode == TURNS else 20 - extra // 2
                scale = self.scale + weight_scale + extra
                bits = mask_bits = scale if block_mode == TURNS else 64
                self.input_bits, self.masked = bits, False
            else:
                self._room(OPENED_SCALE + RANGE_BITS + 2, name)
                drop = max(0, self.scale - OPENED_SCALE)
                kept = min(LIFT_BITS, self.bits - drop)
                weight_scale = 24 if block_mode == TURNS else 20 - extra // 2
                scale, bits, mask_bits = self.scale - drop + weight_scale + extra, 64, 64
            shape = layer.parameter_shapes()[diagonal]
            weight = self._weight(f"{index}.{diagonal}", shape, weight_scale, factor, mask_bits, block_mode, False)
            common = {
                "name": name if block == 0 else f"{name} block {block + 1}",
                "weight": weight,
                "bias": self._bias(index, "bias", scale, after, mode) if last else None,
                "size": layer.size,
                "outputs": layer.out_features if last else layer.size,
                "projection": projection if last else None,
            }
            if fused is not None and block == 0:
                self.made.append(stages.FusedDiagonal(**common, **fused))  # type: ignore[arg-type]
            elif kept:
                self.made.append(stages.LiftedDiagonal(**common, drop=drop, bits=kept))  # type: ignore[arg-type]
            else:
                self.made.append(stages.MaskedDiagonal(**common))  # type: ignore[arg-type]
            self.scale, self.bits = scale, bits

    def _weight(
        self, name: str, shape: Shape, scale: int, factor: float, bits: int, mode: str, flipped: bool
    ) -> Tensor:
        limit = float("inf") if mode == TURNS else 2.0**RANGE_BITS
        shape = shape[::-1] if flipped else shape
        return Tensor(name, shape, scale, factor, bits=bits, transposed=flipped, limit=limit)

    def _bias(self, index: int, name: str | None, scale: int, after: float, mode: str) -> Tensor | None:
        if name is None:
            return None
        shape = self.layers[index].parameter_shapes()[name]
        factor = after * (1 / (2 * pi) if mode != VALUE else 1.0)
        limit = float("inf") if mode == TURNS else 2.0**RANGE_BITS
        return Tensor(f"{index}.{name}", shape, scale, factor, masked=False, limit=limit)

    def _ahead(self, index: int) -> tuple[str, float]:
        """What the result of a linear layer is for, and the gain of the public layers on the way there."""
        gain = 1.0
        for following in self.layers[index + 1 :]:
            if isinstance(following, PUBLIC):
                gain *= _gain(following)
            elif isinstance(following, nn.Cos | nn.Sin):
                return TURNS, gain
            elif isinstance(following, nn.GrowingCos):
                return TURNS_VALUE, gain
            else:
                break
        return VALUE, gain

    def _room(self, wanted: int, name: str) -> None:
        """Bring the value back to the whole ring if what it needs after rounding does not fit."""
        drop = max(0, self.scale - OPENED_SCALE)
        if self.bits - drop < wanted:
            kept = min(40, self.bits - drop)
            self.made.append(stages.Lift(name=f"{name} lift", drop=drop, bits=kept))
            self.scale, self.bits = self.scale - drop, 64

    # ---- public layers

    def _public(self, layer: Layer) -> None:
        name = f"{self.position} {layer.kind}"
        if isinstance(layer, nn.AvgPool2d):
            self.made.append(stages.Pool(name=name, window=layer.size))
        elif isinstance(layer, nn.Flatten):
            self.made.append(stages.Flatten(name=name))
        elif isinstance(layer, nn.RandomProjection):
            signs = layer.signs().astype(np.int64).astype(np.uint64)
            self.made.append(stages.Project(name=name, signs=signs, kept=layer.kept(), size=layer.size))
        if self._after_activation():
            self.gain *= _gain(layer)
        self.masked = False
        self.position += 1

    def _after_activation(self) -> bool:
        """Whether the gain of the public layer here belongs to the next weights; else the previous ones brought it."""
        for layer in reversed(self.layers[: self.position]):
            if not isinstance(layer, PUBLIC):
                return isinstance(layer, Activation)
        return True

    # ---- activations

    def _activation(self, layer: Layer) -> None:
        name = f"{self.position} {layer.kind}"
        in_turns = self.turns
        if not in_turns:
            self._plain_gain(name)
            if isinstance(layer, nn.Cos | nn.Sin):
                self.made.append(stages.ToTurns(name=f"{name} turns"))
                self.scale, self.bits = 62, 64
        if isinstance(layer, nn.Sin):
            self.made.append(stages.QuarterTurn(name=f"{name} quarter"))
        self.masked = self.turns = False
        if isinstance(layer, nn.Cos | nn.Sin):
            fused = self._fusable()
            if fused is not None:
                end, pool = fused
                self.gain = 1.0
                for between in self.layers[self.position + 1 : end]:
                    self.gain *= _gain(between)
                self._linear(self.layers[end], end, {"pool": pool})
                self.position = end + 1
                return
            precision = self._precision(self._trig(VALUE))
            self.made.append(stages.Cosine(name=name, precision=precision))
            self.scale = precision.scale
        elif isinstance(layer, nn.GrowingCos):
            drop = max(0, self.scale - 12)
            kept, trig_scale = min(24, self.bits - drop), 12
            self.made.append(
                stages.Growing(
                    name=name,
                    turns=in_turns,
                    drop=drop,
                    bits=kept,
                    phase_bits=min(self.phase_bits, 32),
                    trig_scale=trig_scale,
                )
            )
            self.scale = self.scale - drop + 2 * trig_scale
            self.gain = 2 * pi if in_turns else 1.0
        elif isinstance(layer, nn.Square):
            self._polynomial(name, (0.0, 0.0, 1.0), SQUARE_SCALE, 0)
        elif isinstance(layer, nn.PolyReLU3):
            self._polynomial(name, fit.relu_cubic(), 10, 7)
        elif isinstance(layer, SeriesActivation):
            bits = max(20, self.phase_bits) if isinstance(layer, nn.ExpM1) else self.phase_bits
            self._series(name, fit.series(layer.name, layer.reach), bits)
        else:
            raise ModelError(f"layer {self.position}, {layer.kind}, cannot be computed on shares")
        self.bits = 64
        self.position += 1

    def _plain_gain(self, name: str) -> None:
        if self.gain != 1.0:
            raise ModelError(f"{name} follows another activation and a scaling layer: put a linear layer between them")

    def _polynomial(self, name: str, coefficients: tuple[float, ...], scale: int, coefficient_scale: int) -> None:
        drop = max(0, self.scale - scale)
        kept = min(scale + RANGE_BITS + 2, self.bits - drop)
        self.made.append(
            stages.Polynomial(
                name=name, coefficients=coefficients, coefficient_scale=coefficient_scale, drop=drop, bits=kept
            )
        )
        self.scale = (len(coefficients) - 1) * (self.scale - drop) + coefficient_scale

    def _series(self, name: str, series: Series, phase_bits: int) -> None:
        trig = self._trig(VALUE)
        if self.dealer:  # the coefficients multiply the noise of dealt cosines
            dealt = trig.dealt + max(0, round(log2(series.size)))
            trig = trig._replace(table=SERIES_SCALE - dealt, dealt=dealt)
        precision = self._precision(trig, self.scale + series.period_bits, phase_bits)
        self.made.append(stages.Fourier(name=name, series=series, precision=precision))
        self.scale = precision.scale

    def _trig(self, mode: str) -> Precision:
        """The scales of a cosine, by what the layer that follows is for."""
        if self.dealer:
            return DITHERED
        return ROUNDED_TURNS if mode == TURNS else ROUNDED

    def _precision(self, trig: Precision, turn_bits: int | None = None, phase_bits: int | None = None) -> Precision:
        """Of a cosine of the value as it is now, whose turn has so many bits."""
        bits = min(phase_bits or self.phase_bits, self.scale if turn_bits is None else turn_bits)
        return trig._replace(phase_bits=bits)

    def _fusable(self) -> tuple[int, tuple[int, int, int, int] | None] | None:
        """The Hadamard-Diagonal layer that this cosine can be fused with, and the pooling on the way to it."""
        pool = None
        for index in range(self.position + 1, len(self.layers)):
            layer = self.layers[index]
            if isinstance(layer, nn.PHD) and self._ahead(index)[0] != TURNS:
                return None  # its products would leave too little room for values
            if isinstance(layer, nn.HadamardDiagonal | nn.PHD):
                return index, pool
            if isinstance(layer, nn.AvgPool2d) and pool is None and len(self.shapes[index]) == 3:
                channels, height, width = self.shapes[index]
                if height % layer.size or width % layer.size:
                    return None
                pool = (channels, height, width, layer.size)
            elif not isinstance(layer, nn.Flatten):
                return None
        return None


def _plain_fields(stage: Stage) -> dict[str, Any]:
    """What a stage was made with, but for tensors and for arrays, which follow from its layer."""
    values = {item.name: getattr(stage, item.name) for item in fields(stage)}
    plain = {name: v for name, v in values.items() if isinstance(v, int | float | str | tuple | None)}
    return plain | {name: asdict(v) for name, v in values.items() if isinstance(v, Series)}


def _gain(layer: Layer) -> float:
    """What a public layer's integer form leaves out."""
    if isinstance(layer, nn.AvgPool2d):
        return 1.0 / layer.size**2
    if isinstance(layer, nn.RandomProjection):
        return 1.0 / sqrt(layer.out_features)
    return 1.0
