"""Lanes of a link: the same bytes as over one connection, made for one link alone, and failures that are the link's."""

from __future__ import annotations

import gc
import os
import socket
import threading
import time
from contextlib import ExitStack, contextmanager

import numpy as np
import pytest

from hdcos.errors import FrameError, HandshakeError, InputError, MaterialExhausted, PeerLost
from hdcos.link import Doorman, Emulation, Identity, Kind, Link, Listener, connect, lanes_to_offer
from hdcos.link import listener as listeners
from hdcos.link.binding import LANE, SECRET_BYTES, Bond, hear, protocols, say
from hdcos.link.frame import cut_out, encode
from hdcos.link.lanes import SPREAD_BYTES, cut
from hdcos.link.tls import TlsTransport, wire_bytes
from hdcos.link.tls_socket import TlsSocket
from hdcos.link.trust import Trust
from hdcos.testing.pair import memory_transports

SIZES = [0, 1, SPREAD_BYTES - 1, SPREAD_BYTES, SPREAD_BYTES + 1, SPREAD_BYTES + 4097, 1 << 20, 5_000_003]
LARGE = 1 << 20


@pytest.fixture
def lanes():
    return 3


def noise(size, seed):
    return np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8)


def handles():
    return len(os.listdir("/proc/self/fd"))


def pumps():
    return [thread for thread in threading.enumerate() if thread.name.startswith("lane ")]


def wait_until(true, within_s=5.0):
    limit = time.monotonic() + within_s
    while not true() and time.monotonic() < limit:
        time.sleep(0.01)
    assert true()


# ---- the same bytes


@pytest.mark.parametrize("connections", [1, 2, 4, 16])
@pytest.mark.parametrize("size", SIZES)
def test_parts_are_consecutive_cover_the_payload_and_the_first_is_the_largest(size, connections):
    parts = cut(size, connections)
    assert len(parts) == connections
    assert [start for start, _ in parts] == [0, *(stop for _, stop in parts[:-1])]
    assert parts[-1][1] == size
    assert all(0 <= stop - start <= parts[0][1] for start, stop in parts)


@pytest.mark.parametrize(("start", "stop"), [(0, 0), (0, 8), (3, 5), (2, 87), (5, 6), (87, 90), (0, 90), (90, 90)])
def test_a_part_of_several_buffers_is_that_of_the_whole(start, stop):
    words = np.arange(10, dtype=np.uint64).reshape(2, 5)
    buffers = [b"", b"abc", bytearray(b"de"), words, np.empty(0, np.uint8), memoryview(b"fghij")]
    assert b"".join(cut_out(buffers, start, stop)) == b"".join(map(bytes, buffers))[start:stop]


@pytest.mark.parametrize("size", SIZES)
def test_rounds_and_frames_of_any_size_arrive_as_they_were(tls_pair, both, size):
    zero, one = tls_pair()
    mine, theirs = noise(size, 0), noise(size, 1)
    for _ in range(3):
        a, b = both(lambda: zero.exchange([mine[:7], mine[7:]]), lambda: one.exchange([theirs]))
        assert np.array_equal(a, theirs)
        assert np.array_equal(b, mine)
        _, (kind, c) = both(lambda: zero.send(Kind.MATERIAL, mine), lambda: one.receive(Kind.MATERIAL, size))
        (_, d), _ = both(lambda: zero.receive(Kind.REPLY), lambda: one.send(Kind.REPLY, theirs[:9], theirs[9:]))
        assert kind is Kind.MATERIAL
        assert np.array_equal(c, mine)
        assert np.array_equal(d, theirs)


def test_every_lane_carries_its_part_and_small_frames_none(tls_pair, both):
    zero, one = tls_pair()
    counts = [lane.sent for lane in zero._lanes._transports]
    both(lambda: zero.exchange([bytes(SPREAD_BYTES - 1)]), lambda: one.exchange([bytes(SPREAD_BYTES - 1)]))
    assert [lane.sent for lane in zero._lanes._transports] == counts
    assert not pumps(), "threads begin with the first large frame"
    both(lambda: zero.exchange([bytes(LARGE)]), lambda: one.exchange([bytes(LARGE)]))
    for lane, before in zip(zero._lanes._transports, counts, strict=True):
        assert LARGE // 4 < lane.sent - before < LARGE // 4 + 1000
    assert len(pumps()) == 6


def test_frames_of_a_peer_that_is_ahead_wait_on_their_lanes(tls_pair, both):
    zero, one = tls_pair()
    for number in range(3):
        one.send(Kind.MATERIAL, noise(LARGE, number))
    for number in range(3):
        before = zero.meter.snapshot().total
        assert np.array_equal(zero.receive(Kind.MATERIAL, LARGE)[1], noise(LARGE, number))
        spent = zero.meter.snapshot().total - before
        assert spent.wire_bytes_received == wire_bytes(LARGE, 3)


# ---- making them


@pytest.mark.parametrize(("listens", "connects"), [(3, 1), (1, 3), (2, 2), (0, 3), (3, 0), (15, 15)])
def test_a_link_has_as_many_lanes_as_both_sides_offer(nodes, both, listens, connects):
    with pair(nodes, both, listens, connects) as (zero, one):
        assert zero.lanes == one.lanes == min(listens, connects)
        a, b = both(lambda: zero.exchange([noise(LARGE, 0)]), lambda: one.exchange([noise(LARGE, 1)]))
        assert np.array_equal(a, noise(LARGE, 1))
        assert np.array_equal(b, noise(LARGE, 0))


@contextmanager
def pair(nodes, both, listens, connects):
    zero, one = nodes["party 0"], nodes["party 1"]
    with ExitStack() as stack:
        with Listener(zero, {one.certificate: "party 1"}, lanes=listens) as listener:
            made = both(
                lambda: listener.accept(10.0),
                lambda: connect(one, {zero.certificate: "party 0"}, "127.0.0.1", listener.port, lanes=connects),
            )
        yield [stack.enter_context(link) for link in made]


@pytest.mark.parametrize("emulated", [0, 1])
def test_an_end_that_emulates_a_network_has_no_lanes(nodes, both, emulated):
    zero, one = nodes["party 0"], nodes["party 1"]
    slow = [Emulation(1.0) if side == emulated else None for side in (0, 1)]
    with Listener(zero, {one.certificate: "party 1"}, lanes=3, emulation=slow[0]) as listener:
        allowed = {zero.certificate: "party 0"}
        made = both(
            lambda: listener.accept(10.0),
            lambda: connect(one, allowed, "127.0.0.1", listener.port, lanes=3, emulation=slow[1]),
        )
    assert [link.lanes for link in made] == [0, 0]
    for link in made:
        link.close()


def test_lanes_that_cannot_be_made_leave_a_link_without(nodes, both, monkeypatch, caplog):
    made = []

    def refuse(*arguments):
        if len(made) == 2:
            raise ConnectionRefusedError(111, "Connection refused")
        made.append(make(*arguments))
        return made[-1]

    make = listeners._make_lane
    monkeypatch.setattr(listeners, "_make_lane", refuse)
    before = handles()
    with pair(nodes, both, 3, 3) as (zero, one):
        assert zero.lanes == one.lanes == 0
        a, _ = both(lambda: zero.exchange([noise(LARGE, 0)]), lambda: one.exchange([noise(LARGE, 1)]))
        assert np.array_equal(a, noise(LARGE, 1))
        assert "goes without lanes: lane 3 is out of reach (Connection refused)" in caplog.text
    assert handles() == before


def test_lanes_find_their_worker_behind_a_doorman(both):
    party0, party1 = Identity.create("party0"), Identity.create("party1")
    workers = {number: (party0.issue(f"w{number}.party0"), party1.issue(f"w{number}.party1")) for number in (1, 2)}
    with ExitStack() as stack:
        doorman = stack.enter_context(Doorman(socket.create_server(("127.0.0.1", 0))))
        behind = {
            number: stack.enter_context(
                Listener(mine, {party1.certificate: theirs.name}, sock=doorman.serve(mine.name), lanes=2)
            )
            for number, (mine, theirs) in workers.items()
        }

        def serve(number):
            with behind[number].accept(10.0) as link:
                return link.lanes, link.exchange([bytes(LARGE)])[:2].tobytes()

        def call(number):
            mine, theirs = workers[number]
            with connect(theirs, {party0.certificate: mine.name}, "127.0.0.1", doorman.port, lanes=3) as link:
                return link.lanes, link.exchange([b"w%d" % number, bytes(LARGE - 2)])[:2].tobytes()

        found = both(lambda: serve(1), lambda: serve(2), lambda: call(2), lambda: call(1))
    assert found == ((2, b"w1"), (2, b"w2"), (2, bytes(2)), (2, bytes(2)))


def test_the_number_of_lanes_follows_from_cores_or_from_the_environment(monkeypatch):
    monkeypatch.delenv("HDCOS_LANES", raising=False)
    for cores, offered in ((1, 0), (7, 0), (8, 1), (64, 1)):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, cores=cores: set(range(cores)))
        assert lanes_to_offer() == offered
    for said, offered in (("0", 0), ("2", 2), ("15", 15)):
        monkeypatch.setenv("HDCOS_LANES", said)
        assert lanes_to_offer() == offered
    for said in ("", "-1", "16", "many"):
        monkeypatch.setenv("HDCOS_LANES", said)
        with pytest.raises(InputError, match="HDCOS_LANES must be a whole number, 0 to 15"):
            lanes_to_offer()
    with pytest.raises(InputError, match="0 to 15 lanes, got 16"):
        protocols(16)


# ---- those that nobody asked for


@pytest.fixture
def entry(nodes):
    """A listener of party 0 for party 1 and the dealer, which offers two lanes; what it accepts is in `accepted`."""
    allowed = {nodes[name].certificate: name for name in ("party 1", "dealer")}
    with Listener(nodes["party 0"], allowed, lanes=2, handshake_s=1.0) as listener:
        yield listener


@contextmanager
def accepting(entry):
    """Accept for as long as the block runs."""
    accepted = []
    stop = threading.Event()

    def accept():
        while not stop.is_set():
            try:
                accepted.append(entry.accept(0.1))
            except (PeerLost, HandshakeError):
                continue

    thread = threading.Thread(target=accept)
    thread.start()
    try:
        yield accepted
    finally:
        stop.set()
        thread.join(10)
        for link in accepted:
            link.close()
        assert not thread.is_alive()


@contextmanager
def visit(entry, nodes, protocol, name="party 1"):
    """A connection that offers this protocol."""
    settings = Trust({nodes["party 0"].certificate: "party 0"}).settings(nodes[name], server=False)
    settings.set_alpn_protocols([protocol])
    with socket.create_connection(("127.0.0.1", entry.port)) as sock:
        transport = TlsTransport(sock, settings, server=False)
        listeners._negotiate(transport, sock, time.monotonic() + 5)
        yield transport


def test_a_lane_is_told_by_its_first_bytes_and_one_in_many_pieces_works_too(entry, nodes, monkeypatch):
    kinds = []
    for split in (False, True):
        if split:
            monkeypatch.setattr(listeners, "_is_lane", lambda sock: False)  # as if only part of its hello were there
        allowed = {nodes["party 0"].certificate: "party 0"}
        with (
            accepting(entry) as accepted,
            connect(nodes["party 1"], allowed, "127.0.0.1", entry.port, 5.0, lanes=2) as link,
        ):
            wait_until(lambda: accepted)
            kinds.append({type(lane) for lane in accepted[0]._lanes._transports})
            accepted[0].send(Kind.MATERIAL, noise(LARGE, 3))
            assert np.array_equal(link.receive(Kind.MATERIAL)[1], noise(LARGE, 3))
    assert kinds == [{TlsSocket}, {TlsTransport}]


def refused(entry, words):
    wait_until(lambda: any(words in text for text in entry.refused))


def test_a_lane_with_another_secret_is_refused_and_the_link_waits_for_its_own(entry, nodes):
    with accepting(entry) as accepted, visit(entry, nodes, "hdcos-lanes-2") as main:
        secret = hear(main, SECRET_BYTES, 5.0)
        with visit(entry, nodes, LANE) as wrong:
            say(wrong, bytes(SECRET_BYTES) + b"\1", 5.0)
            refused(entry, "party 1 brings a lane of no link that is being made here")
        with visit(entry, nodes, LANE) as first, visit(entry, nodes, LANE) as second:
            say(first, secret + b"\1", 5.0)
            say(second, secret[:20], 5.0)
            say(second, secret[20:] + b"\2", 5.0)
            say(main, b"\2", 5.0)
            assert hear(main, 1, 5.0) == b"\2"
        wait_until(lambda: accepted)
        assert accepted[0].lanes == 2


def test_a_lane_with_the_certificate_of_another_node_is_refused(entry, nodes):
    with accepting(entry) as accepted, visit(entry, nodes, "hdcos-lanes-2") as main:
        secret = hear(main, SECRET_BYTES, 5.0)
        with visit(entry, nodes, LANE, "dealer") as other:
            say(other, secret + b"\1", 5.0)
            refused(entry, "dealer brings a lane of no link")
        assert not accepted


@pytest.mark.parametrize(
    ("number", "words"),
    [(1, "a second lane 1 of the same link"), (3, "lane 3 of a link with lanes 1 to 2"), (0, "lane 0")],
)
def test_a_lane_whose_number_is_taken_or_none_is_refused(entry, nodes, number, words):
    with accepting(entry) as accepted, visit(entry, nodes, "hdcos-lanes-2") as main:
        secret = hear(main, SECRET_BYTES, 5.0)
        with visit(entry, nodes, LANE) as first, visit(entry, nodes, LANE) as second:
            say(first, secret + b"\1", 5.0)
            wait_until(lambda: any(v.bond and v.bond._found for v in list(entry._visitors.values())))
            say(second, secret + bytes([number]), 5.0)
            refused(entry, words)
        assert not accepted


def test_a_lane_of_a_link_that_was_made_or_given_up_is_refused(entry, nodes):
    with accepting(entry) as accepted:
        with visit(entry, nodes, "hdcos-lanes-2") as main:
            late = hear(main, SECRET_BYTES, 5.0)
            say(main, b"\0", 5.0)
            assert hear(main, 1, 5.0) == b"\0"
            with visit(entry, nodes, LANE) as lane:
                say(lane, late + b"\1", 5.0)
                refused(entry, "party 1 brings a lane of no link")
        wait_until(lambda: accepted)
        assert accepted[0].lanes == 0
        with visit(entry, nodes, "hdcos-lanes-2") as main:
            gone = hear(main, SECRET_BYTES, 5.0)
            refused(entry, "did not make its lanes in time")
        entry.refused.clear()
        with visit(entry, nodes, LANE) as lane:
            say(lane, gone + b"\1", 5.0)
            refused(entry, "party 1 brings a lane of no link")


def test_a_lane_that_says_nothing_is_refused_in_time(entry, nodes):
    with accepting(entry) as accepted, visit(entry, nodes, LANE) as lane:
        say(lane, bytes(5), 5.0)
        refused(entry, "did not say in time what it is a lane of")
        assert not accepted


@pytest.mark.parametrize(
    ("words", "reason"), [(b"\1", "made 1 lanes, not 2"), (b"\2\2", "speaks before it has its lanes")]
)
def test_a_main_connection_that_talks_nonsense_is_refused(entry, nodes, words, reason):
    with accepting(entry) as accepted, visit(entry, nodes, "hdcos-lanes-2") as main:
        hear(main, SECRET_BYTES, 5.0)
        for word in words:
            say(main, bytes([word]), 5.0)
        refused(entry, reason)
        assert not accepted


def test_a_stranger_gets_no_further_with_a_lane_than_with_any_connection(entry, nodes):
    stranger = {**nodes, "party 1": Identity.create("party 1")}
    with accepting(entry) as accepted, visit(entry, stranger, LANE) as lane:
        with pytest.raises(HandshakeError, match="refused this node's certificate"):
            hear(lane, 1, 5.0)
        assert not accepted


def test_a_link_whose_lanes_are_missing_holds_up_nobody(entry, nodes):
    before = handles()
    with accepting(entry) as accepted, visit(entry, nodes, "hdcos-lanes-2") as main:
        secret = hear(main, SECRET_BYTES, 5.0)
        with visit(entry, nodes, LANE) as lane:
            say(lane, secret + b"\1", 5.0)
            allowed = {nodes["party 0"].certificate: "party 0"}
            with connect(nodes["dealer"], allowed, "127.0.0.1", entry.port, 5.0, lanes=2) as link:
                assert link.lanes == 2
            wait_until(lambda: [each.peer for each in accepted] == ["dealer"])
        refused(entry, "did not make its lanes in time")
    assert handles() == before


def test_a_server_that_changes_its_mind_about_the_number_is_refused(nodes, both, monkeypatch):
    def say_one(transport, words, timeout_s):
        if isinstance(transport, TlsTransport) and transport._tls.server_side:
            words = b"\1" if len(words) == 1 else words
        say(transport, words, timeout_s)

    monkeypatch.setattr(listeners, "say", say_one)
    with pytest.raises(HandshakeError, match="another number of lanes"), pair(nodes, lambda *f: swap(both(*f)), 2, 2):
        pass


def swap(results):
    """What the side that connects got, raised."""
    for result in results:
        if isinstance(result, Link):
            result.close()
    raise results[1]


# ---- failures


@pytest.mark.parametrize("abruptly", [False, True])
@pytest.mark.parametrize("how", ["exchange", "one way"])
@pytest.mark.parametrize("victim", [0, 2])
def test_a_lane_that_is_cut_in_the_middle_of_a_frame_ends_the_link_at_both_ends(tls_pair, both, how, victim, abruptly):
    zero, one = tls_pair(timeout_s=50.0)
    size = 64 << 20  # more than sockets hold
    lane = one._lanes._transports[victim]
    read, seen = lane.read, []

    def read_a_little(view, timeout_s, announced=False):
        seen.append(read(view[: 1 << 16], timeout_s, announced))
        if sum(seen) > 1 << 20:
            if abruptly:  # closing sends a reset, since there are unread bytes
                lane._sock.close()
            else:
                lane.interrupt()
        return seen[-1]

    lane.read = read_a_little
    if how == "exchange":
        work = [lambda: zero.exchange([bytes(size)]), lambda: one.exchange([bytes(size)])]
    else:
        work = [lambda: zero.send(Kind.MATERIAL, bytes(size)), lambda: one.receive(Kind.MATERIAL)]
    started = time.monotonic()
    a, b = both(*work)
    assert sum(seen) < size // 4
    assert isinstance(b, PeerLost), b
    assert isinstance(a, PeerLost), a
    assert "party 1 " in str(a)
    assert time.monotonic() - started < 30.0, "it is not a timeout that ends it"
    assert zero.closed
    assert one.closed
    assert not pumps()


def test_a_part_of_another_frame_is_a_frame_error_at_both_ends(tls_pair, both):
    zero, one = tls_pair()
    lane = one._lanes._transports[1]
    begin, changed = lane.queue, []

    def miscount(pieces):
        whole = bytearray(b"".join(pieces))
        changed.append(bytes(whole[:8]))
        whole[:8] = (7).to_bytes(8, "little")
        begin(iter((bytes(whole),)))

    lane.queue = miscount
    a, _ = both(lambda: zero.exchange([bytes(LARGE)]), lambda: one.exchange([bytes(LARGE)]))
    assert changed == [bytes(8)]
    assert type(a) is FrameError
    assert str(a) == "party 1: a lane carries part of frame 7, expected 0."
    with pytest.raises((FrameError, PeerLost), match="a lane carries part of frame 7"):
        one.receive(Kind.REPLY) if not one.closed else one.exchange([b""])


def test_garbage_on_a_lane_is_a_frame_error(tls_pair, both):
    zero, one = tls_pair()
    socket.socket.send(one._lanes._transports[0]._sock, os.urandom(100))  # past TLS
    a, _ = both(lambda: zero.exchange([bytes(LARGE)]), lambda: one.exchange([bytes(LARGE)]))
    assert type(a) is FrameError
    assert "TLS failed" in str(a)


@pytest.mark.parametrize("sent", [False, True])
def test_an_abort_explains_why_lanes_end(tls_pair, both, sent):
    zero, one = tls_pair()

    def give_up():
        if sent:  # the main connection's part of the round arrives, those of the lanes never will
            own = cut(LARGE, 4)[0][1]
            one._transport.queue(iter((encode(Kind.ROUND, 0, 0, LARGE) + bytes(own),)))
            one._frames_sent = 1
            time.sleep(0.3)
        one.abort(MaterialExhausted("128 rows needed, 96 available."))

    result, _ = both(lambda: zero.exchange([bytes(LARGE)]), give_up)
    assert type(result) is MaterialExhausted
    assert not pumps()


@pytest.mark.parametrize("how", ["exchange", "receive", "send"])
def test_lanes_that_are_silent_are_a_lost_peer_at_the_timeout(tls_pair, how):
    zero, one = tls_pair(timeout_s=0.3)
    size = 64 << 20 if how == "send" else LARGE
    if how != "send":
        kind = Kind.ROUND if how == "exchange" else Kind.MATERIAL
        one._transport.queue(iter((encode(kind, 0, 0, size) + bytes(cut(size, 4)[0][1]),)))
    started = time.monotonic()
    with pytest.raises(PeerLost, match=r"no answer from party 1 within 0\.3 s"):
        if how == "exchange":
            zero.exchange([bytes(size)])
        elif how == "receive":
            zero.receive(Kind.MATERIAL, size)
        else:
            zero.send(Kind.MATERIAL, bytes(size))
    assert 0.3 <= time.monotonic() - started < 3.0
    assert not pumps()


@pytest.mark.parametrize("arrived", [False, True])
def test_another_thread_can_end_the_wait(tls_pair, both, arrived):
    zero, one = tls_pair(timeout_s=None)
    if arrived:
        one._transport.queue(iter((encode(Kind.ROUND, 0, 0, LARGE) + bytes(cut(LARGE, 4)[0][1]),)))

    def cancel():
        time.sleep(0.3)
        zero.cancel()

    result, _ = both(lambda: zero.exchange([bytes(LARGE)]), cancel)
    assert isinstance(result, PeerLost)
    assert zero.closed
    assert not pumps()


def test_an_interrupted_round_leaves_no_thread_with_its_payload(tls_pair, both, monkeypatch):
    zero, _ = tls_pair()

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(zero._transport, "flush", interrupt)
    with pytest.raises(KeyboardInterrupt):
        zero.send(Kind.MATERIAL, bytes(64 << 20))
    assert zero.closed
    assert not pumps()


def test_a_link_that_is_closed_leaves_no_thread_and_no_handle(nodes, both):
    before = handles()
    for fails in (False, True):
        with pair(nodes, both, 3, 3) as (zero, one):
            both(lambda: zero.exchange([bytes(LARGE)]), lambda: one.exchange([bytes(LARGE)]))
            assert len(pumps()) == 6
            if fails:
                one.cancel()
        assert not pumps()
        assert handles() == before


def test_threads_of_a_link_that_was_forgotten_end():
    here, there = zip(*(memory_transports() for _ in range(4)), strict=True)
    link = Link(here[0], "party 1", lanes=here[1:])
    other = Link(there[0], "party 0", lanes=there[1:])
    link.send(Kind.MATERIAL, bytes(LARGE))
    assert len(pumps()) == 3
    assert other.receive(Kind.MATERIAL)[1].size == LARGE
    assert len(pumps()) == 6
    del link, other
    gc.collect()
    wait_until(lambda: not pumps())


def test_what_a_link_may_carry_is_counted_on_the_connection_that_carries_most(tls_pair, both):
    zero, one = tls_pair()
    both(lambda: zero.exchange([bytes(LARGE)]), lambda: one.exchange([bytes(LARGE)]))
    assert zero._wire_sent == zero._transport.sent
    assert all(lane.sent < zero._transport.sent for lane in zero._lanes._transports)


def test_secrets_differ_and_are_compared_whole():
    first, second = Bond(2), Bond(2)
    assert first.secret != second.secret
    assert first.knows(bytes(first.secret))
    assert not first.knows(first.secret[:-1] + bytes([first.secret[-1] ^ 1]))
    assert not first.knows(first.secret[:-1])
