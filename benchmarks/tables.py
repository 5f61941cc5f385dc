"""Every figure in the documents: rendered from benchmarks/results into marked blocks, or compared with them.

`python -m benchmarks.tables` writes the blocks, `--check` exits 1 if one differs from the results.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from benchmarks.peers import report
from benchmarks.record import RESULTS

ROOT = Path(__file__).parent.parent
DOCUMENTS = ("README.md", "docs/design.md", "docs/security.md", "docs/benchmarks.md")


def _results(name: str) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = json.loads((RESULTS / f"{name}.json").read_text())
    return records


def activations() -> str:
    """The activation table, as `hdcos cost activations --json` measured it."""
    rows = [
        "| activation | rounds in the paper | online rounds | online bytes per element | offline bytes per element "
        "| largest error | on | ms for 131,072 |",
        "|---|---:|---:|---:|---:|---:|---|---:|",
    ]
    for row in _results("activations"):
        low, high = row["interval"]
        paper = "-" if row["paper_rounds"] is None else row["paper_rounds"]
        rows.append(
            f"| {row['activation']} | {paper} | {row['rounds']} | {row['bytes_per_element']:.4g} "
            f"| {row['offline_bytes_per_element']:.4g} | {row['max_abs_error']:.1e} | [{low:g}, {high:g}] "
            f"| {row['ms']:.2f} |"
        )
    return "\n".join(rows)


def proof(suite: str, part: str = "", without: str = "") -> str:
    """The lines of a suite, or of one part of it or all others, with their limits."""
    records = [
        record
        for record in _results(suite)
        if record["command"].endswith(part) and not (without and record["command"].endswith(without))
    ]
    rows = ["| what | measured | wanted |", "|---|---:|---:|"]
    for record in records:
        value = record["value"]
        shown = f"{value:.5g}" if isinstance(value, float) else value
        missed = "" if record["ok"] else ", not reached"
        rows.append(f"| {record['line']} | {shown} | {record['limit']}{missed} |")
    rows.append("")
    machines = "; ".join(dict.fromkeys(record["machine"] for record in records))
    rows.append(f"Measured on {machines}, by `make prove SUITE={suite}{' ' + part if part else ''}`.")
    return "\n".join(rows)


def peers() -> dict[str, Any]:
    """The comparison with other systems, as `make peers` measured it."""
    results: dict[str, Any] = json.loads((RESULTS / "peers.json").read_text())
    return results


BLOCKS = {
    "activations": activations,
    "core": lambda: proof("core"),
    "inference": lambda: proof("inference"),
    "training": lambda: proof("training"),
    "service": lambda: proof("service"),
    "paper": lambda: proof("paper"),
    "offline": lambda: proof("offline"),
    "leakage": lambda: proof("hardening", part="PART=leakage"),
    "hardening": lambda: proof("hardening", without="PART=leakage"),
    "peers": lambda: report.table(peers()),
    "peers_six": lambda: report.brief(peers()),
}
_MARKED = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def rendered(text: str) -> str:
    return _MARKED.sub(lambda block: f"{block[1]}{BLOCKS[block[2]]()}\n{block[3]}", text)


def main() -> None:
    stale = []
    for name in DOCUMENTS:
        path = ROOT / name
        before = path.read_text()
        after = rendered(before)
        if before != after:
            stale.append(name)
            if "--check" not in sys.argv:
                path.write_text(after)
    if stale and "--check" in sys.argv:
        sys.exit(f"tables differ from benchmarks/results in {', '.join(stale)}: run `python -m benchmarks.tables`")


if __name__ == "__main__":
    main()
