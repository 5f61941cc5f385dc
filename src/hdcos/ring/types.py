"""The array type that signatures name.

Everything that computes takes arrays; while a cost is planned the same code is handed Blanks, which behave
like arrays of the same shape. Checkers see arrays.
"""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

Array = npt.NDArray[Any]
