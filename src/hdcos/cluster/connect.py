"""`hdcos.connect`: the interface of `hdcos.local()`, for a cluster that runs elsewhere."""

from __future__ import annotations

import os

from hdcos.cluster.cluster import Cluster
from hdcos.cluster.https import Parties
from hdcos.cluster.https_transport import HttpsTransport
from hdcos.errors import DataMissing
from hdcos.secure.compile import choose_bits


def connect(
    cluster: str | os.PathLike[str] | None = None,
    token: str | None = None,
    phase_bits: int | None = None,
    timeout_s: float = 30.0,
    *,
    exact: bool = False,
) -> Cluster:
    """A cluster whose nodes run elsewhere; best used in a `with` block.

    `cluster` is the cluster file and `token` the client's secret that `hdcos token new` made; by default what the
    environment variables HDCOS_CLUSTER and HDCOS_TOKEN say. `phase_bits` is the precision of cosines of what is shared
    or trained here; with `exact` phases are opened unrounded.
    """
    cluster, token = cluster or os.environ.get("HDCOS_CLUSTER"), token or os.environ.get("HDCOS_TOKEN")
    if not cluster:
        raise DataMissing("which cluster? Name its cluster file, or set HDCOS_CLUSTER")
    if not token:
        raise DataMissing("a client needs its secret: pass token=..., or set HDCOS_TOKEN (`hdcos token new` makes one)")
    bits = choose_bits(phase_bits, exact)
    return Cluster(HttpsTransport(Parties(cluster, token.strip(), timeout_s)), bits)
