"""The caller's end of two parties: asks both, joins answers, reads their meters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import replace
from itertools import count
from threading import Lock
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import ArrayLike

from hdcos.api.cost import Cost, PhaseCost, StepCost, counts_from_json
from hdcos.cluster.fit import Data, fit, upload
from hdcos.cluster.function import PrivateFunction
from hdcos.cluster.job import Job
from hdcos.cluster.model import PrivateModel
from hdcos.errors import InputError, PeerLost
from hdcos.link import Link
from hdcos.link.message import request
from hdcos.nn import Sequential
from hdcos.nn.columns import Rows
from hdcos.protocol import catalogue
from hdcos.protocol.catalogue import Call
from hdcos.ring import Array
from hdcos.secure.calibrate import as_shared
from hdcos.secure.layout import PHASE_BITS

GRACE_S = 2.0


class Cluster:
    """The caller's end: splits inputs, asks both parties, joins answers."""

    def __init__(
        self,
        links: Sequence[Link],
        phase_bits: int | None,
        has_dealer: bool,
        timeout_s: float,
        pids: Mapping[str, int],
        explain: Callable[[PeerLost], PeerLost],
    ) -> None:
        self._links, self.pids, self._explain = links, pids, explain
        self._timeout_s = timeout_s
        self.phase_bits, self.has_dealer = phase_bits or PHASE_BITS, has_dealer
        self._function_bits = {} if phase_bits is None else {"phase_bits": min(28, phase_bits)}
        self.online_s = 0.0
        self._models: dict[str, PrivateModel] = {}
        self._promised: set[str] = set()
        """Names of models that are being trained."""
        self._lock = Lock()
        self._ended = False
        self._callers = ThreadPoolExecutor(len(links), thread_name_prefix="caller")

    def function(self, name: str, *shapes: tuple[int, ...], ahead: int = 0, **parameters: Any) -> PrivateFunction:
        """A function opened for inputs of these shapes; material can then be made before the inputs exist.

        `ahead` executions are kept in stock: the dealer makes more in the background as they are used.
        """
        if "phase_bits" in catalogue.find(name).parameters and "series" not in catalogue.find(name).parameters:
            parameters = {**self._function_bits, **parameters}
        return PrivateFunction(self, Call.of(name, **parameters), shapes, ahead)

    def share(
        self, model: Sequential, name: str | None = None, calibrate: ArrayLike | None = None, ahead: int = 0
    ) -> PrivateModel:
        """Share a model: its weights are split here, and no party ever holds them.

        `calibrate` are rows of the kind the model will meet: here, in plaintext, they show which intervals tanh,
        sigmoid and expm1 need. What was chosen is the result's `calibration`; the intervals are public. Without rows a
        warning says what is assumed. `ahead` rows are kept in stock: the dealer makes more in the background as they
        are used.
        """
        model, calibration = as_shared(model, calibrate)
        name = self._free_name(name)
        self._models[name] = private = PrivateModel.share(self, model, name, self.phase_bits, ahead)
        private.calibration = calibration
        return private

    def upload(
        self, x: Rows, y: ArrayLike | None = None, *, name: str, outputs: int = 1, loss: str | None = None
    ) -> None:
        """Split one owner's rows, and labels if it has them, between the parties.

        `outputs` is the number of outputs of the network that will be trained: 1 for two classes, else one per class.
        With loss="squared" and one output, `y` holds the numbers of a regression instead of classes.
        """
        upload(self, x, y, name, outputs, loss)

    @overload
    def fit(
        self, model: Sequential, x: Data, y: ArrayLike | None = None, *, wait: Literal[True] = True, **options: Any
    ) -> PrivateModel: ...

    @overload
    def fit(
        self, model: Sequential, x: Data, y: ArrayLike | None = None, *, wait: Literal[False], **options: Any
    ) -> Job: ...

    def fit(
        self, model: Sequential, x: Data, y: ArrayLike | None = None, *, wait: bool = True, **options: Any
    ) -> PrivateModel | Job:
        """Train a model on rows and labels that no party sees; see `hdcos.cluster.fit.fit` for the options.

        Without `wait`, in the background: the result is a Job.
        """
        name = self._free_name(options.pop("name", None))

        self._promised.add(name)

        def work(job: Job | None = None) -> PrivateModel:
            if job is not None:
                options.update(job=job, progress=False)
            try:
                self._models[name] = fit(self, model, x, y, name=name, **options)
            finally:
                self._promised.discard(name)
            return self._models[name]

        return work() if wait else Job(work)

    def _free_name(self, name: str | None) -> str:
        taken = self._models.keys() | self._promised
        if name is None:
            return next(f"model{number}" for number in count() if f"model{number}" not in taken)
        if name in taken:
            raise InputError(f"a model named {name!r} is shared already: choose another name, or delete it")
        return name

    def forget(self, name: str) -> None:
        """Free the name of a model that was deleted."""
        self._models.pop(name, None)

    def model(self, name: str) -> PrivateModel:
        """A model shared before."""
        if name not in self._models:
            raise InputError(f"no model is named {name!r}; there are {sorted(self._models)}")
        return self._models[name]

    def evaluate(self, name: str, *inputs: ArrayLike, **parameters: Any) -> Array:
        """A function of private inputs: shares go out, shares come back, only the caller sees the result."""
        arrays = [np.asarray(values) for values in inputs]
        with self.function(name, *(array.shape for array in arrays), **parameters) as function:
            words = function.encode(arrays)
            function.prepare(1)
            return function.run_words(words, 1)

    @property
    def cost(self) -> Cost:
        """What was spent since the start or the last reset."""
        (zero, _), (one, _) = self.ask({"operation": "cost"})
        sides = [counts_from_json({name: meta[name] for name in ("online", "offline")}) for meta in (zero, one)]
        steps = [counts_from_json(meta["steps"]) for meta in (zero, one)]
        online = PhaseCost.of([side["online"] for side in sides])
        return Cost(
            replace(online, seconds=self.online_s),
            PhaseCost.of([side["offline"] for side in sides], received=True),
            tuple(StepCost(name, PhaseCost.of([side[name] for side in steps])) for name in steps[0]),
        )

    def reset_cost(self) -> None:
        """Start counting anew."""
        self.online_s = 0.0
        self.ask({"operation": "reset"})

    def round_trip_s(self, rounds: int = 100) -> float:
        """The mean time of an empty exchange between the parties."""
        answers = self.ask({"operation": "ping", "rounds": rounds})
        return float(max(meta["seconds"] for meta, _ in answers))

    def ask(
        self, meta: Mapping[str, Any], arrays: Sequence[Mapping[str, Array]] = ({}, {})
    ) -> list[tuple[dict[str, Any], dict[str, Array]]]:
        """One request to both parties at once. If both fail, the error that explains more is raised."""
        with self._lock:  # replies are told apart by their order alone
            if self._ended:
                raise PeerLost("this cluster has ended: use it, and what it made, inside its `with` block")
            return self._ask_both(meta, arrays)

    def _ask_both(
        self, meta: Mapping[str, Any], arrays: Sequence[Mapping[str, Array]]
    ) -> list[tuple[dict[str, Any], dict[str, Array]]]:
        calls = []
        try:
            for link, part in zip(self._links, arrays, strict=True):
                calls.append(self._callers.submit(_ask, link, meta, part))
            done, _ = wait(calls, return_when=FIRST_EXCEPTION)
            if len(done) < len(calls):
                # One party failed. The other gives up by itself within its timeout, unless it is lost as well.
                done, hanging = wait(calls, self._timeout_s + GRACE_S)
                for call in hanging:
                    self._links[calls.index(call)].cancel()
        except BaseException:
            # Interrupted: the answers still to come would be taken for answers to the next question.
            for link in self._links:
                link.cancel()
            raise
        first = [call for call in calls if call in done] + [call for call in calls if call not in done]
        failures = [error for call in first if (error := call.exception()) is not None]
        if failures:
            worst = min(failures, key=lambda error: isinstance(error, PeerLost))
            raise self._explain(worst) if isinstance(worst, PeerLost) else worst
        return [call.result() for call in calls]

    def shutdown(self) -> None:
        """Ask both parties to end in good order."""
        self.ask({"operation": "shutdown"})
        self.end()

    def end(self) -> None:
        """Refuse whatever is asked from now on."""
        self._ended = True


def _ask(link: Link, meta: Mapping[str, Any], arrays: Mapping[str, Array]) -> tuple[dict[str, Any], dict[str, Array]]:
    return request(link, meta, arrays)
