"""A local cluster whose links have lanes: the same answers, bytes and counters, over more connections."""

from __future__ import annotations

import os

import numpy as np
import pytest

import hdcos
from hdcos.api.commands import ReadCost
from hdcos.link.lanes import SPREAD_BYTES
from hdcos.protocol.cosine import error_bound

PHASE_BITS = 16
X = np.random.default_rng(0).uniform(-20, 20, (256, 1024))
Y = np.random.default_rng(1).uniform(-2, 2, (3, 5))
SENT = X.size * PHASE_BITS // 8


def sockets(pid: int) -> int:
    place = f"/proc/{pid}/fd"
    return sum(os.readlink(f"{place}/{handle}").startswith("socket:") for handle in os.listdir(place))


def work(monkeypatch, lanes: int, dealer: bool) -> dict[str, int]:
    """How many sockets each process has after rounds of all sizes."""
    monkeypatch.setenv("HDCOS_LANES", str(lanes))
    with hdcos.local(timeout_s=60, dealer=dealer) as cluster:
        found = cluster.evaluate("multiply", Y, Y)
        assert np.abs(found - Y * Y).max() < 1e-3
        cluster.reset_cost()
        found = cluster.evaluate("cos", X, phase_bits=PHASE_BITS)
        assert np.abs(found - np.cos(X)).max() <= error_bound(PHASE_BITS) + 1e-4
        assert cluster.cost.online.bytes_sent == (SENT, SENT)
        for meta, _ in cluster.transport.ask(ReadCost()):
            assert meta["socket"]["metered"] == meta["socket"]["counted"]
        return {role: sockets(pid) for role, pid in cluster.pids.items()}


@pytest.mark.parametrize("dealer", [True, False])
def test_a_cluster_with_lanes_computes_the_same_over_more_connections(monkeypatch, dealer: bool) -> None:
    assert SENT >= SPREAD_BYTES
    without, with_lanes = (work(monkeypatch, lanes, dealer) for lanes in (0, 2))
    # a party's links: to its caller, to the other party, and to the dealer or to the other party again
    more = {"party0": 6, "party1": 6, **({"dealer": 4} if dealer else {})}
    assert {role: with_lanes[role] - without[role] for role in without} == more
