"""Many models of one architecture as one computation.

The parameters of model m are row m of one array, so an optimiser's step is one operation for all of them. Features
have shape (models, rows, features), images (rows, models * channels, height, width): convolution groups keep the
models apart. The input has no model axis: all models see the same rows. No operation mixes models, so one that
diverges to NaN leaves the others as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from math import sqrt
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from hdcos.errors import ModelError
from hdcos.nn import activations
from hdcos.nn.convolution import AvgPool2d, Conv2d, Flatten
from hdcos.nn.dense import Circulant, Dense, LowRank
from hdcos.nn.hadamard import PHD, HadamardDiagonal, RandomProjection, sylvester
from hdcos.nn.layer import Layer
from hdcos.nn.network import Sequential
from hdcos.protocol.intervals import relu_cubic
from paper.lenet_stem import Stem, find_stem

Parameters = Mapping[str, torch.Tensor]


class Batch:
    """Models of one architecture, their parameters copied to a device."""

    def __init__(self, models: Sequence[Sequential], device: str, dtype: torch.dtype = torch.float32) -> None:
        first = models[0]
        if any(model.fingerprint != first.fingerprint for model in models):
            raise ModelError("models that are trained as one need the same architecture")
        self.layers, self.models, self.parameter_count = first.layers, len(models), first.parameter_count
        rows = [np.concatenate([array.ravel() for array in model.state().values()]) for model in models]
        self.parameters = torch.from_numpy(np.stack(rows)).to(device, dtype)
        """(models, parameter_count), in the order of `state()`."""
        self.stem: Stem | None = find_stem(first, self.parameters)
        self._leaves: list[torch.Tensor] = []
        self._named: list[dict[str, torch.Tensor]] = [{} for _ in self.layers]
        self._view(first)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """The outputs (models, rows, outputs) for rows that all models share."""
        start = 0
        if self.stem is not None:
            x, start = self.stem(self._leaves[0], x), self.stem.layers
        for layer, parameters in zip(self.layers[start:], self._named[start:], strict=True):
            if isinstance(layer, Flatten):
                x = x.reshape(len(x), self.models, -1).transpose(0, 1)
            else:
                x = FORWARD[type(layer)](layer, parameters, x)
        return x

    def gradient(self, outputs: torch.Tensor, slopes: torch.Tensor) -> torch.Tensor:
        """The gradient by the parameters, given the slopes of the loss at the outputs: row m is that of model m."""
        parts = torch.autograd.grad(outputs, self._leaves, slopes)
        return torch.cat([part.reshape(self.models, -1) for part in parts], dim=1)

    def network(self, like: Sequential, index: int = 0) -> Sequential:
        """One of the models, as a network of the architecture of `like`."""
        row, state, end = self.parameters[index].detach().cpu().double().numpy(), {}, 0
        for key, array in like.state().items():
            start, end = end, end + array.size
            state[key] = row[start:end].reshape(array.shape)
        return like.with_state(state)

    def _view(self, model: Sequential) -> None:
        """Make the leaves of the computation: views of the one array, so that changing it changes them."""
        end = 0
        if self.stem is not None:
            end = self.stem.size
            self._leaves.append(self._leaf(0, end, (end,)))
        for key, array in model.state().items():
            index, name = key.split(".")
            if self.stem is not None and int(index) < self.stem.layers:
                continue
            start, end = end, end + array.size
            self._named[int(index)][name] = self._leaf(start, end, array.shape)
            self._leaves.append(self._named[int(index)][name])

    def _leaf(self, start: int, end: int, shape: tuple[int, ...]) -> torch.Tensor:
        return self.parameters[:, start:end].view(self.models, *shape).requires_grad_()


def _dense(layer: Dense, p: Parameters, x: torch.Tensor) -> torch.Tensor:
    return _product(x, p["weight"], p["bias"])


def _low_rank(layer: LowRank, p: Parameters, x: torch.Tensor) -> torch.Tensor:
    right = p["right"]
    inner = torch.matmul(x, right.mT)
    return _product(inner, p["left"], p["bias"])


def _product(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return torch.baddbmm(bias[:, None], x.expand(len(weight), *x.shape[-2:]), weight.mT)


def _hadamard_diagonal(layer: HadamardDiagonal, p: Parameters, x: torch.Tensor) -> torch.Tensor:
    *inner, last = layer.diagonals
    for name in inner:
        x = (x * p[name][:, None]) @ _hadamard(x.shape[-1], layer.size, layer.size, x.device, x.dtype)
    kept = _hadamard(x.shape[-1], layer.out_features, layer.size, x.device, x.dtype)
    if layer.terms == 1:
        return (x * p[last][:, None]) @ kept + p["bias"][:, None]
    signs = x.new_tensor(sylvester(layer.size)[: layer.terms, : layer.out_features])
    mixed = sum((x * p[last][:, term, None]) @ kept * signs[term] for term in range(layer.terms))
    return mixed + p["bias"][:, None]


def _phd(layer: PHD, p: Parameters, x: torch.Tensor) -> torch.Tensor:
    return (x * p["diagonal"][:, None]) @ _phd_matrix(layer, x.device, x.dtype) + p["bias"][:, None]


@cache
def _hadamard(inputs: int, outputs: int, n: int, device: torch.device, dtype: torch.dtype) -> torch.Tensor:
    """The part of the orthonormal matrix that padding with zeros and keeping the first outputs leave to compute."""
    return torch.tensor(sylvester(n)[:inputs, :outputs] / sqrt(n), device=device, dtype=dtype)


@cache
def _phd_matrix(layer: PHD, device: torch.device, dtype: torch.dtype) -> torch.Tensor:
    matrix = sylvester(layer.size)[: layer.in_features] / sqrt(layer.size) @ layer.projection_matrix().T
    return torch.tensor(matrix, device=device, dtype=dtype)


def _projection(layer: RandomProjection, p: Parameters, x: torch.Tensor) -> torch.Tensor:
    return x @ _projection_matrix(layer, x.device, x.dtype)


@cache
def _projection_matrix(layer: RandomProjection, device: torch.device, dtype: torch.dtype) -> torch.Tensor:
    return torch.tensor(layer.forward({}, np.eye(layer.in_features)), device=device, dtype=dtype)


def _circulant(layer: Circulant, p: Parameters, x: torch.Tensor) -> torch.Tensor:
    n = layer.size
    spectrum = torch.fft.rfft(x, n) * torch.fft.rfft(p["weight"], n)[:, None]
    cycle: torch.Tensor = torch.fft.irfft(spectrum, n)
    return cycle[..., : layer.out_features] + p["bias"][:, None]


def _convolution(layer: Conv2d, p: Parameters, x: torch.Tensor) -> torch.Tensor:
    """One group per model; rows that all models share are one group with the kernels of all models."""
    weight, bias = p["weight"].flatten(0, 1), p["bias"].flatten()
    return functional.conv2d(x, weight, bias, layer.stride, layer.padding, groups=x.shape[1] // layer.in_channels)


def _pooling(layer: AvgPool2d, p: Parameters, x: torch.Tensor) -> torch.Tensor:
    return functional.avg_pool2d(x, layer.size)


def _poly_relu3(layer: Layer, p: Parameters, x: torch.Tensor) -> torch.Tensor:
    c0, c1, c2, c3 = relu_cubic()
    return c0 + x * (c1 + x * (c2 + x * c3))


FORWARD: dict[type[Layer], Callable[[Any, Parameters, torch.Tensor], torch.Tensor]] = {
    Dense: _dense,
    LowRank: _low_rank,
    HadamardDiagonal: _hadamard_diagonal,
    PHD: _phd,
    Circulant: _circulant,
    RandomProjection: _projection,
    Conv2d: _convolution,
    AvgPool2d: _pooling,
    activations.Cos: lambda layer, p, x: torch.cos(x),
    activations.Square: lambda layer, p, x: x * x,
    activations.ExpM1: lambda layer, p, x: torch.expm1(x),
    activations.PolyReLU3: _poly_relu3,
    activations.ReLU: lambda layer, p, x: torch.relu(x),
}
"""What each type of layer computes for all models."""
