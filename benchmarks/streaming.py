"""Data sets larger than memory: rows that are generated, uploaded over HTTPS and trained on, ten times as many for no
more memory and at the same speed.

Parties have two workers. Memory is that of the process that had most, of all workers of both parties. Speeds of the two
sizes are compared in both directions: if the smaller one is much slower, something else slowed it down, and the larger
one might be slow unseen. So what comes first in a cluster, other rows and an epoch on them, is not counted, and both do
the same: one upload and one epoch of each kind in a new cluster. The smaller size is measured in several clusters,
before the larger one and after it, and the median counts. The tenths of an upload tell whether its work grows.

An upload fills memory with pages of files, and memory that a virtual machine takes from its host takes five times as
long as memory that it has: 2 s a gigabyte were seen, which cost a fifth of the speed from the gigabyte on where that
began. So a file of nothing fills what is free before each upload, and the upload takes its pages.

HDCOS_STREAMED names other numbers of rows than 10^6 and 10^7, two of them: HDCOS_STREAMED=100000,1000000.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.nodes import Nodes, cluster_of_nodes, wait_until_ready
from benchmarks.record import Line, at_least, at_most
from hdcos import nn
from hdcos.cluster.cluster import Cluster
from hdcos.errors import HdcosError, PeerLost
from hdcos.ring import Array

SIZES = tuple(int(text) for text in os.environ.get("HDCOS_STREAMED", "1000000,10000000").split(","))
FEATURES, PIECE, BATCH = 28, 50_000, 2048
MOST_MB, MOST_GROWTH, LEAST_SPEED, MOST_SPEED = 1000, 1.1, 0.9, 1.11
WORKERS, STRONG_S = 2, 120.0
"""Of a party, and how long they may take until all work."""
WARM_UP, TIMES = 100_000, 3
"""Rows that are uploaded and trained on first, and in how many clusters the smaller size is measured before the larger
one, and after it."""
MOST_FILLED, READ_BYTES = 32 << 30, 1 << 22
"""Bytes: of larger machines not all memory is filled, which would take minutes."""


@dataclass
class Streamed:
    """What some rows took: the highest memory of a worker in each phase, and rows a second."""

    peaks_mb: dict[str, float] = field(default_factory=dict)
    speeds: dict[str, float] = field(default_factory=dict)
    tenths: list[float] = field(default_factory=list)
    """Rows a second of each tenth of an upload, as they are sent."""
    steps: int = 0
    """That the further worker took part in, the least of a party's."""


def streaming(seed: int) -> Iterator[Line]:
    """As many rows as the first size, then as the second, each in a cluster of its own."""
    before = [_streamed(SIZES[0], seed) for _ in range(TIMES)]
    many = _streamed(SIZES[1], seed)
    few = _median([*before, *(_streamed(SIZES[0], seed) for _ in range(TIMES))])
    sizes = f"{SIZES[1]:.0e} rows of {FEATURES} features"
    for phase, what in (
        ("upload", "uploaded"),
        ("blocks", "trained on, shuffled by blocks"),
        ("rows", "trained on, shuffled as one"),
    ):
        yield at_most(f"{sizes} {what}: most memory of a worker, MB", round(many.peaks_mb[phase]), MOST_MB)
        growth = many.peaks_mb[phase] / few.peaks_mb[phase]
        yield at_most(f"{sizes} {what}: memory over that of {SIZES[0]:.0e} rows", round(growth, 3), MOST_GROWTH)
        speed = many.speeds[phase] / few.speeds[phase]
        shown = f"{few.speeds[phase]:.0f} and {many.speeds[phase]:.0f} rows a second"
        name, flat = f"{sizes} {what}: speed over that of {SIZES[0]:.0e} ({shown})", LEAST_SPEED <= speed <= MOST_SPEED
        yield Line(name, round(speed, 3), f"{LEAST_SPEED} to {MOST_SPEED}", flat)
        if phase == "upload":
            slowest = min(many.tenths) / median(many.tenths)
            yield at_least(f"{sizes} {what}: speed of the slowest tenth over the median one", slowest, LEAST_SPEED)
    yield at_least(f"{sizes}: steps that the second worker of a party took part in", many.steps, SIZES[1] // BATCH)


def _pieces(rows: int, seed: int) -> Iterator[tuple[Array, Array]]:
    """Rows of the shape of HIGGS, made as they are wanted."""
    generator = np.random.default_rng(seed)
    for start in range(0, rows, PIECE):
        x = generator.standard_normal((min(PIECE, rows - start), FEATURES))
        yield x, (x[:, :4].sum(1) > 0).astype(np.int64)


def _median(found: list[Streamed]) -> Streamed:
    peaks, speeds = ([vars(one)[name] for one in found] for name in ("peaks_mb", "speeds"))
    medians = ({phase: median(one[phase] for one in each) for phase in each[0]} for each in (peaks, speeds))
    return Streamed(*medians, [], min(one.steps for one in found))


def _streamed(rows: int, seed: int) -> Streamed:
    """Upload `rows` and train on them."""
    found = Streamed()
    with tempfile.TemporaryDirectory(prefix="hdcos-streaming-") as place:  # noqa: SIM117
        with cluster_of_nodes(Path(place) / "home", options=("--workers", str(WORKERS))) as nodes:
            with nodes.connect(120) as cluster:
                wait_until_ready(cluster)
                processes = _at_full_strength(nodes)
                _upload(cluster, WARM_UP, seed)
                _epoch(cluster, WARM_UP, "blocks", seed)
                _forget_peaks(processes)
                _fill_memory(Path(place) / "nothing")
                found.speeds["upload"] = _upload(cluster, rows, seed, found.tenths)
                found.peaks_mb["upload"] = _peak_mb(processes)
                for shuffle in ("blocks", "rows"):
                    _forget_peaks(processes)
                    found.speeds[shuffle] = _epoch(cluster, rows, shuffle, seed)
                    found.peaks_mb[shuffle] = _peak_mb(processes)
                found.steps = min(sum(worker["steps"] for worker in nodes.workers(rank)) for rank in (0, 1))
    print(f"{rows} rows: {found}", flush=True)
    return found


def _upload(cluster: Cluster, rows: int, seed: int, tenths: list[float] | None = None) -> float:
    """Rows a second, those of each tenth of them, and of all with what the parties do when they have come."""
    moments = [time.perf_counter()]

    def timed() -> Iterator[tuple[Array, Array]]:
        sent = 0
        for piece in _pieces(rows, seed):
            yield piece
            sent += len(piece[0])
            if sent * 10 >= rows * len(moments):
                moments.append(time.perf_counter())

    cluster.upload(timed(), name="rows")
    if tenths is not None:
        tenths += [rows / 10 / (end - begin) for begin, end in pairwise(moments)]
    return rows / (time.perf_counter() - moments[0])


def _fill_memory(path: Path) -> None:
    """Read a file of zeros, of which nothing is on a disk, so large that its pages take the memory that is free."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemFree"))
    with path.open("w+b") as file:
        file.truncate(min(free, MOST_FILLED))
        while file.read(READ_BYTES):
            pass


def _epoch(cluster: Cluster, rows: int, shuffle: str, seed: int) -> float:
    """Rows a second."""
    options = {"epochs": 1, "batch_size": BATCH, "lr": 0.1, "seed": seed, "progress": False}
    trained = cluster.fit(nn.models.higgs_mlp(), "rows", shuffle=shuffle, **options)
    return rows / trained.history[0].seconds


def _at_full_strength(nodes: Nodes) -> list[Path]:
    """The processes of all workers of both parties, when all of them work."""
    limit = time.monotonic() + STRONG_S
    while time.monotonic() < limit:
        with suppress(HdcosError):
            if nodes.starts(WORKERS - 1):
                pids = [[nodes.processes[role].pid, *nodes.worker_pids(role)] for role in ("party0", "party1")]
                return [Path("/proc") / str(pid) for party in pids for pid in party]
        time.sleep(0.2)
    raise PeerLost(f"not all workers work after {STRONG_S:g} s")


def _forget_peaks(processes: list[Path]) -> None:
    for process in processes:
        (process / "clear_refs").write_text("5")


def _peak_mb(processes: list[Path]) -> float:
    """The most that a worker had in memory, mapped files included."""
    peaks = []
    for process in processes:
        lines = (process / "status").read_text().splitlines()
        peaks.append(next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024 / 1e6)
    return max(peaks)
