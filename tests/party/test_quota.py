"""Rows that a party answers for a model: counted by each party, on disk, for all clients together."""

from __future__ import annotations

import sqlite3

import pytest

from hdcos import nn
from hdcos.api.quota import allowed_queries
from hdcos.cli import doctor
from hdcos.errors import DataMissing, InputError, PolicyRefused
from hdcos.party.budget import BLOCK, Quota
from hdcos.party.config import Config
from hdcos.party.store import Store
from hdcos.secure import compile_network


class Allowing(Quota):
    """A quota of one size for all models."""

    def __init__(self, store: Store, most: int) -> None:
        super().__init__(store)
        self._most = most

    def take(self, model: str, rows: int, allowed: int = 0) -> None:
        super().take(model, rows, allowed or self._most)


def quota_of(store: Store, most: int) -> Quota:
    return Allowing(store, most)


@pytest.fixture
def store(tmp_path):
    opened = Store(tmp_path / "state")
    yield opened
    opened.close()


def test_rows_are_counted_until_the_quota_is_used_up(store) -> None:
    quota = quota_of(store, 100)
    for _ in range(4):
        quota.take("m", 25)
    with pytest.raises(
        PolicyRefused, match=r"100 of the 100 rows .* for m are used up, 1 more .*hdcos quota m --reset"
    ):
        quota.take("m", 1)
    quota.take("other", 100)
    assert (quota.used("m"), quota.used("other"), quota.used("none")) == (100, 100, 0)


def test_a_request_that_does_not_fit_takes_nothing(store) -> None:
    quota = quota_of(store, 100)
    quota.take("m", 60)
    before = store.queries("m")
    with pytest.raises(PolicyRefused):
        quota.take("m", 41)
    assert store.queries("m") == before, "a node that is killed now has used up what it refused"
    quota.take("m", 40)


def test_rows_that_were_never_computed_are_given_back(store) -> None:
    quota = quota_of(store, 10)
    quota.take("m", 10)
    quota.give_back("m", 4)
    assert quota.used("m") == 6
    quota.take("m", 4)
    with pytest.raises(PolicyRefused):
        quota.take("m", 1)


def test_a_crash_counts_too_many_rows_and_never_too_few(store) -> None:
    most = 20 * BLOCK
    quota = quota_of(store, most)
    quota.take("m", 10)
    assert quota.covers("m", BLOCK - 10)
    after = quota_of(store, most)  # nobody closed the first
    assert after.used("m") == BLOCK
    after.take("m", BLOCK + 50)
    third = quota_of(store, most)
    assert third.used("m") == 2 * BLOCK + 50
    third.take("m", most - third.used("m"))
    with pytest.raises(PolicyRefused):
        quota_of(store, most).take("m", 1)


def test_a_crash_takes_a_small_part_of_a_small_quota(store) -> None:
    quota_of(store, 160).take("m", 1)
    assert quota_of(store, 160).used("m") == 10


def test_a_party_that_stops_in_good_order_counts_exactly(store) -> None:
    quota = quota_of(store, 20 * BLOCK)
    quota.take("m", 10)
    quota.close()
    assert quota_of(store, 20 * BLOCK).used("m") == 10


def test_what_was_counted_is_on_disk_before_it_is_answered(store) -> None:
    quota_of(store, 20 * BLOCK).take("m", 3 * BLOCK)
    other = sqlite3.connect(store.folder / "hdcos.sqlite")
    assert other.execute("SELECT set_aside FROM queries").fetchall() == [(3 * BLOCK,)]
    other.close()


def test_the_operator_alone_resets_a_count(store) -> None:
    quota = quota_of(store, 10)
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
    quota_of(store, 100).take("m", 80)
    with pytest.raises(PolicyRefused, match="80 of the 50 rows"):
        quota_of(store, 50).take("m", 1)


def test_where_no_row_is_answered_the_refusal_says_who_may_change_that(store) -> None:
    with pytest.raises(PolicyRefused, match=r"no row of m: fewer than 1000 .*operator may set \[policy\] queries_per"):
        quota_of(store, 0).take("m", 1)
    assert store.all_queries() == {}
    quota_of(store, 1).take("m", 1)


def test_the_doctor_says_that_no_row_is_answered() -> None:
    told = {"name": "m", "ready": True, "queries": 0}
    (finding,) = doctor._model("party0", {**told, "queries_allowed": 0})
    assert "no row is answered" in str(finding)
    for fine in ({**told, "queries_allowed": 5}, {**told, "ready": False, "queries_allowed": 0}, told):
        assert not list(doctor._model("party0", fine))


def test_the_quota_is_set_in_node_toml(tmp_path) -> None:
    assert Config.read(tmp_path).policy.queries_per_model == 0
    (tmp_path / "node.toml").write_text("[policy]\nqueries_per_model = 7\n")
    assert Config.read(tmp_path).policy.queries_per_model == 7
    (tmp_path / "node.toml").write_text("[policy]\nqueries_per_model = -1\n")
    with pytest.raises(InputError, match="queries_per_model"):
        Config.read(tmp_path)


RESIDUAL = nn.Graph(
    [nn.HadamardDiagonal(12, 12), nn.Cos(), nn.HadamardDiagonal(12, 12), nn.Add(), nn.Cos(), nn.Dense(12, 3)],
    [[0], [1], [2], [3, 0], [4], [5]],
)


@pytest.mark.parametrize(
    ("model", "phase_bits", "dealer", "rows"),
    [
        (nn.models.criteo_mlp(), 26, True, 1_000_000),
        (nn.models.lenet5(), 26, True, 750_000),
        (nn.models.mlp([64, 64, 64], "cos"), 26, True, 300_000),
        (nn.models.mlp([64, 64, 64], "cos"), 16, True, 0),
        (nn.models.mlp([64, 64, 1], "cos"), 64, True, 1_000_000),
        (nn.models.mlp([256, 256, 10], "cos"), 26, False, 1536),
        (nn.models.mlp([64, 64, 1], "square"), 26, True, 1600),
        (nn.models.mlp([64, 64, 1], "polyfit3"), 26, True, 0),
        (nn.models.mlp([64, 64, 1], "growing_cos"), 26, True, 1),
        (nn.models.mlp([64, 64, 64], "tanh", "hadamard"), 26, True, 32_471),  # a period of 16 for one of 2 pi
        (nn.models.mlp([64, 64, 64], "cos", "phd"), 26, True, 160_000),
        (nn.Sequential([nn.Dense(64, 64), nn.Cos(), nn.LowRank(64, 10, 4)]), 26, True, 26_000),
        (RESIDUAL, 26, True, 10_000),  # a sum of what is rounded to 21 bits
    ],
)
def test_by_default_a_thousandth_of_what_is_stated_for_a_network_is_answered(model, phase_bits, dealer, rows) -> None:
    chosen = compile_network(model, phase_bits, dealer)
    assert allowed_queries(chosen, 0) == rows
    assert allowed_queries(chosen, 12) == 12


def test_what_a_job_shows_after_an_epoch_counts_for_its_model(store) -> None:
    store.keep_job("ab" * 16, {"model": "fraud"}, "me", {})
    assert store.counted_as(f"job-{'ab' * 16}") == "fraud"
    assert store.counted_as("fraud") == "fraud"


def test_rows_are_set_aside_for_few_models_at_a_time_and_none_is_lost(store, monkeypatch) -> None:
    monkeypatch.setattr("hdcos.party.budget.MOST_SET_ASIDE", 4)
    quota = quota_of(store, 10**6)
    for _ in range(2):
        for number in range(20):
            quota.take(f"m{number}", 3)
            assert len(quota._left) <= 4
    assert [quota.used(f"m{number}") for number in range(20)] == [6] * 20
    assert sum(store.queries(f"m{number}") > 6 for number in range(20)) == 4, "blocks of the others were given back"
    quota.close()
    assert {store.queries(f"m{number}") for number in range(20)} == {6}
