"""What is wrong with a cluster, seen by a client: it has the cluster file, perhaps a secret, and no node's key."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

from hdcos._version import __version__
from hdcos.api.findings import Finding, Held, expiry, halves_that_wait, skew, took
from hdcos.api.tokens import token
from hdcos.cluster.https import Party
from hdcos.errors import HdcosError
from hdcos.link.cluster_file import PARTIES, ClusterFile


def examine_as_client(cluster: Path, secret: str | None, timeout_s: float = 5.0) -> Iterator[Finding]:
    """Findings about the cluster file, both parties over HTTPS, and what the client may do there."""
    try:
        site = ClusterFile.read(cluster)
    except HdcosError as error:
        yield Finding("files", False, str(error))
        return
    known = "" if secret else "; without your secret ($HDCOS_TOKEN, --token-file) models are not looked at"
    yield Finding("files", True, f"{cluster} can be read{known}")
    held: dict[str, Held] = {}
    for rank, role in enumerate(PARTIES):
        card = site.servers[role]
        yield expiry(role, card.certificate)
        record = {"http": card.http, "certificate": card.certificate.pem, "authority": card.authority}
        party = Party(rank, record, token(secret or "", site.id, rank), timeout_s)
        try:
            yield from _reached(party, site.id, f"{role} at {card.http}")
            if secret:
                held[role] = yield from _models(party, role)
        except HdcosError as error:
            yield Finding(f"{role} at {card.http}", False, f"{error}. Is it running, and is its port open?")
        finally:
            party.close()
    yield from halves_that_wait(held)


def _reached(party: Party, cluster: str, what: str) -> Iterator[Finding]:
    started, asked = time.perf_counter(), time.time()
    _, said = party.look("/v2")
    answered = time.time()
    who = said.get("parameters", {})
    if (who.get("party"), who.get("cluster")) != (party.rank, cluster):
        yield Finding(what, False, "another party, or one of another cluster, answers there: ask its operator")
        return
    version = str(said.get("version"))
    text = f"certificate and cluster are those of the file, version {version}; answered in {took(started)}"
    if version != __version__:
        text += f". This is hdcos {__version__}: install the same version as the parties"
    yield Finding(what, version == __version__, text)
    yield skew(f"party{party.rank}", abs(float(who["time"]) - (asked + answered) / 2))
    _, health = party.look("/v2/health/ready")
    yield Finding(f"party{party.rank} is ready", bool(health.get("ready")), health.get("reason") or "it takes requests")


def _models(party: Party, role: str) -> Generator[Finding, None, Held]:
    """Whether the party knows the client; returns the models it holds."""
    what = f"your secret at {role}"
    status, said = party.look("/v2/models")
    if status == 401:
        yield Finding(
            what, False, "it is not known there: its operator runs `hdcos token allow` (see `hdcos token new`)"
        )
        return {}
    if status != 200:
        yield Finding(what, False, str(said.get("error", f"status {status}")))
        return {}
    models: list[dict[str, Any]] = said["models"]
    yield Finding(what, True, f"it is known; {len(models)} models are held there")
    return {str(model["name"]): bool(model["ready"]) for model in models}
