"""The fewest pairs of workers, dealers and cores that carry a load of predictions, and what limits them.

A cluster *carries* a load if it does as much with a part of its time to spare (SPARE), which is seen at full load, with
a batch always waiting. Latencies are those of requests that arrive at random at the rate asked for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, inf, prod

from hdcos.errors import InputError
from hdcos.link import Emulation
from hdcos.nn import Network
from hdcos.planning.costs import serving_costs
from hdcos.planning.figures import Figures
from hdcos.planning.machines import Machines
from hdcos.planning.needs import (
    LARGEST,
    SPARE,
    WORD_BYTES,
    Need,
    check_lines,
    fewest,
    name_limit,
    needs_of,
    part_of,
    part_of_lines,
)
from hdcos.planning.serving import Load, Outcome, Serving

MOST_PAIRS = 1 << 16
HELPS = 0.98
"""Twice as many pairs help if latencies fall below this part of what they were."""
FULL_BATCHES, BATCHES = 400, 4000
"""Of a run at full load, and of one at the load asked for."""


@dataclass(frozen=True)
class ServingPlan:
    """What a load of predictions needs."""

    rows_per_s: float
    pairs: int
    dealers: int
    fronts: int
    """Processes of each party that take requests in."""
    needs: tuple[Need, ...]
    p50_s: float
    p99_s: float
    batch_rows: float
    full_rows_per_s: float
    """At full load, with no time to spare."""
    limit: str
    spent: dict[str, float]
    """What the time of pairs goes to at full load."""


def plan_serving(
    model: Network,
    figures: Figures,
    load: Load,
    network: Emulation,
    *,
    p99_s: float | None = None,
    pairs: int | None = None,
) -> ServingPlan:
    """The fewest pairs that carry a load and answer 99 of 100 requests in time, or what a number of pairs does."""
    return _Sizing(model, figures, load, network).plan(p99_s, pairs)


class _Sizing:
    """Clusters of different sizes under one load."""

    def __init__(self, model: Network, figures: Figures, load: Load, network: Emulation) -> None:
        self._model, self._load, self._network = model, load, network
        self._figures = figures.of(model)
        self._costs = serving_costs(model, self._figures)
        self._request_s = figures.request.of(load.rows)
        self._rows_per_s = load.requests_per_s * load.rows
        self._fronts = max(1, ceil(load.requests_per_s * self._request_s / (1 - SPARE)))
        self._wanted = self._rows_per_s / (1 - SPARE)
        check_lines(network, self._costs, self._wanted, "rows")

    def plan(self, p99_s: float | None, pairs: int | None) -> ServingPlan:
        if pairs is None:
            pairs = self._fewest_pairs()
            outcome, cores = self._answer(pairs, pairs)
            if p99_s is not None and outcome.quantile(0.99) > p99_s:
                pairs = self._fast_enough(pairs, p99_s)
        elif (most := self._full(pairs, pairs).rows_per_s) < self._rows_per_s:
            raise InputError(f"{pairs} pairs do at most {most:,.0f} rows a second, not {self._rows_per_s:,.0f}")
        dealers = self._fewest_dealers(pairs)
        full = self._full(pairs, dealers)
        outcome, cores = self._answer(pairs, dealers)
        return ServingPlan(
            self._rows_per_s,
            pairs,
            dealers,
            self._fronts,
            self._needs(pairs, dealers, cores, outcome.batch_rows),
            outcome.quantile(0.5),
            outcome.quantile(0.99),
            outcome.batch_rows,
            full.rows_per_s,
            name_limit(full.use.spent, self._costs, pairs, dealers, self._network),
            full.use.spent,
        )

    # ---- simulated clusters

    def _run(self, machines: Machines, load: Load, batches: int) -> Outcome:
        part = min(1.0, LARGEST / machines.pairs)
        outcome = Serving(
            self._costs,
            part_of(machines, part),
            part_of_lines(self._network, part),
            replace(load, requests_per_s=load.requests_per_s * part),
            self._request_s / max(1.0, self._fronts * part),
            batches,
        ).run()
        use = replace(outcome.use, party_cores=outcome.use.party_cores / part)
        return replace(outcome, rows_per_s=outcome.rows_per_s / part, use=use)

    def _full(self, pairs: int, dealers: int) -> Outcome:
        """At full load."""
        return self._run(Machines(pairs, dealers), replace(self._load, requests_per_s=inf), FULL_BATCHES)

    def _answer(self, pairs: int, dealers: int) -> tuple[Outcome, int]:
        """At the load asked for, with the cores at each party that are busy then, and some to spare."""
        free = self._run(Machines(pairs, dealers), self._load, BATCHES)
        cores = max(ceil(free.use.party_cores / (1 - SPARE)), ceil(pairs / LARGEST))
        return self._run(Machines(pairs, dealers, cores, dealers), self._load, BATCHES), cores

    # ---- the fewest

    def _fewest_pairs(self) -> int:
        pairs = max(1, int(self._wanted / self._full(1, 1).rows_per_s))  # more of them do not do more each
        while (most := self._full(pairs, pairs).rows_per_s) < self._wanted:
            if pairs >= MOST_PAIRS:
                raise InputError(
                    f"{pairs:,} pairs do {most:,.0f} rows a second, and more do no more: ask for fewer rows, or for a "
                    "faster line"
                )
            pairs = max(pairs + 1, int(pairs * min(2.0, self._wanted / most)))
        return pairs

    def _fewest_dealers(self, pairs: int) -> int:
        """As many as do what a dealer for each pair would do."""
        enough = min(self._wanted, 0.98 * self._full(pairs, pairs).rows_per_s)
        return fewest(ceil(pairs / LARGEST), pairs, lambda dealers: self._full(pairs, dealers).rows_per_s >= enough)

    def _fast_enough(self, pairs: int, p99_s: float) -> int:
        quickest_s = self._run(Machines(1, 1), replace(self._load, requests_per_s=1e-3), BATCHES).quantile(0.99)
        if quickest_s > p99_s:
            raise InputError(
                f"a request that waits for nobody takes {quickest_s * 1e3:.3g} ms, not {p99_s * 1e3:.3g}: in it are "
                f"{self._costs.rounds} rounds of half a round-trip time, and the work on {self._load.rows} rows"
            )
        before_s = inf
        while (reached_s := self._answer(2 * pairs, 2 * pairs)[0].quantile(0.99)) < before_s * HELPS:
            if reached_s <= p99_s:
                return fewest(pairs, 2 * pairs, lambda count: self._answer(count, count)[0].quantile(0.99) <= p99_s)
            before_s, pairs = reached_s, 2 * pairs
        raise InputError(
            f"99 of 100 requests take {reached_s * 1e3:.3g} ms with {2 * pairs:,} pairs, and more pairs do not help: "
            f"{p99_s * 1e3:.3g} ms want shorter round-trip times, a faster line or requests of other sizes"
        )

    # ---- what organisations need

    def _needs(self, pairs: int, dealers: int, cores: int, batch_rows: float) -> tuple[Need, ...]:
        costs, load, rows = self._costs, self._load, self._rows_per_s
        between = rows * (costs.wire.row + costs.wire.fixed / batch_rows)
        dealt, common, asked = rows * costs.dealt.row, rows * costs.common.row, rows * costs.row_bytes
        answered = rows * WORD_BYTES * prod(self._model.output_shape)
        fronts_s = load.requests_per_s * self._request_s
        memory = pairs * load.models * costs.memory.of(costs.ahead)
        return needs_of(
            self._figures, pairs + self._fronts, dealers, cores + ceil(fronts_s / (1 - SPARE)), memory,
            (
                (asked + between + common, answered + between), (asked + between + dealt, answered + between),
                (0.0, dealt + common),
            ),
        )  # fmt: skip
