"""A party's part in training: it holds shares of data and parameters, and takes steps with its peer."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

import numpy as np

from hdcos.errors import InputError
from hdcos.offline import Stock
from hdcos.protocol.party import Party
from hdcos.protocol.plan import Planned, blank_share, plan
from hdcos.protocol.rounds import Rounds
from hdcos.ring import Array
from hdcos.sharing import Share
from hdcos.train import Form, sgd_step
from hdcos.train.form import INPUT_SCALE, PHASE_SCALE, TARGET_SCALE
from hdcos.train.step import LOSSES

AHEAD_BYTES = 1 << 26
MOST_AHEAD = 32


def steps_ahead(stock: Stock) -> int:
    """Steps whose material is on its way while one runs; it is ordered in halves of this."""
    return max(2, min(MOST_AHEAD, AHEAD_BYTES // max(1, stock.plan.packed_bytes(1))))


@dataclass
class Training:
    """One run of training at one party. An execution of its material is one step."""

    form: Form
    x: Share = field(repr=False)
    targets: Share = field(repr=False)
    state: dict[str, Share] = field(repr=False)
    loss: str
    batch: int
    seed: int
    stock: Stock | None = None
    step: int = 0
    order: tuple[int, Array] | None = field(default=None, repr=False)
    """The rows of one epoch, shuffled."""

    def planned(self, rate: float, rank: int) -> Planned:
        """The material of one step."""
        x = blank_share((self.batch, *self.x.shape[1:]), INPUT_SCALE)
        targets = blank_share((self.batch, *self.targets.shape[1:]), self.targets.scale)
        return plan(sgd_step, self.form, self.state, x, targets, rate, self.loss, rank=rank)

    @property
    def steps_per_epoch(self) -> int:
        return len(self.x) // self.batch

    def rows(self, step: int) -> Array:
        """The public indices of a step's batch: each epoch a fresh shuffle of all rows."""
        epoch, number = divmod(step, self.steps_per_epoch)
        if self.order is None or self.order[0] != epoch:
            self.order = epoch, np.random.default_rng([self.seed, epoch]).permutation(len(self.x))
        return self.order[1][number * self.batch : (number + 1) * self.batch]

    def agreed(self, step: int, rate: float) -> str:
        """What both parties must mean by a step: which rows, at which rate."""
        rows = hashlib.sha256(np.ascontiguousarray(self.rows(step), dtype="<i8").tobytes()).hexdigest()
        return f"step {step} rate {rate.hex()} rows {rows}"

    def program(self, party: Party, step: int, rate: float) -> Rounds[dict[str, Share]]:
        rows = self.rows(step)
        x = Share(self.x.words[rows], self.x.scale)
        targets = Share(self.targets.words[rows], self.targets.scale)
        return sgd_step(party, self.form, self.state, x, targets, rate, self.loss)  # type: ignore[return-value]


def compared(targets: Share, loss: str) -> Share:
    """Targets at the scale a loss compares them at: that of logits, or of their sigmoids."""
    if loss not in LOSSES:
        raise InputError(f"no loss is called {loss!r}: choose from {', '.join(LOSSES)}")
    return targets.raised(PHASE_SCALE if loss == "squared" else TARGET_SCALE)
