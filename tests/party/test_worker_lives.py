"""A further worker that was stopped, and the next one of its number, which begins before it has ended."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from threading import Condition, Event
from types import SimpleNamespace
from typing import Any

import pytest

from hdcos.errors import PeerLost
from hdcos.link import Doorman, Identity, Kind, Link, worker_name
from hdcos.party.launcher import ProcessLauncher
from hdcos.party.links import PeerListener
from hdcos.party.node import Node
from hdcos.party.side_worker import SideWorker
from hdcos.testing.pair import memory_pair

PARTY = Identity.create("party0")


def side(rank: int, **more: Any) -> SideWorker:
    certificates = dict.fromkeys(("client", "dealer", "party0", "party1"), (PARTY.certificate,))
    addresses = dict.fromkeys(certificates, ("127.0.0.1", 1))
    node = Node(f"party{rank}", PARTY, certificates, addresses, None, b"r" * 16, 20.0, None)  # type: ignore[arg-type]
    batcher = SimpleNamespace(changed=Condition(), lose=lambda *requests: None)
    known = {"node": node, "batcher": batcher, "dealers": lambda: 1, "first": ("127.0.0.1", 1), **more}
    return SideWorker(1, SimpleNamespace(**known))  # type: ignore[arg-type]


def end(worker: SideWorker) -> None:
    began = time.monotonic()
    worker.stop()
    worker.join(10.0)
    assert not worker._thread.is_alive()
    assert time.monotonic() - began < 5.0


@pytest.fixture
def called() -> Iterator[tuple[PeerListener, Callable[[], Link]]]:
    """Party 0's listener, and what has party 1 ask for worker 1 there."""
    with Doorman(socket.create_server(("127.0.0.1", 0))) as doorman:
        certificates = {"party0": (PARTY.certificate,), "party1": (Identity.create("party1").certificate,)}
        node = Node("party0", PARTY, certificates, {}, doorman.serve("party0", ""), b"r" * 16, 5.0, None)
        listener = PeerListener(node, dict)
        listener.workers = 2

        def call() -> Link:
            here, there = memory_pair(("party0", "party1"), 5.0)
            listener._keep_side_worker(here, 1, "token of the next")
            return there

        yield listener, call
        listener.close()


def test_a_worker_that_was_stopped_leaves_the_link_that_comes_to_the_next_one(called) -> None:
    listener, call = called
    stop = Event()
    stop.set()
    call()
    with pytest.raises(PeerLost, match="was stopped"):
        listener.side_worker(1, 5.0, stop)
    assert listener.side_worker(1, 5.0, Event())[1] == "token of the next"


@pytest.mark.parametrize("certified_late", [True, False])
def test_a_worker_that_is_stopped_while_it_is_started_is_ended_and_greeted_by_nobody(
    called, certified_late: bool, monkeypatch
) -> None:
    """One that has yet to get its certificate does not get it."""
    listener, call = called
    starting, goes_on, ended, refused = Event(), Event(), list[str](), list[str]()

    class Slow:
        def start(self, name: str, settings: Any) -> Any:
            starting.set()
            goes_on.wait(10.0)
            if certified_late:
                settings(b"")
            return SimpleNamespace(address=("127.0.0.1", 1), state=lambda: "", stop=lambda: ended.append(name))

    worker = side(0, listener=listener, launcher=Slow())
    monkeypatch.setattr(SideWorker, "_greet", lambda *known: refused.append("greeted"))
    monkeypatch.setattr(Node, "settings_of", lambda *known, **more: refused.append("certified"))
    there = call()
    worker.start()
    assert starting.wait(10.0)
    worker.stop()
    goes_on.set()
    end(worker)
    assert ended == ([] if certified_late else [worker_name("party0", 1)])
    assert refused == []
    there.receive(Kind.REPLY)
    with pytest.raises(PeerLost):
        there.receive(Kind.REPLY)


def test_a_worker_of_party_1_that_waits_for_party_0_ends_when_it_is_stopped(monkeypatch) -> None:
    """Party 0 answers when it starts its own, which may be never."""
    here, there = memory_pair(("party1", "party0"), 30.0)
    monkeypatch.setattr(Node, "dial", lambda *known: here)
    monkeypatch.setattr(Node, "greet", lambda *known: b"seed")
    worker = side(1)
    worker.start()
    there.receive(Kind.REQUEST)
    end(worker)
    assert here.closed


def test_a_worker_that_ends_late_keeps_nobody_from_the_next_one_of_its_name() -> None:
    sock = socket.create_server(("127.0.0.1", 0))
    node = side(0)._shared.node
    with Doorman(sock) as doorman:
        launcher = ProcessLauncher(doorman, sock)
        older, newer = (launcher.start("w1.party0", lambda key: node.settings_of(1, key)) for _ in range(2))
        older.stop()
        assert doorman.names == ["w1.party0"]
        assert newer.state() == ""
        newer.stop()
        assert doorman.names == []
