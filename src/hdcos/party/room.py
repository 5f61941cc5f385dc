"""Room on the disk of a party's state: what clients send must leave some, what a party must write always finds some.

An upload, a model or a job is refused by name unless SPARE_BYTES stay free. The spare, and when it is gone the reserve
(a file that only takes up room and is given up), belong to the ledger, without which no prediction may run, and to
whatever frees room: forgetting, revoking, ending jobs. So a party with a full disk goes on serving, and says so.
"""

from __future__ import annotations

import os
from pathlib import Path

from hdcos.errors import StorageFull
from hdcos.files import new_file

STATE = "state"
"""The folder, in that of a node, that a party keeps its state in."""
SPARE_BYTES = 1 << 21
RESERVE_BYTES = 1 << 20
SCARCE_BYTES = 1 << 18
"""With less than this the reserve is given up."""


class Room:
    """The disk that holds a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._reserve = folder, folder / "reserve"

    @property
    def free_bytes(self) -> int:
        """What this process may still write."""
        found = os.statvfs(self._folder)
        return found.f_bavail * found.f_frsize

    @property
    def trouble(self) -> str:
        """What is wrong with the disk, or nothing."""
        if self.free_bytes >= SPARE_BYTES:
            return ""
        return f"the disk of {self._folder} is full: nothing new is kept until there is room again"

    def require(self, size: int, what: str) -> None:
        """StorageFull unless this many bytes can be kept and the spare stays."""
        free = self.free_bytes
        if free < size + SPARE_BYTES:
            raise StorageFull(
                f"{what} takes {size} bytes, and this party's disk has {max(0, free - SPARE_BYTES)} left for clients: "
                f"forget something first, or ask its operator for room"
            )

    def use_reserve(self) -> None:
        """Before something that must be written: give the reserve up if nothing else is left."""
        if self.free_bytes < SCARCE_BYTES:
            self.give_up_reserve()

    def give_up_reserve(self) -> None:
        self._reserve.unlink(missing_ok=True)

    def renew_reserve(self) -> None:
        """Make the reserve again once there is room for more than that."""
        if self._reserve.exists() or self.free_bytes < SPARE_BYTES + 2 * RESERVE_BYTES:
            return
        try:
            with new_file(self._reserve) as file:
                os.posix_fallocate(file.fileno(), 0, RESERVE_BYTES)
        except OSError:  # somebody else took the room meanwhile: another time
            self.give_up_reserve()
