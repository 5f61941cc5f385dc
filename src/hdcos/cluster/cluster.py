"""The caller's end of two parties, wherever they run: splits what goes out, joins what comes back."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, Self, Unpack, overload
from weakref import WeakSet

import numpy as np
from numpy.typing import ArrayLike

from hdcos.api.cost import Cost
from hdcos.api.quota import PART
from hdcos.checks import check_id, check_name, split_owned
from hdcos.cluster.contribution import WAIT_S, Contribution
from hdcos.cluster.fit import Data, Labels, Options, Run, check_run
from hdcos.cluster.function import PrivateFunction
from hdcos.cluster.job import Job
from hdcos.cluster.looking import limit_looks
from hdcos.cluster.model import PrivateModel
from hdcos.cluster.pieces import Stream, Uploaded, encode_stream
from hdcos.cluster.transport import ModelRecord, Transport, split_words
from hdcos.errors import HdcosError, InputError, PolicyRefused
from hdcos.nn import Network
from hdcos.protocol import catalogue
from hdcos.protocol.catalogue import Call
from hdcos.ring import Array
from hdcos.secure import CompiledNetwork, compile_network
from hdcos.secure.calibrate import make_shareable
from hdcos.secure.compile import PHASE_BITS
from hdcos.secure.gain import warn_of_gain
from hdcos.secure.program import plan_inference
from hdcos.tables.columns import Columns
from hdcos.tables.preparation import Preparation
from hdcos.tables.reading import Source


class Cluster:
    """Two parties and, if they have one, their dealer."""

    def __init__(
        self, transport: Transport, phase_bits: int | None = None, pids: Mapping[str, int] | None = None
    ) -> None:
        self.transport = transport
        self.phase_bits, self.has_dealer = phase_bits or PHASE_BITS, transport.has_dealer
        self.pids = pids or {}
        """The processes of a cluster on this machine, by role."""
        self._function_bits = {} if phase_bits is None else {"phase_bits": min(28, phase_bits)}
        self._models: dict[str, PrivateModel] = {}
        self._following: WeakSet[Job] = WeakSet()
        self._costs: list[dict[str, Any]] = [{}, {}]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def __deepcopy__(self, known: Any) -> Self:
        """Itself: what copies its settings, as scikit-learn does, goes on talking to the same parties."""
        return self

    def close(self) -> None:
        """Refuse whatever is asked from now on. Parties elsewhere, and their jobs, go on."""
        for job in self._following:
            job.leave()
        self.transport.close()

    # ---- models

    def share(
        self,
        model: Network,
        name: str | None = None,
        calibrate: ArrayLike | None = None,
        ahead: int = 0,
        compare: str | None = None,
    ) -> PrivateModel:
        """Share a model: its weights are split here, and no party ever holds them. A name in use gets a new version.

        `calibrate` are rows of the kind the model will meet: here, in plaintext, they show which intervals tanh,
        sigmoid, expm1, GELU, SiLU and Softplus need. What was chosen is the result's `calibration`; the intervals are
        public. Without rows a warning says what is assumed. Material for `ahead` rows is kept available: more is made
        in the background as they are used. Layers that compare do it by `compare`, "tables" or "dcf", or else as each
        of them says; that is public, too.

        Parties elsewhere answer a number of rows that follows from the network and not from its weights, which they
        cannot see: a warning says if the weights are such that fewer should be answered (docs/security.md), looked at
        with rows of `calibrate` if there are any.
        """
        model, calibration = make_shareable(model, calibrate, compare)
        chosen = compile_network(model, self.phase_bits, self.has_dealer)
        plan_inference(chosen)  # what cannot be planned is refused before anything is sent
        name = check_name(name or f"model-{secrets.token_hex(4)}", "model name")
        self._warn_of_gain(name, model, chosen, calibrate)
        state = model.state()
        words = {tensor.name: tensor.words(state[tensor.name]) for tensor in chosen.tensors}
        version = secrets.token_hex(16)
        record = ModelRecord(name, version, model.architecture(), self.phase_bits)
        self.transport.keep_model(record, split_words(words))
        private = self.model(name)
        private.calibration = calibration
        if ahead:
            private.keep_ahead(ahead)
        return private

    def _warn_of_gain(self, name: str, model: Network, chosen: CompiledNetwork, rows: ArrayLike | None) -> None:
        left = None
        with suppress(PolicyRefused):  # who may not share a model is told so when it is sent
            left = self.transport.queries_left(name, chosen)
        if left is not None:
            warn_of_gain(name, model, chosen, left, PART, rows, stacklevel=3)

    def model(self, name: str, wanted: Callable[[], str] = str) -> PrivateModel:
        """A model shared or trained before; with `wanted`, once both parties serve the version that it names."""
        record = self.transport.model(check_name(name, "model name"), wanted)
        known = self._models.get(name)
        if known is None or known.version != record.version:
            known = self._models[name] = PrivateModel(self.transport, record)
        return known

    def models(self) -> list[dict[str, Any]]:
        """All models, as both parties know them."""
        return self.transport.models()

    # ---- data sets

    def upload(
        self,
        x: Uploaded,
        y: ArrayLike | None = None,
        *,
        name: str,
        outputs: int | None = None,
        loss: str | None = None,
        label: str | int | None = None,
        features: str | None = None,
        join: str | None = None,
        keep_days: float | None = None,
        preparation: Preparation | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> int:
        """Split one owner's rows, and labels if it has them, between the parties, who keep them; returns how many.

        `x` is an array or a table; the path of a file (CSV, NPY, NPZ, IDX or Parquet), whose labels are in the column
        or array `label`; or an iterator over pieces, each rows or a pair of rows and labels. Files and pieces may be
        larger than memory. What is wrong with a later row ends the upload, and the parties forget it.

        `outputs` is the number of outputs of the network that will be trained: 1 for two classes, else one per class.
        With loss="squared" and one output, `y` holds the numbers of a regression instead of classes. A name that you
        used before gets a new version: training takes it from now on, and jobs that began with an older one keep that
        until they end. Parties elsewhere remove it after `keep_days`, or as many as their operators say. `join` is the
        id of the join that put the rows into their order (`hdcos.join`): columns of several owners are trained on side
        by side only if they have the same.

        With a `preparation` (`hdcos.tables`) `x` is a table of any columns: a file, a DataFrame, an Arrow table, or an
        iterator over such. Features and labels are made of it here; outputs and loss follow from its label. The parties
        keep the names of the features and the preparation's digest, and so does a model that is trained on it.

        `sample_weight` has a weight for each row, shared like its label, as one target more; training uses them with
        `fit(..., sample_weight="uploaded")`.
        """
        check_name(name)
        if preparation is not None:
            outputs = preparation.outputs if outputs is None else outputs
            loss = "squared" if preparation.regression and loss is None else loss
        known = (1 if outputs is None else outputs, loss, label, features)
        stream = encode_stream(x, y, *known, preparation, sample_weight)
        told: dict[str, Any] = {} if keep_days is None else {"keep_days": keep_days}
        if join is not None:
            told["join"] = check_id(join, "join")
        return self._send(name, stream, told)

    def _send(self, name: str, stream: Stream, told: Mapping[str, Any]) -> int:
        shares = (split_words({"rows": words}) for words in stream.words)
        return self.transport.upload(name, secrets.token_hex(16), {**stream.record, **told}, shares)

    def contribute(
        self,
        table: Source,
        columns: Any,
        *,
        name: str,
        owners: int,
        clients: Sequence[str] = (),
        owner: str | None = None,
    ) -> Contribution:
        """Give this owner's part to a preparation of rows of several owners, which they agreed to call `name`.

        `columns` is the declaration that all of them use, `owners` how many they are, and `clients` who, by the names
        under which the parties know them: others are then refused. The sums of this owner's rows go out as shares; the
        result's `preparation()` waits for the others and gives each owner the same. What the totals tell of the rows is
        in docs/security.md. In a cluster on this machine the caller is all owners and says which one this is, `owner`.
        """
        return Contribution.make(self.transport, table, Columns.of(columns), name, owners, clients, owner)

    def prepare(
        self,
        table: Source,
        columns: Any,
        *,
        name: str,
        owners: int,
        clients: Sequence[str] = (),
        wait_s: float = WAIT_S,
    ) -> Preparation:
        """Contribute to a preparation of several owners' rows, and wait for it."""
        return self.contribute(table, columns, name=name, owners=owners, clients=clients).preparation(wait_s)

    def datasets(self) -> list[dict[str, Any]]:
        """All data sets that this caller may train on, in all versions: whose they are, how large, until when."""
        return self.transport.datasets()

    def forget_data(self, name: str) -> None:
        """Have both parties forget a data set in all its versions. A run that needs it once more, after a party was
        restarted, fails."""
        self.transport.forget_data(check_name(name))

    def allow_training(self, name: str, client: str) -> None:
        """Let another client train on a data set of yours. It can learn from the model what is in the data."""
        self.transport.allow_training(check_name(name), client)

    # ---- training

    @overload
    def fit(
        self, model: Network, x: Data, y: Labels = None, *, wait: Literal[True] = True, **options: Unpack[Options]
    ) -> PrivateModel: ...

    @overload
    def fit(
        self, model: Network, x: Data, y: Labels = None, *, wait: Literal[False], **options: Unpack[Options]
    ) -> Job: ...

    def fit(
        self, model: Network, x: Data, y: Labels = None, *, wait: bool = True, **options: Unpack[Options]
    ) -> PrivateModel | Job:
        """Train a model on rows and labels that no party sees; `Options` lists the options.

        `x` is an array or a table (a DataFrame) with labels `y`, the name of an uploaded data set, a list of names
        (rows of several owners, one after another) or a tuple of names (columns of several owners, side by side, rows
        joined by position). "acme/north" is the data set `north` of the client `acme`; without an owner, a name is that
        of your own, else of the only one that you may train on. Columns that have names are found by them, in whatever
        order each owner has them, and the trained model remembers the names.

        `lr` is a number or a function of the epoch. It rises in equal steps through the first `warm_up` epochs, and
        `schedule` multiplies it: "cosine" or "linear", which fall towards zero from there, or a function of the epoch.
        A rate that falls below what the arithmetic can take is kept at that, with a warning. Momentum and weight decay
        are those of PyTorch's SGD. The diagonals of Hadamard-Diagonal layers of size n learn at sqrt(n) times the rate,
        which costs nothing and suits them better (docs/design.md); `scale_diagonals=False` gives all one rate.

        In every epoch `flip` mirrors images at random, and `shift` moves each by up to as many pixels up or down and
        left or right, with zeros coming in: a public choice, which costs no round and no byte. With `average`, the
        model has the mean of the weights that the steps of this many last epochs began with. Every epoch shuffles all
        rows; `shuffle="blocks"` shuffles blocks of them, which suits data sets that a party keeps far away or on a
        slow disk.

        After each epoch the caller sees private predictions for rows of its own: those of `validation`, else `watch` of
        the rows in `x`, if it passed rows and not names. `history` of the result has their loss and accuracy, and
        training that diverges ends with RangeError. This costs predictions, not training steps; they count for the
        model's quota at parties elsewhere, so `watch` takes a tenth of what is left of it at most, by fewer rows or
        fewer looks, and `validation` that takes more than is left is refused. `watch=0` goes without.

        With `patience`, the model is that of the epoch with the smallest loss of `validation`, and training stops when
        this many epochs did not improve on it. The parties keep their shares of the best epoch's weights; what they
        learn of it is which epoch the caller prefers, and when it has seen enough.

        `sample_weight` has a weight for each row, which is shared like its label: a step is made for the mean over the
        batch of weight times loss. `class_weight` has one for each class, public where data sets are named, or is
        "balanced", which needs rows of the caller's own. Either costs a round a step, two behind a dense last layer.

        On this machine, with `checkpoint`, each party writes its shares into that folder every `checkpoint_every`
        steps, and `resume` goes on from the newest checkpoint that both hold, with fresh material. Parties elsewhere
        keep checkpoints by themselves and go on after a crash.

        Without `wait` the result is a Job. It is followed in the background; parties elsewhere go on with it even if
        this process ends.
        """
        run = check_run(model, x, y, self.phase_bits, **options)
        chosen = compile_network(model, self.phase_bits, self.has_dealer)  # a network that compares wants a dealer
        if run.spec["checkpoint"] and self.transport.keeps_checkpoints:
            raise InputError(
                "the parties keep checkpoints by themselves and go on from them: leave `checkpoint` and `resume` out"
            )
        job = self._submit(self._limit_looks(run, chosen))
        if not wait:
            job.follow_in_background()
            self._following.add(job)
            return job
        if run.own is None:
            self._check_datasets(job, run.spec["datasets"])
        job.follow(run.progress)
        return job.result()

    def _limit_looks(self, run: Run, chosen: CompiledNetwork) -> Run:
        if run.watched is None:
            return run
        left = None
        with suppress(PolicyRefused):  # a client that may train and not predict is not told: its first look says so
            left = self.transport.queries_left(run.spec["model"], chosen)
        return run if left is None else limit_looks(run, run.watched, left)

    def _submit(self, run: Run) -> Job:
        names, number = run.spec["datasets"], run.spec["id"]
        if run.own is None:
            self.transport.submit(run.spec, split_words(run.words))
            return Job(self, number, run.watched, "", run.patience, run.every)
        stream = encode_stream(
            run.own.shared, run.own.targets, run.plan.outputs, run.spec["loss"], sample_weight=run.own.weights
        )
        self._send(names[0], stream, {"job": number})  # the parties remove them with the job, if nobody else does
        try:
            self.transport.submit(run.spec, split_words(run.words))
        except BaseException:
            with suppress(HdcosError):
                self.transport.forget_data(names[0])
            raise
        return Job(self, number, run.watched, names[0], run.patience, run.every)

    def _check_datasets(self, job: Job, names: list[str]) -> None:
        """A job waits for data sets that are yet to be uploaded; a caller who waits for the job would not see why."""
        with suppress(PolicyRefused):  # a client that may train and not upload is not told which there are
            found = self.datasets()
            listed = [item for item in found if item["complete"]]
            there = {item["name"] for item in listed} | {f"{item['owner']}/{item['name']}" for item in listed}
            if missing := [name for name in names if name not in there]:
                self.transport.cancel(job.id, keep=False)
                owner, name = split_owned(missing[0])
                if begun := [item["owner"] for item in found if item["name"] == name and owner in ("", item["owner"])]:
                    raise InputError(
                        f"the upload of {begun[0]}/{name} has not ended: wait for it, or if it was broken off "
                        f"{begun[0]} uploads it again"
                    )
                known = sorted(item["name"] if item["own"] else f"{item['owner']}/{item['name']}" for item in listed)
                raise InputError(
                    f"no data set is called {missing}; there are {known}. Its owner uploads it and allows you: "
                    f"`hdcos upload FILE --name {name} --allow YOU`"
                )

    def job(self, number: str) -> Job:
        """A job that was submitted before."""
        job = Job(self, check_id(number, "job id"))
        job._look()
        return job

    def jobs(self) -> list[dict[str, Any]]:
        """All jobs of this caller."""
        return self.transport.jobs()

    # ---- single functions

    def function(self, name: str, *shapes: tuple[int, ...], ahead: int = 0, **parameters: Any) -> PrivateFunction:
        """A function opened for inputs of these shapes; material can then be made before the inputs exist.

        Material for `ahead` executions is kept available: the dealer makes more in the background as they are used.
        """
        if "phase_bits" in catalogue.find(name).parameters and "series" not in catalogue.find(name).parameters:
            parameters = {**self._function_bits, **parameters}
        return PrivateFunction(self.transport, Call.of(name, **parameters), shapes, ahead)

    def evaluate(self, name: str, *inputs: ArrayLike, **parameters: Any) -> Array:
        """A function of private inputs: shares go out, shares come back, only the caller sees the result."""
        arrays = [np.asarray(values) for values in inputs]
        with self.function(name, *(array.shape for array in arrays), **parameters) as function:
            words = function.encode(arrays)
            function.prepare(1)
            return function.run_words(words, 1)

    # ---- what it costs

    @property
    def cost(self) -> Cost:
        """Rounds, bytes and seconds of both parties since their start or the last reset, other clients' included."""
        return Cost.of(self.transport.counts(), self._costs)

    def reset_cost(self) -> None:
        """Start counting again."""
        self._costs = self.transport.counts()

    def round_trip_s(self, rounds: int = 100) -> float:
        """The mean time of an empty exchange between the parties."""
        return self.transport.round_trip_s(rounds)
