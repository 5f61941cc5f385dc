"""A party's material of one scope: filled in the offline phase, spent once.

Security  executions are handed out in order and counted as used *before* their first field is read; an
          execution that fails on the way is burnt, never handed out again. Chunks must arrive in order and
          whole: a repeated or skipped one is MaterialReused, not a wrong number.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property, lru_cache
from threading import Condition

import numpy as np

from hdcos.errors import FrameError, HdcosError, InputError, MaterialExhausted, MaterialReused, PeerLost
from hdcos.offline.flat import Places
from hdcos.offline.material import Fields, Kind, Plan, Precompute, Sharing, Slot
from hdcos.offline.recorded import Recorded
from hdcos.offline.shares import SIZES_KEPT, Corrections, FieldShares, field_stream
from hdcos.ring import Array
from hdcos.ring.device import Device, empty_beside, guarded

SLAB_BYTES, DEVICE_SLAB_BYTES = 1 << 26, 1 << 30
"""Material lies in pieces of about this size, so that a batch is nearly always one piece and needs no copy."""


class _Slab:
    """Room for consecutive executions: per position the fields of all their units."""

    def __init__(self, plan: Plan, like: list[Fields], executions: int, capacity: int) -> None:
        self.capacity, self.filled, self.spent = capacity, 0, 0
        self.positions: list[Fields] = like
        self.whole: tuple[Places, Array] | None = None
        """All of it in one piece, if it lies so."""
        if capacity > executions:
            self.positions = [
                tuple(empty_beside((capacity * need.units, *field.shape[1:]), field) for field in fields)
                for need, fields in zip(plan.needs, like, strict=True)
            ]
            self.add(plan, like, executions)
        else:
            self.filled = executions

    def add(self, plan: Plan, positions: list[Fields], executions: int) -> None:
        for need, mine, new in zip(plan.needs, self.positions, positions, strict=True):
            first, last = self.filled * need.units, (self.filled + executions) * need.units
            for target, source in zip(mine, new, strict=True):
                target[first:last] = source
        self.filled += executions


class MaterialPool:
    """Material of one scope at one party."""

    def __init__(
        self,
        name: str,
        plan: Plan,
        rank: int,
        root: bytes,
        precomputes: Mapping[int, Precompute] | None = None,
        singly: bool = False,
        device: Device | None = None,
    ) -> None:
        self.name, self.plan, self.rank, self._singly, self.device = name, plan, rank, singly, device
        self._root, self.precomputes = root, precomputes or {}
        self.corrections = lru_cache(SIZES_KEPT)(lambda executions: Corrections(plan, executions, rank))
        self._slabs: deque[_Slab] = deque()
        self._filled = self._used = self._ordered = 0
        self._failure: HdcosError | None = None
        self._changed = Condition()
        self._recorded = None if device is None or not singly else Recorded(device, self._join_one)

    @property
    def available(self) -> int:
        """Executions ready to be spent."""
        return self._filled - self._used

    @property
    def filled(self) -> int:
        """Executions that arrived since the scope was opened."""
        return self._filled

    @property
    def expected(self) -> int:
        """Executions that arrived or are on their way."""
        return max(self._ordered, self._filled)

    @property
    def used(self) -> int:
        """Executions handed out since the scope was opened, burnt ones included."""
        return self._used

    def order(self, executions: int) -> None:
        """Note that more executions are on their way, so that `begin` may wait for them."""
        if executions < 0:
            raise InputError(f"{self.name}: {executions} executions cannot be ordered")
        with self._changed:
            self._ordered = max(self._ordered, self._filled) + executions
            self._failure = None

    def room(self, size: int) -> Array:
        """Memory for this many bytes of material that `fill` is given next: where it wants them, if it knows that."""
        if self.device is None:
            return np.empty(size, np.uint8)
        found = None if self._recorded is None else self._recorded.room(1, size)
        return self.device.room(size) if found is None else found

    def fill(self, start: int, executions: int, corrections: Array | None) -> None:
        """Expand executions [start, start + executions); a party brings what the dealer sent it, if anything."""
        if start != self._filled or executions < 1:
            raise MaterialReused(
                f"{self.name}: {executions} executions from {start} arrived, next expected is {self._filled}"
            )
        received = np.empty(0, np.uint8)
        if self.rank == 1 or self.plan.common:
            try:
                received = self.corrections(executions).check(received if corrections is None else corrections)
            except FrameError as error:
                raise FrameError(f"{self.name}: {error}") from None
        with guarded(self.device):
            self._take_in(start, executions, received)

    def _take_in(self, start: int, executions: int, received: Array) -> None:
        """Expand executions and put them behind the others."""
        if self._recorded is not None and executions == 1:  # many at once hide what it takes to launch them
            whole = self._recorded(np.array([start], np.uint64), received).copy()
            self._settle()
            slab = _Slab(self.plan, self._places_in_one.cut(whole), 1, 1)
            slab.whole = self._places_in_one, whole
            with self._changed:
                self._slabs.append(slab)
                self._filled += 1
                self._changed.notify_all()
        else:
            self._keep(self._expand(start, received, executions), executions)

    def _expand(self, start: int | Array, received: Array, executions: int) -> list[Fields]:
        """The fields of each position, as they are."""
        fields = self._shares.expand(start, executions)
        if self.rank == 1 or self.plan.common:
            fields += self.corrections(executions).unpack(received, self.device)
        return [tuple([fields[place] for place in places]) for places in self._places]

    def _join_one(self, start: Array, received: Array) -> Array:
        """One execution in one piece, as a device records it."""
        positions = self._precompute(self._expand(start, received, 1))
        self._places_in_one = Places(positions)
        return self._places_in_one.join(positions)

    def _precompute(self, fields: Sequence[Fields]) -> list[Fields]:
        """Do what can be done before an input comes."""
        positions: list[Fields] = []
        for position, mine in enumerate(fields):
            precompute = self.precomputes.get(position)
            positions.append(precompute(mine, positions.__getitem__) if precompute else mine)
        return positions

    def _settle(self) -> None:
        """Others than this thread will compute with what it made."""
        if self.device is not None:
            self.device.settle()

    def _keep(self, fields: Sequence[Fields], executions: int) -> None:
        """Put executions behind the others."""
        positions = self._precompute(fields)
        with self._changed:
            self._store(positions, executions)
            self._settle()  # storing copies, too
            self._filled += executions
            self._changed.notify_all()

    def _store(self, positions: list[Fields], executions: int) -> None:
        """Into the last slab if they fit, else into a new one."""
        if self._slabs and self._slabs[-1].capacity - self._slabs[-1].filled >= executions:
            self._slabs[-1].add(self.plan, positions, executions)
            return
        size = sum(field.nbytes for fields in positions for field in fields) / executions
        # Executions that are spent one by one may lie as they came.
        coming = executions if self._singly else max(executions, self._ordered - self._filled)
        most = SLAB_BYTES if self.device is None else DEVICE_SLAB_BYTES
        room = executions if size == 0 else int(most // size)
        capacity = max(executions, min(coming, room))
        if self.precomputes and capacity == executions:
            # A field that lies as it came would keep the memory of all others, which were made into something else.
            positions = [
                tuple(field if field.base is None else field.copy() for field in fields) for fields in positions
            ]
        self._slabs.append(_Slab(self.plan, positions, executions, capacity))

    def uniform(self, position: int, start: int, executions: int) -> Array:
        """This party's share of a uniform field of executions [start, start + executions), dealt or not."""
        need = self.plan.needs[position]
        item = need.kind.fields()[0]
        # A stream of its own: those that `fill` reads on belong to the thread that fills.
        stream = field_stream(self._root, position, item.name)
        return stream.words((executions * need.units, *item.shape), item.bits, start * need.units * item.size)

    def fail(self, error: HdcosError) -> None:
        """No more material will come: those who wait, or begin later, get the reason."""
        with self._changed:
            self._failure = error
            self._ordered = self._filled
            self._changed.notify_all()

    def begin(self, executions: int, start: int | None = None, timeout_s: float = 30.0) -> Allocation:
        """Set executions [start, start + executions) aside, counted as used from now on.

        `start` is what both parties agreed on; executions before it that were never begun here are burnt, and
        one that lies before the next unused execution is MaterialReused. Ordered material is waited for.
        """
        with self._changed:
            first = self._used if start is None else start
            self._check(first, executions)
            wanted = first + executions
            if self._filled < wanted <= self._ordered:
                self._changed.wait_for(lambda: self._filled >= wanted or self._failure is not None, timeout_s)
            if self._filled < wanted:
                if self._failure is None and wanted <= self._ordered:
                    raise PeerLost(f"no material for {self.name} came from the dealer within {timeout_s:g} s")
                raise self._failure or self._explain_exhausted(executions)
            self._pop(first - self._used)
            self._used = wanted
            taken = self._pop(executions)
            pieces = [_cut(self.plan, *piece) for piece in taken]
        whole = taken[0][0].whole if len(taken) == 1 else None
        return Allocation(self.plan, executions, pieces, self.precomputes, self.device, whole)

    def check(self, start: int, executions: int) -> None:
        """Raise what `begin` would raise at once, without beginning."""
        with self._changed:
            self._check(start, executions)

    def _check(self, start: int, executions: int) -> None:
        if executions < 1:
            raise InputError(f"{self.name}: {executions} executions cannot be begun")
        if start < self._used:
            raise MaterialReused(f"{self.name}: execution {start} asked for, {self._used} are used already")
        if start + executions > self.expected:
            raise self._failure or self._explain_exhausted(executions)

    def _explain_exhausted(self, executions: int) -> MaterialExhausted:
        return MaterialExhausted(
            f"{executions} executions of {self.name} needed, {self.available} available.\n"
            f"Call `prepare` for more before running."
        )

    def _pop(self, executions: int) -> list[tuple[_Slab, int, int]]:
        pieces = []
        while executions:
            slab = self._slabs[0]
            count = min(executions, slab.filled - slab.spent)
            if count:
                pieces.append((slab, slab.spent, count))
            slab.spent += count
            executions -= count
            # The last slab may still be filled; an earlier one with room left will not be.
            if slab.spent == slab.filled and (slab.filled == slab.capacity or len(self._slabs) > 1):
                self._slabs.popleft()
        return pieces

    @cached_property
    def _shares(self) -> FieldShares:
        """What this party expands: party 0 its shares of all fields, party 1 those that no dealer sends."""
        return FieldShares(self._root, self._expanded, self.device)

    @cached_property
    def _expanded(self) -> tuple[Slot, ...]:
        if self.rank == 1:
            return self.plan.uniform
        return tuple(slot for slot in self.plan.slots if slot.field.sharing is not Sharing.COMMON)

    @cached_property
    def _places(self) -> list[list[int]]:
        """Where the fields of each position are among those expanded and received."""
        order = (*self._expanded, *self.plan.sent(self.rank))
        known = {(slot.position, slot.field.name): place for place, slot in enumerate(order)}
        return [
            [known[position, item.name] for item in need.kind.fields()] for position, need in enumerate(self.plan.needs)
        ]


class Allocation:
    """The material set aside for one piece of work; each position is taken once, in order."""

    def __init__(
        self,
        plan: Plan,
        executions: int,
        pieces: list[list[Fields]],
        precomputed: Collection[int] = (),
        device: Device | None = None,
        whole: tuple[Places, Array] | None = None,
    ) -> None:
        self.device, self.whole = device, whole
        """Where the material lies, if not in the memory of this machine; all of it in one piece, if it lies so."""
        self._plan, self._executions, self._pieces, self._precomputed = plan, executions, pieces, precomputed
        self._taken: list[Fields] = []

    @property
    def pieces(self) -> list[list[Fields]]:
        """The material as it lies, piece by piece, position by position."""
        return self._pieces

    @property
    def position(self) -> int:
        """How many positions were taken."""
        return len(self._taken)

    def take(self, kind: Kind, units: int, precompute: Precompute | None = None) -> Fields:
        """All fields of the next position, leading axis `units`, or what `precompute` makes of them.

        That was done when the material arrived, if the pool was told; else it is done now.
        """
        position, needs = len(self._taken), self._plan.needs
        if position >= len(needs):
            raise MaterialReused(f"the plan has {len(needs)} positions and all are taken")
        need = needs[position]
        if need.units * self._executions != units or need.kind != kind:
            raise MaterialReused(
                f"position {position} of the plan is {need.units * self._executions} x {need.kind}, "
                f"not {units} x {kind}"
            )
        fields = self._pieces[0][position]
        if len(self._pieces) > 1:
            parts = (piece[position] for piece in self._pieces)
            fields = tuple(np.concatenate(field) for field in zip(*parts, strict=True))
        if precompute is not None and position not in self._precomputed:
            fields = precompute(fields, self._taken.__getitem__)
        self._taken.append(fields)
        return fields

    def peek(self, position: int) -> Fields:
        """The fields of a position that was not taken yet, if they lie in one piece."""
        (piece,) = self._pieces
        return piece[position]

    def mirror(self, positions: list[Fields]) -> Allocation:
        """The same, of fields that lie somewhere else."""
        return Allocation(self._plan, self._executions, [positions], self._precomputed, self.device)

    def finish(self) -> None:
        """Check that nothing was left over."""
        if self.position != len(self._plan.needs):
            raise MaterialReused(f"only {self.position} of {len(self._plan.needs)} planned positions were taken")


def _cut(plan: Plan, slab: _Slab, first: int, count: int) -> list[Fields]:
    if count == slab.capacity:
        return slab.positions
    return [
        tuple(array[first * need.units : (first + count) * need.units] for array in fields)
        for need, fields in zip(plan.needs, slab.positions, strict=True)
    ]
