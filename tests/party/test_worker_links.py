"""A pair of workers makes its links through the one port of party 0, and pairs do not mix."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from hdcos.errors import HandshakeError, PeerLost
from hdcos.link import Doorman, Identity, Meter, worker_name
from hdcos.party.links import PeerListener, dial, dial_transfers
from hdcos.party.node import Node

ROLES = ("dealer", "party0", "party1")
OWN = {role: Identity.create(role) for role in ROLES}


@pytest.fixture
def doorman() -> Iterator[Doorman]:
    with Doorman(socket.create_server(("127.0.0.1", 0))) as made:
        yield made


def node(role: str, worker: int, doorman: Doorman, sock: socket.socket) -> Node:
    identity = OWN[role].issue(worker_name(role, worker)) if worker else OWN[role]
    certificates = {name: (own.certificate,) for name, own in OWN.items()}
    addresses = dict.fromkeys(ROLES, ("127.0.0.1", doorman.port))
    return Node(role, identity, certificates, addresses, sock, b"r" * 16, 5.0, None)


def test_the_links_of_the_nodes_themselves_go_through_the_doorman(doorman) -> None:
    listener = PeerListener(node("party0", 0, doorman, doorman.serve("party0", "")), dict)
    with socket.socket() as unused:
        caller = node("party1", 0, doorman, unused)
        theirs = dial(caller, Meter())
        mine = listener.links(Meter(), 5.0)
        link, seed = dial_transfers(caller, Meter())
        other, same_seed = listener.transfers(Meter(), 5.0)
    assert mine.pair_seed == theirs.pair_seed
    assert same_seed == seed
    assert doorman.counts == {"handed": 4}
    link.close()
    other.close()
    theirs.close(None)
    mine.close(None)
    doorman.close()
    listener._thread.join(5.0)
    assert not listener._thread.is_alive(), "a listener whose doorman is gone must not wait for ever"


@pytest.mark.parametrize("worker", [1, 2, 12])
def test_a_pair_of_workers_meets_through_the_one_port(doorman, worker) -> None:
    zero = node("party0", worker, doorman, doorman.serve(f"w{worker}.party0"))
    with zero.listen("party1") as listener, socket.socket() as unused, ThreadPoolExecutor() as pool:
        one = node("party1", worker, doorman, unused)
        dialing = pool.submit(one.dial, "party0")
        with listener.accept(5.0) as mine, dialing.result() as theirs:
            assert (mine.peer, theirs.peer) == (f"w{worker}.party1", f"w{worker}.party0")
            greeting = pool.submit(one.greet_peer, theirs)
            assert zero.greet_peer(mine) == greeting.result()


def test_a_worker_of_another_pair_is_refused_by_both_sides(doorman) -> None:
    with (
        node("party0", 1, doorman, doorman.serve("w1.party0")).listen("party1") as listener,
        socket.socket() as unused,
    ):
        caller = node("party1", 2, doorman, unused)
        with pytest.raises(PeerLost, match=r"serves no such name \(w2\.party0 was asked for\)"):
            caller.dial("party0", within_s=0.2)
        with ThreadPoolExecutor() as pool:
            accepting = pool.submit(listener.accept, 1.0)
            link = caller.dial("party0", worker=1)
            with pytest.raises(HandshakeError, match=r"the peer is 'w2\.party1', not w1\.party1"):
                accepting.result()
        with pytest.raises((HandshakeError, PeerLost)):
            caller.greet(link)


def test_a_worker_of_the_dealer_serves_several_workers_of_both_parties(doorman) -> None:
    with (
        node("dealer", 1, doorman, doorman.serve("w1.dealer")).listen(
            "party0", "party1", workers=(0, 1, 2)
        ) as listener,
        socket.socket() as unused,
    ):
        for role, worker in (("party0", 2), ("party1", 2), ("party0", 0)):
            with ThreadPoolExecutor() as pool:
                dialing = pool.submit(node(role, worker, doorman, unused).dial, "dealer", worker=1)
                with listener.accept(5.0) as mine, dialing.result() as theirs:
                    assert mine.peer == worker_name(role, worker)
                    assert theirs.peer == "w1.dealer"
