"""A party's checkpoints of a run of training, and its ledger of the material that run used.

folder/party0/step-00000200.safetensors   this party's shares after 200 steps, and what run they belong to
folder/party0/ledger.jsonl                one line per reservation: attempt, scope, first execution, count

Security  a checkpoint holds one party's shares: alone it says nothing, both together are the model. Files are readable
          by their owner only. A reservation is on disk before its first mask is used, and a resumed run opens a new
          scope under a higher attempt number: what was dealt for steps that were lost is never used again.

A file is written beside its place, flushed and renamed: whenever the process dies, each file is whole or absent.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_bytes

from hdcos.errors import CheckpointMismatch
from hdcos.ring import Array

FORMAT = "hdcos-checkpoint"
VERSION = 1
KEPT = 3
"""Parties may die between writing theirs: the newest that both hold is among the last few."""


@dataclass(frozen=True)
class Checkpoints:
    """One party's folder."""

    folder: Path

    @classmethod
    def of(cls, folder: str | os.PathLike[str], rank: int) -> Checkpoints:
        path = Path(folder) / f"party{rank}"
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise CheckpointMismatch(f"checkpoints cannot be written to {path}: {error.strerror}") from error
        return cls(path)

    def steps(self) -> list[int]:
        """The steps there are checkpoints of, oldest first."""
        return sorted(int(path.stem.split("-")[1]) for path in self.folder.glob("step-*.safetensors"))

    def save(self, step: int, words: Mapping[str, Array], record: Mapping[str, Any]) -> None:
        metadata = {"format": FORMAT, "version": str(VERSION), "record": json.dumps(record, sort_keys=True)}
        self._write(self._path(step), to_bytes(dict(words), metadata))
        for old in self.steps()[:-KEPT]:
            self._path(old).unlink(missing_ok=True)

    def load(self, step: int) -> tuple[dict[str, Array], dict[str, Any]]:
        """The words and the record of a checkpoint."""
        path = self._path(step)
        try:
            with safe_open(os.fspath(path), framework="np") as file:
                metadata = file.metadata() or {}
                if (metadata.get("format"), metadata.get("version")) != (FORMAT, str(VERSION)):
                    raise CheckpointMismatch(f"{path} is not a checkpoint of this version of hdcos")
                words = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            record: dict[str, Any] = json.loads(metadata["record"])
        except (OSError, SafetensorError, ValueError, KeyError) as error:
            raise CheckpointMismatch(f"{path} cannot be read: {error}") from error
        if any(array.dtype != np.uint64 for array in words.values()):
            raise CheckpointMismatch(f"{path} does not hold shares")
        return words, record

    def reserve(self, attempt: int, scope: str, first: int, count: int) -> None:
        """Note that executions of a scope are about to be used."""
        line = json.dumps({"attempt": attempt, "scope": scope, "first": first, "count": count})
        with self._ledger.open("a", encoding="utf-8") as file:
            file.write(f"\n{line}\n")  # behind whatever a crash may have left without an end
            file.flush()
            os.fsync(file.fileno())

    def reserved(self) -> list[dict[str, Any]]:
        """Every reservation so far; a line that was cut off by a crash reserved nothing."""
        if not self._ledger.exists():
            return []
        lines = self._ledger.read_text(encoding="utf-8").split("\n")
        return [json.loads(line) for line in lines if line.endswith("}")]

    @property
    def attempt(self) -> int:
        """The highest attempt so far, 0 before the first."""
        return max((entry["attempt"] for entry in self.reserved()), default=0)

    @property
    def _ledger(self) -> Path:
        return self.folder / "ledger.jsonl"

    def _path(self, step: int) -> Path:
        return self.folder / f"step-{step:08d}.safetensors"

    def _write(self, target: Path, content: bytes) -> None:
        temporary = target.with_suffix(".tmp")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
