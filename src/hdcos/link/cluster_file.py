"""A cluster on several machines: who its nodes are, where they listen, and the file that all of them share.

Each node makes its own key, which never leaves it, and a *node card*: its role, its addresses and its certificate. Node
cards are exchanged by hand and combined into one cluster file. Certificates are pinned: a node in the file is trusted
for its role, no other is. The file holds no secret, but those who can change it can replace a node: compare
fingerprints.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hdcos.errors import InputError, PolicyRefused
from hdcos.files import private_folder, read_toml, write_whole
from hdcos.link import Certificate, Identity
from hdcos.link.identity import CERTIFICATE_FILE, RENEW

VERSION = 1
SERVERS = ("dealer", "party0", "party1")
PARTIES = SERVERS[1:]
NO_DEALER = "none"
"""What a cluster file says for its dealer where the parties make their material themselves."""
CARD_FILE = "card.toml"


@dataclass(frozen=True)
class NodeCard:
    """A node as others know it: other nodes connect to its address, clients to the HTTPS address of a party."""

    role: str
    certificate: Certificate
    address: str
    http: str = ""
    authority: str = ""
    """The certificate, in PEM, that HTTPS clients check a party's against, where that is not the node's own."""

    def __post_init__(self) -> None:
        if self.role not in SERVERS:
            raise InputError(f"no role is called {self.role!r}: choose from {', '.join(SERVERS)}")
        endpoint(self.address, self.role)
        if self.role in PARTIES:
            endpoint(self.http, f"HTTPS of {self.role}")
        if self.authority:
            Certificate.from_pem(self.authority)

    @property
    def endpoint(self) -> tuple[str, int]:
        return endpoint(self.address, self.role)

    def toml(self) -> str:
        http = f'http = "{self.http}"\n' if self.http else ""
        authority = f'authority = """\n{self.authority}"""\n' if self.authority else ""
        return f'address = "{self.address}"\n{http}{authority}certificate = """\n{self.certificate.pem}"""\n'

    def card(self) -> str:
        return f'role = "{self.role}"\n{self.toml()}'

    def write(self, folder: Path) -> None:
        (folder / CARD_FILE).write_text(self.card())

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> NodeCard:
        return cls._from(read_toml(path, "a node's card"), os.fspath(path))

    @classmethod
    def _from(cls, record: Mapping[str, Any], path: str) -> NodeCard:
        needed = {"role", "certificate", "address"}
        known = {*needed, "http", "authority"}
        if not needed <= set(record) <= known or not all(isinstance(v, str) for v in record.values()):
            raise InputError(f"{path} is not a node's card: it has {sorted(record)}")
        try:
            return cls(**{**record, "certificate": Certificate.from_pem(record["certificate"])})
        except InputError as error:
            raise InputError(f"{path}: {error}") from error


@dataclass(frozen=True)
class ClusterFile:
    """All nodes of a cluster."""

    id: str
    servers: Mapping[str, NodeCard]

    @classmethod
    def of(cls, cards: Iterable[NodeCard], dealer: bool = True) -> ClusterFile:
        """A new cluster from its node cards."""
        cards = list(cards)
        roles = SERVERS if dealer else PARTIES
        servers = {card.role: card for card in cards if card.role in roles}
        missing = [role for role in roles if role not in servers]
        if missing or len(servers) != len(cards):
            raise InputError(f"a cluster takes one card of each of {', '.join(roles)}; missing: {missing or 'none'}")
        if len({card.certificate.fingerprint for card in cards}) != len(cards):
            raise InputError("two nodes have the same certificate: each node makes its own")
        return cls(secrets.token_hex(16), servers)

    @property
    def run(self) -> bytes:
        """What all nodes of one cluster say in their hello."""
        return bytes.fromhex(self.id)

    def require_issuing(self) -> None:
        """PolicyRefused if a node has a certificate from before workers, so that nobody would know its workers."""
        before = [role for role, card in self.servers.items() if not card.certificate.issues]
        if before:
            raise PolicyRefused(
                f"more than one worker needs certificates that issue theirs; those of {', '.join(before)} in the "
                f"cluster file are from before workers. At each of these nodes: {RENEW}"
            )

    def write(self, path: str | os.PathLike[str]) -> None:
        parts = [f'version = {VERSION}\nid = "{self.id}"\n']
        parts += [] if "dealer" in self.servers else [f'dealer = "{NO_DEALER}"\n']
        parts += [f"\n[{role}]\n{card.toml()}" for role, card in self.servers.items()]
        Path(path).write_text("".join(parts))

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> ClusterFile:
        record, where = read_toml(path, "a cluster file"), os.fspath(path)
        if record.get("version") != VERSION:
            raise InputError(
                f"{where} is a cluster file of version {record.get('version')}, this hdcos reads {VERSION}"
            )
        name = record.get("id")
        if not isinstance(name, str) or len(name) != 32 or set(name) - set("0123456789abcdef"):
            raise InputError(f"{where} has no id of 32 hexadecimal digits")
        roles = PARTIES if record.get("dealer") == NO_DEALER else SERVERS
        missing = [role for role in roles if not isinstance(record.get(role), dict)]
        if missing:
            raise InputError(f"{where} lacks {', '.join(missing)}")
        return cls(name, {role: NodeCard._from({"role": role, **record[role]}, where) for role in roles})


def endpoint(address: str, what: str) -> tuple[str, int]:
    """Host and port of an address."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise InputError(f"an address is host:port, got {address!r} for {what}")
    return host.strip("[]"), int(port)


def listening(address: str, what: str, option: str, backlog: int = 128) -> socket.socket:
    """A socket that listens on an address; InputError names it, and the option that chooses another, if it cannot."""
    host, port = endpoint(address, what)
    try:
        return socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=backlog
        )
    except OSError as error:
        why = (error.strerror or str(error)).partition(" (while")[0]
        raise InputError(
            f"cannot listen on {address} for {what}: {why}. Choose another with {option}, or end what listens there"
        ) from None


def make_node(folder: str | os.PathLike[str], role: str, address: str, http: str = "", authority: str = "") -> NodeCard:
    """A new key, certificate and node card in a folder of their own; nothing there is ever overwritten."""
    place = Path(folder)
    identity = Identity.create(role)
    card = NodeCard(role, identity.certificate, address, http, authority)
    private_folder(place)
    identity.save(place)
    card.write(place)
    return card


def renew_node(folder: str | os.PathLike[str]) -> tuple[NodeCard, Path]:
    """A new certificate for the key in a folder, and the node card with it. The old certificate stays under a name of
    its own: to go back, it is put in place again.
    """
    place = Path(folder)
    before, card = Identity.load(place), NodeCard.read(place / CARD_FILE)
    after = before.renewed()
    kept = place / f"certificate.{before.fingerprint[:16]}.pem"
    _write_public(kept, before.certificate.pem)
    _write_public(place / CERTIFICATE_FILE, after.certificate.pem)
    renewed = replace(card, certificate=after.certificate)
    _write_public(place / CARD_FILE, renewed.card())
    return renewed, kept


def _write_public(path: Path, text: str) -> None:
    write_whole(path, text.encode())
    path.chmod(0o644)
