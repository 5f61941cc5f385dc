"""Model files: safetensors with the architecture and a format version in the metadata.

The metadata is {"format": "hdcos-model", "version": "1", "architecture": JSON}; the tensors are `state()`. The names of
features, if there are any, are part of the architecture: files without them are read as before.
safetensors is imported where a file is read or written: networks that are only trained do without it.
"""

from __future__ import annotations

import json
import os
import secrets
import zipfile
from contextlib import suppress
from pathlib import Path

from hdcos.errors import ModelError
from hdcos.nn.network import Network
from hdcos.ring import Array

FORMAT = "hdcos-model"
VERSION = 1
HEAD_BYTES = 64
TORCH_MAGIC = b"\x8a\x0al\xfcF\x9cF\xf9 j\xa8P\x19"
"""In front of what old versions of torch.save wrote, behind two bytes of pickle."""
FROM_TORCH = "Load it in Python and save it for hdcos: `hdcos.nn.from_torch(module).save('model.safetensors')`"
CONVERT = "Convert it with `hdcos convert MODEL --output model.safetensors`"


def save(model: Network, path: str | os.PathLike[str]) -> None:
    """Write the model beside the path first, then put it in its place in one step."""
    from safetensors.numpy import save as to_bytes

    target = Path(path)
    architecture = json.dumps(model.architecture(), sort_keys=True)
    metadata = {"format": FORMAT, "version": str(VERSION), "architecture": architecture}
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(to_bytes(model.state(), metadata))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except OSError as error:
        raise ModelError(f"the model could not be written to {target}: {error.strerror}") from error
    finally:
        with suppress(OSError):
            temporary.unlink()


def load(path: str | os.PathLike[str]) -> Network:
    """The model that `save` wrote; ModelError says what is wrong with any other file."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(os.fspath(path), framework="np") as file:
            metadata = file.metadata() or {}
            architecture = _architecture(path, metadata)
            state: dict[str, Array] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise ModelError(f"there is no model file {path}") from None
    except OSError as error:
        raise ModelError(f"no model can be read from {path}: {error.strerror or error}") from error
    except (SafetensorError, TypeError) as error:
        what = recognise(Path(path))
        raise ModelError(
            f"{path} is no model of hdcos, it is {what}."
            if what
            else f"{path} is truncated, damaged or not a model file ({error}). Copy it again, or save the model again."
        ) from error
    try:
        return Network.from_architecture(architecture, state=state)
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from error


def _architecture(path: str | os.PathLike[str], metadata: dict[str, str]) -> object:
    if metadata.get("format") in ("hdcos-checkpoint", "hdcos-model-half"):
        raise ModelError(f"{path} is one party's share: both together make a model, by `reveal` or by resuming")
    if metadata.get("format") != FORMAT:
        raise ModelError(
            f"{path} holds tensors but no hdcos model. Save one with `model.save(path)`; a PyTorch module becomes "
            f"one with `hdcos.nn.from_torch(module)`."
        )
    version = metadata.get("version", "")
    if not (version.isascii() and version.isdecimal()):
        raise ModelError(f"{path} has no readable format version: it is damaged. Save the model again.")
    if int(version) > VERSION:
        raise ModelError(
            f"{path} is written in model format {version}, this version of hdcos reads up to {VERSION}. "
            f"Upgrade with `pip install --upgrade hdcos`."
        )
    try:
        return json.loads(metadata.get("architecture", ""))
    except ValueError as error:
        raise ModelError(f"{path} has a damaged architecture ({error}). Save the model again.") from error


def recognise(path: Path) -> str:
    """What a file is that is no model, by its first bytes, and how it becomes one; empty where it is not known."""
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
        return f"an ONNX model. {CONVERT}, or in Python by `hdcos.nn.from_onnx(path)`"
    if head.startswith(b"\x89HDF"):
        return "an HDF5 file, as Keras saves models. Build the network of hdcos.nn layers and save it with `model.save`"
    if head.startswith(b"\x93NUMPY"):
        return "an array of NumPy. Save a model with `model.save`"
    if head.startswith(b"PAR1"):
        return "a Parquet table. Save a model with `model.save`"
    if _is_text(head):
        return "a text, perhaps a table. Save a model with `model.save`"
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
        return f"a PyTorch file (torch.save). {CONVERT}, or load it in Python: `hdcos.nn.from_torch(module)`"
    if "model.weights.h5" in members:
        return "a Keras model. Build the network of hdcos.nn layers and save it with `model.save`"
    if any(name.endswith(".npy") for name in members):
        return "an archive of NumPy arrays. Save a model with `model.save`"
    return "an archive. Save a model with `model.save`"


def _is_text(head: bytes) -> bool:
    """A model begins with the length of its header, in which there are zeros."""
    return bool(head.strip()) and all(byte >= 32 or byte in b"\t\r\n" for byte in head) and not max(head) > 126


def _is_onnx(head: bytes) -> bool:
    """An ONNX file begins with field 1, the version of its format, a small number, and goes on with another field."""
    return len(head) > 3 and head[0] == 0x08 and 0 < head[1] < 32 and head[2] in (0x12, 0x1A, 0x22, 0x3A, 0x42)
