"""Turns on the cores of this machine."""

from __future__ import annotations

import os
import subprocess
import sys

from hdcos.planning.slices import measure_slice, on_one_core


def test_threads_that_compute_side_by_side_are_given_cores_by_turns() -> None:
    assert 1e-5 < measure_slice(0.2) < 1.0


def test_processes_share_a_core_for_a_while() -> None:
    before = os.sched_getaffinity(0)
    other = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE)
    try:
        with on_one_core([other.pid]):
            assert os.sched_getaffinity(0) == os.sched_getaffinity(other.pid) == {min(before)}
        assert os.sched_getaffinity(0) == os.sched_getaffinity(other.pid) == before
    finally:
        other.communicate(b"\n")
