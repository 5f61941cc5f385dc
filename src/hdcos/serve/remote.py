"""The caller's end of a cluster on other machines: `hdcos.connect`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from hdcos.errors import PolicyRefused
from hdcos.link import Hello, Identity, connect, handshake
from hdcos.ring import table_hash
from hdcos.serve.cluster import Cluster
from hdcos.serve.node import SOFTWARE
from hdcos.serve.site import Card, Site


@contextmanager
def connect_cluster(
    cluster: str | os.PathLike[str],
    identity: str | os.PathLike[str],
    phase_bits: int = 16,
    timeout_s: float = 30.0,
) -> Iterator[Cluster]:
    """A cluster whose nodes are running elsewhere, for the length of a `with` block.

    `cluster` is the file that all nodes share, `identity` the folder that `hdcos node init --role client` made. The
    certificate there must be among the clients of the cluster file, on the parties' machines too.
    """
    site, me = Site.read(cluster), Identity.load(Path(identity))
    if me.fingerprint not in {card.certificate.fingerprint for card in site.clients}:
        raise PolicyRefused(
            f"the certificate in {Path(identity)} is not among the clients of {Path(cluster)}: "
            f"add its card with `hdcos init`, on every node"
        )
    with ExitStack() as stack:
        links = []
        for role in ("party0", "party1"):
            card: Card = site.servers[role]
            link = connect(me, {card.certificate: role}, *card.endpoint, timeout_s, link_timeout_s=timeout_s)
            stack.callback(link.close)
            handshake(link, Hello("client", SOFTWARE, table_hash(), site.run))
            links.append(link)
        made = Cluster(links, phase_bits, timeout_s, {}, lambda error: error)
        made.remote = True
        stack.callback(made.end)
        yield made
