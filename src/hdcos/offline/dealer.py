"""The dealer: makes correlated randomness for two parties and sees nothing else.

Computes  for each scope two root seeds, one per party; for each dealt field the correction
          value - (party 0's share), which is party 1's share; common fields as they are, for both parties.
Security  the dealer draws the masks itself, from the operating system, before any input exists; it receives
          plans (shapes and kinds), never an opened value. A party sees its own root and its own shares, which
          are uniform, and common words of keys, which look random to who has one key alone. A third root feeds the
          coins that dithered cosines are rounded by, bits that nobody knows and public keys of ciphers: it leaves the
          dealer in no form but the rounded values, shares of these bits, and these keys. A node with both roots, or one
          root and the opened values, knows everything: hence the dealer must not collude with a party or read the link
          between the parties.

A scope can be opened once by each party, and executions are dealt in order; a skipped one is MaterialReused.
An execution may be asked for again, after a connection broke, and is then the same bytes again: that it is
spent once is the pool's business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from threading import Lock

import numpy as np

from hdcos.errors import DataMissing, HandshakeError, InputError, MaterialReused
from hdcos.offline import limits
from hdcos.offline.material import Kind, Plan, Reference, Sharing, Slot, Values, own_names
from hdcos.offline.recorded import Recorded
from hdcos.offline.shares import SIZES_KEPT, Corrections, FieldShares
from hdcos.ring import Array, modulo
from hdcos.ring.device import Device, contiguous, empty_of_bytes, guarded, to_host
from hdcos.sharing import fresh_seed

REMEMBERED = 1 << 16
"""Names of scopes that are refused if they come again. Those of real clusters are random and never do."""

MOST_OPEN = 1 << 20
"""Positions of the plans of all open scopes, one more for each scope."""

MOST_NAME = 512
"""Characters of the name of a scope: it is remembered when the scope is closed."""


@dataclass
class _Scope:
    plan: Plan
    device: Device | None = field(default=None, repr=False)
    roots: tuple[bytes, bytes] = field(default_factory=lambda: (fresh_seed(), fresh_seed()), repr=False)
    coins_root: bytes = field(default_factory=fresh_seed, repr=False)
    """What the dealer rounds by; no party ever has it."""
    opened: set[int] = field(default_factory=set)
    closed: set[int] = field(default_factory=set)
    dealt: list[int] = field(default_factory=lambda: [0, 0])
    """Executions that each party was sent."""
    recorded: dict[int, Recorded] = field(default_factory=dict, repr=False)
    """What a device makes for a party of one execution."""
    lock: Lock = field(default_factory=Lock, repr=False)
    """FieldShares may read streams that go on where they ended: one thread at a time."""

    def __post_init__(self) -> None:
        plan = self.plan
        self._firsts: dict[int, _Streams] = {}
        self.corrections = lru_cache(2 * SIZES_KEPT)(lambda executions, rank: Corrections(plan, executions, rank))

    @cached_property
    def streams(self) -> tuple[_Streams, _Streams]:
        """What the fields that each party is sent are derived from."""
        zero, one = (_Streams(self, self.plan.behind(self.plan.sent(rank))) for rank in (0, 1))
        return zero, one

    @cached_property
    def dealt_shares(self) -> FieldShares:
        """Party 0's shares of what is dealt."""
        shared = [slot for slot in self.plan.corrected if slot.field.sharing is not Sharing.COMMON]
        return FieldShares(self.roots[0], shared, self.device)

    def first(self, position: int) -> Values:
        """The uniform fields and coins of one position in the first execution."""
        if position not in self._firsts:
            self._firsts[position] = _Streams(self, frozenset({position}))
        return self._firsts[position].read(0, 1)[position]


class _Streams:
    """The uniform fields of some positions of a scope, and the coins that they are rounded by."""

    def __init__(self, scope: _Scope, positions: frozenset[int]) -> None:
        self._number, self.positions = len(scope.plan.needs), positions
        self._uniform, self._coins = (
            [slot for slot in slots if slot.position in positions] for slots in (scope.plan.uniform, scope.plan.coins)
        )
        self._shares = [FieldShares(root, self._uniform, scope.device) for root in scope.roots]
        self._drawn = FieldShares(scope.coins_root, self._coins, scope.device)

    def read(self, start: int | Array, executions: int) -> list[Values]:
        """Position by position; those that nothing is derived from are empty."""
        values: list[dict[str, Array]] = [{} for _ in range(self._number)]
        expanded = (shares.expand(start, executions) for shares in self._shares)
        for slot, joined in zip(self._uniform, _join(self._uniform, *expanded), strict=True):
            values[slot.position].update(joined)
        if self._coins:
            for slot, drawn in zip(self._coins, self._drawn.expand(start, executions), strict=True):
                values[slot.position][slot.field.name] = drawn
        return list(values)


def _join(slots: Sequence[Slot], zero: list[Array], one: list[Array]) -> Iterator[list[tuple[str, Array]]]:
    """What both parties' shares of each field mean, by name, in the memory of the first; own words are two fields."""
    for slot, total, other in zip(slots, zero, one, strict=True):
        item = slot.field
        if item.sharing is Sharing.OWN:
            yield list(zip(own_names(item.name), (total, other), strict=True))
            continue
        if item.sharing is Sharing.XOR:
            total ^= other
        else:
            total += other
        yield [(item.name, modulo(total, item.bits))]


class Dealer:
    """Deals material for any number of scopes, on a device if it has one; one object serves both parties'
    connections."""

    def __init__(self, device: Device | None = None) -> None:
        self._device = device
        self._scopes: dict[str, _Scope] = {}
        self._forgotten: dict[str, None] = {}
        self._lock = Lock()

    def open(self, name: str, plan: Plan, rank: int) -> bytes:
        """Party `rank`'s root seed for a new scope; both parties must bring the same plan."""
        if len(name) > MOST_NAME:
            raise InputError(f"the name of a scope has at most {MOST_NAME} characters, this one {len(name)}")
        with self._lock:
            if name in self._forgotten:
                raise MaterialReused(f"the material of {name} was opened and closed before: start a new attempt")
            limits.check(plan, lambda other: self._find(other).plan)
            taken = sum(1 + len(known.plan.needs) for known in self._scopes.values())
            if name not in self._scopes and taken > MOST_OPEN:
                raise InputError(f"{len(self._scopes)} scopes are open, more than a dealer keeps: close some first")
            scope = self._scopes.setdefault(name, _Scope(plan, self._device))
            if scope.plan.fingerprint != plan.fingerprint:
                raise HandshakeError(
                    f"the parties planned different material for {name}: "
                    f"{scope.plan.fingerprint.hex()[:12]} and {plan.fingerprint.hex()[:12]}"
                )
            if rank in scope.opened:
                raise MaterialReused(f"party {rank} has opened the material of {name} before: start a new attempt")
            scope.opened.add(rank)
        return scope.roots[rank]

    def close(self, name: str, rank: int) -> None:
        """A party has done with a scope; when both have, it is forgotten."""
        with self._lock:
            scope = self._scopes.get(name)
            if scope is None:
                return
            scope.closed.add(rank)
            if scope.closed >= scope.opened:
                del self._scopes[name]
                self._forgotten[name] = None
                if len(self._forgotten) > REMEMBERED:
                    del self._forgotten[next(iter(self._forgotten))]

    def chunks(self, name: str, start: int, executions: int, rank: int = 1) -> Iterator[Array]:
        """What `deal` gives a party for executions [start, start + executions), chunk by chunk."""
        if executions < 1:
            raise InputError(f"{name}: {executions} executions cannot be dealt")
        with self._lock:
            plan = self._find(name).plan
        if not plan.sent(rank):
            reason = "only party 1 is sent corrections: party 0 expands all its shares" if plan.corrected else "none is"
            raise InputError(f"{name}: nothing of this material is dealt to party {rank}; {reason}")
        for count in plan.chunks(executions):
            yield self.deal(name, start, count, rank)
            start += count

    def deal(self, name: str, start: int, executions: int, rank: int = 1) -> Array:
        """What a party is sent for executions [start, start + executions), packed.

        Party 1 its shares of every dealt field, both parties what is common. What only party 1 needs is not made for
        party 0.
        """
        with self._lock:
            scope = self._find(name)
            if executions < 1 or executions * scope.plan.execution_bytes > limits.MOST_DEALT_BYTES:
                raise InputError(f"{name}: {executions} executions cannot be dealt at once: ask for fewer")
            if start > scope.dealt[rank]:
                raise MaterialReused(f"{name}: executions from {start} asked for, next to deal is {scope.dealt[rank]}")
            scope.dealt[rank] = max(scope.dealt[rank], start + executions)
        with scope.lock, guarded(scope.device):
            if not scope.plan.sent(rank):
                return np.empty(0, np.uint8)
            if scope.device is None or executions > 1:  # many at once hide what it takes to launch them
                return to_host(self._pack(scope, name, start, executions, rank))
            if rank not in scope.recorded:
                pack = partial(self._pack, scope, name, executions=executions, rank=rank)
                scope.recorded[rank] = Recorded(scope.device, pack)
            return to_host(scope.recorded[rank](np.array([start], np.uint64)))

    def _pack(self, scope: _Scope, name: str, start: int | Array, executions: int, rank: int) -> Array:
        slots, streams = scope.plan.sent(rank), scope.streams[rank]
        values: list[Values] = []
        for position, uniform in enumerate(streams.read(start, executions)):
            wanted = position in streams.positions
            values.append(self._plain(scope, position, executions, uniform, values) if wanted else {})
        shared: list[Array] = []
        common: list[Array] = []
        for slot in slots:
            value = values[slot.position][slot.field.name]
            if value.shape != slot.shape(executions):
                raise InputError(f"{name}: position {slot.position} does not have the shape it states")
            (common if slot.field.sharing is Sharing.COMMON else shared).append(
                contiguous(value.astype(np.uint64, copy=False))
            )
        corrections = scope.corrections(executions, rank)
        if shared:
            packed = scope.dealt_shares.rest(shared, start, executions, corrections)
        else:
            packed = empty_of_bytes(corrections.size, common[0])
        corrections.put_common(packed, scope.plan.common, common)
        return packed

    def _find(self, name: str) -> _Scope:
        scope = self._scopes.get(name)
        if scope is None:
            raise DataMissing(f"no material is open under the name {name}")
        return scope

    def _plain(self, scope: _Scope, position: int, executions: int, uniform: Values, known: Sequence[Values]) -> Values:
        """The plain values of one position, all fields, from its uniform ones and earlier positions."""
        need = scope.plan.needs[position]
        references = need.kind.references()
        referred = [refer(reference, need.units, executions, known, self._first) for reference in references]
        if executions > 1 and any(reference.rows for reference in references):
            return {**uniform, **_one_by_one(need.kind, executions, uniform, referred)}
        return {**uniform, **need.kind.derive(uniform, *referred)}

    def _first(self, name: str, position: int) -> Values:
        scope = self._find(name)
        return self._plain(scope, position, 1, scope.first(position), ())


def refer(
    reference: Reference, units: int, executions: int, known: Sequence[Values], first: Callable[[str, int], Values]
) -> Values:
    """The values that a reference of `units` units means; `first` has those of the first unit of another scope.

    That it can be met was checked when the scope was opened.
    """
    if reference.scope:
        values = reference.part(first(reference.scope, reference.position))
        return {name: array[0] for name, array in values.items()}
    if reference.whole and not reference.rows:
        values = reference.part(known[reference.position])
        if executions == 1:
            return {name: array[0] for name, array in values.items()}
        return {name: np.repeat(array, units, axis=0) for name, array in values.items()}
    return known[reference.position]


def _one_by_one(kind: Kind, executions: int, uniform: Values, referred: Sequence[Values]) -> Values:
    """The dealt fields of a kind that sums over the rows of each execution."""

    def part(values: Values, number: int) -> Values:
        return {
            name: array.reshape(executions, len(array) // executions, *array.shape[1:])[number]
            for name, array in values.items()
        }

    made = [
        kind.derive(part(uniform, number), *(part(values, number) for values in referred))
        for number in range(executions)
    ]
    return {name: np.concatenate([each[name] for each in made]) for name in made[0]}
