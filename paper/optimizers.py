"""SGD and Adam for many models at once: parameters are rows of one array, and each row has its learning rate.

Everything stays on the device, the count of steps included, so that a step can be captured as a graph. A model that
has diverged holds NaN in its own row and changes no other.
"""

from __future__ import annotations

from typing import Protocol

import torch

from hdcos.errors import InputError


class Optimizer(Protocol):
    def step(self, gradient: torch.Tensor) -> None:
        """Change the parameters (models, size) by their gradient."""

    def reset(self) -> None:
        """Forget every step so far."""


class SGD:
    def __init__(self, parameters: torch.Tensor, rates: torch.Tensor) -> None:
        self.parameters, self.descent = parameters, -rates

    def step(self, gradient: torch.Tensor) -> None:
        self.parameters.addcmul_(gradient, self.descent)

    def reset(self) -> None:
        pass


class Momentum:
    """v = 0.9 v + gradient, parameters -= rate * schedule * v, with a schedule that changes between steps."""

    def __init__(self, parameters: torch.Tensor, rates: torch.Tensor) -> None:
        self.parameters, self.descent = parameters, -rates
        self.velocity = torch.zeros_like(parameters)
        self.schedule = torch.ones((), dtype=parameters.dtype, device=parameters.device)
        """What all rates are multiplied by at present."""

    def step(self, gradient: torch.Tensor) -> None:
        self.velocity.mul_(0.9).add_(gradient)
        self.parameters.addcmul_(self.velocity, self.descent * self.schedule)

    def reset(self) -> None:
        self.velocity.zero_()


class Adam:
    """Kingma and Ba, with their constants."""

    def __init__(self, parameters: torch.Tensor, rates: torch.Tensor) -> None:
        self.parameters, self.descent = parameters, -rates
        self.mean, self.square = torch.zeros_like(parameters), torch.zeros_like(parameters)
        self.decay = torch.tensor([0.9, 0.999], dtype=torch.float64, device=parameters.device)
        self.power = torch.ones_like(self.decay)

    def step(self, gradient: torch.Tensor) -> None:
        self.power.mul_(self.decay)
        rest = 1 - self.power
        self.mean.lerp_(gradient, 0.1)
        self.square.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
        spread = self.square.sqrt().div_(rest[1].sqrt()).add_(1e-8)
        self.parameters.addcdiv_(self.mean * (self.descent / rest[0]).to(spread.dtype), spread)

    def reset(self) -> None:
        self.mean.zero_()
        self.square.zero_()
        self.power.fill_(1)


def optimizer(name: str, parameters: torch.Tensor, rates: torch.Tensor) -> Optimizer:
    """The optimiser of that name for parameters (models, size), with learning rates (models, 1) or (models, size)."""
    kinds: dict[str, type[SGD] | type[Momentum] | type[Adam]] = {"sgd": SGD, "momentum": Momentum, "adam": Adam}
    if name not in kinds:
        raise InputError(f"no optimiser is called {name!r}: choose from {', '.join(kinds)}")
    return kinds[name](parameters, rates)
