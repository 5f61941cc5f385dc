"""Cosine for ReLU in PyTorch modules: on shares a comparison takes two or three rounds and a dealer, a cosine one."""

from __future__ import annotations

import copy

from torch import fx
from torch import nn as tnn

from hdcos.errors import ModelError
from hdcos.nn.importing.fx import function_name
from hdcos.nn.importing.tracing import evaluating, trace
from hdcos.nn.torch_modules import Cos

COMPARING = (tnn.ReLU, tnn.ReLU6, tnn.LeakyReLU)
FUNCTIONS = ("relu", "relu6", "leaky_relu")


def replace_relu(module: tnn.Module) -> tnn.Module:
    """A copy with a cosine wherever the module has a ReLU: see `hdcos.nn.replace_relu`."""
    made = copy.deepcopy(module)
    if isinstance(made, COMPARING):
        return Cos()
    for part in list(made.modules()):
        for name, child in list(part.named_children()):
            if isinstance(child, COMPARING):
                setattr(part, name, Cos())
    left = _functions(made)
    if left:
        raise ModelError(
            f"the module calls {', '.join(left)} as functions, which cannot be replaced: give it a torch.nn.ReLU() for "
            f"each in __init__, and call that in forward"
        )
    return made


def _functions(module: tnn.Module) -> list[str]:
    """The names of steps that are ReLU without being modules."""
    with evaluating(module):
        graph: fx.Graph = trace(module).graph
    return [node.name for node in graph.nodes if node.op != "call_module" and function_name(node) in FUNCTIONS]
