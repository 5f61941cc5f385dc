"""Random PyTorch modules: of parts that can be imported, and with one part among them that cannot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

Shape = tuple[int, ...]
Function = Callable[[Any], Any]

ACTIVATIONS: dict[str, Function] = {
    "F.relu": functional.relu,
    "torch.relu": torch.relu,
    "x.relu": lambda x: x.relu(),
    "x.clamp": lambda x: x.clamp(min=0),
    "leaky_relu": lambda x: functional.leaky_relu(x, 0.2),
    "relu6": functional.relu6,
    "hardtanh": lambda x: functional.hardtanh(x, -2.0, 1.0),
    "hardsigmoid": functional.hardsigmoid,
    "gelu": functional.gelu,
    "silu": functional.silu,
    "x sigmoid(x)": lambda x: x * torch.sigmoid(x),
    "x (1 + erf)": lambda x: 0.5 * x * (1 + torch.erf(x / 2**0.5)),
    "softplus": functional.softplus,
    "tanh": torch.tanh,
    "sigmoid": lambda x: x.sigmoid(),
    "cos": torch.cos,
    "sin": torch.sin,
    "abs": lambda x: x.abs(),
}
MODULES: list[Callable[[], nn.Module]] = [
    nn.ReLU, nn.ReLU6, lambda: nn.LeakyReLU(0.3), nn.Hardtanh, nn.GELU, nn.SiLU, nn.Softplus, nn.Tanh, nn.Sigmoid,
]  # fmt: skip
JOINS: list[Callable[[Any, Any], Any]] = [
    lambda x, y: x + y, torch.add, lambda x, y: y - x, lambda x, y: x.add(y), lambda x, y: x + 0.5 * y,
]  # fmt: skip
SHAPING: list[Function] = [
    lambda x: torch.flatten(x, 1), lambda x: x.view(x.size(0), -1), lambda x: x.reshape(x.shape[0], -1),
    lambda x: x.mean((2, 3)), lambda x: functional.adaptive_avg_pool2d(x, 1).flatten(1), lambda x: x.mean(dim=[-1, -2]),
]  # fmt: skip
POOLING: list[Function] = [
    lambda x: functional.max_pool2d(x, 2), lambda x: functional.avg_pool2d(x, 2),
    lambda x: functional.avg_pool2d(x, 3, stride=1, padding=1),
    lambda x: functional.max_pool2d(x, 3, stride=2, padding=1),
]  # fmt: skip
REFUSED_IMAGES: dict[str, Function] = {
    "elu": functional.elu,
    "mish": functional.mish,
    "hardswish": functional.hardswish,
    "exp": lambda x: torch.exp(-x * x),
    "max_pool2d": lambda x: functional.max_pool2d(x, 2, dilation=2),
    "mul": lambda x: x * functional.adaptive_avg_pool2d(x, 1),
    "softmax": lambda x: torch.softmax(x, 1),
    "transpose": lambda x: x.transpose(2, 3),
    "flip": lambda x: torch.flip(x, [1]),
    "getitem": lambda x: x[:, :, ::2],
    "cumsum": lambda x: torch.cumsum(x, 1),
    "interpolate": lambda x: functional.interpolate(x, scale_factor=2.0),
    "roll": lambda x: torch.roll(x, 1, 0),
    "sqrt": lambda x: torch.sqrt(x * x + 1),
}
REFUSED_MODULES: list[Callable[[int], nn.Module]] = [
    lambda channels: nn.GroupNorm(1, channels),
    lambda channels: nn.InstanceNorm2d(channels),
    lambda channels: nn.ConvTranspose2d(channels, channels, 3),
    lambda channels: nn.CELU(),
    lambda channels: nn.Upsample(scale_factor=2),
    lambda channels: nn.Conv2d(channels, channels, 3, stride=(1, 2), padding=1),
    lambda channels: nn.Conv2d(channels, channels, 3, padding=1, padding_mode="reflect"),
    lambda channels: nn.LPPool2d(2, 2),
]


class Call(nn.Module):
    """A function as a part of a module."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(x)


class Join(nn.Module):
    """Two ways that meet: a sum, or one after the other."""

    def __init__(self, one: nn.Module, other: nn.Module, join: Callable[[Any, Any], Any]) -> None:
        super().__init__()
        self.one, self.other, self.join = one, other, join

    def forward(self, x: Any) -> Any:
        return self.join(self.one(x), self.other(x))


class Generator:
    """Draws modules; everything follows from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        torch.manual_seed(seed)

    def module(self) -> tuple[nn.Sequential, Shape]:
        """A module of the supported set, in double precision, and the shape of one of its rows.

        Its first part gives the logits.
        """
        if self.random.random() < 0.3:
            shape: Shape = (int(self.random.integers(3, 12)),)
            parts, features = self._tables(shape[0])
        else:
            shape = (int(self.random.integers(1, 4)), *[int(self.random.choice([8, 12]))] * 2)
            parts, channels, size = self._images(shape)
            shaping = Call(self._one(SHAPING))
            parts.append(shaping)
            features = int(shaping(torch.zeros(1, channels, *size)).shape[1])
        endings = [[], [], [nn.Softmax(1)], [nn.LogSoftmax(-1)], [Call(lambda x: functional.softmax(x, dim=1))]]
        ending = self._one(endings)
        return self._finished([nn.Sequential(*parts, *self._head(features)), *ending]), shape

    def spoilt(self) -> tuple[nn.Module, Shape, str]:
        """A module with one part that cannot be imported, and the name of its type."""
        shape = (2, 12, 12)
        parts, channels, _ = self._images(shape)
        if self.random.random() < 0.5:
            name = str(self.random.choice(list(REFUSED_IMAGES)))
            wrong: nn.Module = Call(REFUSED_IMAGES[name])
        else:
            wrong = self._one(REFUSED_MODULES)(channels)
            name = type(wrong).__name__
        ending = [Call(lambda x: x.flatten(1)), nn.LazyLinear(3)]
        module = self._finished([*parts, wrong, *ending])
        module(torch.zeros(2, *shape, dtype=torch.float64))  # tells lazy layers their sizes
        return module, shape, name

    def _one(self, choices: Any) -> Any:
        return choices[int(self.random.integers(len(choices)))]

    def _activation(self) -> nn.Module:
        if self.random.random() < 0.5:
            return self._one(MODULES)()
        return Call(ACTIVATIONS[self._one(list(ACTIVATIONS))])

    def _convolution(self, channels: int, outputs: int) -> list[nn.Module]:
        """One that keeps the size of images."""
        dilation, kernel = int(self._one([1, 1, 2])), int(self._one([1, 3]))
        groups = self._one([1, 1, channels if outputs % channels == 0 else 1])
        padding = self._one([dilation * (kernel - 1) // 2, "same"])
        bias = bool(self.random.random() < 0.5)
        parts: list[nn.Module] = [
            nn.Conv2d(channels, outputs, kernel, 1, padding, dilation=dilation, groups=groups, bias=bias)
        ]
        return [*parts, *[nn.BatchNorm2d(outputs)] * bool(self.random.random() < 0.6)]

    def _images(self, shape: Shape) -> tuple[list[nn.Module], int, Shape]:
        channels, size, parts = shape[0], shape[1:], []
        for _ in range(int(self.random.integers(1, 3))):
            outputs = channels * int(self._one([1, 2]))
            body = [*self._convolution(channels, outputs), self._activation()]
            kind = self.random.random()
            if kind < 0.35:
                second = nn.Sequential(*body, *self._convolution(outputs, outputs))
                way = nn.Identity() if outputs == channels else nn.Conv2d(channels, outputs, 1)
                parts += [Join(way, second, self._one(JOINS)), self._activation()]
            elif kind < 0.5:
                other = nn.Sequential(*self._convolution(channels, outputs))
                parts.append(Join(nn.Sequential(*body), other, lambda x, y: torch.cat((x, y), 1)))
                outputs *= 2
            elif kind < 0.6:
                parts += [nn.BatchNorm2d(channels), self._activation(), *self._convolution(channels, outputs)]
            else:
                parts += body
            channels = outputs
            parts += [nn.Dropout2d(0.3)] * bool(self.random.random() < 0.3)
            if self.random.random() < 0.5 and size[0] % 4 == 0:
                pool = self._one(POOLING)
                size = tuple(pool(torch.zeros(1, 1, *size)).shape[2:])
                parts.append(Call(pool))
        return parts, channels, size

    def _tables(self, features: int) -> tuple[list[nn.Module], int]:
        parts: list[nn.Module] = []
        for _ in range(int(self.random.integers(1, 3))):
            outputs = int(self.random.integers(3, 12))
            body = [nn.Linear(features, outputs), nn.BatchNorm1d(outputs), self._activation(), nn.Dropout()]
            if self.random.random() < 0.4:
                other = nn.Linear(features, outputs, bias=False)
                parts.append(Join(nn.Sequential(*body), other, self._one(JOINS)))
            else:
                parts += body
            features = outputs
        return parts, features

    def _head(self, features: int) -> list[nn.Module]:
        outputs = int(self.random.integers(2, 6))
        if self.random.random() < 0.5:
            return [nn.Linear(features, outputs)]
        return [nn.Linear(features, 8), self._activation(), nn.Dropout(), nn.Linear(8, outputs)]

    def _finished(self, parts: list[nn.Module]) -> nn.Sequential:
        """With statistics as training leaves them behind."""
        module = nn.Sequential(*parts).double().eval()
        for part in module.modules():
            if isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d):
                for tensor, low, high in ((part.running_mean, -0.3, 0.3), (part.running_var, 0.5, 2.0)):
                    assert tensor is not None
                    tensor.uniform_(low, high)
                with torch.no_grad():
                    part.weight.uniform_(0.5, 1.5)
                    part.bias.uniform_(-0.3, 0.3)
        return module
