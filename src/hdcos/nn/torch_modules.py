"""Networks as PyTorch modules. Needs the extra hdcos[torch]; `importing` has the way back.

A network becomes a torch.nn.Sequential whose state_dict has the names of `model.state()`. PyTorch's own modules stand
for dense, convolution, pooling and flattening layers and for the activations that PyTorch has. For every other layer
there is a module here: it takes the layer's arguments, carries it as `layer`, and runs its forward pass on tensors. Its
fresh parameters follow from PyTorch's seed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn as tnn

from hdcos.nn import activations, affine, convolution, dense, hadamard, passing
from hdcos.nn.layer import Layer
from hdcos.nn.network import Network


class LayerModule(tnn.Module):
    """A module that stands for one layer of type `kind`, with the layer's parameters and initial values."""

    kind: ClassVar[type[Layer]]
    layer: Layer

    def __init__(self, *fields: Any, **named: Any) -> None:
        super().__init__()
        self.layer = self.kind(*fields, **named)
        seed = int(torch.randint(2**63 - 1, ()))
        for name, values in self.layer.initial(np.random.default_rng(seed)).items():
            tensor = torch.tensor(values, dtype=torch.get_default_dtype())
            self.register_parameter(name, tnn.Parameter(tensor))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows: Any = x
        result: Any = self.layer.forward(dict(self.named_parameters()), rows)  # type: ignore[arg-type]
        return result  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self.layer.to_json().items() if name != "type")


MODULES: dict[type[Layer], type[LayerModule]] = {}
"""The module of every layer that PyTorch has no module for."""


def _stand_in(kind: type[Layer]) -> type[LayerModule]:
    MODULES[kind] = type(kind.__name__, (LayerModule,), {"kind": kind, "__module__": __name__, "__doc__": kind.__doc__})
    return MODULES[kind]


HadamardDiagonal = _stand_in(hadamard.HadamardDiagonal)
PHD = _stand_in(hadamard.PHD)
RandomProjection = _stand_in(hadamard.RandomProjection)
RandomFeatures = _stand_in(hadamard.RandomFeatures)
LowRank = _stand_in(dense.LowRank)
Circulant = _stand_in(dense.Circulant)
Affine = _stand_in(affine.Affine)
Reshape = _stand_in(passing.Reshape)
Cos = _stand_in(activations.Cos)
Sin = _stand_in(activations.Sin)
Square = _stand_in(activations.Square)
PolyReLU3 = _stand_in(activations.PolyReLU3)
ExpM1 = _stand_in(activations.ExpM1)
GrowingCos = _stand_in(activations.GrowingCos)


def to_torch(model: Network, dtype: torch.dtype | None = None) -> tnn.Sequential:
    """The network as a trainable module, parameters included; float32 unless said otherwise."""
    with torch.random.fork_rng(devices=[]):  # building a module draws numbers that are replaced below
        module = tnn.Sequential(*(_module(layer) for layer in model.layers))
    module = module.to(dtype or torch.float32)
    module.load_state_dict({name: torch.from_numpy(array) for name, array in model.state().items()})
    module.hdcos_input_shape = model.input_shape  # type: ignore[assignment]
    module.hdcos_feature_names = model.feature_names  # type: ignore[assignment]
    return module


def parameter_groups(module: tnn.Module, lr: float, scale_diagonals: bool) -> list[dict[str, Any]]:
    """The parameters of a module by learning rate: see `hdcos.nn.parameter_groups`."""
    own = [part for part in module.modules() if isinstance(part, LayerModule)]
    factors = {getattr(part, name): factor for part in own for name, factor in part.layer.rate_factors().items()}
    groups: dict[float, list[tnn.Parameter]] = {}
    for parameter in module.parameters():
        groups.setdefault(factors.get(parameter, 1.0) if scale_diagonals else 1.0, []).append(parameter)
    return [{"params": parameters, "lr": lr * factor} for factor, parameters in groups.items()]


def _module(layer: Layer) -> tnn.Module:
    if type(layer) in MODULES:
        return MODULES[type(layer)](**asdict(layer))
    native = NATIVE[type(layer)](layer)
    native.layer = layer  # type: ignore[assignment]
    return native


NATIVE: dict[type[Layer], Callable[[Any], tnn.Module]] = {
    dense.Dense: lambda layer: tnn.Linear(layer.in_features, layer.out_features),
    convolution.Conv2d: lambda layer: tnn.Conv2d(
        layer.in_channels,
        layer.out_channels,
        layer.kernel_size,
        layer.stride,
        layer.padding,
        layer.dilation,
        layer.groups,
    ),
    convolution.AvgPool2d: lambda layer: tnn.AvgPool2d(layer.size, layer.stride, layer.padding),
    convolution.MaxPool2d: lambda layer: tnn.MaxPool2d(layer.size, layer.stride, layer.padding),
    convolution.AdaptiveAvgPool2d: lambda layer: tnn.AdaptiveAvgPool2d(layer.size),
    convolution.Flatten: lambda layer: tnn.Flatten(),
    passing.Identity: lambda layer: tnn.Identity(),
    passing.Dropout: lambda layer: tnn.Dropout(layer.p),
    activations.Sigmoid: lambda layer: tnn.Sigmoid(),
    activations.Tanh: lambda layer: tnn.Tanh(),
    activations.ReLU: lambda layer: tnn.ReLU(),
    activations.LeakyReLU: lambda layer: tnn.LeakyReLU(layer.slope),
    activations.ReLU6: lambda layer: tnn.ReLU6(),
    activations.HardTanh: lambda layer: tnn.Hardtanh(layer.low, layer.high),
    activations.GELU: lambda layer: tnn.GELU(),
    activations.SiLU: lambda layer: tnn.SiLU(),
    activations.Softplus: lambda layer: tnn.Softplus(),
}
