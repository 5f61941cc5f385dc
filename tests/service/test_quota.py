"""Rows that a party answers for a model: counted by each party, on disk, for all clients together."""

from __future__ import annotations

import sqlite3

import pytest

from hdcos.errors import DataMissing, PolicyRefused
from hdcos.service.config import QUERIES_PER_MODEL, Config
from hdcos.service.quota import BLOCK, Quota
from hdcos.service.store import Store


@pytest.fixture
def store(tmp_path):
    opened = Store(tmp_path / "state")
    yield opened
    opened.close()


def test_rows_are_counted_until_the_quota_is_used_up(store) -> None:
    quota = Quota(store, 100)
    for _ in range(4):
        quota.take("m", 25)
    with pytest.raises(
        PolicyRefused, match=r"100 of the 100 rows .* for m are used up, 1 more .*hdcos quota m --reset"
    ):
        quota.take("m", 1)
    quota.take("other", 100)
    assert (quota.used("m"), quota.used("other"), quota.used("none")) == (100, 100, 0)


def test_a_request_that_does_not_fit_takes_nothing(store) -> None:
    quota = Quota(store, 100)
    quota.take("m", 60)
    with pytest.raises(PolicyRefused):
        quota.take("m", 41)
    quota.take("m", 40)


def test_rows_that_were_never_computed_are_given_back(store) -> None:
    quota = Quota(store, 10)
    quota.take("m", 10)
    quota.give_back("m", 4)
    assert quota.used("m") == 6
    quota.take("m", 4)
    with pytest.raises(PolicyRefused):
        quota.take("m", 1)


def test_a_crash_counts_too_many_rows_and_never_too_few(store) -> None:
    most = 2 * BLOCK + 100
    quota = Quota(store, most)
    quota.take("m", 10)
    assert quota.covers("m", BLOCK - 10)
    after = Quota(store, most)  # nobody closed the first
    assert after.used("m") == BLOCK
    after.take("m", BLOCK + 50)
    third = Quota(store, most)
    assert third.used("m") == 2 * BLOCK + 50
    third.take("m", 1)  # the 50 that are left are set aside
    with pytest.raises(PolicyRefused):
        Quota(store, most).take("m", 1)


def test_a_party_that_stops_in_good_order_counts_exactly(store) -> None:
    quota = Quota(store, 10 * BLOCK)
    quota.take("m", 10)
    quota.close()
    assert Quota(store, 10 * BLOCK).used("m") == 10


def test_what_was_counted_is_on_disk_before_it_is_answered(store) -> None:
    Quota(store, 10 * BLOCK).take("m", 3 * BLOCK)
    other = sqlite3.connect(store.folder / "hdcos.sqlite")
    assert other.execute("SELECT set_aside FROM queries").fetchall() == [(3 * BLOCK,)]
    other.close()


def test_the_operator_alone_resets_a_count(store) -> None:
    quota = Quota(store, 10)
    quota.take("m", 10)
    store.forget_model("m")
    with pytest.raises(PolicyRefused):
        quota.take("m", 1)
    Store(store.folder).forget_queries("m")  # as a command beside the running party does
    quota.take("m", 10)
    assert quota.used("m") == 10
    with pytest.raises(DataMissing):
        store.forget_queries("other")


def test_a_lower_quota_counts_what_was_answered_before(store) -> None:
    Quota(store, 100).take("m", 80)
    with pytest.raises(PolicyRefused, match="100 of the 50 rows"):
        Quota(store, 50).take("m", 1)


def test_the_quota_is_set_in_node_toml(tmp_path) -> None:
    assert Config.read(tmp_path).policy.queries_per_model == QUERIES_PER_MODEL == 300_000
    (tmp_path / "node.toml").write_text("[policy]\nqueries_per_model = 7\n")
    assert Config.read(tmp_path).policy.queries_per_model == 7
