"""MNIST (LeCun, Cortes and Burges) and Fashion-MNIST (Xiao, Rasul and Vollgraf), in their original files.

Folder   mnist or fashion-mnist
Files    {train,t10k}-images-idx3-ubyte and {train,t10k}-labels-idx1-ubyte, with or without .gz;
         what is not there is downloaded
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hdcos.data.download import obtain
from hdcos.data.idx import read_idx
from hdcos.errors import InputError

Images = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]

SIDE, CLASSES = 28, 10
_PREFIX = {"train": "train", "test": "t10k"}


def mnist(split: str) -> tuple[Images, Labels]:
    """Handwritten digits of the "train" or "test" split: images (n, 1, 28, 28) in [0, 1], and labels."""
    return _read("mnist", split)


def fashion_mnist(split: str) -> tuple[Images, Labels]:
    """Articles of clothing of the "train" or "test" split: images (n, 1, 28, 28) in [0, 1], and labels."""
    return _read("fashion-mnist", split)


def _read(name: str, split: str) -> tuple[Images, Labels]:
    if split not in _PREFIX:
        raise InputError(f"the splits are train and test, got {split!r}")
    pixels_path = obtain(f"{name}/{_PREFIX[split]}-images-idx3-ubyte")
    labels_path = obtain(f"{name}/{_PREFIX[split]}-labels-idx1-ubyte")
    labels, pixels = read_idx(labels_path), read_idx(pixels_path)
    if pixels.dtype != np.uint8 or pixels.shape[1:] != (SIDE, SIDE):
        raise InputError(f"{pixels_path} should hold {SIDE} x {SIDE} bytes per image, has {_described(pixels)}")
    if labels.dtype != np.uint8 or labels.shape != pixels.shape[:1]:
        raise InputError(f"{labels_path} should hold {len(pixels)} bytes of labels, has {_described(labels)}")
    if labels.size and labels.max() >= CLASSES:
        raise InputError(f"{labels_path} has a label {labels.max()}; labels are below {CLASSES}")
    images = np.divide(pixels.reshape(-1, 1, SIDE, SIDE), 255.0, dtype=np.float64)
    return images, labels.astype(np.int64)


def _described(x: npt.NDArray[np.generic]) -> str:
    return f"{x.dtype} of shape {x.shape}"
