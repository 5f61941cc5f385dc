"""Who comes in, how often, and with how much: tokens, roles, rates and sizes of requests."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from starlette.requests import ClientDisconnect, Request

from hdcos.api.tensors import LENGTH_HEADER
from hdcos.api.tokens import token_hash
from hdcos.errors import InputError, PolicyRefused
from hdcos.party.batcher import Refused
from hdcos.party.config import Limits
from hdcos.party.http.waiting import HELD, Held, Waiting
from hdcos.party.store import Store

REFRESH_S = 1.0
CONNECTION = "hdcos.connection"
"""Where a request's scope names the connection it came on."""
BODY_S = 30.0
"""A body must be here within this time: slow clients do not hold memory forever."""


@dataclass
class Client:
    """Somebody with a token."""

    name: str
    roles: tuple[str, ...]
    allowance: float
    at: float


class Gate:
    """Admits requests. Tokens are looked up by hash; the list is read again every second, so revoking works at once."""

    def __init__(self, store: Store, limits: Limits) -> None:
        self._store, self._limits = store, limits
        self.waiting = Waiting(limits)
        self._clients: dict[str, Client] = {}
        self._read = 0.0

    def admit(self, request: Request, role: str) -> str:
        """The name of the client that asks; Refused if it may not."""
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
        if role not in client.roles:
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
