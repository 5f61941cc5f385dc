"""The text of the CUDA kernels as a compiler gets it: constants, `common.cuh`, `aes.cuh` where
it is wanted, and one file; no header of any kind.

The same text goes to NVRTC, to nvcc and, behind a few definitions, to any C++ compiler (`testing.emulated_cupy`).
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from hdcos.ring import trig

_FOLDER = Path(__file__).parent
ENCRYPTING = ("comparison", "keystream")
"""Files whose kernels compute AES."""


def files() -> list[str]:
    """The names of the files that have kernels."""
    return sorted(path.stem for path in _FOLDER.glob("*.cu"))


@cache
def source(file: str) -> str:
    """One file, whole."""
    constants = {
        "DIRECT_BITS": trig.DIRECT_BITS,
        "HIGH_BITS": trig.HIGH_BITS,
        "MAX_BITS": trig.MAX_BITS,
        "SPLIT_SCALE": trig.SPLIT_SCALE,
        "HALF_PI": trig.half_pi(),
        "HALF_PI_SCALE": trig.HALF_PI_SCALE,
    }
    defined = "".join(f"constexpr long long {name} = {value};\n" for name, value in constants.items())
    if file in ENCRYPTING:
        box = ", ".join(map(str, substitution()))
        defined += f"__device__ const unsigned char SBOX[256] = {{{box}}};\n"
    names = ["common.cuh", *(["aes.cuh"] if file in ENCRYPTING else []), f"{file}.cu"]
    return defined + "\n".join((_FOLDER / name).read_text() for name in names)


@cache
def kernels_of(file: str) -> dict[str, int]:
    """The kernels of a file and how many arguments each takes."""
    found = re.findall(r"^KERNEL (\w+)\(([^)]*)\)", source(file), re.MULTILINE)
    return {name: arguments.count(",") + 1 for name, arguments in found}


@cache
def file_of(kernel: str) -> str:
    """The file that a kernel is in."""
    return next(file for file in files() if kernel in kernels_of(file))


@cache
def substitution() -> tuple[int, ...]:
    """The bytes that AES puts for bytes (FIPS 197, 5.1.1): inverses in GF(2**8), then an affine map."""
    powers = [1]
    for _ in range(254):
        x = powers[-1]
        powers.append(x ^ (x << 1) ^ (0x11B if x & 0x80 else 0))  # times 3, which generates all but 0
    inverse = [0] + [powers[(255 - powers.index(x)) % 255] for x in range(1, 256)]
    return tuple(_affine(x) for x in inverse)


def _affine(x: int) -> int:
    turned = x
    for _ in range(4):
        x = (x << 1 | x >> 7) & 255
        turned ^= x
    return turned ^ 0x63
