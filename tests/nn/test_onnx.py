"""ONNX files become networks that compute what ONNX's own evaluator computes; everything else is refused by name."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from benchmarks.residual import ResNet
from hdcos import nn
from hdcos.errors import ModelError

pytestmark = pytest.mark.filterwarnings("ignore::hdcos.errors.HdcosWarning")
RANDOM = np.random.default_rng(0)


def weights(*shape: int) -> np.ndarray:
    return (RANDOM.normal(size=shape) * 0.4).astype(np.float32)


def graph(
    nodes: list[Any],
    arrays: dict[str, np.ndarray],
    shape: list[Any],
    outputs: tuple[str, ...] = ("y",),
    opset: int = 20,
    kind: int = TensorProto.FLOAT,
) -> onnx.ModelProto:
    made = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", kind, shape)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", "m"]) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(made, opset_imports=opsets, ir_version=10)


def node(operator: str, inputs: str, output: str = "y", **attributes: Any) -> Any:
    return helper.make_node(operator, inputs.split(), output.split(), name=f"{operator}-{output}", **attributes)


def write(folder: Path, model: onnx.ModelProto) -> Path:
    path = folder / "net.onnx"
    onnx.save(model, path)
    return path


IMAGE: list[Any] = ["n", 2, 6, 6]
BATCH_NORM = {"s": weights(3) + 1, "o": weights(3), "m": weights(3), "v": np.abs(weights(3)) + 0.5}
W, KERNEL = weights(5, 4), weights(3, 2, 3, 3)
CASES: dict[str, tuple[list[Any], dict[str, np.ndarray], list[Any], list[str]]] = {
    "gemm": ([node("Gemm", "x w b", transB=1, alpha=0.5)], {"w": W, "b": weights(5)}, ["n", 4], ["Dense"]),
    "gemm, plain": ([node("Gemm", "x w", beta=2.0)], {"w": W.T.copy()}, ["n", 4], ["Dense"]),
    "matmul and add": (
        [node("MatMul", "x w", "h"), node("Add", "b h")], {"w": W.T.copy(), "b": weights(5)}, ["n", 4], ["Dense"],
    ),
    "conv, same": (
        [node("Conv", "x w", auto_pad="SAME_UPPER", strides=[2, 2])], {"w": KERNEL}, IMAGE, ["Conv2d"],
    ),
    "conv, sides": (
        [node("Conv", "x w b", pads=[0, 0, 1, 1], strides=[2, 2])], {"w": KERNEL, "b": weights(3)}, IMAGE, ["Conv2d"],
    ),
    "conv, groups": (
        [node("Conv", "x w", group=2, dilations=[2, 2], pads=[2, 2, 2, 2])], {"w": weights(4, 1, 3, 3)}, IMAGE,
        ["Conv2d"],
    ),
    "pad and conv": (
        [node("Pad", "x p", "h"), node("Conv", "h w")],
        {"w": KERNEL, "p": np.array([0, 0, 1, 1, 0, 0, 1, 1])}, IMAGE, ["Conv2d"],
    ),
    "batch norm": (
        [node("Conv", "x w", "h"), node("BatchNormalization", "h s o m v")], {"w": KERNEL, **BATCH_NORM}, IMAGE,
        ["Conv2d"],
    ),
    "pooling": (
        [node("MaxPool", "x", "h", kernel_shape=[2, 2], strides=[2, 2]), node("GlobalAveragePool", "h")], {}, IMAGE,
        ["MaxPool2d", "AdaptiveAvgPool2d"],
    ),
    "overlapping averages": (
        [node("AveragePool", "x", kernel_shape=[3, 3], strides=[1, 1])], {}, IMAGE, ["AvgPool2d"],
    ),
    "mean": ([node("ReduceMean", "x a", keepdims=0)], {"a": np.array([2, 3])}, IMAGE, ["AdaptiveAvgPool2d", "Flatten"]),
    "shapes": (
        [node("Reshape", "x rows", "h"), node("Gemm", "h w", transB=1)],
        {"rows": np.array([0, -1]), "w": weights(3, 72)}, IMAGE, ["Flatten", "Dense"],
    ),
    "computed shapes": (
        [
            node("Shape", "x", "s"), node("Gather", "s first", "n"), node("Concat", "n minus", "t", axis=0),
            node("Reshape", "x t"),
        ],
        {"first": np.array([0]), "minus": np.array([-1])}, IMAGE, ["Flatten"],
    ),
    "flatten": ([node("Flatten", "x", "h"), node("Relu", "h")], {}, IMAGE, ["Flatten", "ReLU"]),
    "axes": (
        [node("Unsqueeze", "x a", "h"), node("Transpose", "h", "t", perm=[0, 2, 1]), node("Squeeze", "t b", "u"),
         node("Cos", "u")],
        {"a": np.array([1]), "b": np.array([2])}, ["n", 4], ["Reshape", "Reshape", "Flatten", "Cos"],
    ),
    "residual": (
        [node("Relu", "x", "h"), node("Sin", "x", "g"), node("Sub", "h g", "d"), node("Sum", "d x g")], {}, ["n", 4],
        ["ReLU", "Sin", "Affine", "Add", "Add", "Add"],
    ),
    "concat": (
        [node("LeakyRelu", "x", "h", alpha=0.2), node("Concat", "h x", axis=1)], {}, IMAGE, ["LeakyReLU", "Concat"],
    ),
    "activations": (
        [
            node("Clip", "x zero six", "a"), node("Clip", "a low high", "b"), node("Sigmoid", "b", "c"),
            node("Tanh", "c", "d"), node("Softplus", "d", "e"), node("HardSigmoid", "e", "f"), node("Gelu", "f", "g"),
            node("Max", "g zero", "h"), node("Abs", "h", "i"), node("Pow", "i two"),
        ],
        {name: np.float32(value) for name, value in {"zero": 0, "six": 6, "low": -1, "high": 2, "two": 2}.items()},
        ["n", 4],
        [
            "ReLU6", "HardTanh", "Sigmoid", "Tanh", "Softplus", "Affine", "HardTanh", "GELU", "ReLU", "LeakyReLU",
            "Square",
        ],
    ),
    "gelu in pieces": (
        [
            node("Div", "x root", "a"), node("Erf", "a", "b"), node("Add", "b one", "c"), node("Mul", "x c", "d"),
            node("Mul", "d point"),
        ],
        {"root": np.float32(np.sqrt(2)), "one": np.float32(1), "point": np.float32(0.5)}, ["n", 4], ["GELU"],
    ),
    "silu in pieces": ([node("Sigmoid", "x", "s"), node("Mul", "s x")], {}, ["n", 4], ["SiLU"]),
    "left out": (
        [node("Identity", "x", "a"), node("Dropout", "a", "b"), node("Cast", "b", "c", to=1), node("Neg", "c")], {},
        ["n", 4], ["Affine"],
    ),
    "folded constants": (
        [
            node("Constant", "", "c", value=numpy_helper.from_array(W)), node("Transpose", "c", "t", perm=[1, 0]),
            node("MatMul", "x t"),
        ],
        {}, ["n", 4], ["Dense"],
    ),
    "scikit-learn": (
        [
            helper.make_node("Scaler", ["x"], ["h"], domain="ai.onnx.ml", offset=[1.0] * 4, scale=[0.5, 1, 2, 3]),
            helper.make_node(
                "LinearRegressor", ["h"], ["y"], domain="ai.onnx.ml", coefficients=[0.1, 0.2, 0.3, 0.4],
                intercepts=[1.0],
            ),
        ],
        {}, ["n", 4], ["Dense"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_an_operator_computes_what_onnx_says(name: str, tmp_path: Path) -> None:
    nodes, arrays, shape, kinds = CASES[name]
    model = graph(nodes, arrays, shape)
    made = nn.from_onnx(write(tmp_path, model))
    assert [layer.kind for layer in made.layers] == kinds
    x = np.random.default_rng(1).normal(size=(3, *shape[1:])).astype(np.float32)
    (expected,) = ReferenceEvaluator(model).run(None, {"x": x})
    np.testing.assert_allclose(made(x), expected, atol=2e-5, rtol=0)


def test_a_final_softmax_is_left_to_the_client_and_one_of_several_outputs_is_chosen(tmp_path: Path) -> None:
    nodes = [node("Gemm", "x w", "z", transB=1), node("Softmax", "z", "y"), node("ArgMax", "y", "label", axis=1)]
    path = write(tmp_path, graph(nodes, {"w": W}, ["n", 4], ("label", "y")))
    with pytest.raises(ModelError, match=r"has 2 outputs: choose from label, y by output="):
        nn.from_onnx(path)
    with pytest.raises(
        ModelError, match=r"layer ArgMax-label \(ArgMax\) is an operator without counterpart.*output='label'"
    ):
        nn.from_onnx(path, output="label")
    x = np.ones((2, 4))
    np.testing.assert_allclose(nn.from_onnx(path, output="y")(x), x @ W.T, atol=1e-6)


def test_a_classifier_of_scikit_learn_gives_its_scores(tmp_path: Path) -> None:
    classifier = helper.make_node(
        "LinearClassifier", ["x"], ["label", "y"], domain="ai.onnx.ml", coefficients=W.ravel().tolist(),
        intercepts=[0.5] * 5, classlabels_ints=list(range(5)), post_transform="SOFTMAX",
    )  # fmt: skip
    made = nn.from_onnx(write(tmp_path, graph([classifier], {}, ["n", 4])))
    np.testing.assert_allclose(made(np.ones((1, 4))), W.sum(1)[None] + 0.5, atol=1e-6)


def test_what_pytorch_exports_equals_pytorch(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = ResNet((4, 8), 1)
    x = torch.randn(3, 1, 28, 28)
    module(x)  # BatchNorm takes statistics
    module.eval()
    path = tmp_path / "net.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter that is tried here is the old one, which is quick to load
        torch.onnx.export(module, (x,), path, dynamo=False, dynamic_axes={"x": {0: "rows"}}, input_names=["x"])
    made = nn.from_onnx(path)
    assert made.fingerprint == nn.from_torch(module, (1, 28, 28)).fingerprint
    np.testing.assert_allclose(made(x.numpy()), module(x).detach().numpy(), atol=1e-4)


def test_what_the_new_exporter_of_pytorch_wrote_is_read() -> None:
    """`torch.onnx.export(ResNet((2, 4), 1), ..., dynamo=True)` for images of 12 x 12 and any number of rows."""
    path = Path(__file__).parent / "files" / "residual.onnx"
    made = nn.from_onnx(path)
    assert made.fingerprint == nn.from_torch(ResNet((2, 4), 1).eval(), (1, 12, 12)).fingerprint
    x = np.random.default_rng(0).normal(size=(3, 1, 12, 12)).astype(np.float32)
    (expected,) = ReferenceEvaluator(onnx.load(path)).run(None, {onnx.load(path).graph.input[0].name: x})
    np.testing.assert_allclose(made(x), expected, atol=1e-4)


# ---- what is refused


def test_all_refusals_are_told_at_once(tmp_path: Path) -> None:
    nodes = [
        node("Elu", "x", "a"),
        node("MaxPool", "a", "b", kernel_shape=[3, 3], dilations=[2, 2]),
        node("Transpose", "b", "c", perm=[0, 2, 3, 1]),
        node("Mul", "c c", "d"),
        helper.make_node("Strange", ["d"], ["y"], name="odd", domain="com.example"),
    ]
    model = graph(nodes, {}, IMAGE)
    model.opset_import.append(helper.make_opsetid("com.example", 1))
    conversion = nn.convert(write(tmp_path, model))
    told = [(fate.source, fate.note.split(" ")[0], bool(fate.remedy)) for fate in conversion.report.refused]
    assert told == [
        ("Elu", "is", True), ("MaxPool", "pools", True), ("Transpose", "moves", True), ("Strange", "is", True),
    ]  # fmt: skip
    assert "of com.example" in conversion.report.refused[-1].note
    with pytest.raises(ModelError, match=r"Elu[^\n]*\n[^\n]*MaxPool[^\n]*\n"):
        assert conversion.model


def test_behind_something_unknown_nothing_is_guessed(tmp_path: Path) -> None:
    nodes = [helper.make_node("Strange", ["x"], ["h"], domain="com.example"), node("Relu", "h")]
    model = graph(nodes, {}, ["n", 4])
    model.opset_import.append(helper.make_opsetid("com.example", 1))
    verdicts = [line.fate.verdict for line in nn.convert(write(tmp_path, model)).report.lines]
    assert verdicts == ["refused", "not looked at"]


@pytest.mark.parametrize(
    ("nodes", "arrays", "shape", "message"),
    [
        ([node("Relu", "x")], {}, ["n", 1, "h", "w"], r"rows of shape \(1, \?, \?\).*input_shape"),
        ([node("Gemm", "x w", transB=1)], {"w": np.full((2, 4), np.nan, np.float32)}, ["n", 4], "NaN or infinity"),
        ([node("Reshape", "x t")], {"t": np.array([-1, 2])}, ["n", 4], "keep the first axis for rows"),
        ([node("Flatten", "x", axis=0)], {}, ["n", 4], r"\(Flatten\) flattens rows together"),
        ([node("Gemm", "x x", transB=1)], {}, ["n", 4], "weights that depend on the rows"),
        ([node("ReduceMean", "x a")], {"a": np.array([0])}, ["n", 4], r"\(ReduceMean\) takes means along axes"),
        ([node("Softmax", "x", "h"), node("Relu", "h")], {}, ["n", 4], "softmax inside of the network"),
        ([node("Erf", "x")], {}, ["n", 4], "error function"),
        ([node("Cast", "x", to=7)], {}, ["n", 4], "other than floating-point"),
        ([node("Conv", "x w", strides=[1, 2])], {"w": KERNEL}, IMAGE, "use the same in both directions"),
    ],
)
def test_what_has_no_counterpart_is_refused(nodes, arrays, shape, message, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=rf"net\.onnx.*{message}" if "input_shape" in message else message):
        nn.from_onnx(write(tmp_path, graph(nodes, arrays, shape)))


def test_shapes_that_a_file_leaves_open_are_given(tmp_path: Path) -> None:
    path = write(tmp_path, graph([node("Relu", "x")], {}, ["n", 1, "h", "w"]))
    assert nn.from_onnx(path, input_shape=(1, 5, 6)).input_shape == (1, 5, 6)
    with pytest.raises(ModelError, match=r"takes rows of shape \(1, \?, \?\), not \(2, 5, 6\)"):
        nn.from_onnx(path, input_shape=(2, 5, 6))


def test_a_file_for_one_row_is_read_for_any_number(tmp_path: Path) -> None:
    nodes = [node("Reshape", "x t", "h"), node("Gemm", "h w", transB=1)]
    path = write(tmp_path, graph(nodes, {"t": np.array([1, 72]), "w": weights(3, 72)}, [1, 2, 6, 6]))
    assert nn.from_onnx(path)(np.ones((5, 2, 6, 6))).shape == (5, 3)


@pytest.mark.parametrize("content", [b"", b"\x08\x08\x12\x07pytorch", b"PK\x03\x04", bytes(100)])
def test_a_file_that_is_something_else_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=r"net\.onnx is truncated, damaged or no ONNX model"):
        nn.from_onnx(path)
    with pytest.raises(ModelError, match="no model file"):
        nn.from_onnx(tmp_path / "missing.onnx")


def test_several_inputs_and_numbers_of_other_kinds_are_refused(tmp_path: Path) -> None:
    model = graph([node("Add", "x z")], {}, ["n", 4])
    model.graph.input.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, ["n", 4]))
    with pytest.raises(ModelError, match=r"takes 2 inputs \(x, z\)"):
        nn.from_onnx(write(tmp_path, model))
    whole = graph([node("Cast", "x", "y", to=1)], {}, ["n", 4], kind=TensorProto.INT64)
    with pytest.raises(ModelError, match="takes no floating-point numbers"):
        nn.from_onnx(write(tmp_path, whole))


def test_without_onnx_the_error_says_what_to_install() -> None:
    program = """
import sys
sys.modules["onnx"] = None
import hdcos.errors, hdcos.nn
try:
    hdcos.nn.from_onnx("net.onnx")
except hdcos.errors.ModelError as error:
    print(error)
"""
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert finished.stdout == "ONNX is not installed. Install it with `pip install 'hdcos[onnx]'`.\n"
