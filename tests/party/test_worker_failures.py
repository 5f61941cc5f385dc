"""What may go wrong with further workers: it is named, costs what it must, and is tried again."""

from __future__ import annotations

import contextlib
import socket
import ssl
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from threading import Condition, Thread
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest

from hdcos import nn
from hdcos.api import commands
from hdcos.api.commands import write_command
from hdcos.errors import DataMissing, HandshakeError, HdcosError, PeerLost, PolicyRefused, WorkerLost
from hdcos.link import Doorman, Hello, Identity, Kind, Listener, Meter, base, connect, handshake, worker_name
from hdcos.link.message import answer, encode_message, reply_error
from hdcos.offline import Dealer
from hdcos.offline.source import DealerClient, serve_dealer
from hdcos.party import patience, relay, side_worker
from hdcos.party.batcher import Request
from hdcos.party.budget import Budget
from hdcos.party.config import Config
from hdcos.party.engine import Engine
from hdcos.party.gathering import Gathering
from hdcos.party.group import GROUP, Group, meaning
from hdcos.party.links import PeerListener
from hdcos.party.node import Node
from hdcos.party.relay import Relay
from hdcos.party.scheduler import Scheduler
from hdcos.party.side_link import SideLink
from hdcos.party.side_worker import SideWorker
from hdcos.party.store import DISCARD, KEEP
from hdcos.party.uploads import StoredDataset
from hdcos.ring import table_hash
from hdcos.testing.pair import memory_pair

PARTY = Identity.create("party0")


def node(timeout_s: float, sock: socket.socket | None = None) -> Node:
    certificates = dict.fromkeys(("dealer", "party0", "party1"), (PARTY.certificate,))
    addresses = dict.fromkeys(certificates, ("127.0.0.1", 1))
    return Node("party0", PARTY, certificates, addresses, sock, b"r" * 16, timeout_s, None)  # type: ignore[arg-type]


# ---- how long one waits for another


def test_each_wait_is_shorter_than_those_around_it() -> None:
    waits = (patience.JOIN, patience.DEALER, patience.MATERIAL, patience.SUM, 1.0, patience.ANSWER)
    assert all(inner < outer for inner, outer in pairwise(waits))
    assert patience.MATERIAL + 1.0 < patience.WORKER < patience.COMMAND
    assert side_worker.START_S < side_worker.BEGIN_S < side_worker.LONGEST_S
    assert [patience.join_s(timeout_s) for timeout_s in (3.0, 300.0)] == [1.5, patience.MOST_JOIN_S]


# ---- workers that do not come


def join_group(gathering: Gathering, number: int, scope: str) -> Any:
    """As a worker does: says which scope it comes for, and waits for the sum."""
    own = PARTY.issue(worker_name("party0", number))
    with connect(own, {PARTY.certificate: "worker0"}, *gathering.address, 5.0) as link:
        handshake(link, Hello(own.name, GROUP, table_hash(), meaning(scope)))
        link.send(Kind.REQUEST, np.full(1, number, np.uint64))
        return link.receive(Kind.REQUEST)


def test_one_that_does_not_come_is_named_and_the_others_are_told_at_once() -> None:
    gathering = Gathering(node(timeout_s=1.0), "127.0.0.1")
    with ThreadPoolExecutor(2) as pool, contextlib.closing(gathering):
        came, stray = (pool.submit(join_group, gathering, number, "job") for number in (1, 3))
        group, began = gathering.gather([0, 1, 2], "job"), time.monotonic()
        group.add({"w": np.zeros(1, np.uint64)})
        assert time.monotonic() - began < 1.2
        with pytest.raises(WorkerLost, match=r"w2\.party0 did not come within 0.5 s") as lost:
            group.require()
        assert lost.value.workers == (2,)
        with pytest.raises(WorkerLost, match=r"w2\.party0 did not come"):
            came.result(1.0)
        with pytest.raises(HandshakeError, match="was not asked to train here"):
            stray.result(1.0)
        came = pool.submit(join_group, gathering, 1, "next")
        group = gathering.gather([0, 1], "next")
        assert group.add({"w": np.full(1, 5, np.uint64)})["w"] == [6]
        group.close()
        assert came.result()[1].view(np.uint64) == [6]


def test_the_first_worker_knows_with_whom_a_group_was_lost_and_the_other_party_hears_it() -> None:
    ends = [memory_pair((f"w{number}.party0", "worker0"), 0.3)[::-1] for number in (1, 2)]
    group = Group(0, 3, lambda: [here for here, _ in ends])
    ends[0][1].send(Kind.REQUEST, np.zeros(1, np.uint64))
    ends[1][1].close()
    group.add({"w": np.zeros(1, np.uint64)})
    zero, one = memory_pair()
    with pytest.raises(WorkerLost, match="said goodbye") as lost:
        group.require()
    reply_error(one, lost.value)
    with pytest.raises(WorkerLost, match="said goodbye") as heard:
        answer(zero)
    assert heard.value.workers == lost.value.workers == (2,)


class FakeWorker:
    """A node's link to a worker: notes what it is asked, and lacks what it is told to lack."""

    def __init__(self, lacks: HdcosError | None = None) -> None:
        self.lacks, self.asked, self.closed = lacks, list[Any](), False
        self.jobs: dict[str, Any] = {}

    def prepare(self, command: Any) -> None:
        if self.lacks is not None:
            raise self.lacks

    def put_aside(self, command: Any) -> None:
        self.asked.append(f"without {type(command).__name__}")

    def ask(self, *asked: Any, arrays: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        self.asked += asked
        return {"available": 0, "scale": 1, "bits": 8}, {"words": np.zeros((3, 1), np.uint64)}


def side(rank: int, **more: Any) -> SideWorker:
    batcher = SimpleNamespace(changed=Condition(), settle=lambda answers: None)
    store = SimpleNamespace(reserve=lambda *block: None)
    known = {"node": replace(node(1.0), role=f"party{rank}"), "store": store, "batcher": batcher, **more}
    return SideWorker(1, SimpleNamespace(**known))  # type: ignore[arg-type]


def carry_out(command: Any, *workers: FakeWorker) -> list[SideWorker]:
    """Have the nodes of both parties carry out a command with these workers; the pair's life must go on."""
    sides, (zero, one) = [side(0), side(1)], memory_pair(timeout_s=3.0)
    follower = Thread(target=sides[1]._follow, args=(one, workers[1]), daemon=True)
    follower.start()
    sides[0]._do(command, zero, workers[0])  # type: ignore[arg-type]
    sides[1]._stop.set()
    zero.send(Kind.REQUEST, *encode_message(write_command(commands.Idle())))
    follower.join(3.0)
    assert [follower.is_alive(), zero.closed, one.closed] == [False] * 3
    return sides


LOAD = commands.Load("net", "v1", "model net 1", {"shares": 8})


@pytest.mark.parametrize("lacking", [0, 1])
def test_a_model_that_one_party_lacks_is_put_off_and_the_pair_lives_on(lacking: int, monkeypatch) -> None:
    workers = [FakeWorker(DataMissing("version v1 of net is not here") if rank == lacking else None) for rank in (0, 1)]
    zero_side, one_side = carry_out(LOAD, *workers)
    asked = [[each for each in worker.asked if not isinstance(each, commands.GreetDealer)] for worker in workers]
    assert asked == [["without Load"]] * 2, "neither worker may wait for the other"
    assert [zero_side._ready, one_side._ready] == [{}, {}]
    loaded = SimpleNamespace(version="v1", allotment=lambda mode: SimpleNamespace(most_rows=8))
    zero_side._shared = SimpleNamespace(models=lambda: {"net": loaded})  # type: ignore[assignment]
    assert list(zero_side._changes()) == []
    later = time.monotonic() + side_worker.AGAIN_S
    monkeypatch.setattr(side_worker.time, "monotonic", lambda: later)
    assert [type(command) for command in zero_side._changes()] == [commands.Load]
    loaded.version = "v2"
    assert [command.version for command in zero_side._changes()] == ["v2"]  # type: ignore[attr-defined]
    zero_side._shared = SimpleNamespace(models=dict)  # type: ignore[assignment]
    assert list(zero_side._changes()) == []
    assert zero_side._put_off == {}, "a model that is gone is not remembered"


def test_a_model_whose_loading_ends_the_pair_again_and_again_is_tried_later_each_time(monkeypatch) -> None:
    now, zero_side = 1000.0, side(0)
    monkeypatch.setattr(side_worker.time, "monotonic", lambda: now)
    loaded = SimpleNamespace(version="v1", allotment=lambda mode: SimpleNamespace(most_rows=8))
    zero_side._shared.models = lambda: {"net": loaded}  # type: ignore[misc]

    class Breaking(FakeWorker):
        def ask(self, *asked: Any, arrays: Any = None) -> Any:
            raise PeerLost("w1.party0 closed the connection")

    def load(worker: FakeWorker) -> None:
        zero, one = memory_pair(timeout_s=3.0)
        one.send(Kind.REPLY, *encode_message({}))
        zero_side._do(LOAD, zero, worker)  # type: ignore[arg-type]

    waits = []
    for _ in range(4):
        with pytest.raises(PeerLost, match="closed the connection"):
            load(Breaking())
        waits.append(0)
        while not list(zero_side._changes()):
            now, waits[-1] = now + 5, waits[-1] + 5
    assert waits == [0, 10, 20, 40]
    load(FakeWorker())
    assert (zero_side._put_off, set(zero_side._ready)) == ({}, {"net"})


def test_a_worker_of_another_release_is_refused_with_the_remedy(monkeypatch) -> None:
    """As on a machine of a Ray cluster that was not updated."""
    front, own = Identity.create("client"), PARTY.issue(worker_name("party0", 1))
    sock = socket.create_server(("127.0.0.1", 0))
    worker = SimpleNamespace(address=sock.getsockname()[:2], state=lambda: "")
    with Listener(own, {front.certificate: "client"}, sock=sock) as listener, ThreadPoolExecutor() as pool:
        greeting = pool.submit(side(0)._greet, front, worker)  # type: ignore[arg-type]
        with listener.accept(3.0) as link, pytest.raises(HandshakeError, match="program differs"):
            handshake(link, Hello(own.name, bytes(32), table_hash(), b"r" * 16))
        with pytest.raises(HandshakeError, match=r"w1\.party0: program differs: .*install the same hdcos version"):
            greeting.result()


def test_a_worker_of_another_life_of_its_pair_is_refused() -> None:
    zero, one = memory_pair(("w1.party1", "w1.party0"), 3.0)
    nodes = [
        replace(node(1.0), role=role, identity=Identity.create(role).issue(worker_name(role, 1)), worker=1, pair=token)
        for role, token in (("party0", b"a" * 16), ("party1", b"b" * 16))
    ]
    with ThreadPoolExecutor() as pool:
        greeting = pool.submit(nodes[0].greet_peer, zero)
        with pytest.raises(HandshakeError, match="run differs"):
            nodes[1].greet_peer(one)
        with pytest.raises(HandshakeError, match="run differs"):
            greeting.result()


def test_a_model_that_both_have_is_loaded_by_both() -> None:
    workers = [FakeWorker(), FakeWorker()]
    assert [set(each._ready) for each in carry_out(LOAD, *workers)] == [{"net"}, {"net"}]
    assert all(worker.asked[0] == LOAD for worker in workers)


def test_what_the_first_pair_has_given_up_meanwhile_is_not_begun() -> None:
    opened = commands.OpenJob("j", "s", [], 1, None, [0, 1])
    zero_side = side(0)
    assert not zero_side._overtaken(opened)
    zero_side._asked += [commands.PauseJob("other"), commands.PauseJob("j")]
    assert zero_side._overtaken(opened)


def test_the_node_of_party_1_says_that_it_is_there_or_the_pair_ends(monkeypatch) -> None:
    """A machine without power closes no connection."""
    monkeypatch.setattr(side_worker, "LONGEST_S", 0.1)
    worker, (zero, one) = side(0), memory_pair()
    worker._shared.node = SimpleNamespace(timeout_s=0.1)  # type: ignore[misc]
    worker._hear(zero)
    worker._unheard = True
    one.send(Kind.REPLY, *encode_message({}))
    worker._hear(zero)
    assert not worker._unheard
    worker._unheard = True
    with pytest.raises(PeerLost):
        worker._do(LOAD, zero, FakeWorker())  # type: ignore[arg-type]


def test_one_that_did_not_come_is_done_without_for_a_while_longer_each_time_and_says_why(monkeypatch) -> None:
    worker = side(0)
    assert not worker.joins
    worker.reason = ""
    assert (worker.joins, worker.status()["reason"]) == (True, "")
    worker.excuse("w1.party1 did not come within 5 s")
    status = worker.status()
    assert (worker.joins, worker.up, status["up"]) == (False, True, True)
    assert status["reason"] == "jobs do without it for 60 s: w1.party1 did not come within 5 s"
    later = time.monotonic() + side_worker.AWAY_S
    monkeypatch.setattr(side_worker.time, "monotonic", lambda: later)
    assert (worker.joins, worker.status()["reason"]) == (True, "")
    worker.excuse("again")
    assert "for 120 s: again" in worker.status()["reason"]


def test_workers_are_told_which_requests_of_clients_a_batch_is_of() -> None:
    """Two nodes that take other requests for the same batch give their workers another id, which is in every frame."""
    sent = []
    for ids, version in ((["a", "b"], "v1"), (["a", "c"], "v1"), (["a", "b"], "v2"), (["a", "b"], "v1")):
        worker, link = side(0), FakeWorker()
        worker._ready["net"] = side_worker.OpenModel("v1", "scope", 8)
        worker._running = [Request(number, "net", version, "shares", (), np.zeros((1, 2), np.uint64)) for number in ids]
        worker._carry_out(commands.Infer("net", "shares", ids, 0, 8), link)  # type: ignore[arg-type]
        ((number,),) = [command.ids for command in link.asked if isinstance(command, commands.Infer)]
        sent.append(number)
    assert sent[0] == sent[3]
    assert len(set(sent)) == 3


# ---- what a node gives to a worker


class NotingLink(SideLink):
    """Notes what the worker is asked."""

    def __init__(self, store: Any, budget: Any = None) -> None:
        super().__init__(None, node(1.0), store, budget)  # type: ignore[arg-type]
        self.asked: list[Any] = []

    def ask(self, *asked: Any, arrays: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        self.asked += asked
        return {}, {}

    def count(self) -> Counter[str]:
        found, self.asked = Counter(type(command).__name__ for command in self.asked), []
        return found


def test_rows_stay_with_a_worker_while_a_job_is_paused_and_go_with_the_last_job_that_needs_them() -> None:
    def items(job: str, versions: Any) -> list[Any]:
        return [StoredDataset(name, version, 1, 1, 1, True, "north") for name, version in versions]

    link = NotingLink(SimpleNamespace(job=lambda number: number, job_data=items, dataset_places=list))
    for job, datasets in (("one", [["a", "1"], ["b", "1"]]), ("two", [["b", "1"]]), ("one", [["a", "1"], ["b", "1"]])):
        link.prepare(commands.OpenJob(job, "scope", datasets, 1, None))
    assert link.count() == {"FindData": 2}
    link.prepare(commands.OpenJob("one", "scope", [["b", "1"]], 2, None))
    assert [(each.name, each.version) for each in link.asked] == [("a", "1")]
    assert link.count() == {"ForgetData": 1}
    link.close_job("one", commands.CloseJob("one", "done"))
    assert link.count() == {"CloseJob": 1}
    link.close_job("two", commands.CloseJob("two", "done"))
    assert link.count() == {"CloseJob": 1, "ForgetData": 1}


def test_a_worker_keeps_no_more_than_its_own_party_allows_whatever_the_other_asks_for() -> None:
    model = nn.models.mlp([6, 8, 3])
    stored = SimpleNamespace(name="net", version="v1", architecture=model.architecture(), phase_bits=26)
    store = SimpleNamespace(model=lambda *known: stored, model_words=lambda *known: {}, models=list)
    config = msgspec.convert({"limits": {"model_mb": 2.0}, "stock": {"megabytes": 1.0}}, Config)
    budget = Budget(config, store, True)  # type: ignore[arg-type]
    link = NotingLink(store, budget)
    link.prepare(LOAD)
    assert link.count() == {"KeepModel": 1}
    with pytest.raises(PolicyRefused, match=r"this party gives 2 to one \(\[limits\] model_mb\)"):
        link.prepare(commands.Load("net", "v1", "scope", {"shares": 1 << 20}))
    assert not link.asked


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), 9)", "os._exit(0)", "folder.remove()"])
def test_the_folder_of_a_ray_cluster_goes_with_its_node_however_that_ends(end: str) -> None:
    node = "import os; from hdcos.party.ray_folder import RayFolder; folder = RayFolder()"
    files = "(folder.path / 'session').mkdir(); print(folder.path, flush=True)"
    done = subprocess.run([sys.executable, "-c", f"{node}; {files}; {end}"], stdout=subprocess.PIPE, text=True)
    folder, limit = Path(done.stdout.strip()), time.monotonic() + 5
    assert folder.name.startswith("hdcos-ray-")
    while folder.exists():
        assert time.monotonic() < limit
        time.sleep(0.02)


# ---- links that have carried enough


def test_a_link_ends_before_its_key_has_encrypted_too_much(monkeypatch) -> None:
    monkeypatch.setattr(base, "MOST_BYTES", 1 << 14)
    zero, one = memory_pair(timeout_s=3.0)
    block, seen = np.zeros(1000, np.uint8), []
    with ThreadPoolExecutor(1) as pool:
        while not zero.closed:
            seen.append(zero.worn)
            there = pool.submit(one.exchange, [block])
            zero.exchange([block])
            there.result()
            assert (one.worn, one.closed) == (zero.worn, zero.closed)
    assert seen[0] is False
    assert seen[-1] is True, "those who can make another in time know"
    assert len(seen) * 1000 < (1 << 14) + 1100
    for link in (zero, one):
        with pytest.raises(PeerLost, match="as much as one key should encrypt"):
            link.exchange([block])


def test_two_engines_make_another_link_before_the_program_that_finds_theirs_worn(monkeypatch) -> None:
    made = [memory_pair(timeout_s=3.0) for _ in range(3)]
    taken: list[list[Any]] = [[], []]

    def engine(rank: int) -> Engine:
        def connect_peer(meter: Meter) -> tuple[Any, bytes]:
            taken[rank].append(made[len(taken[rank])][rank])
            return taken[rank][-1], bytes(32)

        return Engine(rank, connect_peer, SimpleNamespace(leave=lambda: None, device=None), Meter())  # type: ignore[arg-type]

    engines, payload = [engine(rank) for rank in (0, 1)], np.zeros(3000, np.uint8)
    monkeypatch.setattr(base, "MOST_BYTES", 6400)

    def program(one: Engine) -> bytes:
        with one.attempt("online"):
            return bytes(one.peer.exchange([payload]))

    with ThreadPoolExecutor(2) as pool:
        for _ in range(6):
            assert [len(found) for found in pool.map(program, engines)] == [3000, 3000]
    assert [len(links) for links in taken] == [3, 3], "two programs on each link, and none was cut off"
    for one in engines:
        one.stop()


def test_workers_of_a_party_make_their_links_again_too(monkeypatch) -> None:
    made, taken = [memory_pair(("worker0", "w1.party0"), 3.0) for _ in range(3)], [0, 0]

    def group(index: int) -> Group:
        def connect_other() -> list[Any]:
            taken[index] += 1
            return [made[taken[index] - 1][index]]

        return Group(index, 2, connect_other)

    monkeypatch.setattr(base, "MOST_BYTES", 6400)
    groups, words = [group(0), group(1)], {"w": np.ones(375, np.uint64)}
    with ThreadPoolExecutor(2) as pool:
        for _ in range(5):
            assert all((sums["w"] == 2).all() for sums in pool.map(lambda each: each.add(words), groups))
    assert taken == [3, 3]
    assert not any(each.lost for each in groups)


def test_a_dealer_link_that_is_worn_is_made_again(monkeypatch) -> None:
    dealer, made = Dealer(), []

    def deal(link: Any) -> None:
        with contextlib.suppress(HdcosError):
            serve_dealer(dealer, link, 0)

    def dial(meter: Meter) -> Any:
        here, there = memory_pair()
        here.meter = meter
        made.append(here)
        Thread(target=deal, args=(there,), daemon=True).start()
        return here

    client = DealerClient(dial, 0)
    client.look()
    monkeypatch.setattr(base, "MOST_BYTES", 1)
    assert client.link is made[1]
    assert made[0].closed


# ---- jobs


KNOWN = {"said": "", "state": "running", "why": "", "cancelled": 0, "attempt": 3, "checkpoints": [[8, "run", 3]]}
"""What a party tells of a job."""


def held_with(job: dict[str, Any], carried: int = 0) -> dict[str, Any]:
    return {"jobs": [["j", job]], "datasets": [["d", "1", ""]], "carried": carried}


def scheduling(cancelled: int = 0) -> tuple[Scheduler, Any]:
    """A scheduler that knows one job, and the worker it has."""
    spec = {"datasets": ["d"], "batch_size": 48}
    job = SimpleNamespace(
        id="j", spec=spec, data=[["d", "1"]], state="running", cancelled=cancelled, error="", spared=0
    )
    worker = SimpleNamespace(jobs={}, engine=SimpleNamespace(dealer=SimpleNamespace(has_dealer=True)))
    store = SimpleNamespace(jobs=lambda: [job], job=lambda number: job, datasets=list, changes=0)
    failures = SimpleNamespace(waits=lambda *thing: False, found_no_room=lambda *thing: False)
    budget = SimpleNamespace(functions=None)
    scheduler = Scheduler(worker, store, None, Config(), budget, failures, lambda: [1, 2])  # type: ignore[arg-type]
    scheduler._mine = held_with(KNOWN)
    return scheduler, worker


def test_a_paused_job_goes_on_when_party_1_has_said_that_it_let_go_of_it() -> None:
    """What it said before, and is read late, does not count: it may have written checkpoints since."""
    scheduler, _ = scheduling()
    scheduler.hear(held_with(KNOWN))
    scheduler.pause("j", 7)
    assert not list(scheduler._jobs())
    scheduler.hear(held_with(KNOWN | {"checkpoints": []}, 6))
    assert not list(scheduler._jobs())
    scheduler.hear(held_with(KNOWN, 7))
    assert [type(command) for command in scheduler._jobs()] == [commands.OpenJob]


@pytest.mark.parametrize(("cancelled", "held"), [(KEEP, True), (KEEP, False), (DISCARD, True)])
def test_the_model_of_a_paused_job_is_that_of_its_last_checkpoint(cancelled: int, held: bool) -> None:
    scheduler, worker = scheduling(cancelled)
    scheduler.hear(held_with(KNOWN if held else KNOWN | {"checkpoints": [[8, "run", 2]]}))
    done = []
    for command in scheduler._jobs():
        done.append(command)
        if isinstance(command, commands.OpenJob):
            worker.jobs["j"] = SimpleNamespace(step=command.resume)
    names = [type(command).__name__ for command in done]
    assert names == (["OpenJob", "Publish", "CloseJob"] if cancelled == KEEP and held else ["CloseJob"])
    if len(done) == 3:
        assert (done[0].resume, done[0].workers, done[2].state) == (8, [], "cancelled")  # type: ignore[attr-defined]


def test_attempts_that_found_no_room_on_a_disk_are_not_held_against_a_job() -> None:
    """Where it took long until there was room, the twenty-first attempt ended the job, and its checkpoints went."""
    scheduler, _ = scheduling()
    (job,) = scheduler._store.jobs()
    scheduler._store.note_job = lambda _, heard, spared: vars(job).update(spared=spared)  # type: ignore[assignment]

    def begun(attempt: int, short: bool) -> list[str]:
        scheduler._failures.found_no_room = lambda *thing: short  # type: ignore[method-assign]
        scheduler.hear(held_with(KNOWN | {"attempt": attempt}))
        return [type(command).__name__ for command in scheduler._jobs()]

    assert begun(22, False) == ["OpenJob"]
    assert begun(23, False) == ["CloseJob"], "the last checkpoint is that of attempt 3"
    assert begun(70, True) == ["OpenJob"]
    assert begun(89, False) == ["OpenJob"], "counted from there on, after a restart too"
    assert begun(90, False) == ["CloseJob"]


def test_requests_for_a_version_that_has_just_been_replaced_are_taken_to_be_refused() -> None:
    """The new version may have no labels: they waited for ever for room in a batch of it, and party 0 never slept."""
    scheduler, worker = scheduling()
    worker.opened = {"m": SimpleNamespace(version="2", allotment=lambda mode: SimpleNamespace(most_rows=0))}
    old, new = (Request("r", "m", version, "shares", (), np.zeros((1, 2), np.uint64)) for version in "12")
    assert [scheduler._most_rows(request) for request in (old, new)] == [Config().limits.rows, 0]


# ---- the way to a worker on another machine


def client_hello(name: str) -> bytes:
    settings = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    settings.check_hostname, settings.verify_mode = False, ssl.CERT_NONE
    outgoing = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        settings.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=name).do_handshake()
    return outgoing.read()


@pytest.fixture
def carried(monkeypatch):
    """Calls a worker through a relay, and gives both ends of the connection, and the relay."""
    monkeypatch.setattr(relay, "MOST", 2)
    monkeypatch.setattr(relay, "LAST_S", 0.2)
    hello = client_hello("w1.party0")
    with (
        contextlib.ExitStack() as stack,
        Doorman(socket.create_server(("127.0.0.1", 0))) as doorman,
        socket.create_server(("127.0.0.1", 0)) as worker,
    ):
        worker.settimeout(2.0)
        made = Relay(doorman, "w1.party0", worker.getsockname())

        def call() -> tuple[socket.socket, socket.socket]:
            caller = stack.enter_context(socket.create_connection(("127.0.0.1", doorman.port), 2.0))
            caller.sendall(hello)
            there, _ = worker.accept()
            stack.enter_context(there).settimeout(2.0)
            assert there.recv(len(hello), socket.MSG_WAITALL) == hello
            return caller, there

        yield call, made, hello, doorman.port
        made.close()


def await_that(what) -> None:
    limit = time.monotonic() + 3.0
    while not what():
        assert time.monotonic() < limit
        time.sleep(0.01)


def test_a_relay_carries_bytes_both_ways_and_lets_go_of_a_caller_that_does_not(carried) -> None:
    call, made, _, _ = carried
    caller, there = call()
    there.sendall(b"answer")
    assert caller.recv(10) == b"answer"
    there.close()  # as a worker does with one that proves nothing
    assert caller.recv(10) == b""
    await_that(lambda: len(made) == 0)
    with pytest.raises(OSError):
        for _ in range(100):
            caller.sendall(b"still here")
            time.sleep(0.01)


def test_a_relay_has_room_for_some_and_who_proved_itself_does_not_make_more(carried, monkeypatch) -> None:
    call, made, hello, port = carried
    first, second = call(), call()
    third = call()
    assert first[0].recv(1) == b"", "the oldest of those that may be anybody"
    for caller, there in (second, third):
        there.sendall(b"x")
        assert caller.recv(1) == b"x"
    monkeypatch.setattr(relay, "PROVEN_S", 0.0)
    with socket.create_connection(("127.0.0.1", port), 2.0) as late:
        late.sendall(hello)
        with contextlib.suppress(ConnectionResetError):
            assert late.recv(1) == b""
    assert len(made) == 2


# ---- a node that is stopped


def test_a_node_that_is_stopped_does_not_wait_for_the_other_party() -> None:
    with Doorman(socket.create_server(("127.0.0.1", 0))) as doorman:
        listener = PeerListener(node(5.0, doorman.serve("party0", "")), dict)
        with ThreadPoolExecutor(1) as pool:
            waiting, began = pool.submit(listener.links, Meter(), 5.0), time.monotonic()
            listener.close()
            with pytest.raises(PeerLost):
                waiting.result()
            assert time.monotonic() - began < 1.0
