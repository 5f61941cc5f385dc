"""Layers that compare numbers on shares, and how they do it."""

from __future__ import annotations

from dataclasses import dataclass, field

from hdcos.errors import ModelError
from hdcos.nn.layer import Layer
from hdcos.protocol.sign import TABLES, WAYS


@dataclass(frozen=True)
class Comparing(Layer, abstract=True):
    """A layer that takes comparisons on shares, and therefore a dealer.

    `compare` says how, and is public like everything of an architecture: by "tables", three rounds and less material,
    or by "dcf", two rounds and several times the material. `share(model, compare=...)` sets it in all layers.
    Training compares by tables, whatever it says.
    """

    compare: str = field(default=TABLES, kw_only=True)

    def __post_init__(self) -> None:
        check_compare(self.compare, self.kind)
        super().__post_init__()


def check_compare(compare: object, what: str = "compare") -> None:
    """ModelError unless this is a way to compare."""
    if compare not in WAYS:
        raise ModelError(f"{what}: numbers are compared by {' or '.join(WAYS)}, not by {str(compare)[:40]!r}")
