"""What a party's engine needs from a source of material: a dealer's client, or the two parties themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from hdcos.link import Meter
from hdcos.offline.material import Plan, Precompute
from hdcos.offline.pool import MaterialPool


class MaterialSource(Protocol):
    """Used by one thread at a time. Whatever it says to others is counted by its meter, material as "offline"."""

    meter: Meter
    has_dealer: bool
    """Whether somebody who is no party rounds what is dealt: see `nn.private.layout`."""

    def open(
        self, name: str, plan: Plan, finishes: Mapping[int, Precompute] | None = None, singly: bool = False
    ) -> MaterialPool: ...

    def close(self, name: str) -> None: ...

    def fill(self, stock: MaterialPool, executions: int) -> None: ...

    def look(self) -> float: ...

    def leave(self) -> None: ...
