"""A model's material for one way in which rows come, shares or masked, allotted row by row.

Security  an execution whose input mask may be handed out is never used for rows that come as shares: the two ways have
          scopes of their own. Otherwise a party that is also a client could ask the other party for the mask of
          somebody else's row. A mask is handed out once and claimed once, by the client it was handed to. Its id
          carries a tag made with a key that only the two parties have, so party 1 hands out its share of a mask only
          for ids that party 0 allotted. What was handed out is remembered as runs of numbers, what has expired as one
          number below which nothing is handed out: memory does not grow with the rows that were served.
"""

from __future__ import annotations

import hashlib
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from hmac import compare_digest
from itertools import chain
from threading import Lock

from hdcos.errors import InputError, MaterialExhausted, MaterialReused, PolicyRefused
from hdcos.offline import MaterialPool
from hdcos.party.engine import Engine
from hdcos.party.executions import Executions, Numbers, Run
from hdcos.party.store import Store
from hdcos.ring import Array
from hdcos.sharing import derive

LEDGER_BLOCK = 4096
"""Executions that are reserved on disk at once: what a crash leaves unused of them is wasted."""
LEAST_AHEAD, MOST_AHEAD = 2, 8192
LEAST_HELD = 256
"""Masks that a client may hold unused, at least."""
BOOST_S = 600.0
GRACE_S = 60.0
"""A mask's material is kept this long after the mask was claimed or has expired: clocks and queues differ."""


@dataclass(frozen=True)
class Issued:
    """Masks that were handed out."""

    owner: str
    until: float


class MaterialAllotment:
    """Executions of one stock and who they were promised to. The event loop and the session's thread share it."""

    def __init__(self, stock: MaterialPool, ahead: int, store: Store, engine: Engine) -> None:
        self.stock, self._ahead = stock, ahead
        self.executions = Executions(stock, engine.timeout_s)
        self._store, self._lock = store, Lock()
        self._reserved = self._allotted = 0
        self._issued = Numbers()
        """Everything in it was handed out, or has expired, and is never handed out again."""
        self._held: dict[int, Issued] = {}
        """Masks that were handed out and not claimed yet."""
        self._claimed: deque[tuple[float, int]] = deque()
        """When masks were claimed, and the first of them: requests that may still wait."""
        self._burnt = 0
        self._boost: tuple[int, float] = (0, 0.0)
        self._key = derive(engine.pair_seed, "mask ids", stock.name)

    @property
    def ahead(self) -> int:
        """Rows whose material is kept in stock."""
        rows, until = self._boost
        return max(self._ahead, rows) if time.monotonic() < until else self._ahead

    @property
    def boosted(self) -> int:
        """Rows more than usual that are kept in stock now."""
        return self.ahead - self._ahead

    def boost(self, rows: int) -> None:
        """Keep more in stock for a while."""
        self._boost = (rows, time.monotonic() + BOOST_S)

    @property
    def most_rows(self) -> int:
        """Of one request: what is kept in stock can serve it."""
        return self._ahead

    @property
    def allotted(self) -> int:
        return self._allotted

    @property
    def free(self) -> int:
        """Rows that material is here for and that nobody was promised."""
        return max(0, self.stock.filled - max(self._allotted, self.stock.used))

    def wanted(self) -> int:
        """Executions that should be ordered in all; more are ordered when half of what is kept ahead is gone."""
        expected = self.stock.expected
        return expected if expected - self._allotted > self.ahead // 2 else self._allotted + self.ahead

    def allot(self, rows: int) -> int:
        """The first of `rows` executions that nobody was promised; for party 0 alone."""
        with self._lock:
            return self._allot(rows)

    def _allot(self, rows: int) -> int:
        if self._allotted + rows > self.stock.expected:
            raise MaterialExhausted(f"there is no material for {rows} more rows yet: try again later")
        first = self._allotted
        self._reserve(first + rows)
        return first

    def reserve(self, end: int) -> None:
        """Note on disk that executions below `end` may be used."""
        with self._lock:
            self._reserve(end)

    def _reserve(self, end: int) -> None:
        if end > self._reserved:
            count = max(LEDGER_BLOCK, end - self._reserved)
            self._store.reserve(self.stock.name, self._reserved, count)
            self._reserved += count
        self._allotted = max(self._allotted, end)

    # ---- masks

    def hand_out(self, rows: int, owner: str, valid_s: float) -> tuple[range, Array]:
        """`rows` new masks, and this party's share of them; for party 0 alone. Who may have no more uses up none."""
        with self._lock:
            self._check_held(rows, owner)
            first = self._allot(rows)
            self._issue(first, first + rows, owner, valid_s)
        return range(first, first + rows), self.stock.uniform(0, first, rows)

    def issue(self, numbers: Sequence[int], owner: str, valid_s: float) -> Array:
        """This party's share of the input masks of consecutive executions, which party 0 handed out."""
        first, end = numbers[0], numbers[-1] + 1
        if list(numbers) != list(range(first, end)):
            raise InputError("masks are fetched as they were handed out: one after another")
        with self._lock:
            if first < 0 or end > self.stock.expected + 2 * self.ahead:
                raise InputError("these masks do not exist")
            if self._issued.meets(first, end):
                raise MaterialReused("one of these masks was handed out before")
            self._check_held(len(numbers), owner)
            self._reserve(end)
            self._issue(first, end, owner, valid_s)
        return self.stock.uniform(0, first, len(numbers))

    def _check_held(self, rows: int, owner: str) -> None:
        now = time.monotonic()
        held = sum(one.owner == owner and one.until > now for one in self._held.values())
        if held + rows > max(LEAST_HELD, self._ahead // 2):
            raise PolicyRefused(f"{held} masks that this client holds are not used yet: use them first")

    def _issue(self, first: int, end: int, owner: str, valid_s: float) -> None:
        self._issued.add(first, end)
        self._held.update(dict.fromkeys(range(first, end), Issued(owner, time.monotonic() + valid_s)))

    def claim(self, numbers: Sequence[int], owner: str) -> None:
        """Take masks for a request. A mask that is unknown, expired, another client's or claimed before is refused."""
        now = time.monotonic()
        with self._lock:
            if len(set(numbers)) != len(numbers):
                raise MaterialReused("a mask is named twice in one request")
            for number in numbers:
                issued = self._held.get(number)
                if issued is None or issued.owner != owner:
                    raise MaterialReused("one of these masks was not handed out to this client, or was used before")
                if issued.until < now:
                    raise MaterialReused("one of these masks has expired: fetch new ones")
            for number in numbers:
                del self._held[number]
            self._claimed.append((now, min(numbers)))
            self._forget_claims(now - GRACE_S)

    def _forget_claims(self, limit: float) -> None:
        while self._claimed and self._claimed[0][0] <= limit:
            self._claimed.popleft()

    def mask_id(self, number: int) -> str:
        return f"{number:x}.{self._tag(number)}"

    def numbers(self, mask_ids: Sequence[str]) -> list[int]:
        """The executions that mask ids name; ids that party 0 did not make are refused."""
        found = []
        for mask_id in mask_ids:
            text, _, tag = mask_id.partition(".")
            if (
                not mask_id.isascii()
                or len(text) > 12
                or not text.isalnum()
                or not compare_digest(tag.encode(), self._tag_of(text).encode())
            ):
                raise MaterialReused("these masks belong to another model, version or session: fetch new ones")
            found.append(int(text, 16))
        return found

    def _tag(self, number: int) -> str:
        return self._tag_of(f"{number:x}")

    def _tag_of(self, text: str) -> str:
        return hashlib.blake2b(text.encode(), key=self._key, digest_size=12).hexdigest()

    def expired_before(self) -> int:
        """The number below which every mask was claimed or has expired long ago."""
        limit = time.monotonic() - GRACE_S
        with self._lock:
            self._forget_claims(limit)
            held = (number for number, issued in self._held.items() if issued.until > limit)
            claimed = (first for _, first in self._claimed)
            return min(chain(held, claimed), default=self._allotted)

    def burn_before(self, number: int) -> None:
        """Drop what is left of executions below a number: nobody gets them, or their masks, any more."""
        if number > self._burnt:
            with self._lock:
                self._reserve(number)
                self._burnt = number
                self._issued.raise_floor(number)
                self._held = {key: value for key, value in self._held.items() if key >= number}
            self.executions.burn_before(number)


def runs_of(numbers: Sequence[int]) -> tuple[Run, ...]:
    """Numbers as runs of consecutive ones, in their order."""
    runs: list[Run] = []
    for number in numbers:
        if runs and number == runs[-1][0] + runs[-1][1]:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((number, 1))
    return tuple(runs)
