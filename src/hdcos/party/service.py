"""A party for as long as its process lives: sessions one after another, and what clients need to know of them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from threading import Event, Thread
from typing import Any

from hdcos._version import __version__
from hdcos.api import answers
from hdcos.api.cost import counts_to_json
from hdcos.errors import DataMissing, HdcosError, PeerLost
from hdcos.link import Count, Doorman, Meter
from hdcos.offline.ot import OtSource
from hdcos.offline.source import DealerClient, MaterialSource
from hdcos.party.allotment import MaterialAllotment
from hdcos.party.batcher import Batcher
from hdcos.party.budget import Budget, Quota
from hdcos.party.config import Config
from hdcos.party.failures import Failures
from hdcos.party.functions import Functions
from hdcos.party.gathering import Gathering
from hdcos.party.http.connections import Connections, descriptors
from hdcos.party.launcher import BESIDE, Placement, choose_launcher
from hdcos.party.links import DIAL_S, PeerListener, dial, dial_transfers
from hdcos.party.node import Node, release_memory
from hdcos.party.opened import Loaded
from hdcos.party.rates import Rates
from hdcos.party.session import Session
from hdcos.party.side_worker import Shared
from hdcos.party.side_workers import WANTED_FILE, SideWorkers
from hdcos.party.store import Store, StoredJob, interim_name
from hdcos.party.training import Progress
from hdcos.party.worker import Worker

log = logging.getLogger("hdcos")
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 2.0
LASTING_S = 10.0
STOP_S = 0.5


class Service:
    """One party. `start` begins to look for the others; whatever fails, it begins again."""

    def __init__(
        self,
        node: Node,
        store: Store,
        config: Config,
        loop: asyncio.AbstractEventLoop,
        workers: int = 1,
        placement: Placement = BESIDE,
    ) -> None:
        self.node, self.store, self.config = node, store, config
        self.rank = int(node.role[-1])
        self._device = node.place.open()
        self.batcher = Batcher(loop, self.rank, config.limits.patience_s, config.limits.waiting)
        self.session: Session | None = None
        self.sessions = self.aborts = self.requests = self.errors = 0
        self.latencies: deque[float] = deque(maxlen=2000)
        self.started = time.time()
        self.reason = "starting"
        self.connections = Connections(descriptors())
        self.failures = Failures(store)
        self.budget = Budget(config, store, node.has_dealer)
        self.quota = Quota(store)
        self._before = {"online": Count(), "offline": Count()}
        self._batches = self._rows = self._steps = 0
        self._rates = Rates()
        self._stop = Event()
        self._doorman = Doorman(node.listener)
        mine = replace(node, listener=self._doorman.serve(node.role, ""))
        self._listener = PeerListener(mine, self.status)
        launcher = choose_launcher(placement, self._doorman, node.listener, node.place)
        self._gathering = Gathering(node, launcher.host)
        self.side_workers = SideWorkers(
            Shared(
                node=node,
                store=store,
                budget=self.budget,
                batcher=self.batcher,
                launcher=launcher,
                listener=self._listener,
                most_rows=config.limits.rows,
                models=self._lasting_models,
                dealers=self._count_dealers,
                first=self._gathering.address,
                occupied=lambda: (session := self.session) is not None and session.occupied,
            ),
            store.folder / WANTED_FILE,
        )
        self._workers = workers
        self._life = Thread(target=self._live, name="session", daemon=True)

    def start(self) -> None:
        self._life.start()
        self.side_workers.start(self._workers)

    def stop(self, timeout_s: float = 5.0) -> None:
        """End in good order: what runs is finished, what waits is refused."""
        self._stop.set()
        self._listener.close()
        session = self.session
        if session is not None:
            session.stop()
        self.side_workers.stop(timeout_s)
        self._gathering.close()
        self._doorman.close()
        self._life.join(STOP_S if session is None else timeout_s)  # one that looks for the others has begun nothing
        self.quota.close()
        self.store.close()

    # ---- one session after another

    def _live(self) -> None:
        pause = FIRST_PAUSE_S
        while not self._stop.is_set():
            began, before = time.monotonic(), self.sessions
            try:
                self._one_session()
                self._say("the session has ended")
            except HdcosError as error:
                self._say(f"{type(error).__name__}: {error}")
            except Exception as error:
                # Its message might quote data: the name and the place are enough.
                self._say(f"internal error ({type(error).__name__})", at=_place(error))
            if self.sessions > before:
                release_memory()
            pause = FIRST_PAUSE_S if time.monotonic() - began > LASTING_S else min(2 * pause, LONGEST_PAUSE_S)
            self._stop.wait(pause)

    def _say(self, reason: str, **more: str) -> None:
        if reason != self.reason:
            log.warning("no session: %s", reason, extra=more)
        self.reason = reason

    def _one_session(self) -> None:
        meter = Meter()
        links = self._listener.links(meter, DIAL_S) if self.rank == 0 else dial(self.node, meter)
        try:
            source = self._source()
            if self._stop.is_set():
                raise PeerLost("this node is being stopped")
            session = Session(
                self.rank,
                links,
                source,
                self.store,
                self.batcher,
                self.config,
                self.budget,
                self.node.timeout_s,
                self.failures,
                self.side_workers,
                self._gathering.gather,
            )
        except BaseException as error:
            links.close(error)
            raise
        self.sessions += 1
        self.session = session
        self.reason = ""
        log.info("session %d begins", self.sessions)
        try:
            session.run()
        except BaseException:
            self.aborts += 1
            raise
        finally:
            self.session = None
            self._before = self.counts(session)
            self._batches += session.worker.batches
            self._rows += session.worker.rows
            self._steps += session.worker.steps

    def _source(self) -> MaterialSource:
        """Where material comes from: the dealer, or the two parties themselves."""
        if self.node.has_dealer:
            dealer = DealerClient(lambda meter: self.node.dial_dealer(meter, DIAL_S), self.rank, self._device)
            dealer.look()
            return dealer
        if self.rank == 1:
            return OtSource(lambda meter: dial_transfers(self.node, meter), 1, self._device)
        return OtSource(lambda meter: self._listener.transfers(meter, self.node.timeout_s), 0, self._device)

    def _count_dealers(self) -> int:
        session = self.session
        source = None if session is None else session.engine.dealer
        return source.workers if isinstance(source, DealerClient) else int(source is not None)

    # ---- what clients ask

    def model(self, name: str) -> Loaded:
        """A model that is ready; DataMissing if there is none, PeerLost if it is not ready yet."""
        session = self.session
        loaded = None if session is None else session.worker.models.get(name)
        if loaded is not None and not loaded.forgotten:
            return loaded
        versions = self.store.models(name)
        if not versions:
            raise DataMissing(f"no model is named {name!r}")
        if why := self.failures.final("load", name, versions[-1].version):
            raise DataMissing(f"{name} cannot be loaded: {why}. Share it again, or have its operators retry it")
        raise PeerLost(
            f"{name} is not ready: {self.reason or 'it is being loaded, or the other party lacks its share'}"
        )

    def _lasting_models(self) -> dict[str, Loaded]:
        """The models that are ready, but for those of an epoch, which are looked at once."""
        session = self.session
        if session is None:
            return {}
        passing = {interim_name(job) for job in list(session.worker.jobs)}
        return {name: loaded for name, loaded in session.worker.models.items() if name not in passing}

    @property
    def functions(self) -> Functions:
        """What clients have open besides models."""
        return self.budget.functions

    def room(self, but: MaterialAllotment | None = None) -> int:
        """Bytes of the models' memory that are left: for the first who asks. One allotment may be left out."""
        models = [] if self.session is None else list(self.session.worker.models.values())
        more = ((item, allotment) for item in models for allotment in item.allotments.values() if allotment is not but)
        taken = sum(item.row_bytes * allotment.boosted for item, allotment in more)
        labels = ((item, item.labels) for item in models if item.labels is not None and item.labels is not but)
        taken += sum(item.label_bytes * allotment.boosted for item, allotment in labels)
        return max(0, self.budget.free() - taken)

    def progress(self, job: str) -> Progress | None:
        """How far a job is, if this session works on it."""
        session = self.session
        return None if session is None else session.worker.jobs.get(job)

    def ready(self) -> tuple[bool, str]:
        """Peer link up, dealer up, material of every loaded model above the mark."""
        session = self.session
        if session is None:
            return False, self.reason or "starting"
        if session.engine.shortage is not None:
            return False, f"the dealer: {session.engine.shortage}"
        if not session.worker.settled:
            return False, "models are being loaded"
        for name, loaded in list(session.worker.models.items()):
            allotment = loaded.allotments["shares"]
            if allotment.free < self.config.stock.mark * allotment.ahead:
                return False, f"material for {name} is low: {allotment.free} rows"
        return True, self.store.room.trouble

    def counts(self, session: Session | None) -> dict[str, Count]:
        """Rounds and bytes since the process began."""
        if session is None:
            return self._before
        online = session.engine.meter.snapshot().sections["online"]
        offline = session.engine.dealer.meter.snapshot().sections["offline"]
        return {"online": self._before["online"] + online, "offline": self._before["offline"] + offline}

    def status(self) -> answers.Status:
        """What the status page shows."""
        session = self.session
        ready, reason = self.ready()
        worker = None if session is None else session.worker
        counts = self.counts(session)
        latencies = sorted(self.latencies)

        def quantile(part: float) -> float | None:
            return 1e3 * latencies[int(part * (len(latencies) - 1))] if latencies else None

        return {
            "ready": ready,
            "reason": reason,
            "party": self.rank,
            "cluster": self.node.run.hex(),
            "version": __version__,
            "uptime_s": time.time() - self.started,
            "session": self.sessions,
            "peer": {
                "up": session is not None,
                "rtt_ms": worker.rtt_s * 1e3 if worker is not None and worker.rtt_s is not None else None,
            },
            "dealer": {"up": session is not None and session.engine.shortage is None},
            "workers": [self._first_worker(worker), *self.side_workers.status()],
            "models": self._model_states(worker),
            "functions": len(self.functions),
            "jobs": self.job_statuses(self.store.unfinished()),
            "connections": {"open": len(self.connections), "most": self.connections.most},
            "storage": {"free_bytes": self.store.room.free_bytes, "full": bool(self.store.room.trouble)},
            "counters": {
                "requests": self.requests,
                "rows": self._rows + (worker.rows if worker else 0) + self.side_workers.rows,
                "batches": self._batches + (worker.batches if worker else 0) + self.side_workers.batches,
                "rounds": counts["online"].rounds,
                "bytes_sent": counts["online"].wire_bytes_sent,
                "bytes_received": counts["online"].wire_bytes_received,
                "material_bytes": counts["offline"].wire_bytes_received,
                "aborts": self.aborts,
                "errors": self.errors,
            },
            "latency_ms": {"p50": quantile(0.5), "p99": quantile(0.99)},
        }

    def _first_worker(self, worker: Worker[MaterialAllotment] | None) -> answers.WorkerStatus:
        """The node itself, which is worker 0."""
        rows = self._rows + (worker.rows if worker else 0)
        steps = self._steps + (worker.steps if worker else 0)
        rows_per_s, steps_per_s = self._rates.note(rows, steps)
        models = worker.models.values() if worker else ()
        return {
            "index": 0,
            "up": worker is not None,
            "reason": "" if worker else self.reason,
            "starts": self.sessions,
            "rows": rows,
            "batches": self._batches + (worker.batches if worker else 0),
            "steps": steps,
            "models": len(models),
            "available": sum(loaded.allotments["shares"].free for loaded in models),
            "rows_per_s": rows_per_s,
            "steps_per_s": steps_per_s,
        }

    def _model_states(self, worker: Worker[MaterialAllotment] | None) -> list[answers.ModelStatus]:
        newest, counted = {model.name: model for model in self.store.models()}, self.store.all_queries()
        states: list[answers.ModelStatus] = []
        for name in sorted(newest):
            loaded = worker.models.get(name) if worker else None
            allotment = loaded.allotments["shares"] if loaded else None
            states.append(
                {
                    "name": name,
                    "version": loaded.stored.version if loaded else "",
                    "ready": loaded is not None,
                    "stock": allotment.free if allotment else 0,
                    "mark": int(self.config.stock.mark * allotment.ahead) if allotment else 0,
                    "rows": loaded.rows if loaded else 0,
                    "queries": self.quota.used(name),
                    "queries_allowed": loaded.allowed if loaded else counted.get(name, (0, 0))[1],
                    "error": self.failures.final("load", name, newest[name].version),
                }
            )
        return states

    def job_statuses(self, jobs: Iterable[StoredJob]) -> list[answers.Job]:
        """What becomes of these jobs, but for those that are forgotten meanwhile."""
        found = []
        for job in jobs:
            with suppress(DataMissing):
                found.append(self.job_status(job.id))
        return found

    def job_status(self, number: str) -> answers.Job:
        progress = self.progress(number)  # before the record, which is written before a job that has ended is let go
        job = self.store.job_record(number)
        step = progress.step if progress else job.step
        total = progress.total_steps if progress else step if job.state == "done" else 0
        epoch = step // progress.steps_per_epoch if progress else job.epochs if job.state == "done" else 0
        state = "waiting" if job.state == "running" and progress is None else job.state
        shown, version = progress.viewing.interim if progress else (0, "")
        return {
            "id": job.id,
            "model": job.model,
            "state": state,
            "step": step,
            "total_steps": total,
            "epoch": epoch,
            "epochs": job.epochs,
            "error": job.error,
            "version": job.version if self.store.holds_model(job.model, job.version) else "",
            "report": self._report(job, progress),
            "interim": {"epoch": shown, "model": job.interim, "version": version},
        }

    def _report(self, job: StoredJob, progress: Progress | None) -> dict[str, Any]:
        """What a job cost so far at this party."""
        if progress is not None:
            return progress.report()
        return {"cost": counts_to_json({"online": Count(), "offline": Count()}), "ended": [], "best": 0} | job.report

    def wake(self) -> None:
        """Have the session look at what has changed."""
        with self.batcher.changed:
            self.batcher.changed.notify_all()

    def look(self, job: str, epoch: int, best: bool = False, stop: bool = False) -> None:
        """A client has seen how the model of a job was after an epoch: training goes on, unless it is to stop."""
        progress = self.progress(job)
        if progress is not None:
            progress.viewing.look(epoch, best, stop)
            self.wake()


def _place(error: BaseException) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
