"""Statistics of several owners' rows at one party: shares that are added, and a total that all of them are told.

A tally begins with the first owner who contributes: its name, how many owners there will be, which clients they are if
they are named, and the digest of what they agreed to sum. Who comes later must say the same. It is complete when as
many have contributed; each of these may then ask for this party's share of the total. Everything is in memory alone,
and gone after FORGET_S of silence: a preparation is made while its owners wait for it.

Security  this party sees one additive share of each owner's numbers (`sharing.wide`), which is uniform, and learns who
          contributed, when, and how many numbers. It gives nothing away but the sum over all owners, at least two, each
          of them another client and none twice; and only to those who contributed. So no contribution is told alone.
          Without named clients anybody who may upload, knows the name and has the same declaration can be one of the
          owners: owners who do not know one another by their clients' names should name them.
          Owners give an id along with their share, the same at both parties, and compare what the two parties list
          before they ask for either share of the total: sums over different contributions are never put together.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Lock

from hdcos.api.answers import Tally
from hdcos.errors import DataMissing, InputError, PolicyRefused
from hdcos.ring import Array
from hdcos.sharing.wide import add_wide, check_wide

LEAST_OWNERS, MOST_OWNERS = 2, 1000
MOST_NUMBERS = 1 << 16
MOST_TALLIES = 16
"""That one client has a part in."""
WAITING = "`hdcos prepare ... --collect` waits for the others, --withdraw takes it back, for another attempt"
MOST_BYTES = 1 << 28
"""Of all shares that wait here for other owners', and totals: a client alone could fill 67 MB, and clients are many."""
FORGET_S = 3600.0
"""After which a tally that nobody asked for is gone."""


@dataclass(frozen=True)
class Agreement:
    """What all owners of a tally must say alike."""

    digest: str
    """Of the declaration of columns."""
    numbers: int
    owners: int
    clients: tuple[str, ...] = ()
    """Who they are, if that is agreed."""

    def __post_init__(self) -> None:
        if not LEAST_OWNERS <= self.owners <= MOST_OWNERS:
            raise InputError(
                f"statistics are those of {LEAST_OWNERS} to {MOST_OWNERS} owners, not of {self.owners}: one owner's "
                f"would be told alone"
            )
        if not 1 <= self.numbers <= MOST_NUMBERS:
            raise InputError(f"a tally has 1 to {MOST_NUMBERS} numbers, not {self.numbers}")
        if self.clients and (len(set(self.clients)) != self.owners or len(self.clients) != self.owners):
            raise InputError(f"{self.owners} owners cannot be the clients {list(self.clients)}")

    @property
    def who(self) -> str:
        """For people."""
        return f"{self.owners} owners" + (f" ({', '.join(self.clients)})" if self.clients else "")


@dataclass
class _Open:
    """One tally."""

    agreement: Agreement
    ids: dict[str, str] = field(default_factory=dict)
    shares: dict[str, Array] = field(default_factory=dict, repr=False)
    """By client."""
    total: Array | None = field(default=None, repr=False)
    told: bool = False
    """Whether an owner has this party's share of the total."""
    asked: float = field(default_factory=time.monotonic)

    @property
    def complete(self) -> bool:
        return len(self.ids) == self.agreement.owners

    @property
    def bytes(self) -> int:
        return sum(share.nbytes for share in self.shares.values()) + (0 if self.total is None else self.total.nbytes)


class Tallies:
    """All tallies of one party. Any thread may use it."""

    def __init__(self) -> None:
        self._open: dict[str, _Open] = {}
        self._lock = Lock()

    @property
    def bytes(self) -> int:
        """That all of them take."""
        return sum(tally.bytes for tally in self._open.values())

    def contribute(self, name: str, client: str, number: str, agreement: Agreement, words: Array | None) -> Tally:
        """Add an owner's share. The same may be sent twice, in case the answer got lost; another may not."""
        words = check_wide(words, agreement.numbers)
        with self._lock:
            self._forget_old()
            found = self._open.get(name)
            if (found is None or client not in found.ids) and self.bytes + words.nbytes > MOST_BYTES:
                raise PolicyRefused(f"statistics of {self.bytes} bytes wait here, {MOST_BYTES} may: try again later")
            if found is None:
                if sum(client in tally.ids for tally in self._open.values()) >= MOST_TALLIES:
                    raise PolicyRefused(f"{client} has a part in {MOST_TALLIES} tallies: wait, or withdraw from some")
                self._check_named(name, client, agreement)
                found = self._open[name] = _Open(agreement)
            elif found.ids.get(client) != number:
                self._check_fits(name, client, found, agreement)
            if client not in found.ids:
                found.ids[client], found.shares[client] = number, words.copy()
            found.asked = time.monotonic()
            return self._describe(name, found)

    @staticmethod
    def _check_named(name: str, client: str, agreement: Agreement) -> None:
        if agreement.clients and client not in agreement.clients:
            raise PolicyRefused(f"{client} is none of the owners who are named for {name!r}: agree on who contributes")

    def _check_fits(self, name: str, client: str, found: _Open, agreement: Agreement) -> None:
        """Refuse an owner who came already, is not one of them, or means something else."""
        begun = next(iter(found.ids), "an owner")
        self._check_named(name, client, found.agreement)
        if client in found.ids:
            raise PolicyRefused(
                f"{client} has contributed to {name!r} already: "
                + ("collect its totals (--collect), or choose another name" if found.complete else WAITING)
            )
        if found.complete:
            raise PolicyRefused(f"{name!r} is complete with {list(found.ids)}: agree on another name to prepare again")
        known = found.agreement
        if (known.digest, known.numbers) != (agreement.digest, agreement.numbers):
            raise InputError(
                f"{begun} began {name!r} with another declaration of columns than that of {client}: use the same "
                f"[columns] section, then contribute again"
            )
        if (known.owners, sorted(known.clients)) != (agreement.owners, sorted(agreement.clients)):
            raise InputError(
                f"{begun} began {name!r} for {known.who}, {client} says {agreement.who}: agree on their number and "
                f"names (--owners, --client)"
            )

    def look(self, name: str, client: str) -> Tally:
        """How a tally stands, for an owner who contributed."""
        with self._lock:
            return self._describe(name, self._own(name, client))

    def take(self, name: str, client: str) -> tuple[Tally, Array]:
        """This party's share of the total, for an owner who contributed, when all have."""
        with self._lock:
            found = self._own(name, client)
            if not found.complete:
                raise PolicyRefused(
                    f"{len(found.ids)} of {found.agreement.owners} owners have contributed to {name!r}: until all "
                    f"have, there is no total that could be told"
                )
            if found.total is None:
                found.total = add_wide(found.shares.values())
                found.shares.clear()
            found.told = True
            return self._describe(name, found), found.total

    def withdraw(self, name: str, client: str) -> None:
        """Take an owner's share back, as long as nobody was told a total that it is part of."""
        with self._lock:
            found = self._own(name, client)
            if found.told:
                raise PolicyRefused(f"the totals of {name!r} have been told: nothing can be withdrawn any more")
            del found.ids[client], found.shares[client]
            if not found.ids:
                del self._open[name]

    def _own(self, name: str, client: str) -> _Open:
        self._forget_old()
        found = self._open.get(name)
        if found is None or client not in found.ids:
            raise DataMissing(f"{client} has no part in statistics named {name!r}: never begun, or forgotten")
        found.asked = time.monotonic()
        return found

    def _forget_old(self) -> None:
        now = time.monotonic()
        for name in [name for name, found in self._open.items() if now - found.asked > FORGET_S]:
            del self._open[name]

    @staticmethod
    def _describe(name: str, found: _Open) -> Tally:
        owners: Sequence[str] = sorted(found.ids)
        return {
            "name": name,
            "owners": found.agreement.owners,
            "contributed": list(owners),
            "ids": [found.ids[owner] for owner in owners],
            "complete": found.complete,
        }
