"""The layers that PyTorch lacks, as modules with the parameter names of hdcos.nn. Needs the extra hdcos[torch].

A module takes the arguments of its layer and carries it as `layer`; fresh parameters follow from PyTorch's seed.
The transform is a butterfly of log n steps and its own gradient: H is symmetric, so the gradient of H x is H times
the gradient of the result.
"""

from __future__ import annotations

from math import sqrt
from typing import Any, ClassVar

import numpy as np
import torch
from torch.nn import functional

from hdcos.nn import activations, dense, hadamard, projection, structured
from hdcos.nn.layer import Layer
from hdcos.protocol.intervals import relu_cubic


def _butterfly(x: torch.Tensor) -> torch.Tensor:
    n = x.shape[-1]
    y = x.reshape(-1, n)
    half = 1
    while half < n:
        pairs = y.reshape(-1, n // (2 * half), 2, half)
        upper, lower = pairs[:, :, 0], pairs[:, :, 1]
        y = torch.stack((upper + lower, upper - lower), dim=2)
        half *= 2
    return y.reshape(x.shape) / sqrt(n)


class _WalshHadamard(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: torch.Tensor) -> torch.Tensor:
        return _butterfly(x)

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> torch.Tensor:
        return walsh_hadamard(gradients[0])


def walsh_hadamard(x: torch.Tensor) -> torch.Tensor:
    """The orthonormal transform of the last axis, whose length is a power of two."""
    result: torch.Tensor = _WalshHadamard.apply(x)  # type: ignore[no-untyped-call]
    return result


class TwinModule(torch.nn.Module):
    """A module that stands for one layer of type `kind`, with the layer's parameters and initial values."""

    kind: ClassVar[type[Layer]]
    layer: Layer

    def __init__(self, *fields: Any, **named: Any) -> None:
        super().__init__()
        self.layer = self.kind(*fields, **named)
        seed = int(torch.randint(2**63 - 1, ()))
        for name, values in self.layer.initial(np.random.default_rng(seed)).items():
            self.register_parameter(name, torch.nn.Parameter(_tensor(values)))

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self.layer.to_json().items() if name != "type")


def _tensor(values: Any) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.get_default_dtype())


class HadamardDiagonal(TwinModule):
    kind = hadamard.HadamardDiagonal
    layer: hadamard.HadamardDiagonal

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for name in self.layer.diagonals:
            x = x * self.get_parameter(name)
            x = walsh_hadamard(functional.pad(x, (0, self.layer.size - x.shape[-1])))
        return x[..., : self.layer.out_features] + self.get_parameter("bias")


class LowRank(TwinModule):
    kind = dense.LowRank

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = functional.linear(x, self.get_parameter("right"))
        return functional.linear(inner, self.get_parameter("left"), self.get_parameter("bias"))


class PHD(TwinModule):
    kind = structured.PHD
    layer: structured.PHD
    projection: torch.Tensor

    def __init__(self, *fields: Any, **named: Any) -> None:
        super().__init__(*fields, **named)
        self.register_buffer("projection", _tensor(self.layer.projection_matrix()), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.pad(x * self.get_parameter("diagonal"), (0, self.layer.size - x.shape[-1]))
        return functional.linear(walsh_hadamard(x), self.projection, self.get_parameter("bias"))


class Circulant(TwinModule):
    kind = structured.Circulant
    layer: structured.Circulant

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n = self.layer.size
        spectrum = torch.fft.rfft(x, n) * torch.fft.rfft(self.get_parameter("weight"), n)
        result: torch.Tensor = torch.fft.irfft(spectrum, n)[..., : self.layer.out_features] + self.get_parameter("bias")
        return result


class RandomProjection(TwinModule):
    kind = projection.RandomProjection
    layer: projection.RandomProjection
    signs: torch.Tensor
    kept: torch.Tensor

    def __init__(self, *fields: Any, **named: Any) -> None:
        super().__init__(*fields, **named)
        self.register_buffer("signs", _tensor(self.layer.signs()), persistent=False)
        self.register_buffer("kept", torch.tensor(self.layer.kept()), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mixed = walsh_hadamard(functional.pad(x * self.signs, (0, self.layer.size - x.shape[-1])))
        return mixed[..., self.kept] * sqrt(self.layer.size / self.layer.out_features)


class Cos(TwinModule):
    kind = activations.Cos

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cos(x)


class Sin(TwinModule):
    kind = activations.Sin

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x)


class Square(TwinModule):
    kind = activations.Square

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * x


class PolyReLU3(TwinModule):
    kind = activations.PolyReLU3

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        c0, c1, c2, c3 = relu_cubic()
        return c0 + x * (c1 + x * (c2 + x * c3))


class ExpM1(TwinModule):
    kind = activations.ExpM1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.expm1(x)


class GrowingCos(TwinModule):
    kind = activations.GrowingCos

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.cos(x)


TWINS: dict[type[Layer], type[TwinModule]] = {
    module.kind: module
    for module in (
        HadamardDiagonal,
        LowRank,
        PHD,
        Circulant,
        RandomProjection,
        Cos,
        Sin,
        Square,
        PolyReLU3,
        ExpM1,
        GrowingCos,
    )
}
"""The module of every layer that PyTorch has no module for."""
