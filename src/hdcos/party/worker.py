"""What a party does, command by command, over one pair of links; the other party does the same in the same order.

A command names public things only (`api.commands`); this party's shares and records are found by these names in its
store: on disk, or in memory where the one caller brings them. Programs with the peer run under a context that hashes
what both must mean, so two parties that took different commands for the same are stopped at the first frame.

Security  every execution of a scope is reserved before it is used, on disk where a process that serves many may be
          restarted, and a scope is named by fresh randomness: whatever crashes, no mask is used for a second opening.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from math import prod
from typing import Any, Generic, Protocol

from hdcos.api import commands
from hdcos.api.commands import Command
from hdcos.api.cost import counts_from_json
from hdcos.errors import HdcosError, InputError, ModelError, PolicyRefused
from hdcos.nn import Network
from hdcos.offline import Allocation, MaterialPool, Plan
from hdcos.party.allotment import A, split_runs
from hdcos.party.batcher import Answer, Request, divide_answer
from hdcos.party.checkpoint import Checkpoints
from hdcos.party.dataset import Dataset, join_datasets
from hdcos.party.engine import Engine, fingerprint
from hdcos.party.opened import Opened, OpenedFunction, OpenedModel, check_shares, open_model
from hdcos.party.rows import RowSource
from hdcos.party.store import StoredDataset, StoredJob, StoredModel, StoredReveal
from hdcos.party.training import Progress, Training, Viewing
from hdcos.protocol.catalogue import Call
from hdcos.protocol.party import Party
from hdcos.protocol.plan import blank_share, plan
from hdcos.ring import Array, return_memory
from hdcos.secure import CompiledNetwork, compile_network
from hdcos.secure.compile import ARITHMETIC
from hdcos.secure.labels import LABEL, plan_label
from hdcos.sharing import Share, refresh

NOTE_S = 5.0
"""How often the cost of a job is written down: after a crash it may be short of so much."""
Facts = dict[str, Any]
"""What a command found out, for the caller of a local cluster."""
Rest = Callable[[], None]
Words = dict[str, Array]


class Records(Protocol):
    """This party's shares, and what is known of them."""

    def model(self, name: str, version: str) -> StoredModel: ...
    def model_words(self, name: str, version: str) -> Words: ...
    def check_owner(self, name: str, owner: str) -> None: ...
    def keep_model(
        self, name: str, version: str, architecture: Any, phase_bits: int, owner: str, words: Words, interim: bool
    ) -> None: ...
    def check_versions(self, name: str) -> None: ...
    def forget_model(self, name: str, versions: Sequence[str]) -> None: ...
    def forget_version(self, name: str, version: str) -> None: ...
    def counted_as(self, model: str) -> str: ...
    def require(self, size: int, what: str) -> None: ...
    def job(self, job: str) -> StoredJob: ...
    def job_words(self, job: str) -> Words: ...
    def job_data(self, job: StoredJob, versions: Sequence[Sequence[str]]) -> list[StoredDataset]: ...
    def dataset_rows(self, dataset: StoredDataset) -> RowSource: ...
    def checkpoints(self, job: StoredJob, rank: int, resume: int | None) -> Checkpoints | None: ...
    def note_job(self, job: str, heard: bool = False, **changes: Any) -> None: ...
    def reveal(self, reveal: str) -> StoredReveal: ...
    def release(self, reveal: str, words: Words) -> None: ...
    def withhold(self, reveal: str) -> None: ...
    def forget_scope(self, scope: str) -> None: ...


class Requests(Protocol):
    """Rows of clients, as this party got them."""

    def take(self, ids: Sequence[str]) -> list[Request]: ...
    def settle(self, answers: Sequence[tuple[Request, Answer]]) -> None: ...
    def drop(self, refusals: Sequence[Sequence[str]]) -> None: ...


class Limits(Protocol):
    """What an operator gives to models and jobs."""

    def load(self, model: Network, network: CompiledNetwork, rows: int) -> int:
        """Memory for each row that material is kept for; PolicyRefused if these rows take too much."""

    def function(self, command: commands.OpenFunction) -> None:
        """Refuse a function that nobody asked this party for."""

    def release(self, name: str) -> None:
        """What was open under this name takes nothing any more."""

    def order(self, pool: MaterialPool, executions: int) -> None: ...
    def job(self, model: Network, spec: dict[str, Any], data_words: int, rows: int) -> None:
        """Refuse a job that takes too much; `data_words` of its rows are in memory at once."""

    def queries(self, network: CompiledNetwork) -> int:
        """Rows of a model that are answered in all."""

    def label_rows(self, material: Plan) -> int:
        """Rows whose labels material is kept for, at most, each of which takes this."""


class Worker(Generic[A]):
    """Executes commands at one party, for as long as its links live."""

    def __init__(
        self,
        engine: Engine,
        store: Records,
        requests: Requests,
        limits: Limits,
        allot: Callable[[MaterialPool, int], A],
    ) -> None:
        self.engine, self.rank = engine, engine.rank
        self._store, self._requests, self._limits, self._allot = store, requests, limits, allot
        self.opened: dict[str, Opened[A]] = {}
        """Models and functions by name."""
        self.jobs: dict[str, Progress] = {}
        self.batches = self.rows = self.steps = 0
        self.settled = False
        """Whether party 0 has gone through all models once."""
        self.rtt_s: float | None = None
        self._handlers: Mapping[type[Command], Callable[[Any], Facts | Rest | None]] = {
            commands.Load: self._load,
            commands.OpenFunction: self._open_function,
            commands.Unload: self._unload,
            commands.Drop: self._drop,
            commands.DropData: self._drop_data,
            commands.Order: self._order,
            commands.Burn: self._burn,
            commands.Infer: self._infer,
            commands.OpenJob: self._open_job,
            commands.Steps: self._steps,
            commands.StepsTogether: self._steps,
            commands.PauseJob: self._pause_job,
            commands.Publish: self._publish,
            commands.KeepBest: self._keep_best,
            commands.CloseJob: self._close_job,
            commands.Release: self._release,
            commands.Withhold: self._withhold,
            commands.Refuse: self._refuse,
            commands.Settle: self._settle,
            commands.Ping: self._ping,
        }

    @property
    def models(self) -> dict[str, OpenedModel[A]]:
        """The models that are ready; any thread may ask."""
        return {name: opened for name, opened in list(self.opened.items()) if isinstance(opened, OpenedModel)}

    def execute(self, command: Command) -> Facts:
        """Carry out a command to its end."""
        outcome = self._handle(command)
        if callable(outcome):
            outcome()
            return {}
        return outcome or {}

    def begin(self, command: Command) -> Rest:
        """The part of a command that talks to nobody but the dealer; what it returns is the rest.

        The rest is carried out when both parties got that far: nobody waits in a round for a party that failed before.
        """
        outcome = self._handle(command)
        return outcome if callable(outcome) else _do_nothing

    def _handle(self, command: Command) -> Facts | Rest | None:
        handler = self._handlers.get(type(command))
        if handler is None:
            raise InputError(f"a worker does not know the command {type(command).__name__}")
        return handler(command)

    # ---- models and functions

    def _compile(self, stored: StoredModel) -> tuple[Network, CompiledNetwork]:
        """A stored model and its scales; ModelError if its shares have others."""
        if stored.arithmetic != ARITHMETIC:
            raise ModelError(
                f"{stored.name} was shared by an earlier version of hdcos, which computed with other scales: "
                f"share it again"
            )
        model = Network.outline(stored.architecture)
        return model, compile_network(model, stored.phase_bits, self.engine.dealer.has_dealer)

    def _read_shares(self, stored: StoredModel, network: CompiledNetwork) -> dict[str, Share]:
        words = self._store.model_words(stored.name, stored.version)
        check_shares(words, {tensor.name: tensor.shape for tensor in network.tensors})
        return {tensor.name: Share(words[tensor.name], tensor.scale) for tensor in network.tensors}

    def _load(self, command: commands.Load) -> Rest:
        stored = self._store.model(command.model, command.version)
        model, network = self._compile(stored)
        # Party 0 chose how much is kept ahead: this party's memory is its own.
        row_bytes = self._limits.load(model, network, sum(command.ahead.values()))
        shares = self._read_shares(stored, network)

        def rest() -> None:
            parameters, planned, agreed = open_model(self.engine, command.scope, model, network, shares)
            label_plan = plan_label(planned.result, self.engine.dealer.has_dealer)
            scopes = {"shares": command.scope, "masked": f"{command.scope} masked"}
            allotments = {
                mode: self._allot(self.engine.open(scopes[mode], planned), ahead)
                for mode, ahead in command.ahead.items()
            }
            self._close(command.model)
            self.opened[command.model] = OpenedModel(
                *(allotments, agreed, stored, network, parameters, planned.rounds, row_bytes),
                counted=self._store.counted_as(command.model),
                allowed=self._limits.queries(network),
                label_plan=label_plan,
                label_rows=0 if label_plan is None else self._limits.label_rows(label_plan.material),
            )
            for mode, ahead in command.ahead.items():
                self.engine.order(allotments[mode].pool, ahead)

        return rest

    def _open_function(self, command: commands.OpenFunction) -> Rest:
        self._limits.function(command)
        shapes = [tuple(shape) for shape in command.shapes]
        try:
            call = Call.of(command.function, **command.parameters)
            inputs = [blank_share(*known) for known in zip(shapes, command.scales, strict=True)]
            planned = plan(call.program, *inputs)
        except HdcosError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise ModelError(f"not a program that can be planned: {type(error).__name__} {error}") from error
        record = [call.function, dict(call.parameters), shapes, command.scales, planned.material.fingerprint.hex()]

        def rest() -> None:
            allotment = self._allot(self.engine.open(command.scope, planned), command.ahead)
            self.opened[command.name] = OpenedFunction(
                {"shares": allotment}, fingerprint(record), call, shapes, command.scales
            )

        return rest

    def find(self, name: str) -> Opened[A]:
        """What is open under a name."""
        opened = self.opened.get(name)
        if opened is None:
            raise InputError(f"nothing is open under the name {name}")
        return opened

    def _unload(self, command: commands.Unload) -> None:
        self._close(command.model)
        self._limits.release(command.model)

    def _close(self, name: str) -> None:
        opened = self.opened.pop(name, None)
        if opened is not None:
            for allotment in opened.allotments.values():
                self.engine.close(allotment.pool)
            if isinstance(opened, OpenedModel) and opened.labels is not None:
                self.engine.close(opened.labels.pool)
            if isinstance(opened, OpenedFunction):  # they come and go: the ledger must not grow with them
                self._store.forget_scope(opened.allotment("shares").pool.name)
            else:  # a model may have taken gigabytes, and the next one takes them in other pieces
                del opened
                return_memory()

    def _drop(self, command: commands.Drop) -> None:
        self._store.forget_model(command.model, command.versions)

    def _drop_data(self, command: commands.DropData) -> None:
        for version in command.versions:
            self._store.forget_version(command.name, version)

    def material(self, opened: Opened[A], mode: str) -> A:
        """For rows that come in a mode, or for labels: a pool that is opened when the first label is asked for."""
        if mode != LABEL:
            return opened.allotment(mode)
        if not isinstance(opened, OpenedModel):
            raise InputError("labels are of models: functions have results of their own")
        if opened.labels is None:
            planned = opened.require_labels(self.engine.dealer.has_dealer)
            opened.labels = self._allot(
                self.engine.open(labels_scope(opened.allotment("shares").pool.name), planned), 0
            )
        return opened.labels

    def _order(self, command: commands.Order) -> None:
        opened = self.find(command.model)
        filling = self._fill(opened, command.mode, command.ordered)
        if filling is not None and command.wait:
            filling.result()

    def _fill(self, opened: Opened[A], mode: str, ordered: int) -> Future[None] | None:
        """Have what is missing of these executions made, if any is."""
        pool = self.material(opened, mode).pool
        missing = ordered - pool.expected
        if missing <= 0:
            return None
        if isinstance(opened, OpenedModel) and mode == LABEL and ordered - pool.used > 2 * opened.label_rows:
            raise PolicyRefused(f"this party keeps no material for the labels of {ordered - pool.used} rows")
        self._limits.order(pool, missing)
        return self.engine.order(pool, missing)

    def _burn(self, command: commands.Burn) -> None:
        opened = self.opened.get(command.model)
        if opened is not None:
            opened.allotment(command.mode).burn_before(command.before)

    def _infer(self, command: commands.Infer) -> Facts:
        opened, engine = self.find(command.model), self.engine
        allotment, started_s = opened.allotment(command.mode), engine.online_s
        with engine.attempt("online"):
            self._fill(opened, command.mode, command.ordered)
            requests = self._requests.take(command.ids)
            if any(request.output != command.output for request in requests):
                raise InputError("party 0 wants another output than the clients of these requests asked for")
            rows = sum(request.rows for request in requests)
            for request in requests:
                request.begun = True
            runs = [run for request in requests for run in request.runs] or [(command.start, opened.executions(rows))]
            allotment.reserve(runs, command.mode)
            sizes = opened.pieces(sum(count for _, count in runs))
            said = [request.said for request in requests]
            label_allocations, labels_meant = self._take_labels(opened, command, rows, sizes)
            agreed = fingerprint(opened.agreed.hex(), allotment.pool.name, command.ids, said, runs, labels_meant)
            allocations = [allotment.take(part) for part in split_runs(runs, sizes)]
            parties, label_parties = (
                [Party(self.rank, allocation) for allocation in taken] for taken in (allocations, label_allocations)
            )
            program = opened.program(parties, requests, label_parties)
            result = engine.run(agreed, program, allocations + label_allocations)
        address = f"{allotment.pool.name} {runs[0]} {rows}"
        scale, bits, words = opened.refresh_for_client(result, engine, address, command.output)
        self.batches += 1
        self.rows += rows
        opened.rows += rows
        self._requests.settle(divide_answer(requests, words, scale, bits))
        return {"seconds": engine.online_s - started_s}

    def _take_labels(
        self, opened: Opened[A], command: commands.Infer, rows: int, sizes: Sequence[int]
    ) -> tuple[list[Allocation], list[Any]]:
        """The material of the labels of a batch, piece by piece, and what both parties must mean by it."""
        if command.output != LABEL:
            return [], []
        self._fill(opened, LABEL, command.label_ordered)
        labels, runs = self.material(opened, LABEL), [(command.label_start, rows)]
        labels.reserve(runs, "shares")
        taken = [labels.take(part) for part in split_runs(runs, sizes)]
        return taken, [labels.pool.name, labels.pool.plan.fingerprint.hex(), runs]

    # ---- training

    def _open_job(self, command: commands.OpenJob) -> Facts:
        if (earlier := self.jobs.pop(command.job, None)) is not None:  # an attempt that nobody ended
            earlier.training.close()
        job = self._store.job(command.job)
        spec, model = job.spec, Network.outline(job.spec["architecture"])
        items = self._store.job_data(job, command.datasets)
        names = [item.title for item in items]
        if len(set(names)) < len(names):
            names = [f"{item.title} {item.version}" for item in items]
        rows = [
            Dataset(
                *(self._store.dataset_rows(item), item.features, item.columns),
                *(item.prepared, item.owner, item.join_id),
            )
            for item in items
        ]
        data = join_datasets(dict(zip(names, rows, strict=True)), names, spec["join"], model.feature_names)
        self._limits.job(model, spec, data.rows.resident_words, len(data))
        training = Training.of(self.engine, command, spec, model, data, self._store.job_words(job.id))
        try:
            if training.group.leads:
                checkpoints = self._store.checkpoints(job, self.rank, command.resume)
                if checkpoints is not None:
                    training.use_checkpoints(checkpoints, spec["checkpoint_every"], command.resume)
            else:
                training.step = training.start = command.resume or 0
            training.open(min(spec["rates"]))
        except BaseException:
            training.release()
            raise
        # An epoch that was not judged before a crash is shown again where that matters.
        seen = max(0, training.step - (spec["publish"] == "best")) // training.steps_per_epoch
        self.jobs[job.id] = progress = Progress(
            training,
            spec["rates"],
            Viewing(seen=seen),
            before=counts_from_json(job.report.get("cost", {})),
            ended=job.report.get("ended", []),
        )
        self._store.note_job(job.id, heard=True, data=command.datasets, state="running", step=training.step)
        known = {"total_steps": progress.total_steps, "steps_per_epoch": progress.steps_per_epoch}
        return {**known, "columns": training.columns, "prepared": [each.to_json() for each in training.data.prepared]}

    def _steps(self, command: commands.Steps) -> Facts:
        progress, started = self.jobs[command.job], time.perf_counter()
        progress.advance(command.start, command.steps, command.rate)
        self.steps += command.steps
        if time.monotonic() - progress.noted > NOTE_S:
            progress.noted = time.monotonic()
            self._store.note_job(command.job, report=progress.report())
        seconds, available = time.perf_counter() - started, progress.training.pool.available
        return {"seconds": seconds, "available": available, "report": progress.report()}

    def _publish(self, command: commands.Publish) -> Rest:
        job, training = self._store.job(command.job), self.jobs[command.job].training
        model = Network.outline(job.spec["architecture"]).remembering(training.columns)
        model = model.with_prepared(training.data.prepared)
        network = compile_network(model, job.spec["phase_bits"], self.engine.dealer.has_dealer)
        name = job.interim if command.interim else job.spec["model"]
        self._store.check_owner(name, job.owner)
        # Here, before either party has kept a version that the other one refuses or has no room for.
        if not command.interim:
            self._store.check_versions(name)
        size = sum(8 * prod(tensor.shape) for tensor in network.tensors)
        self._store.require(size, f"this party's share of {name}")

        def rest() -> None:
            words = training.words_for(command.scope, network, command.together, best=not command.interim)
            kept = (model.architecture(), job.spec["phase_bits"], job.owner, words, command.interim)
            self._store.keep_model(name, command.version, *kept)
            if not command.interim:
                self._store.note_job(job.id, version=command.version)

        return rest

    def _keep_best(self, command: commands.KeepBest) -> None:
        self.jobs[command.job].training.keep_best(command.epoch)

    def _close_job(self, command: commands.CloseJob) -> None:
        changes: dict[str, Any] = {"state": command.state, "error": command.error}
        if (progress := self.jobs.get(command.job)) is not None:
            changes |= {"step": progress.step, "report": progress.report()}
        self._let_go(command.job, changes)

    def _pause_job(self, command: commands.PauseJob) -> None:
        if (progress := self.jobs.get(command.job)) is not None:
            self._let_go(command.job, {"step": progress.step, "report": progress.report()})

    def _let_go(self, job: str, changes: dict[str, Any]) -> None:
        """Write down how far a job is, then forget it: who looks meanwhile sees the one or the other.

        Heard: the other party must know of the checkpoints that were written since it heard of this job.
        """
        try:
            self._store.note_job(job, heard=True, **changes)
        finally:
            if (progress := self.jobs.pop(job, None)) is not None:
                progress.training.close()
                del progress
                return_memory()

    # ---- the rest

    def _release(self, command: commands.Release) -> None:
        reveal = self._store.reveal(command.reveal)
        if reveal.state != "approved":
            raise PolicyRefused(f"reveal {reveal.id} is {reveal.state} here")
        stored = self._store.model(reveal.model, reveal.version)
        _, network = self._compile(stored)
        shares = self._read_shares(stored, network)
        # Both parties use the same, once: an id may come again when the reveal was forgotten, for another model.
        seed, token = self.engine.pair_seed, f"reveal {reveal.id} {reveal.model} {reveal.version}"
        words = {name: refresh(share, self.rank, seed, f"{token} {name}").words for name, share in shares.items()}
        self._store.release(reveal.id, words)

    def _withhold(self, command: commands.Withhold) -> None:
        self._store.withhold(command.reveal)

    def _refuse(self, command: commands.Refuse) -> None:
        self._requests.drop(command.refusals)

    def _settle(self, command: commands.Settle) -> None:
        self.settled = True

    def _ping(self, command: commands.Ping) -> Facts:
        self.rtt_s = self.engine.ping(command.rounds)
        return {"seconds": self.rtt_s}

    def stop(self) -> None:
        for progress in self.jobs.values():
            progress.training.release()
        self.engine.stop()


def labels_scope(scope: str) -> str:
    """The name under which the labels of a model have their material."""
    return f"{scope} labels"


def _do_nothing() -> None:
    """The rest of a command that has none."""
