"""What both parties do, command by command, in the order that party 0 decided.

A command names public things only: models and versions, scopes, request ids, step numbers. Each party finds its own
shares by these names. Programs with the peer run under a context that hashes what both must mean, so two parties that
took different commands for the same are stopped at the first frame.

Security  every execution of a scope is reserved in the ledger on disk before it is used, and a scope is named by fresh
          randomness for every session: whatever crashes, no mask is used for a second opening.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from hdcos.api.cost import counts_from_json, counts_to_json
from hdcos.errors import CheckpointMismatch, DataMissing, InputError, ModelError, PolicyRefused
from hdcos.link import Count
from hdcos.nn import Sequential
from hdcos.offline import Allocation
from hdcos.party.allotment import MaterialAllotment
from hdcos.party.batcher import Answer, Batcher, Request
from hdcos.party.budget import Budget
from hdcos.party.checkpoint import Checkpoints
from hdcos.party.dataset import Dataset
from hdcos.party.engine import Engine
from hdcos.party.executions import Run
from hdcos.party.loading import load_model, refresh_for_client, revealed, trained_shares
from hdcos.party.policy import Policy
from hdcos.party.quota import allowed_queries
from hdcos.party.store import MOST_MODELS, Store, StoredModel
from hdcos.party.trainer import Trainer
from hdcos.party.work import ModelWork, fingerprint
from hdcos.protocol.party import Party
from hdcos.protocol.rounds import Rounds
from hdcos.ring import Array
from hdcos.secure import CompiledNetwork, compile_network, infer_pieces, pieces
from hdcos.secure.compile import ARITHMETIC
from hdcos.secure.training.plan import INPUT_SCALE, TARGET_SCALE
from hdcos.sharing import Share

Command = dict[str, Any]
NOTE_S = 5.0
"""How often the cost of a job is written down: after a crash it may be short of so much."""
REMEMBERED = 100
"""Epochs whose times are kept."""
PATIENCE_S = 60.0
"""How long a job waits for a client that asked to see the model of each epoch: loading and predictions included."""
Rest = Callable[[], None] | None


class Loaded:
    """A model that is ready, with material of its own for each way in which rows come."""

    def __init__(
        self,
        stored: StoredModel,
        work: ModelWork,
        allotments: Mapping[str, MaterialAllotment],
        row_bytes: int,
        counted: str,
        allowed: int,
    ) -> None:
        self.stored, self.work, self.allotments = stored, work, allotments
        self.counted = counted
        """The model whose quota its answers count for."""
        self.allowed = allowed
        """Rows that are answered in all."""
        self.row_bytes = row_bytes
        """Memory for each row that material is kept for."""
        self.rows = 0
        """Rows predicted in this session."""
        self.forgotten = False
        """A client had it forgotten: no new requests, while party 0 gets round to unloading it."""

    @property
    def rounds(self) -> dict[str, int]:
        masked = self.work.planned.rounds if self.work.planned else 0
        return {"masked": masked, "shares": masked + 1}


@dataclass
class Progress:
    """A job that this session is working on."""

    scope: str
    step: int = 0
    total_steps: int = 0
    steps_per_epoch: int = 1
    rates: list[float] = field(default_factory=list)
    before: dict[str, Count] = field(default_factory=dict)
    """What earlier attempts cost."""
    online: Count = field(default_factory=Count)
    ended: list[list[float]] = field(default_factory=list)
    """Number and seconds of the last epochs."""
    epoch_s: float = 0.0
    noted: float = 0.0
    """When its report was last written."""
    interim: tuple[int, str] = (0, "")
    """The epoch whose model is there to be looked at, and its version."""
    until: float = 0.0
    """How long training waits for that look."""
    seen: int = 0
    """The last epoch that was looked at."""
    watched: bool = True
    """Whether anybody seems to look."""

    def show(self, epoch: int, version: str) -> None:
        """The model after an epoch can be looked at: training waits for that, within reason."""
        self.interim, self.until = (epoch, version), time.monotonic() + PATIENCE_S

    @property
    def waits(self) -> bool:
        """Whether somebody may still be looking at the model of the last epoch."""
        if self.seen >= self.interim[0]:
            return False
        self.watched = self.watched and time.monotonic() < self.until
        return self.watched

    def look(self, epoch: int) -> None:
        """Somebody has seen how the model was after an epoch."""
        self.seen, self.watched = max(self.seen, epoch), True


class Worker:
    """Carries out commands at one party for the length of a session."""

    def __init__(self, engine: Engine, store: Store, batcher: Batcher, budget: Budget, queries: int) -> None:
        self.engine, self.store, self.batcher, self._budget = engine, store, batcher, budget
        self._queries = queries
        """Rows of each model that the operator allows; 0 leaves it to the network."""
        self.rank = engine.rank
        self.models: dict[str, Loaded] = {}
        self.jobs: dict[str, Progress] = {}
        self.batches = self.rows = 0
        self.settled = False
        """Whether party 0 has gone through all models once."""
        self._trainer = Trainer(engine, Policy(False, store.folder / "jobs"))
        self.operations: Mapping[str, Callable[[Command], Rest]] = {
            "load": self._load,
            "unload": self._unload,
            "drop": self._drop,
            "infer": self._infer,
            "order": self._order,
            "burn": self._burn,
            "open_job": self._open_job,
            "steps": self._steps,
            "publish": self._publish,
            "close_job": self._close_job,
            "release": self._release,
            "refuse": self._refuse,
            "ping": self._ping,
            "settled": self._settle,
        }
        self.rtt_s: float | None = None

    def execute(self, command: Command) -> None:
        """Carry out a command that is not answered: whatever fails ends the session."""
        self.operations[command["op"]](command)

    def begin(self, command: Command) -> Callable[[], None]:
        """The part of a command that talks to nobody but the dealer; what it returns is the rest.

        The rest is carried out when both parties got that far: nobody waits in a round for a party that failed before.
        """
        rest = self.operations[command["op"]](command)
        return rest or _nothing

    # ---- models

    def _network(self, stored: StoredModel) -> tuple[Sequential, CompiledNetwork]:
        """A stored model and its scales; ModelError if its shares have others."""
        if stored.arithmetic != ARITHMETIC:
            raise ModelError(
                f"{stored.name} was shared by an earlier version of hdcos, which computed with other scales: "
                f"share it again"
            )
        model = Sequential.outline(stored.architecture)
        return model, compile_network(model, stored.phase_bits, self.engine.dealer.has_dealer)

    def _load(self, command: Command) -> Rest:
        """Make a stored version of a model ready; it takes the place of an older one."""
        name, version = command["model"], command["version"]
        stored = next((known for known in self.store.models(name) if known.version == version), None)
        if stored is None:
            raise DataMissing(f"version {version} of {name} is not here")
        model, chosen = self._network(stored)
        demand = self._budget.model(model, chosen)
        # Party 0 chose how much is kept ahead: this party's memory is its own.
        self._budget.check_model(demand.fixed + sum(command["ahead"].values()) * demand.row)
        words = self.store.model_words(name, version)
        check_shares(words, {tensor.name: tensor.shape for tensor in chosen.tensors})
        shares = {tensor.name: Share(words[tensor.name], tensor.scale) for tensor in chosen.tensors}

        def rest() -> None:
            work = load_model(self.engine, command["scope"], model, chosen, shares, 0)
            assert work.planned is not None
            masked = self.engine.open(f"{command['scope']} masked", work.planned)
            allotments = {
                mode: MaterialAllotment(stock, command["ahead"][mode], self.store, self.engine)
                for mode, stock in (("shares", work.stock), ("masked", masked))
            }
            self._unload({"model": name})
            counted, allowed = self.store.counted_as(name), allowed_queries(chosen, self._queries)
            self.models[name] = Loaded(stored, work, allotments, demand.row, counted, allowed)
            for allotment in allotments.values():
                self.engine.order(allotment.stock, allotment.ahead)

        return rest

    def _unload(self, command: Command) -> None:
        loaded = self.models.pop(command["model"], None)
        if loaded is not None:
            for allotment in loaded.allotments.values():
                self.engine.close(allotment.stock)

    def _drop(self, command: Command) -> None:
        """Forget versions that both parties have a newer one of."""
        self.store.forget_model(command["model"], command["versions"])

    def _order(self, command: Command) -> None:
        """Have material made until this many executions were ordered in all."""
        stock = self.models[command["model"]].allotments[command["mode"]].stock
        missing = command["ordered"] - stock.expected
        if missing > 0:
            self.engine.order(stock, missing)

    def _burn(self, command: Command) -> None:
        """Drop material whose masks have expired."""
        loaded = self.models.get(command["model"])
        if loaded is not None:
            loaded.allotments[command["mode"]].burn_before(command["before"])

    # ---- predictions

    def _infer(self, command: Command) -> None:
        """Run a batch: the same requests at both parties, each with its own share."""
        requests: list[Request] = command.get("requests") or self.batcher.take(command["ids"])
        loaded, mode = self.models[command["model"]], command["mode"]
        allotment = loaded.allotments[mode]
        self._order(command)
        rows = sum(request.rows for request in requests)
        for request in requests:
            request.begun = True
        runs = [(command["start"], rows)] if mode == "shares" else [run for request in requests for run in request.runs]
        allotment.reserve(max(first + count for first, count in runs))
        address = f"{allotment.stock.name} {runs[0]} {rows}"
        agreed = fingerprint(
            loaded.work.fingerprint.hex(),
            allotment.stock.name,
            command["ids"],
            [request.said for request in requests],
            runs,
        )
        engine = self.engine
        with engine.meter.section("online"):
            result = engine.exchange(agreed, lambda: self._beginning(loaded, mode, requests, runs))
        scale, bits, words = refresh_for_client(engine, result, loaded.work, address)
        answers, first = [], 0
        for request in requests:
            answers.append((request, Answer(words[first : first + request.rows], scale, bits)))
            first += request.rows
        self.batches += 1
        self.rows += rows
        loaded.rows += rows
        self.batcher.settle(answers)

    def _beginning(
        self, loaded: Loaded, mode: str, requests: Sequence[Request], runs: Sequence[Run]
    ) -> tuple[Rounds[Share], list[Allocation]]:
        chosen, work = loaded.work.layout, loaded.work
        words = requests[0].words if len(requests) == 1 else np.concatenate([request.words for request in requests])
        sizes = pieces(len(words))
        rations = [loaded.allotments[mode].executions.take(part) for part in split_runs(runs, sizes)]
        parts: list[Any] = np.split(words, np.cumsum(sizes)[:-1])
        values = [Share(part, chosen.input_scale) for part in parts] if mode == "shares" else parts
        parties = [Party(self.rank, ration) for ration in rations]
        return infer_pieces(parties, chosen, work.parameters, values), rations

    # ---- training

    def _open_job(self, command: Command) -> None:
        """Begin a job, or go on from the checkpoint that both parties hold."""
        job, known = command["job"], self.store.job(command["job"])
        spec, names = known.spec, []
        if known.data and known.data != command["datasets"]:
            raise CheckpointMismatch("the job was begun with other versions of its data sets")
        for name, _ in command["datasets"]:
            if not self.store.may_train(name, known.owner):
                raise PolicyRefused(f"the owner of the data set {name!r} did not allow {known.owner} to train on it")
        held = [item for item in self.store.datasets() if [item.name, item.version] in command["datasets"]]
        self._budget.job(Sequential.outline(spec["architecture"]), spec, sum(item.words for item in held))
        for name, version in command["datasets"]:
            words = self.store.dataset_words(name, version)
            targets = Share(words["targets"], TARGET_SCALE) if "targets" in words else None
            names.append(f"{name} {version}")
            columns = next((known.columns for known in self.store.datasets(name) if known.version == version), None)
            self._trainer.add(names[-1], Dataset(Share(words["x"], INPUT_SCALE), targets, columns))
        settings = {key: spec[key] for key in ("loss", "seed", "momentum")}
        settings |= {"batch": spec["batch_size"], "decay": spec["weight_decay"]}
        rows = self._trainer.rows(names, spec["join"])
        if spec["batch_size"] > rows:
            raise InputError(f"a batch of {spec['batch_size']} rows cannot be drawn from {rows}")
        steps_per_epoch = rows // spec["batch_size"]
        settings["total_steps"] = steps_per_epoch * len(spec["rates"])
        meta = {
            "scope": command["scope"],
            "architecture": spec["architecture"],
            "settings": settings,
            "datasets": names,
            "join": spec["join"],
            "rate": min(spec["rates"]),
            "attempt": command["attempt"],
            "folder": job,
            "every": spec["checkpoint_every"],
            "run": job,
            "resume": command["resume"],
        }
        if command["resume"] is None:  # what an earlier attempt left at one party only
            Checkpoints.of(self.store.job_folder(job), self.rank).forget_after(-1)
        try:
            self._trainer.operations()["open_training"](meta, self.store.job_words(job))
        finally:
            for name in names:
                self._trainer.forget(name)
        resumed = command["resume"] or 0
        self.jobs[job] = Progress(
            *(command["scope"], resumed, settings["total_steps"], steps_per_epoch, spec["rates"]),
            before=counts_from_json(known.report.get("cost", {})),
            ended=known.report.get("ended", []),
            noted=time.monotonic(),
            seen=resumed // steps_per_epoch,
        )
        self.store.fix_data(job, command["datasets"])
        self.store.note_job(job, "running", command["resume"] or 0)

    def _steps(self, command: Command) -> None:
        progress = self.jobs[command["job"]]
        meta = {"scope": progress.scope, "start": command["start"], "steps": command["steps"], "rate": command["rate"]}
        online, began = self.engine.meter.total("online"), time.monotonic()
        self._trainer.operations()["train"](meta, {})
        progress.online += self.engine.meter.total("online") - online
        progress.epoch_s += time.monotonic() - began
        progress.step = command["start"] + command["steps"]
        if progress.step % progress.steps_per_epoch == 0:
            epoch = [progress.step // progress.steps_per_epoch, progress.epoch_s]
            progress.ended = [*progress.ended, epoch][-REMEMBERED:]
            progress.epoch_s = 0.0
        if time.monotonic() - progress.noted > NOTE_S:
            self._note_report(command["job"])

    def report(self, job: str) -> dict[str, Any]:
        """What a job under way cost so far, at this party, and how long its last epochs took."""
        progress = self.jobs[job]
        stock = self._trainer.training(progress.scope).stock
        now = {"online": progress.online, "offline": self.engine.material_cost(stock) if stock else Count()}
        cost = {phase: progress.before.get(phase, Count()) + count for phase, count in now.items()}
        return {"cost": counts_to_json(cost), "ended": progress.ended}

    def _note_report(self, job: str) -> None:
        self.jobs[job].noted = time.monotonic()
        self.store.note_report(job, self.report(job))

    def _publish(self, command: Command) -> Rest:
        """Keep the parameters of a job, as they are now, as a version of its model, or only to be looked at."""
        job = self.store.job(command["job"])
        training = self._trainer.training(self.jobs[command["job"]].scope)
        model = Sequential.outline(job.spec["architecture"]).remembering(training.columns)
        chosen = compile_network(model, job.spec["phase_bits"], self.engine.dealer.has_dealer)
        interim, spec = command["interim"], job.spec
        name = job.interim if interim else spec["model"]
        if any(known.owner != job.owner for known in self.store.models(name)):
            raise PolicyRefused(f"a model named {name!r} belongs to another client now")
        # Here, before either party has kept a version that the other has no room for.
        size = sum(8 * prod(tensor.shape) for tensor in chosen.tensors)
        self.store.room.require(size, f"this party's share of {name}")

        def rest() -> None:
            shares = trained_shares(self.engine, command["scope"], training, chosen)
            words = {name: share.words for name, share in shares.items()}
            most = math.inf if interim else MOST_MODELS
            kept = (model.architecture(), spec["phase_bits"], job.owner, words)
            self.store.keep_model(name, command["version"], *kept, most=most)
            if not interim:
                self.store.note_version(job.id, command["version"])

        return rest

    def _close_job(self, command: Command) -> None:
        step = self.store.job(command["job"]).step
        if command["job"] in self.jobs:
            self._note_report(command["job"])
            progress = self.jobs.pop(command["job"])
            step = progress.step
            self._trainer.operations()["close_training"]({"scope": progress.scope}, {})
        self.store.note_job(command["job"], command["state"], step, command["error"])

    # ---- the rest

    def _release(self, command: Command) -> None:
        """Both operators agreed: keep this party's refreshed share of a model for the client that asked."""
        reveal = self.store.reveal(command["reveal"])
        if reveal.state != "approved":
            raise PolicyRefused(f"reveal {reveal.id} is {reveal.state} here")
        stored = next((m for m in self.store.models(reveal.model) if m.version == reveal.version), None)
        if stored is None:
            raise DataMissing(f"version {reveal.version} of {reveal.model} is gone")
        _, chosen = self._network(stored)
        words = self.store.model_words(reveal.model, reveal.version)
        shares = {tensor.name: Share(words[tensor.name], tensor.scale) for tensor in chosen.tensors}
        self.store.release(reveal.id, revealed(self.engine, shares, reveal.id))

    def _refuse(self, command: Command) -> None:
        self.batcher.drop(command["refusals"])

    def _settle(self, command: Command) -> None:
        self.settled = True

    def _ping(self, command: Command) -> None:
        """One empty round: how long a round trip takes."""
        peer = self.engine.peer
        peer.context = 0
        started = time.perf_counter()
        peer.exchange([])
        self.rtt_s = time.perf_counter() - started

    def stop(self) -> None:
        for progress in self.jobs.values():
            self._trainer.training(progress.scope).release()
        self.engine.stop()


def _nothing() -> None:
    """The rest of a command that has none."""


def check_shares(words: Mapping[str, Array], shapes: Mapping[str, tuple[int, ...]]) -> None:
    """This party's share of parameters, as it came from outside."""
    if set(words) != set(shapes):
        raise InputError(f"the network has the parameters {sorted(shapes)}, got {sorted(words)}")
    for name, shape in shapes.items():
        if words[name].shape != shape:
            raise InputError(f"{name} has the shape {list(shape)}, got {list(words[name].shape)}")


def split_runs(runs: Sequence[Run], sizes: Sequence[int]) -> list[list[Run]]:
    """Runs cut into parts of these sizes."""
    parts: list[list[Run]] = []
    rest = list(runs)
    for size in sizes:
        part: list[Run] = []
        while size:
            first, count = rest[0]
            taken = min(size, count)
            part.append((first, taken))
            rest[0] = (first + taken, count - taken)
            if taken == count:
                rest.pop(0)
            size -= taken
        parts.append(part)
    return parts
