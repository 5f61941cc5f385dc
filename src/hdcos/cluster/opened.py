"""Something opened on a cluster that can be run again and again: what functions and models share.

Executions are numbered by the caller. A run that failed may have burnt its executions at one party, at both or at
none; the next run starts behind the later of the two.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from hdcos.errors import HdcosError, InputError, PeerLost
from hdcos.ring import Array, decode
from hdcos.sharing import join, split

if TYPE_CHECKING:
    from hdcos.cluster.cluster import Cluster


def halves(words: Mapping[str, Array]) -> list[dict[str, Array]]:
    """Secrets by name as what each party is sent: seeds for party 0, the rest for party 1."""
    parts: list[dict[str, Array]] = [{}, {}]
    for name, array in words.items():
        seed, rest = split(array)
        parts[0][name], parts[1][name] = np.frombuffer(seed, np.uint8), rest
    return parts


class Opened:
    """Material, execution numbers and results of one thing opened on a cluster. Leaving a `with` block closes it."""

    def __init__(self, cluster: Cluster, label: str) -> None:
        self._cluster = cluster
        self._scope = f"{label} {secrets.token_hex(16)}"
        self._next = 0
        self._lock = Lock()

    def prepare(self, executions: int, wait: bool = True) -> None:
        """Have material for so many more executions made; without `wait`, in the background."""
        if isinstance(executions, bool) or not isinstance(executions, int | np.integer) or executions < 1:
            raise InputError(f"material is prepared for a whole number of at least 1, got {executions!r}")
        self._ask("prepare", executions=int(executions), wait=wait)

    @property
    def stock(self) -> list[tuple[int, int]]:
        """Executions used and available, for each party."""
        return [(meta["used"], meta["available"]) for meta, _ in self._ask("stock")]

    def close(self) -> None:
        """Forget it and what is left of its material."""
        self._ask("close")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._scope.rsplit(' ', 1)[0]}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()

    def _ask(
        self, operation: str, arrays: Sequence[Mapping[str, Array]] = ({}, {}), **meta: Any
    ) -> list[tuple[dict[str, Any], dict[str, Array]]]:
        return self._cluster.ask({"operation": operation, "scope": self._scope, **meta}, arrays)

    def _run(self, arrays: Sequence[Mapping[str, Array]], executions: int, **meta: Any) -> Array:
        """The joined result of the next executions."""
        try:
            answers = self._ask("run", arrays, start=self._next, executions=executions, **meta)
        except HdcosError:
            with suppress(PeerLost):
                self._next = max(used for used, _ in self.stock)
            raise
        (zero, half0), (one, half1) = answers
        self._next += executions
        # The online phase starts when both parties hold the input: the party that started last saw all of it.
        self._cluster.online_s += min(zero.pop("seconds"), one.pop("seconds"))
        if zero != one:
            raise HdcosError("the parties disagree about the form of the result")
        return decode(join(half0["words"], half1["words"], zero["bits"]), zero["scale"], zero["bits"])
