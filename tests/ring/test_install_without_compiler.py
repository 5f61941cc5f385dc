"""Where nothing can be compiled, or nothing should be, installing still works and the reference computes."""

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from hdcos.ring.cuda import sources

ROOT = Path(__file__).parents[2]
USE = """
import warnings
import numpy as np
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    from hdcos import ring
    print(ring.backend(), ring.matmul(np.full((1, 1), 3, np.uint64), np.full((1, 1), 5, np.uint64)).tolist())
print(*[w.category.__name__ for w in seen], ring.__file__)
from hdcos.ring.cuda import sources
print(*sorted(name for file in sources.files() for name in sources.kernels_of(file)))
"""


NO_COMPILER = {"CC": "/bin/false", "CXX": "/bin/false"}
ASKED_FOR = {"HDCOS_PURE": "1"}


@pytest.mark.parametrize(
    ("editable", "reason"),
    [(False, NO_COMPILER), (True, NO_COMPILER), (False, ASKED_FOR)],
    ids=["normal", "editable", "asked for"],
)
def test_an_install_without_kernels_works_and_warns(tmp_path, editable, reason):
    venv.create(tmp_path / "venv", symlinks=True)
    python = tmp_path / "venv" / "bin" / "python"
    packages = tmp_path / "venv" / "lib" / f"python{sysconfig.get_python_version()}" / "site-packages"
    # Build backend and NumPy come from the environment of the tests, behind the packages installed here.
    (packages / "tests.pth").write_text(sysconfig.get_path("purelib") + "\n")
    options = ["--no-build-isolation", "--no-deps", "--no-index", "--ignore-installed", "--quiet"]
    ours = {"HDCOS_KERNELS", "HDCOS_ISA", "HDCOS_PURE", "PYTHONPATH"}
    environment = {k: v for k, v in os.environ.items() if k not in ours}
    environment |= {"PIP_DISABLE_PIP_VERSION_CHECK": "1"} | reason
    build = [f"--config-settings=build-dir={tmp_path / 'build'}", *["--editable"] * editable, str(ROOT)]
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", str(python), "install", *options, *build],
        env=environment,
        check=True,
    )
    done = subprocess.run(
        [str(python), "-c", USE], env=environment, cwd=tmp_path, check=True, capture_output=True, text=True
    )
    first, second, kernels = done.stdout.splitlines()
    assert first == "reference [[15]]"
    assert kernels.split() == sorted(name for file in sources.files() for name in sources.kernels_of(file))
    home = ROOT / "src" if editable else packages
    assert second == f"SlowKernels {home / 'hdcos' / 'ring' / '__init__.py'}"
