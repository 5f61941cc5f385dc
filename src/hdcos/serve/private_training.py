"""A run of training from the caller's side: shares of parameters go out, steps are asked for, a model comes back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from hdcos.errors import CheckpointMismatch, InputError
from hdcos.nn import Sequential
from hdcos.nn.private import layout
from hdcos.serve.model import PrivateModel
from hdcos.serve.opened import Opened, halves
from hdcos.serve.training import Settings
from hdcos.train import Rule, training_form

if TYPE_CHECKING:
    from hdcos.serve.cluster import Cluster


@dataclass(frozen=True)
class Saving:
    """Where the parties keep checkpoints, how often, and which one to go on from."""

    folder: str = ""
    every: int = 100
    resume: bool = False


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
        form = training_form(model, settings.loss)
        Rule(rate, settings.momentum, settings.decay)  # refuses bad numbers before anything is sent
        self._model, self.settings = model, settings
        self.step, attempt = 0, 1
        if saving.folder:
            found = self._cluster.ask({"operation": "checkpoints", "folder": saving.folder})
            attempt += max(int(meta["attempt"]) for meta, _ in found)
            if saving.resume:
                self.step = self._newest([meta for meta, _ in found], saving.folder)
        state = model.state()
        words = {tensor.name: tensor.words(state[tensor.name]) for tensor in form.tensors}
        (planned, _), _ = self._ask(
            "open_training",
            halves(words),
            architecture=model.architecture(),
            datasets=list(datasets),
            join=join,
            settings=asdict(settings),
            rate=rate,
            attempt=attempt,
            folder=saving.folder,
            every=saving.every,
            resume=self.step if saving.resume else None,
        )
        self.rounds_per_step, self.bytes_per_step = planned["rounds"], planned["online_bytes"]
        self.offline_bytes_per_step = planned["offline_bytes"]
        self.rows = int(planned["rows"])
        self.available = 0
        """Steps that material was in stock for when the parties last answered."""

    @staticmethod
    def _newest(found: Sequence[dict[str, Any]], folder: str) -> int:
        """The newest checkpoint that both parties hold."""
        common = set(found[0]["steps"]) & set(found[1]["steps"])
        if not common:
            raise CheckpointMismatch(f"the two parties hold no checkpoint of the same step in {folder}")
        return int(max(common))

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
        chosen = layout(self._model, self._cluster.phase_bits)
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
