"""No command ends in a traceback: mistakes of tests/cli/mistakes.py, each in a process of its own.

The tests call almost all of them inside one process. Here those that start a cluster's processes first, and a sample of
the others, are real calls: the exit code is the shell's, stderr is what people see, warnings and the last words of the
interpreter included. Three to four minutes on two cores.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from click import Context

from benchmarks.record import Line, at_least, at_most, exactly
from hdcos.cli import main

TESTS = Path(__file__).parent.parent / "tests"
LONGEST_S = 120.0
SAMPLE = 300


def prove(seed: int, sample: int = SAMPLE) -> Iterable[Line]:
    """Call every mistake that is noticed late, and a sample of the others drawn from the seed."""
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
        known = mistakes(Path(folder))
        quick, calls = [item for item in known if not item.slow], [item for item in known if item.slow]
        draw = random.Random(seed)
        calls += draw.sample(quick, sample)
        called = {item.arguments[0] for item in calls}
        for command in sorted({item.arguments[0] for item in quick} - called):
            calls.append(draw.choice([item for item in quick if item.arguments[0] == command]))
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            results = list(pool.map(call, calls))
    wrong = [f"{mistake}: {fault}" for mistake, (fault, _) in zip(calls, results, strict=True) if fault]
    for line in wrong:
        print(line, flush=True)
    yield at_least("calls with files that cannot be used, each a process", len(calls), 300)
    commands = main.list_commands(Context(main))
    never = sorted(set(commands) - {mistake.arguments[0] for mistake in calls})
    yield exactly(f"of {len(commands)} commands those that were not called", never, [])
    yield exactly("calls that end in a traceback", sum("traceback" in line for line in wrong), 0)
    yield exactly("calls without one line that names the thing, or with another exit code", len(wrong), 0)
    yield at_most("longest call (s)", max(seconds for _, seconds in results), LONGEST_S)
