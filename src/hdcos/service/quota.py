"""How many rows of each model this party has helped to answer, for all clients together, and how many it will.

Security  answers tell a party that is also a client a little about hidden activations, the more of them the more
          (docs/security.md). Each party counts for itself and refuses what is too much: no client and no other party
          can make it answer more. Rows are set aside on disk in blocks before the first of them is answered, so that a
          crash can only count too many. New versions, new masks and forgetting a model do not change what was learnt
          of its weights: the count belongs to the name, and the operator alone resets it (`hdcos quota MODEL --reset`).
          Rows that are predicted to validate a training job are rows like others.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from threading import Lock

from hdcos.errors import HdcosError, PolicyRefused
from hdcos.nn import Sequential
from hdcos.nn.private import layout
from hdcos.nn.private.disclosure import MOST, stated_queries
from hdcos.service.store import Store

BLOCK = 1024
"""Rows that are set aside on disk at once: what a crash leaves of them counts as answered."""


PART = 1000
"""Of the queries that an attack takes, as docs/security.md states them, this part is answered by default."""


def allowed_queries(store: Store, configured: int, has_dealer: bool) -> Callable[[str], int]:
    """How many rows of a model are answered: what the operator says, or a part of what is stated for its network."""

    def allowed(model: str) -> int:
        known = store.models(model)
        if configured or not known:
            return configured or int(MOST) // PART
        return _default(json.dumps(known[-1].architecture), known[-1].phase_bits, has_dealer)

    return allowed


@lru_cache(256)
def _default(architecture: str, phase_bits: int, has_dealer: bool) -> int:
    try:
        chosen = layout(Sequential.outline(json.loads(architecture)), phase_bits, has_dealer)
    except HdcosError:
        return 1  # it will not load either
    return max(1, int(stated_queries(chosen)) // PART)


class Quota:
    """The counts of one party. Any thread may use it."""

    def __init__(self, store: Store, allowed: Callable[[str], int]) -> None:
        self._store, self.allowed = store, allowed
        self._left: Counter[str] = Counter()
        """Rows that are set aside on disk and not answered yet."""
        self._lock = Lock()

    def covers(self, model: str, rows: int) -> bool:
        """Whether `take` needs no disk."""
        return self._left[model] >= rows

    def take(self, model: str, rows: int) -> None:
        """Count rows that are about to be answered; PolicyRefused if they are too many."""
        with self._lock:
            missing = rows - self._left[model]
            if missing > 0:
                self._left[model] += self._store.set_aside(model, max(missing, BLOCK), self.allowed(model))
            if self._left[model] < rows:
                raise PolicyRefused(
                    f"{self._used(model)} of the {self.allowed(model)} rows that this party answers for {model} are "
                    f"used up, {rows} more are too many. Its operator may raise [policy] queries_per_model, or allow "
                    f"as many again with `hdcos quota {model} --reset`"
                )
            self._left[model] -= rows

    def give_back(self, model: str, rows: int) -> None:
        """Rows that were counted and never began to be computed."""
        with self._lock:
            self._left[model] += rows

    def used(self, model: str) -> int:
        with self._lock:
            return self._used(model)

    def _used(self, model: str) -> int:
        return max(0, self._store.queries(model) - self._left[model])

    def close(self) -> None:
        """In good order nothing is lost: what was set aside and not used is free again."""
        with self._lock:
            for model, rows in self._left.items():
                self._store.set_aside(model, -rows, self.allowed(model))
            self._left.clear()
