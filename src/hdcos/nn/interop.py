"""The door to PyTorch: opened only when asked, with a clear answer where it is not installed."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING

from hdcos.errors import ModelError
from hdcos.nn.sequential import Sequential

if TYPE_CHECKING:
    import torch


def torch_twin() -> ModuleType:
    """The module that knows PyTorch."""
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise ModelError("PyTorch is not installed. Install it with `pip install 'hdcos[torch]'`.") from error
    from hdcos.nn import torch_twin

    return torch_twin


def from_torch(module: torch.nn.Module, input_shape: Sequence[int] | None = None) -> Sequential:
    """A PyTorch module as a network of hdcos, parameters included; ModelError names a layer that has no counterpart.

    A module that starts with a convolution needs `input_shape`, unless `to_torch` made it. An HdcosWarning says which
    intervals will be assumed for tanh and sigmoid; `calibrate` of the model, or of `share`, chooses them.
    """
    model: Sequential = torch_twin().from_torch(module, input_shape)
    from hdcos.secure.calibrate import warn_of_assumed

    warn_of_assumed(model)
    return model
