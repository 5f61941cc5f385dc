"""The three links between the parties: rounds, commands (from party 0) and arrivals (from party 1).

Each link is used by one thread at each end. Party 1 dials and names the session and what a link is for; party 0 takes
the three links of the newest session. A node that only wants to look gets a word about this one and is let go.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Condition, Thread
from typing import Any

from hdcos.errors import HdcosError, PeerLost
from hdcos.link import Kind, Link, Meter, split_name
from hdcos.link.message import decode_message, encode_message, request
from hdcos.party.node import Node, log

PURPOSES = ("rounds", "commands", "arrivals")
TRANSFERS = "transfers"
"""A fourth link, where there is no dealer."""
DIAL_S = 5.0


@dataclass
class Links:
    """What one session talks over."""

    rounds: Link
    commands: Link
    arrivals: Link
    pair_seed: bytes = field(repr=False)
    """Known to the two parties alone."""
    meter: Meter

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


def _dial_for(node: Node, purpose: str, session: str, meter: Meter | None) -> tuple[Link, bytes]:
    link = node.dial("party0", meter, DIAL_S)
    try:
        seed = node.greet(link)
        request(link, {"purpose": purpose, "session": session}, timeout_s=node.timeout_s)
    except BaseException as error:
        link.abort(error)
        raise
    return link, seed


class PeerListener:
    """Takes in everybody who connects, for as long as the process lives."""

    def __init__(self, node: Node, status: Callable[[], Mapping[str, Any]]) -> None:
        self._node, self._status = node, status
        self._changed = Condition()
        self._session = ""
        self._waiting: dict[str, tuple[Link, bytes]] = {}
        self._transfers: tuple[Link, bytes] | None = None
        roles = [role for role in node.certificates if role != node.role]
        self._listener = node.listen(*roles)
        self._thread = Thread(target=self._accept, name="listener", daemon=True)
        self._thread.start()

    def links(self, meter: Meter, timeout_s: float) -> Links:
        """The links of the next session that party 1 began."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._waiting) == len(PURPOSES), timeout_s):
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

    def _accept(self) -> None:
        while True:
            try:
                link = self._listener.accept(None)
            except PeerLost as error:  # of a worker: its node is gone, which ends it too
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
            if purpose in (*PURPOSES, TRANSFERS) and parties:
                link.send(Kind.REPLY, *encode_message({}))
                self._keep(link, purpose, session, seed)
                return
            link.send(Kind.REPLY, *encode_message({**self._status(), "time": time.time()}))
            link.close()
        except HdcosError as error:
            link.abort(error)  # a visitor that makes no sense is nobody's problem but its own

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
