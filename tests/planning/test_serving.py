"""Predictions in the simulation, against queues whose behaviour is known in closed terms."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np
import pytest

from hdcos.errors import InputError
from hdcos.link import Emulation
from hdcos.planning.costs import ServingCosts
from hdcos.planning.figures import Measured, Work
from hdcos.planning.machines import RECEIVING, Machines, SimulatedCluster
from hdcos.planning.serving import Load, Serving

ONLINE, NOTHING = Work(2e-3, 1e-4), Work(0.0, 0.0)
NO_DELAY = Emulation()


def costs(
    online: Work = ONLINE,
    dealer: Work = NOTHING,
    material: Work = NOTHING,
    caller: Work = NOTHING,
    most_rows: int = 1000,
    rounds: int = 5,
    slice_s: float = 0.0,
) -> ServingCosts:
    measured = Measured(online, (NOTHING, material), dealer, caller)
    return ServingCosts(
        *(measured, rounds, 0.0, slice_s, 0.0, Work(0.0, 1e4), Work(0.0, 1e5), NOTHING, 1000, NOTHING, most_rows),
        row_bytes=800,
        chunk=100,
    )


def run(cost: ServingCosts, machines: Machines, load: Load, network: Emulation = NO_DELAY, **options):
    return Serving(cost, machines, network, load, **options).run()


def test_at_full_load_pairs_do_what_full_batches_take() -> None:
    for pairs in (1, 3):
        seen = run(costs(), Machines(pairs, pairs), Load(), batches=100)
        assert seen.batch_rows == 1000
        assert seen.rows_per_s == pytest.approx(pairs * 1000 / (2e-3 + 1000 * 1e-4), rel=0.05)
        assert seen.use.spent["work"] == pytest.approx(1, rel=0.05)
        assert seen.use.party_cores == pytest.approx(pairs, rel=0.05)


def test_a_queue_of_single_rows_waits_as_theory_says() -> None:
    """Poisson arrivals, one server, constant service: the mean wait is u s / (2 (1 - u)) (Pollaczek and Khinchine)."""
    service_s, used = 1e-3, 0.8
    cost = costs(Work(service_s, 0.0), most_rows=1, rounds=0)
    seen = run(cost, Machines(1, 1, on_one=True), Load(used / service_s), batches=15_000)
    wait_s = used * service_s / (2 * (1 - used))
    assert float(np.mean(seen.latencies_s)) == pytest.approx(service_s + wait_s, rel=0.1)
    assert seen.rows_per_s == pytest.approx(used / service_s, rel=0.05)


def test_requests_that_one_thread_takes_in_wait_for_it_too() -> None:
    taking_s, used = 1e-3, 0.8
    cost = costs(Work(1e-9, 0.0), rounds=0)
    seen = run(cost, Machines(64, 64, on_one=True), Load(used / taking_s), request_s=taking_s, batches=15_000)
    assert float(np.mean(seen.latencies_s)) == pytest.approx(taking_s * (1 + used / (2 * (1 - used))), rel=0.1)


def test_a_free_pair_takes_all_that_waits_so_batches_grow_with_the_load() -> None:
    rates = (100, 1000, 5000)
    sizes = [run(costs(), Machines(1, 1), Load(rate)).batch_rows for rate in rates]
    assert sizes[0] == pytest.approx(1.1, abs=0.2)
    assert sizes[0] < sizes[1] < sizes[2]
    # In balance a batch is what arrives while the one before it runs: n = rate (fixed + row n).
    assert sizes[2] == pytest.approx(5000 * 2e-3 / (1 - 5000 * 1e-4), rel=0.1)


def test_a_batch_has_one_model_and_more_pairs_help_where_models_cannot_share() -> None:
    network = Emulation(rtt_ms=40)
    one, eight = (run(costs(), Machines(pairs, 8), Load(inf, models=8), network, batches=640) for pairs in (1, 8))
    assert eight.rows_per_s == pytest.approx(8 * one.rows_per_s, rel=0.05)
    alone = run(costs(), Machines(1, 1), Load(40.0, models=8), network)
    assert alone.quantile(0.5) > 2 * run(costs(), Machines(8, 8), Load(40.0, models=8), network).quantile(0.5)


def test_a_request_alone_takes_its_work_its_rounds_and_its_bytes() -> None:
    cost = costs(caller=Work(5e-4, 0.0))
    seen = run(cost, Machines(1, 1), Load(1e-3), Emulation(rtt_ms=40, mbps=8), batches=200)
    trips = 5 + 2  # its rounds; what arrived; what to begin
    expected_s = 5e-4 + 2.1e-3 + trips * 20e-3 + 1e4 * 8 / 8e6
    assert seen.latencies_s == pytest.approx(np.full(len(seen.latencies_s), expected_s))


def test_dealers_and_unpacking_limit_what_pairs_do() -> None:
    dealt = run(costs(dealer=Work(0.0, 1e-3)), Machines(4, 2), Load(), batches=200)
    assert dealt.rows_per_s == pytest.approx(2 / 1e-3, rel=0.05)
    assert dealt.use.spent["material"] > 0.5
    unpacked = run(costs(material=Work(0.0, 1e-3)), Machines(4, 1), Load(), batches=200)
    assert unpacked.rows_per_s == pytest.approx(4 / 1e-3, rel=0.05)


def test_an_order_is_asked_for_when_the_one_before_has_been_unpacked() -> None:
    """So an order of one piece takes dealing and unpacking; of several, one is made as another is unpacked."""
    cost = costs(Work(0.0, 1e-6), dealer=Work(0.0, 1e-3), material=Work(0.0, 5e-4), rounds=0)
    singly = run(replace(cost, most_rows=10, chunk=1000), Machines(1, 1, on_one=True), Load(), batches=2000)
    assert singly.rows_per_s == pytest.approx(1 / (1e-3 + (1 - RECEIVING) * 5e-4), rel=0.05)
    together = run(replace(cost, chunk=10), Machines(1, 1, on_one=True), Load(), batches=20)
    assert together.rows_per_s == pytest.approx(1 / 1e-3, rel=0.05)


def test_parties_take_turns_on_the_core_that_a_dealer_leaves_them() -> None:
    """Six pieces of work of 1 ms, and the first of both parties at once; then who waits for a message gives its core
    to the dealer, which keeps it for a slice, and the other ten are done one after another."""
    cost = costs(Work(6e-3, 0.0), dealer=Work(1.0, 0.0), slice_s=1.0)
    for cores, expected_s in ((3, 6e-3), (2, 11e-3)):
        cluster = SimulatedCluster(cost, Machines(1, 1, cores, on_one=True), NO_DELAY)
        ended: list[float] = []
        (pair,), clock = cluster.pairs, cluster.clock
        cluster.execute(pair, pair.pools[0], 1, 500, lambda clock=clock, ended=ended: ended.append(clock.now))
        clock.run(lambda ended=ended: not ended)
        assert ended == pytest.approx([expected_s])
        assert pair.spent["work"] == pytest.approx(expected_s)


def test_work_and_rounds_take_turns() -> None:
    cluster = SimulatedCluster(costs(rounds=20), Machines(1, 1), Emulation(rtt_ms=40))
    ended: list[float] = []
    (pair,) = cluster.pairs
    cluster.execute(pair, pair.pools[0], 1, 1, lambda: ended.append(cluster.clock.now))
    cluster.clock.run(lambda: True)
    assert ended == pytest.approx([2.1e-3 + 20 * 20e-3])
    assert (pair.spent["work"], pair.spent["rounds"]) == pytest.approx((2.1e-3, 0.4))


def test_lines_carry_what_their_rates_allow() -> None:
    seen = run(costs(), Machines(8, 8), Load(), Emulation(mbps=400), batches=200)
    assert seen.rows_per_s == pytest.approx(400e6 / 8 / 1e5, rel=0.05), "the dealer's line has ten times the bytes"


def test_on_one_machine_all_share_its_cores() -> None:
    cost = costs(Work(0.0, 1e-3), dealer=Work(0.0, 1e-3), material=Work(0.0, 1e-3), caller=Work(0.0, 1e-3))
    seen = run(cost, Machines(4, 4, 2, on_one=True), Load(), batches=200)
    each_s = 2 * 1e-3 + 3e-3  # both parties, the dealer, party 1's material, the client
    assert seen.rows_per_s == pytest.approx(2 / each_s, rel=0.05)


def test_a_request_larger_than_a_batch_is_refused() -> None:
    with pytest.raises(InputError, match="2000 rows"):
        run(costs(), Machines(1, 1), Load(1.0, rows=2000))


def test_the_same_seed_gives_the_same_run() -> None:
    first, second, other = (run(costs(), Machines(2, 2), Load(500.0), seed=seed, batches=300) for seed in (1, 1, 2))
    assert np.array_equal(first.latencies_s, second.latencies_s)
    assert first.quantile(0.99) != other.quantile(0.99)


def test_more_rows_in_a_request_are_answered_together() -> None:
    seen = run(replace(costs(), most_rows=64), Machines(1, 1), Load(1e-3, rows=64), batches=100)
    assert seen.batch_rows == 64
