"""A stock whose fields were made by the two parties, not expanded from a seed of a dealer's."""

from __future__ import annotations

from collections.abc import Mapping
from threading import TIMEOUT_MAX

from hdcos.errors import MaterialReused
from hdcos.offline.kinds import Mask
from hdcos.offline.material import Field, Fields, Plan, Precompute
from hdcos.offline.pool import Allocation, MaterialPool
from hdcos.offline.shares import field_stream
from hdcos.ring import Array, compact_dtype
from hdcos.sharing import Stream, fresh_seed


class OtPool(MaterialPool):
    """Material of one scope at one party, from a seed that nobody else has."""

    def __init__(
        self, name: str, plan: Plan, rank: int, finishes: Mapping[int, Precompute] | None = None, singly: bool = False
    ) -> None:
        super().__init__(name, plan, rank, fresh_seed(), finishes, singly)
        self._drawn: dict[tuple[int, str], Stream] = {}
        self._attempt = self._last = 0

    def own(self, position: int, item: Field, start: int, executions: int) -> Array:
        """This party's own random numbers for some executions: a share of a uniform field, or bits of a mask."""
        units = self.plan.needs[position].units
        address = (position, item.name)
        stream = self._drawn.get(address)
        if stream is None:
            # The shares of masks are what `uniform` gives; whatever is made is drawn anew after a failure.
            fixed = isinstance(self.plan.needs[position].kind, Mask)
            name = item.name if fixed else f"{item.name} of attempt {self._attempt}"
            stream = self._drawn[address] = field_stream(self._root, position, name)
        return stream.words((executions * units, *item.shape), item.bits, start * units * item.size)

    def discard(self) -> None:
        """Forget what was drawn for executions that were not kept."""
        self._attempt += 1
        self._drawn.clear()

    def fill(self, start: int, executions: int, corrections: Array | None) -> None:
        raise MaterialReused(f"{self.name}: this material is made by the parties, nothing of it comes from a dealer")

    def begin(self, executions: int, start: int | None = None, timeout_s: float = TIMEOUT_MAX) -> Allocation:
        """As in any stock, but what was ordered is waited for however long it takes.

        Making a step of a large network may take minutes; a peer that stops meanwhile is noticed by whoever fills.
        """
        return super().begin(executions, start, TIMEOUT_MAX)

    def keep(self, start: int, executions: int, made: list[Fields]) -> None:
        """Put executions [start, start + executions) into the stock, all fields of all positions."""
        if start != self._filled or executions < 1:
            raise MaterialReused(
                f"{self.name}: {executions} executions from {start} were made, next expected is {self._filled}"
            )
        positions: list[Fields] = []
        for position, (need, fields) in enumerate(zip(self.plan.needs, made, strict=True)):
            kept = tuple(
                share.astype(compact_dtype(item.bits), copy=False)
                for item, share in zip(need.kind.fields(), fields, strict=True)
            )
            finish = self._finishes.get(position)
            positions.append(finish(kept, positions.__getitem__) if finish else kept)
        with self._changed:
            self._store(positions, executions)
            self._filled += executions
            self._last = executions
            self._changed.notify_all()

    def retract(self, start: int) -> None:
        """Give up the last chunk, from `start` on: the peer lost the link before it could keep it."""
        with self._changed:
            count = self._filled - start
            slab = self._slabs[-1] if self._slabs else None
            if slab is None or count != self._last or start < self._used or slab.filled - slab.spent < count:
                known = f"{self._filled} executions were made here, of which {self._used} are used, and {start} there"
                raise MaterialReused(f"{self.name}: {known}")
            slab.filled -= count
            self._filled, self._last = start, 0
            self._ordered -= min(count, self._ordered)
        self.discard()
