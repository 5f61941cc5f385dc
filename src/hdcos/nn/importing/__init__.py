"""Networks that were made elsewhere: PyTorch modules and programs, ONNX files.

operations       what a network is between its source and the layers of hdcos.nn
tracing          a PyTorch module as a graph of steps, by torch.fx (extra: torch)
fx               such a graph as operations
torch_functions  what PyTorch's functions are in operations
torch_files      what torch.save and torch.export.save wrote
onnx_files       ONNX files as operations (extra: onnx)
onnx_nodes       what ONNX's operators are in operations
simplify         BatchNorm and other constants folded into weights, what is left out
build            layers of operations, and what became of each
conversion       the network, and a report with the price of each layer
replace          cosine for ReLU in PyTorch modules

Everything happens where the network is, and nothing is sent. When it is shared, the parties see its architecture and
shares of its parameters, as of any network: a share is uniform whatever it is a share of.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hdcos.errors import ModelError
from hdcos.nn.pytorch import require_torch

if TYPE_CHECKING:
    from hdcos.nn.importing.build import Built
    from hdcos.nn.importing.conversion import Conversion
    from hdcos.nn.layer import Shape
    from hdcos.nn.network import Network

TORCH_FILES, ONNX_FILE = (".pt", ".pth", ".pt2"), ".onnx"


def from_torch(module: Any, example: Any = None, *, input_shape: Sequence[int] | None = None) -> Network:
    """A PyTorch module, or a program of torch.export, as a network of hdcos, parameters included.

    `example` is some rows as an array or a tensor, or the shape of one row, as `input_shape` is; a module of `to_torch`
    or one that starts with a linear layer does without. ModelError names every part that has no counterpart. An
    HdcosWarning says which intervals will be assumed for series; `calibrate` of the model, or of `share`, chooses them.
    """
    return _warned(_conversion(_read_module(module, example, input_shape)).model)


def from_onnx(
    path: str | os.PathLike[str], *, input_shape: Sequence[int] | None = None, output: str | None = None
) -> Network:
    """The network in an ONNX file, parameters included; ModelError names every operator that has no counterpart.

    `input_shape` is the shape of one row where the file leaves it open, `output` names one of several outputs.
    """
    return _warned(_conversion(_read_onnx(path, input_shape, output)).model)


def convert(
    source: Any,
    example: Any = None,
    *,
    input_shape: Sequence[int] | None = None,
    output: str | None = None,
    trust: bool = False,
) -> Conversion:
    """A module, or a file of PyTorch or ONNX, as a network with a report: what became of each part, and what it costs.

    A PyTorch file with a module in it runs code when it is loaded: `trust` says that you know whose it is.
    """
    if not isinstance(source, str | os.PathLike):
        return _conversion(_read_module(source, example, input_shape))
    path = Path(source)
    if path.suffix == ONNX_FILE:
        return _conversion(_read_onnx(path, input_shape, output))
    if path.suffix not in TORCH_FILES:
        raise ModelError(
            f"{path} is neither an ONNX file ({ONNX_FILE}) nor a file of PyTorch ({', '.join(TORCH_FILES)}): if it is "
            f"one, name it so"
        )
    require_torch()
    from hdcos.nn.importing.torch_files import load_module

    module = load_module(path, trust)
    try:
        return _conversion(_read_module(module, example, input_shape))
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from error


def replace_relu(module: Any) -> Any:
    """A copy of a PyTorch module with a cosine in the place of each ReLU, ReLU6 and LeakyReLU.

    It computes something else: train it on, for some epochs, before it is imported. What that saves on shares is in the
    reports of both.
    """
    require_torch()
    from hdcos.nn.importing.replace import replace_relu

    return replace_relu(module)


def _conversion(built: Built) -> Conversion:
    from hdcos.nn.importing.conversion import Conversion

    return Conversion(built.model, built.fates)


def _warned(model: Network) -> Network:
    from hdcos.secure.calibrate import warn_of_assumed

    warn_of_assumed(model, stacklevel=3)
    return model


def _read_module(module: Any, example: Any, input_shape: Sequence[int] | None) -> Built:
    require_torch()
    import torch

    from hdcos.nn.importing.fx import read_module

    if input_shape is None and _is_shape(example):
        input_shape, example = example, None
    shape = None if input_shape is None else _checked(input_shape)
    if example is None:
        return read_module(module, shape, None)
    rows = torch.as_tensor(example)
    if rows.ndim < 2 or not len(rows):
        raise ModelError(
            f"an example has rows along its first axis, got shape {tuple(rows.shape)}: pass at least one row, such as "
            f"x[:1], or the shape of a row"
        )
    if shape is not None and tuple(rows.shape[1:]) != shape:
        raise ModelError(f"the example has rows of shape {tuple(rows.shape[1:])}, and input_shape is {shape}: pass one")
    return read_module(module, None, rows)


def _read_onnx(path: str | os.PathLike[str], input_shape: Sequence[int] | None, output: str | None) -> Built:
    try:
        import onnx  # noqa: F401
    except ImportError as error:
        raise ModelError("ONNX is not installed. Install it with `pip install 'hdcos[onnx]'`.") from error
    from hdcos.nn.importing.onnx_files import read_onnx

    return read_onnx(path, None if input_shape is None else _checked(input_shape), output)


def _is_shape(example: Any) -> bool:
    return isinstance(example, list | tuple) and bool(example) and all(type(side) is int for side in example)


def _checked(shape: Any) -> Shape:
    if not _is_shape(shape) or min(shape) < 1:
        raise ModelError(f"input_shape must be a list of whole numbers of at least 1, got {shape!r}")
    return tuple(shape)
