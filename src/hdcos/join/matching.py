"""What two owners say to each other until both know which of their ids are the same, and in which order they come.

Computes  each owner's digests -> both: which of its own are the other's, too, in an order that both know.
Online    hellos; base transfers; from the receiver (the owner of fewer rows) 83 bytes a row; from the sender 36 bytes a
          row; the shared ids, 16 bytes for each row of the receiver; a confirmation each way. Pieces of 1 MiB at most.
Error     an id is taken for shared by mistake with a chance of rows * rows / 2^96; a table cannot be made with a chance
          below 2^-40, which ends the session with an error.
Security  both learn the shared ids, and the number of the other's ids rounded up, to 1024 or by up to an eighth: all
          that is said is filled up to that number, with random items, values and zeros. Semi-honest owners.
          The receiver puts its items into a cuckoo table of three parts, one hash function each, and every bin, empty
          or not, becomes an oblivious pseudorandom function of an item (`oprf`: what the sender sees is uniform). The
          sender sends the values of each of its items in its three bins, in three lists, each in a random order of its
          own. Of an item that the receiver does not have they are hashes of inputs that the receiver cannot know:
          uniform to it. Which list a shared item was found in depends on the receiver's other items, so it is not told:
          the receiver names shared items by their salted hash, and the sender knows those hashes, they are its own.
          The order is that of another hash of the shared items with a salt of this session: random, and the same
          function of the shared items whatever else either owner has.

The salt comes from random bytes of both owners.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import numpy as np

from hdcos.errors import FrameError, HandshakeError, HdcosError, InputError
from hdcos.join.ids import DIGEST_BYTES, Rules
from hdcos.join.oprf import RECEIVER_BYTES, SENDER_BYTES, Receiver, Sender, hash_rows, loops
from hdcos.join.reference import GROUP, ITEM_BYTES, ROW_BYTES, VALUE_BYTES
from hdcos.link import Kind, Link
from hdcos.ring import Array

VERSION = 1
MOST_ROWS = 1 << 27
PIECE_BYTES = 1 << 20
ROOM = 1.3
"""Bins for each item: at 1.27 or more three hash functions leave nothing over but with a chance below 2^-40."""
LEAST_TOLD = 1024
LEAST_BINS = 1024
"""In each part, so that this holds for short tables: four items must not meet in the same three bins."""
MOST_MOVES = 10_000
HELLO_BYTES = 4096
AHEAD = 8
"""Pieces that are computed, or wait for that, while the first of them is sent."""
T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class Match:
    """What one owner knows at the end."""

    id: str
    """Of the join: drawn by both, 32 hexadecimal digits."""
    theirs: int
    """How many ids the other owner has at most."""
    places: Array = field(repr=False)
    """Which of its own ids are shared, in the common order; perhaps none."""


@dataclass(frozen=True)
class _Session:
    """What both owners know when they have greeted."""

    salt: bytes
    mine: int
    """Ids of this owner, rounded up; those of the other likewise."""
    theirs: int
    receives: bool

    @property
    def id(self) -> str:
        return hashlib.sha256(b"hdcos join id" + self.salt).hexdigest()[:32]

    def hash(self, rows: Array, what: str) -> Array:
        return hash_rows(rows, np.zeros(len(rows), np.uint64), self.salt, what, ITEM_BYTES)


def match(link: Link, rules: Rules, digests: Array, workers: int | None = None, at_most: int | None = None) -> Match:
    """Find the ids that both owners have. Both call it, each with its own.

    `at_most` is how many ids this owner believes the other to have: one who brings more may be trying ids.
    """
    if not 1 <= len(digests) <= MOST_ROWS or digests.shape[1] != DIGEST_BYTES:
        raise InputError(f"a join takes 1 to {MOST_ROWS:,} ids")  # the other owner reads this: no number of ours
    session = _greet(link, rules, len(digests))
    _check_number(link, session, at_most)
    items = session.hash(digests, "item")
    with ThreadPoolExecutor(workers or os.cpu_count() or 1, thread_name_prefix="join") as threads:
        side = _receive if session.receives else _send
        places = side(link, session, items, threads)
    mine = hashlib.sha256(b"hdcos join order" + session.salt + items[places].tobytes()).digest()
    if exchange(link, mine) != mine:
        raise FrameError(f"{link.peer} came to another order of the shared ids: both must run the join again")
    return Match(session.id, session.theirs, places)


def exchange(link: Link, mine: bytes) -> bytes:
    """Some bytes each way."""
    return link.exchange([mine]).tobytes()


# ---- hello


def _greet(link: Link, rules: Rules, rows: int) -> _Session:
    """Both say what they are about to do, and draw the salt."""
    nonce, rows = os.urandom(32), coarse(rows)
    mine = {"version": VERSION, "columns": rules.columns, "ignore_case": rules.ignore_case, "rows": rows}
    link.send(Kind.HELLO, json.dumps({**mine, "nonce": nonce.hex()}).encode())
    _, said = link.receive(Kind.HELLO, limit=HELLO_BYTES)
    theirs = _read_hello(said.tobytes())
    if theirs["version"] != VERSION:
        raise HandshakeError(f"{link.peer} joins by version {theirs['version']}: install the same hdcos on both sides")
    other = Rules(theirs["columns"], theirs["ignore_case"])
    if other != rules:
        raise HandshakeError(
            f"the owners join by different rules: {rules} here, {other} at {link.peer}. Give both the same number of "
            f"--id, in the same order, and --ignore-case to both or to none"
        )
    drawn = [nonce, bytes.fromhex(theirs["nonce"])]
    if drawn[0] == drawn[1]:
        raise HandshakeError("this owner is talking to itself")
    counts = json.dumps(sorted([(nonce.hex(), rows), (theirs["nonce"], theirs["rows"])]))
    salt = hashlib.sha256(b"hdcos join salt" + rules.digest.encode() + counts.encode()).digest()
    return _Session(salt, rows, theirs["rows"], (rows, drawn[0]) < (theirs["rows"], drawn[1]))


def _check_number(link: Link, session: _Session, at_most: int | None) -> None:
    if at_most is not None and session.theirs > coarse(at_most):
        raise HandshakeError(
            f"{link.peer} brings up to {session.theirs:,} ids where at most {at_most:,} are allowed (--at-most): ask "
            f"what they are, or join again with a higher number; nothing was compared"
        )


def _read_hello(said: bytes) -> dict[str, Any]:
    kinds = {"version": int, "columns": int, "ignore_case": bool, "rows": int, "nonce": str}
    try:
        hello = json.loads(said)
        if set(hello) != set(kinds) or any(type(hello[name]) is not kind for name, kind in kinds.items()):
            raise ValueError("fields")
        if not 1 <= hello["rows"] <= coarse(MOST_ROWS) or len(bytes.fromhex(hello["nonce"])) != 32:
            raise ValueError("numbers")
    except (ValueError, TypeError, RecursionError) as error:
        raise FrameError(f"what came is no greeting of an owner that joins ({type(error).__name__})") from None
    return dict(hello)


def coarse(rows: int) -> int:
    """A number of ids as the other owner is told it: rounded up by at most an eighth, and to LEAST_TOLD."""
    step = max(LEAST_TOLD, 1 << max(0, rows.bit_length() - 4))
    return -(-rows // step) * step


# ---- the cuckoo table


def bins_each(rows: int) -> int:
    """Bins of each of the three parts of a table, in groups as rows are made."""
    return -(-max(LEAST_BINS, int(ROOM * rows / 3)) // GROUP) * GROUP


def choose_bins(items: Array, each: int) -> Array:
    """The three bins of each item, one in each part."""
    words = items.view("<u4")[:, :3].astype(np.uint64)
    chosen: Array = (words * np.uint64(each) >> np.uint64(32)) + np.arange(3, dtype=np.uint64) * np.uint64(each)
    return chosen


def _fill_table(items: Array, each: int) -> Array:
    table = np.full(3 * each, -1, np.int64)
    if not loops().place(choose_bins(items, each), table, int.from_bytes(os.urandom(8), "little"), MOST_MOVES):
        raise HdcosError("no table holds these ids under the salt that was drawn, which is very rare: join again")
    return table


# ---- both sides


def _receive(link: Link, session: _Session, items: Array, threads: ThreadPoolExecutor) -> Array:
    """The side with the table, which finds what is shared and tells."""
    side = Receiver(session.salt)
    link.send(Kind.REQUEST, side.message)
    side.start(_take(link, SENDER_BYTES).tobytes())
    each = bins_each(session.mine)
    table = _fill_table(items, each)
    content = np.frombuffer(bytearray(os.urandom(ITEM_BYTES * len(table))), np.uint8).reshape(-1, ITEM_BYTES)
    taken = table >= 0
    content[taken] = items[table[taken]]  # empty bins keep items that nobody has
    values = np.empty((len(table), VALUE_BYTES), np.uint8)

    def make(piece: slice) -> tuple[slice, Array, Array]:
        return piece, *side.rows(content[piece], piece.start)

    for piece, u, made in in_turn(threads, make, _slices(len(table), PIECE_BYTES // ROW_BYTES)):
        link.send(Kind.REQUEST, u)
        values[piece] = made
    shared = np.zeros(len(items), bool)
    for part in range(3):
        places = part * each + np.flatnonzero(taken[part * each : (part + 1) * each])
        lookup = Lookup(values[places])
        for piece in _slices(session.theirs, PIECE_BYTES // VALUE_BYTES):
            found = lookup.find(_take(link, VALUE_BYTES * (piece.stop - piece.start)).reshape(-1, VALUE_BYTES))
            shared[table[places[found[found >= 0]]]] = True
    places = np.flatnonzero(shared)
    keys = session.hash(items[places], "order").view(">u8")
    places = places[np.lexsort((keys[:, 1], keys[:, 0]))]
    told = np.zeros((session.mine, ITEM_BYTES), np.uint8)
    told[: len(places)] = items[places]
    link.send(Kind.REQUEST, len(places).to_bytes(8, "little"))
    for piece in _slices(len(told), PIECE_BYTES // ITEM_BYTES):
        link.send(Kind.REQUEST, told[piece])
    return places


def _send(link: Link, session: _Session, items: Array, threads: ThreadPoolExecutor) -> Array:
    """The side without a table, which is told what is shared."""
    side = Sender(session.salt)
    answer = _take(link, RECEIVER_BYTES).tobytes()
    link.send(Kind.REQUEST, side.message)
    side.start(answer)
    each = bins_each(session.theirs)
    q = np.empty((3 * each, ROW_BYTES), np.uint8)

    def keep(came: tuple[slice, Array]) -> None:
        piece, u = came
        q[piece] = side.rows(u, piece.start)

    pieces = _slices(len(q), PIECE_BYTES // ROW_BYTES)
    coming = ((piece, _take(link, ROW_BYTES * (piece.stop - piece.start))) for piece in pieces)
    for _ in in_turn(threads, keep, coming):
        pass
    bins = choose_bins(items, each)
    for part in range(3):
        # Ties of 64 random bits keep their order: rare, and between two rows that only this owner knows.
        order = np.argsort(np.frombuffer(os.urandom(8 * session.mine), np.uint64))
        evaluate = partial(_evaluate, side, q, items, bins[:, part], order)
        for values in in_turn(threads, evaluate, _slices(len(order), PIECE_BYTES // VALUE_BYTES)):
            link.send(Kind.REQUEST, values)
    count = int.from_bytes(_take(link, 8).tobytes(), "little")
    told = [
        _take(link, ITEM_BYTES * (piece.stop - piece.start))
        for piece in _slices(session.theirs, PIECE_BYTES // ITEM_BYTES)
    ]
    if count > min(len(items), session.theirs):
        raise FrameError(f"{link.peer} names more shared ids than there can be")  # it reads this: no number of ours
    places = Lookup(items).find(np.concatenate(told).reshape(-1, ITEM_BYTES)[:count])
    if (places < 0).any() or len(np.unique(places)) != count:
        raise FrameError(f"{link.peer} names ids as shared that are not here, or one twice")
    return places


def _evaluate(side: Sender, q: Array, items: Array, bins: Array, order: Array, piece: slice) -> Array:
    """Values of a piece of the items in some order; places behind the last item get random ones."""
    places = order[piece]
    values = np.frombuffer(bytearray(os.urandom(VALUE_BYTES * len(places))), np.uint8).reshape(-1, VALUE_BYTES)
    real = places < len(items)
    values[real] = side.values(q, items[places[real]], bins[places[real]])
    return values


class Lookup:
    """Finds rows of bytes, at least eight each, among others."""

    def __init__(self, rows: Array) -> None:
        keys = _keys(rows)
        self._order = np.argsort(keys, kind="stable")
        self._keys, self._rows = keys[self._order], rows[self._order]
        starts = np.flatnonzero(np.r_[True, self._keys[1:] != self._keys[:-1], True]) if len(rows) else np.zeros(1, int)
        self._longest = int(np.diff(starts).max(initial=0))
        """Rows that begin with the same eight bytes."""

    def find(self, rows: Array) -> Array:
        """The place of each row, or -1."""
        keys, found = _keys(rows), np.full(len(rows), -1, np.int64)
        start = np.searchsorted(self._keys, keys)
        for step in range(self._longest):
            place = np.minimum(start + step, len(self._keys) - 1)
            near = np.flatnonzero(self._keys[place] == keys)
            same = near[(self._rows[place[near]] == rows[near]).all(1)]
            found[same] = self._order[place[same]]
        return found


def _keys(rows: Array) -> Array:
    return np.ascontiguousarray(rows[:, :8]).view("<u8").reshape(-1)


def _take(link: Link, size: int) -> Array:
    _, content = link.receive(Kind.REQUEST, expected_bytes=size)
    return content


def _slices(count: int, at_once: int) -> Iterator[slice]:
    return (slice(start, min(start + at_once, count)) for start in range(0, count, at_once))


def in_turn(threads: ThreadPoolExecutor, work: Callable[[T], R], arguments: Iterable[T]) -> Iterator[R]:
    """Results in order, computed in threads, of which only a few wait at a time."""
    ahead: deque[Future[R]] = deque()
    for argument in arguments:
        ahead.append(threads.submit(work, argument))
        if len(ahead) > AHEAD:
            yield ahead.popleft().result()
    while ahead:
        yield ahead.popleft().result()
