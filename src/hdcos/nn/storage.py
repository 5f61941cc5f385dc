"""Model files: safetensors with the architecture and a format version in the metadata.

The metadata is {"format": "hdcos-model", "version": "1", "architecture": JSON}; the tensors are `state()`. The names of
features, if there are any, are part of the architecture: files without them are read as before.
safetensors is imported where a file is read or written: networks that are only trained do without it.
"""

from __future__ import annotations

import json
import os
import secrets
from contextlib import suppress
from pathlib import Path

from hdcos.errors import ModelError
from hdcos.nn.foreign import recognised
from hdcos.nn.sequential import Sequential
from hdcos.ring import Array

FORMAT = "hdcos-model"
VERSION = 1


def save(model: Sequential, path: str | os.PathLike[str]) -> None:
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


def load(path: str | os.PathLike[str]) -> Sequential:
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
        what = recognised(Path(path))
        raise ModelError(
            f"{path} is no model of hdcos, it is {what}."
            if what
            else f"{path} is truncated, damaged or not a model file ({error}). Copy it again, or save the model anew."
        ) from error
    try:
        return Sequential.from_architecture(architecture, state=state)
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
        raise ModelError(f"{path} has no readable format version: it is damaged. Save the model anew.")
    if int(version) > VERSION:
        raise ModelError(
            f"{path} is written in model format {version}, this version of hdcos reads up to {VERSION}. "
            f"Upgrade with `pip install --upgrade hdcos`."
        )
    try:
        return json.loads(metadata.get("architecture", ""))
    except ValueError as error:
        raise ModelError(f"{path} has a damaged architecture ({error}). Save the model anew.") from error
