"""No command ends in a traceback: every mistake of tests/cli/mistakes.py, each in a process of its own.

The tests call most of them inside one process. Here each is a real call: its exit code is the shell's, its stderr is
what people see, warnings and the last words of the interpreter included.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.record import Line, at_least, at_most, exactly

TESTS = Path(__file__).parent.parent / "tests"
LONGEST_S = 120.0


def prove(seed: int, most: int | None = None) -> Iterable[Line]:
    """Run all mistakes, or the first so many; they are not drawn, so the seed changes nothing."""
    sys.path.insert(0, str(TESTS))
    from cli.mistakes import Mistake, environment, mistakes, verdict

    hidden = environment()
    variables = {name: value for name, value in os.environ.items() if name not in hidden}

    def call(mistake: Mistake) -> tuple[str, float]:
        started = time.perf_counter()
        try:
            done = subprocess.run(
                [sys.executable, "-m", "hdcos", *mistake.arguments],
                capture_output=True,
                text=True,
                timeout=LONGEST_S,
                env=variables,
                stdin=subprocess.DEVNULL,
            )
        except subprocess.TimeoutExpired:
            return f"still running after {LONGEST_S:g} s", LONGEST_S
        return verdict(mistake, done.returncode, done.stdout, done.stderr), time.perf_counter() - started

    with tempfile.TemporaryDirectory(prefix="hdcos-mistakes-") as folder:
        calls = mistakes(Path(folder))[:most]
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            results = list(pool.map(call, calls))
    wrong = [f"{mistake}: {fault}" for mistake, (fault, _) in zip(calls, results, strict=True) if fault]
    for line in wrong:
        print(line, flush=True)
    commands = Counter(mistake.arguments[0] for mistake in calls)
    yield at_least("calls with files that cannot be used, each a process", len(calls), 300)
    yield at_least("commands among them", len(commands), 18)
    yield exactly("calls that end in a traceback", sum("traceback" in line for line in wrong), 0)
    yield exactly("calls without one line that names the thing, or with another exit code", len(wrong), 0)
    yield at_most("longest call (s)", max(seconds for _, seconds in results), LONGEST_S)
