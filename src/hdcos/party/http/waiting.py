"""Memory for what clients send and get: bytes from a request's arrival until its answer has left.

Each client has its share and all of them together have theirs. Who wants more is told to come again later, before its
request is read: many clients with the largest bodies must not take the memory that the others are served from.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from hdcos.errors import PolicyRefused
from hdcos.party.batcher import Refused
from hdcos.party.config import Limits

HELD = "hdcos.held"
"""Where a request's bytes are noted in its ASGI scope."""


class Waiting:
    """Bytes that are held now. For the event loop alone."""

    def __init__(self, limits: Limits) -> None:
        self._each, self._all = int(limits.client_mb * 1e6), int(limits.waiting_mb * 1e6)
        self._of: Counter[str] = Counter()
        self.total = 0

    def take(self, client: str, size: int) -> None:
        """Refused if the client, or all clients, would hold too much."""
        if size > min(self._each, self._all):
            most = min(self._each, self._all)
            raise Refused(PolicyRefused(f"a request and its answer have at most {most} bytes here, not {size}"), 413)
        if self._of[client] + size > self._each:
            held = self._of[client]
            raise self._later(f"requests of {client} that are not answered yet hold {held} bytes", self._each)
        if self.total + size > self._all:
            raise self._later(f"requests that are not answered yet hold {self.total} bytes", self._all)
        self._of[client] += size
        self.total += size

    @staticmethod
    def _later(what: str, most: int) -> Refused:
        return Refused(PolicyRefused(f"{what} of {most}: ask again later"), 429, retryable=True)

    def give_back(self, client: str, size: int) -> None:
        self.total -= size
        self._of[client] -= size
        if not self._of[client]:
            del self._of[client]  # clients come and go


class Held:
    """What one request holds."""

    def __init__(self, waiting: Waiting, client: str) -> None:
        self._waiting, self._client, self._size = waiting, client, 0

    def more(self, size: int) -> None:
        self._waiting.take(self._client, size)
        self._size += size

    def release(self) -> None:
        self._waiting.give_back(self._client, self._size)
        self._size = 0


class Releasing:
    """ASGI middleware: when a request is over, answered or not, what it held is free again."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await self._app(scope, receive, send)
        finally:
            held = scope.get(HELD)
            if held is not None:
                held.release()
