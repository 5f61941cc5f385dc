"""What is wrong with a cluster, seen from one of its nodes, and what to do about it (a client: cluster.doctor).

Looks only: the key is read to speak TLS, nothing is written, and the nodes that are asked say how they are.
"""

from __future__ import annotations

import socket
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from hdcos.api.findings import Finding, Held, expiry, halves_that_wait, skew, took
from hdcos.errors import HdcosError
from hdcos.link import Hello, Identity, connect, handshake
from hdcos.link.cluster_file import CARD_FILE, PARTIES, ClusterFile, NodeCard, endpoint
from hdcos.link.handshake import SOFTWARE
from hdcos.link.message import request
from hdcos.party.database import FILE, SPARE_BYTES, STATE, Room, read_beside
from hdcos.party.store import read_failures
from hdcos.ring import backend, table_hash


def examine(cluster: Path, folder: Path, timeout_s: float = 5.0) -> Iterator[Finding]:
    """Findings about the cluster file, this node and the others, as they are made."""
    try:
        nodes = ClusterFile.read(cluster)
        own, identity = NodeCard.read(folder / CARD_FILE), Identity.load(folder)
    except HdcosError as error:
        yield Finding("files", False, str(error))
        return
    yield Finding("files", True, f"{cluster} and {folder} can be read; kernels {backend()}")
    yield _own_certificate(nodes, own, identity)
    for failure in read_failures(folder / STATE):
        yield from _model(own.role, {"name": failure.name, "error": failure.why})
    if own.role in PARTIES:
        state = folder / STATE  # a disk of its own, perhaps; not there before the first start
        yield _disk(own.role, Room(state if state.exists() else folder).free_bytes)
    for node in nodes.servers.values():
        yield expiry(node.role, node.certificate)
    held: dict[str, Held] = {}
    for role, node in nodes.servers.items():
        if role != own.role:
            yield from _reach(nodes, own, identity, node, timeout_s, held)
        elif role in PARTIES:
            yield from _own_models(role, folder / STATE, held)
        if role in PARTIES:
            yield _https(node, timeout_s)
    yield from halves_that_wait(held)


def _own_certificate(nodes: ClusterFile, own: NodeCard, identity: Identity) -> Finding:
    known = nodes.servers.get(own.role)
    if known is not None and identity.certificate == known.certificate:
        return Finding("this node", True, f"{own.role}, key and certificate are those of the cluster file")
    return Finding(
        "this node",
        False,
        f"the cluster file knows another certificate for {own.role}. Combine the node cards again with `hdcos init`",
    )


def _reach(
    nodes: ClusterFile, own: NodeCard, identity: Identity, node: NodeCard, timeout_s: float, held: dict[str, Held]
) -> Iterator[Finding]:
    what, (host, port) = f"{node.role} at {node.address}", node.endpoint
    started = time.perf_counter()
    try:
        allowed = {node.certificate: node.role}
        with connect(identity, allowed, host, port, timeout_s, retry=False, link_timeout_s=timeout_s) as link:
            handshake(link, Hello(own.role, SOFTWARE, table_hash(), nodes.run))
            yield Finding(what, True, f"same version, table and cluster; TLS and hello took {took(started)}")
            asked = time.time()
            said, _ = request(link, {"operation": "look", "purpose": "look"}, timeout_s=timeout_s)
            skew_s = abs(float(said["time"]) - (asked + time.time()) / 2)
    except HdcosError as error:
        yield Finding(what, False, str(error))
        return
    yield skew(node.role, skew_s)
    if node.role in PARTIES:
        # Of a model that was given up the reason is told instead.
        held[node.role] = {model["name"]: None if model["error"] else bool(model["ready"]) for model in said["models"]}
        yield _disk(node.role, int(said["storage"]["free_bytes"]))
        yield Finding(f"{node.role} is ready", bool(said["ready"]), said["reason"] or _stock(said["models"]))
        for model in said["models"]:
            yield from _model(node.role, model)


def _disk(role: str, free_bytes: int) -> Finding:
    text = f"{free_bytes / 1e6:.1f} MB are free for its state"
    if free_bytes < SPARE_BYTES:
        text += ": nothing new is kept. Make room on its disk; what is stored is safe, and predictions go on meanwhile"
    return Finding(f"disk of {role}", free_bytes >= SPARE_BYTES, text)


def _own_models(role: str, folder: Path, held: dict[str, Held]) -> Iterator[Finding]:
    """The names of the models in this node's own state, which is read and left as it is."""
    if not (folder / FILE).exists():  # it was never started
        return
    try:
        with closing(read_beside(folder)) as state:
            held[role] = {str(name): None for (name,) in state.execute("SELECT DISTINCT name FROM models")}
    except sqlite3.Error as error:
        yield Finding("state", False, f"{folder / FILE} cannot be used ({error}): restore it from a backup")


def _stock(models: list[dict[str, Any]]) -> str:
    if not models:
        return "no model is shared yet"
    return ", ".join(f"{model['name']}: {model['stock']} rows in stock" for model in models)


def _model(role: str, model: dict[str, Any]) -> Iterator[Finding]:
    """What keeps one model from being used."""
    if model.get("error"):
        text = f"it is not loaded: {model['error']}. Share it again, or run `hdcos retry {model['name']}` at {role}"
        yield Finding(f"{model['name']} at {role}", False, text)
    elif model.get("queries", 0) >= model.get("queries_allowed", 1):
        text = f"all {model['queries_allowed']} rows are answered: see `hdcos quota {model['name']}` at {role}"
        yield Finding(f"{model['name']} at {role}", False, text)


def _https(node: NodeCard, timeout_s: float) -> Finding:
    what = f"HTTPS of {node.role} at {node.http}"
    started = time.perf_counter()
    try:
        socket.create_connection(endpoint(node.http, what), timeout=timeout_s).close()
        return Finding(what, True, f"its port answers in {took(started)}")
    except OSError as error:
        return Finding(what, False, f"out of reach ({error.strerror or error}). Is it running, and is its port open?")
