"""Time in a simulation: events in their order, processors whose cores are shared, threads that run on them.

A processor has as many threads running as it has cores. A thread that wakes waits in line until one of them ends its
work, waits for somebody or has had its slice, as with the schedulers of operating systems; and since others had the
core meanwhile, it fills its caches again first. So two parties that wait for each other in every round make progress by
turns on the cores that threads with much to do leave them.

All running threads progress at one rate (below one where there is a part of a core), so a turn that begins when the
progress is v and takes w ends when it is v + w: a heap of such ends is all that must be kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import count
from math import ceil, expm1, inf, isinf

Action = Callable[[], None]
COOLING_S = 0.0016
"""In which threads that compute displace two thirds of what another one had in caches. Measured with criteo_mlp on one,
two and four pairs of two cores: turns that had waited for 0.34, 1.3 and 3.7 ms took 0.04, 0.08 and 0.13 ms more."""


class Clock:
    """Events, in the order of their times."""

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Action]] = []
        self._numbers = count()

    def after(self, delay_s: float, action: Action) -> None:
        heappush(self._events, (self.now + delay_s, next(self._numbers), action))

    def run(self, goes_on: Callable[[], bool]) -> None:
        """Let events happen for as long as this holds and there are any."""
        while self._events and goes_on():
            self.now, _, action = heappop(self._events)
            action()


class Processor:
    """Cores that threads take by turns; without a slice, all running threads share them equally at any time."""

    def __init__(self, clock: Clock, cores: float = inf, slice_s: float = 0.0, switch_s: float = 0.0) -> None:
        """`slice_s` is how long a thread keeps its core while others wait for one, `switch_s` what one that waited for
        long does besides its work."""
        self._clock, self._cores = clock, cores
        self._room = ceil(cores) if slice_s and not isinf(cores) else inf
        """Threads that run at the same time; the others wait in line."""
        self._slice_s, self._switch_s = slice_s or inf, switch_s
        self._progress = self._seen_at = 0.0
        self._running: list[tuple[float, int, float, float, Action]] = []
        """By the progress at which their turns end: a number, the progress at which they began and at which their work
        ends, and what comes after it. A turn is all of the work where nobody waits."""
        self._waiting: deque[tuple[float, float, Action]] = deque()
        """Since when, what is to be done, and what comes after it."""
        self._kept = False
        """Whether a thread that has ended its work has not let go of its core yet."""
        self._numbers = count()
        self._newest = 0

    def run(self, work_s: float, done: Action, goes_on: bool = False) -> None:
        """Work of a thread that is running from now on, or waits for a core.

        One that goes on with other work when it has ended some keeps its core.
        """
        self._advance()
        if goes_on and self._kept:
            self._kept = False
            self._begin(work_s, done)
        elif len(self._running) + self._kept < self._room:
            self._begin(work_s, done)
        else:
            if not self._waiting:
                self._cut()
            self._waiting.append((self._clock.now, work_s, done))
        self._expect()

    def _begin(self, work_s: float, done: Action) -> None:
        turn_s = min(work_s, self._slice_s) if self._waiting else work_s
        begun = self._progress
        heappush(self._running, (begun + turn_s, next(self._numbers), begun, begun + work_s, done))

    def _cut(self) -> None:
        """Somebody begins to wait: turns end with the slices that those who run have now."""
        slices = self._slice_s
        self._running = [
            (min(end, begun + slices * ceil((self._progress - begun) / slices or 1)), number, begun, end, done)
            for _, number, begun, end, done in self._running
        ]
        heapify(self._running)

    def _advance(self) -> None:
        self._progress += (self._clock.now - self._seen_at) * self._rate
        self._seen_at = self._clock.now

    @property
    def _rate(self) -> float:
        return min(1.0, self._cores / len(self._running)) if self._running else 1.0

    def _expect(self) -> None:
        """The next end, as it is known now; what was expected before does not count any more."""
        self._newest += 1
        if self._running:
            left_s = max(0.0, self._running[0][0] - self._progress) / self._rate
            self._clock.after(left_s, partial(self._end, self._newest))

    def _end(self, expectation: int) -> None:
        if expectation != self._newest:
            return
        self._advance()
        turn_end, _, _, end, done = heappop(self._running)
        if turn_end < end:
            if self._waiting:
                self._waiting.append((self._clock.now, end - turn_end, done))
            else:
                self._begin(end - turn_end, done)
        else:
            self._kept = True
            done()
            self._kept = False
        if self._waiting and len(self._running) < self._room:
            since, work_s, done = self._waiting.popleft()
            self._begin(work_s + self._switch_s * coldness(self._clock.now - since), done)
        self._expect()


def coldness(waited_s: float) -> float:
    """The part of what a thread had in caches that others have displaced while it waited for a core."""
    return -expm1(-waited_s / COOLING_S)


class Thread:
    """Does one piece of work after another."""

    def __init__(self, processor: Processor) -> None:
        self._processor = processor
        self._waiting: deque[tuple[float, Action]] = deque()
        self._works = False
        self.worked_s = 0.0
        """Work that was begun, in seconds of a core of its own."""

    def do(self, work_s: float, done: Action, first: bool = False) -> None:
        """Work that comes behind what it has to do already, or before all that."""
        (self._waiting.appendleft if first else self._waiting.append)((work_s, done))
        if not self._works:
            self._begin()

    def _begin(self, goes_on: bool = False) -> None:
        work_s, done = self._waiting.popleft()
        self._works = True
        self.worked_s += work_s
        self._processor.run(work_s, partial(self._end, done), goes_on)

    def _end(self, done: Action) -> None:
        done()
        if self._waiting:
            self._begin(goes_on=True)
        else:
            self._works = False


class Line(Thread):
    """A line of some rate, on which one transfer follows another: nothing else holds it up."""

    def __init__(self, clock: Clock, mbps: float | None) -> None:
        super().__init__(Processor(clock))
        self._byte_s = 0.0 if mbps is None else 8e-6 / mbps

    def send(self, size: float, done: Action) -> None:
        self.do(size * self._byte_s, done)


def after_all(parts: int, done: Action) -> Action:
    """What each of some parts calls at its end: the last one ends the whole."""
    left = parts

    def end() -> None:
        nonlocal left
        left -= 1
        if not left:
            done()

    return end


def in_turn(first: Action, second: Action) -> Action:
    def both() -> None:
        first()
        second()

    return both
