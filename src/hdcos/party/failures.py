"""What went wrong with which model or job, on disk: what ended a process must not end it again after every restart.

Before a party loads a model or begins a job it writes down that it does, and takes that back when it is done. What a
process finds written when it starts ended the last one. A version of a model, or a job, is given up if the error has a
name, or if three processes or sessions in a row were lost over it; a new version is tried again, and an operator can
have an old one tried again (`hdcos retry`). A full disk is nobody's mistake:
what found no room waits, longer each time.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace

from hdcos.api.commands import Command, Load, OpenJob, Publish, Steps
from hdcos.errors import PeerLost, StorageFull
from hdcos.party.store import Store

MOST_LOST = 3
FIRST_WAIT_S, LONGEST_WAIT_S, LASTING_S = 5.0, 300.0, 600.0
"""Before something that found no room on a disk is tried again; when an earlier shortage counts no more."""
MOST_WAITING = 1024
"""Things that are remembered to have found no room: those of full disks long ago are forgotten first."""
NEVER = (-math.inf, 0.0)
"""Not zero: a machine's clock starts there."""
Thing = tuple[str, str, str]
"""What was done (load, job), with which name and version."""


def _thing_of(command: Command) -> Thing | None:
    """The model or job that a command is about."""
    if isinstance(command, Load):
        return ("load", command.model, command.version)
    if isinstance(command, OpenJob | Steps | Publish):
        return ("job", command.job, "")
    return None


class Failures:
    """The failures of one party, through all its sessions and processes."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._doing: Thing | None = None
        self._ahead = True
        """Whether what is being done is written down already."""
        self._waiting: dict[Thing, tuple[float, float]] = {}
        """Until when something waits for room on a disk, and how long it was told to."""
        for known in store.failures():
            if known.lost >= MOST_LOST and not known.why:
                store.note_failure(replace(known, why=f"the process ended {known.lost} times in a row meanwhile"))

    def begin(self, command: Command) -> None:
        """A command is being carried out: if the process or the session is lost meanwhile, that is held against it.

        Steps are not written down: they are many, and a job that does not get on is given up by its attempts.
        """
        self._doing, self._ahead = _thing_of(command), not isinstance(command, Steps)
        if self._doing is not None and self._ahead:
            known = self._store.failure(*self._doing)
            self._store.note_failure(replace(known, lost=known.lost + 1))

    def end(self) -> None:
        """It was carried out, or failed for a reason that is not this party's."""
        if self._doing is not None and self._store.failure(*self._doing).lost:
            self._store.forgive(*self._doing)
        self._doing = None

    def fail(self, error: BaseException) -> None:
        """It failed by name: it would again, unless there is room by then."""
        if isinstance(error, StorageFull):
            self._wait()
            self.end()
        elif self._doing is not None:
            self._waiting.pop(self._doing, None)
            known = self._store.failure(*self._doing)
            self._store.note_failure(replace(known, why=f"{type(error).__name__}: {error}"))
        self._doing = None

    def lose(self, error: BaseException) -> None:
        """The session ended. A lost node may be anybody's fault: three times before it counts."""
        if isinstance(error, StorageFull):
            self._wait()
            return self.end()
        if self._doing is None:
            return
        self._waiting.pop(self._doing, None)
        known = self._store.failure(*self._doing)
        known = known if self._ahead else replace(known, lost=known.lost + 1)
        if not isinstance(error, PeerLost) or known.lost >= MOST_LOST:
            known = replace(known, why=f"{type(error).__name__}: {error}")
        self._store.note_failure(known)
        self._doing = None

    def _wait(self) -> None:
        if self._doing is None:
            return
        now, (until, before) = time.monotonic(), self._waiting.get(self._doing, NEVER)
        lasted = now - until > LASTING_S  # it went well for a while: a new shortage
        pause = FIRST_WAIT_S if lasted else min(2 * before, LONGEST_WAIT_S)
        self._waiting.pop(self._doing, None)  # the newest comes last
        self._waiting[self._doing] = (now + pause, pause)
        if len(self._waiting) > MOST_WAITING:
            del self._waiting[next(iter(self._waiting))]

    def waits(self, what: str, name: str, version: str = "") -> bool:
        """Whether something waits for room on a disk."""
        return self._waiting.get((what, name, version), NEVER)[0] > time.monotonic()

    def found_no_room(self, what: str, name: str, version: str = "") -> bool:
        """Whether that is how something failed last."""
        return (what, name, version) in self._waiting

    def waited_since(self, moment: float) -> bool:
        """Whether something may be tried again that could not at that moment."""
        return any(moment < until <= time.monotonic() for until, _ in self._waiting.values())

    def final(self, what: str, name: str, version: str = "") -> str:
        """Why something is not tried again, or nothing."""
        return self._store.failure(what, name, version).why
