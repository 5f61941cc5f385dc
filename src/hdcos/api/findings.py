"""What a doctor finds wrong with a cluster, from a node or from a client."""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hdcos.link.cluster_file import PARTIES
from hdcos.link.identity import Certificate

SOON_DAYS = 30
MOST_SKEW_S = 30.0


Held = dict[str, bool | None]
"""The models of a party by name, and whether each is ready, where that is known."""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    what: str
    ok: bool
    text: str


def expiry(name: str, certificate: Certificate) -> Finding:
    left = certificate.expires - datetime.datetime.now(datetime.UTC)
    text = f"valid until {certificate.expires:%Y-%m-%d}, fingerprint {certificate.fingerprint}"
    if left.days < SOON_DAYS:
        text = text.partition(",")[0] + ": make a new one with `hdcos node init` and combine the cards again"
    return Finding(f"certificate of {name}", left.days >= SOON_DAYS, text)


def skew(role: str, skew_s: float) -> Finding:
    text = f"{skew_s:.1f} s from this one"
    if skew_s > MOST_SKEW_S:
        text += ": set both by NTP, certificates and records depend on it"
    return Finding(f"clock of {role}", skew_s <= MOST_SKEW_S, text)


def halves_that_wait(held: Mapping[str, Held]) -> Iterator[Finding]:
    """Models of which one party has its share and the other has none, or that are not ready though both have one."""
    if set(held) != set(PARTIES):
        return
    for name in sorted(set(held["party0"]) | set(held["party1"])):
        lacking = [role for role in PARTIES if name not in held[role]]
        if lacking:
            yield Finding(
                f"model {name}",
                False,
                f"it waits for its other share, which {lacking[0]} lacks: share it again with "
                f"`hdcos share-model FILE --name {name}`",
            )
        elif False in (held["party0"][name], held["party1"][name]):
            yield Finding(
                f"model {name}",
                False,
                "both parties hold a share, but it is not ready: if it stays so, the shares are of different versions; "
                f"share it again with `hdcos share-model FILE --name {name}`",
            )


def took(started: float) -> str:
    return f"{(time.perf_counter() - started) * 1e3:.0f} ms"
