"""Both parties in one thread, with no network: for tests and measurements, never for secrets.

`Pair.deal` stands in for a dealer in simulations. `wrong` compares joined material with what each kind says of itself.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any

import numpy as np

from hdcos.errors import HandshakeError
from hdcos.generators import lockstep
from hdcos.offline.dealer import refer
from hdcos.offline.kinds import FusedTrig, GrowingTrig, Trig, weight_fields
from hdcos.offline.lifted_kinds import LiftedTimesTrig
from hdcos.offline.material import Field, Kind, Need, Plan, Precompute, Values
from hdcos.offline.ot.chunk import chunks
from hdcos.offline.ot.session import Sent, Session, Talk, pad
from hdcos.offline.ot.source import OtPool, run
from hdcos.offline.pool import Allocation
from hdcos.ring import Array, modulo

_numbers: Iterator[int] = count()


def trig_units(scale: int) -> float:
    """How far a cosine or sine may be off, in units of its scale: rounding, and what the tables at scale 30 are off."""
    return float(1.5 + 6 * 2.0 ** (scale - 28))


def in_lockstep(zero: Talk[Any], one: Talk[Any]) -> tuple[Any, Any]:
    """The results of both sides of an exchange."""

    def exchange(*sent: Sent) -> list[Array]:
        texts = [b"".join(bytes(memoryview(buffer).cast("B")) for buffer in pad(*each)) for each in sent]
        if len(texts[0]) != len(texts[1]):
            raise HandshakeError("the two sides do not mean the same exchange")
        return [np.frombuffer(bytearray(text), np.uint8) for text in reversed(texts)]

    return lockstep((zero, one), exchange)


class Pair:
    """Two sessions that make material against each other."""

    def __init__(self) -> None:
        name = os.urandom(32)
        self.sessions = in_lockstep(Session.setup(0, name), Session.setup(1, name))
        self._pools: tuple[dict[str, OtPool], dict[str, OtPool]] = ({}, {})

    def fill(
        self, plan: Plan, executions: int, name: str, precomputes: Sequence[Mapping[int, Precompute]] = ({}, {})
    ) -> tuple[OtPool, OtPool]:
        """Both parties' pools of a new scope, filled."""
        pools = [OtPool(name, plan, rank, precomputes[rank]) for rank in (0, 1)]
        for known, pool in zip(self._pools, pools, strict=True):
            known[name] = pool
        plans = {known: pool.plan for known, pool in self._pools[0].items()}
        start = 0
        for size in chunks(plan, executions, plans):
            talks = [run(self.sessions[rank], pools[rank].generate(start, size, self._pools[rank])) for rank in (0, 1)]
            for pool, made in zip(pools, in_lockstep(*talks), strict=True):
                pool.keep(start, size, made)
            start += size
        return pools[0], pools[1]

    def deal(
        self,
        material: Plan,
        dealer: None = None,
        name: str | None = None,
        precomputes: Sequence[Mapping[int, Precompute]] = ({}, {}),
        executions: int = 1,
    ) -> tuple[Allocation, Allocation]:
        """Both parties' material for one piece of work, like `pair.deal`."""
        pools = self.fill(material, executions, name or f"pair {next(_numbers)}", precomputes)
        return pools[0].begin(executions), pools[1].begin(executions)


def joined(plan: Plan, allocations: Sequence[Allocation], executions: int = 1) -> list[Values]:
    """The plain fields of every position, by name."""
    plain: list[Values] = []
    for need in plan.needs:
        shares = [allocation.take(need.kind, need.units * executions) for allocation in allocations]
        plain.append(
            {
                item.name: modulo(zero.astype(np.uint64) + one.astype(np.uint64), item.bits)
                for item, zero, one in zip(need.kind.fields(), *shares, strict=True)
            }
        )
    for allocation in allocations:
        allocation.finish()
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
        expected = _derive(need, values[position], values, executions, others or {})
        for item in need.kind.dealt():
            dealt, exact = values[position][item.name], modulo(expected[item.name], item.bits)
            if isinstance(need.kind, Trig) and item.name in ("cos", "sin"):
                units = np.uint64(trig_units(need.kind.scale))
                off = modulo(dealt - exact + units, item.bits) > 2 * units
            elif isinstance(need.kind, LiftedTimesTrig) and item.name.startswith("integer_weight"):
                # Rounded by each party for itself.
                off = modulo(dealt - exact + np.uint64(1), item.bits) > 2
            else:
                off = dealt != exact
            found[f"{position} {need.kind.name} {item.name}"] = int(off.sum())
    return found


def _derive(
    need: Need, mine: Values, values: Sequence[Values], executions: int, others: Mapping[str, Values]
) -> Values:
    """The dealt fields that follow from joined material."""
    kind = need.kind
    referred = [
        refer(reference, need.units, executions, values, lambda scope, position: others[scope])
        for reference in kind.references()
    ]
    compact: Values = {item.name: mine[item.name].astype(_phase_dtype(kind, item)) for item in kind.uniform()}
    derived = dict(kind.derive(compact, *referred))
    # Products with a cosine are exact products of the cosine that was made, which is rounded by chance.
    if isinstance(kind, FusedTrig):
        for term, weight in enumerate(kind.weights(referred[0]["mask"])):
            derived |= {
                made: weight * mine[name] for made, name in zip(weight_fields(term), ("cos", "sin"), strict=True)
            }
    if isinstance(kind, GrowingTrig):
        m = mine["mask"]
        for name in ("cos", "sin"):
            derived |= {f"mask_{name}": m * mine[name], f"top_{name}": (m >> np.uint64(kind.bits - 1)) * mine[name]}
    return derived


def _phase_dtype(kind: Kind, item: Field) -> type:
    """Phases are looked up in their compact type."""
    if isinstance(kind, Trig) and item.bits <= 32:
        return np.uint16 if item.bits <= 16 else np.uint32
    return np.uint64
