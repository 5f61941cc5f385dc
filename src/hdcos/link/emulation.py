"""A slower network on this machine, without root.

The bytes of a frame are held back before they go out, until

    due = max(handed over + rtt/2, line free) + bytes * 8 / rate,        line free = due,

while reading goes on. A simultaneous exchange then takes rtt/2 + size/rate, a request and its reply rtt plus
both sizes, as on a real line of that delay and rate; TCP's slow start and the TLS handshake are not emulated.
A one-way send returns when its bytes are out, so the sender is late by what it waited; the next one-way send
is taken as handed over that much earlier: a stream of frames pays rtt/2 once, not per frame.
"""

from __future__ import annotations

from dataclasses import dataclass

from hdcos.errors import InputError


@dataclass(frozen=True, slots=True)
class Emulation:
    """Round-trip time in milliseconds and rate in megabits per second (None: unlimited)."""

    rtt_ms: float = 0.0
    mbps: float | None = None

    def __post_init__(self) -> None:
        if not self.rtt_ms >= 0 or (self.mbps is not None and not self.mbps > 0):
            raise InputError(f"cannot emulate rtt_ms={self.rtt_ms}, mbps={self.mbps}: both must be positive.")

    @property
    def delay_s(self) -> float:
        return self.rtt_ms / 2e3

    def seconds(self, wire_bytes: int) -> float:
        """How long one simultaneous exchange of this many wire bytes takes."""
        return self.delay_s + (0.0 if self.mbps is None else wire_bytes * 8e-6 / self.mbps)


class Pacer:
    """When the next bytes of one direction may leave. Times are in seconds of one clock."""

    __slots__ = ("_ahead", "_delay", "_free", "_handed", "_per_byte")

    def __init__(self, emulation: Emulation) -> None:
        self._delay = emulation.delay_s
        self._per_byte = 0.0 if emulation.mbps is None else 8e-6 / emulation.mbps
        self._free = self._handed = self._ahead = 0.0

    def begin(self, now: float) -> None:
        """A frame is handed over."""
        self._handed = now - self._ahead

    def due(self, size: int) -> float:
        """When the next `size` bytes of this frame may leave."""
        self._free = max(self._handed + self._delay, self._free) + size * self._per_byte
        return self._free

    def sent_one_way(self, now: float) -> None:
        """The frame is out and nothing was heard since it was handed over."""
        self._ahead = now - self._handed

    def heard(self) -> None:
        """Something arrived: sender's and real clock agree again."""
        self._ahead = 0.0
