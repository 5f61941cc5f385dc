"""One life of the links between the parties: it ends with the first thing that goes wrong, and leaves nothing behind.

Whatever is lost, a party, the dealer or a frame, ends the session at both parties. What waited is refused with an error
that says to ask again; the next session has new links, new scopes and new masks, and finds models, data sets and jobs
on disk. So there is one way to fail and one way to recover, and both are used whenever a node is restarted.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial
from threading import Event, Thread
from typing import Any, TypeVar

from hdcos.api.commands import (
    CloseJob,
    Command,
    Idle,
    OpenFunction,
    OpenJob,
    PauseJob,
    Ping,
    Publish,
    StepsTogether,
    read_command,
    write_command,
)
from hdcos.errors import HdcosError, PeerLost, StorageFull, WorkerLost
from hdcos.link import Kind, Link, Meter
from hdcos.link.message import answer, decode_message, encode_message, reply_error
from hdcos.offline.source import MaterialSource
from hdcos.party.allotment import MaterialAllotment
from hdcos.party.batcher import Batcher
from hdcos.party.budget import Budget
from hdcos.party.config import Config
from hdcos.party.engine import Engine
from hdcos.party.failures import Failures
from hdcos.party.group import Gather, gather_nobody
from hdcos.party.links import Links
from hdcos.party.patience import ANSWER
from hdcos.party.scheduler import Scheduler, inventory
from hdcos.party.side_workers import SideWorkers
from hdcos.party.store import Store
from hdcos.party.worker import Worker

T = TypeVar("T")
log = logging.getLogger("hdcos")
HEARTBEAT_S = 1.0
LOOK_S = 2.0


class Session:
    """Serves clients with the other party until something fails or `stop` is called."""

    def __init__(
        self,
        rank: int,
        links: Links,
        source: MaterialSource,
        store: Store,
        batcher: Batcher,
        config: Config,
        budget: Budget,
        timeout_s: float,
        failures: Failures,
        side_workers: SideWorkers,
        gather: Gather = gather_nobody,
    ) -> None:
        self.rank, self._links, self._store, self._batcher = rank, links, store, batcher
        self.engine = engine = Engine(rank, self._connect, source, links.meter, timeout_s, gather)
        allot = partial(MaterialAllotment, ledger=store, engine=engine)
        self.worker = Worker(engine, store, batcher, budget, allot)
        self._scheduler = Scheduler(self.worker, store, batcher, config, budget, failures, side_workers.joining)
        self._side_workers, self._crews = side_workers, dict[str, list[int]]()
        """The further workers, and which of them take part in which job."""
        self._failures, self._functions = failures, budget.functions
        self._functions.clear()
        self._timeout_s, self._answer_s = timeout_s, ANSWER * timeout_s
        self._ended = Event()
        self._failure: BaseException | None = None
        self.occupied = False
        """Whether it is carrying out a command: further workers take batches meanwhile."""
        self._looked = self._pinged = time.monotonic()
        self._told = self._functions_told = -1
        """What party 0 knows of: the counts of changes then, of what is stored and of functions."""
        self._carried = 0
        """Commands that party 0 has told, or that party 1 has carried out."""

    def _connect(self, meter: Meter) -> tuple[Link, bytes]:
        """There is one link for rounds; a session that loses it is over."""
        if self._links.rounds.closed:
            raise PeerLost("the link between the parties is gone")
        return self._links.rounds, self._links.pair_seed

    def run(self) -> None:
        """Until the end; raises what ended it, if not `stop`."""
        work, other = (self._lead, self._listen) if self.rank == 0 else (self._follow, self._report)
        helper = Thread(target=self._guard, args=(other,), name="arrivals", daemon=True)
        self._batcher.open()
        helper.start()
        try:
            work()
        except BaseException as error:
            if self._failure is None:
                self._failure = error
        finally:
            self._ended.set()
            self._batcher.close("The connection to the other party or the dealer was lost on the way.")
            for job, crew in self._crews.items():  # the next session opens them again, if they are not over by then
                self._side_workers.tell(crew, PauseJob(job))
            self._say_why(helper)
            self.worker.stop()
        if self._failure is not None:
            self._failures.lose(self._failure)
            raise self._failure

    def _say_why(self, helper: Thread) -> None:
        """Close the links so that the other party reads the reason, whichever of them it is waiting on."""
        if self.rank == 1:
            helper.join(HEARTBEAT_S)  # it only writes, so it ends by itself, and its link can tell as well
        self._links.close(self._failure, but_arrivals=helper.is_alive())
        if helper.is_alive():
            self._links.arrivals.cancel()
            helper.join()
        self._links.close(self._failure)

    def stop(self) -> None:
        """End it from another thread, in good order."""
        self._ended.set()
        with self._batcher.changed:
            self._batcher.changed.notify_all()

    def _guard(self, work: Callable[[], None]) -> None:
        """The second thread of a session: its failure is the session's."""
        try:
            work()
        except BaseException as error:
            if not self._ended.is_set():
                self._failure = error
                self._links.commands.cancel()
                self._links.rounds.cancel()
        finally:
            self.stop()

    # ---- party 0

    def _lead(self) -> None:
        batcher, scheduler = self._batcher, self._scheduler
        told = 0.0
        while not self._ended.is_set():
            for command in scheduler.commands():
                self._carry_out(command)
                told = time.monotonic()
                if self._ended.is_set():
                    return
            now = time.monotonic()
            if now - self._pinged > LOOK_S and not batcher.busy:
                self._pinged = told = now
                self._carry_out(Ping())
            elif now - told > HEARTBEAT_S:
                told = now
                self._tell(Idle())
            self._look_after()
            if not scheduler.working:
                with batcher.changed:
                    batcher.changed.wait_for(
                        lambda: batcher.busy or scheduler.working or scheduler.has_news or self._ended.is_set(),
                        HEARTBEAT_S / 4,
                    )

    def _tell(self, command: Command) -> None:
        self._carried += not isinstance(command, Idle)
        self._links.commands.send(Kind.REQUEST, *encode_message(write_command(command)))

    def _carry_out(self, command: Command) -> None:
        """Do a command here and have party 1 do it. One that is answered may fail without ending the session."""
        self.occupied = True
        if self._batcher.busy:  # and nobody else may have looked since
            with self._batcher.changed:
                self._batcher.changed.notify_all()
        try:
            self._carry_out_both(command)
        finally:
            self.occupied = False

    def _carry_out_both(self, command: Command) -> None:
        self._tell(command)
        if isinstance(command, PauseJob):
            self._scheduler.pause(command.job, self._carried)
        self._tell_side_workers(command)
        self._failures.begin(command)
        if not command.answered:
            self.worker.execute(command)
            self._failures.end()
            return
        spared = WorkerLost if isinstance(command, StepsTogether) else HdcosError
        outcome: object = self._together(lambda: self.worker.begin(command), spared)
        if callable(outcome):
            outcome = self._together(outcome)
        if not isinstance(outcome, HdcosError):
            self._failures.end()
            return
        if isinstance(outcome, WorkerLost) and isinstance(command, OpenJob | StepsTogether):
            log.warning("job %s goes on from its last checkpoint: %s", command.job, outcome)
            self._failures.end()
            nobody_named = self._crews[command.job] if isinstance(command, OpenJob) else ()
            self._side_workers.excuse(outcome.workers or nobody_named, f"job {command.job}: {outcome}")
            self._carry_out_both(PauseJob(command.job))
            return
        self._failures.fail(outcome)
        if isinstance(command, OpenFunction):
            self._functions.fail(command.name, outcome)
        if isinstance(command, OpenJob) and isinstance(outcome, StorageFull):
            self._carry_out_both(PauseJob(command.job))  # the other party may have opened it
        elif isinstance(command, OpenJob | Publish) and not isinstance(outcome, StorageFull):
            self._carry_out(CloseJob(command.job, "failed", f"{type(outcome).__name__}: {outcome}"))

    def _tell_side_workers(self, command: Command) -> None:
        """Have those that take part in a job do what this pair does."""
        if isinstance(command, OpenJob):
            self._crews[command.job] = command.workers[1:]
        if isinstance(command, OpenJob | StepsTogether):
            self._side_workers.tell(self._crews.get(command.job, ()), command)
        if isinstance(command, PauseJob):
            self._side_workers.tell(self._crews.pop(command.job, ()), command)
        if isinstance(command, CloseJob):  # others may still have its rows
            self._crews.pop(command.job, None)
            self._side_workers.tell(self._side_workers.up(), command)

    def _together(self, work: Callable[[], T], spared: type[HdcosError] = HdcosError) -> T | HdcosError:
        """Work that party 1 does too; what it gave, or the error of either party. Then party 1 is told how it went.

        Errors that are not `spared` end the session: in the middle of steps the other party waits for the next round.
        """
        result: T | HdcosError
        commands = self._links.commands
        try:
            result = work()
        except HdcosError as error:
            if isinstance(error, PeerLost) or self._links.rounds.closed or not isinstance(error, spared):
                raise
            result = error
        try:
            answer(commands, self._answer_s)
        except HdcosError as error:
            if commands.closed:
                raise
            result = result if isinstance(result, HdcosError) else error
        commands.send(Kind.REQUEST, *encode_message({"go": not isinstance(result, HdcosError)}))
        return result

    def _listen(self) -> None:
        """What party 1 says: requests that arrived there, and what it holds."""
        arrivals = self._links.arrivals
        while not self._ended.is_set():
            _, payload = arrivals.receive(Kind.REQUEST, timeout_s=self._timeout_s)
            meta, _ = decode_message(payload)
            if "inventory" in meta:
                self._scheduler.hear(meta["inventory"])
            if "functions" in meta:  # before the requests, which may be for them
                self._scheduler.hear_functions(meta["functions"])
            if meta.get("requests"):
                self._batcher.hear(meta["requests"])
            with self._batcher.changed:
                self._batcher.changed.notify_all()

    # ---- party 1

    def _follow(self) -> None:
        commands = self._links.commands
        while not self._ended.is_set():
            _, payload = commands.receive(Kind.REQUEST, timeout_s=self._answer_s)
            command = read_command(decode_message(payload)[0])
            if not isinstance(command, Idle):
                held = self._store.changes
                self._obey(command)
                self._carried += 1
                if isinstance(command, PauseJob):  # party 0 waits to hear of it, whether that changed anything or not
                    self._told = -1
                if self._told < 0 or self._store.changes != held:
                    with self._batcher.changed:
                        self._batcher.changed.notify_all()
            self._look_after()

    def _obey(self, command: Command) -> None:
        self._failures.begin(command)
        if not command.answered:
            self.worker.execute(command)
        else:
            spared = WorkerLost if isinstance(command, StepsTogether) else HdcosError
            rest = self._answering(lambda: self.worker.begin(command), spared)
            if rest is not None:
                self._answering(rest)
        self._failures.end()

    def _answering(self, work: Callable[[], T], spared: type[HdcosError] = HdcosError) -> T | None:
        """Work that party 0 does too; what it gave, if both succeeded."""
        commands, result = self._links.commands, None
        try:
            result = work()
        except HdcosError as error:
            if isinstance(error, PeerLost) or self._links.rounds.closed or not isinstance(error, spared):
                raise
            if not isinstance(error, WorkerLost):  # which is no mistake of the job
                self._failures.fail(error)
            reply_error(commands, error)
        else:
            commands.send(Kind.REPLY, *encode_message({}))
        _, payload = commands.receive(Kind.REQUEST, timeout_s=self._answer_s)
        return result if decode_message(payload)[0].get("go") else None

    def _report(self) -> None:
        """Tell party 0 what arrives here and what is held here."""
        batcher, store, functions, said = self._batcher, self._store, self._functions, 0.0
        while not self._ended.is_set():
            message: dict[str, Any] = {"requests": batcher.news()}
            if store.changes != self._told:
                self._told = store.changes  # first of all: what changes from here on is told once more
                carried = self._carried
                message["inventory"] = {**inventory(store, 1, self._failures), "carried": carried}
            if functions.changes != self._functions_told:
                self._functions_told = functions.changes
                message["functions"] = functions.listed()
            if message["requests"] or len(message) > 1 or time.monotonic() - said > HEARTBEAT_S:
                said = time.monotonic()
                self._links.arrivals.send(Kind.REQUEST, *encode_message(message))
            with batcher.changed:
                batcher.changed.wait_for(
                    lambda: (
                        batcher.has_news
                        or store.changes != self._told
                        or functions.changes != self._functions_told
                        or self._ended.is_set()
                    ),
                    HEARTBEAT_S / 4,
                )

    # ---- both

    def _look_after(self) -> None:
        """Whether the dealer is there and material keeps coming; what operators decided meanwhile."""
        if self.engine.shortage is not None:
            raise PeerLost(f"the dealer: {self.engine.shortage}")
        now = time.monotonic()
        if now - self._looked > LOOK_S:
            self._looked = now
            if self._links.worn:
                raise PeerLost("the links have carried as much as one key should encrypt: they are made again")
            self._store.poll()
            self._batcher.expire()
            self._functions.expire()
            self.engine.greet_dealer()
