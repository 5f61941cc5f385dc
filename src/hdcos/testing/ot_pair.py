"""Both parties in one thread, with no network: for tests and measurements, never for secrets.

`Pair.deal` stands in for a dealer in simulations. `wrong` compares joined material with what each kind says of itself.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any

import numpy as np

from hdcos.errors import HandshakeError, InputError
from hdcos.generators import lockstep
from hdcos.offline.kinds import FusedTrig, GrowingTrig, TrigPair
from hdcos.offline.lifted_kinds import LiftedTimesTrig
from hdcos.offline.material import Field, Fields, Kind, Need, Plan, Precompute, Values
from hdcos.offline.ot.chunk import make_chunk
from hdcos.offline.ot.estimate import chunks, mask_kind
from hdcos.offline.ot.pool import OtPool
from hdcos.offline.ot.session import Session
from hdcos.offline.ot.source import run
from hdcos.offline.ot.terms import Rounds
from hdcos.offline.ot.wire import Sent, Talk, padded
from hdcos.offline.pool import Allocation
from hdcos.ring import Array, modulo, spread

_numbers: Iterator[int] = count()


def trig_units(scale: int) -> float:
    """How far a cosine or sine may be off, in units of its scale: rounding, and what the tables at scale 30 are off."""
    return float(1.5 + 6 * 2.0 ** (scale - 28))


def in_lockstep(zero: Talk[Any], one: Talk[Any]) -> tuple[Any, Any]:
    """The results of both sides of an exchange."""

    def exchange(*sent: Sent) -> list[Array]:
        texts = [b"".join(bytes(memoryview(buffer).cast("B")) for buffer in padded(*each)) for each in sent]
        if len(texts[0]) != len(texts[1]):
            raise HandshakeError("the two sides do not mean the same exchange")
        return [np.frombuffer(bytearray(text), np.uint8) for text in reversed(texts)]

    return lockstep((zero, one), exchange)


class Pair:
    """Two sessions that make material against each other."""

    def __init__(self) -> None:
        name = os.urandom(32)
        self.sessions = in_lockstep(Session.setup(0, name), Session.setup(1, name))
        self._stocks: dict[str, tuple[OtPool, OtPool]] = {}

    def fill(
        self, plan: Plan, executions: int, name: str, finishes: Sequence[Mapping[int, Precompute]] = ({}, {})
    ) -> tuple[OtPool, OtPool]:
        """Both parties' stocks of a new scope, filled."""
        stocks = tuple(OtPool(name, plan, rank, finishes[rank]) for rank in (0, 1))
        self._stocks[name] = (stocks[0], stocks[1])
        others = {known: pair[0].plan for known, pair in self._stocks.items()}
        start = 0
        for size in chunks(plan, executions, others):
            talks = [run(self.sessions[rank], self._maker(stocks[rank], start, size, others)) for rank in (0, 1)]
            for stock, made in zip(stocks, in_lockstep(talks[0], talks[1]), strict=True):
                stock.keep(start, size, made)
            start += size
        return stocks[0], stocks[1]

    def deal(
        self,
        material: Plan,
        dealer: None = None,
        name: str | None = None,
        finishes: Sequence[Mapping[int, Precompute]] = ({}, {}),
        executions: int = 1,
    ) -> tuple[Allocation, Allocation]:
        """Both parties' material for one piece of work, like `protocol.simulate.deal`."""
        stocks = self.fill(material, executions, name or f"pair {next(_numbers)}", finishes)
        return stocks[0].begin(executions), stocks[1].begin(executions)

    def _maker(self, stock: OtPool, start: int, size: int, others: Mapping[str, Plan]) -> Rounds[list[Fields]]:
        def draw(position: int, item: Field) -> Array:
            return stock.own(position, item, start, size)

        def scope(name: str, position: int) -> tuple[Kind, Array]:
            return mask_kind(others, name, position), self._stocks[name][stock.rank].uniform(position, 0, 1)

        return make_chunk(stock.rank, stock.plan, size, draw, scope)


def joined(plan: Plan, rations: Sequence[Allocation], executions: int = 1) -> list[Values]:
    """The plain fields of every position, by name."""
    plain: list[Values] = []
    for need in plan.needs:
        shares = [ration.take(need.kind, need.units * executions) for ration in rations]
        plain.append(
            {
                item.name: modulo(zero.astype(np.uint64) + one.astype(np.uint64), item.bits)
                for item, zero, one in zip(need.kind.fields(), *shares, strict=True)
            }
        )
    for ration in rations:
        ration.finish()
    return plain


def wrong(plan: Plan, values: Sequence[Values], executions: int = 1, others: Mapping[str, Values] | None = None) -> int:
    """How many numbers of joined material are not what they must be; `others` has the masks of other scopes."""
    return sum(wrong_fields(plan, values, executions, others).values())


def wrong_fields(
    plan: Plan, values: Sequence[Values], executions: int = 1, others: Mapping[str, Values] | None = None
) -> dict[str, int]:
    """The same by position and field."""
    found: dict[str, int] = {}
    for position, need in enumerate(plan.needs):
        expected = dict(_derived(plan, need, values[position], values, executions, others or {}))
        for item in need.kind.fields():
            if not item.dealt:
                continue
            dealt, exact = values[position][item.name], modulo(expected[item.name], item.bits)
            if isinstance(need.kind, TrigPair | FusedTrig | GrowingTrig) and item.name in ("cos", "sin"):
                units = np.uint64(trig_units(need.kind.scale))
                off = modulo(dealt - exact + units, item.bits) > 2 * units
            elif isinstance(need.kind, LiftedTimesTrig) and item.name.startswith("integer_weight"):
                # Rounded by each party for itself.
                off = modulo(dealt - exact + np.uint64(1), item.bits) > 2
            else:
                off = dealt != exact
            found[f"{position} {need.kind.name} {item.name}"] = int(off.sum())
    return found


def _derived(
    plan: Plan, need: Need, mine: Values, values: Sequence[Values], executions: int, others: Mapping[str, Values]
) -> Values:
    kind = need.kind
    uniform = {item.name: mine[item.name] for item in kind.fields() if not item.dealt}
    referred = []
    for ref in kind.references():
        known = others[ref.scope] if ref.scope else values[ref.position]
        if ref.scope:
            known = {name: array[0] for name, array in ref.part(known).items()}
        elif ref.whole and not ref.rows:
            if plan.needs[ref.position].units != 1:
                raise InputError("a whole unit is one per execution")
            known = ref.part(known)
            known = {name: np.repeat(array, need.units, axis=0) for name, array in known.items()}
            if executions == 1:
                known = {name: array[0] for name, array in known.items()}
        referred.append(known)
    compact: Values = {
        item.name: uniform[item.name].astype(_phase_dtype(kind, item)) for item in kind.fields() if not item.dealt
    }
    derived = dict(kind.derive(compact, *referred))
    # Products with a cosine are exact products of the cosine that was made, which is rounded by chance.
    if isinstance(kind, FusedTrig):
        weight = spread(referred[0]["mask"].astype(np.uint64), kind.pool)
        derived |= {f"weight_{name}": weight * mine[name] for name in ("cos", "sin")}
    if isinstance(kind, GrowingTrig):
        m = mine["mask"]
        for name in ("cos", "sin"):
            derived |= {f"mask_{name}": m * mine[name], f"top_{name}": (m >> np.uint64(kind.bits - 1)) * mine[name]}
    return derived


def _phase_dtype(kind: Kind, item: Field) -> type:
    """Phases are looked up in their compact type."""
    if isinstance(kind, TrigPair | FusedTrig | GrowingTrig) and item.bits <= 32:
        return np.uint16 if item.bits <= 16 else np.uint32
    return np.uint64
