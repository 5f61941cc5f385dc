"""Sums of several owners at one party: nobody's alone, nobody twice, nobody else, and only what all agreed on."""

from __future__ import annotations

import secrets

import numpy as np
import pytest

from chi_square import p_value
from hdcos.errors import DataMissing, InputError, PolicyRefused
from hdcos.party import tallies
from hdcos.party.tallies import Agreement, Tallies
from hdcos.sharing.wide import join_wide, split_wide

AGREED = Agreement("0" * 64, 2, 3)


class Owner:
    """One owner, who talks to both parties."""

    def __init__(self, parties, client, numbers=(5, -7)):
        self.parties, self.client, self.id = parties, client, secrets.token_hex(16)
        self.shares = split_wide(numbers)

    def contribute(self, agreement=AGREED, name="adult"):
        known = (name, self.client, self.id, agreement)
        return [party.contribute(*known, share) for party, share in zip(self.parties, self.shares, strict=True)]

    def total(self, name="adult"):
        (_, zero), (_, one) = (party.take(name, self.client) for party in self.parties)
        return join_wide(zero, one)


@pytest.fixture
def parties():
    return Tallies(), Tallies()


def owners(parties, *clients):
    return [Owner(parties, client, (10**50 + place, -place)) for place, client in enumerate(clients)]


def test_all_owners_are_told_the_total_when_all_have_contributed(parties) -> None:
    north, south, east = owners(parties, "north", "south", "east")
    assert [tally["complete"] for tally in north.contribute() + south.contribute()] == [False] * 4
    for party in parties:
        with pytest.raises(PolicyRefused, match="2 of 3 owners have contributed to 'adult': until all have"):
            party.take("adult", "north")
    seen = east.contribute()
    assert seen[0] == seen[1]
    assert seen[0]["contributed"] == ["east", "north", "south"]
    assert seen[0]["complete"]
    for owner in (north, south, east, north):
        assert owner.total() == [3 * 10**50 + 3, -3]


def test_who_did_not_contribute_is_told_nothing(parties) -> None:
    for owner in owners(parties, "north", "south", "east"):
        owner.contribute()
    for ask in (parties[0].look, parties[0].take, parties[0].withdraw):
        with pytest.raises(DataMissing, match="eve has no part in statistics named 'adult'"):
            ask("adult", "eve")


def test_nobody_contributes_twice_but_an_answer_may_get_lost(parties) -> None:
    north, south, east = owners(parties, "north", "south", "east")
    north.contribute()
    north.contribute()  # the same once more
    with pytest.raises(PolicyRefused, match=r"north has contributed to 'adult' already: .*--collect.*--withdraw"):
        Owner(parties, "north").contribute()
    south.contribute()
    east.contribute()
    assert north.total() == [3 * 10**50 + 3, -3]
    with pytest.raises(PolicyRefused, match="north has contributed to 'adult' already: collect"):
        Owner(parties, "north").contribute()
    with pytest.raises(PolicyRefused, match="is complete with"):
        Owner(parties, "west").contribute()


def test_owners_who_mean_something_else_are_told_who_began(parties) -> None:
    owners(parties, "north")[0].contribute()
    south = Owner(parties, "south")
    with pytest.raises(InputError, match="north began 'adult' with another declaration of columns than that of south"):
        south.contribute(Agreement("1" * 64, 2, 3))
    with pytest.raises(InputError, match="north began 'adult' for 3 owners, south says 2 owners: agree on"):
        south.contribute(Agreement("0" * 64, 2, 2))
    with pytest.raises(InputError, match="a share of 3 numbers"):
        south.contribute(Agreement("0" * 64, 3, 3))


def test_named_owners_are_the_only_ones(parties) -> None:
    named = Agreement("0" * 64, 2, 2, ("north", "south"))
    north, south, eve = owners(parties, "north", "south", "eve")
    with pytest.raises(PolicyRefused, match="eve is none of the owners who are named for 'adult'"):
        eve.contribute(named)
    north.contribute(named)
    with pytest.raises(PolicyRefused, match="eve is none of the owners who are named for 'adult'"):
        eve.contribute(named)
    with pytest.raises(InputError, match=r"for 2 owners \(north, south\), south says 2 owners: agree on"):
        south.contribute(Agreement("0" * 64, 2, 2))
    south.contribute(named)
    assert south.total() == [2 * 10**50 + 1, -1]


@pytest.mark.parametrize(
    ("owners", "clients", "numbers"),
    [(1, (), 2), (2, ("north",), 2), (2, ("north", "north"), 2), (2, (), 1 << 17), (2, (), 0)],
)
def test_no_agreement_tells_one_owner_alone(owners, clients, numbers) -> None:
    with pytest.raises(InputError):
        Agreement("0" * 64, numbers, owners, clients)


def test_a_contribution_is_withdrawn_until_somebody_was_told(parties) -> None:
    agreed = Agreement("0" * 64, 2, 2)
    north, south = owners(parties, "north", "south")
    north.contribute(agreed)
    for party in parties:
        party.withdraw("adult", "north")
        with pytest.raises(DataMissing):
            party.look("adult", "north")
    again = Owner(parties, "north", (1, 1))
    again.contribute(agreed)
    south.contribute(agreed)
    assert south.total() == [10**50 + 2, 0]
    with pytest.raises(PolicyRefused, match="have been told"):
        parties[0].withdraw("adult", "north")


def test_what_nobody_asks_for_is_forgotten(parties, monkeypatch) -> None:
    north = owners(parties, "north")[0]
    north.contribute()
    monkeypatch.setattr(tallies, "FORGET_S", -1.0)
    with pytest.raises(DataMissing, match="or forgotten"):
        parties[0].look("adult", "north")


def test_a_client_begins_a_limited_number(parties) -> None:
    north = owners(parties, "north")[0]
    for number in range(tallies.MOST_TALLIES):
        north.contribute(name=f"t{number}")
    with pytest.raises(PolicyRefused, match="has a part in 16 tallies"):
        north.contribute(name="more")


def test_the_totals_shares_are_uniform_whatever_the_numbers_are(parties) -> None:
    """What a party gives an owner must say nothing but the total: with the total fixed, either share is uniform."""
    numbers = 1500
    agreed = Agreement("0" * 64, numbers, 2)
    for client, value in (("north", 12), ("south", -12)):
        Owner(parties, client, [value] * numbers).contribute(agreed)
    for party in parties:
        share = party.take("adult", "north")[1]
        for place in (0, 31, 63):
            counts = np.bincount(share.view(np.uint8).reshape(-1, 64)[:, place], minlength=256)
            assert p_value(counts) > 1e-6


def test_all_that_waits_together_is_bounded_and_comes_again_when_some_is_gone(parties, monkeypatch) -> None:
    monkeypatch.setattr(tallies, "MOST_BYTES", 5 * 2 * 64)
    first = owners(parties, *(f"client{number}" for number in range(5)))
    for number, owner in enumerate(first):
        owner.contribute(name=f"t{number}")
    late = Owner(parties, "late")
    for name in ("t0", "another"):
        with pytest.raises(PolicyRefused, match="statistics of 640 bytes wait here, 640 may: try again later"):
            late.contribute(name=name)
    first[0].contribute(name="t0")  # the same once more takes nothing
    for party in parties:
        party.withdraw("t1", "client1")
    late.contribute(name="t0")
