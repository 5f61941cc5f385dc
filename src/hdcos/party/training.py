"""A party's part in training: it holds shares of data and parameters, and takes steps with its peer."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from hdcos.api.requests import Settings
from hdcos.errors import CheckpointMismatch
from hdcos.nn.columns import Names
from hdcos.offline import MaterialPool, Plan
from hdcos.party.checkpoint import Checkpoints
from hdcos.protocol.party import Party
from hdcos.protocol.plan import Planned, blank_share, plan
from hdcos.protocol.rounds import Rounds
from hdcos.ring import Array
from hdcos.secure.training import Rule, TrainingPlan, sgd_step
from hdcos.secure.training.batches import batches
from hdcos.secure.training.form import INPUT_SCALE, WEIGHT_SCALE
from hdcos.secure.training.rule import BEFORE
from hdcos.sharing import Share

AHEAD_BYTES = 1 << 26
MOST_AHEAD = 32


def steps_ahead(plan: Plan) -> int:
    """Steps whose material is on its way while one runs; it is ordered in halves of this."""
    return max(2, min(MOST_AHEAD, AHEAD_BYTES // max(1, plan.packed_bytes(1))))


@dataclass
class Training:
    """One run of training at one party. An execution of its material is one step."""

    form: TrainingPlan
    settings: Settings
    x: Share = field(repr=False)
    targets: Share = field(repr=False)
    state: Mapping[str, Share] = field(repr=False)
    columns: Names | None = None
    """The names of the features, if the data sets have them."""
    run: str = ""
    """Names the run through all its attempts."""
    attempt: int = 1
    origin: tuple[int, int] = (0, 0)
    """The step and the attempt of the checkpoint it went on from."""
    step: int = 0
    last_rate: float | None = None
    start: int = 0
    """The step this attempt began with: the first execution of its material."""
    stock: MaterialPool | None = None
    checkpoints: Checkpoints | None = None
    every: int = 0
    drawn: tuple[int, list[Array]] | None = field(default=None, repr=False)
    """The batches of one epoch."""

    def planned(self, rate: float, rank: int) -> Planned:
        """The material of one step."""
        x = blank_share((self.settings.batch, *self.x.shape[1:]), INPUT_SCALE)
        targets = blank_share((self.settings.batch, *self.targets.shape[1:]), self.targets.scale)
        state = {tensor.name: blank_share(tensor.shape, tensor.scale, tensor.bits) for tensor in self.form.tensors}
        rule = Rule(rate, self.settings.momentum, self.settings.decay)
        return plan(sgd_step, self.form, state, x, targets, rule, rank=rank)

    @property
    def steps_per_epoch(self) -> int:
        return len(self.x) // self.settings.batch

    def rows(self, step: int) -> Array:
        """The public indices of a step's batch: each epoch a fresh shuffle of all rows."""
        epoch, number = divmod(step, self.steps_per_epoch)
        if self.drawn is None or self.drawn[0] != epoch:
            self.drawn = epoch, batches(self.settings.seed, epoch, len(self.x), self.settings.batch)
        return self.drawn[1][number]

    def rule(self, rate: float) -> Rule:
        return Rule(rate, self.settings.momentum, self.settings.decay, self.last_rate, self.step)

    def agreed(self, rule: Rule) -> list[object]:
        """What both parties must mean by a step: which rows, which numbers."""
        rows = hashlib.sha256(np.ascontiguousarray(self.rows(self.step), dtype="<i8").tobytes()).hexdigest()
        return [self.run, self.attempt, self.origin, rows, repr(rule)]

    def program(self, party: Party, rule: Rule) -> Rounds[Mapping[str, Share]]:
        rows = self.rows(self.step)
        x = Share(self.x.words.take(rows, axis=0), self.x.scale)
        targets = Share(self.targets.words.take(rows, axis=0), self.targets.scale)
        return sgd_step(party, self.form, self.state, x, targets, rule)

    def stepped(self, state: Mapping[str, Share], rule: Rule) -> None:
        """Take over what a step gave, and write it down when its time has come."""
        self.state, self.last_rate = state, rule.rate
        self.step += 1
        if self.checkpoints is not None and (self.step % self.every == 0 or self.step == self.settings.total_steps):
            words = {name: share.words for name, share in self.state.items()}
            self.checkpoints.save(self.step, words, self.record())

    def release(self) -> None:
        """Let other runs use the folder."""
        if self.checkpoints is not None:
            self.checkpoints.unlock()

    def record(self) -> dict[str, Any]:
        shapes = {tensor.name: list(tensor.shape) for tensor in self.form.tensors}
        known = {"rows": len(self.x), "shapes": shapes, "settings": asdict(self.settings)}
        place = {"run": self.run, "attempt": self.attempt, "step": self.step, "last_rate": self.last_rate}
        return {**known, **place}

    def resume(self, step: int) -> None:
        """Go on from a checkpoint of the same run."""
        assert self.checkpoints is not None
        words, record = self.checkpoints.load(step)
        mine = self.record()
        for what in ("rows", "shapes", "settings"):
            if record[what] != mine[what]:
                raise CheckpointMismatch(
                    f"the checkpoint of step {step} belongs to another run: its {what} are {record[what]}, "
                    f"these are {mine[what]}"
                )
        tensors = {tensor.name: tensor for tensor in self.form.tensors}
        state = {}
        for name, array in words.items():
            tensor = tensors[name.removesuffix(BEFORE)]
            copy = name.endswith(BEFORE)
            state[name] = Share(array, WEIGHT_SCALE if copy else tensor.scale, 64 if copy else tensor.bits)
        self.state, self.step, self.start, self.last_rate = state, step, step, record["last_rate"]
        self.run, self.origin = record["run"], (step, record["attempt"])
        self.checkpoints.forget_after(step)
