"""What a link cost, counted where it happened and never computed.

Payload bytes are counted where a frame is sent or received, wire bytes where the socket's send and recv
return (TLS handshake, records and frame headers included), so their sum over all sections is what the kernel
counted.

Every byte belongs to a section ("setup", "offline", "online", "control") and, within it, to a named step. Steps
that share a round count one round each, and the section counts one: only in rounds can steps sum to more than
their section.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType

from hdcos.errors import InputError

SECTIONS = ("setup", "offline", "online", "control")


@dataclass(frozen=True, slots=True)
class Count:
    """Rounds, payload bytes, bytes on the wire and seconds spent in the link. Counts add and subtract."""

    rounds: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    wire_bytes_sent: int = 0
    wire_bytes_received: int = 0
    seconds: float = 0.0

    def __add__(self, other: Count) -> Count:
        return Count(*(getattr(self, name) + getattr(other, name) for name in self.__slots__))

    def __sub__(self, other: Count) -> Count:
        return Count(*(getattr(self, name) - getattr(other, name) for name in self.__slots__))


_NOTHING = Count()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Totals at one moment. The difference of two snapshots is what happened in between."""

    sections: Mapping[str, Count] = field(default_factory=dict)
    steps: Mapping[str, Mapping[str, Count]] = field(default_factory=dict)

    @property
    def total(self) -> Count:
        return sum(self.sections.values(), _NOTHING)

    def __sub__(self, earlier: Snapshot) -> Snapshot:
        sections = {p: c - earlier.sections.get(p, _NOTHING) for p, c in self.sections.items()}
        steps: dict[str, Mapping[str, Count]] = {}
        for section, counts in self.steps.items():
            before = earlier.steps.get(section, {})
            changed = {s: c - before.get(s, _NOTHING) for s, c in counts.items() if c != before.get(s)}
            steps[section] = MappingProxyType(changed)
        return Snapshot(MappingProxyType(sections), MappingProxyType(steps))


class _Tally:
    """A Count that grows. What the wire carried besides payload is kept apart: most steps have none."""

    __slots__ = ("event", "more_received", "more_sent", "received", "rounds", "seconds", "sent")

    def __init__(self) -> None:
        self.rounds = self.sent = self.received = self.more_sent = self.more_received = 0
        self.seconds = 0.0
        self.event = 0  # the last one that counted a round here

    def freeze(self) -> Count:
        wire_sent, wire_received = self.sent + self.more_sent, self.received + self.more_received
        return Count(self.rounds, self.sent, self.received, wire_sent, wire_received, self.seconds)


class Meter:
    """Running totals of one link (or of several links of one thread that share it)."""

    def __init__(self, section: str = "control") -> None:
        self._sections = {name: _Tally() for name in SECTIONS}
        self._steps: dict[str, dict[str, _Tally]] = {name: {} for name in SECTIONS}
        self._current = section
        self._events = 0

    @contextmanager
    def section(self, name: str) -> Iterator[Meter]:
        """Charge everything inside the block to this section."""
        if name not in self._sections:
            raise InputError(f"unknown section {name!r}, sections are {', '.join(SECTIONS)}.")
        before, self._current = self._current, name
        try:
            yield self
        finally:
            self._current = before

    def record(
        self,
        steps: Sequence[tuple[str, int]],
        rounds: int,
        sent: int,
        received: int,
        wire_sent: int,
        wire_received: int,
        seconds: float,
    ) -> None:
        """Charge one event: whole to the current section, payload to each step, the rest to the first step."""
        self._events = event = self._events + 1
        tallies = self._steps[self._current]
        for name, size in steps:
            tally = tallies.get(name)
            if tally is None:
                tally = tallies[name] = _Tally()
            if tally.event != event:
                tally.event = event
                tally.rounds += rounds
            if sent:
                tally.sent += size
            if received:
                tally.received += size
        total = self._sections[self._current]
        total.rounds += rounds
        total.sent += sent
        total.received += received
        for tally in (total, tallies[steps[0][0]]):
            tally.more_sent += wire_sent - sent
            tally.more_received += wire_received - received
            tally.seconds += seconds

    def record_work(self, step: str, seconds: float) -> None:
        """Charge local work between rounds to the current section and a step."""
        self.record(((step, 0),), 0, 0, 0, 0, 0, seconds)

    def total(self, section: str) -> Count:
        """What one section cost so far."""
        return self._sections[section].freeze()

    def snapshot(self) -> Snapshot:
        """An immutable copy of all totals."""
        return Snapshot(
            _freeze(self._sections),
            MappingProxyType({section: _freeze(tallies) for section, tallies in self._steps.items()}),
        )


def _freeze(tallies: Mapping[str, _Tally]) -> Mapping[str, Count]:
    return MappingProxyType({name: tally.freeze() for name, tally in tallies.items()})
