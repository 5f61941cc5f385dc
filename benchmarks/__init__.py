"""Measurements and long checks: each figure is a ratio or a count taken in one run, written to results/."""
