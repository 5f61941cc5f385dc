"""Predictions, simulated: requests arrive, and a free pair takes what waits.

Requests arrive at random times (a Poisson process). They wait in a line for each model, as in party/batcher.py: a pair
that is free takes those of the model whose oldest request waits longest, up to the most rows of a batch. Requests that
wait are kept as an array of times and not as events, so a batch costs the same however many rows it has.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import partial
from math import inf, isinf
from statistics import fmean

import numpy as np

from hdcos.errors import InputError
from hdcos.link import Emulation
from hdcos.planning.costs import ServingCosts
from hdcos.planning.events import Action, Thread
from hdcos.planning.machines import TRIPS, Machines, Pair, Reading, SimulatedCluster, Use
from hdcos.ring import Array

WARM_UP = 0.2
"""The part of a run, at its beginning, that is not counted: until material is as scarce as it will be."""
TOGETHER = 64
"""Requests for which times are drawn, for each batch: a run of larger batches has fewer of them."""


@dataclass(frozen=True)
class Load:
    """Requests that arrive in a second, their rows, and the models that they ask for in equal parts."""

    requests_per_s: float = inf
    """Without end: there is always a full batch waiting."""
    rows: int = 1
    models: int = 1


@dataclass(frozen=True)
class Outcome:
    """What was seen, once the cluster was warm."""

    rows_per_s: float
    latencies_s: Array
    """Of requests, from their arrival to their answer."""
    batch_rows: float
    use: Use

    def quantile(self, part: float) -> float:
        return float(np.quantile(self.latencies_s, part))


class _Queue:
    """The requests of one model, by the times at which they arrived and at which the batcher had them."""

    def __init__(self, arrived: Array, seen: Array) -> None:
        self._arrived, self._seen, self._first = arrived, seen, 0

    @property
    def oldest_s(self) -> float:
        """Since when the first one waits, or when it will."""
        return float(self._seen[self._first]) if self._first < len(self._seen) else inf

    def take(self, now: float, most: int) -> Array:
        """When those arrived that wait now, the oldest first."""
        there = int(np.searchsorted(self._seen[self._first : self._first + most], now, "right"))
        self._first += there
        return self._arrived[self._first - there : self._first]


class Serving:
    """One run of the simulation."""

    def __init__(
        self,
        costs: ServingCosts,
        machines: Machines,
        network: Emulation,
        load: Load,
        request_s: float = 0.0,
        batches: int = 2000,
        seed: int = 0,
    ) -> None:
        """`request_s` is what a request takes of the one thread at each party that takes all of them in."""
        self._costs, self._load, self._batches = costs, load, batches
        self._most = costs.most_rows // load.rows
        if not self._most:
            raise InputError(f"a request of {load.rows} rows does not fit a batch, which has {costs.most_rows} at most")
        trips = 0 if machines.on_one else TRIPS
        self._cluster = SimulatedCluster(costs, machines, network, trips, load.models)
        self._clock = self._cluster.clock
        self._client = Thread(self._cluster.processor) if machines.on_one else None
        self._queues, self._requests = self._arrive(request_s, np.random.default_rng(seed))
        self._free = deque(self._cluster.pairs)
        self._wakes_s = inf
        """When somebody looks again."""
        self._answered = self._ended = 0
        self._warm: Reading | None = None
        self._latencies: list[Array] = []
        self._sizes: list[int] = []

    def _arrive(self, request_s: float, random: np.random.Generator) -> tuple[list[_Queue], int]:
        load, endless = self._load, isinf(self._load.requests_per_s)
        number = self._batches * (self._most if endless else min(self._most, TOGETHER))
        arrived = np.cumsum(random.exponential(1.0, number) / load.requests_per_s)
        steps = np.arange(number) * request_s  # one after another: seen[i] = max(arrived[i], seen[i - 1]) + request_s
        seen = arrived if endless else np.maximum.accumulate(arrived - steps) + steps + request_s
        asked = np.arange(number) % load.models if endless else random.integers(load.models, size=number)
        return [_Queue(arrived[asked == model], seen[asked == model]) for model in range(load.models)], number

    def run(self) -> Outcome:
        self._look()
        self._clock.run(lambda: self._progress < 1.0)
        assert self._warm is not None
        use = self._cluster.used(self._warm)
        # A client of parties elsewhere splits and joins its own rows, beside all others.
        client_s = self._costs.measured.caller.of(self._load.rows) if self._client is None else 0.0
        latencies_s = np.concatenate(self._latencies) + client_s
        return Outcome(sum(self._sizes) / use.passed_s, latencies_s, fmean(self._sizes), use)

    @property
    def _progress(self) -> float:
        return max(self._answered / self._requests, self._ended / self._batches)

    def _look(self) -> None:
        """Have free pairs take what waits; if nothing does, look again when something will."""
        while self._free:
            model = min(range(len(self._queues)), key=lambda index: self._queues[index].oldest_s)
            oldest_s, now = self._queues[model].oldest_s, self._clock.now
            if oldest_s > now:
                if oldest_s < self._wakes_s:
                    self._wakes_s = oldest_s
                    self._clock.after(oldest_s - now, self._wake)
                return
            pair, arrived = self._free.popleft(), self._queues[model].take(now, self._most)
            pair.note("idle", now)
            self._ask(arrived, partial(self._execute, pair, model, arrived))

    def _wake(self) -> None:
        self._wakes_s = inf
        self._look()

    def _ask(self, arrived: Array, go_on: Action) -> None:
        """What the one client of a machine does with these requests before they are sent, and again with the answers:
        half of its work, which is measured as a whole."""
        if self._client is None:
            go_on()
        else:
            self._client.do(self._costs.measured.caller.of(len(arrived) * self._load.rows) / 2, go_on)

    def _execute(self, pair: Pair, model: int, arrived: Array) -> None:
        pair.note("client", self._clock.now)
        rows = len(arrived) * self._load.rows
        ended = partial(self._ask, arrived, partial(self._end, pair, arrived))
        self._cluster.execute(pair, pair.pools[model], rows, rows, ended)

    def _end(self, pair: Pair, arrived: Array) -> None:
        pair.note("client", self._clock.now)
        self._answered += len(arrived)
        self._ended += 1
        if self._warm is not None:
            self._latencies.append(self._clock.now - arrived)
            self._sizes.append(len(arrived) * self._load.rows)
        elif self._progress > WARM_UP:
            self._warm = self._cluster.read()
        self._free.append(pair)
        self._look()
