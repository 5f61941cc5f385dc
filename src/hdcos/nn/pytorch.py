"""The way to what knows PyTorch, which is imported only when asked for; the rates that its optimisers need."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any

from hdcos.errors import ModelError

if TYPE_CHECKING:
    import torch


def parameter_groups(module: torch.nn.Module, lr: float, scale_diagonals: bool = True) -> list[dict[str, Any]]:
    """The parameters of a PyTorch module for `torch.optim`, each with the rate that training on shares gives it.

    Diagonals get sqrt(n) times the rate of the others, unless `scale_diagonals` is off; a scheduler keeps these
    proportions.
    """
    groups: list[dict[str, Any]] = torch_modules().parameter_groups(module, lr, scale_diagonals)
    return groups


def require_torch() -> None:
    """ModelError that says how to install PyTorch, unless it is there."""
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise ModelError("PyTorch is not installed. Install it with `pip install 'hdcos[torch]'`.") from error


def torch_modules() -> ModuleType:
    require_torch()
    from hdcos.nn import torch_modules

    return torch_modules
