"""Several pairs of workers are one cluster: the same answers for the same rounds, and replicas that stay equal."""

from __future__ import annotations

import os
import re
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, Thread

import numpy as np
import pytest

import hdcos
from benchmarks.stepping import bytes_of_pair
from hdcos import nn
from hdcos.cluster.link_transport import PIECE_ROWS
from hdcos.errors import DataDamaged, InputError, PeerLost, WorkerLost
from hdcos.link import Kind
from hdcos.party.checkpoint import Checkpoints
from hdcos.party.group import ALONE, Group
from hdcos.testing.pair import memory_pair

WORKERS = 3
ROWS = 4 * PIECE_ROWS + 5
OPTIONS = {"epochs": 2, "batch_size": 24, "lr": 0.1, "momentum": 0.9, "weight_decay": 1e-3, "seed": 3, "watch": 0}


@pytest.fixture(scope="module")
def cluster():
    with hdcos.local(workers=WORKERS, timeout_s=20) as running:
        yield running


@pytest.fixture(scope="module")
def one():
    with hdcos.local(timeout_s=20) as running:
        yield running


@pytest.fixture(scope="module")
def model() -> nn.Sequential:
    return nn.models.mlp([12, 16, 3], "cos", "hadamard", seed=2)


def rows(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(seed).uniform(-1, 1, (count, 12))
    return x, (x[:, :3]).argmax(axis=1)


@pytest.mark.parametrize("mode", ["shares", "masked"])
def test_a_batch_is_spread_over_all_pairs_for_the_rounds_and_bytes_of_one(cluster, model, mode: str) -> None:
    private, (x, _) = cluster.share(model, "spread"), rows(ROWS)
    expected = private.rounds[mode]
    if mode == "masked":
        private.prepare(ROWS)
    cluster.reset_cost()
    result = private.predict(x, mode=mode)
    assert np.abs(result - model(x)).max() < 0.01
    cost = cluster.cost.online
    assert cost.rounds == expected
    alone = private.predict(x[:1], mode=mode)
    assert cluster.cost.online.bytes_sent[0] == cost.bytes_sent[0] * (ROWS + 1) // ROWS
    assert np.abs(alone - model(x[:1])).max() < 0.01
    used = [scope.next for scope in cluster.transport._held["spread"].scopes]
    assert sum(used) == ROWS + 1
    assert min(used) >= PIECE_ROWS


@pytest.mark.parametrize("mode", ["shares", "masked"])
def test_labels_are_found_by_all_pairs_each_with_material_of_its_own(cluster, model, mode: str) -> None:
    private, x = cluster.share(model, "labels"), 6 * rows(ROWS)[0]
    best = np.sort(model(x), axis=1)
    clear = best[:, -1] - best[:, -2] > 0.02
    assert (private.predict(x, mode=mode, output="label") == model(x).argmax(1))[clear].all()
    assert clear.mean() > 0.8
    scopes = cluster.transport._held["labels"].scopes
    assert sum(scope.labels for scope in scopes) == ROWS
    assert min(scope.labels for scope in scopes) >= PIECE_ROWS
    assert [scope.count("label")[0]["used"] for scope in scopes] == [scope.labels for scope in scopes]
    private.keep_ahead(7, output="label")
    for _ in range(2):
        counts = [scope.count("label")[0] for scope in scopes]
        assert max(count["expected"] - count["used"] for count in counts) >= 7
        private.predict(x[:5], mode=mode, output="label")


def test_clients_at_the_same_time_use_different_pairs(cluster, model) -> None:
    private, (x, _) = cluster.share(model, "many"), rows(60, seed=1)
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda part: private.predict(x[part : part + 10]), range(0, 60, 10)))
    assert np.abs(np.concatenate(answers) - model(x)).max() < 0.01
    assert private.stock >= 0


def test_training_takes_the_rounds_of_one_pair_and_learns_the_same(cluster, one, model) -> None:
    x, y = rows(144)
    together, alone = cluster.fit(model, x, y, **OPTIONS), one.fit(model, x, y, **OPTIONS)
    assert together.cost.online.rounds == alone.cost.online.rounds
    weights = 12 * bytes_of_pair(model, OPTIONS["momentum"], OPTIONS["weight_decay"])  # of all steps
    sent, sent_alone = (trained.cost.online.bytes_sent[0] for trained in (together, alone))
    assert sent - WORKERS * weights == sent_alone - weights, "rows take the bytes of one pair, weights those of each"
    assert 0 < weights < sent_alone
    assert np.abs(together.reveal()(x) - alone.reveal()(x)).max() < 0.02
    many = np.tile(x, (2, 1))  # all pairs serve what they trained, the same words
    assert np.abs(together.predict(many) - together.reveal()(many)).max() < 0.01


def test_training_and_many_predictions_at_once_do_not_wait_for_each_other_for_ever(cluster, model) -> None:
    """Threads that wait for a pair must not keep a step from reaching another: pairs wait for one another in it."""
    x, y = rows(144)
    private = cluster.share(model, "busy")
    jobs = [cluster.fit(model, x, y, wait=False, **{**OPTIONS, "epochs": 6}) for _ in range(2)]
    with ThreadPoolExecutor(5 * WORKERS) as pool:
        answers = list(pool.map(lambda number: private.predict(x[number : number + 3]), range(60)))
    assert max(np.abs(answer - model(x[i : i + 3])).max() for i, answer in enumerate(answers)) < 0.01
    first, second = (job.result(60).reveal()(x) for job in jobs)
    assert np.abs(first - second).max() < 0.05


@pytest.mark.parametrize("fewer_first", [True, False])
def test_what_some_workers_began_more_or_fewer_go_on_with(
    cluster, one, model, fewer_first: bool, tmp_path: Path
) -> None:
    x, y = rows(144)
    first, second = (one, cluster) if fewer_first else (cluster, one)
    job = first.fit(model, x, y, wait=False, checkpoint=tmp_path, checkpoint_every=1, **OPTIONS)
    job.cancel()
    job.result()
    assert job.step < job.total_steps
    resumed = second.fit(model, x, y, resume=tmp_path, **OPTIONS).reveal()
    assert np.abs(resumed(x) - one.fit(model, x, y, **OPTIONS).reveal()(x)).max() < 0.02


@pytest.mark.parametrize(("batch", "count"), [(25, 100), (2, 8)])
def test_a_batch_that_workers_do_not_divide_is_spread_over_those_that_it_has_rows_for(
    cluster, one, model, batch: int, count: int
) -> None:
    (x, y), options = rows(count), {**OPTIONS, "batch_size": batch}
    together, alone = cluster.fit(model, x, y, **options), one.fit(model, x, y, **options)
    assert together.cost.online.rounds == alone.cost.online.rounds
    assert np.abs(together.reveal()(x) - alone.reveal()(x)).max() < 0.02
    many = np.tile(x, (WORKERS * PIECE_ROWS // count + 1, 1))  # all pairs serve it, one that took no row included
    assert np.abs(together.predict(many) - together.reveal()(many)).max() < 0.01


@pytest.mark.parametrize("workers", [0, -1, 1.5, True])
def test_a_number_of_workers_is_whole(workers: object) -> None:
    with pytest.raises(InputError, match="workers"), hdcos.local(workers=workers):  # type: ignore[arg-type]
        pass


def test_without_a_dealer_each_pair_makes_its_own_material(model) -> None:
    x, _ = rows(2 * PIECE_ROWS)
    with hdcos.local(dealer=False, workers=2, timeout_s=20) as two:
        assert np.abs(two.share(model).predict(x) - model(x)).max() < 0.01


def test_a_pair_that_dies_costs_a_batch_another_try_and_the_others_train_without_it(model) -> None:
    x, y = rows(2 * PIECE_ROWS)
    with pytest.raises(PeerLost), hdcos.local(workers=2, timeout_s=3) as two:
        private = two.share(model, "left")
        private.prepare(2 * PIECE_ROWS)
        os.kill(two.pids["party1.1"], signal.SIGKILL)
        assert np.abs(private.predict(x) - model(x)).max() < 0.01
        assert np.abs(private.predict(x, mode="shares") - model(x)).max() < 0.01
        assert np.abs(two.share(model, "later").predict(x) - model(x)).max() < 0.01
        assert np.isfinite(two.fit(model, x, y, **{**OPTIONS, "batch_size": 16}).reveal()(x)).all()
        os.kill(two.pids["party0"], signal.SIGKILL)
        private.predict(x)


def group_of(size: int) -> list[Group]:
    """Workers of one party with links in memory."""
    ends = [memory_pair((f"worker{index}", "worker0"), 3.0) for index in range(1, size)]
    first = Group(0, size, lambda: [there for there, _ in ends])
    return [first, *(Group(index, size, lambda here=here: [here]) for index, (_, here) in enumerate(ends, 1))]


def run_all(groups: list[Group], work) -> list[object]:
    results: list[object] = [None] * len(groups)

    def one(index: int) -> None:
        try:
            results[index] = work(groups[index])
        except Exception as error:
            results[index] = error

    threads = [Thread(target=one, args=(index,)) for index in range(len(groups))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    return results


def test_workers_of_a_party_add_modulo_the_ring() -> None:
    def parts(group: Group) -> dict[str, np.ndarray]:
        return {"w": np.full((2, 3), 2**63 + group.index, np.uint64), "b": np.array([group.index], np.uint64)}

    for sums in run_all(group_of(3), lambda group: group.add(parts(group))):
        assert np.array_equal(sums["w"], np.full((2, 3), 2**63 + 3, np.uint64))
        assert sums["b"][0] == 3
    assert np.array_equal(ALONE.add({"b": np.array([7], np.uint64)})["b"], [7])


def test_replicas_that_differ_are_noticed() -> None:
    def state(group: Group) -> dict[str, np.ndarray]:
        return {"w": np.array([5, 6 if group.index == 2 else 7], np.uint64)}

    def check(group: Group) -> None:
        group.check_equal(state(group))
        group.require()

    outcomes = run_all(group_of(3), check)
    assert all(isinstance(outcome, WorkerLost) for outcome in outcomes), "all of them hear it"
    assert all("1 of 3 workers hold other parameters than the first one" in str(outcome) for outcome in outcomes)


def test_a_worker_that_is_lost_ends_the_work_of_the_others() -> None:
    groups, barrier = group_of(3), Barrier(3)

    def work(group: Group) -> object:
        group.add({"w": np.zeros(1, np.uint64)})
        barrier.wait()
        if group.index == 2:
            group.close()
            return None
        group.add({"w": np.zeros(1, np.uint64)})
        assert group.lost
        assert group.add({"w": np.full(1, 7, np.uint64)})["w"] == [7]  # at its pace, for nothing
        group.require()

    outcomes = run_all(groups, work)
    assert all(isinstance(outcome, WorkerLost) for outcome in outcomes[:2])


def test_a_worker_that_fails_tells_the_others_at_once_what_it_was() -> None:
    def work(group: Group) -> object:
        group.add({"w": np.zeros(1, np.uint64)})
        with group.telling():
            if group.index == 1:
                raise DataDamaged("row group 3 is damaged")
        group.add({"w": np.zeros(1, np.uint64)})
        group.require()

    outcomes = run_all(group_of(2), work)
    assert isinstance(outcomes[1], DataDamaged)
    assert isinstance(outcomes[0], WorkerLost)
    assert re.search("DataDamaged: .*row group 3 is damaged", str(outcomes[0]))


def test_a_worker_with_other_sizes_is_refused() -> None:
    def work(group: Group) -> object:
        group.add({"w": np.zeros(1 + (group.index == 1), np.uint64)})
        group.require()

    outcomes = run_all(group_of(2), work)
    assert all(isinstance(outcome, WorkerLost) for outcome in outcomes)


def test_only_numbers_of_a_group_are_taken(model) -> None:
    """A frame of another kind ends the link."""
    groups = group_of(2)
    (link,) = groups[1].connect()
    link.send(Kind.REPLY, b"12345678")
    groups[0].add({"w": np.zeros(1, np.uint64)})
    with pytest.raises(WorkerLost, match="FrameError"):
        groups[0].require()


def test_the_others_go_on_from_a_checkpoint_without_the_pair_that_led(one, model, tmp_path: Path) -> None:
    """The first pair adds momentum and decay: when it is killed, the next one does. Neither 4 nor 3 divide a batch."""
    x, y = rows(150)
    options = {**OPTIONS, "batch_size": 50, "epochs": 48, "checkpoint_every": 6}
    with hdcos.local(workers=4, timeout_s=5) as four:

        def kill() -> None:
            while not all(Checkpoints.of(tmp_path, rank).steps() for rank in (0, 1)):
                time.sleep(0.05)
            os.kill(four.pids["party1"], signal.SIGKILL)

        killer = Thread(target=kill, daemon=True)
        killer.start()
        with pytest.raises((PeerLost, WorkerLost)):
            four.fit(model, x, y, **options, checkpoint=tmp_path)
        killer.join()
        held = max(Checkpoints.of(tmp_path, 0).steps())
        resumed = four.fit(model, x, y, **options, resume=tmp_path).predict(x)  # replicas are compared each epoch
    for rank in (0, 1):
        ledger = Checkpoints.of(tmp_path, rank)
        taken = sum(entry["count"] for entry in ledger.reserved() if entry["attempt"] == ledger.attempt)
        assert 0 < 144 - taken <= held, "from a checkpoint, not from the start"
    assert np.abs(resumed - one.fit(model, x, y, **options).predict(x)).max() < 0.05
