"""`hdcos demo` learns digits on shares, without PyTorch."""

import re
import subprocess
import sys

PROGRAM = """
import sys

class NoPyTorch:
    def find_spec(self, name, *rest):
        if name.split(".")[0] == "torch":
            raise ImportError(name)

sys.meta_path.insert(0, NoPyTorch())
from hdcos.cli import demo, main
demo.EPOCHS = 6  # of 20: it has learned most by then
main(["demo"])
"""


def test_the_demo_trains_and_compares_without_pytorch() -> None:
    finished = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=110)
    assert finished.returncode == 0, finished.stderr
    found = dict(re.findall(r"^(untrained|trained on shares|trained in plaintext) +([0-9.]+)%", finished.stdout, re.M))
    private, plain, before = (float(found[name]) for name in ("trained on shares", "trained in plaintext", "untrained"))
    assert abs(private - plain) < 1
    assert private >= 96
    assert before < 50
    assert "8 rounds" in finished.stdout
