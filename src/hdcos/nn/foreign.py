"""What a file is that was given as a model and is none of ours, told by its first bytes: names may say anything."""

from __future__ import annotations

import zipfile
from pathlib import Path

HEAD_BYTES = 64
TORCH_MAGIC = b"\x8a\x0al\xfcF\x9cF\xf9 j\xa8P\x19"
"""In front of what old versions of torch.save wrote, behind two bytes of pickle."""
FROM_TORCH = "Load it in Python and save it for hdcos: `hdcos.nn.from_torch(module).save('model.safetensors')`"


def recognised(path: Path) -> str:
    """What the file is and how it becomes a model, or nothing where it is not known."""
    try:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError:
        return ""
    if head.startswith(b"PK\x03\x04"):
        return _archive(path)
    if head[:1] == b"\x80" and (TORCH_MAGIC in head or head[1:2] <= b"\x05"):
        return f"a pickle, as old versions of torch.save made them. {FROM_TORCH}"
    if _is_onnx(head) or (path.suffix == ".onnx" and head):
        return f"an ONNX model. Take the PyTorch module it was exported from. {FROM_TORCH}"
    if head.startswith(b"\x89HDF"):
        return "an HDF5 file, as Keras saves models. Build the network of hdcos.nn layers and save it with `model.save`"
    if head.startswith(b"\x93NUMPY"):
        return "an array of NumPy. Save a model with `model.save`"
    return ""


def _archive(path: Path) -> str:
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.namelist()
    except (zipfile.BadZipFile, OSError):
        return "an archive that is cut off or damaged. Copy it again"
    if any(name.endswith("/constants.pkl") for name in members):
        return f"a TorchScript program of PyTorch. Take the module it was made from. {FROM_TORCH}"
    if any(name.endswith("/data.pkl") for name in members):
        return f"a PyTorch file (torch.save). {FROM_TORCH}"
    if "model.weights.h5" in members:
        return "a Keras model. Build the network of hdcos.nn layers and save it with `model.save`"
    if any(name.endswith(".npy") for name in members):
        return "an archive of NumPy arrays. Save a model with `model.save`"
    return "an archive. Save a model with `model.save`"


def _is_onnx(head: bytes) -> bool:
    """An ONNX file begins with field 1, the version of its format, a small number, and goes on with another field."""
    return len(head) > 3 and head[0] == 0x08 and 0 < head[1] < 32 and head[2] in (0x12, 0x1A, 0x22, 0x3A, 0x42)
