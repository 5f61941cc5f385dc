"""A node as a process of its own: `python -m hdcos.serve.node`, configured by one line of JSON on its input.

The process ends when its input does: whoever started it is gone then, however it went.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import sys
import threading
from dataclasses import dataclass
from typing import Any

from hdcos._version import __version__
from hdcos.errors import HandshakeError, HdcosError, PeerLost
from hdcos.link import Certificate, Emulation, Hello, Identity, Link, Listener, Meter, connect, handshake
from hdcos.offline import Dealer
from hdcos.offline.service import DealerClient, serve_dealer
from hdcos.ring import keep_memory, table_hash
from hdcos.serve.engine import Engine
from hdcos.serve.party import PartyNode

SOFTWARE = hashlib.sha256(f"hdcos {__version__}".encode()).digest()
"""The program that links which carry many programs agree on: the software itself."""


@dataclass(frozen=True)
class Node:
    """Who this process is and how it reaches the others."""

    role: str
    identity: Identity
    certificates: dict[str, Certificate]
    addresses: dict[str, tuple[str, int]]
    listener_fd: int
    run: bytes
    timeout_s: float
    emulation: Emulation | None

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> Node:
        emulation = record["emulation"]
        certificates = {role: Certificate.from_pem(pem) for role, pem in record["certificates"].items()}
        return cls(
            record["role"],
            Identity(record["role"], certificates[record["role"]], record["key"].encode()),
            certificates,
            {role: (host, port) for role, (host, port) in record["addresses"].items()},
            record["listener_fd"],
            bytes.fromhex(record["run"]),
            record["timeout_s"],
            Emulation(**emulation) if emulation else None,
        )

    def greet(self, link: Link) -> Hello:
        """Compare versions, tables and runs with whoever is at the other end; returns its hello."""
        return handshake(link, self.hello())

    def hello(self) -> Hello:
        return Hello(self.role, SOFTWARE, table_hash(), self.run)

    def listen(self, *roles: str) -> Listener:
        return Listener(
            self.identity,
            {self.certificates[role]: role for role in roles},
            sock=socket.socket(fileno=self.listener_fd),
            link_timeout_s=self.timeout_s,
            emulation=self.emulation,
        )

    def dial(self, role: str, meter: Meter | None = None) -> Link:
        host, port = self.addresses[role]
        return connect(
            self.identity,
            {self.certificates[role]: role},
            host,
            port,
            self.timeout_s,
            link_timeout_s=self.timeout_s,
            emulation=self.emulation,
            meter=meter,
        )


def run_dealer(node: Node) -> None:
    """Serve whichever party connects, each connection in a thread of its own, for as long as the process lives."""
    dealer = Dealer()
    with node.listen("party0", "party1") as listener:
        while True:
            link = listener.accept(None)
            threading.Thread(target=_deal_until_goodbye, args=(node, dealer, link), daemon=True).start()


def _deal_until_goodbye(node: Node, dealer: Dealer, link: Link) -> None:
    try:
        node.greet(link)
        serve_dealer(dealer, link, int(link.peer == "party1"))
    except HdcosError as error:
        print(f"dealer: {error}", file=sys.stderr)


def run_party(node: Node, rank: int) -> None:
    """Serve one client until it leaves."""
    peer = f"party{1 - rank}"
    meter = Meter()
    waiting: list[Link] = []
    expected = ("client", peer) if rank == 0 else ("client",)
    with node.listen(*expected) as listener:

        def accept(role: str, meter: Meter | None = None) -> Link:
            """The next link from a role; links of other roles wait their turn."""
            for link in waiting:
                if link.peer == role:
                    waiting.remove(link)
                    return link
            while True:
                link = listener.accept(node.timeout_s, meter)
                if link.peer == role:
                    return link
                waiting.append(link)

        def connect_peer(meter: Meter) -> tuple[Link, bytes]:
            link = accept(peer, meter) if rank == 0 else node.dial(peer, meter)
            mine = node.hello()
            theirs = handshake(link, mine)
            nonces = sorted([(mine.role, mine.nonce), (theirs.role, theirs.nonce)])
            return link, hashlib.sha256(b"".join(nonce for _, nonce in nonces)).digest()

        def dial_dealer(meter: Meter) -> Link:
            link = node.dial("dealer", meter)
            node.greet(link)
            return link

        dealer = DealerClient(dial_dealer, rank)
        client = accept("client")
        node.greet(client)
        engine = Engine(rank, connect_peer, dealer, meter, node.timeout_s)
        try:
            PartyNode(engine).serve(client)
        except PeerLost as error:
            print(f"{node.role}: {error}", file=sys.stderr)
        finally:
            engine.stop()


def main() -> None:
    keep_memory()
    sys.setswitchinterval(0.0005)  # a round should not wait while material is unpacked
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for whoever started this process
    node = Node.from_json(json.loads(sys.stdin.readline()))
    threading.Thread(target=_end_with_input, daemon=True).start()
    try:
        if node.role == "dealer":
            run_dealer(node)
        else:
            run_party(node, int(node.role[-1]))
    except (HandshakeError, PeerLost) as error:
        sys.exit(f"{node.role}: {error}")


def _end_with_input() -> None:
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
