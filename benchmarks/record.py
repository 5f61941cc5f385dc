"""One line of a proof: what was measured, its limit, and what it takes to measure it again."""

from __future__ import annotations

import fcntl
import json
import os
import platform
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.device import describe_device
from hdcos.ring import backend

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Line:
    """A required figure as measured. `limit` says how it is compared: "<= 2", ">= 0.5", "== 1"."""

    line: str
    value: Any
    limit: str
    ok: bool


def at_most(line: str, value: float, limit: float) -> Line:
    return Line(line, value, f"<= {limit:g}", bool(value <= limit))


def at_least(line: str, value: float, limit: float) -> Line:
    return Line(line, value, f">= {limit:g}", bool(value >= limit))


def exactly(line: str, value: Any, expected: Any) -> Line:
    return Line(line, value, f"== {expected}", value == expected)


def machine(device: str = "") -> str:
    """The processor, its cores and the kernels in use; before them the GPU, where a device computed."""
    model = platform.processor() or platform.machine()
    for text in Path("/proc/cpuinfo").read_text().splitlines():
        if text.startswith("model name"):
            model = text.split(":", 1)[1].strip()
            break
    computing = f"{describe_device(device)}, " if device else ""
    return f"{computing}{model}, {os.cpu_count()} cores, kernels {backend()}"


def commit() -> str:
    """The commit measured; "+" if the working tree differs from it. benchmarks/history.py looks whether it is kept.

    A machine with a GPU may have a copy of the files alone: HDCOS_COMMIT says there which commit they are of.
    """
    try:
        head = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True)
    except (FileNotFoundError, subprocess.CalledProcessError):
        return os.environ["HDCOS_COMMIT"]
    changes = ["git", "status", "--porcelain", "--", "src", "cpp", "benchmarks", ":!benchmarks/results"]
    dirty = subprocess.run(changes, capture_output=True, text=True, check=True)
    return head.stdout.strip() + ("+" if dirty.stdout.strip() else "")


def write(
    suite: str,
    lines: Iterable[Line],
    seed: int,
    command: str = "",
    part: str = "",
    order: Sequence[str] = (),
    device: str = "",
) -> bool:
    """Write a suite's lines to results/SUITE.json and show them. True if all are within their limits.

    A part of a suite takes the place of that part alone; `order` is that of all parts. What is no part any more goes.
    """
    lines = list(lines)
    called = f"make prove SUITE={suite}" + (f" PART={part}" if part else "")
    context = {"command": command or called, "commit": commit(), "machine": machine(device), "seed": seed}
    records = [{**asdict(line), **context} for line in lines]
    RESULTS.mkdir(exist_ok=True)
    path, folder = RESULTS / f"{suite}.json", os.open(RESULTS, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)  # parts may be measured at once, each in a process of its own
        if part:
            kept = json.loads(path.read_text()) if path.exists() else []
            parts = {f"make prove SUITE={suite} PART={name}": place for place, name in enumerate(order)}
            others = [record for record in kept if record["command"] in parts and record["command"] != called]
            records = sorted([*others, *records], key=lambda record: parts[record["command"]])
        path.write_text(json.dumps(records, indent=1, default=float) + "\n")
    finally:
        os.close(folder)
    show(f"{suite} {part}, seed {seed}, on {context['machine']}", lines)
    return all(line.ok for line in lines)


def show(title: str, lines: Iterable[Line]) -> None:
    table = Table(title=title)
    for heading in ("line", "value", "limit", ""):
        table.add_column(heading)
    for line in lines:
        value = f"{line.value:.4g}" if isinstance(line.value, float) else str(line.value)
        table.add_row(line.line, value, line.limit, "ok" if line.ok else "MISSED")
    Console(width=150).print(table)
