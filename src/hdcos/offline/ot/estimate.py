"""What making material takes, before anything is made: the makers themselves, driven over shapes.

Traffic is payload and counts both directions; it is what the meters of the two parties will show, to the byte.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from hdcos.errors import InputError
from hdcos.generators import drive
from hdcos.offline.kinds import Mask
from hdcos.offline.material import Field, Kind, Plan
from hdcos.offline.ot.chunk import make_chunk
from hdcos.offline.ot.product import Product, exchanges
from hdcos.ring import Array, Blank, compact_dtype

CHUNK_BYTES = 1 << 26
"""Executions are made so many at a time that they take about this much traffic."""


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
    """So many executions, chunk by chunk; `others` are the plans of the scopes they refer to."""
    known = others or {}
    return sum((chunk_traffic(plan, count, known) for count in chunks(plan, executions, known)), Traffic())
