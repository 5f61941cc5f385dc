"""A network as a list of stages, with the scale of every value chosen.

The budget is 64 bits: what a value's fraction, the next weights' fraction and the result's range take together.
A cosine swallows all fractions before it, so layers that feed one keep their weights in turns at a high scale and only
ever need their result modulo one turn. Everything public rides in the weights: the normalisation of the Hadamard
transform, the division of pooling, the factor 1 / (2 pi) of turns.

A graph is compiled chain by chain (see wiring). Between chains a value is itself, in the whole ring, so that sums and
one value after another are local; a value that several products read is opened once, under a fresh mask.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, fields
from math import frexp, inf, log2, pi, prod, sqrt
from typing import Any, NamedTuple

import numpy as np

from hdcos import nn
from hdcos.errors import InputError, ModelError
from hdcos.nn.activations import Activation, BentActivation, SeriesActivation
from hdcos.nn.comparing import Comparing
from hdcos.nn.convolution import Pooling
from hdcos.nn.layer import Layer
from hdcos.protocol import fit
from hdcos.protocol.cosine import Precision
from hdcos.protocol.fourier import Series
from hdcos.ring import Array
from hdcos.secure import stages
from hdcos.secure.activations import COMPARED_SCALE, RANGE_BITS, Largest, QuarterTurn, ToTurns, activation_stage
from hdcos.secure.reader import PUBLIC, TURNS, VALUE, Part, Reader, apply_front, purpose_of
from hdcos.secure.stages import Projection, Stage, Tensor
from hdcos.secure.wiring import Chain, Reads, Wiring, cut

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
FINE_SCALE = 24
"""The same where no product without an activation between needs the ring behind it: a party knows how it rounds, and
that is then less than a rounded phase (`answers`)."""
LIFT_BITS = OPENED_SCALE + RANGE_BITS + 4
"""The least that is opened in front of a Hadamard-Diagonal layer."""
SQUARE_SCALE = 18
SERIES_SCALE = 37
"""Fraction bits of a series' result: as many as a product with dense weights leaves room for. With x/2 it is one fewer,
so that the product can be rounded and lifted again."""
LEAST_WEIGHT_SCALE = 14
"""Fraction bits of dense weights, where a comparison or x/2 and a series would have no room behind the usual 16."""
MOST_PHASE_BITS = 28
LIFTED_BITS = 40
"""Of a value that is rounded to OPENED_SCALE: it may be seven bits larger than values are."""
UNROUNDED_SCALE = 37
"""The highest that a product takes as it is: 16 bits of weights, and RANGE_BITS, fill the ring."""
SETTLED_SCALE = 51
"""The highest of a value between chains: beside values of up to 2**RANGE_BITS, any activation has room behind it."""
LEAST_FRACTION, MOST_FRACTION = 16, 30
"""Of a public factor that a value is multiplied by."""


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
    reads: Reads = ()
    """The values that each stage reads; none where each reads the one before it."""

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return tuple(tensor for stage in self.stages for tensor in stage.tensors())

    def record(self) -> list[Any]:
        """Everything the two parties must have chosen alike, as JSON: stages with their scales, and tensors."""
        chosen = [[type(stage).__name__, _plain_fields(stage)] for stage in self.stages]
        record = [self.input_bits, self.output_gain, chosen, [asdict(tensor) for tensor in self.tensors]]
        return [*record, self.reads] if self.reads else record

    def apply_front(self, x: Array) -> Array:
        """Rows as the parties expect them."""
        return apply_front(self.front, x)


def choose_bits(phase_bits: int | None, exact: bool) -> int | None:
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


def compile_network(model: nn.Network, phase_bits: int = PHASE_BITS, dealer: bool = True) -> CompiledNetwork:
    """Choose the stages and scales of a network; ModelError names a layer that cannot be computed on shares.

    `phase_bits` of each turn are opened, or all of them for WHOLE_TURN. Without a `dealer` no rounding is secret, and
    the scales are others.
    """
    return _GraphCompiler(model, phase_bits, dealer).compile()


class _Place(NamedTuple):
    """A value between chains: the stage that gives it, its scale, and whether it is opened."""

    number: int
    scale: int
    masked: bool


class _GraphCompiler:
    """Compiles chain by chain, and joins what they give."""

    def __init__(self, model: nn.Network, phase_bits: int, dealer: bool) -> None:
        self.model, self.phase_bits, self.dealer = model, phase_bits, dealer
        self.pieces, self.wiring = cut(model), Wiring()
        chains = [piece for piece in self.pieces if isinstance(piece, Chain)]
        self.products = Counter(chain.source for chain in chains if self._multiplies(chain))
        """Of each value the chains that begin with a product of it."""
        self.places = {0: _Place(0, INPUT_SCALE, True)}
        self.opened: dict[int, _Place] = {}
        self.front: tuple[Layer, ...] = ()
        self.input_shape, self.input_bits, self.gain = model.input_shape, 0, 1.0

    def compile(self) -> CompiledNetwork:
        for piece in self.pieces:
            if isinstance(piece, Chain):
                self._chain(piece)
            else:
                self._join(piece)
        made, reads = self.wiring.finish()
        bits, shape = self.input_bits or 64, self.model.output_shape
        return CompiledNetwork(self.front, self.input_shape, bits, made, shape, self.gain, reads=reads)

    def _chain(self, chain: Chain) -> None:
        place, last = self._read(chain), chain.end == len(self.model.layers)
        compiler = _Compiler(self.model, self.phase_bits, self.dealer, chain, last, place.scale, place.masked)
        if compiler.front:
            self.front, self.input_shape = compiler.front, compiler.shapes[compiler.position]
        made = compiler.compile()
        if made and place.number == 0:
            self.input_bits = max(self.input_bits, compiler.input_bits)
        number = place.number
        for stage in made:
            number = self.wiring.add(stage, number)
        self.places[chain.end] = _Place(number, compiler.scale, compiler.masked)
        if last:
            self.gain = compiler.gain

    def _join(self, index: int) -> None:
        layer, places = self.model.layers[index], [self.places[number] for number in self.model.inputs[index]]
        name, scale = f"{index} {layer.kind}", max(place.scale for place in places)
        if any(place.number == 0 for place in places):
            self.input_bits = 64
        joined = stages.Concat(name=name, axis=layer.axis) if isinstance(layer, nn.Concat) else stages.Sum(name=name)
        number = self.wiring.add(joined, *(place.number for place in places))
        self.places[index + 1] = _Place(number, scale, False)

    def _read(self, chain: Chain) -> _Place:
        """What a chain starts with: opened once, if it is not yet and several products read it."""
        place, source = self.places[chain.source], chain.source
        if place.masked or self.products[source] < 2 or not self._multiplies(chain):
            return place
        if source not in self.opened:
            name, (number, scale, _) = f"{source - 1} {self.model.layers[source - 1].kind}", place
            if scale > UNROUNDED_SCALE:
                drop = scale - OPENED_SCALE
                bits = min(LIFTED_BITS, 64 - drop)
                lift = stages.Lift(name=f"{name} settled lift", drop=drop, bits=bits, opened=OPENED_SCALE)
                number = self.wiring.add(lift, number)
                scale = OPENED_SCALE
            number = self.wiring.add(stages.Open(name=f"{name} opened"), number)
            self.opened[source] = _Place(number, scale, True)
        return self.opened[source]

    def _multiplies(self, chain: Chain) -> bool:
        """Whether a chain begins with a product that takes an opened value as it is."""
        first = next(iter(chain.layers), None)
        factors = () if first is None else self.model.layers[first].factors(self.model.shape_before(first))
        return bool(factors) and factors[0].operation != "diagonal"


class _Compiler(Reader):
    """Walks the layers of a chain and keeps track of the value: its scale, ring, gain, and whether it is in turns."""

    def __init__(
        self, model: nn.Network, phase_bits: int, dealer: bool, chain: Chain, last: bool, scale: int, masked: bool
    ) -> None:
        super().__init__(model, chain.layers, has_front=chain.source == 0 and chain.alone)
        if not dealer:
            self.refuse_comparisons("takes comparisons, which need a dealer: start one with `hdcos dealer`")
        self.phase_bits, self.dealer, self.last = phase_bits, dealer, last
        self.made: list[Stage] = []
        self.scale, self.bits, self.gain = scale, 64, 1.0
        self.masked, self.turns = masked, False
        self.input_bits = 64

    def compile(self) -> list[Stage]:
        """The stages of the chain; unless it is the last, they end with a value that any layer can read."""
        while self.position < len(self.layers):
            layer = self.layers[self.position]
            if isinstance(layer, Activation):
                self._activation(layer)
            elif isinstance(layer, PUBLIC):
                self._public(layer)
            elif isinstance(layer, nn.MaxPool2d):
                self._largest(self.position)
                self.position += 1
            else:
                self._linear(self.position)
        if self.made and not self.last:
            self._settle(f"{self.name(-1)} settled")
        return self.made

    def _settle(self, name: str) -> None:
        """The value as any layer can read it: itself instead of a multiple, in the whole ring, at no higher scale."""
        if self.gain != 1.0:
            self._unscale(name)
        if self.bits < 64 or self.scale > SETTLED_SCALE:
            self._lift(name)

    def _unscale(self, name: str) -> None:
        """Multiply by the gain that no weights brought, which is public."""
        mantissa, exponent = frexp(self.gain)
        exact = mantissa == 0.5
        if self.bits < 64 or self.scale + (1 - exponent if exact else LEAST_FRACTION) > SETTLED_SCALE:
            self._lift(f"{name} sum", LIFTED_BITS + max(0, -exponent))
        fraction = 1 - exponent if exact else min(MOST_FRACTION, SETTLED_SCALE - self.scale)
        factor = 1 if exact else round(self.gain * 2**fraction)
        self.made.append(stages.Scale(name=f"{name} scaled", factor=factor, fraction=fraction))
        self.scale, self.gain, self.masked = self.scale + fraction, 1.0, False

    def _lift(self, name: str, kept: int = LIFTED_BITS, scale: int = OPENED_SCALE) -> None:
        """Round the value, and bring it back to the whole ring."""
        drop, kept = max(0, self.scale - scale), kept + scale - OPENED_SCALE
        self.scale -= drop
        lift = stages.Lift(name=f"{name} lift", drop=drop, bits=min(kept, self.bits - drop), opened=self.scale)
        self.made.append(lift)
        self.bits = 64

    # ---- linear layers

    def _linear(self, index: int, fused: dict[str, Any] | None = None) -> None:
        """A linear layer, the first of its factors `fused` with the cosine before it or not; it is the next one."""
        layer, (purpose, ahead) = self.layers[index], self._ahead(index)
        parts = self.parts(index, purpose)
        if not parts:
            raise ModelError(f"layer {self.numbers[index]}, {layer.kind}, cannot be computed on shares")
        behind, self.gain = self.gain, 1.0
        for part in parts:
            before, after = behind if part.first else 1.0, ahead if part.last else 1.0
            if part.factor.operation == "diagonal":
                self._diagonal(part, before, after, fused if part.first else None)
            else:
                self._product(part, before, after)
        self.turns = purpose != VALUE
        if purpose != TURNS and self.bits - self.scale <= RANGE_BITS:
            raise ModelError(
                f"layer {self.numbers[index]}, {layer.kind}, leaves no room for values up to 2**{RANGE_BITS}"
            )
        self.position = index + 1

    def _product(self, part: Part, before: float, after: float) -> None:
        """A bilinear product with an opened value."""
        turns, drop, finer = part.purpose == TURNS, 0, 0
        weight_scale = self._weight_scale(part)
        if self.masked:
            scale = self.scale + weight_scale
            bits = scale if turns else 64
            self.input_bits, self.masked = bits, False
        else:
            needed = weight_scale if turns else weight_scale + RANGE_BITS + 1
            if self.scale + needed > self.bits or self.scale + weight_scale > 63:  # it does not fit unrounded
                rounded, coarse = FINE_SCALE if self._ends(part.index) else OPENED_SCALE, min(self.scale, OPENED_SCALE)
                self._room(min(self.scale, rounded) + needed, part.name, rounded)
                drop = max(0, self.scale - rounded)
                finer = self.scale - drop - coarse
            scale = self.scale - drop + weight_scale
            bits = scale if turns else self.bits - drop
        factor = part.factor
        self.made.append(
            stages.Product(
                name=part.name,
                operation=factor.operation,
                weight=part.weight(weight_scale, before * after * (1 / part.unit), bits, _limit(part)),
                bias=part.bias(scale - finer, after * (1 / part.unit), limit=_limit(part)),
                outputs=factor.outputs[0] if factor.operation == "circulant" else 0,
                stride=factor.stride,
                padding=factor.padding,
                groups=factor.groups,
                dilation=factor.dilation,
                drop=drop,
                bits=bits,
            )
        )
        self.scale, self.bits = scale, bits

    def _weight_scale(self, part: Part) -> int:
        """Of two factors in a row such that two openings do without a lift where a cosine follows: 63 bits in all."""
        if part.purpose != TURNS:
            room = 64 - self.scale - self._lifted_bits(part.index)
            usual = room if LEAST_WEIGHT_SCALE <= room < 16 else 16
            return usual if part.last else min(14, (59 - self.scale) // 2)
        if not part.first:
            return min(18, 63 - self.scale)
        return 24 if self.masked else 22

    def _lifted_bits(self, index: int) -> int:
        """What a comparison, or x/2 and a series, opens above the fraction of a value; 0 if none comes next."""
        following = self._following(index)
        if isinstance(following, Comparing):
            return RANGE_BITS + 3
        return RANGE_BITS + 2 if isinstance(following, BentActivation) else 0

    def _ends(self, index: int) -> bool:
        """Whether the result of a layer is the network's, or an activation's: no product has to fit behind it."""
        following = self._following(index)
        return self.last if following is None else isinstance(following, Activation | nn.MaxPool2d)

    def _following(self, index: int) -> Layer | None:
        """What comes next in the chain and is not public."""
        return next((layer for layer in self.layers[index + 1 :] if not isinstance(layer, PUBLIC)), None)

    def _diagonal(self, part: Part, before: float, after: float, fused: dict[str, Any] | None) -> None:
        layer, turns = part.layer, part.purpose == TURNS
        assert isinstance(layer, nn.HadamardDiagonal | nn.PHD)
        projection = Projection.of(layer)
        extra, finer = projection.scale if projection else 0, 0
        weight_scale = 24 if turns else 20 - extra // 2
        bits, mask_bits = 64, 64
        kind: type[stages.Diagonal]
        if fused is not None:
            trig = self._trig(part.purpose)
            most, room = (24, 62) if turns else (18, 63 - RANGE_BITS)
            weight_scale = min(most, room - trig.scale - extra)
            scale = trig.scale + weight_scale + extra
            kind, options = stages.FusedDiagonal, {**fused, "precision": self._with_phase(trig)}
        elif self.masked:
            scale = self.scale + weight_scale + extra
            bits = mask_bits = scale if turns else 64
            self.input_bits, self.masked = bits, False
            kind, options = stages.MaskedDiagonal, {}
        else:
            self._room(FINE_SCALE + RANGE_BITS + 2, self.name(part.index), FINE_SCALE)
            drop = max(0, self.scale - FINE_SCALE)
            opened = self.scale - drop
            finer = max(0, opened - OPENED_SCALE)
            scale = opened + weight_scale + extra
            kept = min(max(LIFT_BITS, opened + RANGE_BITS + 4), self.bits - drop)
            kind, options = stages.LiftedDiagonal, {"drop": drop, "bits": kept, "opened": opened}
        factor = before / sqrt(layer.size) * (after * (1 / part.unit))
        self.made.append(
            kind(
                name=part.name,
                weight=part.weight(weight_scale, factor, mask_bits, _limit(part)),
                bias=part.bias(scale - finer, after * (1 / part.unit), limit=_limit(part)),
                size=layer.size,
                outputs=part.factor.outputs[0],
                projection=projection,
                **options,
            )
        )
        self.scale, self.bits = scale, bits

    def _ahead(self, index: int) -> tuple[str, float]:
        """What the result of a linear layer is for, and the gain of the public layers on the way there."""
        gain = 1.0
        for position, following in enumerate(self.layers[index + 1 :], index + 1):
            if not isinstance(following, PUBLIC):
                return purpose_of(following), gain
            gain *= _gain(following, self.shapes[position])
        return VALUE, gain

    def _room(self, wanted: int, name: str, scale: int = OPENED_SCALE) -> None:
        """Bring the value back to the whole ring if what it needs after rounding to a scale does not fit."""
        if self.bits - max(0, self.scale - scale) < wanted:
            self._lift(name, scale=scale)

    # ---- public layers

    def _public(self, layer: Layer) -> None:
        name = self.name(self.position)
        if isinstance(layer, nn.AvgPool2d):
            self.made.append(stages.Pool(name=name, window=layer.size, **_spacing(layer)))
        elif isinstance(layer, nn.AdaptiveAvgPool2d):
            down, across = layer.window(self.shapes[self.position])
            self.made.append(stages.Pool(name=name, window=down, across=across))
        elif isinstance(layer, nn.Reshape):
            self.made.append(stages.Reshape(name=name, shape=layer.shape))
        elif isinstance(layer, nn.RandomProjection):
            signs = layer.signs().astype(np.int64).astype(np.uint64)
            self.made.append(stages.Project(name=name, signs=signs, kept=layer.kept(), size=layer.size))
        else:
            self.made.append(stages.Flatten(name=name))
        if self._after_activation():
            self.gain *= _gain(layer, self.shapes[self.position])
        self.masked = False
        self.position += 1

    def _after_activation(self) -> bool:
        """Whether the gain of the public layer here belongs to the next weights; else the previous ones brought it."""
        for layer in reversed(self.layers[: self.position]):
            if not isinstance(layer, PUBLIC):
                return isinstance(layer, Activation | nn.MaxPool2d)
        return True

    def _largest(self, index: int) -> None:
        """The largest of squares: differences need one bit more than values."""
        layer = self.layers[index]
        assert isinstance(layer, nn.MaxPool2d)
        if self.gain != 1.0:
            self._unscale(f"{self.name(index)} argument")
        drop = max(0, self.scale - COMPARED_SCALE + 1)
        kept = self.scale - drop + RANGE_BITS + 3
        if kept > self.bits - drop:
            raise ModelError(
                f"layer {self.numbers[index]}, {layer.kind}, has no room for differences of up to 2**{RANGE_BITS + 1}"
            )
        name, spacing = self.name(index), _spacing(layer)
        self.made.append(Largest(name=name, window=layer.size, drop=drop, bits=kept, **spacing, way=layer.compare))
        self.masked = False

    # ---- activations

    def _activation(self, layer: Activation) -> None:
        name, turns = self.name(self.position), self.turns
        periodic = isinstance(layer, nn.Cos | nn.Sin)
        if not turns and self.gain != 1.0:
            self._unscale(f"{name} argument")
        if not turns and isinstance(layer, nn.Cos | nn.Sin | nn.GrowingCos) and self.scale > UNROUNDED_SCALE:
            self._lift(f"{name} argument", scale=FINE_SCALE)  # the factor of turns would be too coarse
        if not turns and periodic:
            self.made.append(ToTurns(name=f"{name} turns"))
            self.scale, self.bits = 62, 64
        if isinstance(layer, nn.Sin):
            self.made.append(QuarterTurn(name=f"{name} quarter"))
        self.masked = self.turns = False
        if periodic and self._fuse():
            return
        pooled = self._grows(layer) and isinstance(self._next(), nn.MaxPool2d)
        if pooled:  # the largest first: what follows then has fewer numbers to compare, and the result is the same
            self._largest(self.position + 1)
        stage = activation_stage(layer, name, self.scale, self.bits, turns, self._precision(layer), SQUARE_SCALE)
        self.made.append(stage)
        self.scale, self.bits = stage.result_scale(self.scale), 64
        if isinstance(layer, nn.GrowingCos):
            self.gain = 2 * pi if turns else 1.0
        self.position += 2 if pooled else 1

    def _next(self) -> Layer | None:
        return self.layers[self.position + 1] if self.position + 1 < len(self.layers) else None

    @staticmethod
    def _grows(layer: Activation) -> bool:
        """Whether an activation that compares leaves larger numbers larger."""
        growing = isinstance(layer, nn.ReLU | nn.ReLU6 | nn.HardTanh)
        return growing or (isinstance(layer, nn.LeakyReLU) and layer.slope >= 0)

    def _fuse(self) -> bool:
        """Compute the cosine here and a Hadamard-Diagonal layer behind it as one stage, if one comes next."""
        pool, end = self.pooling(self.position + 1)
        following = self.layers[end] if end < len(self.layers) else None
        if not isinstance(following, nn.HadamardDiagonal | nn.PHD):
            return False
        if isinstance(following, nn.PHD) and self._ahead(end)[0] != TURNS:
            return False  # its products would leave too little room for values
        self.gain = 1.0
        for position in range(self.position + 1, end):
            self.gain *= _gain(self.layers[position], self.shapes[position])
        self._linear(end, {"pool": pool})
        return True

    def _precision(self, layer: Activation) -> Precision:
        """Of an activation of the value as it is now."""
        trig = self._trig(VALUE)
        if isinstance(layer, nn.GrowingCos):
            return trig._replace(phase_bits=self.phase_bits)
        if not isinstance(layer, SeriesActivation):
            return self._with_phase(trig)
        series = fit.series(layer.name, layer.reach)
        if self.dealer:  # the coefficients multiply the noise of dealt cosines
            dealt = trig.dealt + max(0, round(log2(series.size)))
            scale = SERIES_SCALE - 1 if isinstance(layer, BentActivation) else SERIES_SCALE
            trig = trig._replace(table=scale - dealt, dealt=dealt)
        wanted = max(20, self.phase_bits) if isinstance(layer, nn.ExpM1) else self.phase_bits
        return trig._replace(phase_bits=min(wanted, self.scale + series.period_bits))

    def _trig(self, purpose: str) -> Precision:
        """The scales of a cosine, by what the layer that follows is for."""
        if self.dealer:
            return DITHERED
        return ROUNDED_TURNS if purpose == TURNS else ROUNDED

    def _with_phase(self, trig: Precision) -> Precision:
        """Of a cosine of the value as it is now, whose turn has as many bits as its scale."""
        return trig._replace(phase_bits=min(self.phase_bits, self.scale))


def _spacing(layer: Pooling) -> dict[str, int]:
    """Of windows that overlap or reach over the border."""
    return {} if layer.plain else {"step": layer.step, "around": layer.padding}


LATER_FIELDS = {"across": 0, "step": 0, "around": 0, "groups": 1, "dilation": 1}
"""Left out of records at these values: networks without them have the records they always had."""


def _plain_fields(stage: Stage) -> dict[str, Any]:
    """What a stage was made with, but for tensors and for arrays, which follow from its layer."""
    values = {item.name: getattr(stage, item.name) for item in fields(stage)}
    plain = {name: v for name, v in values.items() if isinstance(v, int | float | str | tuple | None)}
    plain = {name: v for name, v in plain.items() if LATER_FIELDS.get(name, ...) != v}
    return plain | {name: asdict(v) for name, v in values.items() if isinstance(v, Series)}


def _limit(part: Part) -> float:
    """The largest parameter that leaves room for values; turns may wrap."""
    return inf if part.purpose == TURNS else 2.0**RANGE_BITS


def _gain(layer: Layer, shape: Shape) -> float:
    """What a public layer leaves out of rows of a shape where it is computed in integers."""
    if isinstance(layer, nn.AvgPool2d):
        return 1.0 / layer.size**2
    if isinstance(layer, nn.AdaptiveAvgPool2d):
        return 1.0 / prod(layer.window(shape))
    if isinstance(layer, nn.RandomProjection):
        return 1.0 / sqrt(layer.out_features)
    return 1.0
