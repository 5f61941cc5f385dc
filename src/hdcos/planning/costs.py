"""What a batch of predictions and a step of training cost: rounds and bytes exactly, seconds from measured figures.

Rows come as shares, which takes one round more than rows under masks that were fetched before.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from hdcos import nn
from hdcos.errors import ModelError
from hdcos.party.budget import Demand
from hdcos.party.config import Config
from hdcos.party.training import steps_ahead
from hdcos.planning.figures import Measured, NetworkFigures, Work
from hdcos.secure.compile import compile_network
from hdcos.secure.estimate import estimate, total
from hdcos.secure.program import plan_inference
from hdcos.secure.training.step import plan_step

SIZES = (1, 256)
"""Batches that are planned; bytes grow in proportion between them, by a frame at most."""


@dataclass(frozen=True)
class Piece:
    """Material that is made at once: of some rows, or of a step on a part of a batch."""

    amount: int
    """Rows, or steps."""
    fixed: float
    rows: float
    """How often the two parts of the work on a row or a step are done."""

    def of(self, work: Work) -> float:
        return self.fixed * work.fixed + self.rows * work.row


@dataclass(frozen=True)
class Costs(ABC):
    """A batch of predictions, or a step of training at one pair."""

    measured: Measured
    rounds: int
    round_s: float
    """What a round takes besides the network and work."""
    slice_s: float
    """How long a thread that computes keeps its core while others wait for one."""
    switch_s: float
    """What a thread that waited for a core for long spends besides its work."""
    wire: Work
    """Bytes from each party to the other."""
    dealt: Work
    """Bytes from the dealer to party 1."""
    common: Work
    """Those of them that party 0 is sent too: keys of comparisons."""
    ahead: int
    """Rows, or steps, that material is kept for."""
    memory: Work
    """Bytes at a party, beside its process: a fixed part, and for each row or step that material is kept for."""

    @property
    def dealer_row(self) -> float:
        """Bytes of a row on the line from the dealer, to both parties."""
        return self.dealt.row + self.common.row

    @abstractmethod
    def pieces(self, ordered: int) -> Iterator[Piece]:
        """An order, in the pieces in which it is made."""


@dataclass(frozen=True)
class ServingCosts(Costs):
    """A batch of predictions."""

    most_rows: int
    row_bytes: int
    """From a client to each party."""
    chunk: int
    """Rows whose material is made at once."""

    def pieces(self, ordered: int) -> Iterator[Piece]:
        for start in range(0, ordered, self.chunk):
            rows = min(self.chunk, ordered - start)
            yield Piece(rows, float(start == 0), rows)


@dataclass(frozen=True)
class StepCosts(Costs):
    """A step of training on a part of a batch."""

    part: int
    """Rows of a step at one pair."""

    def pieces(self, ordered: int) -> Iterator[Piece]:
        return iter([Piece(1, 1.0, self.part)] * ordered)


def _between(small: float, large: float) -> Work:
    """What grows in proportion to the rows, by what it is for the two sizes."""
    row = (large - small) / (SIZES[1] - SIZES[0])
    return Work(max(0.0, small - row * SIZES[0]), row)


def serving_costs(model: nn.Network, figures: NetworkFigures, config: Config | None = None) -> ServingCosts:
    """A batch of predictions at parties with these settings, or with the settings that parties have by default."""
    config, chosen = config or Config(), compile_network(model)
    costs = [total(estimate(model, rows, masked=False)).online for rows in SIZES]
    material = plan_inference(chosen).material
    demand = Demand.of(model, material, config.stock.megabytes)
    return ServingCosts(
        measured=figures.inference,
        rounds=costs[0].rounds,
        round_s=figures.round_s + figures.inference.waiting_s / max(1, costs[0].rounds),
        slice_s=figures.slice_s,
        switch_s=figures.switch_s,
        wire=_between(*(cost.wire_bytes_sent for cost in costs)),
        dealt=Work(0.0, float(material.packed_bytes(SIZES[1])) / SIZES[1]),
        common=Work(0.0, float(material.packed_bytes(SIZES[1], 0)) / SIZES[1]),
        ahead=demand.rows,
        memory=Work(float(demand.fixed), float(demand.row)),
        most_rows=min(config.limits.rows, demand.rows),
        row_bytes=8 * prod(chosen.input_shape),
        chunk=max(material.chunks(demand.rows)),
    )


def training_costs(model: nn.Network, figures: NetworkFigures, part: int) -> StepCosts:
    """A step on a part of a batch, at one pair."""
    if figures.training is None:
        raise ModelError(f"{figures.name} cannot be trained on shares, so nothing was measured of its steps")
    plans = [plan_step(model, rows) for rows in SIZES]
    planned = plan_step(model, part)
    ahead = steps_ahead(planned.material)
    return StepCosts(
        measured=figures.training,
        rounds=planned.rounds,
        round_s=figures.round_s,
        slice_s=figures.slice_s,
        switch_s=figures.switch_s,
        wire=_between(*(plan.online_bytes for plan in plans)),
        dealt=_between(*(plan.material.packed_bytes(1) for plan in plans)),
        common=_between(*(plan.material.packed_bytes(1, 0) for plan in plans)),
        ahead=ahead,
        memory=Work(0.0, 8.0 * planned.material.words),
        part=part,
    )
