"""The dealer: makes correlated randomness for two parties and sees nothing else.

Computes  for each scope two root seeds, one per party; for each dealt field the correction
          value - (party 0's half), which is party 1's half.
Security  the dealer draws the masks itself, from the operating system, before any input exists; it receives
          plans (shapes and kinds), never an opened value. A party sees its own root and its own halves, which
          are uniform. Whoever holds both roots, or one root and the opened values, knows everything: hence
          the dealer must not collude with a party or read the link between the parties.

A scope can be opened once by each party, and executions are dealt in order; a skipped one is MaterialReused.
An execution may be asked for again, after a connection broke, and is then the same bytes again: that it is
spent once is the stock's business.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Lock

import numpy as np

from hdcos.errors import HandshakeError, InputError, MaterialReused
from hdcos.offline.material import Field, Kind, Plan, Reference, Values
from hdcos.ring import Array, pack
from hdcos.sharing import Stream, derive, fresh_seed

MAX_DEAL_BYTES = 1 << 28
REMEMBERED = 1 << 16
"""Names of scopes that are refused if they come again. Those of real clusters are random and never do."""


def field_stream(root: bytes, position: int, name: str) -> Stream:
    """The stream that one party's halves of one field of one position come from."""
    return Stream(derive(root, position, name))


@dataclass
class _Scope:
    plan: Plan
    roots: tuple[bytes, bytes] = field(default_factory=lambda: (fresh_seed(), fresh_seed()), repr=False)
    opened: set[int] = field(default_factory=set)
    closed: set[int] = field(default_factory=set)
    dealt: int = 0
    lock: Lock = field(default_factory=Lock, repr=False)
    """Streams go on where they ended: one thread reads them at a time."""
    streams: dict[tuple[int, int, str], Stream] = field(default_factory=dict, repr=False)

    def expand(self, rank: int, position: int, item: Field, first: int, units: int) -> Array:
        """One party's half of a field of some units."""
        address = (rank, position, item.name)
        stream = self.streams.get(address)
        if stream is None:
            stream = self.streams[address] = field_stream(self.roots[rank], position, item.name)
        return stream.words((units, *item.shape), item.bits, first * item.size)


class Dealer:
    """Deals material for any number of scopes; one object serves both parties' connections."""

    def __init__(self) -> None:
        self._scopes: dict[str, _Scope] = {}
        self._forgotten: dict[str, None] = {}
        self._lock = Lock()

    def open(self, name: str, plan: Plan, rank: int) -> bytes:
        """Party `rank`'s root seed for a new scope; both parties must bring the same plan."""
        with self._lock:
            if name in self._forgotten:
                raise MaterialReused(f"the material of {name} was opened and closed before: start a new attempt")
            scope = self._scopes.setdefault(name, _Scope(plan))
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

    def deal(self, name: str, start: int, executions: int) -> list[Array]:
        """Party 1's halves of every dealt field for executions [start, start + executions), packed."""
        with self._lock:
            scope = self._known(name)
            if executions < 1 or scope.plan.packed_bytes(executions) > MAX_DEAL_BYTES:
                raise InputError(f"{name}: {executions} executions cannot be dealt at once: ask for fewer")
            if start > scope.dealt:
                raise MaterialReused(f"{name}: executions from {start} asked for, next to deal is {scope.dealt}")
            scope.dealt = max(scope.dealt, start + executions)
        with scope.lock:
            return self._parts(scope, name, start, executions)

    def _parts(self, scope: _Scope, name: str, start: int, executions: int) -> list[Array]:
        values: dict[int, Values] = {}
        parts: list[Array] = []
        for position, need in enumerate(scope.plan.needs):
            values[position] = self._plain(name, position, start, executions, values)
            first, units = start * need.units, executions * need.units
            for item in need.kind.fields():
                if values[position][item.name].shape != (units, *item.shape):
                    raise InputError(f"{name}: position {position} does not have the shape it states")
                if item.dealt:
                    half = scope.expand(0, position, item, first, units)
                    parts.append(pack(_rest(values[position][item.name], half, item.bits), item.bits))
        return parts

    def _known(self, name: str) -> _Scope:
        scope = self._scopes.get(name)
        if scope is None:
            raise InputError(f"no material is open under the name {name}")
        return scope

    def _plain(self, name: str, position: int, start: int, executions: int, known: dict[int, Values]) -> Values:
        """The plain values of one position, all fields."""
        scope = self._known(name)
        need = scope.plan.needs[position]
        units = executions * need.units
        uniform = {
            item.name: self._joined(scope, position, item, start * need.units, units)
            for item in need.kind.fields()
            if not item.dealt
        }
        referred = [
            self._referred(reference, need.units, executions, scope, known) for reference in need.kind.references()
        ]
        if executions > 1 and any(reference.rows for reference in need.kind.references()):
            return {**uniform, **_one_by_one(need.kind, executions, uniform, referred)}
        return {**uniform, **need.kind.derive(uniform, *referred)}

    @staticmethod
    def _joined(scope: _Scope, position: int, item: Field, first: int, units: int) -> Array:
        """A uniform field: the sum of both parties' halves."""
        total, other = (scope.expand(rank, position, item, first, units) for rank in (0, 1))
        total += other
        if item.bits < 8 * total.itemsize:
            total &= total.dtype.type((1 << item.bits) - 1)
        return total

    def _referred(
        self, reference: Reference, units: int, executions: int, scope: _Scope, known: dict[int, Values]
    ) -> Values:
        if reference.scope:
            with self._known(reference.scope).lock:
                other = self._plain(reference.scope, reference.position, 0, 1, {})
            return {name: array[0] for name, array in reference.part(other).items()}
        if reference.position not in known:
            raise InputError(f"material refers to position {reference.position}, which comes later")
        if reference.rows:
            return known[reference.position]
        theirs = scope.plan.needs[reference.position].units
        if reference.whole and theirs == 1:
            values = reference.part(known[reference.position])
            if executions == 1:
                return {name: array[0] for name, array in values.items()}
            return {name: np.repeat(array, units, axis=0) for name, array in values.items()}
        if reference.whole or theirs != units:
            raise InputError(f"{units} units refer to position {reference.position}, which has {theirs} per execution")
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


def _rest(values: Array, half: Array, bits: int) -> Array:
    """What is left of values for the other party, in the memory of the half."""
    if half.dtype == np.uint64:
        np.subtract(values, half, out=half)
    else:
        half = (values - half.astype(np.uint64)).astype(half.dtype)
    if bits < 8 * half.itemsize:
        np.bitwise_and(half, half.dtype.type((1 << bits) - 1), out=half)
    return half.ravel()
