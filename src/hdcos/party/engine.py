"""A party's engine: its link to the peer, its pools of material, and programs run with both.

Security  the frames of a program carry a context, a hash of what both parties must mean: program, material, execution.
          A peer that means anything else is refused at its first frame, before a second value could be opened
          under a mask. A program that fails is aborted on both sides and its material is burnt.
"""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from threading import Lock
from time import perf_counter
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from hdcos.errors import HdcosError, MaterialReused, PeerLost
from hdcos.link import Count, Link, Meter
from hdcos.offline import Allocation, MaterialPool
from hdcos.offline.dealer import REMEMBERED
from hdcos.offline.source import MaterialSource, Order
from hdcos.party.group import Gather, gather_nobody
from hdcos.party.patience import MATERIAL
from hdcos.protocol.party import Party
from hdcos.protocol.plan import Planned
from hdcos.protocol.rounds import Rounds, Talk, packed, talk
from hdcos.ring.device import guarded, to_host
from hdcos.sharing import Share

T = TypeVar("T")


def fingerprint(*parts: Any) -> bytes:
    """What both parties must agree on, of JSON values."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).digest()


class Engine:
    """Runs programs with the peer, and has material made while they run."""

    def __init__(
        self,
        rank: int,
        connect_peer: Callable[[Meter], tuple[Link, bytes]],
        dealer: MaterialSource,
        meter: Meter,
        timeout_s: float = 30.0,
        gather: Gather = gather_nobody,
    ) -> None:
        self.rank, self.meter, self.material_s = rank, meter, MATERIAL * timeout_s
        self.dealer, self.gather = dealer, gather
        """Where from material comes, who trains with this worker, and how long programs wait for material."""
        self.device = dealer.device
        self.online_s = self.offline_s = 0.0
        self.shortage: HdcosError | None = None
        """Why material stopped coming, if it did."""
        self._filling: WeakKeyDictionary[MaterialPool, Count] = WeakKeyDictionary()
        self._scopes: dict[str, None] = {}
        self._connect_peer = connect_peer
        self._connection: tuple[Link, bytes] | None = None
        # The dealer's link belongs to this one thread, which fills pools while rounds go on.
        self._supply = ThreadPoolExecutor(1, thread_name_prefix="supply")
        self._waiting: deque[Order | None] = deque()
        """What it has still to do, one behind the other: an order, or something else."""
        self._queueing = Lock()

    def _connected(self) -> tuple[Link, bytes]:
        """The link to the other party, a new one after a failure, and the seed that came with it."""
        if self._connection is None or self._connection[0].closed:
            self._connection = self._connect_peer(self.meter)
        return self._connection

    @property
    def peer(self) -> Link:
        return self._connected()[0]

    @property
    def pair_seed(self) -> bytes:
        """Known to the two parties alone; new with every link."""
        return self._connected()[1]

    # ---- material

    def open(self, scope: str, planned: Planned, singly: bool = False) -> MaterialPool:
        """A new pool for a plan; `singly` says that its executions will be spent one by one."""
        if scope in self._scopes:
            raise MaterialReused(f"the name {scope} was used before")
        self._scopes[scope] = None
        if len(self._scopes) > REMEMBERED:  # names are random: this guards against a mistake, not against somebody
            del self._scopes[next(iter(self._scopes))]
        return self._later(self.dealer.open, scope, planned.material, planned.precompute, singly).result()

    def material_cost(self, pool: MaterialPool) -> Count:
        """What filling a pool took so far, at this party."""
        return self._filling.get(pool, Count())

    def close(self, pool: MaterialPool) -> None:
        self._later(self.dealer.close, pool.name).result()

    def order(self, pool: MaterialPool, executions: int) -> Future[None]:
        """Have material made in the background."""
        pool.order(executions)
        return self._later(self._fill, pool, executions, order=(pool, executions))

    def greet_dealer(self) -> Future[None]:
        """See in the background whether the dealer still answers."""
        return self._later(self._look)

    def _look(self) -> None:
        try:
            self.dealer.look()
        except HdcosError as error:
            self.shortage = error

    def settle(self) -> None:
        """Wait until everything ordered so far has arrived."""
        self._later(lambda: None).result()

    def _later(self, work: Callable[..., T], *arguments: Any, order: Order | None = None) -> Future[T]:
        """Have the supply thread do this behind all else."""
        with self._queueing:
            self._waiting.append(order)
            return self._supply.submit(self._do, work, arguments)

    def _do(self, work: Callable[..., T], arguments: tuple[Any, ...]) -> T:
        self._waiting.popleft()
        return work(*arguments)

    def _following(self) -> Order | None:
        """The order that the supply thread fills next, if that is what it does next."""
        return self._waiting[0] if self._waiting else None

    def _fill(self, pool: MaterialPool, executions: int) -> None:
        started, before = perf_counter(), self.dealer.meter.total("offline")
        try:
            with guarded(self.device):
                self.dealer.fill(pool, executions, self._following)
        except Exception as error:
            if not isinstance(error, HdcosError):
                error = HdcosError(f"making material failed ({type(error).__name__})")
            pool.fail(error)
            if isinstance(error, PeerLost):
                self.shortage = error
            raise
        self.offline_s += perf_counter() - started
        self._filling[pool] = self.material_cost(pool) + self.dealer.meter.total("offline") - before

    # ---- programs

    @contextmanager
    def attempt(self, section: str) -> Iterator[None]:
        """Around all that leads to a program and the program itself.

        Whatever fails, before the first round or in any, is told to the peer, which must not wait for a round that
        will not come. Both sides then make a new link for the next program, as they do when one has carried enough.
        """
        with self.meter.section(section):
            if self._connection is not None and self._connection[0].worn:
                self._connection[0].close()
            peer = self.peer
            try:
                yield
            except BaseException as error:
                peer.abort(error)
                raise

    def run(self, agreed: bytes, program: Rounds[T], allocations: Sequence[Allocation]) -> T:
        """Run a program with the peer, inside an `attempt`; both must mean the same by `agreed`."""
        result = self.talk(agreed, packed(program))
        for allocation in allocations:
            allocation.finish()
        return result

    def talk(self, agreed: bytes, conversation: Talk[T]) -> T:
        """The same for a program whose messages are packed, and which sees to its material itself."""
        peer = self.peer
        peer.context = int.from_bytes(agreed[:8], "little")
        started = perf_counter()
        with guarded(self.device):
            result = talk(conversation, peer)
        self.online_s += perf_counter() - started
        return result

    def place(self, share: Share) -> Share:
        """A share where programs compute."""
        return share if self.device is None else replace(share, words=self.device.put(share.words))

    def fetch(self, share: Share) -> Share:
        """A share that a program made, in the memory of this machine."""
        return share if self.device is None else replace(share, words=to_host(share.words))

    def once(self, scope: str, planned: Planned, agreed: list[object], program: Callable[[Party], Rounds[T]]) -> T:
        """Run a program once, offline, with material of its own."""
        pool = self.open(scope, planned)
        self.order(pool, 1).result()
        record = [scope, planned.material.fingerprint.hex(), *agreed]
        with self.attempt("offline"):
            allocation = pool.begin(1)
            return self.run(fingerprint(record), program(Party(self.rank, allocation)), [allocation])

    def ping(self, rounds: int) -> float:
        """The mean time of an exchange of nothing: one round trip as the protocols see it."""
        peer = self.peer
        peer.context = 0
        started = perf_counter()
        for _ in range(rounds):
            peer.exchange([])
        return (perf_counter() - started) / max(1, rounds)

    def stop(self) -> None:
        self._supply.shutdown(cancel_futures=True)
        if self._connection is not None:
            self._connection[0].close()
        self.dealer.leave()
