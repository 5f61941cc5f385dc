"""The GPU that figures were measured on, in words for their readers: its name, driver and CuPy, and whether shared."""

from __future__ import annotations

import os
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, version

from hdcos.errors import DeviceError

CUPY = ("cupy-cuda13x", "cupy-cuda12x", "cupy")
"""The names that CuPy is installed by."""


def describe_device(name: str) -> str:
    """A device such as `cuda:0` of this machine, with the driver and CuPy that it was used by."""
    if standing_in := os.environ.get("HDCOS_CUPY"):
        return f"no GPU but {standing_in}"
    return f"{_query(name, 'name')} (driver {_query(name, 'driver_version')}, CuPy {_cupy()}, {_sharing()})"


def _query(name: str, wanted: str) -> str:
    index = int(name.removeprefix("cuda:"))
    shown = os.environ.get("CUDA_VISIBLE_DEVICES")
    which = shown.split(",")[index] if shown else str(index)
    asking = ["nvidia-smi", f"--query-gpu={wanted}", "--format=csv,noheader", f"--id={which}"]
    try:
        return subprocess.run(asking, capture_output=True, text=True, check=True).stdout.strip()
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        raise DeviceError(
            f"figures are recorded with the GPU's name, and nvidia-smi does not say it: {error}"
        ) from None


def _cupy() -> str:
    for package in CUPY:
        try:
            return version(package)
        except PackageNotFoundError:
            continue
    raise DeviceError("figures are recorded with the version of CuPy, which is not installed: pip install 'hdcos[gpu]'")


def _sharing() -> str:
    """Whether processes compute side by side on it: NVIDIA's service answers where it runs."""
    if control := shutil.which("nvidia-cuda-mps-control"):
        asked = subprocess.run([control], input="get_server_list\n", capture_output=True, text=True, check=False)
        if asked.returncode == 0:
            return "shared by MPS"
    return "without MPS"
