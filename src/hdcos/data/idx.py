"""The IDX format: a big-endian header of type and shape, then the numbers.

Header   two zero bytes, a type code, the number of dimensions, then each dimension as an unsigned 32-bit number.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hdcos.data.folder import opened
from hdcos.errors import InputError

TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
MAX_DIMENSIONS = 32
DEFLATE_LIMIT = 1032  # no compressed byte stands for more than this many


def read_idx(path: Path) -> npt.NDArray[Any]:
    """The array in an IDX file, in the byte order of this machine."""
    with opened(path) as stream:
        magic = stream.read(4)
        if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] not in TYPES:
            raise InputError(f"{path} is not an IDX file: it begins with {magic.hex(' ') or 'nothing'}")
        dimensions = magic[3]
        if not 1 <= dimensions <= MAX_DIMENSIONS:
            raise InputError(f"{path} has {dimensions} dimensions, 1 to {MAX_DIMENSIONS} can be read")
        header = stream.read(4 * dimensions)
        if len(header) < 4 * dimensions:
            raise InputError(f"{path} ends inside its header of {dimensions} dimensions")
        shape = tuple(np.frombuffer(header, ">u4").tolist())
        kind = np.dtype(TYPES[magic[2]])
        size = math.prod(shape) * kind.itemsize
        room = path.stat().st_size * (DEFLATE_LIMIT if path.suffix == ".gz" else 1)
        if size > room:
            raise InputError(f"{path} is too short for shape {shape}: {size} bytes of numbers cannot be in it")
        numbers = stream.read(size + 1)
    if len(numbers) != size:
        found = "more" if len(numbers) > size else f"{len(numbers)}"
        raise InputError(f"{path} promises {size} bytes of numbers for shape {shape} and has {found}")
    return np.frombuffer(numbers, kind).reshape(shape).astype(kind.newbyteorder("="))
