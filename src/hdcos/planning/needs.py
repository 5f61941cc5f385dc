"""What organisations need, and what limits them: for predictions and for training alike.

Of a large cluster a part is simulated, with its part of the load and of the lines. A smaller cluster waits longer, so
that errs on the safe side.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hdcos.errors import InputError
from hdcos.link import Emulation
from hdcos.planning.costs import Costs
from hdcos.planning.figures import NetworkFigures
from hdcos.planning.machines import Machines

SPARE = 0.3
"""The part of what a cluster could do that is left for bursts, restarts and machines that are a little slower."""
LARGEST = 16
"""Pairs that are simulated; of more of them a part is."""
WORD_BYTES = 8


@dataclass(frozen=True)
class Need:
    """What one organisation must have."""

    organisation: str
    workers: int
    cores: int
    memory_gb: float
    gbit_in: float
    gbit_out: float
    """Each second."""
    disk_gb: float = 0.0


def fewest(least: int, enough: int, holds: Callable[[int], bool]) -> int:
    """The smallest number of which something holds that holds of all larger ones, up to one of which it is known."""
    while least < enough:
        middle = (least + enough) // 2
        least, enough = (least, middle) if holds(middle) else (middle + 1, enough)
    return enough


def part_of(machines: Machines, part: float) -> Machines:
    return Machines(
        min(machines.pairs, LARGEST),
        max(1, int(machines.dealers * part)),
        max(1.0, machines.party_cores * part),
        max(1.0, machines.dealer_cores * part),
    )


def part_of_lines(network: Emulation, part: float) -> Emulation:
    return Emulation(network.rtt_ms, None if network.mbps is None else network.mbps * part)


def check_lines(network: Emulation, costs: Costs, wanted: float, what: str) -> None:
    """That the lines carry this many rows, or steps, a second."""
    if network.mbps is None:
        return
    for place, size in (("between the parties", costs.wire.row), ("from the dealer", costs.dealer_row)):
        if wanted * size * 8e-6 > network.mbps:
            raise InputError(
                f"{wanted:,.0f} {what} a second, with {SPARE:.0%} to spare, are {wanted * size * 8e-6:,.0f} Mbit/s on "
                f"the line {place}: it has {network.mbps:,.0f}"
            )


def name_limit(spent: dict[str, float], costs: Costs, pairs: int, dealers: int, network: Emulation) -> str:
    """What takes most of the time of pairs at full load; of material, who makes it wait."""
    names = {
        "work": "the processors of the parties",
        "rounds": "the round-trip time",
        "line": "the line between the parties",
        "adding": "adding the changes of all pairs",
        "material": "material",
    }
    most = max(names, key=spent.__getitem__)
    if most != "material":
        return names[most]
    line_s = 0.0 if network.mbps is None else pairs * costs.dealer_row * 8e-6 / network.mbps
    waits = {
        "the dealers": costs.measured.dealer.row * pairs / dealers,
        "unpacking material at party 1": costs.measured.material[1].row,
        "the line from the dealer": line_s,
    }
    return max(waits, key=waits.__getitem__)


def needs_of(
    figures: NetworkFigures,
    workers: int,
    dealers: int,
    cores: int,
    material_bytes: float,
    bytes_per_s: tuple[tuple[float, float], tuple[float, float], tuple[float, float]],
    disk_gb: float = 0.0,
) -> tuple[Need, ...]:
    """What both parties and the dealer's organisation must have, by the bytes that go into and out of each."""
    party_gb = (workers * figures.party_mb * 1e6 + material_bytes) / 1e9
    amounts = (
        ("party 0", workers, cores, party_gb, disk_gb),
        ("party 1", workers, cores, party_gb, disk_gb),
        ("dealer", dealers, dealers, dealers * figures.dealer_mb / 1e3, 0.0),
    )
    return tuple(
        Need(name, count, processors, memory_gb, into * 8e-9, out * 8e-9, kept_gb)
        for (name, count, processors, memory_gb, kept_gb), (into, out) in zip(amounts, bytes_per_s, strict=True)
    )
