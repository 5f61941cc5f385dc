"""What a link cost, counted where it happened and never computed.

Payload bytes are counted where a frame is sent or received, wire bytes where the socket's send and recv
return (TLS handshake, records and frame headers included), so their sum over all phases is what the kernel
counted.

Every byte belongs to a phase ("setup", "offline", "online", "control") and, within it, to a named step. Steps
that share a round count one round each, and the phase counts one: only in rounds can steps sum to more than
their phase.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType

from hdcos.errors import InputError

PHASES = ("setup", "offline", "online", "control")


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
        return Count(
            self.rounds + other.rounds,
            self.bytes_sent + other.bytes_sent,
            self.bytes_received + other.bytes_received,
            self.wire_bytes_sent + other.wire_bytes_sent,
            self.wire_bytes_received + other.wire_bytes_received,
            self.seconds + other.seconds,
        )

    def __sub__(self, other: Count) -> Count:
        return Count(
            self.rounds - other.rounds,
            self.bytes_sent - other.bytes_sent,
            self.bytes_received - other.bytes_received,
            self.wire_bytes_sent - other.wire_bytes_sent,
            self.wire_bytes_received - other.wire_bytes_received,
            self.seconds - other.seconds,
        )


_NOTHING = Count()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Totals at one moment. The difference of two snapshots is what happened in between."""

    phases: Mapping[str, Count] = field(default_factory=dict)
    steps: Mapping[str, Mapping[str, Count]] = field(default_factory=dict)

    @property
    def total(self) -> Count:
        return sum(self.phases.values(), _NOTHING)

    def __sub__(self, earlier: Snapshot) -> Snapshot:
        phases = {p: c - earlier.phases.get(p, _NOTHING) for p, c in self.phases.items()}
        steps: dict[str, Mapping[str, Count]] = {}
        for phase, counts in self.steps.items():
            before = earlier.steps.get(phase, {})
            changed = {s: c - before.get(s, _NOTHING) for s, c in counts.items() if c != before.get(s)}
            steps[phase] = MappingProxyType(changed)
        return Snapshot(MappingProxyType(phases), MappingProxyType(steps))


class _Tally:
    """A Count that grows."""

    __slots__ = ("received", "rounds", "seconds", "sent", "wire_received", "wire_sent")

    def __init__(self) -> None:
        self.rounds = self.sent = self.received = self.wire_sent = self.wire_received = 0
        self.seconds = 0.0

    def freeze(self) -> Count:
        return Count(self.rounds, self.sent, self.received, self.wire_sent, self.wire_received, self.seconds)


class Meter:
    """Running totals of one link (or of several links of one thread that share it)."""

    def __init__(self, phase: str = "control") -> None:
        self._phases = {name: _Tally() for name in PHASES}
        self._steps: dict[str, dict[str, _Tally]] = {name: {} for name in PHASES}
        self._current = phase

    @property
    def current(self) -> str:
        """The phase that is charged now."""
        return self._current

    @contextmanager
    def phase(self, name: str) -> Iterator[Meter]:
        """Charge everything inside the block to this phase."""
        if name not in self._phases:
            raise InputError(f"unknown phase {name!r}, phases are {', '.join(PHASES)}.")
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
        """Charge one event: whole to the current phase, payload to each step, the rest to the first step."""
        phase = self._current
        total = self._phases[phase]
        total.rounds += rounds
        total.sent += sent
        total.received += received
        total.wire_sent += wire_sent
        total.wire_received += wire_received
        total.seconds += seconds
        tallies = self._steps[phase]
        wire_sent -= sent
        wire_received -= received
        seen = set()
        for name, size in steps:
            tally = tallies.get(name)
            if tally is None:
                tally = tallies[name] = _Tally()
            if name not in seen:
                seen.add(name)
                tally.rounds += rounds
            mine = size if sent else 0
            theirs = size if received else 0
            tally.sent += mine
            tally.received += theirs
            tally.wire_sent += mine + wire_sent
            tally.wire_received += theirs + wire_received
            tally.seconds += seconds
            wire_sent = wire_received = 0
            seconds = 0.0

    def worked(self, step: str, seconds: float) -> None:
        """Charge local work between rounds to the current phase and a step."""
        self.record(((step, 0),), 0, 0, 0, 0, 0, seconds)

    def snapshot(self) -> Snapshot:
        """An immutable copy of all totals."""
        return Snapshot(
            MappingProxyType({name: tally.freeze() for name, tally in self._phases.items()}),
            MappingProxyType(
                {
                    phase: MappingProxyType({name: tally.freeze() for name, tally in tallies.items()})
                    for phase, tallies in self._steps.items()
                }
            ),
        )
