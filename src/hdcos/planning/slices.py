"""Cores that are taken by turns: how long a turn is, and processes that are made to share one core.

Twice as many processes as there are cores compute side by side, and the kernel says how often each was given a core.
The answer is the scheduler's: about 3 ms where it is left as it comes, 100 ms in its real-time class.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median

SECONDS = 0.5
SPIN = """
import sys, time
def spent():
    taken_ns, _, turns = open("/proc/self/schedstat").read().split()
    return int(taken_ns) * 1e-9, int(turns)
print(flush=True)
sys.stdin.readline()
(before_s, before), end = spent(), time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    pass
after_s, after = spent()
print((after_s - before_s) / max(1, after - before))
"""


def measure_slice(seconds: float = SECONDS) -> float:
    """The median, over processes, of the mean time of their turns. They have sessions of their own, as parties do."""
    command = [sys.executable, "-S", "-c", SPIN, str(seconds)]
    cores = len(os.sched_getaffinity(0))
    spinning = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)
        for _ in range(2 * cores)
    ]
    for process in spinning:  # none begins before all have started
        assert process.stdout is not None
        process.stdout.readline()
    for process in spinning:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    return median(float(process.communicate()[0]) for process in spinning)


@contextmanager
def on_one_core(pids: Iterable[int]) -> Iterator[None]:
    """All threads of these processes, and of this one, on one core; then on those again that this one had."""
    cores, everyone = os.sched_getaffinity(0), [os.getpid(), *pids]
    try:
        _place(everyone, {min(cores)})
        yield
    finally:
        _place(everyone, cores)


def _place(pids: Iterable[int], cores: set[int]) -> None:
    for pid in pids:
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(ProcessLookupError):  # a thread that has ended meanwhile
                os.sched_setaffinity(int(task.name), cores)
