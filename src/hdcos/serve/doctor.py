"""What is wrong with a cluster, seen from one of its nodes, and what to do about it.

Looks only: the key is read to speak TLS, nothing is written, and the nodes that are asked see a hello and a goodbye.
"""

from __future__ import annotations

import datetime
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hdcos.errors import HdcosError
from hdcos.link import Certificate, Hello, Identity, connect, handshake
from hdcos.ring import backend, table_hash
from hdcos.serve.node import SOFTWARE
from hdcos.serve.site import CARD_FILE, CLIENT, Card, Site

SOON_DAYS = 30
ASKS = {"dealer": (), "party0": ("dealer",), "party1": ("dealer",), CLIENT: ("party0", "party1")}
"""Who answers a hello at once; of the others only the port is tried."""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    what: str
    ok: bool
    text: str


def examine(cluster: Path, folder: Path, timeout_s: float = 5.0) -> Iterator[Finding]:
    """Findings about the cluster file, this node and the others, as they are made."""
    try:
        site = Site.read(cluster)
        card, identity = Card.read(folder / CARD_FILE), Identity.load(folder)
    except HdcosError as error:
        yield Finding("files", False, str(error))
        return
    yield Finding("files", True, f"{cluster} and {folder} can be read; kernels {backend()}")
    yield _own_certificate(site, card, identity)
    for node in (*site.servers.values(), *site.clients):
        yield _expiry(node.name or node.role, node.certificate)
    for role, node in site.servers.items():
        if role != card.role:
            yield _reached(site, card, identity, node, timeout_s)


def _own_certificate(site: Site, card: Card, identity: Identity) -> Finding:
    if card.role == CLIENT:
        known = {client.certificate for client in site.clients}
    else:
        known = {server.certificate for role, server in site.servers.items() if role == card.role}
    if identity.certificate in known:
        return Finding("this node", True, f"{card.role}, key and certificate are those of the cluster file")
    return Finding(
        "this node",
        False,
        f"the cluster file knows another certificate for {card.role}. Combine the cards again with `hdcos init`",
    )


def _expiry(name: str, certificate: Certificate) -> Finding:
    left = certificate.expires - datetime.datetime.now(datetime.UTC)
    text = f"valid until {certificate.expires:%Y-%m-%d}"
    if left.days < SOON_DAYS:
        text += ": make a new one with `hdcos node init` and combine the cards again"
    return Finding(f"certificate of {name}", left.days >= SOON_DAYS, text)


def _reached(site: Site, card: Card, identity: Identity, node: Card, timeout_s: float) -> Finding:
    what, (host, port) = f"{node.role} at {node.address}", node.endpoint
    started = time.perf_counter()
    try:
        if node.role not in ASKS[card.role]:
            socket.create_connection((host, port), timeout=timeout_s).close()
            return Finding(what, True, f"its port answers in {_ms(started)}; it says no hello to {card.role} now")
        allowed = {node.certificate: node.role}
        with connect(identity, allowed, host, port, timeout_s, retry=False, link_timeout_s=timeout_s) as link:
            handshake(link, Hello(card.role, SOFTWARE, table_hash(), site.run))
        return Finding(what, True, f"same version, table and cluster; TLS and hello took {_ms(started)}")
    except HdcosError as error:
        return Finding(what, False, str(error))
    except OSError as error:
        return Finding(what, False, f"out of reach ({error.strerror or error}). Is it running, and is its port open?")


def _ms(started: float) -> str:
    return f"{(time.perf_counter() - started) * 1e3:.0f} ms"
