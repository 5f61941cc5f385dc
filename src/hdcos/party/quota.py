"""How many rows of each model this party has helped to answer, for all clients together, and how many it will.

Security  answers tell a party that is also a client a little about hidden activations, the more of them the more
          (docs/security.md). Each party counts for itself and refuses what is too much: no client and no other party
          can make it answer more. Rows are set aside on disk in blocks before the first of them is answered, so that a
          crash can only count too many. New versions, new masks and forgetting a model do not change what was learnt
          of its weights: the count belongs to the name, and the operator alone resets it (`hdcos quota MODEL --reset`).
          Rows that are predicted to validate a training job are rows like others.
"""

from __future__ import annotations

from collections import Counter
from threading import Lock

from hdcos.errors import PolicyRefused
from hdcos.party.store import Store
from hdcos.secure import CompiledNetwork
from hdcos.secure.answers import stated_queries

BLOCK, LEAST_BLOCKS = 1024, 16
"""Rows that are set aside on disk at once, and a quota's least number of such blocks: what a crash leaves of a block
counts as answered."""


PART = 1000
"""Of the queries that an attack takes, as docs/security.md states them, this part is answered by default."""


def allowed_queries(chosen: CompiledNetwork, configured: int) -> int:
    """How many rows of a model are answered: what the operator says, or a part of what is stated for its network."""
    return configured or max(1, int(stated_queries(chosen)) // PART)


class Quota:
    """The counts of one party. Any thread may use it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._left: Counter[str] = Counter()
        """Rows that are set aside on disk and not answered yet."""
        self._lock = Lock()

    def covers(self, model: str, rows: int) -> bool:
        """Whether `take` needs no disk."""
        return self._left[model] >= rows

    def take(self, model: str, rows: int, allowed: int) -> None:
        """Count rows that are about to be answered; PolicyRefused if they are more than is allowed in all."""
        with self._lock:
            missing = rows - self._left[model]
            if missing > 0:
                block = min(BLOCK, allowed // LEAST_BLOCKS)
                self._left[model] += self._store.set_aside(model, max(missing, block), allowed)
            if self._left[model] < rows:
                raise PolicyRefused(
                    f"{self._used(model)} of the {allowed} rows that this party answers for {model} are "
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
                self._store.set_aside(model, -rows)
            self._left.clear()
