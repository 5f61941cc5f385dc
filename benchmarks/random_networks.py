"""Random architectures: every layer there is, in chains and graphs, of any size that a request can name."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from math import prod
from typing import Any

from hdcos import nn
from hdcos.errors import ModelError
from hdcos.nn.activations import SeriesActivation
from hdcos.nn.layer import Layer, Shape
from hdcos.protocol.sign import WAYS

GRAPHS, JOINS, SHORTCUTS = 0.3, 0.25, 0.3
"""The part of architectures that are graphs; in these, of layers that join values, and that read an older one."""
MISFITS, CHANGED = 0.1, 0.1
"""The part of layers that are kept though they do not fit, and of architectures with a field of another value."""
WRONG = (0, -1, 1 << 40, 10**30, 0.5, "x", None, [1])
Drawer = Callable[[random.Random, Shape, int], Layer]
"""Of a layer that may take a value of this shape; its sizes have as many bits at most."""


def size(draw: random.Random, most_bits: float) -> int:
    """Small and large numbers alike."""
    return max(1, int(2 ** draw.uniform(0, most_bits)) + draw.randint(-1, 1))


def random_architecture(draw: random.Random, graphs: float = GRAPHS) -> dict[str, Any]:
    """Layers that fit each other, of any size the schema allows; now and then one that does not fit."""
    most_bits = draw.choice((4, 8, 12, 16, 24, 32))
    made = _Drawn(draw, most_bits, [_rows(draw, most_bits)], draw.random() < graphs)
    for _ in range(draw.randint(1, 6)):
        made.add_one()
    record = made.record()
    if draw.random() < CHANGED and record["layers"]:
        _change(draw, record)
    return record


def _rows(draw: random.Random, most_bits: int) -> Shape:
    if draw.random() < 0.35:
        side = size(draw, most_bits / 2)
        return size(draw, 4), side, side if draw.random() < 0.8 else size(draw, most_bits / 2)
    if draw.random() < 0.05:
        return tuple(size(draw, most_bits / 4) for _ in range(draw.randint(2, 9)))
    return (size(draw, most_bits),)


@dataclass
class _Drawn:
    """An architecture while it is drawn."""

    draw: random.Random
    most_bits: int
    shapes: list[Shape]
    """Of each value."""
    graph: bool
    layers: list[Layer] = field(default_factory=list)
    inputs: list[list[int]] = field(default_factory=list)

    def add_one(self) -> None:
        draw, newest = self.draw, len(self.shapes) - 1
        if self.graph and newest and draw.random() < JOINS:
            self._join()
            return
        read = draw.randrange(newest + 1) if self.graph and draw.random() < SHORTCUTS else newest
        try:
            layer = _random_layer(draw, self.shapes[read], self.most_bits)
        except ModelError:  # numbers that do not go together: `_change` draws those
            return
        if not (read and isinstance(layer, nn.RandomFeatures) and draw.random() < 0.9):  # it stands in front of others
            self._add(layer, read)

    def record(self) -> dict[str, Any]:
        known: dict[str, Any] = {"input_shape": list(self.shapes[0])}
        if self.graph:
            self._join_what_is_left()
            known["inputs"] = self.inputs
        return {**known, "layers": [layer.to_json() for layer in self.layers]}

    def _join(self) -> None:
        """The newest value with others of its shape, if there are any, or whatever fits along an axis."""
        newest = len(self.shapes) - 1
        same = [number for number in range(newest) if self.shapes[number] == self.shapes[newest]]
        others = self.draw.sample(same or range(newest), self.draw.randint(1, min(3, len(same) or newest)))
        adds = bool(same) and self.draw.random() < 0.7
        layer = nn.Add() if adds else nn.Concat(self.draw.randrange(len(self.shapes[newest])))
        self._add(layer, newest, *others)

    def _join_what_is_left(self) -> None:
        """Every value is read; now and then one is not, or the rows are."""
        left = set(range(len(self.shapes))) - {number for reads in self.inputs for number in reads}
        if len(left) < 2 or self.draw.random() < 0.05:
            return
        flat = []
        for number in sorted(left):
            if len(self.shapes[number]) > 1:
                self._add(nn.Flatten(), number)
                number = len(self.shapes) - 1
            flat.append(number)
        self._add(nn.Concat(), *flat)

    def _add(self, layer: Layer, *reads: int) -> None:
        try:
            shape = layer.output_shape(*(self.shapes[number] for number in reads))
        except ModelError:
            if self.draw.random() >= MISFITS:
                return
            shape = self.shapes[reads[0]]
        self.layers.append(layer)
        self.inputs.append(list(reads))
        self.shapes.append(shape)


def _random_layer(draw: random.Random, shape: Shape, most_bits: int) -> Layer:
    chosen = draw.random()
    if chosen < 0.35:
        drawers = ACTIVATIONS
    elif chosen < 0.5 or len(shape) not in (1, 3):
        drawers = OF_ANY_SHAPE
    else:
        drawers = OF_IMAGES if len(shape) == 3 else OF_ROWS
    return draw.choice(list(drawers.values()))(draw, shape, most_bits)


def _change(draw: random.Random, record: dict[str, Any]) -> None:
    """Another value for one field of a layer, or for what a layer reads."""
    value = draw.choice((*WRONG, size(draw, 32)))
    if "inputs" in record and draw.random() < 0.3:
        reads = draw.choice(record["inputs"])
        reads[draw.randrange(len(reads))] = value
        return
    changed = draw.choice(record["layers"])
    if names := [item.name for item in fields(Layer.registry[changed["type"]])]:
        changed[draw.choice(names)] = value


# ---- layers, by their kinds


def _plain(kind: Callable[[], Layer]) -> Drawer:
    return lambda draw, shape, most_bits: kind()


def _series(kind: type[SeriesActivation]) -> Drawer:
    return lambda draw, shape, most_bits: kind(draw.choice((None, *kind().intervals)))


def _way(draw: random.Random) -> str:
    return draw.choice(sorted(WAYS))


def _real(draw: random.Random) -> float:
    """Small and large, of both signs."""
    return draw.choice((-1, 1)) * 10 ** draw.uniform(-6, 6)


def _bandwidth(draw: random.Random) -> float | None:
    return draw.choice((None, None, 10 ** draw.uniform(-1, 2)))


def _hard_tanh(draw: random.Random, shape: Shape, most_bits: int) -> Layer:
    low, high = draw.choice(((-1.0, 1.0), sorted((_real(draw), _real(draw)))))
    return nn.HardTanh(low, high, compare=_way(draw))


def _conv2d(draw: random.Random, shape: Shape, most_bits: int) -> Layer:
    """Groups are few, as many as channels, or any number, which seldom divides them."""
    kernel, groups = size(draw, 4), draw.choice((1, 1, 1, 2, shape[0], size(draw, 4)))
    dilation = draw.choice((1, 1, 2, size(draw, most_bits / 4)))
    padding = draw.randrange(dilation * (kernel - 1) + 1)
    return nn.Conv2d(shape[0], groups * size(draw, 5), kernel, size(draw, 3), padding, groups, dilation)


def _pool(draw: random.Random) -> tuple[int, int | None, int]:
    """Squares side by side, or others that overlap, leave gaps or reach over the border."""
    side = size(draw, 3)
    if draw.random() < 0.5:
        return side, None, 0
    return side, draw.choice((None, 1, size(draw, 3))), draw.randint(0, side // 2)


def _adaptive(draw: random.Random, shape: Shape, most_bits: int) -> Layer:
    return nn.AdaptiveAvgPool2d(draw.choice((1, 2, shape[1], size(draw, 3))))


def _reshape(draw: random.Random, shape: Shape, most_bits: int) -> Layer:
    """Into images, or into as many axes as there are divisors at hand."""
    numbers, sides = prod(shape), []
    for _ in range(draw.choice((2, 2, 2, 1, 8))):
        side = draw.choice([each for each in (1, 2, 3, 4, 5, 7, 8, 16) if numbers % each == 0])
        sides.append(side)
        numbers //= side
    return nn.Reshape((*sides, numbers) if draw.random() < 0.5 else (numbers, *sides))


def _hadamard(draw: random.Random, shape: Shape, most_bits: int) -> Layer:
    blocks, terms = draw.choice(((1, 1), (1, 1), (3, 1), (64, 1), (1, 2), (1, size(draw, 6))))
    return nn.HadamardDiagonal(shape[0], size(draw, most_bits), blocks, _bandwidth(draw), terms)


def _features(draw: random.Random, shape: Shape, most_bits: int) -> Layer:
    return nn.RandomFeatures(shape[0], size(draw, most_bits), abs(_real(draw)), draw.randrange(1000))


Drawers = Mapping[str, Drawer]

ACTIVATIONS: Drawers = {
    **{
        kind.__name__: _plain(kind)
        for kind in (nn.Cos, nn.Sin, nn.Square, nn.PolyReLU3, nn.GrowingCos)
    },
    **{
        kind.__name__: _series(kind)
        for kind in (nn.ExpM1, nn.Sigmoid, nn.Tanh, nn.GELU, nn.SiLU, nn.Softplus)
    },
    "ReLU": lambda draw, shape, most_bits: nn.ReLU(compare=_way(draw)),
    "ReLU6": lambda draw, shape, most_bits: nn.ReLU6(compare=_way(draw)),
    "LeakyReLU": lambda draw, shape, most_bits: nn.LeakyReLU(draw.uniform(-1, 1), compare=_way(draw)),
    "HardTanh": _hard_tanh,
}  # fmt: skip
OF_ANY_SHAPE: Drawers = {
    "Identity": _plain(nn.Identity),
    "Dropout": lambda draw, shape, most_bits: nn.Dropout(draw.random()),
    "Flatten": _plain(nn.Flatten),
    "Reshape": _reshape,
    "Affine": lambda draw, shape, most_bits: nn.Affine(shape[0]),
}
OF_IMAGES: Drawers = {
    "Conv2d": _conv2d,
    "AvgPool2d": lambda draw, shape, most_bits: nn.AvgPool2d(*_pool(draw)),
    "MaxPool2d": lambda draw, shape, most_bits: nn.MaxPool2d(*_pool(draw), compare=_way(draw)),
    "AdaptiveAvgPool2d": _adaptive,
    "Flatten": _plain(nn.Flatten),
}
OF_ROWS: Drawers = {
    "Dense": lambda draw, shape, bits: nn.Dense(shape[0], size(draw, bits), _bandwidth(draw)),
    "HadamardDiagonal": _hadamard,
    "LowRank": lambda draw, shape, bits: nn.LowRank(shape[0], size(draw, bits), size(draw, 6)),
    "PHD": lambda draw, shape, bits: nn.PHD(shape[0], size(draw, bits), draw.randrange(1000)),
    "Circulant": lambda draw, shape, bits: nn.Circulant(shape[0], size(draw, bits)),
    "RandomProjection": lambda draw, shape, bits: nn.RandomProjection(shape[0], size(draw, bits), draw.randrange(1000)),
    "RandomFeatures": _features,
}
