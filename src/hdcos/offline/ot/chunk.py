"""All material of some executions of a plan, every position as soon as what it refers to is made; and what that takes.

Positions that do not wait for each other share rounds: a chunk takes as many rounds of products as the longest chain of
references, not as many as it has positions. Both parties run the same schedule, because it follows from the plan alone.

What it takes is known before anything is made: the generators themselves, driven over shapes. Traffic is payload and
counts both directions; it is what the meters of the two parties will show, to the byte.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial

from hdcos.errors import InputError
from hdcos.generators import advance, drive
from hdcos.offline.kinds import Mask
from hdcos.offline.material import Field, Fields, Kind, Plan, Reference
from hdcos.offline.ot.kinds import Referred, Shares, make
from hdcos.offline.ot.product import Product, exchanges
from hdcos.offline.ot.terms import OtParty, Rounds
from hdcos.ring import Array, Blank, compact_dtype

CHUNK_BYTES = 1 << 26
"""Executions are made together as long as they take about this much traffic."""

Draw = Callable[[int, Field], Array]
"""This party's own random numbers of a position: all units of a field."""
Scope = Callable[[str, int], tuple[Kind, Array]]
"""The mask of the first unit of a position of another scope: its kind and this party's share."""


def make_chunk(rank: int, plan: Plan, executions: int, draw: Draw, scope: Scope) -> Rounds[list[Fields]]:
    """This party's shares of all fields, position by position, with executions * units rows each."""
    made: dict[int, Shares] = {}
    waiting = list(range(len(plan.needs)))
    running: dict[int, Rounds[Shares]] = {}
    answers: dict[int, list[Array] | None] = {}
    while True:
        wanted: dict[int, list[Product]] = {}
        while True:
            for position, answer in answers.items():
                for products in advance(running[position], answer, partial(made.__setitem__, position)):
                    wanted[position] = products
            # What just became complete may let others begin, in this very round.
            begun = [position for position in waiting if _ready(plan, position, made)]
            if not begun:
                break
            for position in begun:
                waiting.remove(position)
                running[position] = _begin(rank, plan, position, executions, draw, scope, made)
            answers = dict.fromkeys(begun)
        if not wanted:
            break
        results = yield [product for products in wanted.values() for product in products]
        answers = {}
        for position, products in wanted.items():
            answers[position], results = results[: len(products)], results[len(products) :]
    if waiting:
        raise InputError(f"position {waiting[0]} of a plan refers to itself or to a later one")
    return [tuple(made[position][item.name] for item in need.kind.fields()) for position, need in enumerate(plan.needs)]


def _ready(plan: Plan, position: int, made: dict[int, Shares]) -> bool:
    return all(ref.scope or ref.position in made for ref in plan.needs[position].kind.references())


def _begin(
    rank: int, plan: Plan, position: int, executions: int, draw: Draw, scope: Scope, made: dict[int, Shares]
) -> Rounds[Shares]:
    """The generator of one position, with everything it needs."""
    need = plan.needs[position]

    def own(name: str, shape: tuple[int, ...], bits: int) -> Array:
        return draw(position, Field(name, shape[1:], bits))

    mine = {item.name: draw(position, item) for item in need.kind.uniform()}
    referred = [_refer(ref, plan, need.units, executions, made, scope) for ref in need.kind.references()]
    return make(OtParty(rank, own), need.kind, mine, *referred)


def _refer(
    reference: Reference, plan: Plan, units: int, executions: int, made: dict[int, Shares], scope: Scope
) -> Referred:
    """Shares of a referred unit, with one row per unit that refers to it, or fewer that serve several each."""
    if reference.scope:
        kind, mask = scope(reference.scope, reference.position)
        return Referred(kind, reference.part({"mask": mask}))
    need = plan.needs[reference.position]
    if reference.rows and executions != 1:
        raise InputError("material that sums over rows is made one execution at a time")
    serves = reference.rows or (need.units == 1 if reference.whole else need.units == units)
    if not serves:
        raise InputError(f"{units} units refer to position {reference.position}, which has {need.units} per execution")
    return Referred(
        need.kind, reference.part(made[reference.position]) if reference.whole else made[reference.position]
    )


@dataclass(frozen=True)
class Traffic:
    """Payload bytes of both directions together, exchanges one after the other, and transfers."""

    bytes: int = 0
    exchanges: int = 0
    transfers: int = 0

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(self.bytes + other.bytes, self.exchanges + other.exchanges, self.transfers + other.transfers)


def rounds(plan: Plan, executions: int, others: Mapping[str, Plan]) -> list[list[Product]]:
    """The products of each round of one chunk, of which only shapes are known."""
    made: list[list[Product]] = []

    def draw(position: int, item: Field) -> Array:
        units = plan.needs[position].units * executions
        return Blank((units, *item.shape), compact_dtype(item.bits))  # type: ignore[return-value]

    def scope(name: str, position: int) -> tuple[Kind, Array]:
        kind = mask_kind(others, name, position)
        return kind, Blank((1, *kind.shape), compact_dtype(kind.bits))  # type: ignore[return-value]

    def answer(products: list[Product]) -> list[Array]:
        made.append(products)
        return [Blank((product.sums, product.length)) for product in products]  # type: ignore[misc]

    drive(make_chunk(0, plan, executions, draw, scope), answer)
    return made


def mask_kind(others: Mapping[str, Plan], name: str, position: int) -> Mask:
    """The mask that a reference to another scope means."""
    if name not in others or position >= len(others[name].needs):
        raise InputError(f"no material is open under the name {name}, which other material refers to")
    kind = others[name].needs[position].kind
    if not isinstance(kind, Mask):
        raise InputError(f"material of other scopes may refer to masks, not to {kind.name}")
    return kind


def scopes_of(plan: Plan) -> set[str]:
    """The other scopes that a plan refers to."""
    return {ref.scope for need in plan.needs for ref in need.kind.references() if ref.scope}


@lru_cache(256)
def _chunk(plan: Plan, executions: int, others: tuple[tuple[str, Plan], ...]) -> Traffic:
    total = Traffic()
    for products in rounds(plan, executions, dict(others)):
        sizes = list(exchanges(products))
        transfers = sum(product.count * product.levels for product in products)
        total += Traffic(2 * sum(sizes), len(sizes), transfers)
    return total


def chunk_traffic(plan: Plan, executions: int, others: Mapping[str, Plan]) -> Traffic:
    """One chunk; `others` are the plans of the scopes it refers to."""
    return _chunk(plan, executions, tuple((name, others[name]) for name in sorted(scopes_of(plan) & others.keys())))


def chunks(plan: Plan, executions: int, others: Mapping[str, Plan]) -> Iterator[int]:
    """How many executions are made at a time."""
    summed = any(ref.rows for need in plan.needs for ref in need.kind.references())
    step = 1 if plan.one_by_one or summed else max(1, CHUNK_BYTES // max(1, chunk_traffic(plan, 1, others).bytes))
    while executions > 0:
        yield min(step, executions)
        executions -= step


def traffic(plan: Plan, executions: int = 1, others: Mapping[str, Plan] | None = None) -> Traffic:
    """Some executions, chunk by chunk; `others` are the plans of the scopes they refer to."""
    known = others or {}
    return sum((chunk_traffic(plan, count, known) for count in chunks(plan, executions, known)), Traffic())
