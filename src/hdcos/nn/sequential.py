"""Networks from PyTorch, and the rates that its optimisers need."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from hdcos.errors import ModelError
from hdcos.nn.network import Sequential as Sequential

if TYPE_CHECKING:
    import torch


def from_torch(module: torch.nn.Module, input_shape: Sequence[int] | None = None) -> Sequential:
    """A PyTorch module as a network of hdcos, parameters included; ModelError names a layer that has no counterpart.

    A module that starts with a convolution needs `input_shape`, unless `to_torch` made it. An HdcosWarning says which
    intervals will be assumed for tanh and sigmoid; `calibrate` of the model, or of `share`, chooses them.
    """
    model: Sequential = _torch_modules().from_torch(module, input_shape)
    from hdcos.secure.calibrate import warn_of_assumed

    warn_of_assumed(model)
    return model


def parameter_groups(module: torch.nn.Module, lr: float, scale_diagonals: bool = True) -> list[dict[str, Any]]:
    """The parameters of a PyTorch module for `torch.optim`, each with the rate that training on shares gives it.

    Diagonals get sqrt(n) times the rate of the others, unless `scale_diagonals` is off; a scheduler keeps these
    proportions.
    """
    groups: list[dict[str, Any]] = _torch_modules().parameter_groups(module, lr, scale_diagonals)
    return groups


def _torch_modules() -> ModuleType:
    """What knows PyTorch, which is imported only when asked for."""
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise ModelError("PyTorch is not installed. Install it with `pip install 'hdcos[torch]'`.") from error
    from hdcos.nn import torch_modules

    return torch_modules
