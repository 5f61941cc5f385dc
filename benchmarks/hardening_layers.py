"""What answers tell of the activations and places that `hardening_leakage` does not attack, by the same attacks.

GELU, SiLU and Softplus round a phase, x beside it, and have a table; LeakyReLU, ReLU6, HardTanh and max-pooling round
as ReLU does, a convolution in front of one changes nothing; three hidden layers are attacked at the first and at the
last. Each is measured at a coarser setting, with the secret noise there, and extended by four bits. What needs few
queries is asked few.
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

FEWER = 4
"""Bits that each setting has fewer than the real one."""
MANY, SOME = 100_000, 60_000
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
    compared = (COMPARED_SCALE - FEWER, COMPARED_SCALE)
    return [
        *((_phase, (layer, outputs)) for layer in BENT for outputs in (10, 256)),
        (_beside, (nn.GELU(), 256)),
        *((attack_table, (layer, FEWER, MANY, 256)) for layer in (*SERIES, *BENT)),
        *(
            (attack_opening, (layer.kind, layer, 0, 1, (COMPARED,), *compared, outputs, SOME))
            for layer in COMPARING
            for outputs in (10, 256)
        ),
        *((_largest, (outputs,)) for outputs in (10, 64)),
        (_convolution, ()),
        *((_deep_relu, (layer,)) for layer in (0, 2)),
        (_deep_cos, ()),
    ]


def _hidden(layer: nn.Layer, outputs: int) -> nn.Sequential:
    return nn.Sequential([nn.HadamardDiagonal(256, 256), layer, nn.HadamardDiagonal(256, outputs)], seed=1)


def _derivative(model: nn.Sequential, slope: Callable[[Array], Array]) -> Array:
    """Of every output by every value that a part of the activation takes, by the slope of that part."""
    columns = public_columns(model, 1)
    assert columns is not None
    value = model.layers[0].forward(model.parameters(0), model.rows(ROW[None]))
    derived: Array = columns * model.state()["2.diagonal"] * slope(np.asarray(value[0]))
    return derived


def _phase(layer: BentActivation, outputs: int) -> Iterator[Line]:
    """The series beside x/2, whose phase is the second of two openings."""
    model, bits = _hidden(layer, outputs), PHASE_BITS - FEWER
    by = _derivative(model, fit.series(layer.name, layer.reach).slope)
    attack = OpeningAttack(coarser(model, Setting(phase_bits=bits), (), bits), 1, 1, by=by)
    yield describe(f"{layer.kind}, {outputs} outputs:", attack, bits, PHASE_BITS, MANY)


def _beside(layer: BentActivation, outputs: int) -> Iterator[Line]:
    """x/2 itself, rounded; it is the same for all three."""
    model, bits = _hidden(layer, outputs), LINEAR_SCALE - FEWER
    by = _derivative(model, lambda value: np.full_like(value, 0.5))
    queries = coarser(model, Setting(), ("hdcos.secure.activations.LINEAR_SCALE",), bits)
    attack = OpeningAttack(queries, 0, 1, by=by)
    yield describe(f"x beside the series of {layer.kind}, {outputs} outputs:", attack, bits, LINEAR_SCALE, MANY)


def _largest(outputs: int) -> Iterator[Line]:
    """Windows of four of 256 units. All values of a window have the public column of what is the largest of them."""
    layers = [
        nn.HadamardDiagonal(256, 256), nn.Reshape((64, 2, 2)), nn.MaxPool2d(2), nn.Flatten(),
        nn.HadamardDiagonal(64, outputs),
    ]  # fmt: skip
    model, real = nn.Sequential(layers, seed=1), COMPARED_SCALE - 1
    columns = public_columns(model, len(layers) - 2)
    assert columns is not None
    queries = coarser(model, Setting(), (f"{COMPILER}.COMPARED_SCALE",), real - FEWER + 1)
    attack = OpeningAttack(queries, 0, 1, columns=np.repeat(columns, 4, axis=1))
    yield describe(f"MaxPool2d, {outputs} outputs of 64 windows:", attack, real - FEWER, real, SOME)


def _convolution() -> Iterator[Line]:
    layers = [
        nn.Reshape((1, 16, 16)), nn.Conv2d(1, 1, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.HadamardDiagonal(256, 10)
    ]  # fmt: skip
    model, bits = nn.Sequential(layers, input_shape=(256,), seed=1), COMPARED_SCALE - FEWER
    columns = public_columns(model, len(layers) - 2)
    attack = OpeningAttack(coarser(model, Setting(), (COMPARED,), bits), 0, 2, columns=columns)
    yield describe("ReLU behind Conv2d, 10 outputs:", attack, bits, COMPARED_SCALE, SOME)


def _deep_relu(layer: int) -> Iterator[Line]:
    """Three hidden layers of ReLU, each of which opens three values."""
    layers: list[nn.Layer] = []
    for _ in range(3):
        layers += [nn.HadamardDiagonal(256, 256), nn.ReLU()]
    model, bits = nn.Sequential([*layers, nn.HadamardDiagonal(256, 10)], seed=1), COMPARED_SCALE - FEWER
    attack = OpeningAttack(coarser(model, Setting(), (COMPARED,), bits), 3 * layer, 2 * layer + 1)
    yield describe(f"depth 3, hidden layer {layer + 1}, ReLU, 10 outputs:", attack, bits, COMPARED_SCALE, SOME)


def _deep_cos() -> Iterator[Line]:
    """The last of three: the transform behind it is as public as that of a single one."""
    bits = PHASE_BITS - FEWER
    attack = OpeningAttack(coarser(network(depth=3), Setting(phase_bits=bits), (), bits), 2, 5)
    yield describe("depth 3, hidden layer 3, Cos, 10 outputs:", attack, bits, PHASE_BITS, MANY)
