"""Time in a simulation: events in their order, processors whose cores are shared, threads that run on them.

A processor gives each of n running threads min(1, cores / n) of a core, as the scheduler of an operating system does
over times that are not too short. All threads of a processor then progress at one rate, so work that begins when the
progress is v and takes w ends when it is v + w: a heap of such ends is all that must be kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from itertools import count
from math import inf

Action = Callable[[], None]


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
    """Cores that all running threads share equally."""

    def __init__(self, clock: Clock, cores: float = inf) -> None:
        self._clock, self._cores = clock, cores
        self._progress = self._seen_at = 0.0
        self._running: list[tuple[float, int, Action]] = []
        self._numbers = count()
        self._newest = 0

    def run(self, work_s: float, done: Action) -> None:
        """Work of a thread that is running from now on."""
        self._advance()
        heappush(self._running, (self._progress + work_s, next(self._numbers), done))
        self._expect()

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
        _, _, done = heappop(self._running)
        self._expect()
        done()


class Thread:
    """Does one piece of work after another."""

    def __init__(self, processor: Processor) -> None:
        self._processor = processor
        self._waiting: deque[tuple[float, Action]] = deque()
        self._works = False
        self.worked_s = 0.0
        """Work that was begun, in seconds of a core of its own."""

    def do(self, work_s: float, done: Action) -> None:
        self._waiting.append((work_s, done))
        if not self._works:
            self._begin()

    def _begin(self) -> None:
        work_s, done = self._waiting.popleft()
        self._works = True
        self.worked_s += work_s
        self._processor.run(work_s, partial(self._end, done))

    def _end(self, done: Action) -> None:
        self._works = False
        if self._waiting:
            self._begin()
        done()


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
