"""How large a network from outside may be, told from the shapes of its layers, before any array is made.

An architecture that is shared makes others compute with it: a few bytes of JSON must not stand for gigabytes or hours.
These limits hold for everybody; what a node's operator gives to one model is in its node.toml.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from hdcos.errors import ModelError
from hdcos.nn.layer import Layer, Shape

MOST_LAYERS = 1000
MOST_AXES = 8
MOST_ROW = 1 << 24
"""Numbers of one row that a layer works on at once."""
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
    """The most that one layer works on for one row."""
    multiplications: int
    """Of one row, in all layers."""

    @classmethod
    def of(cls, layers: Sequence[Layer], shapes: Sequence[Shape]) -> Size:
        """From the layers and the shape of a row in front of each."""
        places = list(zip(layers, shapes, strict=False))  # the last shape is that of the output
        return cls(
            sum(prod(shape) for layer in layers for shape in layer.parameter_shapes().values()),
            sum(layer.matrix_elements() for layer in layers),
            max(layer.row_elements(shape) for layer, shape in places),
            sum(layer.multiplications(shape) for layer, shape in places),
        )


def check_count(layers: Sequence[object]) -> None:
    if len(layers) > MOST_LAYERS:
        raise ModelError(f"a network has at most {MOST_LAYERS} layers here, this one {len(layers)}")


def check(layers: Sequence[Layer], shapes: Sequence[Shape]) -> None:
    """ModelError names the layer, or the sum over all layers, that is too large."""
    if len(shapes[0]) > MOST_AXES:
        raise ModelError(f"a row has at most {MOST_AXES} axes here, input_shape has {len(shapes[0])}")
    for index, (layer, shape) in enumerate(zip(layers, shapes, strict=False)):
        row = layer.row_elements(shape)
        if row > MOST_ROW:
            raise ModelError(
                f"layer {index}, {layer.kind}, works on {_count(row)} numbers for one row, at most {MOST_ROW} are "
                f"allowed: use a smaller layer"
            )
    size = Size.of(layers, shapes)
    for what, value, most in (
        ("parameters", size.parameters, MOST_PARAMETERS),
        ("numbers of random or circulant matrices", size.matrices, MOST_MATRICES),
        ("multiplications for one row", size.multiplications, MOST_MULTIPLICATIONS),
    ):
        if value > most:
            raise ModelError(f"the network has {_count(value)} {what}, at most {most} are allowed: use smaller layers")


def _count(value: int) -> str:
    """A number that may have thousands of digits."""
    return str(value) if value < 10**15 else "more than 10**15"
