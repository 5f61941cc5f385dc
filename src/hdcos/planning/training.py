"""Data-parallel training, simulated: every pair takes its part of each step, and all wait for the last.

The first worker of a party adds the changes of the others, one after another, before the next step can begin.
"""

from __future__ import annotations

from dataclasses import dataclass

from hdcos.link import Emulation
from hdcos.planning.costs import StepCosts
from hdcos.planning.events import after_all
from hdcos.planning.machines import Machines, Reading, SimulatedCluster, Use

STEPS, WARM_UP = 200, 80
"""Of a run, and those of them that are not counted: material was made ahead for the first ones."""


@dataclass(frozen=True)
class StepOutcome:
    """What a step takes, once material is as scarce as it will be."""

    step_s: float
    use: Use


class Training:
    """One run of the simulation."""

    def __init__(self, costs: StepCosts, machines: Machines, network: Emulation, adding_s: float) -> None:
        """`adding_s` is what it takes to add the changes of all pairs."""
        self._cluster, self._rows = SimulatedCluster(costs, machines, network), costs.part
        self._adding_s = adding_s
        self._taken = 0
        self._warm: Reading | None = None

    def run(self) -> StepOutcome:
        self._begin()
        self._cluster.clock.run(lambda: self._taken < STEPS)
        assert self._warm is not None
        use = self._cluster.used(self._warm)
        return StepOutcome(use.passed_s / (STEPS - WARM_UP), use)

    def _begin(self) -> None:
        ended = after_all(len(self._cluster.pairs), self._add)
        for pair in self._cluster.pairs:
            self._cluster.execute(pair, pair.pools[0], self._rows, 1, ended)

    def _add(self) -> None:
        self._note("others")
        self._cluster.clock.after(self._adding_s, self._end)

    def _end(self) -> None:
        self._note("adding")
        self._taken += 1
        if self._taken == WARM_UP:
            self._warm = self._cluster.read()
        self._begin()

    def _note(self, part: str) -> None:
        for pair in self._cluster.pairs:
            pair.note(part, self._cluster.clock.now)
