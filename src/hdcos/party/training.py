"""A party's part in training: it holds shares of data and parameters, and takes steps with its peer."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from math import prod
from typing import Any, Self

import numpy as np

from hdcos.api.commands import OpenJob
from hdcos.api.cost import counts_to_json
from hdcos.errors import CheckpointMismatch, InputError, MaterialReused
from hdcos.link import Count
from hdcos.nn import Network
from hdcos.nn.columns import Names
from hdcos.offline import MaterialPool, Plan, limits
from hdcos.party.checkpoint import Checkpoints
from hdcos.party.dataset import Dataset
from hdcos.party.engine import Engine, fingerprint
from hdcos.party.group import Group
from hdcos.party.opened import check_shares
from hdcos.protocol.party import Party
from hdcos.protocol.plan import Planned, blank_share, plan
from hdcos.protocol.repeated import Repeated
from hdcos.protocol.rounds import Rounds
from hdcos.ring import Array
from hdcos.ring.device import to_host
from hdcos.secure import CompiledNetwork
from hdcos.secure.training import Rule, TrainingPlan, training_plan
from hdcos.secure.training.augment import Augment
from hdcos.secure.training.convert import to_inference
from hdcos.secure.training.plan import INPUT_SCALE, WEIGHT_SCALE
from hdcos.secure.training.rule import BEFORE, BEST, SUM, Step, apply, changes, first_averaged, mean
from hdcos.secure.training.shuffle import Epoch, block_rows
from hdcos.secure.training.step import sgd_step, take_step
from hdcos.secure.training.weights import RowWeights
from hdcos.sharing import Share

AHEAD_BYTES = 1 << 26
MOST_AHEAD = 32
REMEMBERED = 100
"""Epochs whose times are kept."""
ROWS, BEHIND = " rows", " behind rows"
"""Among the words of a step, which have the names of parameters."""
Moves = tuple[dict[str, Step], Mapping[str, Share]]
"""What a step moves each parameter by, and rounded copies of these where the rule needs them."""
PATIENCE_S = 60.0
"""How long a job waits for a client that asked to see the model of each epoch: loading and predictions included."""


@dataclass(frozen=True)
class Settings:
    """What a run of training is: a checkpoint belongs to a run with the same."""

    loss: str
    batch: int
    seed: int
    total_steps: int
    momentum: float = 0.0
    decay: float = 0.0
    scale_diagonals: bool = False
    """False is what checkpoints and jobs mean that were written before there was a choice."""
    flip: bool = False
    shift: int = 0
    average: int = 0
    shuffle: str = "rows"
    weighted: bool = False
    class_weight: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "class_weight", tuple(self.class_weight))  # a list where it comes from a file

    @property
    def weights(self) -> RowWeights:
        return RowWeights(self.weighted, self.class_weight)

    def rule(self, rate: float, last_rate: float | None = None, number: int = 0) -> Rule:
        """That of a step."""
        return Rule(rate, self.momentum, self.decay, last_rate, number, self.scale_diagonals, self.average > 0)


def steps_ahead(plan: Plan) -> int:
    """Steps whose material is on its way while one runs; more is ordered when half of them are left."""
    return max(2, min(MOST_AHEAD, AHEAD_BYTES // max(1, plan.packed_bytes(1))))


@dataclass
class Training:
    """One run of training at one party. An execution of its material is one step."""

    engine: Engine
    group: Group
    """The workers that take its steps together."""
    scope: str
    plan: TrainingPlan
    settings: Settings
    data: Dataset = field(repr=False)
    """What the rows of a step are taken from."""
    state: Mapping[str, Share] = field(repr=False)
    augment: Augment | None
    first_averaged: int
    """The first step whose parameters are part of the mean that the run ends with."""
    run: str
    """Names the run through all its attempts."""
    attempt: int
    origin: tuple[int, int] = (0, 0)
    """The step and the attempt of the checkpoint it went on from."""
    step: int = 0
    last_rate: float | None = None
    start: int = 0
    """The step this attempt began with: the first execution of its material."""
    checkpoints: Checkpoints | None = None
    every: int = 0
    pool: MaterialPool = field(init=False)
    repeated: Repeated[Moves] = field(init=False, repr=False)
    sums: dict[str, Share] = field(default_factory=dict, repr=False)
    """Of the parameters that are part of the mean so far."""
    drawn: tuple[Epoch, Array | None] | None = field(default=None, repr=False)
    """The order of one epoch, and how its images are moved."""
    best: tuple[int, Mapping[str, Share]] | None = field(default=None, repr=False)
    """The epoch that the client preferred so far, and the parameters after it."""

    @classmethod
    def of(
        cls,
        engine: Engine,
        command: OpenJob,
        spec: Mapping[str, Any],
        model: Network,
        data: Dataset,
        words: Mapping[str, Array],
    ) -> Self:
        """The run of a job, on data that fits its network; nothing is opened yet."""
        column = bool(spec.get("weighted"))
        chosen = training_plan(model, spec["loss"], column or bool(spec.get("class_weight")))
        wanted, batch = (prod(chosen.input_shape), chosen.outputs), spec["batch_size"]
        if (data.features, data.targets) != (wanted[0], wanted[1] + column):
            weights = ", and every row must bring its weight: upload with sample_weight" if column else ""
            raise InputError(
                f"the data has {data.features} features and {data.targets} targets, the network takes "
                f"{wanted[0]} and gives {wanted[1]}{weights or ': give it that many (`sizes` in [model])'}"
            )
        if not 1 <= batch <= len(data):
            raise InputError(f"a batch of {batch} rows cannot be drawn from {len(data)}")
        group = engine.gather(command.workers, command.scope)
        epochs, steps = len(spec["rates"]), len(data) // batch
        later = ("scale_diagonals", "flip", "shift", "average", "shuffle", "weighted", "class_weight")
        added = {name: spec[name] for name in later if name in spec}
        known = (spec["loss"], batch, spec["seed"], steps * epochs, spec["momentum"], spec["weight_decay"])
        settings = Settings(*known, **added)
        augment = Augment.of(model, chosen.front, settings.flip, settings.shift)
        averaged = steps * first_averaged(settings.average, epochs)
        if group.leads:
            check_shares(words, {tensor.name: tensor.shape for tensor in chosen.tensors})
        else:  # the first one's are added, and later the changes of all
            words = {tensor.name: np.zeros(tensor.shape, np.uint64) for tensor in chosen.tensors}
        state = chosen.shares(words)
        public = (augment, averaged, command.job, command.attempt)
        scope = f"{command.scope} {group.index}" if group.size > 1 else command.scope
        return cls(engine, group, scope, chosen, settings, data, state, *public)

    def open(self, rate: float) -> None:
        """Have material ready for steps at this rate or a higher one; all workers begin with the first one's shares."""
        state = self.group.add({tensor.name: self.state[tensor.name].words for tensor in self.plan.tensors})
        self.group.require()
        if not self.group.leads:
            self.state = self.plan.shares(state)
        planned = self._plan_step(rate)
        limits.check(planned.material)
        self.pool = self.engine.open(self.scope, planned, singly=True)
        self.repeated = Repeated(self.engine.device)

    def use_checkpoints(self, checkpoints: Checkpoints, every: int, resume: int | None) -> None:
        """Write checkpoints to a folder, and go on from one if asked; of several workers the first one does."""
        self.checkpoints, self.every = checkpoints, every
        checkpoints.lock()
        if resume is not None:
            self._resume(checkpoints, resume)
            checkpoints.forget_after(resume)
        elif checkpoints.steps():
            raise CheckpointMismatch(
                f"{checkpoints.folder} holds checkpoints of another run: resume it, or choose another folder"
            )
        checkpoints.begin(self.attempt, self.scope)

    def _plan_step(self, rate: float) -> Planned:
        """The material of this worker's part of a step; of one that takes no row, what it never orders."""
        rows = max(1, len(self.part))
        x = blank_share((rows, self.data.features), INPUT_SCALE)
        targets = blank_share((rows, self.plan.outputs), self.plan.target_scale)
        weights = blank_share((rows, 1), self.settings.weights.scale) if self.plan.weighted else None
        state = {tensor.name: blank_share(tensor.shape, tensor.scale, tensor.bits) for tensor in self.plan.tensors}
        rule = self._divided(self.settings.rule(rate))
        return plan(sgd_step, self.plan, state, x, targets, rule, weights, rank=self.engine.rank)

    def _divided(self, rule: Rule) -> Rule:
        """A rule for the part of a step that this worker takes."""
        group = self.group
        return rule if group.size == 1 else replace(rule, batch=self.settings.batch, leads=group.leads)

    @cached_property
    def part(self) -> range:
        """The rows of each batch that this worker takes."""
        return self.group.part(self.settings.batch)

    @cached_property
    def said(self) -> str:
        """What both parties must mean by the run, as far as no step changes it."""
        return repr(self.settings)

    @property
    def columns(self) -> Names | None:
        """The names of the features, if the data sets have them."""
        return self.data.columns

    @property
    def steps_per_epoch(self) -> int:
        return len(self.data) // self.settings.batch

    def rows(self, step: int) -> tuple[Array, Array | None]:
        """The public indices of this worker's part of a step's batch, and how its images are moved.

        Each epoch shuffles all rows afresh. Both depend on the seed and the epoch alone: a run that goes on from a
        checkpoint draws what it would have.
        """
        epoch, number = divmod(step, self.steps_per_epoch)
        if self.drawn is None or self.drawn[0].number != epoch:
            self.drawn = None  # before the next is drawn: there is never room for two
            seed, (rows, width) = self.settings.seed, self.data.rows.shape
            moves = None if self.augment is None else self.augment.draw(seed, epoch, rows)
            block = block_rows(width) if self.settings.shuffle == "blocks" else 0
            self.drawn = Epoch(seed, epoch, rows, self.settings.batch, block), moves
        order, moves = self.drawn
        part = order.take(number)[self.part.start : self.part.stop]
        return part, None if moves is None else moves[part]

    def advance(self, first: int, steps: int, rate: float) -> None:
        """Take steps; the material of the next ones is made meanwhile.

        If a worker of the group is lost, the steps that are left are taken for nothing: the peer waits for them.
        """
        if first != self.step:
            raise InputError(f"step {first} asked for, the next is {self.step}")
        if first - self.start < self.pool.used:
            raise MaterialReused(f"step {first} was begun before and failed: resume from a checkpoint")
        if self.checkpoints is not None:
            self.checkpoints.reserve(self.attempt, self.scope, first - self.start, steps)
        ahead = steps_ahead(self.pool.plan)
        for _ in range(steps):
            rule = self._divided(self.settings.rule(rate, self.last_rate, self.step))
            added, copies = self._take_part(rule, ahead) if self.part else self._take_nothing()
            self._keep_step(apply(self.state, rule, self.group.add(added), copies), rule)
        self.group.require()

    def _take_part(self, rule: Rule, ahead: int) -> tuple[dict[str, Array], Mapping[str, Share]]:
        """What this worker's part of the next step adds to each parameter, and copies of these if they are wanted."""
        engine, pool, execution = self.engine, self.pool, self.step - self.start
        if pool.expected - execution <= ahead // 2:
            wanted = min(self.settings.total_steps - self.start, execution + ahead) - pool.expected
            engine.order(pool, max(0, wanted))
        rows, moves = self.rows(self.step)
        with self.group.telling(), engine.attempt("online"):
            allocation = pool.begin(1, execution, engine.material_s)
            words = {tensor.name: self.state[tensor.name].words for tensor in self.plan.tensors}
            body, known = partial(self._step, replace(rule, number=0)), (len(rows), repr(replace(rule, number=0)))
            program = self.repeated.run(known, engine.rank, body, words | self._take(rows, moves), allocation)
            made, copies = engine.talk(self._agreed(execution, rows, moves, rule), program)
        return changes(self.state, rule, made, copies, self.plan.rate_factors), copies

    def _take_nothing(self) -> tuple[dict[str, Array], Mapping[str, Share]]:
        """The same where a batch has no row for this worker, whose copies nobody uses: only the first one's are."""
        zeros = {tensor.name: np.zeros(tensor.shape, np.uint64) for tensor in self.plan.tensors}
        return zeros, {name: Share(words, WEIGHT_SCALE) for name, words in zeros.items()}

    def _step(self, rule: Rule, party: Party, words: Mapping[str, Array]) -> Rounds[Moves]:
        """A step of this worker, of words that lie where the party computes."""
        tensors = (tensor.name for tensor in self.plan.tensors)
        state = {name: replace(self.state[name], words=words[name]) for name in tensors}
        targets, weights = self.settings.weights.take(party, words[BEHIND], self.plan.outputs)
        x = Share(words[ROWS], INPUT_SCALE)
        return take_step(party, self.plan, state, x, targets.raised(self.plan.target_scale), rule, weights)

    def _take(self, rows: Array, moves: Array | None) -> dict[str, Array]:
        """These rows, and what the data set has behind their features, wherever it lies."""
        words, features = self.data.rows.take(rows), self.data.features
        x = np.ascontiguousarray(words[:, :features])
        if self.augment is not None and moves is not None:
            x = self.augment.move(x, moves)
        return {ROWS: x, BEHIND: np.ascontiguousarray(words[:, features:])}

    def _agreed(self, execution: int, rows: Array, moves: Array | None, rule: Rule) -> bytes:
        """What both parties must mean by a step: which material, which rows and how moved, which numbers."""
        drawn = [array for array in (rows, moves) if array is not None]
        hashed = [hashlib.sha256(np.ascontiguousarray(array, dtype="<i8").tobytes()).hexdigest() for array in drawn]
        meant = [self.run, self.attempt, self.origin, hashed, repr(rule), self.said]
        return fingerprint(self.scope, self.pool.plan.fingerprint.hex(), execution, meant)

    def keep_best(self, epoch: int) -> None:
        """Remember the parameters after an epoch, which is where the run is now."""
        if self.step != epoch * self.steps_per_epoch:
            raise InputError(f"epoch {epoch} has passed: the run is at step {self.step}")
        self.best = epoch, {tensor.name: self.state[tensor.name] for tensor in self.plan.tensors}

    def words_for(self, scope: str, network: CompiledNetwork, together: bool, best: bool) -> dict[str, Array]:
        """The parameters as they are now, or their mean, at the scales of inference; training may go on.

        The first worker makes them; `together` all have them afterwards. With `best` they are those of the epoch that
        the client preferred, if it preferred one.
        """
        state, at = {tensor.name: self.state[tensor.name] for tensor in self.plan.tensors}, self.step
        if self.sums:
            state = {name: mean(self.sums[name], self.step - self.first_averaged) for name in state}
        if best and self.best is not None:
            at, state = self.best[0] * self.steps_per_epoch, dict(self.best[1])
        words = {tensor.name: np.zeros(tensor.shape, np.uint64) for tensor in network.tensors}
        if self.group.leads:  # the others add nothing to what it has
            shares = self.engine.once(
                f"{scope} scales",
                plan(to_inference, self.plan, network, state, rank=self.engine.rank),
                [at],
                lambda party: to_inference(
                    party, self.plan, network, {name: self.engine.place(share) for name, share in state.items()}
                ),
            )
            words = {tensor.name: to_host(shares[tensor.name].words) for tensor in network.tensors}
        words = self.group.add(words) if together else words
        self.group.require()
        return words

    def close(self) -> None:
        """Forget what is left of its material, and let other runs use the folder."""
        self.release()
        self.engine.close(self.pool)

    def _keep_step(self, state: Mapping[str, Share], rule: Rule) -> None:
        """Take over what a step gave, and write it down when its time has come."""
        self.state, self.last_rate = state, rule.rate
        if self.settings.average and self.step >= self.first_averaged:
            for tensor in self.plan.tensors:
                copy = state[tensor.name + BEFORE]
                self.sums[tensor.name] = self.sums[tensor.name] + copy if tensor.name in self.sums else copy
        self.step += 1
        if self.step % self.steps_per_epoch == 0:  # copies of one step ago are each worker's own
            self.group.check_equal({tensor.name: state[tensor.name].words for tensor in self.plan.tensors})
        due = self.step == self.settings.total_steps or (self.every and self.step % self.every == 0)
        if self.checkpoints is not None and due and not self.group.lost:
            words = {name: share.words for name, share in self.state.items()}
            words |= {name + SUM: share.words for name, share in self.sums.items()}
            if self.best is not None:
                words |= {name + BEST: share.words for name, share in self.best[1].items()}
            self.checkpoints.save(self.step, words, self._record())

    def release(self) -> None:
        """Let other runs use the folder."""
        self.group.close()
        if self.checkpoints is not None:
            self.checkpoints.unlock()

    def _record(self) -> dict[str, Any]:
        shapes = {tensor.name: list(tensor.shape) for tensor in self.plan.tensors}
        known = {"rows": len(self.data), "shapes": shapes, "settings": asdict(self.settings)}
        place = {"run": self.run, "attempt": self.attempt, "step": self.step, "last_rate": self.last_rate}
        return {**known, **place, "best": 0 if self.best is None else self.best[0]}

    def _resume(self, checkpoints: Checkpoints, step: int) -> None:
        """Go on from a checkpoint of the same run."""
        words, record = checkpoints.load(step)
        record["settings"] = asdict(Settings(**record["settings"]))  # older ones lack what was added since
        mine = self._record()
        for what in ("rows", "shapes", "settings"):
            if record[what] != mine[what]:
                raise CheckpointMismatch(
                    f"the checkpoint of step {step} belongs to another run: its {what} are {record[what]}, "
                    f"these are {mine[what]}"
                )
        tensors = {tensor.name: tensor for tensor in self.plan.tensors}
        state, self.sums, best = {}, {}, dict[str, Share]()
        for name, array in words.items():
            if name.endswith(BEST):
                tensor = tensors[name.removesuffix(BEST)]
                best[tensor.name] = Share(array, tensor.scale, tensor.bits)
                continue
            if name.endswith(SUM):
                self.sums[name.removesuffix(SUM)] = Share(array, WEIGHT_SCALE)
                continue
            tensor = tensors[name.removesuffix(BEFORE)]
            copy = name.endswith(BEFORE)
            state[name] = Share(array, WEIGHT_SCALE if copy else tensor.scale, 64 if copy else tensor.bits)
        self.state, self.step, self.start, self.last_rate = state, step, step, record["last_rate"]
        self.run, self.origin = record["run"], (step, record["attempt"])
        self.best = (record["best"], best) if best else None


@dataclass
class Viewing:
    """The models of a job after each epoch, and the client that may look at them."""

    interim: tuple[int, str] = (0, "")
    """The epoch whose model is there to be looked at, and its version."""
    until: float = 0.0
    """How long training waits for that look."""
    seen: int = 0
    """The last epoch that was looked at."""
    watched: bool = True
    """Whether anybody seems to look."""
    preferred: int = 0
    """The epoch that was the best so far when it was looked at, until its parameters are kept."""
    enough: bool = False
    """Whether the client has seen enough: training stops."""

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

    def due(self, epoch: int) -> bool:
        """Whether the model of an epoch that has ended is yet to be shown."""
        return self.watched and epoch > max(self.seen, self.interim[0])

    def look(self, epoch: int, best: bool, stop: bool) -> None:
        """Somebody has seen how the model was after an epoch."""
        if best:
            self.preferred = epoch
        self.enough = self.enough or stop
        self.seen, self.watched = max(self.seen, epoch), True  # last: training goes on from here


@dataclass
class Progress:
    """A job that this session is working on."""

    training: Training
    rates: list[float]
    viewing: Viewing
    before: dict[str, Count] = field(default_factory=dict)
    """What earlier attempts cost."""
    online: Count = field(default_factory=Count)
    ended: list[list[float]] = field(default_factory=list)
    """Number and seconds of the last epochs."""
    epoch_s: float = 0.0
    noted: float = field(default_factory=time.monotonic)
    """When its report was last written."""

    @property
    def step(self) -> int:
        return self.training.step

    @property
    def steps_per_epoch(self) -> int:
        return self.training.steps_per_epoch

    @property
    def epoch(self) -> int:
        """Epochs that have ended."""
        return self.step // self.steps_per_epoch

    @property
    def total_steps(self) -> int:
        return self.training.settings.total_steps

    @property
    def to_checkpoint(self) -> int:
        """Steps until the next checkpoint is written."""
        every = self.training.every or self.total_steps
        return every - self.step % every

    @property
    def saved(self) -> bool:
        """Whether it could go on from here: its last step is on disk, and is not the one that it began with."""
        training = self.training
        return bool(training.every) and training.step > training.start and training.step % training.every == 0

    def advance(self, first: int, steps: int, rate: float) -> None:
        """Take steps, and count what they cost and how long epochs take."""
        meter = self.training.engine.meter
        online, began = meter.total("online"), time.monotonic()
        self.training.advance(first, steps, rate)
        self.online += meter.total("online") - online
        self.epoch_s += time.monotonic() - began
        if self.step % self.steps_per_epoch == 0:
            self.ended = [*self.ended, [self.step // self.steps_per_epoch, self.epoch_s]][-REMEMBERED:]
            self.epoch_s = 0.0

    def report(self) -> dict[str, Any]:
        """What the job cost so far, at this party, and how long its last epochs took."""
        now = {"online": self.online, "offline": self.training.engine.material_cost(self.training.pool)}
        cost = {phase: self.before.get(phase, Count()) + count for phase, count in now.items()}
        best = 0 if self.training.best is None else self.training.best[0]
        return {"cost": counts_to_json(cost), "ended": self.ended, "best": best}
