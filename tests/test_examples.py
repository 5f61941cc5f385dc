"""The examples run as they stand, in under a minute each, and say what they promise."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_and_is_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) < 40
    finished = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=60, check=False)
    assert finished.returncode == 0, finished.stderr
    accuracies = re.findall(r"accuracy.* ([0-9.]+)%", finished.stdout)
    assert float(accuracies[-1]) >= 96


def test_the_examples_are_there() -> None:
    assert {path.stem for path in EXAMPLES} == {"kernel_machine", "private_inference", "private_training", "two_owners"}
