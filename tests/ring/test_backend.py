"""Which kernels are used, and what is said when they are slow."""

import os
import subprocess
import sys

import pytest

from hdcos.ring import backend

MULTIPLY = "import numpy as np; x = np.ones((2, 2), np.uint64); ring.matmul(x, x); ring.matmul(x, x);"
MISSING = "import sys; sys.modules['hdcos.ring._native'] = None;"


def run(code, *options, **environment):
    keep = {k: v for k, v in os.environ.items() if k not in ("HDCOS_KERNELS", "HDCOS_ISA")}
    return subprocess.run(
        [sys.executable, *options, "-c", code],
        env={**keep, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_backend_has_a_name():
    assert backend() == "reference" or backend().startswith("native ")


def test_the_reference_can_be_asked_for_and_is_then_silent():
    code = f"from hdcos import ring; {MULTIPLY} print(ring.backend())"
    done = run(code, "-W", "error", HDCOS_KERNELS="reference")
    assert (done.stdout, done.stderr) == ("reference\n", "")


def test_missing_kernels_warn_once_at_first_use_and_not_at_import():
    code = (
        "import warnings\nfrom hdcos import ring\nring.backend(); print('imported', flush=True)\n"
        "with warnings.catch_warnings(record=True) as seen:\n"
        f"    warnings.simplefilter('always'); {MULTIPLY}\n"
        "print(*[w.category.__name__ for w in seen])"
    )
    done = run(MISSING + code, "-W", "error")
    assert (done.stdout, done.stderr) == ("imported\nSlowKernels\n", "")


def test_an_unknown_instruction_set_or_backend_is_an_error():
    code = "from hdcos import ring; print(ring.backend())"
    assert "HDCOS_KERNELS must be" in run(code, HDCOS_KERNELS="gpu").stderr
    if backend() != "reference":
        assert "not for v9" in run(code, HDCOS_ISA="v9").stderr


def test_the_instruction_set_can_be_capped():
    if backend() == "reference":
        pytest.fail("the compiled kernels are missing: install a C++ compiler and reinstall hdcos")
    code = f"from hdcos import ring; {MULTIPLY} print(ring.backend())"
    done = run(code, "-W", "error", HDCOS_ISA="baseline")
    assert done.stdout in ("native x86-64\n", "native aarch64\n")


def test_kept_memory_changes_no_result():
    done = run(f"from hdcos import ring; ring.keep_memory(); {MULTIPLY} print(ring.matmul(x, x).tolist())")
    assert (done.stdout, done.stderr) == ("[[2, 2], [2, 2]]\n", "")


def test_memory_that_is_kept_is_given_back_when_it_is_asked_for() -> None:
    measured = "int(open('/proc/self/statm').read().split()[1]) * os.sysconf('SC_PAGE_SIZE') / 1e6"
    done = run(
        "import os; import numpy as np; from hdcos import ring; ring.keep_memory(); "
        "arrays = [np.ones(1 << 17) for _ in range(200)]; last = arrays[-1]; del arrays; "
        f"before = {measured}; ring.return_memory(); print(before - {measured})"
    )
    assert float(done.stdout) > 150
