"""Three real processes: right answers, metered cost, and no process left behind whatever happens."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import hdcos
from hdcos.api.commands import Infer, ReadCost, write_command
from hdcos.errors import HandshakeError, HdcosError, PeerLost
from hdcos.link.message import request
from hdcos.protocol.catalogue import ACTIVATIONS, Call, find
from hdcos.protocol.cosine import error_bound, trig_scale
from hdcos.ring import decode, rotate, trig_words

INPUTS = {
    "multiply": [(6, 5), (6, 5)],
    "matmul": [(6, 5), (5, 3)],
    "conv2d": [(2, 1, 6, 6), (3, 1, 3, 3)],
}


@pytest.fixture(scope="module")
def cluster():
    with hdcos.local(timeout_s=20) as running:
        yield running


def inputs_of(name: str, seed: int = 0) -> list[np.ndarray]:
    generator = np.random.default_rng(seed)
    low, high = find(name).interval
    return [generator.uniform(low, high, shape) for shape in INPUTS.get(name, [(16, 33)])]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def gone_within(pids: list[int], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while any(alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not any(alive(pid) for pid in pids)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_the_wire_bytes_metered_are_those_the_operating_system_counted(cluster, name: str) -> None:
    cluster.evaluate(name, *inputs_of(name))
    for meta, _ in cluster.transport.ask(ReadCost()):
        socket = meta["socket"]
        assert socket["metered"] == socket["counted"]


def test_the_activations_take_the_rounds_they_should(cluster) -> None:
    rounds = {}
    for name in ACTIVATIONS:
        cluster.reset_cost()
        cluster.evaluate(name, *inputs_of(name))
        rounds[name] = cluster.cost.online.rounds
    assert rounds == {name: {"none": 0, "cos_paper": 2}.get(name, 1) for name in ACTIVATIONS}


@pytest.mark.parametrize(("bound", "phase_bits", "limit"), [(20, 16, 2.5e-4), (1000, 16, 2.5e-4), (20, 24, 4e-6)])
def test_cosine_is_as_precise_as_promised(cluster, bound: float, phase_bits: int, limit: float) -> None:
    x = np.random.default_rng(1).uniform(-bound, bound, (64, 1024))
    cluster.reset_cost()
    result = cluster.evaluate("cos", x, phase_bits=phase_bits)
    error = np.abs(result - np.cos(x)).max()
    assert error <= limit
    assert error <= error_bound(phase_bits) + 2.0 ** -Call.of("cos", phase_bits=phase_bits).output_scale
    assert cluster.cost.online.bytes_sent == (x.size * phase_bits // 8,) * 2


def test_parties_that_mean_different_executions_stop_at_the_first_frame_and_recover(cluster) -> None:
    x = np.zeros((1, 4))
    with cluster.function("cos", x.shape) as cos:
        cos.prepare(4)
        shares = [{"input0": np.zeros((1, 4), np.uint64)}] * 2
        runs = [Infer(cos._opened.name, "shares", ["x"], start, 4) for start in (0, 1)]
        with ThreadPoolExecutor(2) as pool:
            for future in [
                pool.submit(request, link, {"commands": [write_command(run)]}, part)
                for link, run, part in zip(cluster.transport.pairs[0].links, runs, shares, strict=True)
            ]:
                with pytest.raises(HandshakeError, match="another program"):
                    future.result()
        assert [facts["used"] for facts in cos._opened.count()] == [1, 2]
        cos._opened.next = 2
        assert np.abs(cos(x) - 1).max() < 2e-4


def test_the_shares_a_client_receives_are_fresh_and_uniform(cluster) -> None:
    x = np.full((64, 64), 0.5)
    shares: list[list[np.ndarray]] = []
    original = cluster.transport.ask

    def watching(*asked, **arrays):
        answers = original(*asked, **arrays)
        if isinstance(asked[-1], Infer):
            shares.append([parts["words"] for _, parts in answers])
        return answers

    cluster.transport.ask = watching
    try:
        for _ in range(2):
            cluster.evaluate("cos", x)
    finally:
        del cluster.transport.ask
    for first, second in zip(*shares, strict=True):
        assert (first == second).mean() < 0.01
        for share in (first, second, first - second):
            counts = np.bincount((share.ravel() & share.dtype.type(31)).astype(int), minlength=32)
            assert stats.chisquare(counts).pvalue > 1e-9


def test_a_client_that_is_a_party_learns_no_sign_from_the_low_bits_of_a_cosine(cluster) -> None:
    """cos is even, so its value must not tell x from -x, even to someone who knows the opening d.

    The result's rounding noise is a function of (d, r). It must lie far below the scale at which results leave:
    candidates r = x - d and r = -x - d then explain the result equally well.
    """
    from hdcos.protocol.catalogue import Call

    call = Call.of("cos")
    scale = trig_scale(16)
    generator = np.random.default_rng(5)
    steps = generator.integers(0, 2**16, 20_000).astype(np.uint16)
    d = generator.integers(0, 2**16, 20_000).astype(np.uint16)
    results = []
    for x in (steps, np.uint16(0) - steps):
        cos_r, sin_r = (part.astype(np.uint64) for part in trig_words(x - d, 16, scale))
        words, _ = rotate(d, cos_r, sin_r, 16, scale, sine=False)
        results.append(decode(words, 2 * scale))
    unit = 2.0**-call.output_scale
    different = np.rint(results[0] / unit) != np.rint(results[1] / unit)
    assert different.mean() < 0.02


def test_an_emulated_network_slows_the_online_phase_by_its_delay() -> None:
    with hdcos.local(rtt_ms=60, timeout_s=20) as slow:
        x = np.linspace(-1, 1, 8).reshape(1, 8)
        assert np.abs(slow.evaluate("cos_paper", x) - np.cos(x)).max() < 1e-4
        slow.reset_cost()
        slow.evaluate("cos_paper", x)
        assert slow.cost.online.rounds == 2
        assert slow.cost.online.seconds >= 2 * 0.030


def test_nothing_is_left_after_the_block() -> None:
    with hdcos.local() as running:
        pids = list(running.pids.values())
        assert all(alive(pid) for pid in pids)
    assert not any(alive(pid) for pid in pids)


def test_nothing_is_left_after_an_exception() -> None:
    with pytest.raises(ZeroDivisionError), hdcos.local() as running:
        pids = list(running.pids.values())
        raise ZeroDivisionError
    assert not any(alive(pid) for pid in pids)


SCRIPT = """
    import sys, time, hdcos
    with hdcos.local() as cluster:
        print(*cluster.pids.values(), flush=True)
        time.sleep(60)
"""


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_after_the_caller_is_interrupted_or_killed(sign: signal.Signals) -> None:
    caller = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(SCRIPT)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    with caller:
        assert caller.stdout is not None
        pids = [int(pid) for pid in caller.stdout.readline().split()]
        assert len(pids) == 3
        os.kill(caller.pid, sign)
        assert gone_within([caller.pid, *pids], 10)


@pytest.mark.parametrize("victim", ["party0", "party1", "dealer"])
def test_a_node_that_is_killed_is_named_within_the_timeout(victim: str) -> None:
    started = time.monotonic()
    with pytest.raises(PeerLost) as caught, hdcos.local(timeout_s=3) as running:
        running.evaluate("cos", [[1.0]])
        os.kill(running.pids[victim], signal.SIGKILL)
        running.evaluate("cos", [[1.0]])
    assert time.monotonic() - started < 15
    assert victim in str(caught.value)


def test_a_party_killed_while_the_other_waits_in_a_round_is_named_within_the_timeout() -> None:
    with hdcos.local(timeout_s=3) as running:
        cos = running.function("cos", (1, 4))
        cos.prepare(2)
        cos(np.ones((1, 4)))
        os.kill(running.pids["party1"], signal.SIGSTOP)
        started = time.monotonic()
        import threading

        threading.Timer(0.5, os.kill, (running.pids["party1"], signal.SIGKILL)).start()
        with pytest.raises(PeerLost):
            cos(np.ones((1, 4)))
        assert time.monotonic() - started < 12
        running.transport.shutdown = lambda: None  # half of the cluster is dead already


@pytest.mark.parametrize("silent", ["party0", "party1"])
def test_a_party_that_stays_silent_is_named_within_the_timeout(silent: str) -> None:
    with hdcos.local(timeout_s=2) as running:
        cos = running.function("cos", (1, 4))
        cos.prepare(2)
        cos(np.ones((1, 4)))
        os.kill(running.pids[silent], signal.SIGSTOP)
        started = time.monotonic()
        with pytest.raises(PeerLost, match=silent):
            cos(np.ones((1, 4)))
        assert time.monotonic() - started < 10
        os.kill(running.pids[silent], signal.SIGKILL)
        running.transport.shutdown = lambda: None


def test_errors_never_quote_shares(cluster) -> None:
    marker = 123.456789
    with pytest.raises(HdcosError) as caught:
        cluster.evaluate("sigmoid", [[marker]])
    assert "Share(" not in str(caught.value)
