"""A run of training from the caller's side: shares of parameters go out, steps are asked for, a model comes back."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from hdcos.api.settings import Settings
from hdcos.cluster.model import PrivateModel
from hdcos.cluster.opened import Opened, halves
from hdcos.errors import CheckpointMismatch, InputError
from hdcos.nn import Sequential
from hdcos.secure import layout
from hdcos.secure.training import Rule, training_plan

if TYPE_CHECKING:
    from hdcos.cluster.cluster import Cluster


@dataclass(frozen=True)
class Saving:
    """Where the parties keep checkpoints, how often, and which one to go on from."""

    folder: str = ""
    every: int = 100
    resume: bool = False


@dataclass(frozen=True)
class Kept:
    """What two parties hold in a folder of checkpoints."""

    newest: dict[str, Any] | None
    """The newest checkpoint that both hold: step, run, attempt and seed. Halves of different attempts do not belong."""
    attempt: int


def kept(cluster: Cluster, folder: str) -> Kept:
    (zero, _), (one, _) = cluster.ask({"operation": "checkpoints", "folder": folder})
    common = [record for record in zero["checkpoints"] if record in one["checkpoints"]]
    newest = max(common, key=lambda record: (record["attempt"], record["step"]), default=None)
    return Kept(newest, max(zero["attempt"], one["attempt"]))


class PrivateTraining(Opened):
    """A run of training on uploaded data. Batches are drawn by public indices; everything else stays shared."""

    def __init__(
        self,
        cluster: Cluster,
        model: Sequential,
        datasets: Sequence[str],
        join: str,
        settings: Settings,
        rate: float,
        saving: Saving | None = None,
    ) -> None:
        super().__init__(cluster, "training")
        saving = saving or Saving()
        form = training_plan(model, settings.loss)
        Rule(rate, settings.momentum, settings.decay)  # refuses bad numbers before anything is sent
        self._model, self.settings = model, settings
        self.step, attempt, run = 0, 1, secrets.token_hex(16)
        if saving.folder:
            found = kept(cluster, saving.folder)
            attempt += found.attempt
            if saving.resume:
                if found.newest is None:
                    raise CheckpointMismatch(
                        f"there is no checkpoint of one attempt that both parties hold in {saving.folder}"
                    )
                self.step, run = found.newest["step"], found.newest["run"]
        words = form.words(model)
        (planned, _), _ = self._ask(
            "open_training",
            halves(words),
            architecture=model.architecture(),
            datasets=list(datasets),
            join=join,
            settings=asdict(settings),
            rate=rate,
            attempt=attempt,
            run=run,
            folder=saving.folder,
            every=saving.every,
            resume=self.step if saving.resume else None,
        )
        self.rounds_per_step, self.bytes_per_step = planned["rounds"], planned["online_bytes"]
        self.rows = int(planned["rows"])
        self._model = model.remembering(planned["columns"])
        self.available = 0
        """Steps that material was in stock for when the parties last answered."""

    @property
    def steps_per_epoch(self) -> int:
        return self.rows // self.settings.batch

    def steps(self, count: int, rate: float) -> float:
        """Take so many steps; returns the seconds they took."""
        Rule(rate)
        if count < 1 or self.step + count > self.settings.total_steps:
            raise InputError(f"{count} steps after {self.step} are not within the {self.settings.total_steps} planned")
        (zero, _), (one, _) = self._ask("train", start=self.step, steps=count, rate=float(rate))
        self.step += count
        self.available = min(zero["available"], one["available"])
        seconds = float(min(zero["seconds"], one["seconds"]))
        self._cluster.online_s += seconds
        return seconds

    def model(self, name: str) -> PrivateModel:
        """The parameters as they are now, as a model that can predict. Training may go on."""
        chosen = layout(self._model, self._cluster.phase_bits, self._cluster.has_dealer)
        private = PrivateModel(self._cluster, name, self._model, chosen)
        private._ask(
            "finish_training",
            training=self._scope,
            architecture=self._model.architecture(),
            phase_bits=self._cluster.phase_bits,
            ahead=0,
        )
        return private

    def close(self) -> None:
        """Forget the run; models made of it stay."""
        self._ask("close_training")
