"""The trainer runs where nothing can be installed: PyTorch and NumPy are all it imports."""

from __future__ import annotations

import subprocess
import sys

BLOCKED = ("cryptography", "safetensors", "click", "rich", "sklearn", "hdcos.ring._native")
PROGRAM = f"""
import sys
for name in {BLOCKED!r}:
    sys.modules[name] = None
import paper.__main__
from paper.cells import Cell
from paper.batched import Batch
import torch
Batch([Cell("mnist", "polyfit3", "phd").network(0)], "cpu")(torch.zeros(1, 1, 28, 28))
"""


REPORT = """
import sys
sys.modules["torch"] = None
import paper.report.build
"""


def test_the_report_needs_no_pytorch() -> None:
    subprocess.run([sys.executable, "-W", "error", "-c", REPORT], check=True, timeout=60)


def test_the_trainer_needs_neither_cryptography_nor_the_extension() -> None:
    subprocess.run([sys.executable, "-W", "error", "-c", PROGRAM], check=True, timeout=60)
