"""What a run of training is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """What a run of training is, for both parties and for a caller that resumes it."""

    loss: str
    batch: int
    seed: int
    total_steps: int
    momentum: float = 0.0
    decay: float = 0.0
