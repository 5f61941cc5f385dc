"""Measurements and long checks: each figure is a ratio or a count taken in one run, written to results/."""

import os

# Before NumPy loads its BLAS: comparisons are between single threads.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
