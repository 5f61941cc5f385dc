"""A pool's executions, allotted to those who will use them: by a party that serves many clients, or by the one caller.

Rows are allotted in order but may be used in any: a client that was given the input masks of rows 7 and 8 may ask later
than one that was given 9. So material is taken out of the pool in order, what is not wanted yet is kept, and each
execution is handed out once.

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
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hmac import compare_digest
from itertools import chain, pairwise
from threading import Lock
from typing import Protocol, TypeVar

from hdcos.errors import InputError, MaterialExhausted, MaterialReused, PolicyRefused
from hdcos.offline import Allocation, MaterialPool
from hdcos.offline.material import Fields
from hdcos.party.engine import Engine
from hdcos.party.store import Store
from hdcos.ring import Array
from hdcos.sharing import derive

LEDGER_BLOCK = 4096
"""Executions that are reserved on disk at once: what a crash leaves unused of them is wasted."""
LEAST_HELD = 256
"""Masks that a client may hold unused, at least."""
BOOST_S = 600.0
GRACE_S = 60.0
"""A mask's material is kept this long after the mask was claimed or has expired: clocks and queues differ."""
Run = tuple[int, int]
"""The first of some executions, and how many."""


class Allotment(Protocol):
    """Executions of one pool, by number."""

    pool: MaterialPool

    def reserve(self, runs: Sequence[Run], mode: str) -> None:
        """These executions are about to be used, for rows that come in this mode; refused where they must not be."""

    def take(self, runs: Sequence[Run]) -> Allocation:
        """The material of executions that were reserved, in this order, each once."""

    def burn_before(self, number: int) -> None:
        """Drop what is left of executions below a number."""


A = TypeVar("A", bound=Allotment)


class CallerAllotment:
    """Executions that the one caller of a cluster numbers itself, and may run in any order: its threads do.

    Security  the input mask of an execution is handed out once, and then rows come masked by it or not at all. Each
              execution is handed out once (`Executions`).
    """

    def __init__(self, pool: MaterialPool, timeout_s: float) -> None:
        self.pool = pool
        self._executions = Executions(pool, timeout_s)
        self._issued = 0
        """Executions whose input masks were handed out."""

    def issue(self, start: int, rows: int) -> Array:
        """This party's share of the input masks of rows [start, start + rows)."""
        if start < max(self._issued, self.pool.used):
            raise MaterialReused(f"the input mask of row {start} was handed out or used before")
        if not 1 <= rows <= 1 << 24:
            raise InputError(f"masks for {rows} rows cannot be handed out at once")
        self._issued = start + rows
        return self.pool.uniform(0, start, rows)

    def reserve(self, runs: Sequence[Run], mode: str) -> None:
        ((start, count),) = runs
        self._executions.check(runs)
        if mode == "shares" and start < self._issued:
            raise MaterialReused("rows whose input masks were handed out cannot come as shares")
        if mode == "masked" and start + count > self._issued:
            raise InputError(f"the input masks of rows {start} to {start + count} were not handed out")

    def take(self, runs: Sequence[Run]) -> Allocation:
        self._executions.burn(max(self.pool.used, self._issued), min(runs)[0])  # the caller passed them over
        return self._executions.take(runs)

    def burn_before(self, number: int) -> None:
        self._executions.burn_before(number)


class Numbers:
    """Numbers that were added, above a floor that only rises; everything below the floor counts as added.

    They mostly follow each other and are kept as runs: memory grows with the gaps, not with the members.
    """

    def __init__(self) -> None:
        self.floor = 0
        self._firsts: list[int] = []
        self._ends: list[int] = []

    def meets(self, first: int, end: int) -> bool:
        """Whether a number of [first, end) is in the set."""
        place = bisect_right(self._ends, first)
        return first < self.floor or (place < len(self._firsts) and self._firsts[place] < end)

    def add(self, first: int, end: int) -> None:
        """Put [first, end) in; runs that touch become one."""
        low, high = bisect_left(self._ends, first), bisect_right(self._firsts, end)
        if low < high:
            first, end = min(first, self._firsts[low]), max(end, self._ends[high - 1])
        self._firsts[low:high], self._ends[low:high] = [first], [end]

    def raise_floor(self, floor: int) -> None:
        """Everything below is in the set from now on."""
        self.floor = max(self.floor, floor)
        gone = bisect_right(self._ends, self.floor)
        del self._firsts[:gone], self._ends[:gone]
        if self._firsts and self._firsts[0] <= self.floor:
            self.floor = self._ends.pop(0)
            del self._firsts[0]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """The runs above the floor, as [first, end)."""
        return zip(self._firsts, self._ends, strict=True)


@dataclass
class _Block:
    """Executions [first, first + count) as they came out of the pool; `left` of them are not handed out yet."""

    first: int
    count: int
    pieces: list[Fields]
    left: int


class Executions:
    """Hands out the executions of a pool by number, each once."""

    def __init__(self, pool: MaterialPool, timeout_s: float) -> None:
        self.pool, self._timeout_s = pool, timeout_s
        self._blocks: deque[_Block] = deque()
        self._spent = Numbers()

    def take(self, runs: Sequence[Run]) -> Allocation:
        """The material of these executions, in this order. MaterialReused if one was handed out or burnt before."""
        ordered = self._in_order(runs)
        self._fetch(sum(ordered[-1]))
        for first, count in ordered:
            self._spent.add(first, first + count)  # from here on they are used, whatever becomes of them
        pieces = [piece for run in runs for piece in self._cut(*run)]
        total = sum(count for _, count in runs)
        return Allocation(self.pool.plan, total, pieces, self.pool.precomputes, self.pool.device)

    def check(self, runs: Sequence[Run]) -> None:
        """Raise what `take` would raise at once, without taking anything."""
        end = sum(self._in_order(runs)[-1])
        if end > self.pool.used:
            self.pool.check(self.pool.used, end - self.pool.used)

    def _in_order(self, runs: Sequence[Run]) -> list[Run]:
        """The runs by their numbers, if all of them can still be handed out."""
        ordered = sorted(runs)
        if not ordered or any(first + count > later for (first, count), (later, _) in pairwise(ordered)):
            raise MaterialReused(f"{self.pool.name}: an execution was asked for twice, or none was")
        for first, count in ordered:
            if self._spent.meets(first, first + count):
                raise MaterialReused(f"{self.pool.name}: one of {count} executions from {first} was used before")
        return ordered

    def burn(self, first: int, end: int) -> None:
        """Drop executions [first, end), if any, which are still in the pool; those before them are kept."""
        if first < end:
            self._fetch(first)
            self.pool.begin(end - first, first, self._timeout_s)
            self._spent.add(first, end)

    def burn_before(self, number: int) -> None:
        """Drop everything below a number that was not handed out, what is still in the pool included."""
        self._spent.raise_floor(number)
        here = min(number, self.pool.filled) - self.pool.used
        if here > 0:
            self.pool.begin(here, timeout_s=self._timeout_s)
        while self._blocks and (self._blocks[0].first + self._blocks[0].count <= self._spent.floor):
            self._blocks.popleft()

    def _fetch(self, end: int) -> None:
        """Take executions out of the pool until all below `end` are here."""
        while (first := self.pool.used) < end:
            needs = self.pool.plan.needs
            for pieces in self.pool.begin(end - first, first, self._timeout_s).pieces:
                count = len(pieces[0][0]) // needs[0].units if needs else end - first
                if not count:  # of a plan without material, all pieces are alike: the first is enough
                    break
                self._blocks.append(_Block(first, count, pieces, count))
                first += count

    def _cut(self, first: int, count: int) -> Iterable[list[Fields]]:
        needs = self.pool.plan.needs
        for block in list(self._blocks):
            start, end = max(first, block.first), min(first + count, block.first + block.count)
            if start >= end:
                continue
            low, high = start - block.first, end - block.first
            yield [
                tuple(array[low * need.units : high * need.units] for array in fields)
                for need, fields in zip(needs, block.pieces, strict=True)
            ]
            block.left -= end - start
            if not block.left:
                self._blocks.remove(block)


@dataclass(frozen=True)
class Issued:
    """Masks that were handed out."""

    owner: str
    until: float


class MaterialAllotment:
    """Executions of one pool and who they were promised to. The event loop and the session's thread share it."""

    def __init__(self, pool: MaterialPool, ahead: int, ledger: Store, engine: Engine) -> None:
        self.pool, self._ahead = pool, ahead
        self.executions = Executions(pool, engine.material_s)
        self._ledger, self._lock = ledger, Lock()
        self._reserved = self._allotted = 0
        self._issued = Numbers()
        """Everything in it was handed out, or has expired, and is never handed out again."""
        self._held: dict[int, Issued] = {}
        """Masks that were handed out and not claimed yet."""
        self._claimed: deque[tuple[float, int]] = deque()
        """When masks were claimed, and the first of them: requests that may still wait."""
        self._burnt = 0
        self._boost: tuple[int, float] = (0, 0.0)
        self._key = derive(engine.pair_seed, "mask ids", pool.name)

    @property
    def ahead(self) -> int:
        """Rows whose material is kept available."""
        rows, until = self._boost
        return max(self._ahead, rows) if time.monotonic() < until else self._ahead

    @property
    def boosted(self) -> int:
        """Rows more than usual that are kept available now."""
        return self.ahead - self._ahead

    def boost(self, rows: int) -> None:
        """Keep more available for a while."""
        self._boost = (rows, time.monotonic() + BOOST_S)

    @property
    def most_rows(self) -> int:
        """Of one request: what is kept available can serve it."""
        return self._ahead

    @property
    def allotted(self) -> int:
        return self._allotted

    @property
    def free(self) -> int:
        """Rows that material is here for and that nobody was promised."""
        return max(0, self.pool.filled - max(self._allotted, self.pool.used))

    def wanted(self) -> int:
        """Executions that should be ordered in all; more are ordered when half of what is kept ahead is gone."""
        expected = self.pool.expected
        return expected if expected - self._allotted > self.ahead // 2 else self._allotted + self.ahead

    def allot(self, rows: int) -> int:
        """The first of `rows` executions that nobody was promised; for party 0 alone."""
        with self._lock:
            return self._allot(rows)

    def _allot(self, rows: int) -> int:
        if self._allotted + rows > self.pool.expected:
            raise MaterialExhausted(f"there is no material for {rows} more rows yet: try again later")
        first = self._allotted
        self._reserve(first + rows)
        return first

    def reserve(self, runs: Sequence[Run], mode: str) -> None:
        """Note on disk that these executions may be used."""
        with self._lock:
            self._reserve(max(first + count for first, count in runs))

    def take(self, runs: Sequence[Run]) -> Allocation:
        return self.executions.take(runs)

    def _reserve(self, end: int) -> None:
        if end > self._reserved:
            count = max(LEDGER_BLOCK, end - self._reserved)
            self._ledger.reserve(self.pool.name, self._reserved, count)
            self._reserved += count
        self._allotted = max(self._allotted, end)

    # ---- masks

    def hand_out(self, rows: int, owner: str, valid_s: float) -> tuple[range, Array]:
        """`rows` new masks, and this party's share of them; for party 0 alone. Who may have no more uses up none."""
        with self._lock:
            self._check_held(rows, owner)
            first = self._allot(rows)
            self._issue(first, first + rows, owner, valid_s)
        return range(first, first + rows), self.pool.uniform(0, first, rows)

    def issue(self, numbers: Sequence[int], owner: str, valid_s: float) -> Array:
        """This party's share of the input masks of consecutive executions, which party 0 handed out."""
        first, end = numbers[0], numbers[-1] + 1
        if list(numbers) != list(range(first, end)):
            raise InputError("masks are fetched as they were handed out: one after another")
        with self._lock:
            if first < 0 or end > self.pool.expected + 2 * self.ahead:
                raise InputError("these masks do not exist")
            if self._issued.meets(first, end):
                raise MaterialReused("one of these masks was handed out before")
            self._check_held(len(numbers), owner)
            self._reserve(end)
            self._issue(first, end, owner, valid_s)
        return self.pool.uniform(0, first, len(numbers))

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
        return f"{number:x}.{self._tag(f'{number:x}')}"

    def numbers(self, mask_ids: Sequence[str]) -> list[int]:
        """The executions that mask ids name; ids that party 0 did not make are refused."""
        found = []
        for mask_id in mask_ids:
            text, _, tag = mask_id.partition(".")
            if (
                not mask_id.isascii()
                or len(text) > 12
                or not text.isalnum()
                or not compare_digest(tag.encode(), self._tag(text).encode())
            ):
                raise MaterialReused("these masks belong to another model, version or session: fetch new ones")
            found.append(int(text, 16))
        return found

    def _tag(self, text: str) -> str:
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
        """Drop what is left of executions below a number: nobody gets them, or their masks, any more.

        Party 0 asks what has expired, party 1 only hears of it here: it forgets old claims now as well.
        """
        with self._lock:
            self._forget_claims(time.monotonic() - GRACE_S)
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


def split_runs(runs: Sequence[Run], sizes: Sequence[int]) -> list[list[Run]]:
    """Runs cut into parts of these sizes."""
    parts: list[list[Run]] = []
    rest = list(runs)
    for size in sizes:
        part: list[Run] = []
        while size:
            first, count = rest[0]
            taken = min(size, count)
            part.append((first, taken))
            rest[0] = (first + taken, count - taken)
            if taken == count:
                rest.pop(0)
            size -= taken
        parts.append(part)
    return parts
