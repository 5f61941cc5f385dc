"""A worker's key is made by its process and stays there: what crosses is the public part, and then a certificate."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from hdcos.api import process
from hdcos.api.process import end_process, start_worker
from hdcos.errors import InputError, PeerLost
from hdcos.link import Doorman, Hello, Identity, connect, handshake
from hdcos.link.handshake import SOFTWARE
from hdcos.party.launcher import ProcessLauncher
from hdcos.party.node import Node
from hdcos.ring import table_hash

DEALER, PARTY = Identity.create("dealer"), Identity.create("party0")
RUN = b"r" * 16
Told = Callable[[bytes], dict[str, Any]]


def node() -> Node:
    known = {role: (identity.certificate,) for role, identity in (("dealer", DEALER), ("party0", PARTY))}
    known["party1"] = (Identity.create("party1").certificate,)
    with socket.create_server(("127.0.0.1", 0)) as unused:
        return Node("dealer", DEALER, known, {}, unused, RUN, 30.0, None)


@contextmanager
def plain(told: Told) -> Iterator[tuple[str, int]]:
    sock = socket.create_server(("127.0.0.1", 0))
    with Doorman(sock) as doorman:
        worker = ProcessLauncher(doorman, sock).start("w1.dealer", told)
        yield worker.address
        worker.stop()


@contextmanager
def placed_by_ray(told: Told) -> Iterator[tuple[str, int]]:
    """What an actor does, without a cluster around it."""
    pytest.importorskip("ray")
    from hdcos.party.ray_host import RayHost

    host = RayHost()
    address, public = host.start(0)
    assert host.begin(told(public)) is None
    yield address
    end_process(host._process)


@pytest.mark.parametrize("started", [plain, placed_by_ray])
def test_what_crosses_between_a_node_and_its_worker_holds_no_key(started) -> None:
    crossed: list[str] = []

    def told(public: bytes) -> dict[str, Any]:
        settings = node().settings_of(1, public)
        crossed.extend([public.decode(), json.dumps(settings)])
        return settings

    with started(told) as address:
        me = PARTY.issue("w1.party0")
        with connect(me, {DEALER.certificate: "w1.dealer"}, *address, 30.0, server_name="w1.dealer") as link:
            handshake(link, Hello(me.name, SOFTWARE, table_hash(), RUN))  # so it has the key of its certificate
    assert "BEGIN PUBLIC KEY" in crossed[0]
    assert "BEGIN CERTIFICATE" in crossed[1]
    assert not [text for text in crossed if "PRIVATE" in text or '"key"' in text]


def test_a_process_that_makes_no_key_is_ended_and_one_that_cannot_be_certified_too(monkeypatch) -> None:
    ended = []
    monkeypatch.setattr(process, "end_process", lambda popen, *within: ended.append(popen) or end_process(popen, 0.0))
    monkeypatch.setattr("hdcos.party.launcher.end_process", process.end_process)

    def refused(public: bytes) -> dict[str, Any]:
        raise InputError("no")

    with pytest.raises(InputError, match="no"), plain(refused):
        pass
    monkeypatch.setattr(process.sys, "executable", "/bin/false")
    with socket.create_server(("127.0.0.1", 0)) as sock, pytest.raises(PeerLost, match="it ended with status 1"):
        start_worker(sock)
    assert [popen.poll() is not None for popen in ended] == [True, True]
