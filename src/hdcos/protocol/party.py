"""One party's view of a computation: who it is, and where its material comes from.

A protocol's first argument. It holds no connection: talking is a `yield`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from hdcos.offline import Kind, Reference
from hdcos.offline.material import Fields, Finish
from hdcos.ring import Array
from hdcos.sharing import Public, Share


class Source(Protocol):
    """Hands out material in the order it was planned."""

    @property
    def position(self) -> int:
        """How many positions of the plan were taken so far."""
        ...

    def take(self, kind: Kind, units: int, finish: Finish | None = None) -> Fields:
        """All fields of the next position, leading axis `units`, or what `finish` makes of them."""
        ...


class Clear(Protocol):
    """Opens values of a computation that has no peer and no masks."""

    def opened(self, x: Any, mask: Array, drop: int, bits: int, within: int | None, periodic: bool) -> Array:
        """x / 2**drop + mask, rounded; modulo 2**bits if it is a phase."""
        ...


@dataclass(frozen=True)
class Party:
    """Party 0 or party 1, with its material."""

    rank: int
    source: Source
    clear: Clear | None = None
    """Set for a computation in the clear: what stands in for openings."""

    def take(self, kind: Kind, rows: int, finish: Finish | None = None) -> Fields:
        """One unit per row; the fields keep the rows as their leading axis.

        With `finish`, what it makes of the fields: it is called when the material arrives, before any input does.
        """
        return self.source.take(kind, rows, finish)

    def take_one(self, kind: Kind) -> Fields:
        """A single unit for the whole execution."""
        return tuple([field[0] for field in self.source.take(kind, 1)])

    def next_reference(self, *, whole: bool = False) -> Reference:
        """The address of the unit that the next `take` returns."""
        return Reference.of(self.source.position, whole)

    def constant(self, public: Public) -> Share:
        """A public value as a share: party 0 holds it, party 1 holds zero."""
        words = public.words if self.rank == 0 else np.zeros((), np.uint64)
        return Share(words, public.scale)
