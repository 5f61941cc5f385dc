"""`make prove SUITE=...`: run every long check of one part and write benchmarks/results/SUITE.json."""

from __future__ import annotations

import importlib
import secrets
import sys
from collections.abc import Callable

from benchmarks.record import machine, write
from hdcos.errors import HdcosError

SUITES = (
    "core", "inference", "training", "accuracy", "scale", "service", "paper", "offline", "hardening", "mutation",
    "compare", "tables", "gpu",
)  # fmt: skip

MODULES = {"tables": "two_tables"}
"""Suites whose module has another name: benchmarks.tables writes tables of figures."""


def main() -> None:
    arguments = sys.argv[1:]
    if not arguments or arguments[0] not in SUITES:
        sys.exit(f"usage: make prove SUITE={'|'.join(SUITES)} [PART=...]")
    suite, wanted = arguments[0], [name for name in arguments[1:] if not name.isdecimal()]
    seed = next((int(text) for text in arguments[1:] if text.isdecimal()), secrets.randbits(32))
    module = importlib.import_module(f"benchmarks.{MODULES.get(suite, suite)}")
    parts = module.PARTS if hasattr(module, "PARTS") else {"": module.prove}
    unknown = set(wanted) - set(parts)
    if unknown:
        sys.exit(f"suite {suite} has the parts {', '.join(parts)}")
    device_of: Callable[[str], str] = getattr(module, "device_of", lambda part: "")
    ok = True
    for part in wanted or parts:
        try:
            device = device_of(part)
            print(f"suite {suite} {part}, seed {seed}, on {machine(device)}", flush=True)
            ok = write(suite, parts[part](seed), seed, part=part, order=list(parts), device=device) and ok
        except HdcosError as error:
            sys.exit(f"{type(error).__name__}: {error}")
    sys.exit(0 if ok else 1)


if __name__ == "__main__":
    main()
