"""Real proxies in front of a party, as in deploy/: they route by name, and TLS stays between the two ends."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
from collections.abc import Iterator

import pytest

from hdcos.errors import HandshakeError, PeerLost
from hdcos.link import Doorman, Identity, Listener, connect
from proxies import ENVOY, HAPROXY, needs, running_proxy

ZERO, ONE = Identity.create("party0"), Identity.create("party1")

BOTH = [pytest.param(proxy, marks=needs(proxy), id=proxy.program) for proxy in (HAPROXY, ENVOY)]


def own(party: Identity, worker: int) -> Identity:
    return party.issue(f"w{worker}.{party.name}") if worker else party


@pytest.fixture(params=BOTH)
def party(request, tmp_path) -> Iterator[tuple[int, dict[int, Listener]]]:
    """The public port of party 0, and the listeners of its node (behind a doorman) and of two workers elsewhere."""
    with contextlib.ExitStack() as stack:
        doorman = stack.enter_context(Doorman(socket.create_server(("127.0.0.1", 0))))
        socks = {0: doorman.serve("party0", ""), 1: None, 2: None}
        listeners = {
            worker: stack.enter_context(
                Listener(own(ZERO, worker), {ONE.certificate: own(ONE, worker).name}, sock=sock, link_timeout_s=10.0)
            )
            for worker, sock in socks.items()
        }
        ports = {"node": doorman.port, "w1": listeners[1].port, "w2": listeners[2].port}
        yield stack.enter_context(running_proxy(request.param, tmp_path, ports)), listeners


@pytest.mark.parametrize("proxy", BOTH)
def test_the_example_is_one_that_the_proxy_accepts(proxy) -> None:
    done = subprocess.run([proxy.program, *proxy.check, proxy.example], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "warning" not in (done.stdout + done.stderr).lower()


def test_each_worker_is_reached_by_its_name_through_one_port_and_tls_ends_at_the_worker(party, both) -> None:
    port, listeners = party

    def serve(worker: int) -> tuple[str, bytes]:
        with listeners[worker].accept(10.0) as link:
            return link.peer, link.exchange([f"answer {worker}".encode() + bytes(300_000)])[:8].tobytes()

    def call(worker: int) -> tuple[str, bytes]:
        me, name = own(ONE, worker), own(ZERO, worker).name
        with connect(me, {ZERO.certificate: name}, "127.0.0.1", port, 10.0, server_name=name) as link:
            return link.peer, link.exchange([f"asking {worker}".encode() + bytes(300_000)])[:8].tobytes()

    for order in ((0, 1, 2), (2, 1, 0)):
        results = both(*(lambda w=w: serve(w) for w in order), *(lambda w=w: call(w) for w in order))
        assert results == (
            *((own(ONE, w).name, f"asking {w}".encode()) for w in order),
            *((own(ZERO, w).name, f"answer {w}".encode()) for w in order),
        )


def test_a_name_that_nobody_has_is_refused_by_the_node(party) -> None:
    port, _ = party
    with pytest.raises(PeerLost, match=r"serves no such name \(w9\.party0 was asked for\)"):
        connect(own(ONE, 9), {ZERO.certificate: "w9.party0"}, "127.0.0.1", port, 1.0)


def test_a_worker_that_is_reached_under_another_name_is_refused(party, both) -> None:
    """As if the rules of the proxy were mixed up: worker 2 is asked for, and the one that answers is worker 1."""
    port, listeners = party
    server, client = both(
        lambda: listeners[1].accept(1.0),
        lambda: connect(own(ONE, 2), {ZERO.certificate: "w2.party0"}, "127.0.0.1", port, 0.5, server_name="w1.party0"),
    )
    assert isinstance(server, HandshakeError)
    assert isinstance(client, HandshakeError)
    assert "the peer is 'w1.party0', not w2.party0" in str(client)


def test_a_caller_that_speaks_no_tls_reaches_nobody(party) -> None:
    port, listeners = party
    with socket.create_connection(("127.0.0.1", port)) as caller:
        caller.sendall(b"GET / HTTP/1.0\r\n\r\n")
        caller.settimeout(10.0)
        with contextlib.suppress(ConnectionResetError):
            assert caller.recv(1) == b""
    for listener in listeners.values():
        with pytest.raises(PeerLost):
            listener.accept(0.05)


def test_a_worker_that_is_down_is_waited_for(party, both, tmp_path) -> None:
    port, listeners = party
    address = listeners[1].port
    listeners[1].close()
    with pytest.raises(PeerLost, match="gave up"):
        connect(own(ONE, 1), {ZERO.certificate: "w1.party0"}, "127.0.0.1", port, 0.3)

    def begin_again() -> str:
        time.sleep(0.5)
        with Listener(own(ZERO, 1), {ONE.certificate: "w1.party1"}, port=address) as again, again.accept(10.0) as link:
            return link.peer

    def call() -> str:
        with connect(own(ONE, 1), {ZERO.certificate: "w1.party0"}, "127.0.0.1", port, 10.0) as link:
            return link.peer

    assert both(begin_again, call) == ("w1.party1", "w1.party0")
