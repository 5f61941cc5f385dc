"""A node as a process of its own.

Of a local cluster: `python -m hdcos.party`, configured by one line of JSON on its input. The process ends when its
input does: its caller is gone then, however it went. Nodes of a cluster on several machines are configured by
their folder and the cluster file: the dealer is `run_dealer` as well, a party is `hdcos.party.service`.
"""

from __future__ import annotations

import gc
import hashlib
import json
import logging
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hdcos._version import __version__
from hdcos.errors import HdcosError, PeerLost, PolicyRefused
from hdcos.link import (
    Certificate,
    Emulation,
    Hello,
    Identity,
    Link,
    Listener,
    Meter,
    connect,
    handshake,
    split_name,
    worker_name,
)
from hdcos.link.cluster_file import CARD_FILE, SERVERS, ClusterFile, NodeCard, listening
from hdcos.link.handshake import SOFTWARE
from hdcos.link.names import MAX_WORKERS
from hdcos.offline import Dealer
from hdcos.offline.ot import OtSource
from hdcos.offline.source import DealerClient, MaterialSource, serve_dealer
from hdcos.party.engine import Engine
from hdcos.party.group import ALONE, GROUP, WORKER, Group, meaning, name_worker
from hdcos.party.local_front import LocalFront
from hdcos.party.patience import DEALER, SUM, join_s
from hdcos.ring import keep_memory, return_memory, table_hash
from hdcos.ring.device import CPU, Place

TRANSFERS = hashlib.sha256(f"hdcos {__version__} material without a dealer".encode()).digest()
"""What the parties agree on for the link over which they make material."""

KEPT_S, LONGEST_KEPT_S, LOOK_S, IDLE_USE = 60.0, 600.0, 5.0, 0.05
"""How long freed memory is kept without work and in any case, how often that is looked at, and of a core: no work."""

log = logging.getLogger("hdcos")


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
    worker: int = 0
    """Which of its party's workers this is."""
    pair: bytes = b""
    """What this worker and that of the other party say to each other, where it is not the run alone."""
    dealer: int = 0
    """Which of the dealer's workers makes the material of this pair."""
    place: Place = CPU
    """Where it computes."""

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> Node:
        emulation = record["emulation"]
        certificates: dict[str, tuple[Certificate, ...]] = {
            role: (Certificate.from_pem(pem),) for role, pem in record["certificates"].items()
        }
        addresses = {role: (host, port) for role, (host, port) in record["addresses"].items()}
        for index, (pem, (host, port)) in record["others"].items():
            certificates[name_worker(index)] = (Certificate.from_pem(pem),)
            addresses[name_worker(index)] = (host, port)
        return cls(
            record["role"],
            Identity(record["name"], Certificate.from_pem(record["certificate"]), record["key"].encode()),
            certificates,
            addresses,
            socket.socket(fileno=record["listener_fd"]),
            bytes.fromhex(record["run"]),
            record["timeout_s"],
            Emulation(**emulation) if emulation else None,
            record["worker"],
            bytes.fromhex(record["pair"]),
            record["dealer"],
            Place(**record["place"]),
        )

    @classmethod
    def from_cluster_file(
        cls, folder: Path, cluster: ClusterFile, listen: str, timeout_s: float, place: Place = CPU
    ) -> Node:
        """A node of a cluster on several machines; its own certificate must be the one in the cluster file."""
        identity = Identity.load(folder)
        identity.require_valid()
        role = NodeCard.read(folder / CARD_FILE).role
        known = cluster.servers[role]
        if known.certificate != identity.certificate:
            raise PolicyRefused(f"the cluster file has another certificate for {role} than {folder} has a key for")
        return cls(
            role,
            identity,
            {name: (server.certificate,) for name, server in cluster.servers.items()},
            {name: server.endpoint for name, server in cluster.servers.items()},
            listening(listen or known.address, role, "--listen"),
            cluster.run,
            timeout_s,
            None,
            place=place,
        )

    def settings_of(self, worker: int, public: bytes, dealer: int = 0, **more: Any) -> dict[str, Any]:
        """What a worker of this node, which has made a key with this public part, makes itself of by `from_json`."""
        name = worker_name(self.role, worker)
        return {
            "role": self.role,
            "name": name,
            "certificate": self.identity.certify(name, public).pem,
            "certificates": {role: known.pem for role, (known, *_) in self.certificates.items()},
            "addresses": self.addresses,
            "run": self.run.hex(),
            "pair": "",
            "dealer": dealer,
            "timeout_s": self.timeout_s,
            "emulation": None,
            "worker": worker,
            "others": {},
            "place": asdict(self.place.of_worker(worker)),
            **more,
        }

    @property
    def has_dealer(self) -> bool:
        """Whether this cluster has a dealer."""
        return "dealer" in self.addresses

    def greet_peer(self, link: Link, program: bytes = SOFTWARE) -> bytes:
        """As `greet`, for the other party's worker of the same pair."""
        return self.greet(link, program, run=self.pair or self.run)

    def greet(self, link: Link, program: bytes = SOFTWARE, role: str = "", run: bytes = b"") -> bytes:
        """Compare versions, tables and runs with the other end.

        What both nonces make is known to the two ends alone, since TLS hides it, and new with every link.
        """
        name = role or worker_name(self.role, self.identity.worker)
        mine = Hello(name, program, table_hash(), run or self.run)
        theirs = handshake(link, mine)
        nonces = sorted([(mine.role, mine.nonce), (theirs.role, theirs.nonce)])
        return hashlib.sha256(b"".join(nonce for _, nonce in nonces)).digest()

    def listen(self, *roles: str, workers: Iterable[int] | None = None) -> Listener:
        """For those of these workers that the roles can have; without, for those with the number of this one."""
        mine = (self.identity.worker,)
        several = mine if workers is None else tuple(workers)
        alone = mine if workers is None else (0,)  # certificates from before workers vouch for none
        return Listener(
            self.identity,
            {
                certificate: tuple(_name(role, number) for number in (several if certificate.issues else alone))
                for role in roles
                for certificate in self.certificates[role]
            },
            sock=self.listener,
            link_timeout_s=self.timeout_s,
            emulation=self.emulation,
        )

    def dial(
        self, role: str, meter: Meter | None = None, within_s: float | None = None, worker: int | None = None
    ) -> Link:
        """A link to a worker of a role; without, to the one with the number of this one."""
        host, port = self.addresses[role]
        name = _name(role, self.identity.worker if worker is None else worker)
        return connect(
            self.identity,
            dict.fromkeys(self.certificates[role], name),
            host,
            port,
            within_s or self.timeout_s,
            link_timeout_s=self.timeout_s,
            emulation=self.emulation,
            meter=meter,
            server_name=name if role in SERVERS else "",
        )

    def dial_dealer(self, meter: Meter, within_s: float | None = None) -> Link:
        link = self.dial("dealer", meter, within_s, self.dealer)
        link.timeout_s = DEALER * self.timeout_s
        self.greet(link)
        return link


def _name(role: str, worker: int) -> str:
    """What a peer is called. Roles that are no nodes, as a client's, have no workers."""
    return worker_name(role, worker) if role in SERVERS else role


def run_dealer(node: Node, say: Callable[[str], None] | None = None, workers: int = 1) -> None:
    """Serve whichever party connects, each connection in a thread of its own, for as long as the process lives.

    With `say`, or as one of several `workers`, it is not that of a local cluster: a party's material ends with its
    connection, since parties begin again then.
    """
    dealer = Dealer(node.place.open())
    with node.listen("party0", "party1", workers=range(MAX_WORKERS)) as listener:
        while True:
            link = listener.accept(None)
            known = (node, dealer, link, say, workers)
            threading.Thread(target=_deal_until_goodbye, args=known, daemon=True).start()


def _to_stderr(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _deal_until_goodbye(
    node: Node, dealer: Dealer, link: Link, say: Callable[[str], None] | None, workers: int
) -> None:
    closing = say is not None or bool(node.identity.worker)
    try:
        node.greet(link)
        serve_dealer(dealer, link, int(split_name(link.peer)[0] == "party1"), closing, workers)
    except HdcosError as error:
        (say or _to_stderr)(f"dealer: {error}")


def run_party(node: Node, rank: int) -> None:
    """Serve one client until it leaves."""
    peer = f"party{1 - rank}"
    peer_name = worker_name(peer, node.identity.worker)
    # For programs party 1 dials party 0; for material without a dealer it is the other way round, so that nobody
    # mistakes one link for the other.
    expected = ("client", peer) if rank == 0 or not node.has_dealer else ("client",)
    others = [role for role in node.certificates if role.startswith(WORKER)]
    device = node.place.open()
    with node.listen(*expected, *others) as listener:
        waiting: list[Link] = []

        def accept(role: str, meter: Meter | None = None) -> Link:
            """The next link from a role; one that is not wanted yet waits."""
            while not any(link.peer == role for link in waiting):
                waiting.append(listener.accept(node.timeout_s, meter))
            found = next(link for link in waiting if link.peer == role)
            waiting.remove(found)
            return found

        def connect_peer(meter: Meter) -> tuple[Link, bytes]:
            link = accept(peer_name, meter) if rank == 0 else node.dial(peer, meter)
            return link, node.greet_peer(link)

        def connect_transfers(meter: Meter) -> tuple[Link, bytes]:
            link = accept(peer_name, meter) if rank == 1 else node.dial(peer, meter)
            return link, node.greet_peer(link, TRANSFERS)

        def gather(workers: Sequence[int], scope: str) -> Group:
            def connect_group() -> list[Link]:
                first, *more = (name_worker(index) for index in workers)
                mine = name_worker(node.worker)
                # Where the first one is in a node it waits for a moment, otherwise for as long as the caller does.
                within_s = 1.5 * join_s(node.timeout_s) if node.pair else None
                links = [accept(name) for name in more] if mine == first else [node.dial(first, within_s=within_s)]
                for link in links:  # a worker whose certificate has a name goes by that
                    node.greet(link, GROUP, "" if node.identity.worker else mine, meaning(scope))
                    link.timeout_s = (SUM if mine == first else 1.0) * node.timeout_s
                return links

            return Group(workers.index(node.worker), len(workers), connect_group) if len(workers) > 1 else ALONE

        client = accept("client")
        node.greet(client)
        source: MaterialSource = OtSource(connect_transfers, rank, device)
        if node.has_dealer:
            source = DealerClient(node.dial_dealer, rank, device)
        engine = Engine(rank, connect_peer, source, Meter(), node.timeout_s, gather)
        try:
            LocalFront(engine).serve(client)
        except PeerLost as error:
            print(f"{node.role}: {error}", file=sys.stderr, flush=True)
        finally:
            engine.stop()


def tune_process() -> None:
    """What every node process wants: memory kept, and rounds that do not wait while material is unpacked."""
    keep_memory()
    sys.setswitchinterval(0.0005)
    threading.Thread(target=_tidy_memory, name="memory", daemon=True).start()


def release_memory() -> None:
    """Give back what a session held that has ended, before the next one begins: its objects refer to each other, and
    all the material of large models hangs on them."""
    gc.collect()
    return_memory()


def _tidy_memory() -> None:
    """Give the system back the pages that nothing is left on: after a minute without work, and now and then anyway.

    Kept memory is cut into pieces of all sizes, so its use creeps through ever more pages while no more is in use. But
    pages that are wanted again come back one fault at a time: a batch of a large network takes four times as long.

    Objects that refer to each other are looked for only where nothing works: everything else would wait meanwhile, and
    Python by itself looks when they have become a quarter of all, which takes millions of rows.
    """
    used_s = time.process_time()
    idle_s = since_s = 0.0
    while True:
        time.sleep(LOOK_S)
        before_s, used_s = used_s, time.process_time()
        idle_s = idle_s + LOOK_S if used_s - before_s < IDLE_USE * LOOK_S else 0.0
        since_s += LOOK_S
        if idle_s == KEPT_S:
            gc.collect()
        if idle_s == KEPT_S or since_s >= LONGEST_KEPT_S:
            return_memory()
            since_s = 0.0


class _JsonLines(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        line = {"at": record.created, "level": record.levelname.lower(), "message": record.getMessage()}
        if "at" in record.__dict__:
            line["place"] = record.__dict__["at"]
        if record.exc_info and record.exc_info[0] is not None:
            line["error"] = record.exc_info[0].__name__
        return json.dumps(line)


class _Lines(logging.Formatter):
    """Lines for people. An exception is named, its message and values are not shown: they might quote data."""

    def format(self, record: logging.LogRecord) -> str:
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        place = f" at {record.__dict__['at']}" if record.__dict__.get("at") else ""
        return f"{at} {record.levelname.lower()} {record.getMessage()}{place}"


def log_to_stderr(kind: str) -> None:
    """Write lines for people, or for programs (\"json\"), which never quote data."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines() if kind == "json" else _Lines())
    log.handlers[:] = [handler]
    log.setLevel(logging.INFO)
