"""Parties with several workers: batches and steps are spread, and a worker that is killed costs nothing but time."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest

from hdcos import nn
from hdcos.cluster.job import Job
from hdcos.errors import DataDamaged
from hdcos.party.checkpoint import Checkpoints
from hdcos.party.side_link import PIECE_WORDS
from hdcos.secure.training.plain import plain_fit
from hdcos.secure.training.shuffle import batches
from hdcos.secure.training.targets import one_hot
from tests.proxies import HAPROXY, needs
from tests.serve_nodes import Nodes, await_that, command, starting

ROLES = ("dealer", "party0", "party1")
pytestmark = pytest.mark.timeout(300)
MODEL = nn.models.mlp([12, 16, 3], "cos", "hadamard", seed=2)
OPTIONS = {"epochs": 3, "batch_size": 48, "lr": 0.1, "momentum": 0.9, "seed": 3, "watch": 0}


LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}
"""As the kernel writes 127.0.0.1, the same as an address of IPv6, and ::1."""


def rows(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(seed).uniform(-1, 1, (count, 12))
    return x, x[:, :3].argmax(axis=1)


def stopped_plain(x: np.ndarray, y: np.ndarray, steps: int, lr: float) -> nn.Network:
    """What the same training gives on plain numbers when it is stopped after some steps."""
    begun: list[dict[str, np.ndarray]] = []
    plain_fit(
        MODEL,
        x,
        one_hot(y, 3),
        steps,
        48,
        lambda epoch: lr,
        3,
        momentum=0.9,
        before_step=lambda parameters: begun.append({name: value.copy() for name, value in parameters.items()}),
        after_epoch=lambda *_: len(begun) > steps,
    )
    return MODEL.with_state(begun[steps])


def trained_plain(x: np.ndarray, y: np.ndarray, epochs: int, batch: int = 48, lr: float = 0.1) -> nn.Sequential:
    """What the same training gives on plain numbers."""
    return plain_fit(MODEL, x, one_hot(y, 3), epochs, batch, lambda epoch: lr, 3, momentum=0.9)


def last_attempt(node: Path, job: str, rank: int, total: int) -> tuple[int, int]:
    """The step that the last attempt at a job began with, by the ledger, and its number."""
    ledger = Checkpoints.of(node / "state" / "jobs" / job, rank)
    last = ledger.attempt
    return total - sum(entry["count"] for entry in ledger.reserved() if entry["attempt"] == last), last


def resize(there: Nodes, counts: tuple[int, int]) -> None:
    """Change the number of workers of both parties, and wait until each has changed it."""
    for role, count in zip(ROLES[1:], counts, strict=True):
        assert command("workers", count, "--node", there.folder / role)[0] == 0
    await_that(lambda: tuple(1 + len(there.workers(rank)) for rank in (0, 1)) == counts)


def shown_step(there: Nodes, job: Job) -> int:
    """The step that both parties say a job has taken; it must not have ended."""
    statuses = there.cluster.transport.job(job.id)
    assert all(status["state"] in ("waiting", "running") for status in statuses), (statuses, there.said())
    return min(status["step"] for status in statuses)


def await_while_it_trains(there: Nodes, job: Job, wanted: Callable[[int], object]) -> int:
    """Wait until this holds of the highest step that both parties have shown, which is returned.

    However slow the machine is, that one grows; a job that waits and runs by turns at one step does not go on.
    """
    highest, grown = -1, time.monotonic()
    while not wanted(highest):
        if (step := shown_step(there, job)) > highest:
            highest, grown = step, time.monotonic()
        workers = [there.all_workers(rank) for rank in (0, 1)]
        assert time.monotonic() - grown < 60, (highest, there.cluster.transport.job(job.id), workers, there.said())
        time.sleep(0.1)
    return highest


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Callable[..., Nodes]]:
    with starting(tmp_path) as start:
        yield start


def test_batches_and_steps_are_spread_over_all_pairs_and_outlive_kills(nodes) -> None:
    there = nodes(3, 3, 2)
    await_that(lambda: there.all_up(2))
    private, (x, y) = there.cluster.share(MODEL, "spread"), rows(96)
    await_that(lambda: all(worker["models"] == 1 for rank in (0, 1) for worker in there.workers(rank)))

    def ask(number: int) -> float:
        part = 6 * rows(16, number)[0]
        if number % 4 == 3:
            best = np.sort(MODEL(part), axis=1)
            clear = best[:, -1] - best[:, -2] > 0.04
            return float((private.predict(part, mode="shares", output="label") != MODEL(part).argmax(1))[clear].any())
        return float(np.abs(private.predict(part, mode="shares") - MODEL(part)).max())

    killed = []

    def kill_in_training(there: Nodes) -> None:
        folders = [there.folder / role / "state" / "jobs" for role in ROLES[1:]]
        await_that(lambda: all(list(folder.rglob("step-*.safetensors")) for folder in folders), every_s=0.01)
        kill("party1", 0.0)

    def kill(role: str, after_s: float = 0.5) -> None:
        time.sleep(after_s)
        killed.append(there.worker_pids(role)[0])
        os.kill(killed[-1], signal.SIGKILL)

    with ThreadPoolExecutor(8) as pool:
        kills = [pool.submit(kill, role) for role in ROLES[1:]]
        errors = list(pool.map(ask, range(60)))
        for each in kills:
            each.result()
    assert max(errors) < 0.02
    assert len(killed) == 2
    await_that(lambda: max(worker["starts"] for worker in there.workers(0)) > 1)
    await_that(lambda: there.all_up(2))
    assert all(sum(worker["rows"] for worker in there.workers(rank)) > 0 for rank in (0, 1))

    with ThreadPoolExecutor(1) as pool:
        kills = [pool.submit(kill_in_training, there)]
        trained = there.cluster.fit(MODEL, x, y, **{**OPTIONS, "epochs": 40}, checkpoint_every=4)
        kills[0].result()
    for rank in (0, 1):
        resumed, attempts = last_attempt(there.folder / f"party{rank}", there.job(), rank, 80)
        assert attempts > 1
        assert resumed > 0, "from a checkpoint, not from the start"
        assert resumed % 4 == 0
    assert np.abs(trained.predict(x) - trained_plain(x, y, 40)(x)).max() < 0.05
    assert private.predict(x[:2]).shape == (2, 3)
    assert not there.reused()

    # A dealer's worker that is lost is missed before anything is asked for.
    before = [max(worker["starts"] for worker in there.workers(rank)) for rank in (0, 1)]
    os.kill(there.worker_pids("dealer")[0], signal.SIGKILL)
    await_that(lambda: all(max(w["starts"] for w in there.workers(rank)) > before[rank] for rank in (0, 1)))
    await_that(lambda: there.all_up(2))


def test_workers_come_and_go_and_those_that_the_other_party_lacks_are_told_so(nodes) -> None:
    there = nodes(2, 3)
    await_that(lambda: sum(worker["up"] for worker in there.workers(1)) == 1)
    await_that(lambda: "party 0 has 2 workers" in there.workers(1)[1]["reason"])
    private = there.cluster.share(MODEL, "served")
    x, _ = rows(4)
    assert np.abs(private.predict(x) - MODEL(x)).max() < 0.02
    # Workers can be added and removed meanwhile.
    assert command("workers", 3, "--node", there.folder / "party0")[0] == 0
    await_that(lambda: there.all_up(2))
    resize(there, (2, 2))
    await_that(lambda: there.all_up(1))
    resize(there, (3, 2))
    await_that(lambda: "party 1, which has not asked for worker 2 and may have fewer" in there.workers(0)[1]["reason"])
    await_that(lambda: sum(worker["up"] for worker in there.workers(0)) == 1)
    resize(there, (2, 2))
    await_that(lambda: there.all_up(1))
    assert np.abs(private.predict(x) - MODEL(x)).max() < 0.02
    # A row group that is damaged ends its job by name, whichever worker finds it, and nothing else.
    there.cluster.upload(*rows(32 * 1024), name="harmed", outputs=3)
    first, second = np.split(batches(3, 0, 32 * 1024, 48)[0] // 1024, 2)
    group = min(set(second) - set(first))  # the second worker looks at it before the first one does
    (path,) = (there.folder / "party1" / "state" / "datasets").rglob("*.arrow")
    content = bytearray(path.read_bytes())
    content[len(content) * (2 * group + 1) // 64] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataDamaged, match=f"row group {group} of .*harmed.* is damaged: rows {group * 1024} to"):
        there.cluster.fit(MODEL, "harmed", **OPTIONS)
    await_that(lambda: there.all_up(1))
    assert np.abs(private.predict(x) - MODEL(x)).max() < 0.02
    code, found = command("doctor", "--node", there.folder / "party0", "--cluster", there.folder / "cluster.toml")
    for each in ("worker 0 of party1", "worker 1 of party1"):
        said = r"[0-9.]+ rows and [0-9.]+ steps a second in the last minute, material for \d+ rows"
        assert (code, re.search(rf"{each}: it works with .*: {said}", found) is not None) == (0, True), found
    zero = there.cluster.transport.both[0]
    metrics = zero._pool.urlopen("GET", "/metrics", headers=zero._headers).data.decode()
    for index in (0, 1):
        assert f'hdcos_worker_up{{worker="{index}"}} 1.0' in metrics
        assert f'hdcos_worker_steps_total{{worker="{index}"}} ' in metrics
    first = there.all_workers(0)[0]
    assert (first["index"], first["up"], first["models"]) == (0, True, 1)
    assert min(first[name] for name in ("rows", "batches", "available")) > 0


@pytest.mark.timeout(600)
def test_workers_come_and_go_under_load_and_in_training_and_nothing_is_lost(nodes) -> None:
    """The job is longer than the test, which stops it when everything was seen."""
    there = nodes(2, 2)
    await_that(lambda: there.all_up(1))
    private, (x, y), ended = there.cluster.share(MODEL, "served"), rows(480), Event()

    def ask(number: int) -> list[float]:
        errors = []
        while not ended.is_set():
            part = rows(8, number)[0]
            errors.append(float(np.abs(private.predict(part, mode="shares") - MODEL(part)).max()))
        return errors

    def all_train(count: int) -> bool:
        trains = [[worker["up"] and worker["steps"] > 0 for worker in there.workers(rank)] for rank in (0, 1)]
        return all(sum(each) == count for each in trains)

    with ThreadPoolExecutor(4) as pool:
        asking = [pool.submit(ask, number) for number in range(4)]
        options: Any = {**OPTIONS, "epochs": 10_000, "lr": 0.01, "checkpoint_every": 4}
        try:
            job = there.cluster.fit(MODEL, x, y, wait=False, **options)
            highest = await_while_it_trains(there, job, lambda step: step > 4 and all_train(1))
            for counts in ((1, 2), (1, 1), (3, 2), (3, 3), (2, 2)):
                resize(there, counts)
                before, further = max(highest, shown_step(there, job)), min(counts) - 1
                # Those that came are new: they had taken no steps before.
                highest = await_while_it_trains(there, job, lambda step: step > before and all_train(further))  # noqa: B023
            job.cancel()
            trained = job.result(60)
        finally:
            ended.set()
        errors = [each.result(60) for each in asking]
    assert all(errors)
    assert max(max(each) for each in errors) < 0.02
    assert np.abs(trained.predict(x) - stopped_plain(x, y, job.step, 0.01)(x)).max() < 0.05
    assert not there.reused()


def test_a_job_that_party_1_could_not_open_without_a_worker_that_went_is_opened_again(nodes) -> None:
    """The worker is there and says nothing, so that party 0 opened the job and party 1 had nothing to write down: party
    0 once waited for ever to hear of it."""
    there = nodes(2, 2, timeout_s=8)
    await_that(lambda: there.all_up(1))
    silent, (x, y) = there.worker_pids("party1")[0], rows(96)
    os.kill(silent, signal.SIGSTOP)
    try:
        job = there.cluster.fit(MODEL, x, y, **OPTIONS, wait=False)
        trained = job.result(60)
    finally:
        with suppress(ProcessLookupError):  # its life may be over
            os.kill(silent, signal.SIGCONT)
    assert "worker 1: jobs do without it for 60 s: job" in there.said()
    assert np.abs(trained.predict(x) - trained_plain(x, y, 3)(x)).max() < 0.05
    assert [last_attempt(there.folder / f"party{rank}", job.id, rank, 6)[1] > 1 for rank in (0, 1)] == [True, True]
    assert not there.reused()


def test_a_worker_that_does_not_reach_where_data_sets_lie_is_sent_all_rows(nodes) -> None:
    """Every process has a memory of its own: the files that party 1's node keeps there are nowhere for its worker."""
    there = nodes(2, 2, datasets={"party1": "memory://party1/rows"})
    await_that(lambda: there.all_up(1))
    x, y = rows(1 + PIECE_WORDS // (12 + 3))  # more than one message
    there.cluster.upload(x, y, name="far", outputs=3)
    assert not [path for path in (there.folder / "party1" / "state" / "datasets").rglob("*") if path.is_file()]
    trained = there.cluster.fit(MODEL, "far", **{**OPTIONS, "epochs": 1, "batch_size": 10_000})
    assert [worker["steps"] for rank in (0, 1) for worker in there.workers(rank)] == [len(x) // 10_000] * 2
    assert np.abs(trained.predict(x[:96]) - trained_plain(x, y, 1, 10_000)(x[:96])).max() < 0.05
    assert not there.reused()


def test_a_batch_that_pairs_do_not_divide_is_taken_by_all_of_them(nodes) -> None:
    there = nodes(3, 3, 2)
    await_that(lambda: there.all_up(2))
    x, y = rows(100)
    trained = there.cluster.fit(MODEL, x, y, **{**OPTIONS, "batch_size": 50})
    assert [worker["steps"] for rank in (0, 1) for worker in there.workers(rank)] == [6] * 4
    assert np.abs(trained.predict(x) - trained_plain(x, y, 3, 50)(x)).max() < 0.05
    assert not there.reused()


def test_without_a_dealer_each_pair_makes_its_own_material(nodes) -> None:
    there = nodes(2, 2, 0, ("--no-dealer",))
    await_that(lambda: there.all_up(1))
    x, y = rows(96)
    trained = there.cluster.fit(MODEL, x, y, **{**OPTIONS, "epochs": 1, "batch_size": 32})
    assert np.abs(trained.predict(x) - trained_plain(x, y, 1, 32)(x)).max() < 0.05
    assert [worker["steps"] for rank in (0, 1) for worker in there.workers(rank)] == [3, 3]


@needs(HAPROXY)
def test_workers_of_two_ray_clusters_serve_and_train_through_proxies(nodes) -> None:
    """Each party has a Ray cluster of its own and a proxy in front: the two know nothing of each other but its port.

    So has the dealer. Party 0's proxy knows where its worker listens; party 1's worker is reached through the node.
    """
    pytest.importorskip("ray")
    there = nodes(2, 2, 2, ray=True, proxies=True)
    await_that(lambda: there.all_up(1), 120)
    for role in ROLES:  # who reaches a port of Ray runs code
        assert there.listens_at(role) <= LOOPBACK
    x, y = rows(96)
    trained = there.cluster.fit(MODEL, x, y, **OPTIONS)
    assert np.abs(trained.predict(x) - trained_plain(x, y, 3)(x)).max() < 0.05
    assert all(worker["steps"] > 0 for rank in (0, 1) for worker in there.workers(rank))
    with ThreadPoolExecutor(6) as pool:
        parts = [rows(16, number)[0] for number in range(24)]
        spread = there.cluster.share(MODEL, "spread")
        await_that(lambda: all(worker["models"] == 2 for rank in (0, 1) for worker in there.workers(rank)))
        answers = pool.map(lambda part: spread.predict(part, mode="shares"), parts)
        assert max(np.abs(answer - MODEL(part)).max() for answer, part in zip(answers, parts, strict=True)) < 0.02
    assert not there.reused()
