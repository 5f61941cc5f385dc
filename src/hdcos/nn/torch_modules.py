"""Networks as PyTorch modules and back. Needs the extra hdcos[torch].

A network becomes a torch.nn.Sequential whose state_dict has the names of `model.state()`. PyTorch's own modules stand
for dense, convolution, pooling and flattening layers and for the activations that PyTorch has. For every other layer
there is a module here: it takes the layer's arguments, carries it as `layer`, and runs its forward pass on tensors. Its
fresh parameters follow from PyTorch's seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn as tnn

from hdcos.errors import ModelError
from hdcos.nn import activations, convolution, dense, hadamard
from hdcos.nn.layer import Layer
from hdcos.nn.sequential import Sequential
from hdcos.ring import Array


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
Cos = _stand_in(activations.Cos)
Sin = _stand_in(activations.Sin)
Square = _stand_in(activations.Square)
PolyReLU3 = _stand_in(activations.PolyReLU3)
ExpM1 = _stand_in(activations.ExpM1)
GrowingCos = _stand_in(activations.GrowingCos)


def to_torch(model: Sequential, dtype: torch.dtype | None = None) -> tnn.Sequential:
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


def from_torch(module: tnn.Module, input_shape: Sequence[int] | None = None) -> Sequential:
    """The module as a network of hdcos, parameters included; ModelError names a layer that has no counterpart."""
    if input_shape is None:
        input_shape = getattr(module, "hdcos_input_shape", None)
    layers: list[Layer] = []
    state: dict[str, Array] = {}
    for name, part in _parts(module, ""):
        layer = _layer(name, part)
        found = {key: tensor.detach().cpu().double().numpy() for key, tensor in part.named_parameters()}
        if isinstance(part, tnn.Linear | tnn.Conv2d) and part.bias is None:
            found["bias"] = torch.zeros(part.weight.shape[0], dtype=torch.float64).numpy()
        state |= {f"{len(layers)}.{key}": array for key, array in found.items()}
        layers.append(layer)
    return Sequential._assemble(layers, input_shape, state, getattr(module, "hdcos_feature_names", None))


def _module(layer: Layer) -> tnn.Module:
    if type(layer) in MODULES:
        return MODULES[type(layer)](**asdict(layer))
    native = NATIVE[type(layer)](layer)
    native.layer = layer  # type: ignore[assignment]
    return native


NATIVE: dict[type[Layer], Callable[[Any], tnn.Module]] = {
    dense.Dense: lambda layer: tnn.Linear(layer.in_features, layer.out_features),
    convolution.Conv2d: lambda layer: tnn.Conv2d(
        layer.in_channels, layer.out_channels, layer.kernel_size, layer.stride, layer.padding
    ),
    convolution.AvgPool2d: lambda layer: tnn.AvgPool2d(layer.size),
    convolution.MaxPool2d: lambda layer: tnn.MaxPool2d(layer.size),
    convolution.Flatten: lambda layer: tnn.Flatten(),
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
CHOSEN = ("interval", "compare")
"""What a layer says of its computation on shares, and PyTorch's modules cannot."""


def _parts(module: tnn.Module, prefix: str) -> Iterator[tuple[str, tnn.Module]]:
    """The modules in the order in which they run, one that runs twice included; a Sequential may contain others."""
    if type(module) is not tnn.Sequential:
        yield prefix or "0", module
        return
    for name, child in zip(module._modules, module, strict=True):
        yield from _parts(child, f"{prefix}.{name}" if prefix else name)


def _layer(name: str, module: tnn.Module) -> Layer:
    """The layer a module stands for. Types are compared exactly: a subclass may compute something else."""
    kind = type(module)
    if isinstance(module, LayerModule) and MODULES.get(module.kind) is kind:
        return module.layer
    if kind in READERS:
        return READERS[kind](name, module)
    raise ModelError(
        f"layer {name} ({kind.__name__}) has no counterpart in hdcos.nn: use a torch.nn.Sequential of "
        f"{', '.join(reader.__name__ for reader in READERS)} and the modules of hdcos.nn.torch_modules"
    )


def _kept(module: tnn.Module, layer: Layer) -> Layer:
    """The layer that the module was made of, if that still says the same, or else the plain one."""
    made = getattr(module, "layer", None)
    if isinstance(made, Layer) and _without_choices(made) == _without_choices(layer):
        return made
    return layer


def _without_choices(layer: Layer) -> dict[str, Any]:
    return {name: value for name, value in layer.to_json().items() if name not in CHOSEN}


def _dense(name: str, module: tnn.Linear) -> dense.Dense:
    size = (module.in_features, module.out_features)
    made = getattr(module, "layer", None)
    if isinstance(made, dense.Dense) and (made.in_features, made.out_features) == size:
        return made
    return dense.Dense(*size)


def _convolution(name: str, module: tnn.Conv2d) -> convolution.Conv2d:
    sides = [module.kernel_size, module.stride, module.padding]
    square = all(isinstance(pair, tuple) and pair[0] == pair[1] for pair in sides)
    plain = module.groups == 1 and module.dilation == (1, 1) and module.padding_mode == "zeros"
    if not (square and plain):
        raise ModelError(
            f"layer {name} (Conv2d) must have a square kernel, stride and padding, one group, no dilation and zero "
            f"padding given as a number, got {module}"
        )
    size, stride, padding = (int(pair[0]) for pair in sides)
    return convolution.Conv2d(module.in_channels, module.out_channels, size, stride, padding)


def _pooling(name: str, module: tnn.AvgPool2d) -> convolution.AvgPool2d:
    size, stride = (_side(value) for value in (module.kernel_size, module.stride))
    plain = _side(module.padding) == 0 and not module.ceil_mode and module.divisor_override is None
    if size is None or stride != size or not plain:
        raise ModelError(f"layer {name} (AvgPool2d) must have a square size, equal stride and no padding, got {module}")
    return convolution.AvgPool2d(size)


def _max_pooling(name: str, module: tnn.MaxPool2d) -> Layer:
    size, stride, padding, dilation = (
        _side(value) for value in (module.kernel_size, module.stride, module.padding, module.dilation)
    )
    if size is None or stride != size or (padding, dilation) != (0, 1) or module.ceil_mode or module.return_indices:
        raise ModelError(f"layer {name} (MaxPool2d) must have a square size, equal stride and no padding, got {module}")
    return _kept(module, convolution.MaxPool2d(size))


def _side(value: int | tuple[int, ...]) -> int | None:
    if isinstance(value, int):
        return value
    return int(value[0]) if len(set(value)) == 1 else None


def _flattening(name: str, module: tnn.Flatten) -> convolution.Flatten:
    if (module.start_dim, module.end_dim) != (1, -1):
        raise ModelError(f"layer {name} (Flatten) must flatten everything but the batch, got {module}")
    return convolution.Flatten()


def _gelu(name: str, module: tnn.GELU) -> Layer:
    if module.approximate != "none":
        raise ModelError(
            f"layer {name} (GELU) must be the exact one, set approximate='none': {module.approximate!r} differs "
            f"from it by less than 0.0005"
        )
    return _kept(module, activations.GELU())


def _softplus(name: str, module: tnn.Softplus) -> Layer:
    if module.beta != 1 or module.threshold < 10:
        raise ModelError(f"layer {name} (Softplus) must have beta 1 and a threshold of 10 or more, got {module}")
    return _kept(module, activations.Softplus())


READERS: dict[type[tnn.Module], Callable[[str, Any], Layer]] = {
    tnn.Linear: _dense,
    tnn.Conv2d: _convolution,
    tnn.AvgPool2d: _pooling,
    tnn.MaxPool2d: _max_pooling,
    tnn.Flatten: _flattening,
    tnn.Sigmoid: lambda name, module: _kept(module, activations.Sigmoid()),
    tnn.Tanh: lambda name, module: _kept(module, activations.Tanh()),
    tnn.ReLU: lambda name, module: _kept(module, activations.ReLU()),
    tnn.LeakyReLU: lambda name, module: _kept(module, activations.LeakyReLU(float(module.negative_slope))),
    tnn.ReLU6: lambda name, module: _kept(module, activations.ReLU6()),
    tnn.Hardtanh: lambda name, module: _kept(
        module, activations.HardTanh(float(module.min_val), float(module.max_val))
    ),
    tnn.GELU: _gelu,
    tnn.SiLU: lambda name, module: _kept(module, activations.SiLU()),
    tnn.Softplus: _softplus,
}
