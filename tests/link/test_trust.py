"""Only pinned certificates, and only peers that mean the same computation."""

from __future__ import annotations

import contextlib
import datetime
import os
import socket
import ssl
import stat
import threading
import time
from dataclasses import replace

import pytest

from hdcos.errors import DataMissing, HandshakeError, InputError, PeerLost, PolicyRefused
from hdcos.link import Certificate, Hello, Identity, Kind, Listener, connect, handshake
from hdcos.link.trust import Trust
from hdcos.testing.pair import memory_pair

HELLO = Hello("party 0", b"p" * 32, b"t" * 32, b"r" * 16, 3)


def meet(both, server, admits, client, trusts, accept_s=1.0):
    """What accept gives, and what connect followed by a hello gives."""
    with Listener(server, {c.certificate: c.name for c in admits}, handshake_s=1.0) as listener:

        def call():
            link = connect(client, {c.certificate: c.name for c in trusts}, "127.0.0.1", listener.port, 3.0)
            with link:
                return handshake(link, replace(HELLO, role=client.name))

        return both(lambda: listener.accept(accept_s), call)


def test_an_unknown_client_certificate_is_refused_and_both_sides_say_so(nodes, both):
    stranger = Identity.create("party 1")  # the right name, another key
    server, client = meet(both, nodes["party 0"], [nodes["party 1"]], stranger, [nodes["party 0"]])
    assert isinstance(server, HandshakeError)
    assert "not one this node was told to trust" in str(server)
    assert isinstance(client, HandshakeError)
    assert "refused this node's certificate" in str(client)


def test_an_unknown_server_certificate_is_refused_and_both_sides_say_so(nodes, both):
    stranger = Identity.create("party 0")
    server, client = meet(both, stranger, [nodes["party 1"]], nodes["party 1"], [nodes["party 0"]])
    assert isinstance(client, HandshakeError)
    assert "not one this node was told to trust" in str(client)
    assert isinstance(server, HandshakeError)
    assert "refused this node's certificate" in str(server)


@pytest.mark.parametrize("side", ["server", "client"])
def test_the_certificate_of_another_role_is_refused(nodes, both, side):
    zero, one, dealer = nodes["party 0"], nodes["party 1"], nodes["dealer"]
    if side == "client":
        results = meet(both, zero, [one], dealer, [zero])
    else:
        results = meet(both, dealer, [one], one, [zero])
    assert [type(result) for result in results] == [HandshakeError, HandshakeError]


def test_a_role_that_does_not_fit_the_certificate_is_refused(both):
    zero, one = memory_pair()
    results = both(lambda: handshake(zero, HELLO), lambda: handshake(one, replace(HELLO, role="dealer")))
    assert "certificate of 'party 1' says it is 'dealer'" in str(results[0])
    zero, one = memory_pair()
    results = both(lambda: handshake(zero, HELLO), lambda: handshake(one, HELLO))
    assert all("both sides say they are 'party 0'" in str(result) for result in results)


@pytest.mark.parametrize("side", ["server", "client"])
def test_an_expired_certificate_is_refused_and_both_sides_say_so(nodes, both, monkeypatch, side):
    past = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=30)
    expired = Identity.create("party 1", days=1, start=past)
    with pytest.raises(HandshakeError, match="expired on"):
        connect(expired, {nodes["party 0"].certificate: "party 0"}, "127.0.0.1", 1)
    with pytest.raises(HandshakeError, match="expired on"):
        Listener(expired, {nodes["party 0"].certificate: "party 0"})
    monkeypatch.setattr(Identity, "require_valid", lambda self: None)  # its clock is wrong
    zero = nodes["party 0"]
    if side == "client":
        checked, told = meet(both, zero, [expired], expired, [zero])
    else:
        told, checked = meet(both, expired, [zero], zero, [expired])
    assert isinstance(checked, HandshakeError)
    assert "has expired" in str(checked)
    assert isinstance(told, HandshakeError)
    assert "certificate expired" in str(told)


@pytest.mark.parametrize(
    ("field", "value"),
    [("version", 2), ("program", b"q" * 32), ("table", b"u" * 32), ("run", b"s" * 16), ("attempt", 4)],
)
def test_another_computation_is_refused_on_both_sides_by_the_name_of_the_field(tls_pair, both, field, value):
    zero, one = tls_pair()
    other = replace(HELLO, role="party 1", **{field: value})
    results = both(lambda: handshake(zero, HELLO), lambda: handshake(one, other))
    for result in results:
        assert isinstance(result, HandshakeError)
        assert f"{field} differs" in str(result)
    if isinstance(value, bytes):
        assert value.hex()[:12] in str(results[0])
    if field in ("version", "table"):
        assert "Install the same hdcos version on both hosts" in str(results[0])
    assert zero.closed
    assert one.closed


def test_equal_hellos_are_accepted_and_counted_as_setup(tls_pair, both):
    zero, one = tls_pair()
    other = replace(HELLO, role="party 1")
    theirs, mine = both(lambda: handshake(zero, HELLO), lambda: handshake(one, other))
    assert theirs == other
    assert mine == HELLO
    assert Hello("a", b"p" * 32, b"t" * 32, b"r" * 32).nonce != Hello("a", b"p" * 32, b"t" * 32, b"r" * 32).nonce
    counted = zero.meter.snapshot()
    assert counted.sections["setup"] == counted.total
    assert set(counted.steps["setup"]) == {"tls", "hello"}


def test_another_context_is_refused_on_both_sides(tls_pair, both):
    zero, one = tls_pair()
    zero.context, one.context = 5, 6
    results = both(lambda: zero.exchange([bytes(9)]), lambda: one.exchange([bytes(9)]))
    for result in results:
        assert isinstance(result, HandshakeError)
        assert "peer is running another program" in str(result)


@pytest.mark.parametrize("flaw", ["no certificate", "TLS 1.2"])
def test_a_client_without_certificate_or_with_older_tls_is_refused(nodes, both, flaw):
    settings = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    settings.check_hostname = False
    settings.verify_mode = ssl.CERT_NONE
    if flaw == "TLS 1.2":
        with nodes["party 1"].chain_file() as path:
            settings.load_cert_chain(path)
        settings.maximum_version = ssl.TLSVersion.TLSv1_2
    with Listener(nodes["party 0"], {nodes["party 1"].certificate: "party 1"}) as listener:

        def call():
            plain = socket.create_connection(("127.0.0.1", listener.port))
            with plain, settings.wrap_socket(plain) as wrapped:
                return wrapped.recv(1)

        server, client = both(lambda: listener.accept(0.5), call)
    assert isinstance(server, HandshakeError)
    assert isinstance(client, ssl.SSLError)


def test_a_certificate_that_openssl_would_accept_is_still_compared_with_those_allowed(nodes):
    trust = Trust({nodes["party 1"].certificate: "party 1"})
    assert trust.find(nodes["party 1"].certificate) == "party 1"
    with pytest.raises(HandshakeError, match="is not allowed here"):
        trust.find(nodes["dealer"].certificate)


def test_scanners_garbage_and_clients_that_hang_do_not_stop_the_next_peer(nodes, both):
    zero, one = nodes["party 0"], nodes["party 1"]
    strays = []
    with Listener(zero, {one.certificate: "party 1"}, handshake_s=30.0) as listener:
        address = ("127.0.0.1", listener.port)
        for said in (b"", b"GET / HTTP/1.0\r\n\r\n", bytes(500), b"\x16\x03\x01\x02\x00", os.urandom(300)):
            stray = socket.create_connection(address)
            stray.sendall(said)
            strays.append(stray)
        socket.create_connection(address).close()
        started = time.monotonic()
        link, peer = both(lambda: listener.accept(10.0), lambda: connect(one, {zero.certificate: "party 0"}, *address))
        assert time.monotonic() - started < 3.0
        a, b = both(lambda: link.exchange([b"x"]), lambda: peer.exchange([b"y"]))
        assert (a.tobytes(), b.tobytes()) == (b"y", b"x")
        assert listener.refused
        peer.close()
        link.close()
        with pytest.raises(HandshakeError, match="no peer connected"):
            listener.accept(0.05)
    for stray in strays:
        stray.close()


def test_a_visitor_that_never_finishes_tls_is_forgotten_and_a_flood_makes_room(nodes):
    with Listener(nodes["party 0"], {nodes["party 1"].certificate: "party 1"}, handshake_s=0.1) as listener:
        strays = [socket.create_connection(("127.0.0.1", listener.port)) for _ in range(80)]
        with pytest.raises(HandshakeError, match=r"did not finish the TLS handshake in time|made room"):
            listener.accept(0.5)
        assert not listener._visitors
        for stray in strays:
            stray.close()


def test_nobody_calling_is_a_lost_peer(nodes):
    allowed = {nodes["party 1"].certificate: "party 1"}
    with Listener(nodes["party 0"], allowed) as listener, pytest.raises(PeerLost, match=r"within 0\.05 s"):
        listener.accept(0.05)


def test_connect_waits_for_a_listener_that_starts_later(nodes, both):
    zero, one = nodes["party 0"], nodes["party 1"]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with pytest.raises(PeerLost, match="Is the node running there"):
        connect(one, {zero.certificate: "party 0"}, "127.0.0.1", port, timeout_s=1.0, retry=False)

    def late():
        time.sleep(0.3)
        with Listener(zero, {one.certificate: "party 1"}, port=port) as listener:
            return listener.accept(5.0)

    server, client = both(late, lambda: connect(one, {zero.certificate: "party 0"}, "127.0.0.1", port, 5.0))
    assert (server.peer, client.peer) == ("party 1", "party 0")
    server.close()
    client.close()


def test_a_server_that_accepts_and_says_nothing_does_not_hold_connect_beyond_its_time(nodes):
    with socket.create_server(("127.0.0.1", 0)) as mute:
        started = time.monotonic()
        with pytest.raises(PeerLost, match="did not finish the TLS handshake"):
            connect(
                nodes["party 1"],
                {nodes["party 0"].certificate: "party 0"},
                *mute.getsockname(),
                timeout_s=0.3,
            )
        assert time.monotonic() - started < 2.0


def test_an_eavesdropper_sees_neither_payload_nor_frame_header(nodes, both):
    zero, one = nodes["party 0"], nodes["party 1"]
    seen = bytearray()
    with (
        Listener(zero, {one.certificate: "party 1"}) as listener,
        socket.create_server(("127.0.0.1", 0)) as tap,
    ):

        def relay():
            client, _ = tap.accept()
            server = socket.create_connection(("127.0.0.1", listener.port))

            def copy(source, sink):
                with contextlib.suppress(ConnectionError):
                    while data := source.recv(1 << 16):
                        seen.extend(data)
                        sink.sendall(data)

            ways = [threading.Thread(target=copy, args=way) for way in ((client, server), (server, client))]
            for way in ways:
                way.start()
            for way in ways:
                way.join(10)
            client.close()
            server.close()

        def serve():
            with listener.accept(10.0) as link:
                link.exchange([b"SECRET" * 100])
                link.receive(Kind.REQUEST)

        def call():
            with connect(one, {zero.certificate: "party 0"}, *tap.getsockname()) as link:
                link.exchange([b"SECRET" * 100])
                link.send(Kind.REQUEST)

        results = both(relay, serve, call)
    assert results == (None, None, None)
    assert len(seen) > 1200
    assert b"SECRET" not in seen
    assert b"HDCS" not in seen


def test_an_identity_survives_disk_and_its_key_is_private_from_the_first_byte(tmp_path):
    old = os.umask(0)
    try:
        made = Identity.create("dealer", tmp_path / "node")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "node" / "key.pem").stat().st_mode) == 0o600
    assert Identity.load(tmp_path / "node") == made
    assert Certificate.read(tmp_path / "node" / "certificate.pem").fingerprint == made.fingerprint
    assert "PRIVATE" not in repr(made)
    with pytest.raises(InputError, match="never overwritten"):
        made.save(tmp_path / "node")
    (tmp_path / "node" / "key.pem").chmod(0o640)
    with pytest.raises(PolicyRefused, match="mode 640"):
        Identity.load(tmp_path / "node")
    with pytest.raises(DataMissing, match="hdcos node init"):
        Identity.load(tmp_path)
    with pytest.raises(InputError, match="not a PEM certificate"):
        Certificate.from_pem("nonsense")
