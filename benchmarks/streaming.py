"""Data sets larger than memory: rows that are generated, uploaded over HTTPS and trained on, ten times as many for no
more memory and at the same speed.

HDCOS_STREAMED names other numbers of rows than 10^6 and 10^7, two of them: HDCOS_STREAMED=100000,1000000.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from benchmarks.nodes import Nodes, cluster_of_nodes, wait_until_ready
from benchmarks.record import Line, at_least, at_most
from hdcos import nn
from hdcos.ring import Array

SIZES = tuple(int(text) for text in os.environ.get("HDCOS_STREAMED", "1000000,10000000").split(","))
FEATURES, PIECE, BATCH = 28, 50_000, 2048
MOST_MB, MOST_GROWTH, LEAST_SPEED = 1000, 1.1, 0.9


@dataclass
class Streamed:
    """What some rows took: the highest memory of a party in each phase, and rows a second."""

    peaks_mb: dict[str, float] = field(default_factory=dict)
    speeds: dict[str, float] = field(default_factory=dict)


def streaming(seed: int) -> Iterator[Line]:
    """As many rows as the first size, then as the second, each in a cluster of its own."""
    few, many = (_streamed(rows, seed) for rows in SIZES)
    sizes = f"{SIZES[1]:.0e} rows of {FEATURES} features"
    for phase, what in (
        ("upload", "uploaded"),
        ("blocks", "trained on, shuffled by blocks"),
        ("rows", "trained on, shuffled as one"),
    ):
        yield at_most(f"{sizes} {what}: most memory of a party, MB", round(many.peaks_mb[phase]), MOST_MB)
        growth = many.peaks_mb[phase] / few.peaks_mb[phase]
        yield at_most(f"{sizes} {what}: memory over that of {SIZES[0]:.0e} rows", round(growth, 3), MOST_GROWTH)
        speed = many.speeds[phase] / few.speeds[phase]
        shown = f"{few.speeds[phase]:.0f} and {many.speeds[phase]:.0f} rows a second"
        yield at_least(f"{sizes} {what}: speed over that of {SIZES[0]:.0e} ({shown})", round(speed, 3), LEAST_SPEED)


def _pieces(rows: int, seed: int) -> Iterator[tuple[Array, Array]]:
    """Rows of the shape of HIGGS, made as they are wanted."""
    generator = np.random.default_rng(seed)
    for start in range(0, rows, PIECE):
        x = generator.standard_normal((min(PIECE, rows - start), FEATURES))
        yield x, (x[:, :4].sum(1) > 0).astype(np.int64)


def _streamed(rows: int, seed: int) -> Streamed:
    found = Streamed()
    with tempfile.TemporaryDirectory(prefix="hdcos-streaming-") as place:  # noqa: SIM117
        with cluster_of_nodes(Path(place) / "home") as nodes, nodes.connect(120) as cluster:
            wait_until_ready(cluster)
            _forget_peaks(nodes)
            started = time.perf_counter()
            cluster.upload(_pieces(rows, seed), name="rows")
            found.speeds["upload"], found.peaks_mb["upload"] = rows / (time.perf_counter() - started), _peak_mb(nodes)
            for shuffle in ("blocks", "rows"):
                _forget_peaks(nodes)
                options = {"epochs": 1, "batch_size": BATCH, "lr": 0.1, "seed": seed, "progress": False}
                trained = cluster.fit(nn.models.higgs_mlp(), "rows", shuffle=shuffle, **options)
                found.speeds[shuffle] = rows / trained.history[-1].seconds
                found.peaks_mb[shuffle] = _peak_mb(nodes)
    print(f"{rows} rows: {found}", flush=True)
    return found


def _parties(nodes: Nodes) -> list[Path]:
    return [Path("/proc") / str(nodes.processes[role].pid) for role in ("party0", "party1")]


def _forget_peaks(nodes: Nodes) -> None:
    for process in _parties(nodes):
        (process / "clear_refs").write_text("5")


def _peak_mb(nodes: Nodes) -> float:
    """The most that a party had in memory, mapped files included."""
    peaks = []
    for process in _parties(nodes):
        lines = (process / "status").read_text().splitlines()
        peaks.append(next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024 / 1e6)
    return max(peaks)
