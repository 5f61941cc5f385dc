"""PyTorch modules as operations, by torch.fx. Needs the extra hdcos[torch].

The module is traced in evaluation mode and run on two batches of different size, which tells the shape of every value
and that no step depends on the number of rows or mixes them. Nothing of the module is changed. At the end the network
that was built is compared with the module on random rows: an operation in place, whose effect on other values a trace
does not show, is noticed there.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import replace
from math import sqrt
from typing import Any

import numpy as np
import torch
from torch import fx
from torch import nn as tnn
from torch.nn.utils import parametrize

from hdcos.errors import ModelError
from hdcos.nn.importing.build import Built, build
from hdcos.nn.importing.operations import Description, Refused, Value, Writer
from hdcos.nn.importing.torch_functions import MOVES, Functions
from hdcos.nn.importing.tracing import Rows, check_module, evaluating, first_features, kind_of, run_graph, trace
from hdcos.nn.layer import Shape
from hdcos.nn.torch_modules import NATIVE, LayerModule

FEW, MORE, CHECKED = 2, 3, 4
"""Rows of the two batches that tell shapes, and of the one that is compared."""
IN_PLACE = "_"
CHOSEN = ("interval", "compare")
"""What a layer says of its computation on shares, and PyTorch's modules cannot."""
FUNCTION_OF: dict[type[tnn.Module], str] = {
    tnn.Linear: "linear",
    tnn.Conv2d: "conv2d",
    **dict.fromkeys([tnn.BatchNorm1d, tnn.BatchNorm2d], "batch_norm"),
    **dict.fromkeys([tnn.Dropout, tnn.Dropout1d, tnn.Dropout2d, tnn.AlphaDropout, tnn.FeatureAlphaDropout], "dropout"),
    tnn.Identity: "identity",
    tnn.ReLU: "relu",
    tnn.ReLU6: "relu6",
    tnn.LeakyReLU: "leaky_relu",
    tnn.PReLU: "prelu",
    tnn.Hardtanh: "hardtanh",
    tnn.Hardsigmoid: "hardsigmoid",
    tnn.GELU: "gelu",
    tnn.SiLU: "silu",
    tnn.Softplus: "softplus",
    tnn.Sigmoid: "sigmoid",
    tnn.Tanh: "tanh",
    tnn.MaxPool2d: "max_pool2d",
    tnn.AvgPool2d: "avg_pool2d",
    tnn.AdaptiveAvgPool2d: "adaptive_avg_pool2d",
    tnn.AdaptiveMaxPool2d: "adaptive_max_pool2d",
    tnn.ZeroPad2d: "pad",
    tnn.Softmax: "softmax",
    tnn.LogSoftmax: "log_softmax",
    tnn.Flatten: "flatten",
    tnn.Unflatten: "unflatten",
}
"""Modules, and the functions of PyTorch that compute the same of their attributes. Types are compared exactly: a
subclass may compute something else, and is traced."""
NAMED_OTHERWISE = {
    **{"truediv": "div", "divide": "div", "true_divide": "div", "multiply": "mul", "subtract": "sub", "iadd": "add"},
    **{"imul": "mul", "isub": "sub", "itruediv": "div", "negative": "neg", "mm": "matmul", "clip": "clamp"},
    **{"concat": "cat", "concatenate": "cat", "dropout1d": "dropout", "dropout2d": "dropout", "absolute": "abs"},
    **{"alpha_dropout": "dropout", "feature_dropout": "dropout", "feature_alpha_dropout": "dropout"},
    **{"_log_softmax": "log_softmax", "_softmax": "softmax"},
}
REMEDIES = {
    **dict.fromkeys(["LayerNorm", "GroupNorm", "InstanceNorm2d", "layer_norm", "group_norm"], "use BatchNorm"),
    **dict.fromkeys(["ELU", "CELU", "SELU", "elu", "celu", "selu", "Mish", "mish"], "use LeakyReLU, SiLU or Cos"),
    **dict.fromkeys(["Hardswish", "hardswish"], "use SiLU or ReLU6"),
    **dict.fromkeys(
        ["Conv1d", "conv1d", "MaxPool1d", "AvgPool1d"], "use the layer for images, on (channels, 1, length)"
    ),
    **dict.fromkeys(["LSTM", "GRU", "RNN", "MultiheadAttention"], "use linear and convolutional layers"),
    **dict.fromkeys(["Embedding", "EmbeddingBag"], "embed the rows before sharing them"),
}
ANYTHING = "use another layer; docs/networks.md lists what can be imported"


def read_module(module: Any, shape: Shape | None, example: torch.Tensor | None) -> Built:
    """The network that a module is; ModelError where it cannot be traced, fates of its parts where it can."""
    traceable = check_module(module)
    with evaluating(traceable), torch.no_grad():
        traced = traceable if isinstance(traceable, fx.GraphModule) else trace(traceable)
        dtype, device = kind_of(traced)
        if example is None:
            shape = shape or getattr(module, "hdcos_input_shape", None) or first_features(traced)
            rows = torch.zeros(MORE, *shape, dtype=dtype, device=device)
        else:
            rows = example[:1].expand(MORE, *example.shape[1:]).to(device)
            rows = rows.to(dtype) if example.dtype.is_floating_point else rows
        reader = _Reader(traced, rows)
        description = reader.read(getattr(module, "hdcos_feature_names", None))
        built = build(description)
        if built.model is not None:
            _compare(traced, built, reader.nodes[built.result], dtype, device)
    return built


class _Reader:
    """Reads the nodes of a graph one after the other."""

    def __init__(self, traced: fx.GraphModule, rows: torch.Tensor) -> None:
        self.traced, self.rows = traced, rows
        self.runs = run_graph(traced, rows[:FEW]), run_graph(traced, rows)
        self.writer = Writer(tuple(rows.shape[1:]))
        self.functions = Functions(self.writer)
        self.values: dict[fx.Node, Value] = {}
        self.nodes: dict[int, fx.Node] = {}

    def read(self, feature_names: Sequence[str] | None) -> Description:
        for node in self.traced.graph.nodes:
            if node.op == "placeholder":
                self._remember(node, self.writer.rows)
            elif node.op == "output":
                return Description(
                    tuple(self.writer.operations), self.writer.rows.shape, self._output(node).number, feature_names
                )
            elif node in self.runs[0].dependent and _tensors(self.runs[0].seen[node]):
                self._read(node)
        raise AssertionError("a graph ends with its output")

    def _remember(self, node: fx.Node, value: Value) -> None:
        self.values[node] = value
        self.nodes.setdefault(value.number, node)

    def _output(self, node: fx.Node) -> Value:
        (result,) = node.args
        if isinstance(result, tuple | list) and len(result) == 1:
            (result,) = result
        if not isinstance(result, fx.Node) or result not in self.values:
            raise ModelError(
                "the module does not return one tensor that follows from its rows: return the logits alone"
            )
        return self.values[result]

    def _read(self, node: fx.Node) -> None:
        few, more = (run.seen[node] for run in self.runs)
        row = few.shape[1:] if isinstance(few, Rows) else ()
        inputs = [self.values[each] for each in node.all_input_nodes if each in self.values]
        writer, part = self.writer, self._part(node)
        target = str(node.target)
        writer.name = node.name if part is None else "0" if target == "whole" else target.removeprefix("whole.")
        writer.source = type(part).__name__ if part is not None else function_name(node)
        before = len(writer.operations)
        try:
            if not row or (few, more) != (Rows((FEW, *row)), Rows((MORE, *row))):
                raise Refused(
                    f"gives {_shown(few)} for {FEW} rows and {_shown(more)} for {MORE}: rows are mixed, there are "
                    f"several results, or their number is fixed",
                    "keep the first axis for rows: flatten from axis 1 on, x.view(x.size(0), -1)",
                )
            if any(not each.shape for each in inputs):
                value = writer.write("lost", inputs, row)  # it reads one of several results
            else:
                value = self._value(node, part, row)
            if value.shape != row:
                raise Refused(f"gives {row} where {value.shape} was expected", "use whole windows, without ceil_mode")
        except ModelError as error:
            del writer.operations[before:]
            refused = error if isinstance(error, Refused) else Refused(f"cannot be imported, {error}", "")
            value = writer.refuse(inputs, row, refused.reason, refused.remedy)
        self._remember(node, value)

    def _part(self, node: fx.Node) -> tnn.Module | None:
        return self.traced.get_submodule(str(node.target)) if node.op == "call_module" else None

    def _value(self, node: fx.Node, part: tnn.Module | None, row: Shape) -> Value:
        if part is not None:
            return self._module(node, part, row)
        name = function_name(node)
        if name in MOVES:
            return self._move(node, row)
        arguments, named = self._arguments(node)
        return self._call(name, arguments, named)

    def _arguments(self, node: fx.Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What a step is called with: values, constants, and numbers, which must not depend on the number of rows."""

        def filled(argument: Any) -> Any:
            if not isinstance(argument, fx.Node):
                return argument
            if argument in self.values:
                return self.values[argument]
            seen = [run.seen[argument] for run in self.runs]
            if argument in self.runs[0].dependent and seen[0] != seen[1]:
                raise Refused("computes with the number of rows", "leave the number of rows out")
            return seen[0]

        arguments, named = fx.node.map_arg(node.args, filled), fx.node.map_arg(node.kwargs, filled)
        schema = getattr(node.target, "_schema", None)
        if schema is not None:  # of an exported program, whose functions have an order of their own
            names = ["input" if each.name == "self" else each.name for each in schema.arguments]
            return (), {**dict(zip(names, arguments, strict=False)), **named}
        return arguments, named

    def _call(self, name: str, arguments: Sequence[Any], named: dict[str, Any]) -> Value:
        function = getattr(self.functions, name, None) if name.isidentifier() and name[0] != "_" else None
        if function is None:
            raise Refused(
                "has no counterpart in hdcos.nn", REMEDIES.get(self.writer.source, REMEDIES.get(name, ANYTHING))
            )
        try:
            bound = inspect.signature(function).bind(*arguments, **named)
        except TypeError as error:
            raise Refused(f"is called in a way that is not known ({error})", "use its commonest arguments") from None
        value: Value = function(*bound.args, **bound.kwargs)
        return value

    def _module(self, node: fx.Node, part: tnn.Module, row: Shape) -> Value:
        kind: type[tnn.Module] = type(part)
        if parametrize.is_parametrized(part):
            kind = kind.__bases__[0]  # its parameters are computed by torch.nn.utils.parametrize when they are read
        if part._forward_hooks or part._forward_pre_hooks:
            raise Refused("has hooks, which are not traced", "remove them, as torch.nn.utils.remove_weight_norm does")
        inputs = [self.values[each] for each in node.all_input_nodes if each in self.values]
        if isinstance(part, LayerModule):
            arrays = {name: _array(tensor) for name, tensor in part.named_parameters()}
            return self.writer.layer(part.layer, *inputs, arrays=arrays)
        name = FUNCTION_OF.get(kind, "")
        if name in MOVES:
            value = self._move(node, row)
        else:
            function = getattr(self.functions, name, None)
            wanted = inspect.signature(function).parameters if function is not None else {}
            found = {each: getattr(part, each) for each in wanted if each != "input" and hasattr(part, each)}
            value = self._call(name, inputs, {each: option for each, option in found.items() if not callable(option)})
        self._keep(getattr(part, "layer", None))
        return value

    def _keep(self, made: Any) -> None:
        """Take the layer that `to_torch` made a module of, if the module still says the same: it chose intervals."""
        last = self.writer.operations[-1]
        read = last.options.get("layer")
        if type(made) is type(read) and type(read) in NATIVE and _without_choices(read) == _without_choices(made):
            self.writer.operations[-1] = replace(last, options={**last.options, "layer": made})

    def _move(self, node: fx.Node, row: Shape) -> Value:
        """A step that may only change the shape: it is run on numbers that show where they went."""
        several = [self.values[each] for each in node.all_input_nodes if each in self.values]
        if len(several) != 1:
            raise Refused("takes the shape or type of one value for another", "say which shape")
        x = several[0]
        places = torch.arange(MORE * int(np.prod(x.shape)), dtype=torch.float64).reshape(MORE, *x.shape)

        def filled(argument: fx.Node) -> Any:
            return places.clone() if argument in self.values else self.runs[1].seen[argument]

        arguments, named = fx.node.map_arg(node.args, filled), fx.node.map_arg(node.kwargs, filled)
        moved = getattr(self.runs[1], node.op)(node.target, arguments, named)
        if not torch.equal(moved.double().reshape(-1), places.reshape(-1)):
            raise Refused(
                "moves numbers to other places, or leaves some out",
                "use layers that keep the order of numbers: flatten, view and reshape do",
            )
        return self.writer.reshape(x, row)


def _without_choices(layer: Any) -> dict[str, Any]:
    return {name: value for name, value in layer.to_json().items() if name not in CHOSEN}


def function_name(node: fx.Node) -> str:
    target = node.target
    if hasattr(target, "_schema"):
        name = str(target._schema.name).split("::")[-1]
    else:
        name = target if isinstance(target, str) else str(getattr(target, "__name__", target))
    plain = name.removesuffix(IN_PLACE) if not name.startswith("_") else name
    return NAMED_OTHERWISE.get(plain, plain)


def _tensors(seen: Any) -> bool:
    """Whether a step gave tensors that follow from the rows, and no numbers such as sizes."""
    several = isinstance(seen, tuple | list) and any(isinstance(each, torch.Tensor) for each in seen)
    return isinstance(seen, Rows) or several


def _shown(seen: Any) -> str:
    return f"shape {seen.shape}" if isinstance(seen, Rows) else f"{len(seen)} results"


def _array(tensor: torch.Tensor) -> Any:
    return tensor.detach().cpu().double().numpy()


# ---- the network against the module


def _compare(traced: fx.GraphModule, built: Built, node: fx.Node, dtype: torch.dtype, device: torch.device) -> None:
    """ModelError unless the network computes what the module computes, on random rows."""
    assert built.model is not None
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(CHECKED, *built.model.input_shape, generator=generator, dtype=torch.float64).to(dtype)
    expected = _array(run_graph(traced, rows.to(device), node).seen[node])
    if not np.isfinite(expected).all():
        raise ModelError("the module gives NaN or infinity for normal rows: check its parameters")
    largest = float(np.abs(built.model(_array(rows)) - expected).max())
    tolerance = (8 * sqrt(torch.finfo(dtype).eps) + built.slack) * max(1.0, float(np.abs(expected).max()))
    if largest > tolerance:
        raise ModelError(
            f"the network that was read is off by {largest:.2g} from the module, more than {tolerance:.2g}: does it "
            f"change a tensor in place that it reads again later? Use forms that return a new one, such as x + 1"
        )
