"""The convolutions of LeNet-5 for many models, as a function with a gradient (see lenet.cu).

The kernels are compiled by nvcc on first use and kept in the user's cache folder. Where there is no nvcc, or for
another network, the layers are computed one by one: the same numbers, several times slower.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

from hdcos.nn import models
from hdcos.nn.network import Sequential
from hdcos.protocol.intervals import relu_cubic

SOURCE = Path(__file__).with_name("lenet.cu")
ACTIVATIONS = ("none", "cos", "square", "expm1", "polyfit3", "relu")
"""In the order of lenet.cu."""
SIZE, FEATURES, HIDDEN = 2572, 400, 1600
"""Parameters of the convolutions, features that leave them, outputs of the second one before its activation."""
IMAGES_PER_BLOCK = 2
NVCC = ("-O3", "-arch=native", "-Xcompiler=-fPIC")


@dataclass(frozen=True)
class Stem:
    """The first `layers` layers of LeNet-5, whose parameters are the first `size` of each model."""

    library: ctypes.CDLL
    activation: int
    layers: int
    size: int = SIZE

    def __call__(self, parameters: torch.Tensor, images: torch.Tensor) -> torch.Tensor:
        """Features (models, rows, 400) of images (rows, 1, 28, 28), with parameters (models, size)."""
        features: torch.Tensor = _Features.apply(parameters, images, self)  # type: ignore[no-untyped-call]
        return features

    def launch(self, name: str, parameters: torch.Tensor, images: torch.Tensor, *arrays: torch.Tensor) -> None:
        stream = torch.cuda.current_stream(images.device).cuda_stream if images.is_cuda else None
        cubic = (ctypes.c_float * 4)(*relu_cubic())
        counts = (self.activation, len(parameters), len(images), IMAGES_PER_BLOCK)
        pointers = (ctypes.c_void_p(array.data_ptr()) for array in (images, parameters, *arrays))
        call = getattr(self.library, name)
        error = call(*counts, ctypes.c_long(parameters.stride(0)), cubic, *pointers, ctypes.c_void_p(stream))
        if error:
            raise RuntimeError(f"{name} could not be launched: CUDA error {error}")


class _Features(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, parameters: torch.Tensor, images: torch.Tensor, stem: Stem) -> torch.Tensor:
        images = images.contiguous()
        features = parameters.new_empty(len(parameters), len(images), FEATURES)
        hidden = parameters.new_empty(len(parameters), len(images), HIDDEN)
        stem.launch("lenet_forward", parameters, images, features, hidden)
        context.stem = stem
        context.save_for_backward(parameters, images, hidden)
        return features

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        parameters, images, hidden = context.saved_tensors
        blocks = -(-len(images) // IMAGES_PER_BLOCK)
        partial = parameters.new_empty(len(parameters), blocks, SIZE)
        context.stem.launch("lenet_backward", parameters, images, hidden, gradients[0].contiguous(), partial)
        return partial.sum(dim=1), None, None


def find_stem(model: Sequential, parameters: torch.Tensor) -> Stem | None:
    """The compiled start of a LeNet-5 whose parameters are on a GPU; None where layers are computed one by one."""
    compiler = nvcc()
    if not parameters.is_cuda or parameters.dtype != torch.float32 or compiler is None:
        return None
    return stem_of(model, lambda: compiled(compiler, NVCC))


def stem_of(model: Sequential, library: Any) -> Stem | None:
    """The stem if the model starts with LeNet-5's; `library()` is then called for its kernels."""
    for index, name in enumerate(ACTIVATIONS):
        layers = 5 if name == "none" else 7
        if model.layers[:layers] == models.lenet5(name).layers[:layers] and model.input_shape == (1, 28, 28):
            return Stem(library(), index, layers)
    return None


def nvcc() -> str | None:
    return shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")


@cache
def compiled(compiler: str, options: Sequence[str]) -> ctypes.CDLL:
    """The library that the compiler makes of lenet.cu, kept by the hash of both."""
    key = hashlib.sha256(SOURCE.read_bytes() + repr((compiler, options)).encode()).hexdigest()[:16]
    folder = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "hdcos"
    target = folder / f"lenet-{key}.so"
    if not target.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            made = Path(scratch) / target.name
            subprocess.run([compiler, *options, "-shared", "-o", str(made), str(SOURCE)], check=True)
            made.replace(target)
    return ctypes.CDLL(str(target))
