"""`hdcos doctor`: what is wrong with a cluster, seen from one of its nodes or by a client, and what to do about it.

Looks only: a node's key is read to speak TLS, nothing is written, and those that are asked say how they are. A client
has the cluster file, perhaps a secret, and no node's key.
"""

from __future__ import annotations

import datetime
import json
import os
import socket
import sqlite3
import sys
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from hdcos._version import __version__
from hdcos.api.tokens import token
from hdcos.cli.common import FILE, FOLDER, describe_kernels, json_option, read_secret, say, token_option
from hdcos.cluster.https import Party
from hdcos.errors import HdcosError
from hdcos.link import Certificate, Hello, Identity, connect, handshake
from hdcos.link.cluster_file import CARD_FILE, PARTIES, ClusterFile, NodeCard, endpoint
from hdcos.link.handshake import SOFTWARE
from hdcos.link.message import request
from hdcos.party.database import FILE as DATABASE
from hdcos.party.database import SPARE_BYTES, STATE, Room, read_beside
from hdcos.party.store import read_failures
from hdcos.ring import table_hash

SOON_DAYS = 30
MOST_SKEW_S = 30.0
TIMEOUT_S = 5.0
CLOSED = "Is it running, and is its port open?"
Held = dict[str, bool | None]
"""The models of a party by name, and whether each is ready, where that is known."""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    what: str
    ok: bool
    text: str


@click.command(short_help="Say what is wrong with a cluster, and what to do.")
@click.option(
    "--cluster",
    "path",
    required=True,
    envvar="HDCOS_CLUSTER",
    type=FILE,
    help="The cluster file; $HDCOS_CLUSTER otherwise.",
)
@click.option(
    "--node",
    "folder",
    type=FOLDER,
    help="The folder of a node of yours; without it, the cluster is looked at as clients see it.",
)
@token_option
@json_option
def doctor(path: Path, folder: Path | None, token_file: Path | None, as_json: bool) -> None:
    """Look at a cluster, as a client or from one of its nodes, and say what is wrong and what to do."""
    if folder is not None:
        findings = list(examine_from_node(path, folder))
    else:
        secret = read_secret(token_file) if token_file else os.environ.get("HDCOS_TOKEN")
        findings = list(examine_as_client(path, secret))
    if as_json:
        click.echo(json.dumps([asdict(finding) for finding in findings]))
    else:
        for finding in findings:
            say(f"{'ok  ' if finding.ok else 'BAD '} {finding.what}: {finding.text}", indent=" " * 5)
    if not all(finding.ok for finding in findings):
        sys.exit(1)


def examine_from_node(path: Path, folder: Path) -> Iterator[Finding]:
    """Findings about the cluster file, this node and the others, as they are made."""
    try:
        cluster = ClusterFile.read(path)
        own, identity = NodeCard.read(folder / CARD_FILE), Identity.load(folder)
    except HdcosError as error:
        yield Finding("files", False, str(error))
        return
    yield Finding("files", True, f"{path} and {folder} can be read; {describe_kernels()}")
    yield _own_certificate(cluster, own, identity)
    for failure in read_failures(folder / STATE):
        yield from _model(own.role, {"name": failure.name, "error": failure.why})
    if own.role in PARTIES:
        state = folder / STATE  # a disk of its own, perhaps; not there before the first start
        yield _disk(own.role, Room(state if state.exists() else folder).free_bytes)
    for node in cluster.servers.values():
        yield _expiry(node.role, node.certificate)
    held: dict[str, Held] = {}
    for role, node in cluster.servers.items():
        if role != own.role:
            yield from _reach_node(cluster, own, identity, node, held)
        elif role in PARTIES:
            yield from _own_models(role, folder / STATE, held)
        if role in PARTIES:
            yield _https(node)
    yield from _waiting_models(held)


def examine_as_client(path: Path, secret: str | None) -> Iterator[Finding]:
    """Findings about the cluster file, both parties over HTTPS, and what the client may do there."""
    try:
        cluster = ClusterFile.read(path)
    except HdcosError as error:
        yield Finding("files", False, str(error))
        return
    known = "" if secret else "; without your secret ($HDCOS_TOKEN, --token-file) models are not looked at"
    yield Finding("files", True, f"{path} can be read{known}")
    held: dict[str, Held] = {}
    for rank, role in enumerate(PARTIES):
        node = cluster.servers[role]
        yield _expiry(role, node.certificate)
        record = {"http": node.http, "certificate": node.certificate.pem, "authority": node.authority}
        with closing(Party(rank, record, token(secret or "", cluster.id, rank), TIMEOUT_S)) as party:
            try:
                said = yield from _reach_party(party, cluster, f"{role} at {node.http}")
                if secret:
                    held[role] = yield from _known_models(party, role, said)
            except HdcosError as error:
                yield Finding(f"{role} at {node.http}", False, f"{error}. {CLOSED}")
    yield from _waiting_models(held)


# ---- other nodes


def _reach_node(
    cluster: ClusterFile, own: NodeCard, identity: Identity, node: NodeCard, held: dict[str, Held]
) -> Iterator[Finding]:
    what, started = f"{node.role} at {node.address}", time.perf_counter()
    allowed = {node.certificate: node.role}
    try:
        with connect(identity, allowed, *node.endpoint, TIMEOUT_S, retry=False, link_timeout_s=TIMEOUT_S) as link:
            handshake(link, Hello(own.role, SOFTWARE, table_hash(), cluster.run))
            yield Finding(what, True, f"same version, table and cluster; TLS and hello took {_since(started)}")
            asked = time.time()
            said, _ = request(link, {"operation": "look", "purpose": "look"}, timeout_s=TIMEOUT_S)
    except HdcosError as error:
        yield Finding(what, False, str(error))
        return
    yield _skew(node.role, said, asked)
    if node.role in PARTIES:
        held[node.role] = _held(said["models"], said)
        yield _disk(node.role, int(said["storage"]["free_bytes"]))
        available = ", ".join(f"{model['name']}: material for {model['stock']} rows" for model in said["models"])
        yield _ready(node.role, said, available or "no model is shared yet", cluster)
        for model in said["models"]:
            yield from _model(node.role, model)
        yield from _workers(node.role, said["workers"])


def _workers(role: str, workers: list[dict[str, Any]]) -> Iterator[Finding]:
    """The workers of a party, the first of which is the party itself."""
    for worker in workers:
        fast = f"{worker['rows_per_s']:.1f} rows and {worker['steps_per_s']:.1f} steps a second in the last minute"
        text = f"it works with that of the other party: {fast}, material for {worker['available']} rows"
        yield Finding(f"worker {worker['index']} of {role}", worker["up"], worker["reason"] or text)


def _reach_party(party: Party, cluster: ClusterFile, what: str) -> Generator[Finding, None, Mapping[str, Any]]:
    """How a party is; returns what it says of its being ready."""
    role, started, asked = f"party{party.rank}", time.perf_counter(), time.time()
    _, said = party.look("/v2")
    who = said.get("parameters", {})
    if (who.get("party"), who.get("cluster")) != (party.rank, cluster.id):
        yield Finding(what, False, "another party, or one of another cluster, answers there: ask its operator")
        return {}
    clock, version = _skew(role, who, asked), str(said.get("version"))
    text = f"certificate and cluster are those of the file, version {version}; answered in {_since(started)}"
    if version != __version__:
        text += f". This is hdcos {__version__}: install the same version as the parties"
    yield Finding(what, version == __version__, text)
    yield clock
    ready = party.look("/v2/health/ready")[1]
    yield _ready(role, ready, "it takes requests", cluster)
    return ready


def _known_models(party: Party, role: str, ready: Mapping[str, Any]) -> Generator[Finding, None, Held]:
    """Whether the party knows the client; returns the models it holds."""
    status, said = party.look("/v2/models")
    if status != 200:
        text = str(said.get("error", f"status {status}"))
        if status == 401:
            text = "it is not known there: its operator runs `hdcos token allow` (see `hdcos token new`)"
        yield Finding(f"your secret at {role}", False, text)
        return {}
    models: list[dict[str, Any]] = said["models"]
    yield Finding(f"your secret at {role}", True, f"it is known; {len(models)} models are held there")
    for model in models:
        yield from _model(role, model)
    return _held(models, ready)


def _https(node: NodeCard) -> Finding:
    what, started = f"HTTPS of {node.role} at {node.http}", time.perf_counter()
    try:
        socket.create_connection(endpoint(node.http, what), timeout=TIMEOUT_S).close()
        return Finding(what, True, f"its port answers in {_since(started)}")
    except OSError as error:
        return Finding(what, False, f"out of reach ({error.strerror or error}). {CLOSED}")


# ---- this node


def _own_certificate(cluster: ClusterFile, own: NodeCard, identity: Identity) -> Finding:
    known = cluster.servers.get(own.role)
    if known is not None and identity.certificate == known.certificate:
        return Finding("this node", True, f"{own.role}, key and certificate are those of the cluster file")
    text = f"the cluster file knows another certificate for {own.role}. Combine the node cards again with `hdcos init`"
    return Finding("this node", False, text)


def _own_models(role: str, folder: Path, held: dict[str, Held]) -> Iterator[Finding]:
    """The names of the models in this node's own state, which is read and left as it is."""
    if not (folder / DATABASE).exists():  # it was never started
        return
    try:
        with closing(read_beside(folder)) as state:
            held[role] = {str(name): None for (name,) in state.execute("SELECT DISTINCT name FROM models")}
    except sqlite3.Error as error:
        yield Finding("state", False, f"{folder / DATABASE} cannot be used ({error}): restore it from a backup")


# ---- single findings


def _since(started: float) -> str:
    return f"{(time.perf_counter() - started) * 1e3:.0f} ms"


def _expiry(name: str, certificate: Certificate) -> Finding:
    left = certificate.expires - datetime.datetime.now(datetime.UTC)
    text = f"valid until {certificate.expires:%Y-%m-%d}, fingerprint {certificate.fingerprint}"
    if left.days < SOON_DAYS:
        text = text.partition(",")[0] + ": make a new one with `hdcos node init` and combine the node cards again"
    return Finding(f"certificate of {name}", left.days >= SOON_DAYS, text)


def _skew(role: str, said: Mapping[str, Any], asked: float) -> Finding:
    """How far the clock of a node is from this one, just now, if it told its time in between."""
    skew_s = abs(float(said["time"]) - (asked + time.time()) / 2)
    text = f"{skew_s:.1f} s from this one"
    if skew_s > MOST_SKEW_S:
        text += ": set both by NTP, certificates and records depend on it"
    return Finding(f"clock of {role}", skew_s <= MOST_SKEW_S, text)


def _ready(role: str, said: Mapping[str, Any], otherwise: str, cluster: ClusterFile) -> Finding:
    ready, text = bool(said.get("ready")), str(said.get("reason") or otherwise)
    if not ready and "dealer" in text and "dealer" in cluster.servers:
        text += "" if text.endswith((".", "?")) else "."
        text += f" Start the dealer at {cluster.servers['dealer'].address}, if it does not run"
    return Finding(f"{role} is ready", ready, text)


def _disk(role: str, free_bytes: int) -> Finding:
    text = f"{free_bytes / 1e6:.1f} MB are free for its state"
    if free_bytes < SPARE_BYTES:
        text += ": nothing new is kept. Make room on its disk; what is stored is safe, and predictions go on meanwhile"
    return Finding(f"disk of {role}", free_bytes >= SPARE_BYTES, text)


def _model(role: str, model: dict[str, Any]) -> Iterator[Finding]:
    """What keeps one model from being used."""
    if model.get("error"):
        text = f"it is not loaded: {model['error']}. Share it again, or run `hdcos retry {model['name']}` at {role}"
        yield Finding(f"{model['name']} at {role}", False, text)
    elif model.get("ready") and not model.get("queries_allowed", 1):
        text = "no row is answered: too few queries are stated for its network. [policy] queries_per_model allows some"
        yield Finding(f"{model['name']} at {role}", False, text)
    elif 0 < model.get("queries_allowed", 0) <= model.get("queries", 0):  # none is stated before it is loaded
        text = f"all {model['queries_allowed']} rows are answered: see `hdcos quota {model['name']}` at {role}"
        yield Finding(f"{model['name']} at {role}", False, text)


def _held(models: list[dict[str, Any]], said: Mapping[str, Any]) -> Held:
    """The models that a party tells of. Of one that was given up the reason is told instead, and where the party is not
    ready and no model is, it waits for something else than a share."""
    known = bool(said.get("ready")) or any(each["ready"] for each in models)
    return {str(each["name"]): bool(each["ready"]) if known and not each.get("error") else None for each in models}


def _waiting_models(held: Mapping[str, Held]) -> Iterator[Finding]:
    """Models of which one party has its share and the other has none, or that are not ready though both have one."""
    if set(held) != set(PARTIES):
        return
    for name in sorted(set(held["party0"]) | set(held["party1"])):
        again = f"share it again with `hdcos share-model FILE --name {name}`"
        lacking = [role for role in PARTIES if name not in held[role]]
        if lacking:
            text = f"it waits for its other share, which {lacking[0]} lacks: {again}"
            yield Finding(f"model {name}", False, text)
        elif False in (held["party0"][name], held["party1"][name]):
            text = "both parties hold a share, but it is not ready: if it stays so, the shares are of two versions"
            yield Finding(f"model {name}", False, f"{text}; {again}")
