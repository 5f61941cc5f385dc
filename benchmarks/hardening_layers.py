"""What answers tell of the activations and places that `hardening_leakage` does not attack, by the same attacks.

GELU, SiLU and Softplus round a phase, x beside it, and have a table; LeakyReLU, ReLU6, HardTanh and max-pooling round
as ReLU does, a convolution in front of one changes nothing; three hidden layers are attacked at the first and at the
last. Each is measured at three coarser settings, with the secret noise there, and extended by four bits from the
finest. What needs few queries is asked few.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np

from benchmarks.hardening_leakage import COMPARED, COMPILER, ROW, attack_opening, attack_table, coarser, describe
from benchmarks.leakage import OpeningAttack, Setting, network, public_columns
from benchmarks.record import Line
from hdcos import nn
from hdcos.nn.activations import BentActivation
from hdcos.protocol import fit
from hdcos.ring import Array
from hdcos.secure.activations import COMPARED_SCALE, LINEAR_SCALE
from hdcos.secure.compile import PHASE_BITS

FEWER = (8, 6, 4)
"""Bits that the settings have fewer than the real one."""
MANY = {8: 30_000, 6: 70_000, 4: 100_000}
SOME = {8: 15_000, 6: 30_000, 4: 60_000}
"""Queries of each."""
SERIES = (nn.Sigmoid(), nn.Tanh(), nn.ExpM1())
BENT = (nn.GELU(), nn.SiLU(), nn.Softplus())
COMPARING = (nn.LeakyReLU(0.1), nn.ReLU6(), nn.HardTanh())
Task = tuple[Callable[..., Iterator[Line]], tuple[Any, ...]]


def prove(seed: int) -> Iterator[Line]:
    """Measurements are processes, as many at a time as there are cores."""
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        yield from (line for lines in pool.map(measure, tasks()) for line in lines)


def measure(task: Task) -> list[Line]:
    function, arguments = task
    return list(function(*arguments))


def tasks() -> list[Task]:
    measurements: list[Task] = [
        *((_phase, (layer, outputs)) for layer in BENT for outputs in (10, 256)),
        (_beside, (nn.GELU(), 256)),
        *((_table, (layer,)) for layer in (*SERIES, *BENT)),
        *((_compared, (layer, outputs)) for layer in COMPARING for outputs in (10, 256)),
        *((_largest, (outputs,)) for outputs in (10, 64)),
        (_convolution, ()),
        *((_deep_relu, (layer,)) for layer in (0, 2)),
        (_deep_cos, ()),
    ]
    return [(function, (*arguments, fewer)) for function, arguments in measurements for fewer in FEWER]


def _hidden(layer: nn.Layer, outputs: int) -> nn.Sequential:
    return nn.Sequential([nn.HadamardDiagonal(256, 256), layer, nn.HadamardDiagonal(256, outputs)], seed=1)


def _derivative(model: nn.Sequential, slope: Callable[[Array], Array]) -> Array:
    """Of every output by every value that a part of the activation takes, by the slope of that part."""
    columns = public_columns(model, 1)
    assert columns is not None
    value = model.layers[0].forward(model.parameters(0), model.rows(ROW[None]))
    derived: Array = columns * model.state()["2.diagonal"] * slope(np.asarray(value[0]))
    return derived


def _phase(layer: BentActivation, outputs: int, fewer: int) -> Iterator[Line]:
    """The series beside x/2, whose phase is the second of two openings."""
    model, bits = _hidden(layer, outputs), PHASE_BITS - fewer
    by = _derivative(model, fit.series(layer.name, layer.reach).slope)
    attack = OpeningAttack(coarser(model, Setting(phase_bits=bits), (), bits), 1, 1, by=by)
    yield describe(f"{layer.kind}, {outputs} outputs:", attack, bits, PHASE_BITS, MANY[fewer])


def _table(layer: nn.Layer, fewer: int) -> Iterator[Line]:
    """That of a series, with as many outputs as units."""
    yield from attack_table(layer, fewer, MANY[fewer], 256)


def _compared(layer: nn.Layer, outputs: int, fewer: int) -> Iterator[Line]:
    bits = (COMPARED_SCALE - fewer, COMPARED_SCALE)
    yield from attack_opening(layer.kind, layer, 0, 1, (COMPARED,), *bits, outputs, SOME[fewer])


def _beside(layer: BentActivation, outputs: int, fewer: int) -> Iterator[Line]:
    """x/2 itself, rounded; it is the same for all three."""
    model, bits = _hidden(layer, outputs), LINEAR_SCALE - fewer
    by = _derivative(model, lambda value: np.full_like(value, 0.5))
    queries = coarser(model, Setting(), ("hdcos.secure.activations.LINEAR_SCALE",), bits)
    attack = OpeningAttack(queries, 0, 1, by=by)
    yield describe(f"x beside the series of {layer.kind}, {outputs} outputs:", attack, bits, LINEAR_SCALE, MANY[fewer])


def _largest(outputs: int, fewer: int) -> Iterator[Line]:
    """Windows of four of 256 units. All values of a window have the public column of what is the largest of them."""
    layers = [
        nn.HadamardDiagonal(256, 256), nn.Reshape((64, 2, 2)), nn.MaxPool2d(2), nn.Flatten(),
        nn.HadamardDiagonal(64, outputs),
    ]  # fmt: skip
    model, real = nn.Sequential(layers, seed=1), COMPARED_SCALE - 1
    columns = public_columns(model, len(layers) - 2)
    assert columns is not None
    queries = coarser(model, Setting(), (f"{COMPILER}.COMPARED_SCALE",), real - fewer + 1)
    attack = OpeningAttack(queries, 0, 1, columns=np.repeat(columns, 4, axis=1))
    yield describe(f"MaxPool2d, {outputs} outputs of 64 windows:", attack, real - fewer, real, SOME[fewer])


def _convolution(fewer: int) -> Iterator[Line]:
    layers = [
        nn.Reshape((1, 16, 16)), nn.Conv2d(1, 1, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.HadamardDiagonal(256, 10)
    ]  # fmt: skip
    model, bits = nn.Sequential(layers, input_shape=(256,), seed=1), COMPARED_SCALE - fewer
    columns = public_columns(model, len(layers) - 2)
    attack = OpeningAttack(coarser(model, Setting(), (COMPARED,), bits), 0, 2, columns=columns)
    yield describe("ReLU behind Conv2d, 10 outputs:", attack, bits, COMPARED_SCALE, SOME[fewer])


def _deep_relu(layer: int, fewer: int) -> Iterator[Line]:
    """Three hidden layers of ReLU, each of which opens three values."""
    layers: list[nn.Layer] = []
    for _ in range(3):
        layers += [nn.HadamardDiagonal(256, 256), nn.ReLU()]
    model, bits = nn.Sequential([*layers, nn.HadamardDiagonal(256, 10)], seed=1), COMPARED_SCALE - fewer
    attack = OpeningAttack(coarser(model, Setting(), (COMPARED,), bits), 3 * layer, 2 * layer + 1)
    yield describe(f"depth 3, hidden layer {layer + 1}, ReLU, 10 outputs:", attack, bits, COMPARED_SCALE, SOME[fewer])


def _deep_cos(fewer: int) -> Iterator[Line]:
    """The last of three: the transform behind it is as public as that of a single one."""
    bits = PHASE_BITS - fewer
    attack = OpeningAttack(coarser(network(depth=3), Setting(phase_bits=bits), (), bits), 2, 5)
    yield describe("depth 3, hidden layer 3, Cos, 10 outputs:", attack, bits, PHASE_BITS, MANY[fewer])
