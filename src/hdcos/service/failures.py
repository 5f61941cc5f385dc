"""What went wrong with which model or job, on disk: what ended a process must not end it again after every restart.

Before a party loads a model or begins a job it writes down that it does, and takes that back when it is done. What a
process finds written when it starts ended the last one. A version of a model, or a job, is given up if the error has a
name, or if three processes or sessions in a row were lost over it; a new version is tried anew, and an operator can
have an old one tried again (`hdcos retry`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hdcos.errors import PeerLost
from hdcos.service.store import Store

MOST_LOST = 3
Thing = tuple[str, str, str]
"""What was done (load, job), with which name and version."""


def thing_of(command: dict[str, Any]) -> Thing | None:
    """The model or job that a command is about."""
    if command["op"] == "load":
        return ("load", command["model"], command["version"])
    if command["op"] in ("open_job", "steps", "publish"):
        return ("job", command["job"], "")
    return None


class Failures:
    """The failures of one party, through all its sessions and processes."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._doing: Thing | None = None
        self._ahead = True
        """Whether what is being done is written down already."""
        for known in store.failures():
            if known.lost >= MOST_LOST and not known.why:
                store.note_failure(replace(known, why=f"the process ended {known.lost} times in a row meanwhile"))

    def began(self, command: dict[str, Any]) -> None:
        """A command is being carried out: if the process or the session is lost meanwhile, that is held against it.

        Steps are not written down: they are many, and a job that does not get on is given up by its attempts.
        """
        self._doing, self._ahead = thing_of(command), command["op"] != "steps"
        if self._doing is not None and self._ahead:
            known = self._store.failure(*self._doing)
            self._store.note_failure(replace(known, lost=known.lost + 1))

    def ended(self) -> None:
        """It was carried out, or failed for a reason that is not this party's."""
        if self._doing is not None and self._store.failure(*self._doing).lost:
            self._store.forgive(*self._doing)
        self._doing = None

    def failed(self, error: BaseException) -> None:
        """It failed by name: it would again."""
        if self._doing is not None:
            known = self._store.failure(*self._doing)
            self._store.note_failure(replace(known, why=f"{type(error).__name__}: {error}"))
        self._doing = None

    def lost(self, error: BaseException) -> None:
        """The session ended. A lost node may be anybody's fault: three times before it counts."""
        if self._doing is None:
            return
        known = self._store.failure(*self._doing)
        known = known if self._ahead else replace(known, lost=known.lost + 1)
        if not isinstance(error, PeerLost) or known.lost >= MOST_LOST:
            known = replace(known, why=f"{type(error).__name__}: {error}")
        self._store.note_failure(known)
        self._doing = None

    def final(self, what: str, name: str, version: str = "") -> str:
        """Why something is not tried again, or nothing."""
        return self._store.failure(what, name, version).why
