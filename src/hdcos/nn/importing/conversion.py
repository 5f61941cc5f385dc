"""A network that was imported, and the report on it: what became of each part, and what it costs on shares."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from hdcos.errors import ModelError
from hdcos.nn.importing.build import REFUSED, Fate
from hdcos.nn.network import Network

HEADINGS = ("operation", "type", "result", "layer", "rounds", "online", "material", "note")
TEXTS = (0, 1, 2, 3, 7)
"""Columns that are no numbers."""


@dataclass(frozen=True)
class Price:
    """Of one row on shares with a dealer: rounds, bytes from each party to the other, bytes of material."""

    rounds: int = 0
    online_bytes: int = 0
    material_bytes: int = 0

    def __add__(self, other: Price) -> Price:
        return Price(
            self.rounds + other.rounds,
            self.online_bytes + other.online_bytes,
            self.material_bytes + other.material_bytes,
        )


@dataclass(frozen=True)
class Line:
    """One operation of the source, and the price of the layer that it became."""

    fate: Fate
    price: Price | None = None

    def cells(self) -> tuple[str, ...]:
        fate, price = self.fate, self.price
        note = f"{fate.note}: {fate.remedy}" if fate.remedy else fate.note
        layer = "" if fate.layer is None else str(fate.layer)
        numbers = ("", "", "") if price is None else tuple(f"{number:,}" for number in asdict(price).values())
        return (fate.name, fate.source, fate.verdict, layer, *numbers, note)


@dataclass(frozen=True)
class Report:
    """Every operation in the order of the source. Prices are of one row; of operations that become one layer, the first
    has its price."""

    lines: tuple[Line, ...]
    total: Price | None = None
    """None where something was refused."""
    obstacle: str = ""
    """Why the network, all of whose parts are known, cannot be computed on shares as it stands."""

    @property
    def refused(self) -> tuple[Fate, ...]:
        return tuple(line.fate for line in self.lines if line.fate.verdict == REFUSED)

    def cells(self) -> list[tuple[str, ...]]:
        """The table, with the sum below; `HEADINGS` are above it."""
        rows = [line.cells() for line in self.lines]
        if self.total is not None:
            rows.append(("total", "", "", "", *(f"{number:,}" for number in asdict(self.total).values()), ""))
        return rows

    def to_json(self) -> dict[str, Any]:
        lines = [
            {**asdict(line.fate), "price": None if line.price is None else asdict(line.price)} for line in self.lines
        ]
        total = None if self.total is None else asdict(self.total)
        return {"operations": lines, "total": total, "refused": len(self.refused), "obstacle": self.obstacle}

    def __str__(self) -> str:
        rows = [HEADINGS, *self.cells()]
        widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
        lines = [
            "  ".join(
                cell.ljust(width) if column in TEXTS else cell.rjust(width)
                for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in rows
        ]
        return "\n".join(lines + [f"It cannot be shared: {self.obstacle}"] * bool(self.obstacle))


@dataclass(frozen=True)
class Conversion:
    """What was read of a network, printing as a table."""

    network: Network | None = field(repr=False)
    """None where something was refused."""
    fates: tuple[Fate, ...]

    @property
    def model(self) -> Network:
        """The network; ModelError names everything that was refused."""
        if self.network is None:
            refused = [str(fate) for fate in self.fates if fate.verdict == REFUSED]
            raise ModelError("\n".join(refused))
        return self.network

    @cached_property
    def report(self) -> Report:
        """With the price of each layer, from the architecture alone: nothing runs."""
        if self.network is None:
            return Report(tuple(map(Line, self.fates)))
        try:
            prices = _prices(self.network)
        except ModelError as error:
            return Report(tuple(map(Line, self.fates)), obstacle=str(error))
        return Report(_priced(self.fates, prices), sum(prices.values(), Price()))

    def __str__(self) -> str:
        return str(self.report)


def _prices(model: Network) -> dict[int, Price]:
    """By the number of the layer."""
    from hdcos.secure.estimate import estimate

    prices: dict[int, Price] = {}
    for step in estimate(model):
        layer = int(step.name.split()[0])
        price = Price(step.online.rounds, step.online.bytes_sent, step.offline.bytes_sent)
        prices[layer] = prices.get(layer, Price()) + price
    return prices


def _priced(fates: Sequence[Fate], prices: dict[int, Price]) -> tuple[Line, ...]:
    """The price of a layer goes to the first operation that is that layer itself, not to what was folded into it."""
    return tuple(_lines(fates, dict(prices)))


def _lines(fates: Sequence[Fate], left: dict[int, Price]) -> Iterable[Line]:
    for fate in fates:
        folded = fate.note.startswith(("folded", "part of"))
        yield Line(fate, None if fate.layer is None or folded else left.pop(fate.layer, Price()))
