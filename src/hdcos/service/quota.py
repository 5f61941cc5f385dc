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
from hdcos.service.store import Store

BLOCK = 1024
"""Rows that are set aside on disk at once: what a crash leaves of them counts as answered."""


class Quota:
    """The counts of one party. Any thread may use it."""

    def __init__(self, store: Store, most: int) -> None:
        self._store, self.most = store, most
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
                self._left[model] += self._store.set_aside(model, max(missing, BLOCK), self.most)
            if self._left[model] < rows:
                raise PolicyRefused(
                    f"{self._used(model)} of the {self.most} rows that this party answers for {model} are used up, "
                    f"{rows} more are too many. Its operator may raise [policy] queries_per_model, or allow as many "
                    f"again with `hdcos quota {model} --reset`"
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
                self._store.set_aside(model, -rows, self.most)
            self._left.clear()
