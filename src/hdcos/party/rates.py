"""How fast a worker is: by how much its counters grew over the last minute."""

from __future__ import annotations

import time
from collections import deque
from threading import Lock

OVER_S, EVERY_S = 60.0, 1.0
"""The time that is looked back on, and between two notes: what is kept of a worker is bounded."""


class Rates:
    """Of the counters of one worker, in memory alone. The party asks every two seconds, others whenever they like."""

    def __init__(self) -> None:
        self._noted: deque[tuple[float, tuple[int, ...]]] = deque()
        self._lock = Lock()

    def note(self, *counts: int) -> list[float]:
        """Growth of each counter in a second, since the oldest note of the last minute; 0 as long as there is none."""
        now = time.monotonic()
        with self._lock:
            while self._noted and now - self._noted[0][0] > OVER_S:
                self._noted.popleft()
            if not self._noted or now - self._noted[-1][0] >= EVERY_S:
                self._noted.append((now, counts))
            since, first = self._noted[0]
        past_s = max(now - since, EVERY_S)
        return [max(0, count - before) / past_s for count, before in zip(counts, first, strict=True)]
