"""A source of material without a dealer: the two parties make it between them, over a link of their own.

It has the interface of `DealerClient`: open and close scopes, fill stocks, a meter, dial again after a failure.
Opening and closing are local, because each party draws its own randomness. To fill, the parties

1. agree: each says which scope, plan, execution and count it means, and how many transfers it has used. A peer that
   means anything else is HandshakeError on both sides, MaterialReused where only the execution or the transfers differ.
   Who kept a chunk that the other lost, because the link broke while it was confirmed, gives it up;
2. make chunk after chunk (see chunk): one exchange per batch of transfers;
3. confirm each chunk: only when both have said that they have it does it enter the stock.

Security  semi-honest (see session and the makers). A chunk that fails in any way, on either side, is discarded on both,
          and so is the session: the next fill makes a new link, new base transfers and draws from new seeds, so that
          nothing of the lost chunk, and no number of a transfer, is ever used again (masks of kind Mask are drawn, not
          made: they stay, since clients may hold them). A replayed or reordered frame
          has the wrong sequence number; a message of the wrong size is FrameError; a peer that falls silent is
          PeerLost. A message that the peer itself made wrong is outside the model: it gives wrong material, which
          nobody notices.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from hdcos.errors import FrameError, HandshakeError, InputError, MaterialReused
from hdcos.generators import relay
from hdcos.link import Kind as FrameKind
from hdcos.link import Link, Meter
from hdcos.link.message import decode_message, encode_message, integer
from hdcos.offline.material import Field, Fields, Kind, Plan, Precompute
from hdcos.offline.ot.chunk import make_chunk
from hdcos.offline.ot.estimate import chunk_traffic, chunks, mask_kind, scopes_of
from hdcos.offline.ot.pool import OtPool
from hdcos.offline.ot.session import Session
from hdcos.offline.ot.terms import Rounds
from hdcos.offline.ot.wire import Talk, over_link
from hdcos.offline.pool import MaterialPool
from hdcos.ring import Array

STEP = "transfers"
LINK_BYTES = 1 << 37
"""What one link carries each way before the parties make a new one: see `hdcos.link.tls`."""
MAX_AGREEMENT = 1 << 16


class OtSource:
    """One party's end. `dial` makes a link to the other party and a name for the session that both know."""

    has_dealer = False

    def __init__(self, dial: Callable[[Meter], tuple[Link, bytes]], rank: int) -> None:
        self._dial, self.rank = dial, rank
        self.meter = Meter()
        self._link: Link | None = None
        self._session: Session | None = None
        self._carried = 0
        """Payload of all chunks made over this link: the same at both parties."""
        self._stocks: dict[str, OtPool] = {}
        self._names: set[str] = set()

    @property
    def link(self) -> Link:
        """The link to the other party; a new one, with a new session, after a failure."""
        if self._link is not None and self._carried >= LINK_BYTES:
            self._link.close()
        if self._link is None or self._link.closed:
            self._link, name = self._dial(self.meter)
            self._session, self._carried = None, 0
            try:
                with self.meter.section("setup"):
                    self._session = over_link(Session.setup(self.rank, name), self._link, "base transfers")
            except BaseException as error:
                self._link.abort(error)
                raise
        return self._link

    def look(self) -> float:
        """There is nobody to look for but the other party."""
        return time.time()

    def leave(self) -> None:
        if self._link is not None:
            self._link.close()

    def open(
        self, name: str, plan: Plan, finishes: Mapping[int, Precompute] | None = None, singly: bool = False
    ) -> MaterialPool:
        """A new, empty pool; `singly` says that its executions will be spent one by one."""
        if name in self._names:
            raise MaterialReused(f"party {self.rank} has opened the material of {name} before: start a new attempt")
        self._names.add(name)
        self._stocks[name] = OtPool(name, plan, self.rank, finishes, singly)
        return self._stocks[name]

    def close(self, name: str) -> None:
        """Forget a scope: nothing more can be made for it, nor refer to it."""
        self._stocks.pop(name, None)

    def fill(self, stock: MaterialPool, executions: int) -> None:
        """Make so many more executions, together with the other party, which must want the same."""
        mine = self._stocks.get(stock.name)
        if mine is not stock or mine is None:
            raise InputError(f"no material is open under the name {stock.name}")
        if executions < 1:
            return
        others = {name: self._known(name).plan for name in scopes_of(stock.plan)}
        link = self.link
        try:
            self._agree(link, mine, executions)
            for count in chunks(stock.plan, executions, others):
                link = self.link
                self._chunk(link, mine, count, others)
        except BaseException as error:
            # Half a chunk cannot be repeated: the next fill starts a new session and draws anew.
            mine.discard()
            link.abort(error)
            raise

    def _known(self, name: str) -> OtPool:
        stock = self._stocks.get(name)
        if stock is None:
            raise InputError(f"no material is open under the name {name}, which other material refers to")
        return stock

    def _agree(self, link: Link, stock: OtPool, executions: int) -> None:
        """Compare, never assume: both sides say what they mean before either acts on it."""
        assert self._session is not None
        mine = {
            "scope": stock.name,
            "plan": stock.plan.fingerprint.hex(),
            "start": stock.filled,
            "executions": executions,
            "transfers": list(self._session.used),
        }
        link.send(FrameKind.REQUEST, *encode_message(mine))
        _, payload = link.receive(FrameKind.REQUEST, limit=MAX_AGREEMENT)
        theirs, _ = decode_message(payload)
        for name in ("scope", "plan", "executions"):
            if theirs.get(name) != mine[name]:
                raise HandshakeError(_difference(name, mine, theirs))
        if theirs.get("transfers") != mine["transfers"]:
            raise MaterialReused(_difference("transfers", mine, theirs))
        if integer(theirs, "start") < stock.filled:
            stock.retract(theirs["start"])

    def _chunk(self, link: Link, stock: OtPool, count: int, others: Mapping[str, Plan]) -> None:
        assert self._session is not None
        start = stock.filled

        def draw(position: int, item: Field) -> Array:
            return stock.own(position, item, start, count)

        def scope(name: str, position: int) -> tuple[Kind, Array]:
            return mask_kind(others, name, position), self._known(name).uniform(position, 0, 1)

        maker = make_chunk(self.rank, stock.plan, count, draw, scope)
        with self.meter.section("offline"):
            fields = over_link(run(self._session, maker), link, STEP)
        done = json.dumps([stock.name, start, count, self._session.used])
        self._confirm(link, hashlib.sha256(done.encode()).digest())
        stock.keep(start, count, fields)
        self._carried += chunk_traffic(stock.plan, count, others).bytes // 2

    def _confirm(self, link: Link, digest: bytes) -> None:
        link.send(FrameKind.MATERIAL, digest, step="confirm")
        _, theirs = link.receive(FrameKind.MATERIAL, len(digest), step="confirm")
        if theirs.tobytes() != digest:
            raise FrameError("the parties did not make the same chunk of material: it is discarded on both sides")


def run(session: Session, maker: Rounds[list[Fields]]) -> Talk[list[Fields]]:
    """Drive makers to their results: each round of products is several exchanges."""
    return relay(maker, session.products)


def _difference(name: str, mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> str:
    return (
        f"the parties mean different material: {name} is {mine[name]!r:.80} here and {theirs.get(name)!r:.80} there "
        f"(making {mine['executions']} executions of {mine['scope']} from {mine['start']} here)"
    )
