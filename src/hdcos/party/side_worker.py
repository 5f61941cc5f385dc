"""A further pair of workers: one process of each party, driven by the nodes of both.

A node serves with a pair of its own, the first; that one decides everything that concerns both parties as a whole. The
others take batches while it is busy, and their parts of training steps. Worker i of party 0 works with worker i of
party 1 over links, material and masks of their own: the same weights are opened under independent masks on every pair.

What happens to a pair is decided by party 0's node and told to party 1's over a link of their own, one command after
another. Whatever fails, at either party, ends the life of this pair and of nothing else: both nodes stop their worker,
what it was computing is refused as one that may be asked again, and both begin again with new processes. So a worker
never has a past: names of scopes, masks and links are new with every life.

Security  a worker holds what its party may hold: shares of rows, models and material. It knows its node by a
          certificate made for this life, the other party's worker by a certificate that the other node issued for its
          number, and by a token that the two nodes agreed on for this life, which both say when they meet
          (`Hello.run`): a worker of another life or another pair is refused. Executions of its material for
          predictions are reserved in this party's ledger before they are used; material of steps is named by the
          attempt of the job, which the first pair notes.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np
from msgspec.structs import replace

from hdcos.api import answers, commands
from hdcos.api.commands import Command, read_command, write_command
from hdcos.errors import DataMissing, HdcosError, InputError, PeerLost
from hdcos.files import write_whole
from hdcos.link import Hello, Identity, Kind, Link, connect, handshake, worker_name
from hdcos.link.handshake import SOFTWARE
from hdcos.link.message import decode_message, encode_message, integer, request
from hdcos.party.allotment import LEDGER_BLOCK
from hdcos.party.batcher import Batcher, Refused, Request, divide_answer, join_rows
from hdcos.party.launcher import Address, Launcher, Running
from hdcos.party.links import PeerListener, dial_side_worker
from hdcos.party.node import Node
from hdcos.party.opened import Loaded
from hdcos.party.store import Store, StoredDataset
from hdcos.party.worker import labels_scope
from hdcos.ring import Array, table_hash
from hdcos.secure.labels import LABEL

log = logging.getLogger("hdcos")
START_S, LOOK_S, HEARTBEAT_S, COUNT_S, LONGEST_S = 30.0, 1.0, 1.0, 2.0, 120.0
PIECE_WORDS = 1 << 20
"""Of a data set, in one message to a worker that cannot read its file."""
WANTED_FILE = "workers"
"""In the folder of a party's state: how many workers its operator wants at the moment."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 5.0


@dataclass
class _Ready:
    """A model that this pair has open."""

    version: str
    scope: str
    ahead: int
    """Rows whose material is kept available."""
    used: int = 0
    ordered: int = 0
    reserved: int = 0
    """Rows that were run, that material was ordered for, and that the ledger knows of."""
    labels_used: int = 0
    labels_ordered: int = 0
    labels_reserved: int = 0
    """The same of rows whose labels were asked for."""


@dataclass(frozen=True)
class Shared:
    """What the pairs of a party have in common."""

    node: Node
    store: Store
    batcher: Batcher
    launcher: Launcher
    listener: PeerListener
    most_rows: int
    """Of a batch."""
    models: Callable[[], Mapping[str, Loaded]]
    """What the first pair has open and further ones should have too."""
    dealers: Callable[[], int]
    """How many workers the dealer has; none while nobody knows."""
    first: Address
    """Where the first worker waits for those that train with it."""
    occupied: Callable[[], bool]
    """Whether the first pair is at work: while it is not, it takes what comes, which saves a hop."""


class SideWorker:
    """Worker `index` of this party, and the thread of its node that drives it."""

    def __init__(self, index: int, shared: Shared) -> None:
        self.index, self._shared = index, shared
        self.rank, self._name = int(shared.node.role[-1]), worker_name(shared.node.role, index)
        self.reason = "starting"
        """Why it does not work now."""
        self.lives = self.rows = self.batches = self.steps = self._available = 0
        self._counted = 0.0
        self._ready: dict[str, _Ready] = {}
        self._asked: deque[Command] = deque()
        """What the first pair wants of this one."""
        self._jobs: dict[str, list[list[str]]] = {}
        """Jobs that this pair takes part in, and the data sets of each."""
        self._stop = Event()
        self._running: list[Request] = []
        self._worker: Running | None = None
        self._links: list[Link] = []
        self._thread = Thread(target=self._live, name=f"worker {index}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End it; what it computes is refused as one that may be asked again."""
        self._stop.set()
        for link in self._links:
            link.cancel()

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)

    @property
    def up(self) -> bool:
        return not self.reason

    def tell(self, command: Command) -> None:
        """Have a command of a job carried out next; for party 0 alone."""
        batcher = self._shared.batcher
        if self.up:
            with batcher.changed:
                self._asked.append(command)
                batcher.changed.notify_all()

    def status(self) -> answers.WorkerStatus:
        return {
            "index": self.index,
            "up": self.up,
            "reason": self.reason,
            "starts": self.lives,
            "rows": self.rows,
            "batches": self.batches,
            "steps": self.steps,
            "models": len(self._ready),
            "available": self._available,
        }

    # ---- one life after another

    def _live(self) -> None:
        pause = FIRST_PAUSE_S
        while not self._stop.is_set():
            began, reason = time.monotonic(), "it has ended"
            try:
                self._one_life()
            except HdcosError as error:
                died = self._worker.state() if self._worker is not None else ""
                reason = f"{type(error).__name__}: {error}" + (f" ({died})" if died else "")
            except Exception as error:
                reason = f"internal error ({type(error).__name__})"  # its message might quote data
                log.exception("worker %d", self.index)
            self._refuse_running()
            for known in (self._ready, self._jobs, self._asked):
                known.clear()
            if reason != self.reason and not self._stop.is_set():
                log.warning("worker %d does not work: %s", self.index, reason)
            self.reason, self._worker, self._links = reason, None, []
            pause = FIRST_PAUSE_S if time.monotonic() - began > LONGEST_PAUSE_S else min(2 * pause, LONGEST_PAUSE_S)
            self._stop.wait(pause)

    def _refuse_running(self) -> None:
        error = PeerLost("The worker that computed this was lost on the way. Send it again under a new request id.")
        self._shared.batcher.refuse(self._running, Refused(error, retryable=True))
        self._running = []

    def _one_life(self) -> None:
        with ExitStack() as stack:
            peer, token, dealer = self._meet()
            stack.callback(peer.close)
            front = Identity.create("client")
            worker = self._shared.launcher.start(self._name, self._settings(front, token, dealer))
            stack.callback(worker.stop)
            self._worker = worker
            link = self._greet(front, worker)
            stack.callback(link.close)
            self._links = [peer, link]
            self.lives, self.reason = self.lives + 1, ""
            log.info("worker %d begins", self.index)
            work = self._lead if self.rank == 0 else self._follow
            try:
                work(peer, link)
            finally:  # before its process is waited for: nobody may count on it from here on
                self.reason = "it is ending"

    def _meet(self) -> tuple[Link, str, int]:
        """The other node's link for this pair, the token of this life, and which dealer works for this pair."""
        shared = self._shared
        if self.rank == 0:
            while not (dealers := shared.dealers()) and not self._stop.wait(LOOK_S):
                self.reason = "it waits for the first pair"
            link, token = shared.listener.side_worker(self.index, START_S, self._stop)
            dealer = self.index % max(1, dealers)
            link.send(Kind.REPLY, *encode_message({"dealer": dealer}))
            return link, token, dealer
        token = secrets.token_hex(16)
        link, answer = dial_side_worker(shared.node, self.index, token)
        return link, token, integer(answer, "dealer")

    def _settings(self, front: Identity, token: str, dealer: int) -> Mapping[str, Any]:
        known = self._shared.node.settings_of(self.index, dealer, pair=token)
        known["certificates"]["client"] = front.certificate.pem
        return {**known, "others": {"0": [known["certificates"][known["role"]], self._shared.first]}}

    def _greet(self, front: Identity, worker: Running) -> Link:
        """A link to the worker, as soon as it listens; one that has ended is not waited for."""
        node, limit = self._shared.node, time.monotonic() + START_S
        known = {node.identity.certificate: self._name}
        while True:
            try:
                link = connect(front, known, *worker.address, LOOK_S, link_timeout_s=node.timeout_s)
                break
            except PeerLost:
                self._look_after()
                if self._stop.is_set() or time.monotonic() > limit:
                    raise
        handshake(link, Hello("client", SOFTWARE, table_hash(), node.run))
        return link

    # ---- party 0 decides

    def _lead(self, peer: Link, worker: Link) -> None:
        batcher, told = self._shared.batcher, 0.0
        while not self._stop.is_set():
            if command := self._next_of_jobs() or next(self._changes(), None):
                told = time.monotonic()
                self._do(command, peer, worker)
                continue
            if self._shared.occupied() and (requests := batcher.batch(self._most_rows)):
                told, self._running = time.monotonic(), requests
                self._do(self._batch(requests), peer, worker)
                continue
            if time.monotonic() - told > HEARTBEAT_S:
                told = time.monotonic()
                peer.send(Kind.REQUEST, *encode_message(write_command(commands.Idle())))
                self._look_after()
                self._count_material(worker)
            with batcher.changed:
                batcher.changed.wait_for(
                    lambda: (
                        self._stop.is_set()
                        or bool(self._asked)
                        or (self._shared.occupied() and batcher.suits(self._most_rows))
                    ),
                    HEARTBEAT_S / 4,
                )

    def _next_of_jobs(self) -> Command | None:
        """What the first pair asked for; of jobs that this one does not take part in, nothing."""
        while self._asked:
            command = self._asked.popleft()
            if isinstance(command, commands.OpenJob) or getattr(command, "job", None) in self._jobs:
                return command
        return None

    def _changes(self) -> Iterator[Command]:
        """What makes this pair ready for what the first one is ready for."""
        wanted = self._shared.models()
        yield from (commands.Unload(name) for name in self._ready if name not in wanted)
        for name, loaded in wanted.items():
            ready = self._ready.get(name)
            if ready is None or ready.version != loaded.version:
                scope = f"model {name} {secrets.token_hex(16)}"
                ahead = loaded.allotment("shares").most_rows
                yield commands.Load(name, loaded.version, scope, {"shares": ahead})

    def _most_rows(self, wanted: Request) -> int:
        """Rows of a batch that begins with a request; none if this pair cannot run it."""
        ready = self._ready.get(wanted.model)
        if ready is None or ready.version != wanted.version or wanted.mode != "shares":
            return 0
        most = min(self._shared.most_rows, ready.ahead)
        loaded = self._shared.models().get(wanted.model) if wanted.output == LABEL else None
        return most if loaded is None else min(most, loaded.label_rows)

    def _batch(self, requests: Sequence[Request]) -> commands.Infer:
        ready, rows = self._ready[requests[0].model], sum(wanted.rows for wanted in requests)
        start, ready.used = ready.used, ready.used + rows
        if ready.ordered - ready.used < ready.ahead // 2:
            ready.ordered = ready.used + ready.ahead
        numbers, output = [wanted.id for wanted in requests], requests[0].output
        labels = (0, 0)
        if output == LABEL:
            labels_start, ready.labels_used = ready.labels_used, ready.labels_used + rows
            if ready.labels_ordered - ready.labels_used < rows:
                ready.labels_ordered = ready.labels_used + 2 * rows
            labels = (labels_start, ready.labels_ordered)
        return commands.Infer(requests[0].model, "shares", numbers, start, ready.ordered, output, *labels)

    def _do(self, command: Command, peer: Link, worker: Link) -> None:
        peer.send(Kind.REQUEST, *encode_message(write_command(command)))
        self._carry_out(command, worker)

    # ---- party 1 follows

    def _follow(self, peer: Link, worker: Link) -> None:
        while not self._stop.is_set():
            _, payload = peer.receive(Kind.REQUEST, timeout_s=LONGEST_S)  # party 0 may be busy with what was over here
            command = read_command(decode_message(payload)[0])
            if isinstance(command, commands.Infer):
                self._running = self._shared.batcher.take(command.ids)
            if isinstance(command, commands.Idle):
                self._look_after()
                self._count_material(worker)
            else:
                self._carry_out(command, worker)

    # ---- both

    def _look_after(self) -> None:
        """A worker that has nothing to do may end as well."""
        if self._worker is not None and (died := self._worker.state()):
            raise PeerLost(f"the process of this worker is gone: {died}")

    def _count_material(self, worker: Link) -> None:
        """How many rows there is material for, now and then."""
        if time.monotonic() - self._counted > COUNT_S:
            counts = [self._ask(worker, commands.CountMaterial(name))[0] for name in self._ready]
            self._available, self._counted = sum(int(count["available"]) for count in counts), time.monotonic()

    def _carry_out(self, command: Command, worker: Link) -> None:
        match command:
            case commands.Load(name, version, scope, ahead):
                self._load(name, version, scope, ahead["shares"], command, worker)
            case commands.Unload(name):
                self._ask(worker, command)
                del self._ready[name]
            case commands.Infer():
                self._infer(command, worker)
            case commands.OpenJob(job):
                self._open_job(job, command, worker)
            case commands.StepsTogether():
                self._ask_group(worker, command)
                self.steps += command.steps
            case commands.PauseJob(job) | commands.CloseJob(job):
                datasets = self._jobs.pop(job)
                left = [commands.ForgetData(*known) for known in datasets if known not in chain(*self._jobs.values())]
                self._ask(worker, command, *left)
            case _:
                raise InputError(f"further workers do not know the command {type(command).__name__}")
        self._count_material(worker)

    def _load(self, name: str, version: str, scope: str, ahead: int, command: Command, worker: Link) -> None:
        store = self._shared.store
        stored = store.model(name, version)
        kept = commands.KeepModel(name, version, stored.architecture, stored.phase_bits)
        self._ask(worker, kept, command, commands.Drop(name, [version]), arrays=store.model_words(name, version))
        self._ready[name] = _Ready(version, scope, ahead, ordered=ahead)

    def _open_job(self, number: str, command: commands.OpenJob, worker: Link) -> None:
        store = self._shared.store
        job, there = store.job(number), list(chain(*self._jobs.values()))
        for item in store.job_data(job, command.datasets):
            if [item.name, item.version] not in there:
                self._give_data(item, worker)
        self._jobs[number] = command.datasets
        self._ask_group(worker, commands.KeepJob(number, job.spec), command)

    def _give_data(self, item: StoredDataset, worker: Link) -> None:
        """Let a worker read a data set where it lies; one on a machine that cannot gets its rows from here."""
        store, names = self._shared.store, None if item.columns is None else list(item.columns)
        known = (item.name, item.version)
        try:
            where = store.dataset_places()
            self._ask(worker, commands.FindData(*known, item.rows, item.features, item.outputs, names, where))
        except DataMissing:
            rows = store.dataset_rows(item)
            self._ask(worker, commands.KeepData(*known, item.features, item.outputs, names))
            at_once = max(1, PIECE_WORDS // rows.shape[1])
            for first in range(0, item.rows, at_once):
                taken = rows.take(np.arange(first, min(item.rows, first + at_once)))
                self._ask(worker, commands.AddRows(*known), arrays={"rows": taken})
            self._ask(worker, commands.EndData(*known, item.rows))

    def _ask_group(self, worker: Link, *asked: Command) -> None:
        """What fails concerns the job alone, and the first pair says what becomes of it."""
        try:
            self._ask(worker, *asked)
        except HdcosError as error:
            if isinstance(error, PeerLost) or worker.closed:
                raise
            log.info("worker %d: %s: %s", self.index, type(error).__name__, error)

    def _infer(self, command: commands.Infer, worker: Link) -> None:
        requests, ready = self._running, self._ready[command.model]
        if any(wanted.output != command.output for wanted in requests):
            raise InputError("party 0 wants another output than the clients of these requests asked for")
        rows = sum(wanted.rows for wanted in requests)
        ready.reserved = self._reserve(ready.scope, ready.reserved, command.start + rows)
        if command.output == LABEL:
            end = command.label_start + rows
            ready.labels_reserved = self._reserve(labels_scope(ready.scope), ready.labels_reserved, end)
        for wanted in requests:
            wanted.begun = True
        numbered = replace(command, ids=[str(command.start)])
        facts, found = self._ask(worker, numbered, arrays={"input": join_rows(requests)})
        self._running = []
        self.batches, self.rows = self.batches + 1, self.rows + rows
        self._shared.batcher.settle(divide_answer(requests, found["words"], facts["scale"], facts["bits"]))

    def _reserve(self, scope: str, reserved: int, end: int) -> int:
        """Have the ledger know of executions before `end`; returns how many it knows of then."""
        if end <= reserved:
            return reserved
        count = max(LEDGER_BLOCK, end - reserved)
        self._shared.store.reserve(scope, reserved, count)
        return reserved + count

    def _ask(
        self, worker: Link, *asked: Command, arrays: Mapping[str, Array] | None = None
    ) -> tuple[dict[str, Any], dict[str, Array]]:
        meta = {"commands": [write_command(command) for command in asked]}
        return request(worker, meta, arrays, timeout_s=2 * self._shared.node.timeout_s)


class SideWorkers:
    """All further workers of a party; as many as its operator wants at the moment, which a file says."""

    def __init__(self, shared: Shared, wanted: Path) -> None:
        self._shared, self._wanted = shared, wanted
        self._side_workers: dict[int, SideWorker] = {}
        self._ended = Event()

    def start(self, workers: int) -> None:
        want_workers(self._wanted, workers)
        Thread(target=self._keep, name="workers", daemon=True).start()

    def _keep(self) -> None:
        while not self._ended.is_set():
            try:
                self.resize(read_wanted(self._wanted))
            except (OSError, HdcosError) as error:
                log.warning("the number of workers stays as it is: %s", error)
            self._ended.wait(LOOK_S)

    def resize(self, workers: int) -> None:
        """Have this many workers in all, the first one included; none besides it once they were stopped."""
        workers = 1 if self._ended.is_set() else workers
        for index in [index for index in self._side_workers if index >= workers]:
            self._side_workers.pop(index).stop()
        for index in range(1, workers):
            if index not in self._side_workers:
                self._side_workers[index] = SideWorker(index, self._shared)
        self._shared.listener.workers = workers

    def stop(self, timeout_s: float) -> None:
        self._ended.set()
        stopped = list(self._side_workers.values())
        self.resize(1)
        for worker in stopped:
            worker.join(timeout_s)

    def up(self) -> list[int]:
        """The workers that work now."""
        return [index for index, worker in list(self._side_workers.items()) if worker.up]

    def tell(self, workers: Sequence[int], command: Command) -> None:
        """Have further workers carry out a command of a job, each when it gets to it."""
        for index in workers:
            if (worker := self._side_workers.get(index)) is not None:
                worker.tell(command)

    @property
    def rows(self) -> int:
        return sum(worker.rows for worker in list(self._side_workers.values()))

    @property
    def batches(self) -> int:
        return sum(worker.batches for worker in list(self._side_workers.values()))

    def status(self) -> list[answers.WorkerStatus]:
        return [worker.status() for worker in list(self._side_workers.values())]


def want_workers(file: Path, workers: int) -> None:
    """Have a party, which may be running, use this many workers."""
    write_whole(file, f"{workers}\n".encode())


def read_wanted(file: Path) -> int:
    """How many workers a party should have."""
    text = file.read_text().strip() if file.exists() else "1"
    return max(1, int(text)) if text.isdecimal() else 1
