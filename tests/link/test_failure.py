"""Peers that vanish, fall silent, talk nonsense or give up: an error that says so, within the timeout."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import hdcos
from hdcos.errors import FrameError, HandshakeError, HdcosError, MaterialExhausted, PeerLost
from hdcos.link import Identity, Kind, Listener, connect
from hdcos.link.base import Link
from hdcos.link.frame import encode
from hdcos.testing.pair import memory_transports

pytestmark = pytest.mark.usefixtures("either_pump")
SECRET = b"SECRET-SHARE-WORDS--"
FRAME = encode(Kind.ROUND, 0, 0, len(SECRET)) + SECRET

PEER = """
import sys, time
from hdcos.link import Certificate, Identity, Kind, Listener, connect
from hdcos.link.frame import encode
side, stage, folder, port = sys.argv[1:]
me = Identity.load(folder + "/peer")
allowed = {Certificate.read(folder + "/certificate.pem"): "party 0"}
if side == "connects":
    link = connect(me, allowed, "127.0.0.1", int(port))
else:
    listener = Listener(me, allowed)
    print(listener.port, flush=True)
    link = listener.accept(20)
if stage == "between frames":
    link.exchange([bytes(20)])
elif stage == "inside a frame":
    link._transport.queue((encode(Kind.ROUND, 0, 0, 20) + bytes(7),))
elif stage == "after sending":
    link.send(Kind.ROUND, bytes(20))
print("ready", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("side", ["connects", "listens"])
@pytest.mark.parametrize(
    "stage",
    ["before the first frame", "inside a frame", "after sending", "between frames", "during a large send"],
)
def test_a_killed_peer_is_noticed(tmp_path, nodes, side, stage):
    zero, one = nodes["party 0"], nodes["party 1"]
    one.save(tmp_path / "peer")
    (tmp_path / "certificate.pem").write_text(zero.certificate.pem)
    allowed = {one.certificate: "party 1"}
    listener = Listener(zero, allowed, link_timeout_s=20.0)
    process = subprocess.Popen(
        [sys.executable, "-c", PEER, side, stage, str(tmp_path), str(listener.port)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(hdcos.__file__).parents[1])},
    )
    assert process.stdout is not None
    try:
        if side == "connects":
            link = listener.accept(20.0)
        else:
            link = connect(zero, allowed, "127.0.0.1", int(process.stdout.readline()), link_timeout_s=20.0)
        if stage == "between frames":
            link.exchange([bytes(20)])
        assert process.stdout.readline() == b"ready\n"
        killed = time.monotonic()
        large = stage == "during a large send"
        timer = threading.Timer(0.3 if large else 0.0, os.kill, (process.pid, signal.SIGKILL))
        timer.start()
        if not large:
            timer.join(10)
            process.wait(10)
        size = (64 << 20) if large else 20
        if stage == "after sending":
            link.receive(Kind.ROUND, 20)
        with pytest.raises(PeerLost, match="party 1"):
            link.exchange([bytes(size)])
        assert time.monotonic() - killed < 10.0
        with pytest.raises(PeerLost, match="link to party 1 is closed"):
            link.exchange([b""])
    finally:
        process.kill()
        process.wait(10)
        process.stdout.close()
        listener.close()


@pytest.mark.parametrize("cut", range(len(FRAME)))
@pytest.mark.parametrize("how", ["exchange", "receive"])
def test_a_frame_cut_at_any_byte_is_a_lost_peer(cut, how):
    near, far = memory_transports()
    far.queue((FRAME[:cut],))
    far.close()
    link = Link(near, "party 1", timeout_s=5)
    with pytest.raises(PeerLost, match=r"party 1 closed the connection, waiting for") as caught:
        link.exchange([SECRET]) if how == "exchange" else link.receive(Kind.ROUND)
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize("abruptly", [False, True])
@pytest.mark.parametrize("cut", [0, 1, 31, 32, 33, 51])
@pytest.mark.parametrize("closes", [0, 1])
def test_a_frame_cut_over_tls_is_a_lost_peer(tls_pair, closes, cut, abruptly):
    links = tls_pair()
    gone, left = links[closes], links[1 - closes]
    if cut:
        gone._transport.queue((FRAME[:cut],))
    if abruptly:
        gone._transport._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    gone._transport.close()
    started = time.monotonic()
    with pytest.raises(PeerLost, match=f"{left.peer} closed the connection"):
        left.exchange([SECRET])
    assert time.monotonic() - started < 2.0


def test_a_peer_that_leaves_after_its_frame_is_noticed_in_the_next_round(tls_pair, both):
    zero, one = tls_pair()
    both(lambda: zero.exchange([SECRET]), lambda: one.exchange([SECRET]))
    one._transport.close()
    with pytest.raises(PeerLost, match=r"party 1 closed the connection.*waiting for round 1"):
        zero.exchange([SECRET])


def test_a_peer_that_leaves_during_a_large_exchange_is_noticed(tls_pair, both):
    zero, one = tls_pair()

    def leave():
        one._transport.read(memoryview(bytearray(1 << 20)), 5.0)
        one._transport.close()

    result, _ = both(lambda: zero.exchange([bytes(64 << 20)]), leave)
    assert isinstance(result, PeerLost)


def test_a_silent_peer_is_lost_at_the_timeout(tls_pair):
    zero, one = tls_pair(timeout_s=0.2)
    started = time.monotonic()
    with pytest.raises(PeerLost, match=r"no answer from party 1 within 0\.2 s, waiting for round 0\."):
        zero.exchange([SECRET])
    assert 0.2 <= time.monotonic() - started < 2.0
    with pytest.raises(PeerLost, match="link to party 1 is closed: no answer from party 1"):
        zero.exchange([SECRET])
    assert one.receive(Kind.ROUND)[1].tobytes() == SECRET
    with pytest.raises(PeerLost, match="party 0 closed the connection"):
        one.receive(Kind.ROUND)


def test_a_peer_that_stops_reading_is_lost_at_the_timeout(tls_pair):
    zero, _ = tls_pair(timeout_s=0.2)
    with pytest.raises(PeerLost, match=r"within 0\.2 s, sending a MATERIAL frame of 67108864 bytes"):
        zero.send(Kind.MATERIAL, bytes(64 << 20))


def test_an_idle_server_waits_longer_than_the_timeout_of_the_link(tls_pair, both):
    zero, one = tls_pair(timeout_s=0.1)

    def later():
        time.sleep(0.4)
        one.send(Kind.REQUEST, b"?")

    (kind, payload), _ = both(lambda: zero.receive({Kind.REQUEST, Kind.REPLY}, timeout_s=None), later)
    assert (kind, payload.tobytes()) == (Kind.REQUEST, b"?")


def test_garbage_instead_of_tls_records_is_a_frame_error(tls_pair):
    zero, one = tls_pair()
    one._transport._sock.send(os.urandom(100))
    with pytest.raises((FrameError, HandshakeError), match="TLS failed"):
        zero.exchange([SECRET])


def test_garbage_inside_tls_is_a_frame_error_on_both_sides(tls_pair):
    zero, one = tls_pair()
    one._transport.queue((SECRET * 5,))
    with pytest.raises(FrameError, match="not a frame header") as caught:
        zero.receive(Kind.ROUND)
    assert "SECRET" not in str(caught.value)
    with pytest.raises(FrameError, match=r"party 0: .*not a frame header"):
        one.receive(Kind.ROUND)


@pytest.mark.parametrize("waits", ["receive", "exchange", "send"])
def test_an_abort_travels_by_name(tls_pair, both, waits):
    zero, one = tls_pair()

    def work():
        if waits == "receive":
            zero.receive(Kind.REPLY)
        elif waits == "exchange":
            zero.exchange([bytes(32 << 20)])
        else:
            time.sleep(0.3)
            while True:
                zero.send(Kind.MATERIAL, bytes(1 << 20))

    result, _ = both(work, lambda: one.abort(MaterialExhausted("128 rows needed, 96 available.")))
    assert type(result) is MaterialExhausted
    assert str(result) == "party 1: 128 rows needed, 96 available."


def test_an_abort_is_heard_where_only_a_short_frame_is_allowed(tls_pair, both):
    zero, one = tls_pair()
    error = MaterialExhausted("x" * 3000)
    result, _ = both(lambda: zero.receive(Kind.REPLY, expected_bytes=5, limit=5), lambda: one.abort(error))
    assert type(result) is MaterialExhausted


def test_an_error_inside_a_with_block_reaches_the_peer_but_foreign_messages_do_not(tls_pair, both):
    zero, one = tls_pair()

    def fail():
        with one:
            raise ValueError(f"cannot use {SECRET!r}")

    result, _ = both(lambda: zero.receive(Kind.REPLY), fail)
    assert type(result) is HdcosError
    assert "internal error (ValueError)" in str(result)
    assert "SECRET" not in str(result)


def test_an_abort_to_a_vanished_peer_raises_nothing(tls_pair):
    zero, one = tls_pair()
    one._transport.close()
    zero.abort(HdcosError("no"))
    zero.close()
    assert zero.closed


def test_an_interrupted_round_leaves_the_link_closed(tls_pair, monkeypatch):
    zero, _ = tls_pair()

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(type(zero._transport), "flush", interrupt)
    with pytest.raises(KeyboardInterrupt):
        zero.send(Kind.REQUEST)
    with pytest.raises(PeerLost, match="interrupted by KeyboardInterrupt"):
        zero.send(Kind.REQUEST)


def test_an_identity_of_the_same_name_is_another_identity():
    assert Identity.create("a").fingerprint != Identity.create("a").fingerprint


@pytest.mark.parametrize("arrived", [0, 100_000, 700_000])
def test_a_peer_that_falls_silent_inside_a_long_frame_is_noticed(tls_pair, arrived):
    zero, one = tls_pair(timeout_s=0.2)
    one._transport.queue((encode(Kind.MATERIAL, 0, 0, 1 << 20) + bytes(arrived),))
    one._transport.flush(1.0)
    started = time.perf_counter()
    with pytest.raises(PeerLost, match=r"no answer from party 1 within 0\.2 s, waiting for MATERIAL frame"):
        zero.receive(Kind.MATERIAL, 1 << 20)
    assert time.perf_counter() - started < 1.0  # what came late in one wait may cost a second one


def test_a_long_frame_that_breaks_off_ends_with_the_connection(tls_pair):
    zero, one = tls_pair()
    one._transport.queue((encode(Kind.MATERIAL, 0, 0, 1 << 20) + bytes(100_000),))
    one._transport.flush(1.0)
    one._transport.close()
    with pytest.raises(PeerLost, match="party 1 closed the connection"):
        zero.receive(Kind.MATERIAL, 1 << 20)
