"""A party's checkpoints of a run of training, and its ledger of the material that run used.

folder/party0/step-00000200.safetensors   this party's shares after 200 steps, and what run they belong to
folder/party0/ledger.jsonl                one line per reservation: attempt, scope, first execution, count
folder/party0/lock                        held while a run writes here

Security  a checkpoint holds one party's shares: alone it says nothing, both together are the model. Files are readable
          by their owner only. Shares of two attempts must never be joined, they belong to different sharings: a
          checkpoint names its run and attempt, and both parties resume from the same. A resumed run opens a new scope
          with fresh seeds under a higher attempt number, written down before anything is opened; what was dealt for
          steps that were lost is never used again.

A file is written beside its place, flushed and renamed: whenever the process dies, each file is whole or absent.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Self

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_bytes

from hdcos.errors import CheckpointMismatch, DataMissing
from hdcos.files import full_disk_named, private_folder, sync_folder, write_whole
from hdcos.ring import Array

FORMAT = "hdcos-checkpoint"
VERSION = 1
LEAVE_S = 2.0
"""How long a run that has just failed may take to let go of a folder."""
KEPT = 3
"""Parties may die between writing theirs: the newest that both hold is among the last few."""


@dataclass
class Checkpoints:
    """One party's folder."""

    folder: Path
    _lock: int = field(default=-1, repr=False)

    @classmethod
    def of(cls, folder: str | os.PathLike[str], rank: int) -> Self:
        return cls(Path(folder) / f"party{rank}")

    def lock(self) -> None:
        """Make the folder, and keep other runs out of it until `unlock`, or until this process ends."""
        try:
            with full_disk_named(self.folder):
                private_folder(self.folder)
        except OSError as error:
            raise CheckpointMismatch(f"checkpoints cannot be written to {self.folder}: {error.strerror}") from error
        handle, limit = os.open(self.folder / "lock", os.O_WRONLY | os.O_CREAT, 0o600), time.monotonic() + LEAVE_S
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if time.monotonic() > limit:
                    os.close(handle)
                    raise CheckpointMismatch(f"another run is writing its checkpoints to {self.folder}") from None
                time.sleep(0.05)
        self._lock = handle

    def unlock(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def steps(self) -> list[int]:
        """The steps there are checkpoints of, oldest first."""
        found = []
        for path in self.folder.glob("step-*.safetensors"):
            number = path.stem.removeprefix("step-")
            if number.isdecimal():
                found.append(int(number))
        return sorted(found)

    def records(self) -> dict[int, dict[str, Any]]:
        """What each checkpoint belongs to; files that cannot be read are left out."""
        found = {}
        for step in self.steps():
            with suppress(CheckpointMismatch):
                found[step] = self._record(step)
        return found

    def save(self, step: int, words: Mapping[str, Array], record: Mapping[str, Any]) -> None:
        metadata = {"format": FORMAT, "version": str(VERSION), "record": json.dumps(record, sort_keys=True)}
        write_whole(self._path(step), to_bytes(dict(words), metadata))
        for old in self.steps()[:-KEPT]:
            self._path(old).unlink(missing_ok=True)

    def load(self, step: int) -> tuple[dict[str, Array], dict[str, Any]]:
        """The words and the record of a checkpoint."""
        record = self._record(step)
        return read_words(self._path(step)), record

    def forget_after(self, step: int) -> None:
        """Remove what lies beyond the step that is resumed from: it belongs to an attempt that was given up."""
        for later in self.steps():
            if later > step:
                self._path(later).unlink(missing_ok=True)

    def begin(self, attempt: int, scope: str) -> None:
        """Note a new attempt before anything is opened for it; it must be higher than all before."""
        if attempt <= self.attempt:
            raise CheckpointMismatch(f"attempt {attempt} is not new: {self.folder} has seen {self.attempt}")
        self.reserve(attempt, scope, 0, 0)

    def reserve(self, attempt: int, scope: str, first: int, count: int) -> None:
        """Note that executions of a scope are about to be used."""
        line = json.dumps({"attempt": attempt, "scope": scope, "first": first, "count": count})
        path = self.folder / "ledger.jsonl"
        with full_disk_named(path):
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(f"\n{line}\n")  # behind whatever a crash may have left without an end
                file.flush()
                os.fsync(file.fileno())
        sync_folder(self.folder)

    def reserved(self) -> list[dict[str, Any]]:
        """Every reservation so far; a line that was cut off by a crash reserved nothing."""
        path = self.folder / "ledger.jsonl"
        if not path.exists():
            return []
        lines = path.read_text(encoding="utf-8").split("\n")
        return [json.loads(line) for line in lines if line.endswith("}")]

    def reused(self) -> list[str]:
        """What the ledger shows that must never happen: an execution reserved twice, an attempt or scope repeated."""
        found: list[str] = []
        used: set[tuple[str, int]] = set()
        scopes: dict[int, str] = {}
        last = 0
        for entry in self.reserved():
            attempt, scope = entry["attempt"], entry["scope"]
            if attempt < last or scopes.setdefault(attempt, scope) != scope:
                found.append(f"attempt {attempt}")
            last = attempt
            for execution in range(entry["first"], entry["first"] + entry["count"]):
                if (scope, execution) in used:
                    found.append(f"execution {execution} of {scope}")
                used.add((scope, execution))
        if len(set(scopes.values())) != len(scopes):
            found.append("a scope in two attempts")
        return found

    @property
    def attempt(self) -> int:
        """The highest attempt so far, 0 before the first."""
        return max((entry["attempt"] for entry in self.reserved()), default=0)

    def _record(self, step: int) -> dict[str, Any]:
        path = self._path(step)
        try:
            with safe_open(os.fspath(path), framework="np") as file:
                metadata = file.metadata() or {}
            if (metadata.get("format"), metadata.get("version")) != (FORMAT, str(VERSION)):
                raise CheckpointMismatch(f"{path} is not a checkpoint of this version of hdcos")
            record: dict[str, Any] = json.loads(metadata["record"])
        except (OSError, SafetensorError, ValueError, KeyError) as error:
            raise CheckpointMismatch(f"{path} cannot be read: {error}") from error
        return record

    def _path(self, step: int) -> Path:
        return self.folder / f"step-{step:08d}.safetensors"


def read_words(path: Path) -> dict[str, Array]:
    """All words of a file of shares."""
    try:
        with safe_open(os.fspath(path), framework="np") as file:
            words = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise DataMissing(f"{path} is gone") from None
    except (OSError, SafetensorError) as error:
        raise CheckpointMismatch(f"{path} cannot be read: {error}") from error
    if any(array.dtype != np.uint64 for array in words.values()):
        raise CheckpointMismatch(f"{path} does not hold shares")
    return words


def last_run(folder: str | os.PathLike[str]) -> tuple[int, int] | None:
    """How far the run got whose checkpoints are in a folder, and its steps in all; None if there are none."""
    both = [Checkpoints.of(folder, rank).records() for rank in (0, 1)]
    totals = [record["settings"]["total_steps"] for records in both for record in records.values()]
    if not totals:
        return None
    return max(set(both[0]) & set(both[1]), default=0), max(totals)


def set_aside(folder: str | os.PathLike[str]) -> Path:
    """Give a folder of checkpoints another name, so that a new run can have its own; a run under way is left alone."""
    place = Path(folder)
    free = next(path for number in count(1) if not (path := place.with_name(f"{place.name}.{number}")).exists())
    parts = [Checkpoints.of(place, rank) for rank in (0, 1)]
    try:
        for part in parts:
            part.lock()
        place.rename(free)
    finally:
        for part in parts:
            part.unlock()
    return free
