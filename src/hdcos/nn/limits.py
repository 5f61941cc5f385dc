"""How large a network from outside may be, told from the shapes of its layers, before any array is made.

An architecture that is shared makes others compute with it: a few bytes of JSON must not stand for gigabytes or hours.
These limits hold for everybody; what a node's operator gives to one model is in its node.toml.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from hdcos.errors import ModelError
from hdcos.nn.layer import Layer, Shape

Inputs = Sequence[Sequence[int]]
"""For each layer the values it reads: 0 is the rows, i + 1 what layer i gives."""

MOST_LAYERS = 1000
MOST_INPUTS = 4 * MOST_LAYERS
"""Values that all layers read together."""
MOST_AXES = 8
MOST_ROW = 1 << 24
"""Numbers of one row that are there while a layer works: its own, and those that later layers will read."""
MOST_PARAMETERS = 1 << 27
MOST_MATRICES = 1 << 23
"""Numbers of the matrices of all layers that follow from a seed or from few parameters."""
MOST_MULTIPLICATIONS = 1 << 30
"""Of one row, in all layers: about a second of one core."""


@dataclass(frozen=True)
class Size:
    """What a network takes, in numbers."""

    parameters: int
    matrices: int
    row: int
    """The most that is there for one row while one layer works."""
    multiplications: int
    """Of one row, in all layers."""

    @classmethod
    def of(cls, layers: Sequence[Layer], shapes: Sequence[Shape], inputs: Inputs | None = None) -> Size:
        """From the layers, the shape of each value of a row, and the values that each layer reads, if not the last."""
        inputs = _chain(layers) if inputs is None else inputs
        places = [(layer, shapes[reads[0]]) for layer, reads in zip(layers, inputs, strict=True)]
        return cls(
            sum(prod(shape) for layer in layers for shape in layer.parameter_shapes().values()),
            sum(layer.matrix_elements() for layer in layers),
            max(_row_elements(layers, shapes, inputs)),
            sum(layer.multiplications(shape) for layer, shape in places),
        )


def last_reads(inputs: Inputs) -> list[int]:
    """For each value the last layer that reads it; for the output, which none reads, the number of layers."""
    last = [len(inputs)] * (len(inputs) + 1)
    for index, reads in enumerate(inputs):
        for number in reads:
            last[number] = index
    return last


def check_count(layers: Sequence[object], inputs: Inputs = ()) -> None:
    if len(layers) > MOST_LAYERS:
        raise ModelError(f"a network has at most {MOST_LAYERS} layers here, this one {len(layers)}")
    if (count := sum(map(len, inputs))) > MOST_INPUTS:
        raise ModelError(f"the layers of a network read at most {MOST_INPUTS} values here, those of this one {count}")


def check(layers: Sequence[Layer], shapes: Sequence[Shape], inputs: Inputs | None = None) -> None:
    """ModelError names the layer, or the sum over all layers, that is too large."""
    inputs = _chain(layers) if inputs is None else inputs
    for number, shape in enumerate(shapes):
        if len(shape) > MOST_AXES:
            what = f"layer {number - 1} gives" if number else "input_shape has"
            raise ModelError(f"a row has at most {MOST_AXES} axes here, {what} {len(shape)}")
    for index, row in enumerate(_row_elements(layers, shapes, inputs)):
        if row > MOST_ROW:
            raise ModelError(
                f"layer {index}, {layers[index].kind}, works on {_count(row)} numbers for one row, with those that "
                f"later layers read, at most {MOST_ROW} are allowed: use a smaller layer"
            )
    size = Size.of(layers, shapes, inputs)
    for what, value, most in (
        ("parameters", size.parameters, MOST_PARAMETERS),
        ("numbers of random or circulant matrices", size.matrices, MOST_MATRICES),
        ("multiplications for one row", size.multiplications, MOST_MULTIPLICATIONS),
    ):
        if value > most:
            raise ModelError(f"the network has {_count(value)} {what}, at most {most} are allowed: use smaller layers")


def _chain(layers: Sequence[Layer]) -> Inputs:
    return [(index,) for index in range(len(layers))]


def _row_elements(layers: Sequence[Layer], shapes: Sequence[Shape], inputs: Inputs) -> Iterator[int]:
    """For each layer what is there for one row while it works."""
    last, kept = last_reads(inputs), 0
    for index, (layer, reads) in enumerate(zip(layers, inputs, strict=True)):
        kept += prod(shapes[index])
        own = set(reads)
        yield layer.row_elements(*(shapes[number] for number in reads)) + kept - sum(prod(shapes[n]) for n in own)
        kept -= sum(prod(shapes[number]) for number in own if last[number] == index)


def _count(value: int) -> str:
    """A number that may have thousands of digits."""
    return str(value) if value < 10**15 else "more than 10**15"
