"""ONNX files as operations. Needs the extra hdcos[onnx]; nothing of a file is executed.

The rows of a batch are the first axis of the only input. Where a file leaves their number open, it is a number here
that appears nowhere else, so that what a file computes of shapes tells whether it keeps rows apart.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper, shape_inference
from onnx.reference import ReferenceEvaluator

from hdcos.errors import ModelError
from hdcos.nn.importing.build import Built, build
from hdcos.nn.importing.onnx_nodes import Nodes
from hdcos.nn.importing.operations import Description, Refused, Value, Writer
from hdcos.nn.layer import Shape
from hdcos.ring import Array

OPEN_ROWS = 1_000_003
"""Stands for the number of rows: a prime that is no side of a layer."""
FOLDED = """
Constant Identity Cast Reshape Transpose Squeeze Unsqueeze Concat Gather Slice Flatten Add Sub Mul Div Neg Sqrt Pow
Reciprocal Min Max Floor Ceil Abs Exp ReduceProd ReduceSum MatMul Where Equal
"""
OF_CONSTANTS = frozenset(FOLDED.split())
"""What is computed of constants alone: weights that are transposed or scaled, and shapes."""
NUMBERS = (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)
REMEDIES = {
    **dict.fromkeys(["If", "Loop", "Scan"], "export the network without control flow"),
    **dict.fromkeys(["LayerNormalization", "InstanceNormalization", "GroupNormalization"], "use BatchNormalization"),
    **dict.fromkeys(["Elu", "Selu", "Celu", "Mish", "HardSwish", "ThresholdedRelu"], "use LeakyRelu, Relu or Cos"),
    **dict.fromkeys(["LSTM", "GRU", "RNN", "Attention"], "use linear and convolutional layers"),
    **dict.fromkeys(["QuantizeLinear", "DequantizeLinear", "QLinearConv"], "export the network before it is quantised"),
    **dict.fromkeys(["ArgMax", "TopK"], "take the logits: predict(output='label') takes the largest"),
}
ANYTHING = "use another layer; docs/networks.md lists what can be imported"


def read_onnx(path: str | os.PathLike[str], shape: Shape | None = None, output: str | None = None) -> Built:
    """The network in an ONNX file; `output` names one of several."""
    model = _load(Path(path))
    try:
        return build(_Reader(model, shape, output).read())
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from error


def _load(path: Path) -> onnx.ModelProto:
    if not path.exists():
        raise ModelError(f"there is no model file {path}")
    try:
        model = onnx.load(path)
        onnx.checker.check_model(model)
    except Exception as error:  # protobuf, the checker and the reader of external data have errors of their own
        from hdcos.nn.storage import recognise

        what = recognise(path)
        reason = f"it is {what}" if what and "ONNX" not in what else " ".join(str(error).split())[:200]
        raise ModelError(
            f"{path} is truncated, damaged or no ONNX model ({reason}). Export the network again."
        ) from error
    if model.functions:
        from onnx import inliner

        model = inliner.inline_local_functions(model)
    return model


class _Reader:
    def __init__(self, model: onnx.ModelProto, shape: Shape | None, output: str | None) -> None:
        self.graph, self.opsets = model.graph, {each.domain: each.version for each in model.opset_import}
        self.constants: dict[str, Array] = {each.name: _array(each) for each in self.graph.initializer}
        name, self.fixed, row = self._input(shape)
        self.output = self._output(output)
        self.inferred = dict(_inferred(model, name, row))
        self.writer = Writer(row)
        self.values: dict[str, Value] = {name: self.writer.rows}
        self.lost: set[str] = set()
        """Values of which nothing is known, behind one that was refused."""

    def _input(self, shape: Shape | None) -> tuple[str, int | None, Shape]:
        """The name of the rows, their number where the file fixes it, and the shape of one of them."""
        inputs = [each for each in self.graph.input if each.name not in self.constants]
        if len(inputs) != 1:
            names = ", ".join(each.name for each in inputs)
            raise ModelError(f"the network takes {len(inputs)} inputs ({names}): one that holds the rows is needed")
        name, kind = inputs[0].name, inputs[0].type.tensor_type
        if kind.elem_type not in NUMBERS:
            raise ModelError(f"input {name} takes no floating-point numbers: export the network for float rows")
        dims = [each.dim_value if each.HasField("dim_value") else None for each in kind.shape.dim]
        sides = dims[1:]
        if shape is not None:
            if dims and (
                len(sides) != len(shape) or any(b not in (None, a) for a, b in zip(shape, sides, strict=True))
            ):
                raise ModelError(f"input {name} takes rows of shape {_shown(sides)}, not {shape}")
            sides = list(shape)
        if not sides or None in sides or 0 in sides:
            raise ModelError(
                f"input {name} has rows of shape {_shown(sides)}, where not every side is a number: say it with "
                f"input_shape=(1, 28, 28), or --input-shape 1,28,28"
            )
        return name, (dims[0] if dims else None) or None, tuple(int(side) for side in sides if side)

    def _output(self, output: str | None) -> str:
        names = [str(each.name) for each in self.graph.output]
        if output is None and len(names) == 1:
            return names[0]
        if output is None or output not in names:
            which = f"no {output!r}" if output else f"{len(names)} outputs"
            raise ModelError(f"the network has {which}: choose from {', '.join(names)} by output=, or --output-name")
        return output

    def read(self) -> Description:
        for number, node in enumerate(self.graph.node):
            self._read(node, number)
        if self.output not in self.values:
            raise ModelError(f"output {self.output} does not follow from the rows")
        return Description(tuple(self.writer.operations), self.writer.rows.shape, self.values[self.output].number)

    def _read(self, node: onnx.NodeProto, number: int) -> None:
        names = [name for name in node.input if name]
        inputs = [self.values[name] for name in names if name in self.values]
        writer = self.writer
        writer.name, writer.source = node.name or node.output[0] or str(number), node.op_type
        before, place = len(writer.operations), 1 if node.op_type == "LinearClassifier" else 0
        try:
            if any(name in self.lost for name in names):
                self.lost |= set(node.output)
                self.values[node.output[place]] = writer.write("lost", inputs, ())
                return
            unknown = [name for name in names if name not in self.values and name not in self.constants]
            if unknown:
                raise Refused(f"reads {unknown[0]}, which is not computed", "take the first result of what gives it")
            if not inputs or node.op_type == "Shape":
                self.constants[node.output[0]] = self._shape(node, inputs[0]) if inputs else self._constant(node)
                return
            value = self._value(node)
        except ModelError as error:
            del writer.operations[before:]
            refused = error if isinstance(error, Refused) else Refused(f"cannot be imported, {error}", "")
            shape = self.inferred.get(node.output[place])
            value = writer.refuse(inputs, shape or (), refused.reason, refused.remedy)
            if shape is None:
                self.lost |= set(node.output)
        self.values[node.output[place]] = value

    def _value(self, node: onnx.NodeProto) -> Value:
        known = node.domain in ("", "ai.onnx", "ai.onnx.ml")
        function = getattr(Nodes, node.op_type.lower(), None) if known and node.op_type[0].isupper() else None
        if function is None:
            where = "" if known else f" of {node.domain}"
            raise Refused(
                f"is an operator{where} without counterpart in hdcos.nn", REMEDIES.get(node.op_type, ANYTHING)
            )
        arguments = [self.values.get(name, self.constants.get(name)) if name else None for name in node.input]
        rows = self.fixed or OPEN_ROWS
        nodes = Nodes(self.writer, dict(_attributes(node)), self.opsets.get("", self.opsets.get("ai.onnx", 1)), rows)
        try:
            inspect.signature(function).bind(nodes, *arguments)
        except TypeError:
            raise Refused(f"has {len(arguments)} inputs", "use its commonest arguments") from None
        value: Value = function(nodes, *arguments)
        return value

    # ---- constants

    def _shape(self, node: onnx.NodeProto, value: Value) -> Array:
        attributes = dict(_attributes(node))
        sides = (self.fixed or OPEN_ROWS, *value.shape)
        return np.array(sides[attributes.get("start", 0) : attributes.get("end")], np.int64)

    def _constant(self, node: onnx.NodeProto) -> Array:
        if node.op_type not in OF_CONSTANTS:
            raise Refused("computes something of constants that is not known", "let the exporter fold constants")
        feeds = {name: self.constants[name] for name in node.input if name}
        infos = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in feeds.items()
        ]
        graph = helper.make_graph([node], "constants", infos, [onnx.ValueInfoProto(name=node.output[0])])
        try:
            (result,) = ReferenceEvaluator(graph, opsets=self.opsets).run(None, feeds)
        except Exception as error:  # whatever the evaluator raises for a node that is wrong
            raise Refused(f"cannot be computed ({str(error)[:100]})", "let the exporter fold constants") from error
        return np.asarray(result)


def _array(tensor: onnx.TensorProto) -> Array:
    return np.asarray(numpy_helper.to_array(tensor))


def _attributes(node: onnx.NodeProto) -> Iterator[tuple[str, Any]]:
    for each in node.attribute:
        value = helper.get_attribute_value(each)
        yield each.name, value.decode() if isinstance(value, bytes) else value


def _inferred(model: onnx.ModelProto, name: str, row: Shape) -> Iterator[tuple[str, Shape]]:
    """The shapes of rows that ONNX finds by itself: so what comes behind something that is refused is looked at too."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for each in copy.graph.input:
        if each.name == name:
            each.type.tensor_type.shape.Clear()
            each.type.tensor_type.shape.dim.add().dim_param = "rows"
            for side in row:
                each.type.tensor_type.shape.dim.add().dim_value = side
    try:
        found = shape_inference.infer_shapes(copy, data_prop=True).graph
    except shape_inference.InferenceError:
        return
    for info in (*found.value_info, *found.output):
        sides = [each.dim_value for each in info.type.tensor_type.shape.dim][1:]
        if sides and prod(sides):
            yield info.name, tuple(sides)


def _shown(sides: Sequence[int | None]) -> str:
    return "(" + ", ".join("?" if side is None else str(side) for side in sides) + ")"
