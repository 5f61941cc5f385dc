"""Networks whose steps are recorded and repeated on a device, and the same steps on processors."""

from __future__ import annotations

from typing import Any

from benchmarks.gpu import networks
from hdcos import nn
from hdcos.protocol.repeated import Repeated
from hdcos.secure.training import Rule
from hdcos.testing.steps import Hashes, hash_steps

MODELS = {
    **{
        structure: lambda structure=structure: nn.models.mlp([12, 16, 16, 3], "cos", structure)
        for structure in nn.models.STRUCTURES
    },
    "series": lambda: nn.models.mlp([12, 16, 3], "tanh", "dense"),
    "square": lambda: nn.models.mlp([12, 16, 3], "square", "hadamard"),
    "terms": lambda: nn.Sequential(
        [nn.HadamardDiagonal(12, 16, terms=3), nn.Cos(), nn.HadamardDiagonal(16, 3, terms=2)], input_shape=(12,)
    ),
    "convolution": lambda: nn.Sequential(
        [nn.Conv2d(1, 2, 3), nn.Cos(), nn.AvgPool2d(2), nn.Flatten(), nn.Dense(18, 3)], input_shape=(1, 8, 8)
    ),
    "relu": lambda: nn.models.mlp([12, 16, 3], "relu", "dense"),
    "largest": lambda: nn.Sequential(
        [nn.Conv2d(1, 2, 3), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten(), nn.Dense(18, 3)], input_shape=(1, 8, 8)
    ),
}
MEASURED = {name: lambda name=name: networks()[name] for name in networks()}
"""Those whose steps are measured on GPUs."""


def steps(
    name: str, device: Any, count: int = 4, loss: str = "logistic", momentum: float = 0.0, **options: Any
) -> tuple[list[Hashes], list[Repeated[Any]]]:
    """Hashes of what the parties said in each step and of what they made of it, and the runs of both."""
    model = {**MODELS, **MEASURED}[name]()
    return hash_steps(
        model, (device, device, device), count, loss, Rule(0.1, momentum), label=f"{name} {loss}", **options
    )
