"""What is to be done next: party 0 decides, from what both parties hold.

Party 1 tells what it has (an *inventory*) whenever that changes. Only what both hold in the same version can be used:
a model or data set that one party lacks, or anything that they were told differently, waits.

What fails belongs to a model or a job, and is given up after a while (`failures`): one client's mistake must not keep
the parties from serving the others. What fails for lack of room on a disk is nobody's mistake: it waits, longer each
time, and goes on when there is room.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any

from hdcos.api.commands import (
    Burn,
    CloseJob,
    Command,
    Drop,
    DropData,
    Infer,
    KeepBest,
    Load,
    OpenJob,
    Order,
    PauseJob,
    Publish,
    Refuse,
    Release,
    Settle,
    Steps,
    StepsTogether,
    Unload,
    Withhold,
)
from hdcos.errors import DataMissing, HdcosError, InputError
from hdcos.nn import Network
from hdcos.party.allotment import MaterialAllotment
from hdcos.party.batcher import Batcher, Refused, Request
from hdcos.party.budget import LEAST_AHEAD, Budget, Demand
from hdcos.party.checkpoint import Checkpoints
from hdcos.party.config import Config
from hdcos.party.engine import fingerprint
from hdcos.party.failures import Failures
from hdcos.party.functions import open_command
from hdcos.party.group import most_pairs
from hdcos.party.kept_reveals import PENDING
from hdcos.party.opened import Opened, OpenedFunction, OpenedModel
from hdcos.party.store import ENDED, KEEP, Store, StoredJob, StoredModel, interim_name
from hdcos.party.training import Progress
from hdcos.party.uploads import SILENT_S
from hdcos.party.worker import Worker
from hdcos.secure import compile_network
from hdcos.secure.estimate import ot_traffic
from hdcos.secure.labels import LABEL
from hdcos.secure.program import plan_inference

Inventory = dict[str, Any]
MASKED_PART = 0.25
"""Of the material of a model, what is kept for rows that come masked."""
SLICE_S, BUSY_SLICE_S = 0.4, 0.05
"""How long training may keep predictions waiting: when none came lately, and when some did."""
INTERIM_ROWS = 512
"""Rows of material for the model of an epoch, which is looked at once."""
TIDY_S = 5.0
JOBS_AT_ONCE, MOST_ATTEMPTS = 2, 20
ALONE_S = SILENT_S
"""How long a job that only one party was told of is kept."""


def inventory(store: Store, rank: int, failures: Failures) -> Inventory:
    """What a party holds and can use, as it tells the other one."""
    jobs = []
    for job in store.jobs():
        known: dict[str, Any] = {"state": job.state, "cancelled": job.cancelled, "said": job.said, "why": ""}
        if job.state not in ENDED:
            known["why"] = failures.final("job", job.id)
            found = Checkpoints.of(store.job_folder(job.id), rank)
            known["attempt"] = found.attempt
            known["checkpoints"] = [
                [step, record["run"], record["attempt"]] for step, record in found.records().items()
            ]
        jobs.append([job.id, known])
    return {
        "models": [
            [item.name, item.version, fingerprint(item.architecture, item.phase_bits).hex()]
            for item in store.models()
            if not failures.final("load", item.name, item.version)
        ],
        "datasets": [
            [
                item.name,
                item.version,
                [item.rows, item.features, item.outputs, store.said_of(item)],
            ]
            for item in store.records()
            if item.complete
        ],
        "jobs": jobs,
        "reveals": [[item.id, [item.model, item.version, item.state]] for item in store.reveals()],
    }


class Scheduler:
    """Chooses commands, one at a time."""

    def __init__(
        self,
        worker: Worker[MaterialAllotment],
        store: Store,
        batcher: Batcher,
        config: Config,
        budget: Budget,
        failures: Failures,
        further: Callable[[], Sequence[int]],
    ) -> None:
        self._worker, self._store, self._batcher, self._config = worker, store, batcher, config
        self._has_dealer = worker.engine.dealer.has_dealer
        self._failures, self._functions = failures, budget.functions
        self._further = further
        """The workers besides this one that jobs can count on now."""
        self._functions_there: dict[str, list[Any]] = {}
        """Functions that clients asked party 1 for: what was said, and executions to prepare, by id."""
        self._functions_seen = -1
        self._theirs: Inventory | None = None
        self._looked, self._looked_at = -1, time.monotonic()
        self._mine: Inventory = {}
        self._fresh = False
        self._tidied, self._turn = time.monotonic(), 0
        self._predicted = 0.0
        self._step_s: dict[str, float] = {}
        self._paused = dict[str, int]()
        """Jobs that were let go of, and the number of the command that said so: what party 1 held before it had carried
        that out does not count, it may hold other checkpoints since."""
        self._alone: dict[str, float] = {}
        """Jobs that one party alone was told of, or both differently, and since when."""

    def hear(self, theirs: Inventory) -> None:
        """Party 1 held this when it had carried out `carried` commands."""
        self._theirs = theirs
        self._fresh = True

    def hear_functions(self, theirs: dict[str, list[Any]]) -> None:
        """Party 1 was asked for these functions."""
        self._functions_there, self._functions_seen = theirs, -1

    def pause(self, job: str, command: int) -> None:
        """A job is let go of by a command: it goes on when party 1 has said which checkpoints it holds after that."""
        self._paused[job] = command

    @property
    def informed(self) -> bool:
        return self._theirs is not None

    @property
    def has_news(self) -> bool:
        """Whether either party holds something else than before."""
        held = self.informed and (self._fresh or self._store.changes != self._looked)
        return held or self._functions.changes != self._functions_seen

    def commands(self) -> Iterator[Command]:
        """What can be done now, most urgent first."""
        self._batcher.expire()
        if refusals := self._batcher.refusals():
            yield Refuse(refusals)
        if self._batcher.busy:
            yield from self._batch()
        yield from self._open_functions()
        yield from self._administration()
        if self.informed and not self._worker.settled:
            yield Settle()
        yield from self._orders()
        yield from self._training()

    # ---- predictions

    def _batch(self) -> Iterator[Command]:
        requests = self._batcher.batch(self._most_rows)
        if not requests:
            return
        name, version, mode, output = requests[0].kind
        opened = self._worker.opened.get(name)
        ids = [request.id for request in requests]
        retryable = True
        try:
            if opened is None or opened.version != version:
                raise HdcosError(f"{name} has just been replaced or forgotten: ask again")
            allotment, executions = opened.allotment(mode), opened.executions(sum(request.rows for request in requests))
            if isinstance(opened, OpenedFunction):
                yield from self._top_up(name, opened)
            if not allotment.ahead:
                retryable = False  # nobody asked for more material
                allotment.pool.check(allotment.allotted, executions)
            elif mode == "shares" and allotment.allotted + executions > allotment.pool.expected:
                yield Order(name, mode, allotment.allotted + executions + allotment.ahead // 2)
            found = (0, 0)
            if output == LABEL and isinstance(opened, OpenedModel):
                labels = yield from self._keep_labels(name, opened, executions, 2 * executions)
                found = labels.allot(executions), labels.wanted()
            start = allotment.allot(executions) if mode == "shares" else 0
        except HdcosError as error:
            self._batcher.refuse(requests, Refused(error, 503 if retryable else 409, retryable))
            yield Refuse([[number, str(error)] for number in ids])
            return
        self._predicted = time.monotonic()
        yield Infer(name, mode, ids, start, allotment.wanted(), output, *found)

    def _most_rows(self, request: Request) -> int:
        """Of a batch; calls of a function run one by one."""
        opened, most = self._worker.opened.get(request.model), self._config.limits.rows
        if opened is None or opened.version != request.version:
            return most  # to be refused
        if isinstance(opened, OpenedFunction):
            return 1
        most = min(most, opened.allotment(request.mode).most_rows)
        return min(most, opened.label_rows) if isinstance(opened, OpenedModel) and request.output == LABEL else most

    def _keep_labels(
        self, name: str, opened: OpenedModel[MaterialAllotment], rows: int, ahead: int
    ) -> Generator[Command, None, MaterialAllotment]:
        """Material for the labels of these rows; some is kept ahead for a while."""
        allotted = 0 if opened.labels is None else opened.labels.allotted
        if opened.labels is None or allotted + rows > opened.labels.pool.expected:
            yield Order(name, LABEL, allotted + rows)
        labels = opened.labels
        assert labels is not None  # by the order, at the latest
        labels.boost(max(labels.boosted, min(ahead, opened.label_rows)))
        return labels

    # ---- single functions

    def _open_functions(self) -> Iterator[Command]:
        """Open what both were told alike, order what both shall prepare, close what either forgot."""
        self._functions_seen = self._functions.changes
        there, here = self._functions_there, {asked.name: asked for asked in self._functions.all()}
        for name, opened in list(self._worker.opened.items()):
            if isinstance(opened, OpenedFunction) and (name not in here or here[name].id not in there):
                yield Unload(name)
        for name, asked in here.items():
            if asked.id not in there:
                continue
            if (known := self._worker.opened.get(name)) is not None:
                yield from self._top_up(name, known)
                continue
            if there[asked.id][0] == asked.said:
                yield open_command(asked, _scope("function", asked.call.function))
            else:
                asked.error = InputError("the parties were told different things of this function: tell both the same")
            if asked.error is not None:
                yield Unload(name)

    def _top_up(self, name: str, opened: Opened[MaterialAllotment]) -> Iterator[Command]:
        """Order what is kept ahead of a function, and what both parties were asked to prepare."""
        allotment, number = opened.allotment("shares"), name.removeprefix("function ")
        asked = min(self._functions.prepared(number), self._functions_there.get(number, ("", 0))[1])
        if (wanted := max(asked, allotment.wanted())) > allotment.pool.expected:
            yield Order(name, "shares", wanted)

    def _orders(self) -> Iterator[Command]:
        tidy = time.monotonic() - self._tidied > TIDY_S
        for name, loaded in self._worker.models.items():
            for mode, allotment in loaded.allotments.items():
                if allotment.wanted() > allotment.pool.expected:
                    yield Order(name, mode, allotment.wanted())
                if tidy:
                    yield Burn(name, mode, allotment.expired_before())
            asked, loaded.labels_asked = loaded.labels_asked, 0
            if asked:
                yield from self._keep_labels(name, loaded, asked, asked)
            if loaded.labels is not None and loaded.labels.wanted() > loaded.labels.pool.expected:
                yield Order(name, LABEL, loaded.labels.wanted())
        if tidy:
            self._tidied = time.monotonic()

    # ---- models, reveals and the beginnings of jobs

    def _administration(self) -> Iterator[Command]:
        if self._theirs is None:
            return
        overdue = any(time.monotonic() - since > ALONE_S for since in self._alone.values())
        changed = self._store.changes != self._looked or self._fresh or overdue
        if changed or self._failures.waited_since(self._looked_at):
            self._fresh, self._looked_at = False, time.monotonic()
            self._looked = self._store.changes
            self._mine = inventory(self._store, 0, self._failures)
            yield from self._models()
            yield from self._reveals()
            yield from self._jobs()
            yield from self._outdated_data()

    def _common(self, kind: str) -> set[tuple[str, str]]:
        assert self._theirs is not None
        theirs = {(name, version): what for name, version, what in self._theirs[kind]}
        return {(name, version) for name, version, what in self._mine[kind] if theirs.get((name, version)) == what}

    def _models(self) -> Iterator[Command]:
        """Load the newest version that both hold, then forget the older ones."""
        common, newest = self._common("models"), dict[str, StoredModel]()
        kept = {item.version for item in self._store.reveals() if item.state in PENDING}
        for model in self._store.models():
            if (model.name, model.version) in common:
                newest[model.name] = model
        for name in self._worker.models:
            if name not in newest:
                yield Unload(name)
        for name, model in newest.items():
            loaded_now = self._worker.models.get(name)
            if self._failures.waits("load", name, model.version):
                continue
            if loaded_now is None or loaded_now.stored.version != model.version:
                yield self._load(model)
            older = [known.version for known in self._store.models(name) if known.created < model.created]
            dropped = [version for version in older if version not in kept]
            if dropped:
                yield Drop(name, dropped)

    def _load(self, model: StoredModel) -> Command:
        network = Network.outline(model.architecture)
        chosen = compile_network(network, model.phase_bits, self._has_dealer)
        megabytes = self._config.stock.megabytes
        rows = Demand.of(network, plan_inference(chosen).material, megabytes).rows
        if not self._has_dealer:
            # Two parties without a dealer say far more to each other than they keep: what they say is what counts.
            rows = min(rows, max(LEAST_AHEAD, int(megabytes * 1e6 / ot_traffic(chosen).bytes)))
        if model.name in map(interim_name, self._worker.jobs):
            rows = min(rows, INTERIM_ROWS)
        rows_masked = max(1, int(MASKED_PART * rows))
        ahead = {"shares": rows - rows_masked or 1, "masked": rows_masked}
        return Load(model.name, model.version, _scope("model", model.name), ahead)

    def _reveals(self) -> Iterator[Command]:
        assert self._theirs is not None
        theirs = dict(self._theirs["reveals"])
        for number, said in self._mine["reveals"]:
            states = {said[2], theirs.get(number, said)[2]}
            if said[2] == "approved" and theirs.get(number) == said:
                yield Release(number)
            elif "refused" in states and states & set(PENDING):
                yield Withhold(number)

    def _jobs(self) -> Iterator[Command]:
        """Begin jobs that both were told alike and whose data sets both hold; end those that were cancelled."""
        assert self._theirs is not None
        heard = self._theirs  # what is heard meanwhile is looked at next
        theirs = {job: known for job, known in heard["jobs"] if self._paused.get(job, 0) <= heard["carried"]}
        mine = dict(self._mine["jobs"])
        yield from self._end_alone(theirs, mine)
        self._paused = {job: command for job, command in self._paused.items() if job in mine}
        self._step_s = {job: seconds for job, seconds in self._step_s.items() if job in mine}
        for job in self._store.jobs():
            other, own = theirs.get(job.id), mine.get(job.id)
            if other is None or own is None or other["said"] != own["said"]:
                continue
            if job.state in ENDED:
                if other["state"] not in ENDED:  # it died before it could note that
                    yield CloseJob(job.id, job.state, job.error)
            elif other["state"] in ENDED:
                yield CloseJob(job.id, other["state"], "the other party ended it")
            elif why := own["why"] or other["why"]:
                yield CloseJob(job.id, "failed", why)
            elif cancelled := job.cancelled or other["cancelled"]:
                yield from self._cancel(job, own, other, cancelled == KEEP)
            elif self._failures.waits("job", job.id):
                continue
            elif job.id not in self._worker.jobs and len(self._worker.jobs) < JOBS_AT_ONCE:
                yield from self._begin(job, own, other)

    def _end_alone(self, theirs: dict[str, Any], mine: dict[str, Any]) -> Iterator[Command]:
        """End jobs that nobody will begin: their client went before both parties were told the same."""
        alone = [
            number
            for number in {**theirs, **mine}
            if theirs.get(number, {}).get("said") != mine.get(number, {}).get("said")
            and any(known[number]["state"] not in ENDED for known in (theirs, mine) if number in known)
        ]
        now = time.monotonic()
        self._alone = {number: self._alone.get(number, now) for number in alone}
        for number in [number for number, since in self._alone.items() if now - since > ALONE_S]:
            yield CloseJob(number, "failed", "the parties were not told the same of it in time: submit it again")

    def _cancel(self, job: StoredJob, own: dict[str, Any], other: dict[str, Any], keep: bool) -> Iterator[Command]:
        """End a job. Its model is kept as it is, or, if the job is paused, as it was at its last checkpoint."""
        why = ""
        if keep and job.id not in self._worker.jobs and _common_checkpoints(own, other):
            if self._failures.waits("job", job.id):
                return
            yield from self._begin(job, own, other, alone=True)
            if self._store.job(job.id).state in ENDED or self._failures.waits("job", job.id):
                return
            why = "" if job.id in self._worker.jobs else "its model could not be kept: its data sets are gone"
        progress = self._worker.jobs.get(job.id)
        if keep and progress is not None and progress.step:
            yield _publish(job.id)
        yield CloseJob(job.id, "cancelled", why)

    def _begin(
        self, job: StoredJob, own: dict[str, Any], other: dict[str, Any], alone: bool = False
    ) -> Iterator[Command]:
        try:
            spec = self._store.job(job.id).spec
        except DataMissing:  # its owner has just forgotten it
            return
        common = self._common("datasets")
        if gone := [name for name, version in job.data if (name, version) not in common]:
            lost = f"DataMissing: the owner of the data set {gone[0]!r} had it forgotten before the job ended"
            if not alone:
                yield CloseJob(job.id, "failed", f"{lost}: it has to be uploaded again, and the job submitted again")
            return
        wanted = [] if job.data else spec["datasets"]
        try:
            found = [self._store.find_dataset(name, job.owner, common) for name in wanted]
        except HdcosError as error:
            yield CloseJob(job.id, "failed", f"{type(error).__name__}: {error}")
            return
        if None in found:  # it may still come
            return
        chosen = job.data or [[item.name, item.version] for item in found if item is not None]
        held = _common_checkpoints(own, other)
        newest_step = max(held, key=lambda item: (item[2], item[0]), default=None)
        attempt, spared = 1 + max(own.get("attempt", 0), other.get("attempt", 0)), job.spared
        if self._failures.found_no_room("job", job.id):
            spared = attempt - 1
            self._store.note_job(job.id, heard=True, spared=spared)
        if not alone and attempt - max(spared, 0 if newest_step is None else newest_step[2]) > MOST_ATTEMPTS:
            yield CloseJob(job.id, "failed", f"{MOST_ATTEMPTS} attempts in a row did not reach a checkpoint")
            return
        resume = None if newest_step is None else newest_step[0]
        crew = [] if alone else self._crew(spec["batch_size"])
        yield OpenJob(job.id, _scope("training", job.id), chosen, attempt, resume, crew)

    def _outdated_data(self) -> Iterator[Command]:
        """Forget versions of data sets that both have a newer one of, once no job uses them."""
        older: dict[str, list[str]] = {}
        for item in self._store.older_versions(self._common("datasets")):
            older.setdefault(item.name, []).append(item.version)
        for name, versions in older.items():
            yield DropData(name, versions)

    def _crew(self, batch: int) -> list[int]:
        """The pairs that take the steps of a job: all that there are, as far as each has rows enough."""
        pairs = [0, *self._further()][: most_pairs(batch)]
        return pairs if len(pairs) > 1 else []

    # ---- training, between predictions

    def _training(self) -> Iterator[Command]:
        """A slice of the job whose turn it is."""
        jobs = [item for item in self._worker.jobs.items() if not self._failures.waits("job", item[0])]
        self._turn += 1
        if not jobs:
            return
        job, progress = jobs[self._turn % len(jobs)]
        viewing = progress.viewing
        if viewing.waits:
            return
        if viewing.preferred:
            preferred, viewing.preferred = viewing.preferred, 0
            if progress.step == preferred * progress.steps_per_epoch:  # unless the client took so long that it goes on
                yield KeepBest(job, preferred)
        publish, between = self._store.job(job).spec["publish"], progress.step % progress.steps_per_epoch == 0
        if publish == "best" and between and not viewing.enough and viewing.due(progress.epoch):
            yield from self._show(job, progress)
            return
        if progress.step >= progress.total_steps or viewing.enough:
            yield _publish(job)
            if job in self._worker.jobs and not self._failures.waits("job", job):  # unless that failed
                yield CloseJob(job, "done")
            self._fresh = True  # the next job may begin
            return
        together = progress.training.group.size
        if progress.saved and together < len(self._crew(progress.training.settings.batch)):
            yield PauseJob(job)  # and go on with those that have come meanwhile
            return
        busy = time.monotonic() - self._predicted < 1.0
        at_once = max(1, int((BUSY_SLICE_S if busy else SLICE_S) / self._step_s.get(job, SLICE_S)))
        epoch, done = divmod(progress.step, progress.steps_per_epoch)
        steps = min(at_once, progress.steps_per_epoch - done)
        if together > 1:  # if a worker is lost, a party has at most one checkpoint that the other has not
            steps = min(steps, progress.to_checkpoint)
        started = time.monotonic()
        yield (Steps if together == 1 else StepsTogether)(job, progress.step, steps, progress.rates[epoch])
        if job not in self._worker.jobs:  # a worker was lost
            return
        self._step_s[job] = max(1e-4, (time.monotonic() - started) / steps)
        ended = done + steps == progress.steps_per_epoch and progress.step < progress.total_steps
        if publish == "epoch" and ended and viewing.due(progress.epoch):
            yield from self._show(job, progress)

    def _show(self, job: str, progress: Progress) -> Iterator[Command]:
        """Let the model of the epoch that has just ended be looked at."""
        publish = _publish(job, interim=True)
        yield publish
        progress.viewing.show(progress.epoch, publish.version)

    @property
    def working(self) -> bool:
        """Whether a job can go on now."""
        jobs = self._worker.jobs.items()
        return any(not progress.viewing.waits and not self._failures.waits("job", job) for job, progress in jobs)


def _common_checkpoints(own: dict[str, Any], other: dict[str, Any]) -> list[Any]:
    """The checkpoints of a job that both parties hold: step, run and attempt of each."""
    return [item for item in own.get("checkpoints", []) if item in other.get("checkpoints", [])]


def _scope(what: str, name: str) -> str:
    return f"{what} {name} {secrets.token_hex(16)}"


def _publish(job: str, interim: bool = False) -> Publish:
    return Publish(job, secrets.token_hex(16), _scope("job", job), interim)
