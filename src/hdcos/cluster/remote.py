"""`hdcos.connect`: the interface of `hdcos.local()`, for a cluster that runs elsewhere."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hdcos.api.names import check_id, check_name
from hdcos.cluster.https import Answer, Parties
from hdcos.cluster.remote_cost import Cost
from hdcos.cluster.remote_model import RemoteModel
from hdcos.cluster.remote_training import ENDED, Following, RemoteJob, upload
from hdcos.cluster.shares import halves
from hdcos.errors import DataMissing, HdcosError, InputError, RangeError
from hdcos.nn import Sequential
from hdcos.nn.columns import Rows, column_names
from hdcos.secure import layout
from hdcos.secure.calibrate import as_shared
from hdcos.secure.layout import PHASE_BITS, chosen_bits
from hdcos.secure.planning import plan_inference
from hdcos.secure.training import training_plan
from hdcos.secure.training.rates import Rate, epoch_rates
from hdcos.secure.training.targets import named_sets, own_rows
from hdcos.secure.training.watch import SAMPLE, Watch

LOAD_S = 0.1


class RemoteCluster:
    """Two parties and their dealer, somewhere else."""

    def __init__(
        self, cluster: str | os.PathLike[str], secret: str, phase_bits: int = PHASE_BITS, timeout_s: float = 30.0
    ) -> None:
        self.phase_bits, self._timeout_s = phase_bits, timeout_s
        self.parties = Parties(cluster, secret, timeout_s)
        self._costs: list[dict[str, Any]] | None = None

    def __enter__(self) -> RemoteCluster:
        return self

    def __exit__(self, *rest: object) -> None:
        self.close()

    def close(self) -> None:
        self.parties.close()

    # ---- models

    def share(self, model: Sequential, name: str | None = None, calibrate: ArrayLike | None = None) -> RemoteModel:
        """Share a model: its weights are split here, and no party ever holds them. A name in use gets a new version.

        `calibrate` are rows of the kind the model will meet: here, in plaintext, they show which intervals tanh,
        sigmoid and expm1 need. What was chosen is the result's `calibration`; the intervals are public. Without rows a
        warning says what is assumed.
        """
        model, calibration = as_shared(model, calibrate)
        chosen = layout(model, self.phase_bits, self.parties.has_dealer)
        plan_inference(chosen)  # what cannot be planned is refused before anything is sent
        name = check_name(name or f"model-{secrets.token_hex(4)}", "model name")
        state, version = model.state(), secrets.token_hex(16)
        words = {tensor.name: tensor.words(state[tensor.name]) for tensor in chosen.tensors}
        known = {"architecture": model.architecture(), "phase_bits": self.phase_bits, "version": version}
        self.parties.ask("PUT", f"/v2/models/{name}", {"parameters": known}, halves(words))
        self.await_version(name, lambda: version)
        private = self.model(name)
        private.calibration = calibration
        return private

    def await_version(self, name: str, wanted: Callable[[], str]) -> None:
        """Wait until both parties serve a version of a model that both hold; nothing wanted is any version."""
        deadline = time.monotonic() + self._timeout_s
        while True:
            ready = self.parties.patiently("GET", f"/v2/models/{name}/ready")
            if wanted() in ("", *(answer.meta["version"] for answer in ready)) and _equal(ready):
                return
            if time.monotonic() > deadline:
                raise InputError(f"the parties still serve another version of {name}")
            time.sleep(LOAD_S)

    def model(self, name: str) -> RemoteModel:
        """A model shared or trained before."""
        return RemoteModel(self.parties, name)

    def models(self) -> list[dict[str, Any]]:
        """All models, as both parties know them."""
        zero, one = (
            {item["name"]: item for item in answer.meta["models"]} for answer in self.parties.ask("GET", "/v2/models")
        )
        return [_both(item, one.get(name, {})) for name, item in zero.items()]

    # ---- data sets

    def upload(
        self, x: Rows, y: ArrayLike | None = None, *, name: str, outputs: int = 1, loss: str | None = None
    ) -> None:
        """Split one owner's rows, and labels if it has them, between the parties, who keep them.

        `outputs` and `loss` are those of the network that will be trained: see `hdcos.cluster.cluster.Cluster.upload`.
        """
        upload(self.parties, x, y, name, outputs, loss)

    def allow_training(self, name: str, client: str) -> None:
        """Let another client train on a data set of yours. It can learn from the model what is in the data."""
        self.parties.ask("POST", "/v2/grants", {"dataset": check_name(name), "client": client})

    def forget_data(self, name: str) -> None:
        self.parties.ask("DELETE", f"/v2/datasets/{check_name(name)}")

    def datasets(self) -> list[dict[str, Any]]:
        """All data sets that party 0 holds a half of."""
        found: list[dict[str, Any]] = self.parties.ask("GET", "/v2/datasets")[0].meta["datasets"]
        return found

    # ---- training

    def fit(
        self,
        model: Sequential,
        x: Rows | str | Sequence[str],
        y: ArrayLike | None = None,
        *,
        epochs: int,
        batch_size: int,
        lr: Rate,
        loss: str = "logistic",
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        schedule: Callable[[int], float] | None = None,
        validation: tuple[Rows, ArrayLike] | None = None,
        watch: int = SAMPLE,
        seed: int | None = None,
        checkpoint_every: int = 100,
        progress: bool = True,
        name: str | None = None,
        wait: bool = True,
    ) -> RemoteModel | RemoteJob:
        """Train on shares; see `hdcos.cluster.fit.fit` for the arguments.

        The parties keep checkpoints by themselves and go on after a crash; nothing here needs to stay connected. While
        this caller waits, the parties show it the model of each epoch, and it sees how that does on rows of its own.
        """
        model = model.remembering(column_names(x))
        form = training_plan(model, loss)
        watched = None if validation is None else Watch.validation(model, loss, validation)
        batch, count = _whole(batch_size, "batch_size"), _whole(epochs, "epochs")
        rates = epoch_rates(model, loss, batch, lr, schedule, count, momentum, weight_decay)
        name, number = check_name(name or f"trained-{secrets.token_hex(4)}", "model name"), secrets.token_hex(16)
        named = named_sets(form, x, y)
        if named is None:
            own = own_rows(form, model, x, y, loss)
            watched = watched or Watch.sample(model, loss, own.rows, own.targets, watch)
            if batch > len(own.rows):
                raise InputError(f"a batch of {batch} rows cannot be drawn from {len(own.rows)}")
            self.upload(own.shared, own.targets, name=f"rows-{number}", outputs=form.outputs)
        names, join = named or ([f"rows-{number}"], "rows")
        spec = {
            **{"id": number, "model": name, "architecture": model.architecture(), "phase_bits": self.phase_bits},
            **{"datasets": names, "join": join, "loss": loss, "batch_size": batch},
            **{"rates": rates, "momentum": float(momentum), "weight_decay": float(weight_decay)},
            **{"seed": secrets.randbits(32) if seed is None else int(seed), "checkpoint_every": checkpoint_every},
            "publish": "epoch" if wait and watched is not None else "end",
        }
        self.parties.ask("POST", "/v2/jobs", {"parameters": spec}, halves(form.words(model)))
        job = RemoteJob(self, number)
        if not wait:
            return job
        try:
            Following(job, self, watched).run(progress)
            return job.result()
        except RangeError:  # it diverged: nothing will come of it
            job.cancel()
            with suppress(HdcosError):
                job.wait(self._timeout_s)
            raise
        finally:
            if named is None and job.state in ENDED:
                self.forget_data(names[0])

    def job(self, number: str) -> RemoteJob:
        """A job that was submitted before."""
        job = RemoteJob(self, check_id(number, "job id"))
        job._look()
        return job

    def jobs(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.parties.ask("GET", "/v2/jobs")[0].meta["jobs"]
        return found

    # ---- what it costs

    @property
    def cost(self) -> Cost:
        """Rounds, bytes and seconds of both parties since their start or the last reset, other clients' included."""
        now = [answer.meta for answer in self.parties.patiently("GET", "/v2/cost")]
        before = self._costs or [{}, {}]

        return Cost.of(
            [
                {
                    phase: {key: value - then.get(phase, {}).get(key, 0) for key, value in counts.items()}
                    for phase, counts in side.items()
                }
                for side, then in zip(now, before, strict=True)
            ]
        )

    def reset_cost(self) -> None:
        """Start counting anew."""
        self._costs = [answer.meta for answer in self.parties.patiently("GET", "/v2/cost")]


def connect(
    cluster: str | os.PathLike[str] | None = None,
    token: str | None = None,
    phase_bits: int | None = None,
    timeout_s: float = 30.0,
    *,
    exact: bool = False,
) -> RemoteCluster:
    """A cluster whose nodes run elsewhere; best used in a `with` block.

    `cluster` is the cluster file and `token` the client's secret that `hdcos token new` made; by default what the
    environment variables HDCOS_CLUSTER and HDCOS_TOKEN say. `phase_bits` is the precision of cosines of what is shared
    or trained here; with `exact` phases are opened unrounded.
    """
    cluster, token = cluster or os.environ.get("HDCOS_CLUSTER"), token or os.environ.get("HDCOS_TOKEN")
    if not cluster:
        raise DataMissing("which cluster? Name its cluster file, or set HDCOS_CLUSTER")
    if not token:
        raise DataMissing("a client needs its secret: pass token=..., or set HDCOS_TOKEN (`hdcos token new` makes one)")
    return RemoteCluster(cluster, token.strip(), chosen_bits(phase_bits, exact) or PHASE_BITS, timeout_s)


def _equal(answers: Sequence[Answer]) -> bool:
    return bool(answers[0].meta["version"] == answers[1].meta["version"])


def _whole(value: object, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise InputError(f"{what} is a whole number of at least 1, got {value!r}")
    return int(value)


def _both(zero: dict[str, Any], one: dict[str, Any]) -> dict[str, Any]:
    """A model as both parties know it: ready if it is at both, and as far used up as at the party that allows less."""
    fewest = min((zero, one or zero), key=lambda known: known["queries_allowed"] - known["queries"])
    return {
        **zero,
        "ready": zero["ready"] and one.get("version") == zero["version"],
        "queries": fewest["queries"],
        "queries_allowed": fewest["queries_allowed"],
        "error": zero["error"] or one.get("error", ""),
    }
