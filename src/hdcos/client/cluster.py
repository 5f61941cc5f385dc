"""`hdcos.connect`: the interface of `hdcos.local()`, for a cluster that runs elsewhere."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hdcos.client.halves import halves
from hdcos.client.model import RemoteModel
from hdcos.client.names import check_id, check_name
from hdcos.client.parties import Parties
from hdcos.client.training import ENDED, RemoteJob, check_named, follow, public_front, upload
from hdcos.errors import DataMissing, InputError, ModelError
from hdcos.nn import Sequential
from hdcos.nn.columns import Rows, column_names
from hdcos.nn.private import layout
from hdcos.nn.private.planning import plan_inference
from hdcos.train import Rule, training_form
from hdcos.train.targets import Rate, held_out, learning_rate

LOAD_S = 0.1


@dataclass(frozen=True)
class Spent:
    """One phase. Pairs are [party 0, party 1]; offline, what the dealer sent to that party."""

    rounds: int
    bytes_sent: tuple[int, int]
    wire_bytes_sent: tuple[int, int]
    seconds: float


@dataclass(frozen=True)
class Cost:
    online: Spent
    offline: Spent


class RemoteCluster:
    """Two parties and their dealer, somewhere else."""

    def __init__(
        self, cluster: str | os.PathLike[str], secret: str, phase_bits: int = 16, timeout_s: float = 30.0
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

    def share(self, model: Sequential, name: str | None = None) -> RemoteModel:
        """Share a model: its weights are split here, and no party ever holds them. A name in use gets a new version."""
        if not isinstance(model, Sequential):
            raise ModelError(
                f"share takes an hdcos.nn.Sequential, got {type(model).__name__}: "
                f"hdcos.nn.from_torch(module) and hdcos.nn.load(path) make one"
            )
        chosen = layout(model, self.phase_bits)
        plan_inference(chosen)  # what cannot be planned is refused before anything is sent
        name = check_name(name or f"model-{secrets.token_hex(4)}", "model name")
        state, version = model.state(), secrets.token_hex(16)
        words = {tensor.name: tensor.words(state[tensor.name]) for tensor in chosen.tensors}
        known = {"architecture": model.architecture(), "phase_bits": self.phase_bits, "version": version}
        self.parties.ask("PUT", f"/v2/models/{name}", {"parameters": known}, halves(words))
        self._await_version(name, version)
        return self.model(name)

    def _await_version(self, name: str, version: str) -> None:
        deadline = time.monotonic() + self._timeout_s
        while True:
            ready = self.parties.patiently("GET", f"/v2/models/{name}/ready")
            if all(answer.meta["version"] == version for answer in ready):
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
        return [
            {**item, "ready": item["ready"] and one.get(name, {}).get("version") == item["version"]}
            for name, item in zero.items()
        ]

    # ---- data sets

    def upload(self, x: Rows, y: ArrayLike | None = None, *, name: str, outputs: int = 1) -> None:
        """Split one owner's rows, and labels if it has them, between the parties, who keep them."""
        upload(self.parties, x, y, name, outputs)

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
        seed: int | None = None,
        checkpoint_every: int = 100,
        progress: bool = True,
        name: str | None = None,
        wait: bool = True,
    ) -> RemoteModel | RemoteJob:
        """Train on shares; see `hdcos.serve.fit.fit` for the arguments.

        The parties keep checkpoints by themselves and go on after a crash; nothing here needs to stay connected. With
        `validation` the parties publish the model after each epoch, and this caller sees how it does on its own rows.
        """
        model = model.remembering(column_names(x))
        form = training_form(model, loss)
        held = None if validation is None else held_out(model, form.outputs, validation)
        rates = [learning_rate(lr, schedule, epoch) for epoch in range(_whole(epochs, "epochs"))]
        for rate in set(rates):
            Rule(rate, momentum, weight_decay)
        name, number = check_name(name or f"trained-{secrets.token_hex(4)}", "model name"), secrets.token_hex(16)
        names, join, own = self._uploaded(model, x, y, loss, number)
        spec = {
            **{"id": number, "model": name, "architecture": model.architecture(), "phase_bits": self.phase_bits},
            **{"datasets": names, "join": join, "loss": loss, "batch_size": _whole(batch_size, "batch_size")},
            **{"rates": rates, "momentum": float(momentum), "weight_decay": float(weight_decay)},
            **{"seed": secrets.randbits(32) if seed is None else int(seed), "checkpoint_every": checkpoint_every},
            "publish": "end" if held is None else "epoch",
        }
        self.parties.ask("POST", "/v2/jobs", {"parameters": spec}, halves(form.words(model)))
        job = RemoteJob(self, number)
        if not wait:
            return job
        try:
            follow(job, name, held, loss, progress)
            return job.result()
        finally:
            if own and job.state in ENDED:
                self.forget_data(names[0])

    def _uploaded(
        self, model: Sequential, x: Rows | str | Sequence[str], y: ArrayLike | None, loss: str, number: str
    ) -> tuple[list[str], str, bool]:
        """The names of the data sets, how they are joined, and whether this call made them."""
        form = training_form(model, loss)
        if isinstance(x, str):
            x = [x]
        if isinstance(x, list | tuple) and x and all(isinstance(item, str) for item in x):
            if y is not None:
                raise InputError("labels of uploaded data sets were uploaded with them: leave y out")
            check_named(form)
            return [str(item) for item in x], "columns" if isinstance(x, tuple) else "rows", False
        if y is None:
            raise InputError("rows need labels: fit(model, x, y, ...)")
        rows: Any = x
        self.upload(public_front(form, model, rows, y, loss), y, name=f"rows-{number}", outputs=form.outputs)
        return [f"rows-{number}"], "rows", True

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

        def spent(phase: str, sent: str) -> Spent:
            sides = [
                {key: value - then.get(phase, {}).get(key, 0) for key, value in side[phase].items()}
                for side, then in zip(now, before, strict=True)
            ]
            return Spent(
                max(side["rounds"] for side in sides),
                (sides[0][f"bytes_{sent}"], sides[1][f"bytes_{sent}"]),
                (sides[0][f"wire_bytes_{sent}"], sides[1][f"wire_bytes_{sent}"]),
                max(side["seconds"] for side in sides),
            )

        return Cost(spent("online", "sent"), spent("offline", "received"))

    def reset_cost(self) -> None:
        """Start counting anew."""
        self._costs = [answer.meta for answer in self.parties.patiently("GET", "/v2/cost")]


def connect(
    cluster: str | os.PathLike[str] | None = None,
    token: str | None = None,
    phase_bits: int = 16,
    timeout_s: float = 30.0,
) -> RemoteCluster:
    """A cluster whose nodes run elsewhere; best used in a `with` block.

    `cluster` is the cluster file and `token` the client's secret that `hdcos token new` made; by default what the
    environment variables HDCOS_CLUSTER and HDCOS_TOKEN say.
    """
    cluster, token = cluster or os.environ.get("HDCOS_CLUSTER"), token or os.environ.get("HDCOS_TOKEN")
    if not cluster:
        raise DataMissing("which cluster? Name its cluster file, or set HDCOS_CLUSTER")
    if not token:
        raise DataMissing("a client needs its secret: pass token=..., or set HDCOS_TOKEN (`hdcos token new` makes one)")
    return RemoteCluster(cluster, token.strip(), phase_bits, timeout_s)


def _whole(value: object, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise InputError(f"{what} is a whole number of at least 1, got {value!r}")
    return int(value)
