"""Chains of layers under the name that they had first, and the rates that PyTorch's optimisers need for them."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any

from hdcos.errors import ModelError
from hdcos.nn.network import Sequential as Sequential

if TYPE_CHECKING:
    import torch


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
