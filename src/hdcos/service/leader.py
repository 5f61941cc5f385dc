"""What is to be done next: party 0 decides, from what both parties hold.

Party 1 tells what it has (an *inventory*) whenever that changes. Only what both hold in the same version can be used:
a model or data set that one party lacks, or anything that they were told differently, waits.

What fails belongs to a model or a job. It is given up if the error has a name, or if three sessions in a row were lost
over it: one client's mistake must not keep the parties from serving the others.
"""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

from hdcos.errors import HdcosError, PeerLost
from hdcos.nn import Sequential
from hdcos.nn.private import layout
from hdcos.nn.private.estimate import oblivious_traffic
from hdcos.nn.private.planning import plan_inference
from hdcos.serve.checkpoint import Checkpoints
from hdcos.serve.work import fingerprint
from hdcos.service.config import Config
from hdcos.service.desk import Refused
from hdcos.service.lane import rows_ahead
from hdcos.service.store import ENDED, Store, StoredJob, StoredModel
from hdcos.service.worker import Command, Worker

Inventory = dict[str, Any]
MASKED_PART = 0.25
"""Of the stock of a model, what is kept for rows that come masked."""
SLICE_S, BUSY_SLICE_S = 0.4, 0.05
"""How long training may keep predictions waiting: when none came lately, and when some did."""
INTERIM_ROWS = 512
"""Rows of material for the model of an epoch, which is looked at once."""
TIDY_S = 5.0
JOBS_AT_ONCE, MOST_ATTEMPTS, MOST_LOST = 2, 20, 3


def inventory(store: Store, rank: int) -> Inventory:
    """What a party holds, as it tells the other one."""
    jobs = []
    for job in store.jobs():
        known: dict[str, Any] = {"state": job.state, "cancelled": job.cancelled, "said": fingerprint(job.spec).hex()}
        if job.state not in ENDED:
            found = Checkpoints.of(store.job_folder(job.id), rank)
            known["attempt"] = found.attempt
            known["checkpoints"] = [
                [step, record["run"], record["attempt"]] for step, record in found.records().items()
            ]
        jobs.append([job.id, known])
    return {
        "models": [
            [item.name, item.version, fingerprint(item.architecture, item.phase_bits).hex()] for item in store.models()
        ],
        "datasets": [
            [item.name, item.version, [item.rows, item.features, item.outputs, fingerprint(item.columns).hex()]]
            for item in store.datasets()
            if item.complete
        ],
        "jobs": jobs,
        "reveals": [[item.id, [item.model, item.version, item.state]] for item in store.reveals()],
    }


class Failures:
    """What went wrong with which model or job, through all sessions of this process."""

    def __init__(self) -> None:
        self._why: dict[tuple[str, ...], str] = {}
        self._lost: Counter[tuple[str, ...]] = Counter()
        self.doing: tuple[str, ...] | None = None
        """What the session is about now."""

    def note(self, error: BaseException, *thing: str) -> None:
        """An error while something was done. A lost node may be anybody's fault: three times before it counts."""
        self._lost[thing] += 1
        if not isinstance(error, PeerLost) or self._lost[thing] >= MOST_LOST:
            self._why[thing] = f"{type(error).__name__}: {error}"

    def lost(self, error: BaseException) -> None:
        """The session ended."""
        if self.doing is not None:
            self.note(error, *self.doing)
        self.doing = None

    def forgive(self, *thing: str) -> None:
        self._lost.pop(thing, None)

    def final(self, *thing: str) -> str:
        """Why something is not tried again, or nothing."""
        return self._why.get(thing, "")


def _thing(command: Command) -> tuple[str, ...] | None:
    """The model or job that a command is about."""
    if command["op"] == "load":
        return ("load", command["model"], command["version"])
    if command["op"] in ("open_job", "steps", "publish"):
        return ("job", command["job"])
    return None


class Leader:
    """Chooses commands, one at a time."""

    def __init__(self, worker: Worker, config: Config, failures: Failures, dealt: bool) -> None:
        self._worker, self._store, self._config, self._dealt = worker, worker.store, config, dealt
        self._failures = failures
        self._theirs: Inventory | None = None
        self._looked = -1
        self._mine: Inventory = {}
        self._fresh = False
        self._tidied, self._turn = time.monotonic(), 0
        self._predicted = 0.0
        self._step_s: dict[str, float] = {}

    def heard(self, theirs: Inventory) -> None:
        """Party 1 holds this now."""
        self._theirs = theirs
        self._fresh = True

    @property
    def informed(self) -> bool:
        return self._theirs is not None

    @property
    def has_news(self) -> bool:
        """Whether either party holds something else than before."""
        return self.informed and (self._fresh or self._store.changes != self._looked)

    def commands(self) -> Iterator[tuple[Command, bool]]:
        """What can be done now, most urgent first, and whether party 1 must say how it went."""
        desk = self._worker.desk
        desk.expire()
        refusals = desk.refusals()
        if refusals:
            yield {"op": "refuse", "refusals": refusals}, False
        if desk.busy:
            yield from self._batch()
        for command in self._administration():
            yield command, True
        if self.informed and not self._worker.settled:
            yield {"op": "settled"}, False
        yield from self._orders()
        yield from self._training()

    # ---- predictions

    def _batch(self) -> Iterator[tuple[Command, bool]]:
        worker = self._worker
        requests = worker.desk.batch(self._most_rows)
        if not requests:
            return
        name, mode = requests[0].model, requests[0].mode
        loaded = worker.models.get(name)
        ids = [request.id for request in requests]
        try:
            if loaded is None or loaded.stored.version != requests[0].version:
                raise HdcosError(f"{name} has just been replaced or forgotten: ask again")
            lane, rows = loaded.lanes[mode], sum(request.rows for request in requests)
            if mode == "shares" and lane.allotted + rows > lane.stock.expected:
                more = {"op": "order", "model": name, "mode": mode, "ordered": lane.allotted + rows + lane.ahead // 2}
                yield more, False
            start = lane.allot(rows) if mode == "shares" else 0
        except HdcosError as error:
            worker.desk.refuse(requests, Refused(error, 503, retryable=True))
            yield {"op": "refuse", "refusals": [[number, str(error)] for number in ids]}, False
            return
        self._predicted = time.monotonic()
        command = {"op": "infer", "model": name, "mode": mode, "ids": ids, "start": start}
        yield {**command, "ordered": lane.wanted(), "requests": requests}, False

    def _most_rows(self, name: str, mode: str) -> int:
        loaded = self._worker.models.get(name)
        return min(self._config.limits.rows, loaded.lanes[mode].most_rows) if loaded else self._config.limits.rows

    def _orders(self) -> Iterator[tuple[Command, bool]]:
        for name, loaded in list(self._worker.models.items()):
            for mode, lane in loaded.lanes.items():
                if lane.wanted() > lane.stock.expected:
                    yield {"op": "order", "model": name, "mode": mode, "ordered": lane.wanted()}, False
                if time.monotonic() - self._tidied > TIDY_S:
                    yield {"op": "burn", "model": name, "mode": mode, "before": lane.expired_before()}, False
        if time.monotonic() - self._tidied > TIDY_S:
            self._tidied = time.monotonic()

    # ---- models, reveals and the beginnings of jobs

    def _administration(self) -> Iterator[Command]:
        if self._theirs is None:
            return
        if self._store.changes != self._looked or self._fresh:
            self._fresh = False
            self._looked = self._store.changes
            self._mine = inventory(self._store, 0)
            yield from self._models()
            yield from self._reveals()
            yield from self._jobs()

    def _common(self, kind: str) -> set[tuple[str, str]]:
        assert self._theirs is not None
        theirs = {(name, version): what for name, version, what in self._theirs[kind]}
        return {(name, version) for name, version, what in self._mine[kind] if theirs.get((name, version)) == what}

    def _models(self) -> Iterator[Command]:
        """Load the newest version that both hold, then forget the older ones."""
        common, newest = self._common("models"), dict[str, StoredModel]()
        for model in self._store.models():
            if (model.name, model.version) in common and not self._failures.final("load", model.name, model.version):
                newest[model.name] = model
        for name in list(self._worker.models):
            if name not in newest:
                yield {"op": "unload", "model": name}
        for name, model in newest.items():
            loaded_now = self._worker.models.get(name)
            if loaded_now is None or loaded_now.stored.version != model.version:
                yield self._load(model)
            older = [known.version for known in self._store.models(name) if known.created < model.created]
            kept = {item.version for item in self._store.reveals() if item.state in ("waiting", "approved")}
            dropped = [version for version in older if version not in kept]
            if dropped:
                yield {"op": "drop", "model": name, "versions": dropped}

    def _load(self, model: StoredModel) -> Command:
        chosen = layout(Sequential.outline(model.architecture), model.phase_bits)
        # Two parties without a dealer say far more to each other than they keep: what they say is what counts.
        size = plan_inference(chosen).material.packed_bytes(1) if self._dealt else oblivious_traffic(chosen).bytes
        rows = rows_ahead(int(size), self._config.stock.megabytes)
        if model.name in {self._store.job(job).interim for job in self._worker.jobs}:
            rows = min(rows, INTERIM_ROWS)
        rows_masked = max(1, int(MASKED_PART * rows))
        return {
            **{"op": "load", "model": model.name, "version": model.version, "scope": _scope("model", model.name)},
            "ahead": {"shares": rows - rows_masked or 1, "masked": rows_masked},
        }

    def _reveals(self) -> Iterator[Command]:
        assert self._theirs is not None
        theirs = dict(self._theirs["reveals"])
        for number, said in self._mine["reveals"]:
            if said[2] == "approved" and theirs.get(number) == said:
                yield {"op": "release", "reveal": number}

    def _jobs(self) -> Iterator[Command]:
        """Begin jobs that both were told alike and whose data sets both hold; end those that were cancelled."""
        assert self._theirs is not None
        theirs, mine = dict(self._theirs["jobs"]), dict(self._mine["jobs"])
        for job in self._store.jobs():
            other, own = theirs.get(job.id), mine.get(job.id)
            if other is None or own is None or other["said"] != own["said"]:
                continue
            if job.state in ENDED:
                if other["state"] not in ENDED:  # it died before it could note that
                    yield _end(job.id, job.state, job.error)
            elif other["state"] in ENDED:
                yield _end(job.id, other["state"], "the other party ended it")
            elif why := self._failures.final("job", job.id):
                yield _end(job.id, "failed", why)
            elif job.cancelled or other["cancelled"]:
                yield _end(job.id, "cancelled")
            elif job.id not in self._worker.jobs and len(self._worker.jobs) < JOBS_AT_ONCE:
                yield from self._begin(job, own, other)

    def _begin(self, job: StoredJob, own: dict[str, Any], other: dict[str, Any]) -> Iterator[Command]:
        common = self._common("datasets")
        newest = {dataset.name: dataset.version for dataset in self._store.datasets() if dataset.complete}
        chosen = job.data or [[name, newest.get(name, "")] for name in job.spec["datasets"]]
        if not all((name, version) in common for name, version in chosen):
            return
        held = [item for item in own.get("checkpoints", []) if item in other.get("checkpoints", [])]
        newest_step = max(held, key=lambda item: (item[2], item[0]), default=None)
        attempt = 1 + max(own.get("attempt", 0), other.get("attempt", 0))
        if attempt - (0 if newest_step is None else newest_step[2]) > MOST_ATTEMPTS:
            yield _end(job.id, "failed", f"{MOST_ATTEMPTS} attempts in a row did not reach a checkpoint")
            return
        yield {
            **{"op": "open_job", "job": job.id, "scope": _scope("training", job.id), "datasets": chosen},
            **{"attempt": attempt, "resume": None if newest_step is None else newest_step[0]},
        }

    # ---- training, between predictions

    def _training(self) -> Iterator[tuple[Command, bool]]:
        """A slice of the job whose turn it is."""
        jobs = list(self._worker.jobs.items())
        self._turn += 1
        for job, progress in jobs[self._turn % len(jobs) :][:1] if jobs else ():
            if progress.waits:
                return
            if progress.step >= progress.total_steps:
                yield _publish(job), True
                if job in self._worker.jobs:  # unless that failed
                    yield _end(job, "done"), True
                self._fresh = True  # the next job may begin
                return
            busy = time.monotonic() - self._predicted < 1.0
            at_once = max(1, int((BUSY_SLICE_S if busy else SLICE_S) / self._step_s.get(job, SLICE_S)))
            epoch, done = divmod(progress.step, progress.steps_per_epoch)
            steps = min(at_once, progress.steps_per_epoch - done)
            started = time.monotonic()
            command = {"op": "steps", "job": job, "start": progress.step, "steps": steps}
            yield {**command, "rate": progress.rates[epoch]}, False
            self._step_s[job] = max(1e-4, (time.monotonic() - started) / steps)
            ended = done + steps == progress.steps_per_epoch and progress.step < progress.total_steps
            if ended and progress.watched and self._store.job(job).spec["publish"] == "epoch":
                publish = _publish(job, interim=True)
                yield publish, True
                progress.show(epoch + 1, publish["version"])
            return

    @property
    def working(self) -> bool:
        """Whether a job can go on now."""
        return any(not progress.waits for progress in self._worker.jobs.values())

    def failed(self, command: Command, error: HdcosError) -> Command | None:
        """What follows from a command that could not be carried out, by either party."""
        thing = _thing(command)
        if thing is None:
            return None
        self._failures.note(error, *thing)
        return _end(command["job"], "failed", f"{type(error).__name__}: {error}") if thing[0] == "job" else None

    def began(self, command: Command) -> None:
        """A command is being carried out: if the session is lost meanwhile, that is held against it."""
        self._failures.doing = _thing(command)

    def ended(self) -> None:
        if self._failures.doing is not None:
            self._failures.forgive(*self._failures.doing)
        self._failures.doing = None


def _scope(what: str, name: str) -> str:
    return f"{what} {name} {secrets.token_hex(16)}"


def _publish(job: str, interim: bool = False) -> Command:
    version, scope = secrets.token_hex(16), _scope("job", job)
    return {"op": "publish", "job": job, "version": version, "scope": scope, "interim": interim}


def _end(job: str, state: str, error: str = "") -> Command:
    return {"op": "close_job", "job": job, "state": state, "error": error}
