"""All material of some executions of a plan, every position as soon as what it refers to is made.

Positions that do not wait for each other share rounds: a chunk takes as many rounds of products as the longest chain of
references, not as many as it has positions. Both parties run the same schedule, because it follows from the plan alone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from hdcos.errors import InputError
from hdcos.generators import advance
from hdcos.offline.material import Field, Fields, Kind, Plan, Reference
from hdcos.offline.ot.kinds import Shares, Unit, make
from hdcos.offline.ot.product import Product
from hdcos.offline.ot.terms import Maker, Rounds
from hdcos.ring import Array

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
                running[position] = _begun(rank, plan, position, executions, draw, scope, made)
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


def _begun(
    rank: int, plan: Plan, position: int, executions: int, draw: Draw, scope: Scope, made: dict[int, Shares]
) -> Rounds[Shares]:
    """The maker of one position, with everything it needs."""
    need = plan.needs[position]

    def own(name: str, shape: tuple[int, ...], bits: int) -> Array:
        return draw(position, Field(name, shape[1:], bits))

    mine = {item.name: draw(position, item) for item in need.kind.fields() if not item.dealt}
    referred = [_referred(ref, plan, need.units, executions, made, scope) for ref in need.kind.references()]
    return make(Maker(rank, own), need.kind, mine, *referred)


def _referred(
    reference: Reference, plan: Plan, units: int, executions: int, made: dict[int, Shares], scope: Scope
) -> Unit:
    """Shares of a referred unit, with one row per unit that refers to it, or fewer that serve several each."""
    if reference.scope:
        kind, mask = scope(reference.scope, reference.position)
        return Unit(kind, reference.part({"mask": mask}))
    need = plan.needs[reference.position]
    if reference.rows and executions != 1:
        raise InputError("material that sums over rows is made one execution at a time")
    serves = reference.rows or (need.units == 1 if reference.whole else need.units == units)
    if not serves:
        raise InputError(f"{units} units refer to position {reference.position}, which has {need.units} per execution")
    return Unit(need.kind, reference.part(made[reference.position]) if reference.whole else made[reference.position])
