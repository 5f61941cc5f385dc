"""Emulated lines are as slow as they say: never faster, and slower only by what a busy machine adds."""

from __future__ import annotations

import time

import pytest

from hdcos.errors import InputError
from hdcos.link import Emulation, Kind
from hdcos.link.tls import wire_bytes

SLACK = 1.5
NOISE_S = 0.005


def seconds_of(action):
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


@pytest.mark.parametrize(
    ("rtt_ms", "mbps", "size"), [(40, None, 100), (0, 100, 500_000), (20, 100, 250_000), (20, 400, 2_000_000)]
)
def test_an_exchange_takes_half_a_round_trip_and_its_size_over_the_rate(tls_pair, both, rtt_ms, mbps, size):
    emulation = Emulation(rtt_ms, mbps)
    zero, one = tls_pair(emulation=emulation)
    expected = emulation.seconds(wire_bytes(size))
    took = []
    for _ in range(3):
        both(
            lambda: took.append(seconds_of(lambda: zero.exchange([bytes(size)]))),
            lambda: one.exchange([bytes(size)]),
        )
    assert min(took[1:]) >= 0.98 * expected - 0.001
    assert min(took) <= SLACK * expected + NOISE_S


def test_a_request_and_its_reply_take_a_round_trip(tls_pair, both):
    zero, one = tls_pair(emulation=Emulation(rtt_ms=40))

    def ask():
        zero.send(Kind.REQUEST, b"?")
        zero.receive(Kind.REPLY)

    def answer():
        one.receive(Kind.REQUEST)
        one.send(Kind.REPLY, b"!")

    took = []
    for _ in range(2):
        both(lambda: took.append(seconds_of(ask)), answer)
    assert min(took) >= 0.0399
    assert min(took) <= SLACK * 0.04 + NOISE_S


def test_a_stream_of_frames_pays_the_delay_once(tls_pair, both):
    zero, one = tls_pair(emulation=Emulation(rtt_ms=100))

    def stream():
        for _ in range(10):
            zero.send(Kind.MATERIAL, bytes(1000))

    def drain():
        for _ in range(10):
            one.receive(Kind.MATERIAL)

    took, _ = both(lambda: seconds_of(stream), drain)
    assert 0.0499 <= took <= SLACK * 0.05 + NOISE_S


def test_without_emulation_nothing_is_held_back(tls_pair, both):
    zero, one = tls_pair()
    took = []
    for _ in range(20):
        both(
            lambda: took.append(seconds_of(lambda: zero.exchange([bytes(2048)]))),
            lambda: one.exchange([bytes(2048)]),
        )
    assert min(took) < 0.002


@pytest.mark.parametrize(("rtt_ms", "mbps"), [(-1, None), (float("nan"), None), (0, 0), (0, -5)])
def test_impossible_lines_are_refused(rtt_ms, mbps):
    with pytest.raises(InputError, match="cannot emulate"):
        Emulation(rtt_ms, mbps)
