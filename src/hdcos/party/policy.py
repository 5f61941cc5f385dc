"""What an operator allows clients to ask of a party."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from hdcos.errors import InputError, PolicyRefused


@dataclass(frozen=True)
class Policy:
    """The rules of one party. A local cluster, whose owner owns everything in it, has none."""

    reveal: bool = True
    checkpoints: Path | None = None
    """Where clients may have checkpoints written, each in a folder they name; None for any place."""

    def check_reveal(self) -> None:
        if not self.reveal:
            raise PolicyRefused("this party does not reveal models: its operator must allow it")

    def checkpoint_folder(self, asked: str) -> str:
        """The folder that a client's wish stands for."""
        if self.checkpoints is None:
            return asked
        if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}", asked):
            raise InputError(f"on another machine a checkpoint folder is a plain name, got {asked!r}")
        return os.fspath(self.checkpoints / asked)


OPEN = Policy()
"""Everything is allowed."""
