"""One port for many workers: every connection reaches the process that it asks for, and nobody holds up another."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hdcos.errors import HandshakeError, InputError, PeerLost
from hdcos.link import Doorman, Identity, Kind, Link, Listener, connect
from hdcos.link.client_hello import MAX_HELLO_BYTES, MalformedError, read_server_name
from hdcos.link.listener import MAX_PENDING

ZERO, ONE = Identity.create("party0"), Identity.create("party1")
WORKER = """
import json, os, socket, sys
from hdcos.link import Certificate, Identity, Kind, Listener
record = json.loads(sys.stdin.readline())
identity = Identity(record["name"], Certificate.from_pem(record["certificate"]), record["key"].encode())
allowed = {Certificate.from_pem(record["peer"]): record["peer_name"]}
with Listener(identity, allowed, sock=socket.socket(fileno=record["channel"])) as listener:
    print("ready", flush=True)
    while True:
        with listener.accept(None) as link:
            _, payload = link.receive(Kind.REQUEST)
            words = identity.name, str(os.getpid()), "heard", link.peer, "say", payload.tobytes().decode()
            link.send(Kind.REPLY, " ".join(words).encode())
"""


def client_hello(name: str | None) -> bytes:
    """What OpenSSL sends first."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    outgoing = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=name).do_handshake()
    return outgoing.read()


def in_records(hello: bytes, size: int) -> bytes:
    """The same message in records of at most this many bytes."""
    body = hello[5:]
    parts = [body[i : i + size] for i in range(0, len(body), size)]
    return b"".join(b"\x16\x03\x01" + len(part).to_bytes(2, "big") + part for part in parts)


@pytest.fixture
def doorman() -> Iterator[Doorman]:
    with Doorman(socket.create_server(("127.0.0.1", 0), backlog=256), hello_s=1.0) as made:
        yield made


def ask(doorman: Doorman, worker: int, word: bytes = b"hello", within_s: float = 10.0) -> str:
    """What worker i of party 0 answers worker i of party 1."""
    names = [f"w{worker}.{party.name}" if worker else party.name for party in (ZERO, ONE)]
    me = ONE.issue(names[1]) if worker else ONE
    with connect(me, {ZERO.certificate: names[0]}, "127.0.0.1", doorman.port, within_s) as link:
        link.send(Kind.REQUEST, word)
        return link.receive(Kind.REPLY)[1].tobytes().decode()


def start_worker(doorman: Doorman, worker: int) -> subprocess.Popen[str]:
    """A worker of party 0, in a process of its own."""
    identity = ZERO.issue(f"w{worker}.party0")
    with doorman.serve(identity.name) as channel:
        process = subprocess.Popen(
            [sys.executable, "-c", WORKER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            pass_fds=[channel.fileno()],
        )
        assert process.stdin is not None
        record = {
            "name": identity.name,
            "certificate": identity.certificate.pem,
            "key": identity.key_pem.decode(),
            "peer": ONE.certificate.pem,
            "peer_name": f"w{worker}.party1",
            "channel": channel.fileno(),
        }
        process.stdin.write(json.dumps(record) + "\n")
        process.stdin.flush()
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait(10)
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        pipe.close()


def wait_for(condition, within_s: float = 5.0) -> None:
    limit = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < limit, "it did not happen in time"
        time.sleep(0.01)


# ---- the name in a ClientHello


@pytest.mark.parametrize("name", ["w3.party1", "party0", "a" * 63 + ".example", None])
@pytest.mark.parametrize("size", [1 << 14, 100, 7, 1])
def test_the_name_is_read_from_what_openssl_sends_however_it_is_cut(name, size):
    hello = in_records(client_hello(name), size)
    assert read_server_name(hello) == (name or "")
    assert read_server_name(hello + b"more") == (name or "")
    for length in range(0, len(hello), 1 if size > 7 else 29):
        assert read_server_name(hello[:length]) is None


def test_a_name_is_read_in_lower_case_and_a_post_quantum_hello_fits():
    hello = client_hello("w3.party1")
    assert read_server_name(hello.replace(b"w3.party1", b"W3.Party1")) == "w3.party1"
    assert len(hello) < 2000 < MAX_HELLO_BYTES


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n",
        b"\x16\x02\x01\x00\x05",
        b"\x17\x03\x03\x00\x05",
        b"\x16\x03\x01\x00\x00",
        b"\x16\x03\x01\x40\x01",
        b"\x16\x03\x01\x00\x04\x02\x00\x00\x00",
        b"\x16\x03\x01\x00\x04\x01\xff\xff\xff",
        b"\x16\x03\x01\x00\x06\x01\x00\x00\x02\x03\x03",
        client_hello("w3.party1").replace(b"\x00\x0c\x00\x00\x09w3", b"\x00\x0d\x00\x00\x09w3"),
        client_hello("w3.party1").replace(b"\x00\x00\x09w3", b"\x01\x00\x09w3"),
        client_hello("w3.party1").replace(b"w3.party1", b"w3.p\xe4rty1"),
        in_records(b"\x16\x03\x01\x00\x00\x01\x00\x3f\xf0" + bytes(MAX_HELLO_BYTES), 1)[:MAX_HELLO_BYTES],
    ],
)
def test_what_is_no_client_hello_is_known_as_such(data):
    with pytest.raises(MalformedError):
        read_server_name(data)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200), st.integers(0, 400), st.integers(0, 255))
def test_no_bytes_break_the_reader(noise, place, value):
    changed = bytearray(client_hello("w3.party1"))
    changed[place % len(changed)] = value
    for data in (noise, b"\x16\x03\x01" + noise, bytes(changed), bytes(changed[:place]) + noise):
        with contextlib.suppress(MalformedError):
            assert read_server_name(data) is None or len(read_server_name(data) or "") < 256


# ---- links through one port


def test_workers_in_processes_of_their_own_are_reached_by_name_over_tls_at_one_port(doorman):
    workers = {i: start_worker(doorman, i) for i in (1, 2, 3)}
    try:
        for i in (3, 1, 2, 1):
            assert ask(doorman, i, f"word {i}".encode()) == (
                f"w{i}.party0 {workers[i].pid} heard w{i}.party1 say word {i}"
            )
        assert doorman.counts == {"handed": 4}
    finally:
        for process in workers.values():
            end(process)


def test_the_node_itself_is_served_in_the_process_of_the_doorman_with_its_name_or_with_none(doorman, both):
    with Listener(ZERO, {ONE.certificate: "party1"}, sock=doorman.serve("party0", "")) as listener:

        def serve() -> None:
            with listener.accept(10.0) as link:
                assert link.peer == "party1"
                link.exchange([b"x"])

        for name in ("", "party0"):

            def call(name: str = name) -> str:
                with connect(
                    ONE, {ZERO.certificate: "party0"}, "127.0.0.1", doorman.port, 10.0, server_name=name
                ) as link:
                    return link.exchange([b"y"]).tobytes()

            assert both(serve, call) == (None, b"x")
        with pytest.raises(PeerLost, match="through the doorman within"):
            listener.accept(0.05)


def test_what_a_link_counts_is_the_same_through_a_doorman(doorman, both):
    """The socket is handed over as it came: the kernel's own counts agree with the link's at both ends."""
    with Listener(ZERO, {ONE.certificate: "party1"}, sock=doorman.serve("")) as listener:
        links = both(
            lambda: listener.accept(10.0),
            lambda: connect(ONE, {ZERO.certificate: "party0"}, "127.0.0.1", doorman.port, 10.0),
        )
        assert not os.get_inheritable(links[0]._transport._sock.fileno())
        both(*(lambda link=link: link.exchange([bytes(100_000)]) for link in links))
        assert all(isinstance(link, Link) for link in links)
        sent = [link._transport.os_counters() for link in links]
        assert sent[0] == (links[0]._transport.sent, links[0]._transport.received)
        assert sent[0] == tuple(reversed(sent[1]))
        for link in links:
            link.close()


def test_a_name_that_nobody_serves_is_told_to_the_caller_and_tried_again_until_somebody_does(doorman, both):
    with pytest.raises(PeerLost, match=r"serves no such name \(w1\.party0 was asked for\), gave up after 0\.2 s"):
        ask(doorman, 1, within_s=0.2)
    assert doorman.counts["unknown"] >= 1
    assert "asks for w1.party0, which nobody serves" in doorman.refused[-1]
    made = []

    def late() -> None:
        time.sleep(0.5)
        made.append(start_worker(doorman, 1))

    try:
        _, answer = both(late, lambda: ask(doorman, 1, within_s=30.0))
        assert answer == f"w1.party0 {made[0].pid} heard w1.party1 say hello"
    finally:
        end(made[0])


def test_a_worker_that_is_killed_is_forgotten_and_its_successor_found(doorman):
    first = start_worker(doorman, 1)
    neighbour = start_worker(doorman, 2)
    try:
        assert str(first.pid) in ask(doorman, 1)
        os.kill(first.pid, signal.SIGKILL)
        first.wait(10)
        with pytest.raises(PeerLost, match="serves no such name"):
            ask(doorman, 1, within_s=0.3)
        assert doorman.names == ["w2.party0"]
        second = start_worker(doorman, 1)
        try:
            assert str(second.pid) in ask(doorman, 1)
            assert str(neighbour.pid) in ask(doorman, 2)
        finally:
            end(second)
    finally:
        end(first)
        end(neighbour)


def test_links_outlive_the_doorman_and_a_listener_learns_that_it_is_gone(doorman, both):
    with Listener(ZERO, {ONE.certificate: "party1"}, sock=doorman.serve("")) as listener:
        links = both(
            lambda: listener.accept(10.0),
            lambda: connect(ONE, {ZERO.certificate: "party0"}, "127.0.0.1", doorman.port, 10.0),
        )
        doorman.close()
        with pytest.raises(PeerLost, match="the process that has the public port is gone"):
            listener.accept(5.0)
        results = both(*(lambda link=link: link.exchange([b"still"]).tobytes() for link in links))
        assert results == (b"still", b"still")
        for link in links:
            link.close()


def test_a_name_that_is_forgotten_is_served_no_longer(doorman):
    with doorman.serve("w1.party0") as gone, doorman.serve("w2.party0") as channel:
        doorman.forget(gone)
        assert doorman.names == ["w2.party0"]
        with pytest.raises(PeerLost, match="serves no such name"):
            ask(doorman, 1, within_s=0.1)
        with socket.create_connection(("127.0.0.1", doorman.port)) as caller:
            caller.sendall(client_hello("w2.party0"))
            wait_for(lambda: doorman.counts["handed"] == 1)
        doorman.forget(channel)
        doorman.forget(channel)
        assert doorman.names == []
        assert channel.recv(1) == b"\0"
        assert channel.recv(1) == b""
    with pytest.raises(InputError, match="at least one name"):
        doorman.serve()


def test_who_is_forgotten_takes_no_name_from_the_one_that_serves_it_since(doorman):
    """A worker that is ending, and the next one of its name, which has begun already."""
    older, newer = doorman.serve("w1.party0", "old.party0"), doorman.serve("w1.party0")
    with newer:
        older.close()  # as a node does when the process has it
        doorman.forget(older)
        assert doorman.names == ["w1.party0"]
        with socket.create_connection(("127.0.0.1", doorman.port)) as caller:
            caller.sendall(client_hello("w1.party0"))
            assert newer.recv(1) == b"\0"


def test_a_connection_that_is_handed_to_the_wrong_worker_is_refused(doorman, both):
    with Listener(ZERO.issue("w2.party0"), {ONE.certificate: "w2.party1"}, sock=doorman.serve("w1.party0")) as wrong:
        server, client = both(lambda: wrong.accept(1.0), lambda: ask(doorman, 1, within_s=0.3))
    assert isinstance(server, HandshakeError)
    assert "asks for a name that is not served here" in str(server)
    assert isinstance(client, PeerLost)


# ---- callers that mean no good


def test_slow_silent_and_malformed_callers_do_not_hold_up_the_others(doorman):
    worker = start_worker(doorman, 1)
    hello = client_hello("w1.party0")
    strays = []
    try:
        for said in (b"", b"\x16", hello[:-1], b"GET / HTTP/1.0\r\n\r\n", os.urandom(40), hello[:60]):
            stray = socket.create_connection(("127.0.0.1", doorman.port))
            stray.sendall(said)
            strays.append(stray)
        socket.create_connection(("127.0.0.1", doorman.port)).close()
        started = time.monotonic()
        assert str(worker.pid) in ask(doorman, 1)
        assert time.monotonic() - started < 0.9, "it waited for those that are silent"
        wait_for(lambda: sum(doorman.counts.values()) == 8)
        assert doorman.counts == {"handed": 1, "malformed": 2, "gone": 1, "slow": 4}
        for stray in strays:
            stray.settimeout(2.0)
            with contextlib.suppress(ConnectionResetError):
                assert stray.recv(1) == b""
    finally:
        end(worker)
        for stray in strays:
            stray.close()


def test_a_hello_that_arrives_byte_by_byte_is_handed_over_whole(doorman, both):
    hello = client_hello("w1.party0")
    with doorman.serve("w1.party0") as channel, socket.create_connection(("127.0.0.1", doorman.port)) as caller:
        caller.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for i in range(len(hello)):
            caller.sendall(hello[i : i + 1])
        _, handles, _, _ = socket.recv_fds(channel, 1, 1)
        with socket.socket(fileno=handles[0]) as taken:
            taken.settimeout(5.0)
            assert taken.getpeername() == caller.getsockname()
            received = b""
            while len(received) < len(hello):
                received += taken.recv(1 << 14)
            assert received == hello


def test_waiting_for_the_rest_of_a_hello_costs_no_time(doorman):
    """A part of a hello stays in the socket, where a doorman that asked for it again and again would burn a core."""
    with contextlib.ExitStack() as stack:
        for _ in range(20):
            caller = stack.enter_context(socket.create_connection(("127.0.0.1", doorman.port)))
            caller.sendall(b"\x16\x03\x01")
        wait_for(lambda: len(doorman._callers) == 20)
        clock = time.clock_gettime_ns
        which = time.pthread_getcpuclockid(doorman._thread.ident or 0)
        before = clock(which)
        time.sleep(0.5)
        assert clock(which) - before < 50_000_000


def test_a_flood_makes_room_at_the_cost_of_the_address_it_comes_from(doorman):
    flood = [socket.create_connection(("127.0.0.1", doorman.port)) for _ in range(MAX_PENDING - 1)]
    patient = socket.create_connection(("127.0.0.1", doorman.port), source_address=("127.0.0.2", 0))
    wait_for(lambda: len(doorman._callers) == MAX_PENDING)
    flood += [socket.create_connection(("127.0.0.1", doorman.port)) for _ in range(MAX_PENDING)]
    wait_for(lambda: doorman.counts["crowded out"] == MAX_PENDING)
    assert len(doorman._callers) == MAX_PENDING
    with doorman.serve("w1.party0") as channel:
        patient.sendall(client_hello("w1.party0"))
        channel.settimeout(2.0)
        assert channel.recv(1) == b"\0"
    for caller in (*flood, patient):
        caller.close()


def test_a_worker_that_takes_no_connections_holds_a_bounded_number_and_its_neighbours_none(doorman):
    worker = start_worker(doorman, 2)
    hello = client_hello("w1.party0")
    try:
        with doorman.serve("w1.party0"), contextlib.ExitStack() as stack:
            for _ in range(150):
                caller = stack.enter_context(socket.create_connection(("127.0.0.1", doorman.port)))
                caller.sendall(hello)
            wait_for(lambda: sum(doorman.counts.values()) == 150)
            assert 10 < doorman.counts["handed"] <= MAX_PENDING
            assert doorman.counts["busy"] == 150 - doorman.counts["handed"]
            assert "takes no connections at the moment" in doorman.refused[-1]
            assert str(worker.pid) in ask(doorman, 2)
    finally:
        end(worker)


def test_nothing_is_left_open(doorman):
    def handles() -> int:
        return len(os.listdir("/proc/self/fd"))

    before = handles()
    for _ in range(5):
        with doorman.serve("w1.party0") as channel:
            caller = socket.create_connection(("127.0.0.1", doorman.port))
            caller.sendall(client_hello("w1.party0"))
            _, received, _, _ = socket.recv_fds(channel, 1, 1)
            os.close(received[0])
            caller.close()
        doorman.forget(channel)
    wait_for(lambda: handles() == before)
    other = Doorman(socket.create_server(("127.0.0.1", 0)))
    other.serve("x").close()
    other.close()
    other.close()
    assert handles() == before
