"""A model that a further pair has open, and how far the material of its scopes is ordered, used and on record."""

from __future__ import annotations

from dataclasses import dataclass, field

from hdcos.party.allotment import LEDGER_BLOCK
from hdcos.party.store import Store
from hdcos.party.worker import labels_scope


@dataclass
class Spending:
    """How many executions of one scope are used, ordered and on record, from its beginning on."""

    scope: str
    used: int = 0
    ordered: int = 0
    reserved: int = 0
    """Those that the ledger knows of."""

    def take(self, rows: int, least: int, more: int) -> tuple[int, int]:
        """The first of as many that nobody used yet, and how far material is wanted; `more` where fewer than `least`
        would be left."""
        start, self.used = self.used, self.used + rows
        if self.ordered - self.used < least:
            self.ordered = self.used + more
        return start, self.ordered

    def reserve(self, store: Store, end: int) -> None:
        """Have the ledger know of those before `end`, before they are used."""
        if end > self.reserved:
            count = max(LEDGER_BLOCK, end - self.reserved)
            store.reserve(self.scope, self.reserved, count)
            self.reserved += count


@dataclass
class OpenModel:
    """A model that a pair has open. Material for `ahead` rows is kept available, that of labels made when asked for."""

    version: str
    scope: str
    ahead: int
    rows: Spending = field(init=False)
    labels: Spending = field(init=False)

    def __post_init__(self) -> None:
        self.rows = Spending(self.scope, ordered=self.ahead)
        self.labels = Spending(labels_scope(self.scope))
