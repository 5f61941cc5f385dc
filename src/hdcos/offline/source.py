"""Where a party's material comes from: what every source offers, and a dealer behind a link.

The dealer answers four requests: open a scope (a root seed comes back), deal executions (what the party is sent of
them comes back chunk by chunk), close a scope, and look (its clock comes back). It receives plans and counts, nothing
that depends on a secret.

A party asks for an order ahead while it still expands the one before. What then comes is taken for that order and for
nothing else: whatever the party does instead, it does over another link.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Protocol

import numpy as np

from hdcos.errors import DataMissing, FrameError, InputError, PeerLost
from hdcos.link import Kind, Link, Meter
from hdcos.link.frame import MAX_ABORT
from hdcos.link.message import decode_message, decode_reply, encode_message, integer, reply_error, request, text
from hdcos.offline.dealer import Dealer
from hdcos.offline.material import Plan, Precompute
from hdcos.offline.pool import MaterialPool
from hdcos.ring import Array
from hdcos.ring.device import Device

MOST_REQUEST_BYTES = 1 << 22
"""The longest plan has some hundred bytes for each of its positions."""
Order = tuple[MaterialPool, int]
"""A pool, and how many executions it is to be given."""
Following = Callable[[], Order | None]
"""The order that is filled next, if one waits and nothing else is done before."""


def serve_dealer(dealer: Dealer, link: Link, rank: int, closing: bool = False, workers: int = 1) -> None:
    """Answer one party's requests until it says goodbye; a request that cannot be met is answered by name.

    With `closing` the scopes that the party opened on this link are closed with it: nobody will ask for them again.
    The party is told of how many `workers` of the dealer this is one.
    """
    opened: set[str] = set()
    try:
        while True:
            _, payload = link.receive(Kind.REQUEST, timeout_s=None, limit=MOST_REQUEST_BYTES)
            try:
                meta, _ = decode_message(payload)
                _answer(dealer, link, rank, meta, workers)
                if meta.get("operation") == "open":
                    opened.add(meta["scope"])
                elif meta.get("operation") == "close":
                    opened.discard(meta["scope"])  # a party stays for weeks, and opens more whenever a client asks
            except Exception as error:
                # Plans come from outside: one that makes no sense, in whatever way, must not end the dealer.
                if link.closed:
                    raise
                reply_error(link, error)
    finally:
        for name in opened if closing else ():
            dealer.close(name, rank)


def _answer(dealer: Dealer, link: Link, rank: int, meta: dict[str, Any], workers: int) -> None:
    operation = meta.get("operation")
    if operation == "look":
        link.send(Kind.REPLY, *encode_message({"time": time.time(), "workers": workers}))
        return
    name = text(meta, "scope")
    if operation == "open":
        root = dealer.open(name, Plan.from_json(meta.get("plan")), rank)
        link.send(Kind.REPLY, *encode_message({}, {"root": np.frombuffer(root, np.uint8)}))
    elif operation == "deal":
        start, executions = integer(meta, "start"), integer(meta, "executions")
        with link.meter.section("offline"):
            for corrections in dealer.chunks(name, start, executions, rank):
                link.send(Kind.MATERIAL, corrections)
    elif operation == "close":
        dealer.close(name, rank)
        link.send(Kind.REPLY, *encode_message({}))
    else:
        raise InputError(f"a dealer does not know the request {operation!r}")


class MaterialSource(Protocol):
    """What a party's engine needs: a dealer's client, or the two parties themselves (`ot`).

    Used by one thread at a time. Whatever it says to others is counted by its meter, material as "offline".
    """

    meter: Meter
    device: Device | None
    """Where pools keep their material, if not in the memory of this machine."""
    has_dealer: bool
    """Whether somebody who is no party rounds cosines: see `secure.compile`."""

    def open(
        self, name: str, plan: Plan, precomputes: Mapping[int, Precompute] | None = None, singly: bool = False
    ) -> MaterialPool: ...

    def close(self, name: str) -> None: ...

    def fill(self, pool: MaterialPool, executions: int, following: Following = lambda: None) -> None: ...

    def look(self) -> float: ...

    def leave(self) -> None: ...


class DealerClient:
    """A party's connection to the dealer: opens scopes and fills pools. Dials again after a failure."""

    has_dealer = True

    def __init__(self, dial: Callable[[Meter], Link], rank: int, device: Device | None = None) -> None:
        self._dial, self.rank, self.device = dial, rank, device
        self.meter = Meter()
        self.workers = 1
        """That the dealer has, as it said when it was last looked at."""
        self._link = dial(self.meter)
        self._asked: tuple[str, int, int] | None = None
        """A scope, a start and a number of executions: what was asked for ahead, and is the next that comes."""

    @property
    def link(self) -> Link:
        if self._link.worn or self._asked is not None:  # what was asked for would be taken for another answer
            self._link.close()
            self._asked = None
        if self._link.closed:
            self._link = self._dial(self.meter)
        return self._link

    def leave(self) -> None:
        self._link.close()

    def open(
        self, name: str, plan: Plan, precomputes: Mapping[int, Precompute] | None = None, singly: bool = False
    ) -> MaterialPool:
        """A new, empty pool; `singly` says that its executions will be spent one by one."""
        meta = {"operation": "open", "scope": name, "plan": plan.to_json()}
        _, arrays = self._ask(meta)
        return MaterialPool(name, plan, self.rank, arrays["root"].tobytes(), precomputes, singly, self.device)

    def look(self) -> float:
        """Whether the dealer answers on this link, which must be the old one; its clock."""
        meta, _ = request(self._link, {"operation": "look"}, timeout_s=self._link.timeout_s)
        self.workers = max(1, integer(meta, "workers"))
        return float(meta["time"])

    def close(self, name: str) -> None:
        self._ask({"operation": "close", "scope": name})

    def _ask(self, meta: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Array]]:
        link = self.link
        return request(link, meta, timeout_s=link.timeout_s)

    def fill(self, pool: MaterialPool, executions: int, following: Following = lambda: None) -> None:
        """Deal more executions into the pool, chunk by chunk; the dealer makes the next meanwhile.

        The order that is filled next is asked for before the last chunk is expanded: the dealer need not wait for it.
        """
        if not pool.plan.sent(self.rank):
            for count in pool.plan.chunks(executions):
                pool.fill(pool.filled, count, None)
        elif executions:
            self._receive(pool, executions, following)

    def _receive(self, pool: MaterialPool, executions: int, following: Following) -> None:
        link, left = self._begin(pool, executions), executions
        try:
            for count in pool.plan.chunks(executions):
                size = pool.corrections(count).size
                with link.meter.section("offline"):
                    kinds, limit = (Kind.MATERIAL, Kind.REPLY), max(size, MAX_ABORT)
                    kind, payload = link.receive(kinds, limit=limit, allocate=pool.room)
                if kind is Kind.REPLY:
                    break
                left -= count
                if not left:
                    self._ask_ahead(link, following(), pool, count)
                pool.fill(pool.filled, count, payload)
            else:
                return
        except BaseException as error:
            # What is still on its way must not be taken for an answer to a later request.
            self._asked = None
            link.abort(error)
            raise
        try:
            decode_reply(payload)  # raises what the dealer reports; nothing is on its way then
        except DataMissing as error:
            # This party opened the scope, so it was another process, or another link: the run is lost, not wrong.
            why = f"the dealer was started again, or the link to it: what it dealt is forgotten ({error})"
            raise PeerLost(why) from error
        lie = FrameError("the dealer answered with something else than material")
        link.abort(lie)
        raise lie

    def _begin(self, pool: MaterialPool, executions: int) -> Link:
        """The link from which these executions come, asked for now or before."""
        if self._asked == (pool.name, pool.filled, executions) and not self._link.closed:
            self._asked = None
            return self._link
        link = self.link
        _ask_to_deal(link, pool, pool.filled, executions)
        return link

    def _ask_ahead(self, link: Link, order: Order | None, pool: MaterialPool, count: int) -> None:
        """Ask for the next order while these last executions of a pool have yet to be expanded."""
        if order is None or link.worn or order[1] < 1 or not order[0].plan.sent(self.rank):
            return
        start = order[0].filled + (count if order[0] is pool else 0)
        with suppress(PeerLost):  # it is asked for again when its turn comes, on a new link
            _ask_to_deal(link, order[0], start, order[1])
            self._asked = (order[0].name, start, order[1])


def _ask_to_deal(link: Link, pool: MaterialPool, start: int, executions: int) -> None:
    meta = {"operation": "deal", "scope": pool.name, "start": start, "executions": executions}
    link.send(Kind.REQUEST, *encode_message(meta))
