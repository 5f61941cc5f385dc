"""Layers of hdcos.nn of the operations of a network, and for each operation what became of it."""

from __future__ import annotations

from dataclasses import dataclass
from math import floor, log10, prod

import numpy as np

from hdcos import nn
from hdcos.errors import ModelError
from hdcos.nn.activations import BentActivation, SeriesActivation
from hdcos.nn.importing.operations import Description, Operation, Refused, Sides
from hdcos.nn.importing.simplify import CLIENT, Simplifier
from hdcos.nn.layer import Layer
from hdcos.nn.network import Graph, Network, Sequential
from hdcos.protocol import fit
from hdcos.ring import Array

EXACT, APPROXIMATED, REFUSED, UNSEEN = "exact", "approximated", "refused", "not looked at"


@dataclass(frozen=True)
class Fate:
    """What became of an operation of the source."""

    name: str
    """As the source calls it."""
    source: str
    """The type that it has there."""
    verdict: str
    """exact, approximated, refused, left to the client, or not looked at where nothing is known of what it reads."""
    note: str = ""
    """Where it went, the error of an approximation, or the reason of a refusal."""
    remedy: str = ""
    layer: int | None = None
    """The number of the layer that it is, or that it became a part of."""

    def __str__(self) -> str:
        return f"layer {self.name} ({self.source}) {self.note}" + (f": {self.remedy}" if self.remedy else "")


@dataclass(frozen=True)
class Built:
    """A network, or none where something was refused, and the fates of all operations."""

    model: Network | None
    fates: tuple[Fate, ...]
    result: int
    """The value of the source that the network gives: that before a softmax, which is left to the client."""
    slack: float = 0.0
    """How far it may be from the source's, by what stands for other functions; 0 where everything is the same."""


def build(description: Description) -> Built:
    simple = Simplifier(description)
    layers: list[Layer] = []
    reads: list[tuple[int, ...]] = []
    state: dict[str, Array] = {}
    refused: dict[int, Refused] = {}
    numbers = {0: 0}
    """Of values: in the source, and among the layers."""
    for number, operation in simple.operations.items():
        if operation.kind == "lost":
            continue
        try:
            layer, arrays = _layer(operation)
        except ModelError as error:
            refused[number] = _refusal(error)
            continue
        state |= {f"{len(layers)}.{name}": array for name, array in arrays.items()}
        reads.append(tuple(numbers.get(each, -1) for each in operation.inputs))
        layers.append(layer)
        numbers[number] = len(layers)
    fates = tuple(_fate(each, simple, refused, numbers, layers) for each in description.operations)
    if refused:
        return Built(None, fates, simple.result)
    if not layers:
        raise ModelError("the network computes nothing: a network needs at least one layer")
    slack = 100 * sum(each.options.get("error", 0.0) for each in simple.operations.values())
    chain = all(each == (place,) for place, each in enumerate(reads))
    names, shape = description.feature_names, description.input_shape
    if chain:
        return Built(Sequential._assemble(layers, shape, state, names), fates, simple.result, slack)
    return Built(Graph._assemble(layers, shape, state, names, reads), fates, simple.result, slack)


def _refusal(error: ModelError) -> Refused:
    """A layer says in one sentence what is wrong with it, others in two parts."""
    return error if isinstance(error, Refused) else Refused(str(error), "")


def _fate(
    operation: Operation,
    simple: Simplifier,
    refused: dict[int, Refused],
    numbers: dict[int, int],
    layers: list[Layer],
) -> Fate:
    label, number = (operation.name, operation.source), operation.number
    note = simple.notes.get(number, "")
    place = number
    while place in simple.absorbed:
        place = simple.absorbed[place]
    if number in refused:
        return Fate(*label, REFUSED, refused[number].reason, refused[number].remedy)
    if operation.kind == "lost":
        return Fate(*label, UNSEEN, "comes behind something that was refused")
    layer = numbers[place] - 1 if place in numbers else None
    if note.startswith(CLIENT):
        return Fate(*label, CLIENT, note.removeprefix(f"{CLIENT}: "))
    if layer is None or number in simple.notes:
        return Fate(*label, EXACT, note, layer=layer)
    error = approximation(layers[layer])
    if operation.options.get("error"):
        error += f", and {operation.options['error']:.1e} from its form by tanh"
    return Fate(*label, APPROXIMATED if error else EXACT, error or _how(operation), layer=layer)


def _how(operation: Operation) -> str:
    return "as a depthwise convolution" if operation.kind == "conv" and "Pool" in operation.source else ""


def approximation(layer: Layer) -> str:
    """What the series or spline that stands for a layer on shares leaves out; empty of layers that are exact."""
    if not isinstance(layer, SeriesActivation):
        return ""
    x = np.linspace(-layer.reach, layer.reach, 4001)
    straight = x / 2 if isinstance(layer, BentActivation) else 0.0
    error = float(np.abs(fit.series(layer.name, layer.reach)(x) + straight - layer(x)).max())
    up = 0.5 * 10 ** (floor(log10(error)) - 1)  # to the next of two digits
    return f"within {error + up:.1e} for |x| <= {layer.reach}"


def _layer(operation: Operation) -> tuple[Layer, dict[str, Array]]:
    options, arrays = operation.options, dict(operation.arrays)
    if operation.kind == "refused":
        raise Refused(options["reason"], options["remedy"])
    if operation.kind == "layer":
        return options["layer"], arrays
    if operation.kind == "linear":
        outputs, inputs = arrays["weight"].shape
        made = options.get("layer")
        if isinstance(made, nn.Dense) and (made.in_features, made.out_features) == (inputs, outputs):
            return made, arrays
        return nn.Dense(inputs, outputs), arrays
    if operation.kind == "conv":
        return _convolution(operation)
    assert operation.kind == "affine", operation.kind
    return nn.Affine(operation.shape[0]), {"weight": arrays["scale"], "bias": arrays["shift"]}


def _convolution(operation: Operation) -> tuple[Layer, dict[str, Array]]:
    """Square kernels with the same padding on every side: what is not so is made so by zeros in the kernels."""
    options, weight = operation.options, operation.arrays["weight"]
    padding, weight = _square(weight, options["padding"], options["dilation"])
    channels = weight.shape[1] * options["groups"]
    layer = nn.Conv2d(
        channels, len(weight), weight.shape[2], options["stride"], padding,
        **{name: options[name] for name in ("groups", "dilation") if options[name] != 1},
    )  # fmt: skip
    return layer, {"weight": weight, "bias": operation.arrays["bias"]}


def _square(weight: Array, sides: Sides, dilation: int) -> tuple[int, Array]:
    """One padding for all sides, and kernels with as many more zeros on each side as were padded too much there."""
    padding = max(sides)
    top, left, bottom, right = more = [padding - side for side in sides]
    height, width = (
        weight.shape[2] + (top + bottom) // dilation,
        weight.shape[3] + (left + right) // dilation,
    )
    if any(each % dilation for each in more) or height != width:
        raise Refused(
            f"has kernels of {weight.shape[2]} x {weight.shape[3]} with padding {sides} (top, left, bottom, right)",
            "use square kernels with the same padding everywhere",
        )
    around = ((0, 0), (0, 0), (top // dilation, bottom // dilation), (left // dilation, right // dilation))
    return padding, np.pad(weight, around) if prod(weight.shape[2:]) < height * width else weight
