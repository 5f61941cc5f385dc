"""A party's engine: its link to the peer, its stocks of material, and programs run with both.

Security  the frames of a program carry a context, a hash of what both parties must mean: program, material, execution.
          A peer that means anything else is refused at its first frame, before a second value could be opened
          under a mask. A program that fails is aborted on both sides and its material is burnt.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from time import perf_counter
from typing import TypeVar
from weakref import WeakKeyDictionary

from hdcos.errors import HdcosError, PeerLost
from hdcos.link import Count, Link, Meter
from hdcos.offline import Allocation, MaterialPool
from hdcos.offline.source import MaterialSource
from hdcos.party.work import fingerprint
from hdcos.protocol.party import Party
from hdcos.protocol.plan import Planned
from hdcos.protocol.rounds import Rounds, run

T = TypeVar("T")


class Engine:
    """Runs programs with the peer, and has material made while they run."""

    def __init__(
        self,
        rank: int,
        connect_peer: Callable[[Meter], tuple[Link, bytes]],
        dealer: MaterialSource,
        meter: Meter,
        timeout_s: float = 30.0,
    ) -> None:
        self.rank, self.meter, self.timeout_s = rank, meter, timeout_s
        self.dealer = dealer
        self.online_s = self.offline_s = 0.0
        self.shortage: HdcosError | None = None
        """Why material stopped coming, if it did."""
        self.pair_seed = b""
        """Known to the two parties alone; new with every link."""
        self._filling: WeakKeyDictionary[MaterialPool, Count] = WeakKeyDictionary()
        self._connect_peer = connect_peer
        self._peer: Link | None = None
        # The dealer's link belongs to this one thread, which fills stocks while rounds go on.
        self._supply = ThreadPoolExecutor(1, thread_name_prefix="supply")

    @property
    def peer(self) -> Link:
        """The link to the other party; a new one after a failure."""
        if self._peer is None or self._peer.closed:
            self._peer, self.pair_seed = self._connect_peer(self.meter)
        return self._peer

    def adopt(self, link: Link, pair_seed: bytes) -> None:
        """Use a link that was made before."""
        self._peer, self.pair_seed = link, pair_seed

    def open(self, scope: str, planned: Planned, singly: bool = False) -> MaterialPool:
        """A new stock for a plan; `singly` says that its executions will be spent one by one."""
        return self._supply.submit(self.dealer.open, scope, planned.material, planned.precompute, singly).result()

    def material_cost(self, stock: MaterialPool) -> Count:
        """What filling a stock took so far, at this party."""
        return self._filling.get(stock, Count())

    def close(self, stock: MaterialPool) -> None:
        self._supply.submit(self.dealer.close, stock.name).result()

    def order(self, stock: MaterialPool, executions: int) -> Future[None]:
        """Have material made in the background."""
        stock.order(executions)
        return self._supply.submit(self._fill, stock, executions)

    def greet_dealer(self) -> Future[None]:
        """See in the background whether the dealer still answers."""
        return self._supply.submit(self._look)

    def _look(self) -> None:
        try:
            self.dealer.look()
        except HdcosError as error:
            self.shortage = error

    def settle(self) -> None:
        """Wait until everything ordered so far has arrived."""
        self._supply.submit(lambda: None).result()

    def exchange(self, agreed: bytes, begin: Callable[[], tuple[Rounds[T], list[Allocation]]]) -> T:
        """Run a program with the peer; both must mean the same by `agreed`.

        Whatever fails, before the first round or in any, is told to the peer, which must not wait for a round that
        will not come. Both sides then make a new link for the next program.
        """
        peer = self.peer
        peer.context = int.from_bytes(agreed[:8], "little")
        try:
            program, rations = begin()
            started = perf_counter()
            result = run(program, peer)
            self.online_s += perf_counter() - started
            for ration in rations:
                ration.finish()
        except BaseException as error:
            peer.abort(error)
            raise
        return result

    def once(self, scope: str, planned: Planned, agreed: list[object], program: Callable[[Party], Rounds[T]]) -> T:
        """Run a program once, with material of its own."""
        stock = self.open(scope, planned)
        self.order(stock, 1).result()

        def begin() -> tuple[Rounds[T], list[Allocation]]:
            ration = stock.begin(1)
            return program(Party(self.rank, ration)), [ration]

        record = [scope, planned.material.fingerprint.hex(), *agreed]
        return self.exchange(fingerprint(record), begin)

    def stop(self) -> None:
        self._supply.shutdown(cancel_futures=True)
        if self._peer is not None:
            self._peer.close()
        self.dealer.leave()

    def _fill(self, stock: MaterialPool, executions: int) -> None:
        started, before = perf_counter(), self.dealer.meter.total("offline")
        try:
            self.dealer.fill(stock, executions)
        except Exception as error:
            if not isinstance(error, HdcosError):
                error = HdcosError(f"making material failed ({type(error).__name__})")
            stock.fail(error)
            if isinstance(error, PeerLost):
                self.shortage = error
            raise
        self.offline_s += perf_counter() - started
        self._filling[stock] = self.material_cost(stock) + self.dealer.meter.total("offline") - before
