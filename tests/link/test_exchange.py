"""Rounds over TLS: right bytes, both ways at once, and a meter that agrees with the kernel."""

from __future__ import annotations

import numpy as np
import pytest

from hdcos.errors import InputError, PeerLost
from hdcos.link import Kind
from hdcos.link.tls import wire_bytes
from hdcos.testing.pair import memory_pair

pytestmark = pytest.mark.usefixtures("either_pump")
SIZES = [0, 1, 100, 16383 - 32, 16384 - 32, 16385 - 32, 16383, 16384, 16385, 1 << 20]


def noise(size, seed):
    return np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8)


@pytest.mark.parametrize("size", [*SIZES, 64 << 20])
def test_both_sides_receive_what_the_other_sent_at_the_same_time(tls_pair, both, size):
    zero, one = tls_pair()
    mine, theirs = noise(size, 0), noise(size, 1)
    a, b = both(lambda: zero.exchange([mine]), lambda: one.exchange([theirs]))
    assert np.array_equal(a, theirs)
    assert np.array_equal(b, mine)
    assert a.flags.writeable
    assert a.dtype == np.uint8


def test_buffers_arrive_joined_whatever_their_number_size_and_type(tls_pair, both):
    zero, one = tls_pair()
    words = np.arange(10000, dtype=np.uint64)
    buffers = [b"", b"abc", words, bytearray(5), np.empty(0, np.uint64), memoryview(words)[17:], b"x" * 20000]
    flat = b"".join(buffers)
    a, b = both(lambda: zero.exchange(buffers), lambda: one.exchange([flat]))
    assert a.tobytes() == flat == b.tobytes()
    assert zero.meter.snapshot().steps["control"]["round"].wire_bytes_sent == wire_bytes(len(flat))


@pytest.mark.parametrize("size", SIZES)
def test_the_metered_wire_bytes_are_those_the_kernel_counted(tls_pair, both, size):
    zero, one = tls_pair()
    for _ in range(3):
        both(lambda: zero.exchange([bytes(size)]), lambda: one.exchange([bytes(size)]))
    both(lambda: zero.send(Kind.MATERIAL, bytes(size)), lambda: one.receive(Kind.MATERIAL))
    both(lambda: zero.receive(Kind.REPLY, size), lambda: one.send(Kind.REPLY, bytes(size)))
    for link in (zero, one):
        total = link.meter.snapshot().total
        assert (total.wire_bytes_sent, total.wire_bytes_received) == link.os_counters()
        assert total.bytes_sent == total.bytes_received == 4 * size


@pytest.mark.parametrize("size", SIZES)
def test_the_wire_bytes_of_a_round_are_known_before_it_runs(tls_pair, both, size):
    zero, one = tls_pair()
    before = zero.meter.snapshot()
    with zero.meter.section("online"):
        both(lambda: zero.exchange([bytes(size)]), lambda: one.exchange([bytes(size)]))
    online = (zero.meter.snapshot() - before).sections["online"]
    assert (online.rounds, online.bytes_sent, online.bytes_received) == (1, size, size)
    assert online.wire_bytes_sent == online.wire_bytes_received == wire_bytes(size)


def test_bytes_of_a_peer_that_is_ahead_are_charged_to_the_round_they_belong_to(tls_pair, both):
    zero, one = tls_pair()
    for _ in range(5):
        one.send(Kind.MATERIAL, bytes(1000))
    for number in range(5):
        before = zero.meter.snapshot().total
        zero.receive(Kind.MATERIAL, 1000)
        spent = zero.meter.snapshot().total - before
        assert spent.wire_bytes_received == wire_bytes(1000), number


def test_counters_still_agree_after_both_sides_have_closed(tls_pair, both):
    zero, one = tls_pair()
    both(lambda: zero.exchange([bytes(500)]), lambda: one.exchange([bytes(500)]))
    one.close()
    with pytest.raises(PeerLost, match="said goodbye"):
        zero.receive(Kind.REQUEST)
    total = zero.meter.snapshot().total
    assert (total.wire_bytes_sent, total.wire_bytes_received) == zero.os_counters()


def test_steps_that_share_a_round_count_it_once_each_and_the_phase_counts_it_once(tls_pair, both):
    zero, one = tls_pair()
    steps = [("layer 1", 100), ("layer 2", 50), ("layer 1", 10)]
    with zero.meter.section("online"):
        both(lambda: zero.exchange([bytes(160)], steps), lambda: one.exchange([bytes(160)]))
    after = zero.meter.snapshot()
    first, second = after.steps["online"]["layer 1"], after.steps["online"]["layer 2"]
    assert (first.rounds, second.rounds, after.sections["online"].rounds) == (1, 1, 1)
    assert (first.bytes_sent, second.bytes_sent) == (110, 50)
    assert second.wire_bytes_sent == 50
    assert first.wire_bytes_sent == wire_bytes(160) - 50
    assert after.sections["online"].seconds > 0


def test_two_large_one_way_sends_that_cross_do_not_block_each_other(tls_pair, both):
    zero, one = tls_pair()
    size = 6 << 20

    def swap(link):
        link.send(Kind.MATERIAL, bytes(size))
        return link.receive(Kind.MATERIAL, size)[1].size

    assert both(lambda: swap(zero), lambda: swap(one)) == (size, size)


def test_what_cannot_be_sent_is_refused_before_anything_is_sent(tls_pair, both):
    zero, one = tls_pair()
    with pytest.raises(InputError, match="not contiguous"):
        zero.exchange([np.zeros((4, 4))[:, 1]])
    with pytest.raises(InputError, match="90 of 100"):
        zero.exchange([bytes(100)], [("a", 90)])
    with pytest.raises(InputError, match="unknown section"), zero.meter.section("lunch"):
        pass
    a, _ = both(lambda: zero.exchange([b"works"]), lambda: one.exchange([b"still"]))
    assert a.tobytes() == b"still"


def test_a_memory_pair_behaves_like_a_link(both):
    zero, one = memory_pair()
    a, b = both(lambda: zero.exchange([b"0" * 70000]), lambda: one.exchange([b"1" * 70000]))
    assert (a.tobytes(), b.tobytes()) == (b"1" * 70000, b"0" * 70000)
    assert zero.meter.snapshot().total.wire_bytes_sent == 70032
    assert zero.os_counters() is None
    with one:
        pass
    with pytest.raises(PeerLost, match="party 1 said goodbye, waiting for round 1"):
        zero.exchange([b""])
    with pytest.raises(PeerLost, match="link to party 1 is closed: party 1 said goodbye"):
        zero.exchange([b""])
