"""The three links between the parties: rounds, commands (from party 0) and arrivals (from party 1).

Each link is used by one thread at each end. Party 1 dials and names the session and what a link is for; party 0 takes
the three links of the newest session. A node that only wants to look gets a word about this one and is let go.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Condition, Event, Thread
from typing import Any

from hdcos.errors import HdcosError, PeerLost, PolicyRefused
from hdcos.link import Kind, Link, Meter, split_name
from hdcos.link.message import decode_message, encode_message, integer, request
from hdcos.party.node import Node, log

PURPOSES = ("rounds", "commands", "arrivals")
TRANSFERS = "transfers"
"""A fourth link, where there is no dealer."""
SIDE_WORKER = "side worker"
"""A link for each further pair of workers: what party 0's node says of it."""
DIAL_S, LOOK_S = 5.0, 0.5


@dataclass
class Links:
    """What one session talks over."""

    rounds: Link
    commands: Link
    arrivals: Link
    pair_seed: bytes = field(repr=False)
    """Known to the two parties alone."""
    meter: Meter

    @property
    def worn(self) -> bool:
        """Whether one of them has carried nearly as much as it may."""
        return any(link.worn for link in (self.rounds, self.commands, self.arrivals))

    def close(self, error: BaseException | None, but_arrivals: bool = False) -> None:
        for link in (self.rounds, self.commands, *(() if but_arrivals else (self.arrivals,))):
            if error is None:
                link.close()
            else:
                link.abort(error)


def dial(node: Node, meter: Meter) -> Links:
    """Party 1 calls party 0."""
    session = secrets.token_hex(16)
    made: list[tuple[Link, bytes]] = []
    try:
        for purpose in PURPOSES:
            made.append(_dial_for(node, purpose, session, meter if purpose == "rounds" else None))
    except BaseException as error:
        for link, _ in made:
            link.abort(error)
        raise
    (rounds, seed), (commands, _), (arrivals, _) = made
    return Links(rounds, commands, arrivals, seed, meter)


def dial_transfers(node: Node, meter: Meter) -> tuple[Link, bytes]:
    """Party 1 calls party 0 for a link on which they make material without a dealer."""
    return _dial_for(node, TRANSFERS, "", meter)


def dial_side_worker(node: Node, index: int, token: str, take: Callable[[Link], None]) -> tuple[Link, dict[str, Any]]:
    """Party 1 calls party 0 for a further pair of workers; the link, and what is said of party 0's worker.

    The link is taken before anything is waited for on it.
    """
    link, _, said = _dial(node, {"purpose": SIDE_WORKER, "session": token, "worker": index}, None, take)
    return link, said


def _dial_for(node: Node, purpose: str, session: str, meter: Meter | None) -> tuple[Link, bytes]:
    link, seed, _ = _dial(node, {"purpose": purpose, "session": session}, meter)
    return link, seed


def _dial(
    node: Node, asked: dict[str, Any], meter: Meter | None, take: Callable[[Link], None] | None = None
) -> tuple[Link, bytes, dict[str, Any]]:
    link = node.dial("party0", meter, DIAL_S)
    try:
        if take is not None:
            take(link)
        seed = node.greet(link)
        said, _ = request(link, asked, timeout_s=node.timeout_s)
    except BaseException as error:
        link.abort(error)
        raise
    return link, seed, said


class PeerListener:
    """Takes in everybody who connects, for as long as the process lives."""

    def __init__(self, node: Node, status: Callable[[], Mapping[str, Any]]) -> None:
        self._node, self._status = node, status
        self._changed = Condition()
        self._session = ""
        self._waiting: dict[str, tuple[Link, bytes]] = {}
        self._transfers: tuple[Link, bytes] | None = None
        self._side_workers: dict[int, tuple[Link, str]] = {}
        self.closing = False
        """Whether the node is being stopped."""
        self.workers = 1
        """That this party has: others that party 1 asks for are refused."""
        roles = [role for role in node.certificates if role != node.role]
        self._listener = node.listen(*roles)
        self._thread = Thread(target=self._accept, name="listener", daemon=True)
        self._thread.start()

    def links(self, meter: Meter, timeout_s: float) -> Links:
        """The links of the next session that party 1 began."""
        with self._changed:
            self._changed.wait_for(lambda: self.closing or len(self._waiting) == len(PURPOSES), timeout_s)
            if len(self._waiting) < len(PURPOSES):
                raise PeerLost(f"party 1 did not connect within {timeout_s:g} s")
            taken, self._waiting, self._session = self._waiting, {}, ""
        rounds, seed = taken["rounds"]
        rounds.meter = meter
        return Links(rounds, taken["commands"][0], taken["arrivals"][0], seed, meter)

    def transfers(self, meter: Meter, timeout_s: float) -> tuple[Link, bytes]:
        """The next link that party 1 made for material."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._transfers is not None, timeout_s):
                raise PeerLost(f"party 1 made no link for material within {timeout_s:g} s")
            assert self._transfers is not None
            (link, seed), self._transfers = self._transfers, None
        link.meter = meter
        return link, seed

    def side_worker(self, index: int, timeout_s: float, stop: Event) -> tuple[Link, str]:
        """The next link that party 1 made for a further pair of workers, and the token of that life."""
        limit = time.monotonic() + timeout_s
        with self._changed:
            while not self._changed.wait_for(lambda: stop.is_set() or index in self._side_workers, LOOK_S):
                if time.monotonic() > limit:
                    raise PeerLost(f"party 1 has not asked for worker {index} yet: it may have fewer")
            if stop.is_set():  # a link that came is for the next worker of this number
                raise PeerLost(f"worker {index} was stopped before party 1 asked for it")
            return self._side_workers.pop(index)

    def close(self) -> None:
        """The node is being stopped: nobody waits for party 1 any more."""
        with self._changed:
            self.closing = True
            self._changed.notify_all()

    def _accept(self) -> None:
        while True:
            try:
                link = self._listener.accept(None)
            except PeerLost as error:  # there is no public port any more
                if not self.closing:
                    log.error(str(error))
                self._listener.close()
                return
            Thread(target=self._admit, args=(link,), name="visitor", daemon=True).start()

    def _admit(self, link: Link) -> None:
        try:
            seed = self._node.greet(link)
            _, payload = link.receive(Kind.REQUEST, limit=1 << 12)
            meta, _ = decode_message(payload)
            purpose, session = str(meta.get("purpose")), str(meta.get("session"))
            parties = (self._node.role, split_name(link.peer)[0]) == ("party0", "party1")
            if purpose == SIDE_WORKER and parties:
                self._keep_side_worker(link, integer(meta, "worker"), session)
                return
            if purpose in (*PURPOSES, TRANSFERS) and parties:
                link.send(Kind.REPLY, *encode_message({}))
                self._keep(link, purpose, session, seed)
                return
            link.send(Kind.REPLY, *encode_message({**self._status(), "time": time.time()}))
            link.close()
        except HdcosError as error:
            link.abort(error)  # a visitor that makes no sense is nobody's problem but its own

    def _keep_side_worker(self, link: Link, index: int, token: str) -> None:
        """It is answered when this party's own worker is to be started; one that there is no worker for is refused."""
        if not 0 < index < self.workers:
            raise PolicyRefused(
                f"party 0 has {self.workers} workers and party 1 asks for worker {index}: "
                f"start both with the same number of --workers"
            )
        with self._changed:
            if index in self._side_workers:
                self._side_workers[index][0].close()
            self._side_workers[index] = (link, token)
            self._changed.notify_all()

    def _keep(self, link: Link, purpose: str, session: str, seed: bytes) -> None:
        with self._changed:
            if purpose == TRANSFERS:
                if self._transfers is not None:
                    self._transfers[0].close()
                self._transfers = (link, seed)
                self._changed.notify_all()
                return
            if session != self._session:  # party 1 began again: what it left is void
                for old, _ in self._waiting.values():
                    old.close()
                self._waiting, self._session = {}, session
            self._waiting[purpose] = (link, seed)
            self._changed.notify_all()
