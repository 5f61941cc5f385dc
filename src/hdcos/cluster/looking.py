"""What looking at a run costs: rows predicted after an epoch count for the quota of its model, like any others.

Rows of `watch`, which nobody asked to have predicted, take a tenth at most of what the parties still answer, however
many epochs there are: fewer rows are looked at, or fewer epochs. `validation` is looked at as asked, or refused.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import replace

from hdcos.cluster.fit import Run
from hdcos.cluster.transport import Transport
from hdcos.errors import HdcosWarning, PolicyRefused
from hdcos.secure.compile import CompiledNetwork
from hdcos.secure.training.watch import VALIDATION, Watch

PART = 10
"""Watched rows are a tenth of those that are still answered."""
LEAST = 16
"""Of fewer rows one that is hard to learn looks like divergence."""
RAISE = "ask both operators for a larger [policy] queries_per_model"


def limit_looks(run: Run, watched: Watch, left: int) -> Run:
    """A run whose looks fit what the parties still answer for its model; PolicyRefused if they should and cannot."""
    rows, epochs, name = len(watched.rows), len(run.spec["rates"]), run.spec["model"]
    if watched.of == VALIDATION:
        looks = epochs if run.patience is None else min(epochs, 1 + run.patience)
        if rows * looks > left:
            raise PolicyRefused(
                f"{rows} validation rows after each of {looks} epochs are {rows * looks} predictions of {name}, and "
                f"the parties answer {left} more: pass {left // looks} rows at most, or {RAISE}"
            )
        return run
    rows, every = spread_looks(rows, epochs, left // PART)
    if not rows:
        warnings.warn(
            f"how {name} does on your rows is not looked at, so nothing would tell that it diverges: the parties "
            f"answer {left} more rows of it, too few to spend any on that. Pass validation=(rows, labels), or {RAISE}",
            HdcosWarning,
            stacklevel=4,
        )
        return replace(run, watched=None, spec=run.spec | {"publish": "end"})
    fewer = replace(watched, rows=watched.rows[:rows], targets=watched.targets[:rows])
    return replace(run, watched=fewer, every=every)


def look_once(transport: Transport, name: str, chosen: CompiledNetwork, rows: int) -> int:
    """Of some rows, how many may be predicted when a run has ended; none if they would be too few."""
    left = transport.queries_left(name, chosen)
    return rows if left is None else spread_looks(rows, 1, left // PART)[0]


def spread_looks(rows: int, epochs: int, most: int) -> tuple[int, int]:
    """Rows of a look, and epochs from one look to the next, so that all looks, with one at the end, take `most` rows
    at most; no rows if that is too few for a single look."""
    rows = min(rows, max(LEAST, most // epochs))
    looks = most // rows
    return (rows, math.ceil(epochs / looks)) if looks else (0, epochs)
