"""Two owners who match their ids: what they find, what they agree on, and how they fail."""

from __future__ import annotations

import json
from functools import partial

import numpy as np
import pytest

from hdcos.errors import FrameError, HandshakeError, PeerLost
from hdcos.join import matching
from hdcos.join.ids import Rules
from hdcos.join.matching import Lookup, coarse, match
from hdcos.link import Kind
from join.owners import matched, outcomes, tried
from tls_pair import tls_pair

pytestmark = pytest.mark.usefixtures("ideal_transfers")


def digests(*numbers: int) -> np.ndarray:
    """Digests of some people, each 16 bytes."""
    words = np.zeros((len(numbers), 2), np.uint64)
    words[:, 0] = numbers
    return words.view(np.uint8)


@pytest.mark.parametrize(("here", "there"), [(range(1000), range(500, 2000)), (range(2000), range(1990, 2100))])
def test_both_find_the_same_ids_in_the_same_order(here, there) -> None:
    tables = [digests(*here), digests(*there)]
    one, other = matched(tables)
    assert one.id == other.id
    assert (one.theirs, other.theirs) == (coarse(len(there)), coarse(len(here)))
    assert np.array_equal(tables[0][one.places], tables[1][other.places])
    found = tables[0][one.places].view(np.uint64)[:, 0]
    assert set(found.tolist()) == set(here) & set(there)
    assert not np.array_equal(found, np.sort(found))


def test_the_order_is_another_one_each_time() -> None:
    tables = [digests(*range(300)), digests(*range(100, 500))]
    first, second = (matched(tables)[0] for _ in range(2))
    assert first.id != second.id
    assert sorted(first.places) == sorted(second.places)
    assert first.places.tolist() != second.places.tolist()


def test_the_order_does_not_depend_on_the_other_ids(monkeypatch) -> None:
    """With the salt fixed, two owners of quite different tables come to the same order of what they share."""
    monkeypatch.setattr(matching, "_greet", lambda link, rules, rows: known_session(link, rows))
    orders = []
    for more in (range(1000, 1050), range(5000, 7000)):
        tables = [digests(*range(50), *more), digests(*range(50), *range(10_000, 10_400))]
        one, _ = matched(tables)
        orders.append(tables[0][one.places].view(np.uint64)[:, 0].tolist())
    assert orders[0] == orders[1]


def known_session(link, rows):
    theirs = int.from_bytes(matching.exchange(link, rows.to_bytes(8, "little")), "little")
    return matching._Session(bytes(32), coarse(rows), coarse(theirs), rows < theirs)


def test_tables_that_share_nothing_match_nothing() -> None:
    assert [len(each.places) for each in matched([digests(1, 2, 3), digests(4, 5)])] == [0, 0]


def test_owners_who_compare_differently_are_told_on_both_sides() -> None:
    for error in tried([digests(1, 2), digests(1, 2)], (Rules(1), Rules(2, True))):
        assert isinstance(error, HandshakeError)
        assert "one id column, case kept" in str(error)
        assert "2 id columns, case ignored" in str(error)


def test_an_owner_who_brings_more_ids_than_the_other_allows_is_refused() -> None:
    guesses = np.arange(32_000, dtype=np.uint64).view(np.uint8).reshape(-1, 16)[:2000]
    for error in tried([guesses[:20], guesses], at_most=[1000, None]):
        assert isinstance(error, HandshakeError)
        assert "brings up to 2,048 ids where at most 1,000 are allowed (--at-most)" in str(error)


def test_an_owner_that_goes_away_in_the_middle_is_named(monkeypatch) -> None:
    def leave(link, session, items, threads):
        link.cancel()
        raise PeerLost("gone")

    monkeypatch.setattr(matching, "_send", leave)
    found = tried([digests(*range(10)), digests(*range(2000))], timeout_s=5.0)
    assert all(isinstance(error, PeerLost) for error in found)
    assert "party1" in str(found[0])


@pytest.mark.parametrize(
    "said",
    [
        b"no json",
        b"[]",
        json.dumps({"version": 1, "columns": 1, "ignore_case": 0, "rows": 1, "nonce": "00" * 32}).encode(),
        json.dumps({"version": 1, "columns": 1, "ignore_case": False, "rows": 1 << 40, "nonce": "00" * 32}).encode(),
        json.dumps({"version": 1, "columns": 1, "ignore_case": False, "rows": 1, "nonce": "00"}).encode(),
    ],
)
def test_what_is_no_greeting_is_refused(said) -> None:
    with tls_pair() as links:
        links[1].send(Kind.HELLO, said)
        with pytest.raises(FrameError, match="no greeting"):
            match(links[0], Rules(1), digests(1))


class Liar:
    """A link on which the receiver names other items than those it found."""

    def __init__(self, link) -> None:
        self._link, self._lying = link, False

    def __getattr__(self, name):
        return getattr(self._link, name)

    def send(self, kind, content) -> None:
        self._link.send(kind, content ^ np.uint8(1) if self._lying else content)
        self._lying = self._lying or len(content) == 8  # how many it found; then it names them


def test_ids_that_are_named_as_shared_must_be_here(monkeypatch) -> None:
    whole = matching._receive
    monkeypatch.setattr(matching, "_receive", lambda link, *rest: whole(Liar(link), *rest))
    found = tried([digests(*range(10)), digests(*range(2000))], timeout_s=5.0)
    assert all(isinstance(error, FrameError) for error in found)
    assert "names ids as shared that are not here" in str(found[1])


def test_rows_that_begin_alike_are_told_apart() -> None:
    rows = np.zeros((6, 12), np.uint8)
    rows[:, 11] = [5, 4, 3, 2, 1, 0]
    rows[4, 0] = 9
    asked = np.zeros((7, 12), np.uint8)
    asked[:, 11] = range(7)
    assert Lookup(rows).find(asked).tolist() == [5, -1, 3, 2, 1, 0, -1]
    assert Lookup(rows[:0]).find(asked).tolist() == [-1] * 7


@pytest.mark.parametrize(
    ("rows", "told"), [(1, 1024), (1024, 1024), (1025, 2048), (10**5, 106_496), (10**6, 1_048_576), (1 << 27, 1 << 27)]
)
def test_numbers_of_ids_are_told_rounded_up(rows, told) -> None:
    assert coarse(rows) == told
    assert coarse(told) == told
    assert told == 1024 or told <= 2048 or told <= rows * 9 / 8


def test_what_is_said_depends_on_the_rounded_numbers_alone() -> None:
    """Tables of one id and of a thousand are told apart by nothing that a wire shows."""
    seen = set()
    for here, there in ((range(3), range(2, 4)), (range(900), range(100, 1024))):
        with tls_pair() as links:
            tables = (digests(*here), digests(*there))
            found = outcomes(*(partial(match, link, Rules(1), each) for link, each in zip(links, tables, strict=True)))
            assert all(len(each.places) for each in found)
            seen.add(tuple(sorted(link.meter.total("control").bytes_sent for link in links)))
    assert len(seen) == 1
