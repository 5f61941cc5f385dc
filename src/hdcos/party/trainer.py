"""The training operations of a party: data sets, runs, steps, checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from time import perf_counter
from typing import Any

from hdcos.api.cost import counts_to_json
from hdcos.api.requests import Settings
from hdcos.errors import CheckpointMismatch, InputError, MaterialReused
from hdcos.link.message import integer, text
from hdcos.nn import Sequential
from hdcos.nn.columns import checked_names
from hdcos.offline import Allocation, limits
from hdcos.party.checkpoint import Checkpoints
from hdcos.party.dataset import Dataset, joined
from hdcos.party.engine import Engine
from hdcos.party.policy import Policy
from hdcos.party.training import Training, steps_ahead
from hdcos.party.work import Arrays, fingerprint, read_share
from hdcos.protocol.party import Party
from hdcos.protocol.rounds import Rounds
from hdcos.ring import Array
from hdcos.secure.training import Rule, training_plan
from hdcos.secure.training.form import INPUT_SCALE, TARGET_SCALE
from hdcos.sharing import Share

Meta = dict[str, Any]
Answer = tuple[Meta, dict[str, Array]]


class Trainer:
    """What one party holds for training."""

    def __init__(self, engine: Engine, policy: Policy) -> None:
        self._engine, self.rank, self._policy = engine, engine.rank, policy
        self._datasets: dict[str, Dataset] = {}
        self._trainings: dict[str, Training] = {}

    def operations(self) -> Mapping[str, Callable[[Meta, Arrays], Answer]]:
        return {
            "upload": self._upload,
            "describe": self._describe,
            "checkpoints": self._checkpoints,
            "open_training": self._open,
            "train": self._train,
            "close_training": self._close,
            "forget_data": self._forget,
        }

    def training(self, name: str) -> Training:
        training = self._trainings.get(name)
        if training is None:
            raise InputError(f"no training is called {name}")
        return training

    def _upload(self, meta: Meta, arrays: Arrays) -> Answer:
        """Keep this party's share of one owner's rows."""
        name, rows, outputs = text(meta, "name"), integer(meta, "rows"), integer(meta, "outputs")
        if name in self._datasets:
            raise InputError(f"a data set named {name!r} is here already: choose another name")
        x = Share(read_share(arrays, "x", (rows, integer(meta, "features")), self.rank), INPUT_SCALE)
        targets = Share(read_share(arrays, "targets", (rows, outputs), self.rank), TARGET_SCALE) if outputs else None
        self._datasets[name] = Dataset(x, targets, checked_names(meta.get("columns"), x.shape[1]))
        return {}, {}

    def add(self, name: str, dataset: Dataset) -> None:
        """Hold a data set that came otherwise."""
        self._datasets[name] = dataset

    def forget(self, name: str) -> None:
        """Drop a data set; runs that use it keep what they have."""
        self._datasets.pop(name, None)

    def rows(self, names: Sequence[str], join: str) -> int:
        """How many rows data sets make together."""
        return len(joined(self._datasets, names, join).x)

    def _forget(self, meta: Meta, arrays: Arrays) -> Answer:
        self.forget(text(meta, "name"))
        return {}, {}

    def _describe(self, meta: Meta, arrays: Arrays) -> Answer:
        return {"rows": self.rows(meta.get("datasets", ()), text(meta, "join"))}, {}

    def _checkpoints(self, meta: Meta, arrays: Arrays) -> Answer:
        """What is in a folder of checkpoints."""
        found = Checkpoints.of(self._policy.checkpoint_folder(text(meta, "folder")), self.rank)
        known = [
            {"step": step, "run": record["run"], "attempt": record["attempt"], "seed": record["settings"]["seed"]}
            for step, record in found.records().items()
        ]
        return {"checkpoints": known, "attempt": found.attempt}, {}

    def _open(self, meta: Meta, arrays: Arrays) -> Answer:
        """Take this party's share of the parameters, or a checkpoint, and plan a step on data sets that are here."""
        scope = text(meta, "scope")
        model = Sequential.outline(meta.get("architecture"))
        settings = Settings(**meta["settings"])
        form = training_plan(model, settings.loss)
        data = joined(self._datasets, meta.get("datasets", ()), text(meta, "join"), model.feature_names)
        x, targets = data.x, data.targets
        wanted = (prod(form.input_shape), form.outputs)
        if (x.shape[1], targets.shape[1]) != wanted:
            raise InputError(
                f"the data has {x.shape[1]} features and {targets.shape[1]} targets, the network takes "
                f"{wanted[0]} and gives {wanted[1]}"
            )
        if not 1 <= settings.batch <= len(x):
            raise InputError(f"a batch of {settings.batch} rows cannot be drawn from {len(x)}")
        words = {tensor.name: read_share(arrays, tensor.name, tensor.shape, self.rank) for tensor in form.tensors}
        compared = targets.raised(form.target_scale)
        training = Training(
            form, settings, x, compared, form.shares(words), columns=data.columns, attempt=integer(meta, "attempt")
        )
        planned = training.planned(float(meta["rate"]), self.rank)
        limits.check(planned.material)
        if meta.get("folder"):
            self._use_folder(training, meta, scope)
        try:
            training.stock = self._engine.open(scope, planned, singly=True)
        except BaseException:
            training.release()
            raise
        self._trainings[scope] = training
        return {
            "rounds": planned.rounds,
            "online_bytes": planned.online_bytes,
            "rows": len(x),
            "columns": data.columns,
        }, {}

    def _use_folder(self, training: Training, meta: Meta, scope: str) -> None:
        """Write checkpoints to a folder, and go on from one if asked."""
        training.checkpoints = Checkpoints.of(self._policy.checkpoint_folder(text(meta, "folder")), self.rank)
        training.every = integer(meta, "every")
        training.run = text(meta, "run")
        training.checkpoints.lock()
        try:
            if meta.get("resume") is not None:
                training.resume(integer(meta, "resume"))
            elif training.checkpoints.steps():
                where = training.checkpoints.folder
                raise CheckpointMismatch(
                    f"{where} holds checkpoints of another run: resume it, or choose another folder"
                )
            training.checkpoints.begin(training.attempt, scope)
        except BaseException:
            training.release()
            raise

    def _train(self, meta: Meta, arrays: Arrays) -> Answer:
        """Take steps; the material of the next ones is made meanwhile."""
        scope = text(meta, "scope")
        training, rate = self.training(scope), float(meta["rate"])
        first, steps = integer(meta, "start"), integer(meta, "steps")
        stock, engine = training.stock, self._engine
        assert stock is not None
        if first != training.step:
            raise InputError(f"step {first} asked for, the next is {training.step}")
        if first - training.start < stock.used:
            raise MaterialReused(f"step {first} was begun before and failed: resume from a checkpoint")
        if training.checkpoints is not None:
            training.checkpoints.reserve(training.attempt, scope, first - training.start, steps)
        ahead = steps_ahead(stock.plan)
        started, before = perf_counter(), engine.meter.total("online")
        for _ in range(steps):
            execution = training.step - training.start
            if stock.expected - execution <= ahead // 2:
                wanted = min(training.settings.total_steps - training.start, execution + ahead) - stock.expected
                engine.order(stock, max(0, wanted))
            rule = training.rule(rate)
            agreed = fingerprint(scope, stock.plan.fingerprint.hex(), execution, training.agreed(rule))
            with engine.meter.section("online"):
                state = engine.exchange(agreed, self._beginning(training, rule))
            training.stepped(state, rule)
        spent = {"online": engine.meter.total("online") - before, "offline": engine.material_cost(stock)}
        return {"seconds": perf_counter() - started, "available": stock.available, **counts_to_json(spent)}, {}

    def _beginning(
        self, training: Training, rule: Rule
    ) -> Callable[[], tuple[Rounds[Mapping[str, Share]], list[Allocation]]]:
        def begin() -> tuple[Rounds[Mapping[str, Share]], list[Allocation]]:
            assert training.stock is not None
            ration = training.stock.begin(1, training.step - training.start, self._engine.timeout_s)
            return training.program(Party(self.rank, ration), rule), [ration]

        return begin

    def _close(self, meta: Meta, arrays: Arrays) -> Answer:
        """Forget a run and what is left of its material."""
        training = self.training(text(meta, "scope"))
        del self._trainings[text(meta, "scope")]
        training.release()
        if training.stock is not None:
            self._engine.close(training.stock)
        return {}, {}
