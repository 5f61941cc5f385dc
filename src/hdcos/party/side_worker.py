"""A further pair of workers: one process of each party, driven by the nodes of both.

A node serves with a pair of its own, the first; that one decides everything that concerns both parties as a whole. The
others take batches while it is busy, and their parts of training steps. Worker i of party 0 works with worker i of
party 1 over links, material and masks of their own: the same weights are opened under independent masks on every pair.

What happens to a pair is decided by party 0's node and told to party 1's over a link of their own, one command after
another. What one of them lacks for a command, as a version of a model that is just being replaced, is told before
either's worker hears of it, and concerns that command alone. Whatever else fails, at either party, ends the life of
this pair and of nothing else: both nodes stop their worker, what it was computing is refused as one that may be asked
again, and both begin again with new processes. So a worker never has a past: names of scopes, masks and links are new
with every life.

A worker that does not come to train, or stops while it does, is excused: jobs go on without it for a while, or until it
begins again, and its status says why.

Security  a worker holds what its party may hold: shares of rows, models and material. It knows its node by a
          certificate made for this life, the other party's worker by a certificate that the other node issued for its
          number, and by a token that the two nodes agreed on for this life, which both say when they meet
          (`Hello.run`): a worker of another life or another pair is refused. The frames of a batch carry a hash of
          its requests' ids, of what was said of each, and of scope and executions, which belong to this life of this
          pair: a command that came twice, or to another pair, finds no such request waiting or its material used, and
          two workers that were given different batches stop at the first frame. Executions of its material for
          predictions are reserved in this party's ledger before they are used; material of steps is named by the
          attempt of the job, which the first pair notes.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from threading import Event, Thread
from typing import Any

from msgspec.structs import replace

from hdcos.api import answers, commands
from hdcos.api.commands import Command, read_command, write_command
from hdcos.errors import HdcosError, InputError, PeerLost
from hdcos.link import Hello, Identity, Kind, Link, connect, handshake, worker_name
from hdcos.link.handshake import SOFTWARE
from hdcos.link.message import answer, decode_message, encode_message, integer, reply_error
from hdcos.party.batcher import Batcher, Refused, Request, divide_answer, join_rows
from hdcos.party.budget import Budget
from hdcos.party.engine import fingerprint
from hdcos.party.launcher import Address, Launcher, Running
from hdcos.party.links import PeerListener, dial_side_worker
from hdcos.party.node import Node
from hdcos.party.opened import Loaded
from hdcos.party.patience import COMMAND
from hdcos.party.rates import Rates
from hdcos.party.side_link import Prepared, SideLink
from hdcos.party.side_material import OpenModel
from hdcos.party.store import Store
from hdcos.ring import table_hash
from hdcos.secure.labels import LABEL

log = logging.getLogger("hdcos")
START_S, LOOK_S, HEARTBEAT_S, COUNT_S = 30.0, 1.0, 1.0, 2.0
BEGIN_S, LONGEST_S = 100.0, 120.0
"""Until the other party's worker has begun, which Ray may have to start; until its node says something. Each is longer
than what it may wait for."""
PREPARE_S = 600.0
"""Until the other party has what a command needs: a worker on another machine may have to be sent the rows of a job."""
AWAY_S, LONGEST_AWAY_S = 60.0, 960.0
"""How long jobs do without a worker that did not come, the first time and at most."""
AGAIN_S = 10.0
"""Until a model is loaded again that a party could not give to its worker."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 5.0
STARTING, WAITING = "starting", "it waits for the first pair"


@dataclass(frozen=True)
class _PutOff:
    """A model that this pair does without for now."""

    version: str
    until: float
    lives: int = 0
    """That ended, one after another, when it was being loaded."""


@dataclass(frozen=True)
class Shared:
    """What the pairs of a party have in common."""

    node: Node
    store: Store
    budget: Budget
    """What each worker may take: limits of memory are those of one."""
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
        self.reason = STARTING
        """Why it does not work now."""
        self.lives = self.rows = self.batches = self.steps = self._available = 0
        self._counted = 0.0
        self._rates = Rates()
        self._ready: dict[str, OpenModel] = {}
        self._asked: deque[Command] = deque()
        """What the first pair wants of this one."""
        self._put_off: dict[str, _PutOff] = {}
        """Models that a party could not give to its worker, or that ended lives of this pair."""
        self._absent, self._absences, self._absent_until = "", 0, 0.0
        """Why jobs do without it, how often that was so in this life, and until when."""
        self._stop = Event()
        self._running: list[Request] = []
        self._worker: Running | None = None
        self._links: list[Link] = []
        self._unheard = False
        """Whether party 1's node has yet to answer that it was told that there is nothing to do."""
        self._thread = Thread(target=self._live, name=f"worker {index}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End it; what it computes is refused as one that may be asked again."""
        self._stop.set()
        for link in self._links:
            link.cancel()

    def _hold(self, link: Link) -> None:
        """From here on `stop` ends what this link waits for."""
        self._links.append(link)
        self._require_wanted()

    def _require_wanted(self) -> None:
        """One that was stopped begins nothing more: another worker of this number may be beginning already."""
        if self._stop.is_set():
            raise PeerLost(f"worker {self.index} was stopped")

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)

    @property
    def up(self) -> bool:
        return not self.reason

    @property
    def joins(self) -> bool:
        """Whether jobs can count on it."""
        return self.up and time.monotonic() >= self._absent_until

    def excuse(self, why: str) -> None:
        """Have jobs do without it for a while, longer each time, or until it begins again."""
        pause_s = min(AWAY_S * 2**self._absences, LONGEST_AWAY_S)
        self._absent, self._absences = f"jobs do without it for {pause_s:g} s: {why}", self._absences + 1
        self._absent_until = time.monotonic() + pause_s
        log.warning("worker %d: %s", self.index, self._absent)

    def tell(self, command: Command) -> None:
        """Have a command of a job carried out next; for party 0 alone."""
        batcher = self._shared.batcher
        if self.up:
            with batcher.changed:
                self._asked.append(command)
                batcher.changed.notify_all()

    def status(self) -> answers.WorkerStatus:
        rows_per_s, steps_per_s = self._rates.note(self.rows, self.steps)
        return {
            "index": self.index,
            "up": self.up,
            "reason": self.reason or ("" if self.joins else self._absent),
            "starts": self.lives,
            "rows": self.rows,
            "batches": self.batches,
            "steps": self.steps,
            "models": len(self._ready),
            "available": self._available,
            "rows_per_s": rows_per_s,
            "steps_per_s": steps_per_s,
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
            self._ready.clear()
            self._asked.clear()
            if reason != self.reason and not self._stop.is_set():
                log.warning("worker %d does not work: %s", self.index, reason)
            self.reason, self._worker, self._links = reason, None, []
            pause = FIRST_PAUSE_S if time.monotonic() - began > LONGEST_PAUSE_S else min(2 * pause, LONGEST_PAUSE_S)
            self._stop.wait(pause)

    def _refuse_running(self) -> None:
        error = PeerLost("The worker that computed this was lost on the way. Send it again under a new request id.")
        self._shared.batcher.lose(self._running, Refused(error, retryable=True))
        self._running = []

    def _one_life(self) -> None:
        with ExitStack() as stack:
            peer, token, dealer = self._meet(stack)
            front = Identity.create("client")
            worker = self._shared.launcher.start(self._name, partial(self._settings, front, token, dealer))
            stack.callback(worker.stop)
            self._require_wanted()
            self._worker = worker
            link = self._greet(front, worker)
            stack.callback(link.close)
            self._hold(link)
            self._unheard = False
            if self.rank == 0:
                answer(peer, BEGIN_S)  # or its worker would wait in a round for one that is still being started
            else:
                peer.send(Kind.REPLY, *encode_message({}))
            self._absences, self._absent_until = 0, 0.0
            self.lives, self.reason = self.lives + 1, ""
            log.info("worker %d begins", self.index)
            work = self._lead if self.rank == 0 else self._follow
            try:
                work(peer, SideLink(link, self._shared.node, self._shared.store, self._shared.budget))
            finally:  # before its process is waited for: nobody may count on it from here on
                self.reason = "it is ending"

    def _meet(self, stack: ExitStack) -> tuple[Link, str, int]:
        """The other node's link for this pair, the token of this life, and which dealer works for this pair."""

        def take(link: Link) -> None:
            stack.callback(link.close)
            self._hold(link)

        shared = self._shared
        if self.rank == 0:
            while not (dealers := shared.dealers()) and not self._stop.wait(LOOK_S):
                self.reason = WAITING
            if self.reason in (STARTING, WAITING):  # what ended a life before is told for longer
                self.reason = f"it waits for party 1, which has not asked for worker {self.index} and may have fewer"
            link, token = shared.listener.side_worker(self.index, START_S, self._stop)
            take(link)
            dealer = self.index % max(1, dealers)
            link.send(Kind.REPLY, *encode_message({"dealer": dealer}))
            return link, token, dealer
        token = secrets.token_hex(16)
        link, answer = dial_side_worker(shared.node, self.index, token, take)
        self._require_wanted()
        return link, token, integer(answer, "dealer")

    def _settings(self, front: Identity, token: str, dealer: int, public: bytes) -> Mapping[str, Any]:
        self._require_wanted()  # the process is there, and its launcher ends it again
        known = self._shared.node.settings_of(self.index, public, dealer, pair=token)
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

    def _lead(self, peer: Link, worker: SideLink) -> None:
        batcher, told = self._shared.batcher, 0.0
        while not self._stop.is_set():
            if command := self._next_of_jobs(worker) or next(self._changes(), None):
                told = time.monotonic()
                self._do(command, peer, worker)
                continue
            if self._shared.occupied() and (requests := batcher.batch(self._most_rows)):
                told, self._running = time.monotonic(), requests
                self._do(self._batch(requests), peer, worker)
                continue
            if time.monotonic() - told > HEARTBEAT_S:
                told = time.monotonic()
                self._hear(peer)
                peer.send(Kind.REQUEST, *encode_message(write_command(commands.Idle())))
                self._unheard = True
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

    def _next_of_jobs(self, worker: SideLink) -> Command | None:
        """What the first pair asked for; of jobs that this one does not take part in, nothing."""
        while self._asked:
            command = self._asked.popleft()
            if isinstance(command, commands.OpenJob) or getattr(command, "job", None) in worker.jobs:
                return command
        return None

    def _changes(self) -> Iterator[Command]:
        """What makes this pair ready for what the first one is ready for."""
        wanted = self._shared.models()
        self._put_off = {name: known for name, known in self._put_off.items() if name in wanted}
        yield from (commands.Unload(name) for name in self._ready if name not in wanted)
        for name, loaded in wanted.items():
            ready, put_off = self._ready.get(name), self._put_off.get(name)
            if put_off is not None and put_off.version == loaded.version and time.monotonic() < put_off.until:
                continue
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
        numbers, output = [wanted.id for wanted in requests], requests[0].output
        taken = ready.rows.take(rows, ready.ahead // 2, ready.ahead)
        labels = ready.labels.take(rows, rows, 2 * rows) if output == LABEL else (0, 0)
        return commands.Infer(requests[0].model, "shares", numbers, *taken, output, *labels)

    def _hear(self, peer: Link) -> None:
        """That party 1's node was there when it was last told that there is nothing to do.

        A machine that lost its power says nothing at all, and the kernel tries for a quarter of an hour to reach it.
        """
        if self._unheard:
            answer(peer, self._patience_s)
            self._unheard = False

    @property
    def _patience_s(self) -> float:
        """The other node may be busy with what was over here."""
        return max(LONGEST_S, COMMAND * self._shared.node.timeout_s)

    def _do(self, command: Command, peer: Link, worker: SideLink) -> None:
        self._hear(peer)
        peer.send(Kind.REQUEST, *encode_message(write_command(command)))
        if isinstance(command, Prepared):
            self._do_prepared(command, peer, worker)
        else:
            self._carry_out(command, worker)

    def _do_prepared(self, command: Prepared, peer: Link, worker: SideLink) -> None:
        """Do what both parties must have something for; if either has not, nothing is done, and that is no failure."""
        refusal: HdcosError | None = None
        try:
            worker.prepare(command)
        except HdcosError as error:
            if worker.closed:
                raise
            refusal = error
        try:
            answer(peer, PREPARE_S)
        except HdcosError as error:
            if peer.closed:
                raise
            refusal = refusal or error
        go = refusal is None and not self._overtaken(command)
        peer.send(Kind.REQUEST, *encode_message({"go": go}))
        if go:
            with self._held_against(command):
                self._carry_out(command, worker)
            return
        worker.put_aside(command)
        if isinstance(command, commands.Load):
            self._put_off[command.model] = _PutOff(command.version, time.monotonic() + AGAIN_S)
        if refusal is not None:
            what = f"job {command.job}" if isinstance(command, commands.OpenJob) else f"model {command.model}"
            log.warning("worker %d does without %s: %s: %s", self.index, what, type(refusal).__name__, refusal)

    @contextmanager
    def _held_against(self, command: Prepared) -> Iterator[None]:
        """A model whose loading ends this pair again and again is tried later each time: the pair has other work."""
        try:
            yield
        except Exception as error:
            if isinstance(command, commands.Load):
                before = self._put_off.get(command.model)
                lives = before.lives + 1 if before is not None and before.version == command.version else 1
                # Once may be anybody's fault.
                pause_s = min(AGAIN_S * 2 ** (lives - 2), LONGEST_AWAY_S) if lives > 1 else 0.0
                self._put_off[command.model] = _PutOff(command.version, time.monotonic() + pause_s, lives)
                if pause_s:
                    why = (self.index, lives, command.model, pause_s, type(error).__name__, error)
                    log.warning("worker %d ended %d times over model %s, which waits %g s: %s: %s", *why)
            raise
        if isinstance(command, commands.Load):
            self._put_off.pop(command.model, None)

    def _overtaken(self, command: Command) -> bool:
        """Whether the first pair has given up meanwhile what it asked for."""
        with self._shared.batcher.changed:
            later = [each.job for each in self._asked if isinstance(each, commands.PauseJob | commands.CloseJob)]
        return getattr(command, "job", None) in later

    # ---- party 1 follows

    def _follow(self, peer: Link, worker: SideLink) -> None:
        while not self._stop.is_set():
            _, payload = peer.receive(Kind.REQUEST, timeout_s=self._patience_s)
            command = read_command(decode_message(payload)[0])
            if isinstance(command, commands.Infer):
                self._running = self._shared.batcher.take(command.ids)
            if isinstance(command, commands.Idle):
                peer.send(Kind.REPLY, *encode_message({}))
                self._look_after()
                self._count_material(worker)
            elif not isinstance(command, Prepared) or self._agree(command, peer, worker):
                self._carry_out(command, worker)

    def _agree(self, command: Prepared, peer: Link, worker: SideLink) -> bool:
        """Tell party 0 whether this party has what a command needs; whether both have."""
        try:
            worker.prepare(command)
        except HdcosError as error:
            if worker.closed:
                raise
            reply_error(peer, error)
        else:
            peer.send(Kind.REPLY, *encode_message({}))
        _, payload = peer.receive(Kind.REQUEST, timeout_s=PREPARE_S)
        go = bool(decode_message(payload)[0].get("go"))
        if not go:
            worker.put_aside(command)
        return go

    # ---- both

    def _look_after(self) -> None:
        """A worker that has nothing to do may end as well."""
        if self._worker is not None and (died := self._worker.state()):
            raise PeerLost(f"the process of this worker is gone: {died}")

    def _count_material(self, worker: SideLink) -> None:
        """How many rows there is material for, now and then, and whether the one who makes it is still there."""
        if time.monotonic() - self._counted > COUNT_S:
            worker.ask(commands.GreetDealer())
            counts = [worker.ask(commands.CountMaterial(name))[0] for name in self._ready]
            self._available, self._counted = sum(int(count["available"]) for count in counts), time.monotonic()

    def _carry_out(self, command: Command, worker: SideLink) -> None:
        match command:
            case commands.Load():
                self._load(command, worker)
            case commands.Unload(name):
                worker.ask(command)
                del self._ready[name]
            case commands.Infer():
                self._infer(command, worker)
            case commands.OpenJob(job):
                if spec := self._shared.store.job(job).spec:  # unless it has ended meanwhile
                    self._ask_group(worker, commands.KeepJob(job, spec), command)
            case commands.StepsTogether():
                self._ask_group(worker, command)
                self.steps += command.steps
            case commands.PauseJob():  # its rows are kept: it may well go on
                worker.ask(command)
            case commands.CloseJob(job):
                worker.close_job(job, command)
            case _:
                raise InputError(f"further workers do not know the command {type(command).__name__}")
        self._count_material(worker)

    def _load(self, command: commands.Load, worker: SideLink) -> None:
        name, version, ahead = command.model, command.version, command.ahead["shares"]
        worker.ask(command, commands.Drop(name, [version]))
        self._ready[name] = OpenModel(version, command.scope, ahead)

    def _ask_group(self, worker: SideLink, *asked: Command) -> None:
        """What fails concerns the job alone, and the first pair says what becomes of it."""
        try:
            worker.ask(*asked)
        except HdcosError as error:
            if isinstance(error, PeerLost) or worker.closed:
                raise
            log.info("worker %d: %s: %s", self.index, type(error).__name__, error)

    def _infer(self, command: commands.Infer, worker: SideLink) -> None:
        requests, ready = self._running, self._ready[command.model]
        if any(wanted.output != command.output for wanted in requests):
            raise InputError("party 0 wants another output than the clients of these requests asked for")
        rows = sum(wanted.rows for wanted in requests)
        ready.rows.reserve(self._shared.store, command.start + rows)
        if command.output == LABEL:
            ready.labels.reserve(self._shared.store, command.label_start + rows)
        for wanted in requests:
            wanted.begun = True
        meant = fingerprint(command.ids, [wanted.said for wanted in requests]).hex()
        numbered = replace(command, ids=[meant])
        facts, found = worker.ask(numbered, arrays={"input": join_rows(requests)})
        self._running = []
        self.batches, self.rows = self.batches + 1, self.rows + rows
        self._shared.batcher.settle(divide_answer(requests, found["words"], facts["scale"], facts["bits"]))
