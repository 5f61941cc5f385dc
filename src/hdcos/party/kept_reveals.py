"""Models that clients ask to see in plaintext: who asked, what the operator decided, and what was released.

What waits keeps the version it was asked for, so what waits is limited, of each client: both operators approve it, one
of them refuses it for both parties, or it is forgotten after a while. Of what was decided the last are kept, with the
shares that were released.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from safetensors.numpy import save as to_bytes

from hdcos.errors import InputError, PolicyRefused
from hdcos.files import write_whole
from hdcos.party.checkpoint import read_words
from hdcos.party.kept_data import DAY_S, KeptData
from hdcos.ring import Array

PENDING = ("waiting", "approved")
"""States of reveals that this party or the other one has not done with."""
MOST_PENDING = MOST_DECIDED = 16
"""Of one client."""
PENDING_S = 30 * DAY_S
BEFORE = {"approved": ("waiting",), "refused": PENDING, "released": ("approved",)}
"""What a reveal may be before it becomes that. An operator who approved may refuse for as long as nothing was released:
the other one may never decide."""


@dataclass(frozen=True)
class StoredReveal:
    id: str
    model: str
    version: str
    owner: str
    state: str


class KeptReveals(KeptData):
    """The reveals of one party. Any thread may use it."""

    def keep_reveal(self, reveal: StoredReveal) -> None:
        known = f"a reveal with the id {reveal.id} was asked for before"
        if self._rows("SELECT 1 FROM reveals WHERE id = ?", reveal.id):
            raise InputError(known)
        with self._changing() as database:
            wanted = f"SELECT count(*) FROM reveals WHERE owner = ? AND state IN {PENDING}"
            if self._rows(wanted, reveal.owner)[0][0] >= MOST_PENDING:
                raise PolicyRefused(
                    f"{MOST_PENDING} models that {reveal.owner} asked to reveal wait for a decision: the operators of "
                    f"both parties approve or refuse them first (`hdcos approve list`)"
                )
            self._insert(database, "reveals", known, **asdict(reveal), created=time.time())
        self._forget_reveals(
            f"owner = ? AND state NOT IN {PENDING} ORDER BY created DESC LIMIT -1 OFFSET ?", reveal.owner, MOST_DECIDED
        )

    def forget_undecided(self) -> None:
        """Forget what nobody decided for so long, or only one of the parties."""
        self._forget_reveals(f"state IN {PENDING} AND created < ?", time.time() - PENDING_S)

    def _forget_reveals(self, condition: str, *values: str | float) -> None:
        gone = [row["id"] for row in self._rows(f"SELECT id FROM reveals WHERE {condition}", *values)]
        if not gone:
            return
        with self._changing(needed=True) as database:
            for reveal in gone:
                self._delete(database, "reveals", id=reveal)
        for reveal in gone:
            self._released_path(reveal).unlink(missing_ok=True)

    def reveals(self) -> list[StoredReveal]:
        return self._records(StoredReveal, "reveals")

    def reveal(self, reveal: str) -> StoredReveal:
        return self._record(StoredReveal, "reveals", f"no reveal has the id {reveal}", id=reveal)

    def decide_reveal(self, reveal: str, state: str) -> None:
        """What the operator, or both parties, decided."""
        now = self.reveal(reveal).state
        if not self._decide(reveal, state):
            raise InputError(f"reveal {reveal} is {now} already")

    def withhold(self, reveal: str) -> None:
        """The operator of one of the parties refused: nothing is to be decided any more."""
        self._decide(reveal, "refused", needed=True)

    def _decide(self, reveal: str, state: str, needed: bool = False) -> bool:
        before = BEFORE[state]
        places = ", ".join("?" * len(before))
        wanted = f"UPDATE reveals SET state = ? WHERE id = ? AND state IN ({places})"
        with self._changing(needed=needed) as database:
            return bool(database.execute(wanted, (state, reveal, *before)).rowcount)

    def release(self, reveal: str, words: Mapping[str, Array]) -> None:
        self._folder("reveals")
        write_whole(self._released_path(reveal), to_bytes(dict(words)))
        self.decide_reveal(reveal, "released")

    def released_words(self, reveal: str) -> dict[str, Array]:
        return read_words(self._released_path(reveal))

    def _released_path(self, reveal: str) -> Path:
        return self.folder / "reveals" / f"{reveal}.safetensors"
