"""Where series are right: outside its interval a series folds back, because it is periodic and the function is not.

A small fixed family: a network names one of these, every host makes the same integers of it, and all that it says
about the rows it was chosen for is one of a few levels.
"""

from __future__ import annotations

INTERVALS: dict[str, tuple[int, ...]] = {
    "tanh": (4, 12, 28, 60, 124, 252),
    "sigmoid": (8, 24, 56, 120, 248, 504),
    "expm1": (4, 6),
}
"""By function, the largest |x| of each of its series; the first is taken where nothing is said.

tanh and the sigmoid end where another doubling would add up coefficients to more than four times the function, e^x - 1
where its values would pass the 2**10 that networks reckon with.
"""
