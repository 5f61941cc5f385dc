"""The last ten minutes of a party, for the charts of its status page.

Kept in memory alone and bounded: a fixed number of samples of a few hundred bytes, whatever clients do. A sample is
kept as text, which takes a tenth of the memory of its objects.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

EVERY_S = 2.0
KEPT_S = 600.0
MOST_MODELS = 5
"""As many as the chart of the stock has colours for."""


class History:
    """Samples of what `Service.status` says, oldest first."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, bytes]] = deque(maxlen=round(KEPT_S / EVERY_S))

    def note(self, status: Mapping[str, Any], now: float | None = None) -> None:
        """Keep what the charts show of a status."""
        models = [{"name": model["name"], "stock": model["stock"]} for model in status["models"][:MOST_MODELS]]
        sample = {"counters": status["counters"], "latency_ms": status["latency_ms"], "models": models}
        self._samples.append((time.monotonic() if now is None else now, json.dumps(sample).encode()))

    def told(self, now: float | None = None) -> dict[str, Any]:
        """For clients: ages instead of times, since clocks differ."""
        at = time.monotonic() if now is None else now
        samples = [{"age_s": round(at - noted, 3), **json.loads(sample)} for noted, sample in list(self._samples)]
        return {"every_s": EVERY_S, "samples": [sample for sample in samples if sample["age_s"] <= KEPT_S]}
