"""The compiled pump: in use wherever it can be, the same bytes as the plain one, and none where it cannot be."""

from __future__ import annotations

import os
import signal
import ssl
import sys
import threading
import time

import numpy as np
import pytest

from hdcos.errors import FrameError, PeerLost
from hdcos.link import Emulation, Kind, pump
from hdcos.link.tls import wire_bytes
from hdcos.ring import backend

needs_native = pytest.mark.skipif(backend() == "reference", reason="no compiled kernels here")


@needs_native
def test_links_use_it_unless_a_network_is_emulated(tls_pair) -> None:
    assert all(link._transport._pump is not None for link in tls_pair())
    assert all(link._transport._pump is None for link in tls_pair(emulation=Emulation(1.0)))


@pytest.mark.parametrize("plain", [0, 1])
@pytest.mark.parametrize("size", [0, 5, 16384, 1_000_000, 30_000_000])
def test_it_works_with_a_plain_one(tls_pair, both, plain, size) -> None:
    links = tls_pair()
    links[plain]._transport._pump = None
    payloads = [np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8) for seed in (0, 1)]
    for _ in range(2):
        a, b = both(*(lambda rank=rank: links[rank].exchange([payloads[rank]]) for rank in (0, 1)))
        assert np.array_equal(a, payloads[1])
        assert np.array_equal(b, payloads[0])
    both(lambda: links[0].send(Kind.MATERIAL, payloads[0]), lambda: links[1].receive(Kind.MATERIAL))
    counted = [link.meter.snapshot().steps["control"]["round"] for link in links]
    assert {each.wire_bytes_sent for each in counted} == {2 * wire_bytes(size)}


@pytest.mark.parametrize("plain", [0, 1])
@pytest.mark.parametrize("sizes", [[0, 1, 0], [1] * 20_000, [16383, 1, 16384, 0, 16385] * 30, [7, 3_000_001, 40_000]])
def test_however_a_frame_is_cut_into_buffers_the_same_records_are_sent(tls_pair, both, plain, sizes) -> None:
    """With the compiled pump on one side and the plain one on the other."""
    links = tls_pair()
    links[plain]._transport._pump = None
    whole = np.random.default_rng(1).integers(0, 256, sum(sizes), dtype=np.uint8)
    buffers = np.split(whole, np.cumsum(sizes)[:-1])
    received = both(*(lambda link=link: link.exchange(buffers) for link in links))
    assert [np.array_equal(each, whole) for each in received] == [True, True]
    counted = [link.meter.snapshot().steps["control"]["round"].wire_bytes_sent for link in links]
    assert set(counted) == {wire_bytes(whole.size)}


def test_threads_go_on_while_a_frame_is_awaited(tls_pair, both) -> None:
    """Python's lock is free in the meantime: another thread counts on."""
    zero, one = tls_pair()
    counted, stop = [0], threading.Event()

    def count() -> None:
        while not stop.is_set():
            counted[0] += 1

    def answer() -> None:
        time.sleep(0.3)
        before = counted[0]
        time.sleep(0.3)
        assert counted[0] > before
        one.send(Kind.REPLY, b"!")

    counter = threading.Thread(target=count)
    counter.start()
    try:
        received, answered = both(lambda: zero.receive(Kind.REPLY), answer)
    finally:
        stop.set()
        counter.join()
    assert answered is None
    assert received[1].tobytes() == b"!"


def test_a_signal_interrupts_a_wait_and_only_its_handler_decides(tls_pair) -> None:
    """Handlers that return let the wait go on; one that raises ends it."""
    zero, _ = tls_pair(timeout_s=30.0)
    heard = []

    def handle(number: int, frame: object) -> None:
        heard.append(number)
        if len(heard) == 3:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)
    started = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            zero.receive(Kind.REPLY)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert len(heard) == 3
    assert 0.25 < time.monotonic() - started < 5


@needs_native
def test_bytes_before_a_broken_record_are_read_first(tls_pair) -> None:
    zero, one = tls_pair()
    one.send(Kind.REPLY, b"before")
    one._transport._sock.send(b"\x17\x03\x03\x00\x20" + bytes(32))
    time.sleep(0.1)
    assert zero.receive(Kind.REPLY)[1].tobytes() == b"before"
    with pytest.raises(FrameError, match="TLS failed: decryption failed or bad record mac"):
        zero.receive(Kind.REPLY)


@needs_native
def test_nothing_is_sent_on_a_socket_that_was_closed(tls_pair) -> None:
    """Its number may be another's by then."""
    zero, _ = tls_pair()
    sent = zero._transport.sent
    zero._transport.close()
    assert zero._transport._pump is None
    assert zero._transport.sent == sent


@needs_native
@pytest.mark.parametrize("waits", ["receive", "send"])
def test_a_link_that_another_thread_closes_is_lost_to_the_one_that_waits(tls_pair, both, waits) -> None:
    """The number of its socket is not free before nobody uses it."""
    zero, _ = tls_pair(timeout_s=20.0)
    descriptor = zero._transport._sock.fileno()

    def wait() -> None:
        if waits == "receive":
            zero.receive(Kind.REPLY)
        else:
            zero.send(Kind.MATERIAL, bytes(64 << 20))

    def close() -> None:
        time.sleep(0.3)
        assert zero._transport._pump.read(memoryview(bytearray(1)), False, 0.1) == (pump.BUSY, 0)
        zero.close()
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)

    started = time.monotonic()
    waited, closed = both(wait, close)
    assert closed is None
    assert isinstance(waited, PeerLost)
    assert time.monotonic() - started < 5


@needs_native
def test_a_link_is_lost_to_a_thread_that_finds_another_in_it(tls_pair, both) -> None:
    """As after Ctrl-C: what waits was cancelled, has not left yet, and the next question is asked already."""
    zero, _ = tls_pair(timeout_s=20.0)

    def ask() -> None:
        time.sleep(0.3)
        zero.send(Kind.REQUEST, b"next")

    started = time.monotonic()
    waited, asked = both(lambda: zero.receive(Kind.REPLY), ask)
    assert isinstance(waited, PeerLost)
    assert isinstance(asked, PeerLost)
    assert "another thread is using the link" in str(asked)
    assert time.monotonic() - started < 5


@needs_native
def test_no_object_is_taken_for_another(tls_pair) -> None:
    zero, one = tls_pair()
    mine, theirs = zero._transport, one._transport
    assert pump.open_pump(mine._tls, mine._incoming, 0, 0) is not None
    assert pump.open_pump(mine._tls, theirs._incoming, 0, 0) is None
    assert pump.open_pump(mine._tls, mine._outgoing, 0, 0) is None


@pytest.mark.parametrize("version", [(3, 10), (3, 14)])
def test_there_is_none_in_a_python_that_nobody_tried(monkeypatch, version) -> None:
    incoming = ssl.MemoryBIO()
    tls = ssl.create_default_context().wrap_bio(incoming, ssl.MemoryBIO(), server_hostname="example")
    monkeypatch.setattr(sys, "version_info", (*version, 0, "final", 0))
    pump._is_known.cache_clear()
    try:
        assert pump.open_pump(tls, incoming, 0, 0) is None
    finally:
        pump._is_known.cache_clear()


def test_there_is_none_where_openssl_is_part_of_the_interpreter(monkeypatch) -> None:
    monkeypatch.delattr("_ssl.__file__")
    pump._is_known.cache_clear()
    try:
        assert not pump._is_known()
    finally:
        pump._is_known.cache_clear()
