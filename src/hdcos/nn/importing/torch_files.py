"""Files of PyTorch. A module is stored with its code's names, and loading it runs code: it has to be asked for."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import torch

from hdcos.errors import ModelError

ONNX = "export it with torch.onnx.export, whose files run no code"


def load_module(path: Path, trust: bool) -> Any:
    """The module or the exported program in a file; ModelError says what else it is, and what to do."""
    if not path.is_file():
        raise ModelError(f"there is no model file {path}")
    members = _members(path)
    if any(name.endswith("/constants.pkl") for name in members):
        raise ModelError(
            f"{path} is a TorchScript program: save the module it was made from by torch.save(module, path), or {ONNX}"
        )
    if not trust:
        raise ModelError(_untrusted(path))
    exported = any(name.endswith(("archive_format", "serialized_exported_program.json")) for name in members)
    try:
        if exported or path.suffix == ".pt2":
            return torch.export.load(path)
        return torch.load(path, map_location="cpu", weights_only=False)
    except (AttributeError, ImportError) as error:
        raise ModelError(
            f"{path} needs code that is not found here ({error}): run this where its classes can be imported, for "
            f"example with PYTHONPATH=., or {ONNX}"
        ) from error
    except Exception as error:  # whatever unpickling and old versions raise
        reason = " ".join(str(error).split())[:200]
        raise ModelError(
            f"{path} is truncated, damaged or no file of PyTorch ({reason}). Save the module again."
        ) from error


def _members(path: Path) -> list[str]:
    """The names in an archive; none of any other file."""
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.namelist()
    except (zipfile.BadZipFile, OSError):
        return []


def _untrusted(path: Path) -> str:
    """Why a file is not loaded: because it holds parameters alone, or because it could run code."""
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception:  # it is no file of PyTorch, or there is more in it than tensors
        return (
            f"{path} may hold a module, and loading one runs the code that it names: if you trust who made it, say so "
            f"with --trust (trust=True), or {ONNX}"
        )
    kind = "a state dict" if isinstance(found, dict) else f"a {type(found).__name__}"
    return (
        f"{path} holds {kind}, which has parameters but no network: build the module, call "
        f"module.load_state_dict(torch.load(path)), then torch.save(module, path), or {ONNX}"
    )
