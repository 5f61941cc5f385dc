"""How much one plan may ask of a dealer, told from the plan alone, before anything is made.

Plans come from parties over the network. Each kind of material checks its own numbers; here the positions of a plan are
checked against each other, and what they take is added up: memory, and time in multiplications.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING

from hdcos.errors import InputError, ModelError

if TYPE_CHECKING:
    from hdcos.offline.material import Need, Plan, Reference

MOST_POSITIONS = 10_000
MOST_BYTES = 3 << 30
"""In memory at once while one execution is dealt."""
MOST_MULTIPLICATIONS = 1 << 33
"""To deal one execution: some seconds of one core."""
MOST_DEALT_BYTES = 1 << 28
"""Sent for one execution, or for several that are dealt together."""
AT_ONCE_BYTES = 1 << 28
"""In memory at once while several executions are dealt together."""

Scopes = Callable[[str], "Plan"]
"""The plan of another scope that is open."""


def check_count(records: Sequence[object]) -> None:
    if len(records) > MOST_POSITIONS:
        raise InputError(f"a plan has at most {MOST_POSITIONS} positions, this one {len(records)}")


def check(plan: Plan, scopes: Scopes | None = None) -> None:
    """InputError unless all references fit and one execution can be dealt; without `scopes`, within the plan alone."""
    for position, need in enumerate(plan.needs):
        _check_rows(plan, position, need)
        for reference, wanted in zip(need.kind.references(), need.kind.wanted(), strict=True):
            _check_reference(plan, position, need, reference, wanted, scopes)
        masks = [mask_shape(plan, reference, scopes) for reference in need.kind.references()]
        known = [shape for shape in masks if shape is not None]
        if len(known) == len(masks) and not need.kind.fits(*known):
            raise InputError(f"position {position}: masks of shapes {known} do not make up {need.kind.name} material")
    if plan.execution_bytes > MOST_DEALT_BYTES:
        raise InputError(
            f"this takes {plan.execution_bytes / 1e6:.0f} MB of material at once, a dealer makes at most "
            f"{MOST_DEALT_BYTES / 1e6:.0f}: use a smaller network or batch"
        )
    work = plan.work
    if 8 * work.words > MOST_BYTES or work.multiplications > MOST_MULTIPLICATIONS:
        raise InputError(
            f"to deal one execution takes {8 * work.words / 1e6:.0f} MB and {work.multiplications / 1e6:.0f} million "
            f"multiplications, a dealer allows {MOST_BYTES / 1e6:.0f} and {MOST_MULTIPLICATIONS / 1e6:.0f}: "
            f"use a smaller network or batch"
        )


def check_source(plan: Plan, has_dealer: bool) -> None:
    """ModelError if a plan has material that two parties cannot make by themselves, and there is nobody else."""
    needed = sorted({need.kind.name for need in plan.needs if need.kind.dealer_only})
    if needed and not has_dealer:
        raise ModelError(
            f"comparisons take {', '.join(needed)} material, which two parties cannot make by themselves: "
            f"start a dealer with `hdcos dealer`, or use functions and layers that do not compare, such as cos"
        )


def at_once(plan: Plan) -> int:
    """Executions that may be dealt together."""
    work = plan.work
    return min(AT_ONCE_BYTES // max(1, 8 * work.words), MOST_MULTIPLICATIONS // max(1, work.multiplications))


def mask_shape(plan: Plan, reference: Reference, scopes: Scopes | None = None) -> tuple[int, ...] | None:
    """The shape of the mask that a reference means; None if it is in another scope and those are not known."""
    if reference.scope and scopes is None:
        return None
    if reference.shape is not None:
        return reference.shape
    place = scopes(reference.scope) if reference.scope and scopes is not None else plan
    return _mask(place, reference)


def _mask(plan: Plan, reference: Reference) -> tuple[int, ...]:
    for item in plan.needs[reference.position].kind.fields():
        if item.name == "mask":
            return item.shape
    raise InputError(f"material refers to position {reference.position}, which has no mask")


def _check_rows(plan: Plan, position: int, need: Need) -> None:
    """A sum over rows is one unit, of as many rows of each factor; everything else is made unit by unit."""
    references = need.kind.references()
    if any(reference.rows != need.kind.over_rows for reference in references):
        which = "all rows of what it refers to" if need.kind.over_rows else "one unit after the other, not all rows"
        raise InputError(f"position {position}: {need.kind.name} material is made of {which}")
    if not need.kind.over_rows:
        return
    known = [each.position for each in references if not each.scope and each.position < position]
    if len(known) < len(references) or need.units != 1 or len({plan.needs[place].units for place in known}) > 1:
        raise InputError(
            f"position {position}: {need.kind.name} material is one unit for each execution, of the same rows of "
            f"earlier positions"
        )


def _check_reference(
    plan: Plan, position: int, need: Need, reference: Reference, wanted: Sequence[str], scopes: Scopes | None
) -> None:
    if reference.scope:
        if scopes is None:
            return
        other = scopes(reference.scope)
        if reference.position >= len(other.needs) or other.needs[reference.position].kind.references():
            raise InputError(f"position {position} refers to {reference.position} of a scope that has no mask there")
        plan = other
    elif reference.position >= position:
        raise InputError(f"material refers to position {reference.position}, which comes later")
    elif not reference.rows:
        theirs = plan.needs[reference.position].units
        if theirs != (1 if reference.whole else need.units):
            raise InputError(
                f"{need.units} units refer to position {reference.position}, which has {theirs} per execution"
            )
    there = {item.name: item.shape for item in plan.needs[reference.position].kind.fields()}
    if any(there.get(name) != _mask(plan, reference) for name in wanted):
        raise InputError(f"position {position} takes {', '.join(wanted)} of {reference.position}, which has no such")
    if reference.shape is not None:
        end = reference.start + prod(reference.shape)
        if end > prod(_mask(plan, reference)):
            raise InputError(f"material refers to elements {reference.start} to {end} of position {reference.position}")
