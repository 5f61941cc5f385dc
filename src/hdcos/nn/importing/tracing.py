"""A PyTorch module as a graph of steps, by torch.fx, and what its steps give for some rows."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch import nn as tnn

from hdcos.errors import ModelError
from hdcos.nn.layer import Linear, Shape
from hdcos.nn.torch_modules import LayerModule


class _Tracer(fx.Tracer):
    """Modules of PyTorch and of hdcos are read as they are, all others by what their forward does."""

    def is_leaf_module(self, m: tnn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, LayerModule) or super().is_leaf_module(m, module_qualified_name)


class _Whole(tnn.Module):
    """Takes rows and nothing else: arguments with defaults keep these."""

    def __init__(self, module: tnn.Module) -> None:
        super().__init__()
        self.whole = module

    def forward(self, x: Any) -> Any:
        return self.whole(x)


def check_module(module: Any) -> tnn.Module:
    """A module that can be traced, or the graph of a program that was exported."""
    if isinstance(module, torch.export.ExportedProgram):
        exported = module.module()
        for node in [node for node in exported.graph.nodes if node.target == "_guards_fn"]:
            exported.graph.erase_node(node)
        return exported
    if isinstance(module, torch.jit.ScriptModule | torch.jit.ScriptFunction):
        raise ModelError(
            "a TorchScript program cannot be imported: take the module it was made from, or export that with "
            "torch.onnx.export or torch.export.export"
        )
    if isinstance(module, dict):
        raise ModelError(
            "a state dict has parameters but no network: build the module, call module.load_state_dict(state), and "
            "pass the module"
        )
    if not isinstance(module, tnn.Module):
        raise ModelError(f"from_torch takes a torch.nn.Module, got {type(module).__name__}")
    return module


@contextmanager
def evaluating(module: tnn.Module) -> Iterator[None]:
    """In evaluation mode, and as it was afterwards."""
    training = {part: part.training for part in module.modules()}
    try:
        for part in training:
            part.training = False
        yield
    finally:
        for part, was in training.items():
            part.training = was


def trace(module: tnn.Module) -> fx.GraphModule:
    parameters = inspect.signature(module.forward).parameters.values()
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    needed = [each.name for each in parameters if each.default is each.empty and each.kind not in variable]
    if len(needed) > 1:
        raise ModelError(
            f"the module takes {len(needed)} inputs, {', '.join(needed)}: a network takes one; join them, and split "
            f"them in the module"
        )
    whole = _Whole(module).eval()
    try:
        return fx.GraphModule(whole, _Tracer().trace(whole))
    except Exception as error:  # whatever the forward of a user's module does with a proxy
        raise ModelError(
            f"the module cannot be traced ({_first_line(error)}): its forward must do the same "
            f"whatever the numbers are, without `if` or loops over values. Or export it with torch.onnx.export."
        ) from error


def kind_of(module: tnn.Module) -> tuple[torch.dtype, torch.device]:
    """Of the module's numbers."""
    for tensor in (*module.parameters(), *module.buffers()):
        if tensor.dtype.is_floating_point:
            return tensor.dtype, tensor.device
    return torch.get_default_dtype(), torch.device("cpu")


def first_features(traced: fx.GraphModule) -> Shape:
    """The shape of a row where the first layer with features tells it."""
    for node in traced.graph.nodes:
        part = traced.get_submodule(node.target) if node.op == "call_module" else None
        if isinstance(part, tnn.Linear):
            return (part.in_features,)
        if isinstance(part, LayerModule) and isinstance(part.layer, Linear):
            return (part.layer.in_features,)
        if isinstance(part, tnn.BatchNorm1d):
            return (part.num_features,)
        if isinstance(part, tnn.Conv2d | tnn.BatchNorm2d | tnn.Flatten | tnn.MaxPool2d | tnn.AvgPool2d):
            break
    raise ModelError(
        "the module needs input_shape, the shape of one row, or an example: from_torch(module, input_shape=(1, 28, 28))"
    )


@dataclass(frozen=True)
class Rows:
    """A tensor that follows from the rows, of which only the shape is remembered."""

    shape: Shape


class Runner(fx.Interpreter):
    """Runs a graph and remembers what its steps gave."""

    def __init__(self, traced: fx.GraphModule, keep: fx.Node | None = None) -> None:
        super().__init__(traced)
        self.keep = keep
        self.seen: dict[fx.Node, Any] = {}
        self.dependent: set[fx.Node] = set()
        """Steps that the rows have a part in."""

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        if n.op == "placeholder" or any(each in self.dependent for each in n.all_input_nodes):
            self.dependent.add(n)
        if n is self.keep:
            self.seen[n] = result.clone()
        elif n in self.dependent and isinstance(result, torch.Tensor):
            self.seen[n] = Rows(tuple(result.shape))
        else:
            self.seen[n] = result
        return result


def _first_line(error: Exception) -> str:
    """What went wrong; below it torch.fx adds where in the graph that was, and how it came to be."""
    lines = [" ".join(line.split()) for line in str(error).splitlines()]
    return next((line for line in lines if line), type(error).__name__)[:200]


def run_graph(traced: fx.GraphModule, rows: torch.Tensor, keep: fx.Node | None = None) -> Runner:
    runner = Runner(traced, keep)
    try:
        runner.run(rows)
    except Exception as error:  # whatever a user's module raises
        raise ModelError(
            f"the module cannot be run on {len(rows)} rows of shape {tuple(rows.shape[1:])} "
            f"({_first_line(error)}): pass an example of what it takes, or input_shape"
        ) from error
    return runner
