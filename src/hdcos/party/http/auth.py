"""Who comes in, how often, and with how much: tokens, roles, rates, and memory of requests.

Memory for what clients send and get is counted from a request's arrival until its answer has left. Each client has its
part and all of them together have theirs. A client that wants more is told to come again later, before its request is
read: many clients with the largest bodies must not take the memory that the others are served from.

Requests at work are counted as well, since their connections never give way to others: one client has at most as many
as an address has connections, and few that wait for something to happen, which takes as long as it takes.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

from starlette.requests import ClientDisconnect, Request

from hdcos.api.bodies import LENGTH_HEADER
from hdcos.api.tokens import token_hash
from hdcos.errors import InputError, PolicyRefused
from hdcos.party.batcher import Refused
from hdcos.party.config import Limits
from hdcos.party.store import Store

REFRESH_S = 1.0
CONNECTION = "hdcos.connection"
"""Where a request's scope names the connection it came on."""
BODY_S = 30.0
"""A body must be here within this time: slow clients do not hold memory forever."""
HELD = "hdcos.held"
"""Where a request's bytes are noted in its ASGI scope."""
MOST_LASTING = 24
"""Of one client: it has 16 jobs to follow, 4 meetings, and some to look at twice."""


class Waiting:
    """Requests at work, and the bytes that they hold now. For the event loop alone."""

    def __init__(self, limits: Limits, most_requests: int = sys.maxsize) -> None:
        self._each, self._all = int(limits.client_mb * 1e6), int(limits.waiting_mb * 1e6)
        self._most_requests = most_requests
        self._of: Counter[str] = Counter()
        self._requests: Counter[str] = Counter()
        self._lasting: Counter[str] = Counter()
        """Those that wait for something to happen."""
        self.total = 0

    def come(self, client: str) -> None:
        """A request of a client begins; Refused if it has too many at work."""
        if self._requests[client] >= self._most_requests:
            text = f"{self._requests[client]} requests of {client} are at work, as many as may be: ask again later"
            raise Refused(PolicyRefused(text), 429, retryable=True)
        self._requests[client] += 1

    def last(self, client: str) -> None:
        """One of them waits for something to happen."""
        if self._lasting[client] >= MOST_LASTING:
            text = (
                f"{MOST_LASTING} requests of {client} wait already for events of jobs or messages of meetings: end "
                f"some of them, or ask for jobs now and then (GET /v2/jobs)"
            )
            raise Refused(PolicyRefused(text), 429, retryable=True)
        self._lasting[client] += 1

    def leave(self, client: str, requests: int, lasting: int) -> None:
        """Some of its requests are over."""
        for counted, number in ((self._requests, requests), (self._lasting, lasting)):
            counted[client] -= number
            if not counted[client]:
                del counted[client]

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
        self._waiting, self._client = waiting, client
        waiting.come(client)
        self._requests, self._lasting, self._size = 1, 0, 0

    def more(self, size: int) -> None:
        self._waiting.take(self._client, size)
        self._size += size

    def last(self) -> None:
        """It waits for something to happen."""
        self._waiting.last(self._client)
        self._lasting += 1

    def release(self) -> None:
        self._waiting.give_back(self._client, self._size)
        self._waiting.leave(self._client, self._requests, self._lasting)
        self._requests = self._lasting = self._size = 0


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


@dataclass
class Client:
    """Somebody with a token."""

    name: str
    roles: tuple[str, ...]
    allowance: float
    at: float


class Auth:
    """Admits requests. Tokens are looked up by hash; the list is read again every second, so revoking works at once."""

    def __init__(self, store: Store, limits: Limits, most_requests: int = sys.maxsize) -> None:
        self._store, self._limits = store, limits
        self.waiting = Waiting(limits, most_requests)
        self._clients: dict[str, Client] = {}
        self._read = 0.0

    def admit(self, request: Request, role: str) -> str:
        """The name of the client that asks; Refused unless it has the role, or one of them ("upload or train")."""
        now = time.monotonic()
        if now - self._read > REFRESH_S:
            self._refresh(now)
        scheme, _, shown = request.headers.get("authorization", "").partition(" ")
        hashed = token_hash(shown.strip()) if scheme.lower() == "bearer" else ""
        if hashed not in self._clients:
            self._refresh(now)  # perhaps it was allowed just now
        client = self._clients.get(hashed)
        if client is None:
            raise Refused(PolicyRefused("this party knows no such token"), 401)
        if CONNECTION in request.scope:
            request.scope[CONNECTION].known = True
        if not set(role.split(" or ")) & set(client.roles):
            raise Refused(PolicyRefused(f"the token of {client.name} does not have the role {role!r}"), 403)
        rate = self._limits.requests_per_s
        client.allowance = min(rate, client.allowance + (now - client.at) * rate)
        client.at = now
        if client.allowance < 1:
            raise Refused(PolicyRefused(f"more than {rate:g} requests per second: wait a little"), 429, retryable=True)
        client.allowance -= 1
        request.scope[HELD] = Held(self.waiting, client.name)
        return client.name

    def _refresh(self, now: float) -> None:
        self._read = now
        known, rate = {}, self._limits.requests_per_s
        for name, hashed, roles in self._store.clients():
            before = self._clients.get(hashed)
            known[hashed] = Client(name, roles, before.allowance if before else rate, before.at if before else now)
        self._clients = known

    async def body(self, request: Request) -> bytes:
        """The whole body, if it is not too large, there is room for it, and it comes in time."""
        most = int(self._limits.body_mb * 1e6)
        stated = request.headers.get("content-length", "0")
        if stated.isdecimal() and int(stated) > most:
            raise Refused(InputError(f"a request has at most {most} bytes, this one {stated}"), 413)
        # Numbers written as text become words of up to four times their length, and pieces are joined at the end.
        weight = 2 if LENGTH_HEADER in request.headers else 4
        held: Held = request.scope[HELD]
        pieces, size, counted = [], 0, int(stated) if stated.isdecimal() else 0
        held.more(weight * counted)
        try:
            async with asyncio.timeout(BODY_S):
                async for piece in request.stream():
                    size += len(piece)
                    if size > most:
                        raise Refused(InputError(f"a request has at most {most} bytes"), 413)
                    if size > counted:
                        held.more(weight * (size - counted))
                        counted = size
                    pieces.append(piece)
        except TimeoutError:
            raise Refused(InputError(f"the request did not arrive within {BODY_S:g} s"), 408, retryable=True) from None
        except ClientDisconnect:
            raise Refused(InputError("the client left before its request was here"), 400) from None
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)
