"""`make prove SUITE=...`: run every long check of one part and write benchmarks/results/SUITE.json."""

from __future__ import annotations

import importlib
import secrets
import sys

from benchmarks.record import write
from hdcos.errors import HdcosError

SUITES = ("core", "inference", "training")


def main() -> None:
    if len(sys.argv) < 2 or sys.argv[1] not in SUITES:
        sys.exit(f"usage: make prove SUITE={'|'.join(SUITES)}")
    suite = sys.argv[1]
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else secrets.randbits(32)
    print(f"suite {suite}, seed {seed}", flush=True)
    lines = importlib.import_module(f"benchmarks.{suite}").prove(seed)
    try:
        sys.exit(0 if write(suite, lines, seed) else 1)
    except HdcosError as error:
        sys.exit(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
