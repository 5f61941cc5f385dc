"""Digits and clothes, as images with labels.

MNIST, Fashion-MNIST   (LeCun, Cortes and Burges; Xiao, Rasul and Vollgraf) in their original files: in folders mnist
                       and fashion-mnist, {train,t10k}-images-idx3-ubyte and {train,t10k}-labels-idx1-ubyte, with or
                       without .gz; what is not there is downloaded
digits                 1,797 of 8 x 8 pixels that scikit-learn brings (Alpaydin and Kaynak, UCI). They have no split of
                       their own. Here all rows are put in the order of RandomState(0).permutation, which NumPy promises
                       never to change; the first 1,400 are for training and the other 397 for testing
"""

from __future__ import annotations

import math
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from hdcos.data.files import obtain, open_file
from hdcos.errors import DataMissing, InputError

T = TypeVar("T")
Images = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]

SIDE, CLASSES = 28, 10
DIGITS, TRAIN_DIGITS, DIGIT_PIXELS, BRIGHTEST = 1797, 1400, 64, 16
IDX_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
MAX_DIMENSIONS = 32
DEFLATE_LIMIT = 1032  # no compressed byte stands for more than this many


def mnist(split: str) -> tuple[Images, Labels]:
    """Handwritten digits of the "train" or "test" split: images (n, 1, 28, 28) in [0, 1], and labels."""
    return _read("mnist", split)


def fashion_mnist(split: str) -> tuple[Images, Labels]:
    """Articles of clothing of the "train" or "test" split: images (n, 1, 28, 28) in [0, 1], and labels."""
    return _read("fashion-mnist", split)


def _read(name: str, split: str) -> tuple[Images, Labels]:
    prefix = _of_split(split, "train", "t10k")
    pixels_path, labels_path = (obtain(f"{name}/{prefix}-{kind}-ubyte") for kind in ("images-idx3", "labels-idx1"))
    labels, pixels = read_idx(labels_path), read_idx(pixels_path)
    if pixels.dtype != np.uint8 or pixels.shape[1:] != (SIDE, SIDE):
        raise InputError(f"{pixels_path} should hold {SIDE} x {SIDE} bytes per image, has {_describe(pixels)}")
    if labels.dtype != np.uint8 or labels.shape != pixels.shape[:1]:
        raise InputError(f"{labels_path} should hold {len(pixels)} bytes of labels, has {_describe(labels)}")
    if labels.size and labels.max() >= CLASSES:
        raise InputError(f"{labels_path} has a label {labels.max()}; labels are below {CLASSES}")
    images = np.divide(pixels.reshape(-1, 1, SIDE, SIDE), 255.0, dtype=np.float64)
    return images, labels.astype(np.int64)


def digits(split: str) -> tuple[Images, Labels]:
    """Digits of the "train" or "test" split: images (n, 64) in [0, 1], and labels."""
    wanted = _of_split(split, slice(TRAIN_DIGITS), slice(TRAIN_DIGITS, DIGITS))
    path = _find_digits()
    try:
        table = np.loadtxt(path, delimiter=",")
    except (OSError, EOFError, ValueError) as error:
        raise InputError(f"{path} cannot be read as digits: {error}") from error
    if table.shape != (DIGITS, DIGIT_PIXELS + 1):
        raise InputError(f"{path} should hold {DIGITS} digits of {DIGIT_PIXELS} pixels, has {_describe(table)}")
    rows = table[np.random.RandomState(0).permutation(DIGITS)[wanted]]
    return rows[:, :-1] / BRIGHTEST, rows[:, -1].astype(np.int64)


def _find_digits() -> Path:
    """The file that scikit-learn brings. The package is not imported: that takes seconds, and reads the same file."""
    package = find_spec("sklearn")
    for place in (package and package.submodule_search_locations) or ():
        if (path := Path(place) / "datasets" / "data" / "digits.csv.gz").exists():
            return path
    raise DataMissing(
        "the digits come with scikit-learn, which is not installed here.\nInstall it: `pip install scikit-learn`."
    )


def _of_split(split: str, train: T, test: T) -> T:
    if split not in ("train", "test"):
        raise InputError(f"the splits are train and test, got {split!r}")
    return train if split == "train" else test


def _describe(x: npt.NDArray[np.generic]) -> str:
    return f"{x.dtype} of shape {x.shape}"


def read_idx(path: Path) -> npt.NDArray[Any]:
    """The array in an IDX file, in the byte order of this machine.

    Its header is two zero bytes, a type code, the number of dimensions, then each dimension as a big-endian number
    of 32 bits; the numbers follow.
    """
    with open_file(path) as stream:
        magic = stream.read(4)
        if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] not in IDX_TYPES:
            raise InputError(f"{path} is not an IDX file: it begins with {magic.hex(' ') or 'nothing'}")
        dimensions = magic[3]
        if not 1 <= dimensions <= MAX_DIMENSIONS:
            raise InputError(f"{path} has {dimensions} dimensions, 1 to {MAX_DIMENSIONS} can be read")
        header = stream.read(4 * dimensions)
        if len(header) < 4 * dimensions:
            raise InputError(f"{path} ends inside its header of {dimensions} dimensions")
        shape = tuple(np.frombuffer(header, ">u4").tolist())
        kind = np.dtype(IDX_TYPES[magic[2]])
        size = math.prod(shape) * kind.itemsize
        room = path.stat().st_size * (DEFLATE_LIMIT if path.suffix == ".gz" else 1)
        if size > room:
            raise InputError(f"{path} is too short for shape {shape}: {size} bytes of numbers cannot be in it")
        numbers = stream.read(size + 1)
    if len(numbers) != size:
        found = "more" if len(numbers) > size else f"{len(numbers)}"
        raise InputError(f"{path} promises {size} bytes of numbers for shape {shape} and has {found}")
    return np.frombuffer(numbers, kind).reshape(shape).astype(kind.newbyteorder("="))
