"""A node as a process of its own.

Of a local cluster: `python -m hdcos.serve.node`, configured by one line of JSON on its input. The process ends when its
input does: whoever started it is gone then, however it went. Of a cluster on several machines: `serve_node`, configured
by its folder and the cluster file, until it is told to stop. Clients are served one after another, each from nothing.
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
from pathlib import Path
from typing import Any

from hdcos._version import __version__
from hdcos.errors import HandshakeError, HdcosError, PeerLost, PolicyRefused
from hdcos.link import Certificate, Emulation, Hello, Identity, Link, Listener, Meter, connect, handshake
from hdcos.offline import Dealer
from hdcos.offline.oblivious import ObliviousSource
from hdcos.offline.service import DealerClient, serve_dealer
from hdcos.offline.source import MaterialSource
from hdcos.ring import keep_memory, table_hash
from hdcos.serve.engine import Engine
from hdcos.serve.party import PartyNode
from hdcos.serve.policy import OPEN, Policy
from hdcos.serve.site import CARD_FILE, CLIENT, Card, Site

SOFTWARE = hashlib.sha256(f"hdcos {__version__}".encode()).digest()
"""The program that links which carry many programs agree on: the software itself."""
TRANSFERS = hashlib.sha256(f"hdcos {__version__} material without a dealer".encode()).digest()
"""What the parties agree on for the link over which they make material."""


@dataclass(frozen=True)
class Node:
    """Who this process is and how it reaches the others."""

    role: str
    identity: Identity
    certificates: dict[str, tuple[Certificate, ...]]
    """Of each role; clients may be several."""
    addresses: dict[str, tuple[str, int]]
    listener: socket.socket
    run: bytes
    timeout_s: float
    emulation: Emulation | None
    policy: Policy = OPEN

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> Node:
        emulation = record["emulation"]
        certificates: dict[str, tuple[Certificate, ...]] = {
            role: (Certificate.from_pem(pem),) for role, pem in record["certificates"].items()
        }
        return cls(
            record["role"],
            Identity(record["role"], certificates[record["role"]][0], record["key"].encode()),
            certificates,
            {role: (host, port) for role, (host, port) in record["addresses"].items()},
            socket.socket(fileno=record["listener_fd"]),
            bytes.fromhex(record["run"]),
            record["timeout_s"],
            Emulation(**emulation) if emulation else None,
        )

    @classmethod
    def from_site(cls, folder: Path, site: Site, listen: str, timeout_s: float, reveal: bool) -> Node:
        """A node of a cluster on several machines; its own certificate must be the one in the cluster file."""
        identity = Identity.load(folder)
        card = Card.read(folder / CARD_FILE)
        known = site.servers.get(card.role)
        if known is None or known.certificate != identity.certificate:
            raise PolicyRefused(f"the cluster file has another certificate for {card.role} than {folder} has a key for")
        host, port = Card(card.role, identity.certificate, listen or known.address).endpoint
        certificates = {role: (server.certificate,) for role, server in site.servers.items()}
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return cls(
            card.role,
            identity,
            {**certificates, CLIENT: tuple(client.certificate for client in site.clients)},
            {role: server.endpoint for role, server in site.servers.items()},
            socket.create_server((host, port), family=family),
            site.run,
            timeout_s,
            None,
            Policy(reveal, folder / "checkpoints"),
        )

    @property
    def dealt(self) -> bool:
        """Whether this cluster has a dealer."""
        return "dealer" in self.addresses

    def greet(self, link: Link) -> Hello:
        """Compare versions, tables and runs with whoever is at the other end; returns its hello."""
        return handshake(link, self.hello())

    def hello(self, program: bytes = SOFTWARE) -> Hello:
        return Hello(self.role, program, table_hash(), self.run)

    def listen(self, *roles: str) -> Listener:
        return Listener(
            self.identity,
            {certificate: role for role in roles for certificate in self.certificates[role]},
            sock=self.listener,
            link_timeout_s=self.timeout_s,
            emulation=self.emulation,
        )

    def dial(self, role: str, meter: Meter | None = None) -> Link:
        host, port = self.addresses[role]
        return connect(
            self.identity,
            dict.fromkeys(self.certificates[role], role),
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


class _Doors:
    """The links that come in, by role: one that is not wanted yet waits."""

    def __init__(self, listener: Listener, timeout_s: float) -> None:
        self._listener, self._timeout_s = listener, timeout_s
        self._waiting: list[Link] = []

    def accept(self, role: str, meter: Meter | None = None, patient: bool = False) -> Link:
        """The next link from a role; a patient node waits forever."""
        for link in self._waiting:
            if link.peer == role:
                self._waiting.remove(link)
                return link
        while True:
            link = self._listener.accept(None if patient else self._timeout_s, meter)
            if link.peer == role:
                return link
            self._waiting.append(link)


def run_party(node: Node, rank: int, forever: bool = False) -> None:
    """Serve one client until it leaves; or one after another, forever."""
    # For programs party 1 dials party 0; for material without a dealer it is the other way round, so that nobody
    # mistakes one link for the other.
    expected = ("client", f"party{1 - rank}") if rank == 0 or not node.dealt else ("client",)
    with node.listen(*expected) as listener:
        doors = _Doors(listener, node.timeout_s)
        while True:
            try:
                _serve_client(node, rank, doors, patient=forever)
            except HdcosError as error:
                if not forever:
                    raise
                print(f"{node.role}: {error}", file=sys.stderr, flush=True)
            if not forever:
                return


def _serve_client(node: Node, rank: int, doors: _Doors, patient: bool) -> None:
    """One client from its hello to its goodbye: shares, material and links to the others are its own."""
    peer = f"party{1 - rank}"

    def connect_peer(meter: Meter) -> tuple[Link, bytes]:
        link = doors.accept(peer, meter) if rank == 0 else node.dial(peer, meter)
        return link, _greeted(link, node.hello())

    def connect_transfers(meter: Meter) -> tuple[Link, bytes]:
        link = doors.accept(peer, meter) if rank == 1 else node.dial(peer, meter)
        return link, _greeted(link, node.hello(TRANSFERS))

    def dial_dealer(meter: Meter) -> Link:
        link = node.dial("dealer", meter)
        node.greet(link)
        return link

    client = doors.accept("client", patient=patient)
    node.greet(client)
    source: MaterialSource = DealerClient(dial_dealer, rank) if node.dealt else ObliviousSource(connect_transfers, rank)
    engine = Engine(rank, connect_peer, source, Meter(), node.timeout_s)
    try:
        PartyNode(engine, node.policy).serve(client)
    except PeerLost as error:
        print(f"{node.role}: {error}", file=sys.stderr, flush=True)
    finally:
        engine.stop()


def _greeted(link: Link, mine: Hello) -> bytes:
    """Compare hellos; what both nonces make is known to the two parties alone and new with every link."""
    theirs = handshake(link, mine)
    nonces = sorted([(mine.role, mine.nonce), (theirs.role, theirs.nonce)])
    return hashlib.sha256(b"".join(nonce for _, nonce in nonces)).digest()


def serve_node(folder: Path, site: Site, listen: str = "", timeout_s: float = 30.0, reveal: bool = False) -> None:
    """Run a node of a cluster on several machines until the process ends."""
    keep_memory()
    sys.setswitchinterval(0.0005)
    node = Node.from_site(folder, site, listen, timeout_s, reveal)
    host, port = node.listener.getsockname()[:2]
    print(f"{node.role}: listening on {host}:{port}", file=sys.stderr, flush=True)
    if node.role == "dealer":
        run_dealer(node)
    else:
        run_party(node, int(node.role[-1]), forever=True)


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
