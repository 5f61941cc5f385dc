"""A source of material without a dealer: the two parties make it between them, over a link of their own.

It has the interface of `DealerClient`: open and close scopes, fill pools, a meter, dial again after a failure.
Opening and closing are local, because each party draws its own randomness. To fill, the parties

1. agree: each says which scope, plan, execution and count it means, and how many transfers it has used. A peer that
   means anything else is HandshakeError on both sides, MaterialReused where only the execution or the transfers differ.
   Who kept a chunk that the other lost, because the link broke while it was confirmed, gives it up;
2. make chunk after chunk (see chunk): one exchange per batch of transfers;
3. confirm each chunk: only when both have said that they have it does it enter the pool.

Security  semi-honest (see session and the generators of kinds). A chunk that fails in any way, on either side, is
          discarded on both, and so is the session: the next fill makes a new link, new base transfers and draws from
          new seeds, so that nothing of the lost chunk, and no number of a transfer, is ever used again (masks of kind
          Mask are drawn, not made: they stay, since clients may hold them). A replayed or reordered frame has the wrong
          sequence number; a message of the wrong size is FrameError; a peer that falls silent is PeerLost. A message
          that the peer itself made wrong is outside the model: it gives wrong material, which nobody notices.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from threading import TIMEOUT_MAX
from typing import Any

from hdcos.errors import FrameError, HandshakeError, InputError, MaterialReused
from hdcos.generators import relay
from hdcos.link import Kind as FrameKind
from hdcos.link import Link, Meter
from hdcos.link.message import decode_message, encode_message, integer
from hdcos.offline.dealer import REMEMBERED
from hdcos.offline.kinds import Mask
from hdcos.offline.material import Field, Fields, Kind, Plan, Precompute
from hdcos.offline.ot.chunk import chunk_traffic, chunks, make_chunk, mask_kind, scopes_of
from hdcos.offline.ot.session import Session, Talk, talk_over
from hdcos.offline.ot.terms import Rounds
from hdcos.offline.pool import Allocation, MaterialPool
from hdcos.offline.shares import field_stream
from hdcos.offline.source import Following
from hdcos.ring import Array, compact_dtype
from hdcos.ring.device import Device
from hdcos.sharing import Stream, fresh_seed

STEP = "transfers"
LINK_BYTES = 1 << 37
"""What one link carries each way before the parties make a new one: see `hdcos.link.tls`."""
MAX_AGREEMENT = 1 << 16


class OtPool(MaterialPool):
    """Material of one scope at one party, from a seed that nobody else has."""

    def __init__(
        self,
        name: str,
        plan: Plan,
        rank: int,
        precomputes: Mapping[int, Precompute] | None = None,
        singly: bool = False,
        device: Device | None = None,
    ) -> None:
        super().__init__(name, plan, rank, fresh_seed(), precomputes, singly, device)
        self._drawn: dict[tuple[int, str], Stream] = {}
        self._attempt = self._last = 0

    def own(self, position: int, item: Field, start: int, executions: int) -> Array:
        """This party's own random numbers for some executions: a share of a uniform field, or bits of a mask."""
        units = self.plan.needs[position].units
        address = (position, item.name)
        stream = self._drawn.get(address)
        if stream is None:
            # The shares of masks are what `uniform` gives; whatever is made is drawn again after a failure.
            fixed = isinstance(self.plan.needs[position].kind, Mask)
            name = item.name if fixed else f"{item.name} of attempt {self._attempt}"
            stream = self._drawn[address] = field_stream(self._root, position, name)
        return stream.words((executions * units, *item.shape), item.bits, start * units * item.size)

    def generate(self, start: int, executions: int, others: Mapping[str, OtPool]) -> Rounds[list[Fields]]:
        """The generator of executions [start, start + executions); `others` are the pools of scopes they refer to."""
        plans = {name: pool.plan for name, pool in others.items()}

        def draw(position: int, item: Field) -> Array:
            return self.own(position, item, start, executions)

        def scope(name: str, position: int) -> tuple[Kind, Array]:
            return mask_kind(plans, name, position), others[name].uniform(position, 0, 1)

        return make_chunk(self.rank, self.plan, executions, draw, scope)

    def discard(self) -> None:
        """Forget what was drawn for executions that were not kept."""
        self._attempt += 1
        self._drawn.clear()

    def fill(self, start: int, executions: int, corrections: Array | None) -> None:
        raise MaterialReused(f"{self.name}: this material is made by the parties, nothing of it comes from a dealer")

    def begin(self, executions: int, start: int | None = None, timeout_s: float = TIMEOUT_MAX) -> Allocation:
        """As in any pool, but what was ordered is waited for however long it takes.

        Making a step of a large network may take minutes; a peer that stops meanwhile is noticed where the pool is
        filled.
        """
        return super().begin(executions, start, TIMEOUT_MAX)

    def keep(self, start: int, executions: int, made: list[Fields]) -> None:
        """Put executions [start, start + executions) into the pool, all fields of all positions."""
        if start != self._filled or executions < 1:
            raise MaterialReused(
                f"{self.name}: {executions} executions from {start} were made, next expected is {self._filled}"
            )
        compact = [
            tuple(
                self._put(share.astype(compact_dtype(item.bits), copy=False))
                for item, share in zip(need.kind.fields(), fields, strict=True)
            )
            for need, fields in zip(self.plan.needs, made, strict=True)
        ]
        self._keep(compact, executions)
        self._last = executions

    def _put(self, made: Array) -> Array:
        """What was made, by this machine, where it is wanted."""
        return made if self.device is None else self.device.put(made)

    def retract(self, start: int) -> None:
        """Give up the last chunk, from `start` on: the peer lost the link before it could keep it."""
        with self._changed:
            count = self._filled - start
            slab = self._slabs[-1] if self._slabs else None
            if slab is None or count != self._last or start < self._used or slab.filled - slab.spent < count:
                known = f"{self._filled} executions were made here, of which {self._used} are used, and {start} there"
                raise MaterialReused(f"{self.name}: {known}")
            slab.filled -= count
            self._filled, self._last = start, 0
            self._ordered -= min(count, self._ordered)
        self.discard()


class OtSource:
    """One party's end. `dial` makes a link to the other party and a name for the session that both know."""

    has_dealer = False

    def __init__(self, dial: Callable[[Meter], tuple[Link, bytes]], rank: int, device: Device | None = None) -> None:
        self._dial, self.rank, self.device = dial, rank, device
        self.meter = Meter()
        self._link: Link | None = None
        self._session: Session | None = None
        self._carried = 0
        """Payload of all chunks made over this link: the same at both parties."""
        self._pools: dict[str, OtPool] = {}
        self._names: dict[str, None] = {}

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
                    self._session = talk_over(Session.setup(self.rank, name), self._link, "base transfers")
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
        self, name: str, plan: Plan, precomputes: Mapping[int, Precompute] | None = None, singly: bool = False
    ) -> MaterialPool:
        """A new, empty pool; `singly` says that its executions will be spent one by one."""
        if name in self._names:
            raise MaterialReused(f"party {self.rank} has opened the material of {name} before: start a new attempt")
        self._names[name] = None
        if len(self._names) > REMEMBERED:
            del self._names[next(iter(self._names))]
        self._pools[name] = OtPool(name, plan, self.rank, precomputes, singly, self.device)
        return self._pools[name]

    def close(self, name: str) -> None:
        """Forget a scope: nothing more can be made for it, nor refer to it."""
        self._pools.pop(name, None)

    def fill(self, pool: MaterialPool, executions: int, following: Following = lambda: None) -> None:
        """Make more executions, together with the other party, which must want the same; orders one by one."""
        mine = self._pools.get(pool.name)
        if mine is not pool or mine is None:
            raise InputError(f"no material is open under the name {pool.name}")
        if executions < 1:
            return
        others: dict[str, OtPool] = {}
        for name in scopes_of(pool.plan):
            if name not in self._pools:
                raise InputError(f"no material is open under the name {name}, which other material refers to")
            others[name] = self._pools[name]
        plans = {name: other.plan for name, other in others.items()}
        link = self.link
        try:
            self._agree(link, mine, executions)
            for count in chunks(pool.plan, executions, plans):
                link = self.link
                self._chunk(link, mine, count, others)
                self._carried += chunk_traffic(pool.plan, count, plans).bytes // 2
        except BaseException as error:
            # Part of a chunk cannot be repeated: the next fill starts a new session and draws again.
            mine.discard()
            link.abort(error)
            raise

    def _agree(self, link: Link, pool: OtPool, executions: int) -> None:
        """Compare, never assume: both sides say what they mean before either acts on it."""
        assert self._session is not None
        mine = {
            "scope": pool.name,
            "plan": pool.plan.fingerprint.hex(),
            "start": pool.filled,
            "executions": executions,
            "transfers": list(self._session.used),
        }
        link.send(FrameKind.REQUEST, *encode_message(mine))
        _, payload = link.receive(FrameKind.REQUEST, limit=MAX_AGREEMENT)
        theirs, _ = decode_message(payload)
        for name in ("scope", "plan", "executions"):
            if theirs.get(name) != mine[name]:
                raise HandshakeError(_describe_difference(name, mine, theirs))
        if theirs.get("transfers") != mine["transfers"]:
            raise MaterialReused(_describe_difference("transfers", mine, theirs))
        if integer(theirs, "start") < pool.filled:
            pool.retract(theirs["start"])

    def _chunk(self, link: Link, pool: OtPool, count: int, others: Mapping[str, OtPool]) -> None:
        assert self._session is not None
        start = pool.filled
        with self.meter.section("offline"):
            fields = talk_over(run(self._session, pool.generate(start, count, others)), link, STEP)
        done = json.dumps([pool.name, start, count, self._session.used])
        self._confirm(link, hashlib.sha256(done.encode()).digest())
        pool.keep(start, count, fields)

    def _confirm(self, link: Link, digest: bytes) -> None:
        link.send(FrameKind.MATERIAL, digest, step="confirm")
        _, theirs = link.receive(FrameKind.MATERIAL, len(digest), step="confirm")
        if theirs.tobytes() != digest:
            raise FrameError("the parties did not make the same chunk of material: it is discarded on both sides")


def run(session: Session, generator: Rounds[list[Fields]]) -> Talk[list[Fields]]:
    """Drive generators of material to their results: each round of products is several exchanges."""
    return relay(generator, session.products)


def _describe_difference(name: str, mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> str:
    return (
        f"the parties mean different material: {name} is {mine[name]!r:.80} here and {theirs.get(name)!r:.80} there "
        f"(making {mine['executions']} executions of {mine['scope']} from {mine['start']} here)"
    )
