"""What lanes gain and cost: rounds between two processes over TLS on loopback, with one connection and with several.

`python -m benchmarks.lanes [LANES...]` prints a line for each number, of milliseconds a megabyte that both send each
other, and writes nothing. The gain needs cores: each connection keeps one busy at either end.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from statistics import median
from typing import Any

import numpy as np

from benchmarks.record import Line, at_least, at_most
from hdcos.link import Identity, Kind, Link, Listener, connect
from hdcos.link.binding import LANES
from hdcos.party.node import tune_process

MEGABYTES = (1, 8, 64)
SMALL_BYTES = 100
TURNS = 5

Times = dict[tuple[str, int, int], float]
"""Seconds by what was done ("exchange", "one way"), lanes and bytes."""


def measure(numbers: Sequence[int] = (0, LANES)) -> Iterator[Line]:
    """The lines of a proof: what a megabyte takes, how much faster it is with lanes, and what small rounds cost."""
    found = run(numbers)
    few, many = numbers[0], numbers[-1]
    for way in ("exchange", "one way"):
        for size in MEGABYTES:
            for lanes in numbers:
                took = found[way, lanes, size << 20] * 1e3 / (size * 1.048576)
                yield at_most(f"{way} of {size} MB over {1 + lanes} connections: milliseconds a megabyte", took, 2.0)
            gain = found[way, few, size << 20] / found[way, many, size << 20]
            least = 1.0 if size == 1 else 2.0
            yield at_least(
                f"{way} of {size} MB: times as fast over {1 + many} connections as over {1 + few}", gain, least
            )
    ratio = found["exchange", many, SMALL_BYTES] / found["exchange", few, SMALL_BYTES]
    took = found["exchange", many, SMALL_BYTES] * 1e6
    yield at_most(f"a round of {SMALL_BYTES} bytes, {took:.1f} us: over that of a link without lanes", ratio, 1.03)


def run(numbers: Sequence[int]) -> Times:
    """Both processes, and what the first one measured: the best of medians of turns that alternate."""
    context = multiprocessing.get_context("spawn")
    identities = [Identity.create(f"party{rank}") for rank in (0, 1)]
    ports, results = context.Queue(), context.Queue()
    other = context.Process(target=_work, args=(1, identities, ports, results, numbers))
    other.start()
    try:
        _work(0, identities, ports, results, numbers)
        found: Times = results.get(timeout=60)
        other.join(60)
    finally:
        other.kill()
    return found


def _work(rank: int, identities: list[Identity], ports: Any, results: Any, numbers: Sequence[int]) -> None:
    tune_process()
    me, allowed = identities[rank], {identities[1 - rank].certificate: f"party{1 - rank}"}
    with ExitStack() as stack:
        links: dict[int, Link] = {}
        for lanes in numbers:
            if rank == 0:
                with Listener(me, allowed, lanes=lanes) as listener:
                    ports.put(listener.port)
                    links[lanes] = stack.enter_context(listener.accept(60.0))
            else:
                made = connect(me, allowed, "127.0.0.1", ports.get(timeout=60), lanes=lanes)
                links[lanes] = stack.enter_context(made)
            assert links[lanes].lanes == lanes
        found: dict[tuple[str, int, int], list[float]] = {}
        for _ in range(TURNS):
            for size in (SMALL_BYTES, *(megabytes << 20 for megabytes in MEGABYTES)):
                payload = np.random.default_rng(rank).integers(0, 256, size, dtype=np.uint8)
                repeats = 2000 if size == SMALL_BYTES else max(3, (96 << 20) // size)
                for lanes, link in links.items():
                    took = [_exchange(link, payload) for _ in range(repeats)]
                    found.setdefault(("exchange", lanes, size), []).append(median(took[1:]))
                    if size > SMALL_BYTES:
                        took = [_one_way(link, payload, rank) for _ in range(min(repeats, 20))]
                        found.setdefault(("one way", lanes, size), []).append(median(took[1:]))
        if rank == 0:
            results.put({what: min(times) for what, times in found.items()})


def _exchange(link: Link, payload: Any) -> float:
    started = time.perf_counter()
    link.exchange([payload])
    return time.perf_counter() - started


def _one_way(link: Link, payload: Any, rank: int) -> float:
    """From the first to the second, until that one says that it has all."""
    started = time.perf_counter()
    if rank == 0:
        link.send(Kind.MATERIAL, payload)
        link.receive(Kind.REPLY, 0)
    else:
        link.receive(Kind.MATERIAL, payload.nbytes)
        link.send(Kind.REPLY)
    return time.perf_counter() - started


if __name__ == "__main__":
    for line in measure([int(number) for number in sys.argv[1:]] or (0, LANES)):
        print(json.dumps(asdict(line)), flush=True)
