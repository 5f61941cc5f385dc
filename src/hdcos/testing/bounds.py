"""How far private outputs may lie from the float network's: worst case, from the bits alone.

Each stage rounds what it opens by less than one unit, its parameters by half a unit of their scale, and its
phases by less than one step. These are carried through the network with absolute values of the weights and the slopes
of the activations, so the bound holds for every split, every mask and every rounding; typical errors are far smaller.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import pi

import numpy as np

from hdcos import nn
from hdcos.nn.activations import Activation, BentActivation, SeriesActivation
from hdcos.nn.joins import Join
from hdcos.nn.layer import Layer
from hdcos.nn.network import Network
from hdcos.protocol import fit, fourier, relu
from hdcos.protocol.cosine import Precision, even
from hdcos.ring import Array
from hdcos.secure import activations, stages
from hdcos.secure.answers import LARGEST_NOISE
from hdcos.secure.compile import OPENED_SCALE, PHASE_BITS, SQUARE_SCALE, CompiledNetwork, compile_network
from hdcos.secure.stages import Tensor
from hdcos.secure.wiring import Chain, cut


def error_bound(model: Network, x: Array, phase_bits: int = PHASE_BITS, dealer: bool = True) -> Array:
    """The largest possible |private output - model(x)|, for each output of each row."""
    chosen = compile_network(model, phase_bits, dealer)
    values, errors = [model.rows(x)], [np.zeros(())]
    first = next((piece.layers for piece in cut(model) if isinstance(piece, Chain)), ())
    shared = first[len(chosen.front) - 1] + 1 if chosen.front else 0
    for index, (layer, reads) in enumerate(zip(model.layers, model.inputs, strict=True)):
        errors[index] = errors[index] + np.zeros_like(values[index])
        if index == shared:
            errors[index] += 2.0 ** -(chosen.input_scale + 1)
        if isinstance(layer, Join):
            values.append(layer.forward({}, *(values[number] for number in reads)))
            errors.append(layer.forward({}, *(errors[number] for number in reads)))
            continue
        parameters, value, error = model.parameters(index), values[reads[0]], errors[reads[0]]
        error = error + _public_rounding(index, chosen, " argument", value)
        if isinstance(layer, Activation):
            value, error = layer(value), _activation(layer, index, value, error, chosen)
        elif isinstance(layer, nn.MaxPool2d):
            (stage,) = [
                s for s in chosen.stages if isinstance(s, activations.Largest) and s.name.startswith(f"{index} ")
            ]
            rounding = 2.0 ** -(activations.COMPARED_SCALE - 1) if stage.drop else 0.0
            value, error = layer.forward({}, value), layer.forward({}, error) + rounding
        elif isinstance(layer, nn.HadamardDiagonal) and layer.blocks > 1:
            value, error = _blocks(layer, index, parameters, value, error, chosen)
        else:
            error = _linear(layer, index, parameters, value, error, chosen)
            value = layer.forward(parameters, value)
        values.append(value)
        errors.append(error + _public_rounding(index, chosen, " settled", value))
    error = errors[-1]
    return error + LARGEST_NOISE * abs(chosen.output_gain)


def _public_rounding(index: int, chosen: CompiledNetwork, where: str, value: Array) -> Array:
    """What is lost in front of an activation, or where a chain ends: roundings, and that of a public factor."""
    total = np.zeros(())
    for stage in chosen.stages:
        if stage.name.startswith(f"{index} ") and where in stage.name:
            total = total + _opened(stage)
            if isinstance(stage, stages.Scale) and stage.factor != 1:
                total = total + 0.5 / stage.factor * (np.abs(value) + 1)
    return total


def _linear(
    layer: Layer, index: int, parameters: Mapping[str, Array], value: Array, error: Array, chosen: CompiledNetwork
) -> Array:
    """|W| (error + rounding) + |dW| |x| + |db|."""
    made = [s for s in chosen.stages if s.name.startswith(f"{index} ") and " settled" not in s.name]
    tensors = {tensor.name.split(".")[1]: _rounding(tensor) for stage in made for tensor in stage.tensors()}
    if not tensors:  # a public layer: exact but for its own linearity
        return _absolute(layer, parameters, error)
    inner = [stage for stage in made if " left" in stage.name]  # between the two factors of a low-rank layer
    error = error + sum(_opened(stage) for stage in made if stage not in inner)
    magnitude = np.abs(value) + error
    total = _absolute(layer, parameters, error)
    for name in set(tensors) - {"bias"}:
        for spread in _roundings(layer, parameters[name], tensors[name]):
            total = total + _absolute(layer, {**parameters, name: spread}, magnitude)
    for stage in inner:
        total = total + _opened(stage) * np.abs(parameters["left"]).sum(1)
    return total + tensors.get("bias", 0.0)


def _blocks(
    layer: nn.HadamardDiagonal,
    index: int,
    parameters: Mapping[str, Array],
    value: Array,
    error: Array,
    chosen: CompiledNetwork,
) -> tuple[Array, Array]:
    """A layer of several blocks, block by block."""
    made = [stage for stage in chosen.stages if stage.name.startswith(f"{index} ")]
    for block, diagonal in enumerate(layer.diagonals):
        last = block == len(layer.diagonals) - 1
        inputs = layer.in_features if block == 0 else layer.size
        single = nn.HadamardDiagonal(inputs, layer.out_features if last else layer.size)
        bias = parameters["bias"] if last else np.zeros(layer.size)
        own = {"diagonal": parameters[diagonal], "bias": bias}
        stage = [s for s in made if any(t.name == f"{index}.{diagonal}" for t in s.tensors())]
        tensors = {t.name.split(".")[1]: _rounding(t) for s in stage for t in s.tensors()}
        error = error + sum(_opened(s) for s in stage)
        spread = {**own, "diagonal": np.full(inputs, tensors[diagonal])}
        error = _absolute(single, own, error) + _absolute(single, spread, np.abs(value) + error)
        error = error + tensors.get("bias", 0.0)
        value = single.forward(own, value)
    return value, error


def _roundings(layer: Layer, parameter: Array, rounding: float) -> list[Array]:
    """A parameter's rounding as parameters whose absolute maps add up: terms have signs, and are taken one by one."""
    if not isinstance(layer, nn.HadamardDiagonal) or layer.terms == 1:
        return [np.full_like(parameter, rounding)]
    return [
        np.full_like(parameter, rounding) * (np.arange(layer.terms) == term)[:, None] for term in range(layer.terms)
    ]


def _rounding(tensor: Tensor) -> float:
    """Half a unit of a tensor's scale, in units of the parameter."""
    return float(2.0 ** -(tensor.scale + 1) / abs(tensor.factor))


def _opened(stage: stages.Stage) -> float:
    """One unit of what a linear stage opens, in units of the value, which may be a sum over pooled windows."""
    if isinstance(stage, stages.LiftedDiagonal | stages.Lift) and stage.drop:
        return 2.0**-stage.opened
    return 2.0**-OPENED_SCALE if isinstance(stage, stages.Product) and stage.drop else 0.0


def _absolute(layer: Layer, parameters: Mapping[str, Array], x: Array) -> Array:
    """|W| x for x >= 0, without bias."""
    silent = {name: np.zeros_like(array) if name == "bias" else np.abs(array) for name, array in parameters.items()}
    if isinstance(
        layer, nn.Conv2d | nn.Affine | nn.AvgPool2d | nn.AdaptiveAvgPool2d | nn.Flatten | nn.Reshape | nn.Identity
    ):
        return layer.forward(silent, x)
    if isinstance(layer, nn.LowRank):
        result: Array = x @ silent["right"].T @ silent["left"].T
        return result
    plain = {name: np.zeros_like(array) if name == "bias" else array for name, array in parameters.items()}
    matrix = layer.forward(plain, np.eye(x.shape[-1]))
    total: Array = x @ np.abs(matrix)
    return total


def _activation(layer: Activation, index: int, y: Array, error: Array, chosen: CompiledNetwork) -> Array:
    """The activation's slope times the error, plus its own rounding."""
    far = np.abs(y) + error
    if isinstance(layer, nn.Cos | nn.Sin):
        precision = _precision(index, chosen)
        total: Array = error + precision.angle + precision.rounding
    elif isinstance(layer, nn.GrowingCos):
        (stage,) = [s for s in chosen.stages if isinstance(s, activations.Growing) and s.name.startswith(f"{index} ")]
        opened = 2 * pi * 2.0**-12
        total = (1 + far) * error + opened + (far + opened) * (even(stage.phase_bits, 12).angle + 1.5 / 2**12)
    elif isinstance(layer, nn.ReLU | nn.LeakyReLU):
        (sharp,) = [s for s in chosen.stages if isinstance(s, activations.Rectified) and s.name.startswith(f"{index} ")]
        total = error + (2.0**-activations.COMPARED_SCALE if sharp.drop else 0.0)
        total = total + (0.0 if sharp.slope is None else (far + 1) * 2.0 ** -(relu.SLOPE_SCALE + 1))
    elif isinstance(layer, nn.ReLU6 | nn.HardTanh):
        (clipped,) = [s for s in chosen.stages if isinstance(s, activations.Clipped) and s.name.startswith(f"{index} ")]
        total = error + (1.5 * 2.0**-activations.COMPARED_SCALE if clipped.drop else 2.0**-activations.COMPARED_SCALE)
    elif isinstance(layer, nn.Square):
        opened = 2.0**-SQUARE_SCALE
        total = 2 * far * (error + opened) + opened**2
    elif isinstance(layer, nn.PolyReLU3):
        opened = 2.0**-10
        coefficients = np.abs(fit.relu_cubic())
        slope = coefficients[1] + 2 * coefficients[2] * far + 3 * coefficients[3] * far**2
        total = slope * (error + opened) + opened**2 + sum(2.0**-8 * far**n * 2.0 ** (-10 * (3 - n)) for n in range(4))
    else:
        assert isinstance(layer, SeriesActivation)
        series, linear = fit.series(layer.name, layer.reach), 0.0
        slope = np.exp(far) if isinstance(layer, nn.ExpM1) else (0.25 if isinstance(layer, nn.Sigmoid) else 1.0)
        if isinstance(layer, BentActivation):
            (b,) = [s for s in chosen.stages if isinstance(s, activations.Bent) and s.name.startswith(f"{index} ")]
            slope, linear = 1.15, 2.0 ** -(activations.LINEAR_SCALE + 1) if b.bits else 0.0
        gap = np.abs(series(y) + (y / 2 if isinstance(layer, BentActivation) else 0.0) - layer(y))
        total = gap + slope * error + linear + fourier.error_bound(series, _precision(index, chosen))
    return total


def _precision(index: int, chosen: CompiledNetwork) -> Precision:
    """Of the cosine at a layer, which may be part of the next layer's stage."""
    for stage in chosen.stages:
        if isinstance(stage, activations.Cosine | activations.Fourier) and stage.name.startswith(f"{index} "):
            return stage.precision
    following = [s for s in chosen.stages if isinstance(s, stages.FusedDiagonal) and int(s.name.split()[0]) > index]
    return following[0].precision
