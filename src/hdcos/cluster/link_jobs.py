"""A run of training on a cluster of this machine, driven from here: shares of parameters go out, steps are asked for.

Parties that serve many clients have a scheduler for that (`hdcos.party`), and say the same of a job.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from hdcos.api.cost import counts_to_json
from hdcos.api.requests import Settings
from hdcos.cluster.transport import ENDED, ModelRecord, Shares, Status
from hdcos.errors import CheckpointMismatch, HdcosError, InputError
from hdcos.link import Count
from hdcos.nn import Sequential

if TYPE_CHECKING:
    from hdcos.cluster.link_transport import LinkTransport, Scope

SECONDS_AT_ONCE, MOST_AT_ONCE = 1.0, 200
"""Steps are asked for in pieces of about this long, and of so many at most."""
POLL_S = 0.1


@dataclass(frozen=True)
class Kept:
    """What two parties hold in a folder of checkpoints."""

    newest: dict[str, Any] | None
    """The newest checkpoint that both hold: step, run, attempt, seed. Shares of different attempts do not belong."""
    attempt: int


def find_checkpoints(links: LinkTransport, folder: str) -> Kept:
    (zero, _), (one, _) = links.ask({"operation": "checkpoints", "folder": folder})
    common = [record for record in zero["checkpoints"] if record in one["checkpoints"]]
    newest = max(common, key=lambda record: (record["attempt"], record["step"]), default=None)
    return Kept(newest, max(zero["attempt"], one["attempt"]))


class LinkJob:
    """One job. It goes on while somebody iterates over `run`."""

    def __init__(self, links: LinkTransport, spec: dict[str, Any], datasets: Sequence[str], shares: Shares) -> None:
        self._links, self._spec, self._datasets, self._shares = links, spec, datasets, shares
        self.state, self.step, self.total_steps, self._steps_per_epoch = "waiting", 0, 0, 1
        self._error = self._version = ""
        self._interim: dict[str, Any] = {"epoch": 0, "model": f"job-{spec['id'][:16]}", "version": ""}
        self._available: int | None = None
        self._epochs_s: list[list[float]] = []
        self._counts = [{"online": Count(), "offline": Count()} for _ in range(2)]
        self._cancelled = self._keep = False
        self._model = Sequential.outline(spec["architecture"])

    def cancel(self, keep: bool) -> None:
        self._cancelled, self._keep = True, keep

    def statuses(self) -> list[Status]:
        known = {
            **{"id": self._spec["id"], "model": self._spec["model"], "state": self.state, "error": self._error},
            **{"step": self.step, "total_steps": self.total_steps, "epoch": self.step // self._steps_per_epoch},
            **{"epochs": len(self._spec["rates"]), "version": self._version, "interim": dict(self._interim)},
            "available": self._available,
        }
        return [
            {**known, "report": {"cost": counts_to_json(counts), "ended": list(self._epochs_s)}}
            for counts in self._counts
        ]

    def run(self) -> Iterator[Status]:
        """Take all steps, piece by piece, and say after each how far it is."""
        if self.state != "waiting":  # somebody else has taken or takes the steps
            while self.state not in ENDED:
                yield self.statuses()[0]
                time.sleep(POLL_S)
            yield self.statuses()[0]
            return
        self.state = "running"
        try:
            with self._opened() as scope:
                yield from self._take_steps(scope)
                if self._keep or not self._cancelled:
                    self._version = self._publish(scope, self._spec["model"])
            self.state = "cancelled" if self._cancelled else "done"
        except HdcosError as error:
            self.state, self._error = "failed", f"{type(error).__name__}: {error}"
        finally:
            if self.state not in ENDED:
                self.state = "cancelled"  # whoever drove it has left
        yield self.statuses()[0]

    def _take_steps(self, scope: Scope) -> Iterator[Status]:
        """All steps that are left, in pieces of about a second."""
        rates, step_s, epoch_began = self._spec["rates"], 0.0, time.perf_counter()
        while self.step < self.total_steps and not (self._cancelled and step_s):
            epoch, done = divmod(self.step, self._steps_per_epoch)
            at_once = max(1, min(MOST_AT_ONCE, int(SECONDS_AT_ONCE / step_s))) if step_s else 2
            steps = min(at_once, self._steps_per_epoch - done)
            step_s = self._train(scope, steps, rates[epoch]) / steps
            ended = done + steps == self._steps_per_epoch
            if ended:
                self._epochs_s.append([epoch + 1, time.perf_counter() - epoch_began])
            if ended and self._spec["publish"] == "epoch" and self.step < self.total_steps and not self._cancelled:
                yield from self._show(scope, epoch + 1)
            else:
                yield self.statuses()[0]
            if ended:
                epoch_began = time.perf_counter()

    def _train(self, scope: Scope, steps: int, rate: float) -> float:
        """Take so many steps; returns the seconds they took."""
        answers = scope.ask("train", start=self.step, steps=steps, rate=float(rate))
        self.step += steps
        self._available = min(int(said["available"]) for said, _ in answers)
        for counts, (said, _) in zip(self._counts, answers, strict=True):
            counts["online"] += Count(**said["online"])
            counts["offline"] = Count(**said["offline"])
        seconds = float(min(said["seconds"] for said, _ in answers))
        self._links.online_s += seconds
        return seconds

    def _show(self, scope: Scope, epoch: int) -> Iterator[Status]:
        """Let the model of an epoch be looked at while training waits."""
        name = self._interim["model"]
        self._interim |= {"epoch": epoch, "version": self._publish(scope, name)}
        try:
            yield self.statuses()[0]
        except BaseException:  # whoever looked has left
            with suppress(HdcosError):
                self._links.delete_model(name)
            raise
        self._links.delete_model(name)

    def _publish(self, scope: Scope, name: str) -> str:
        """Make the parameters as they are now a model that can predict; training may go on."""
        version, bits = secrets.token_hex(16), self._spec["phase_bits"]
        record = ModelRecord(name, version, self._model.architecture(), bits)
        self._links.publish(record, scope)
        return version

    @contextmanager
    def _opened(self) -> Iterator[Scope]:
        """A run at both parties, which forget it afterwards however it ends."""
        scope = self._links.scope("training")
        self._open(scope)
        try:
            yield scope
        except BaseException:
            with suppress(HdcosError):
                scope.ask("close_training")
            raise
        scope.ask("close_training")

    def _open(self, scope: Scope) -> None:
        spec, attempt, number = self._spec, 1, self._spec["id"]
        folder, resume = spec["checkpoint"], None
        if folder:
            found = find_checkpoints(self._links, folder)
            attempt += found.attempt
            if spec["resume"]:
                if found.newest is None:
                    raise CheckpointMismatch(f"there is no checkpoint of one attempt that both hold in {folder}")
                resume, number = found.newest["step"], found.newest["run"]
                spec["seed"] = found.newest["seed"] if spec["seed"] is None else spec["seed"]
        asked = {"operation": "describe", "datasets": list(self._datasets), "join": spec["join"]}
        rows, batch = int(self._links.ask(asked)[0][0]["rows"]), spec["batch_size"]
        if batch > rows:
            raise InputError(f"a batch of {batch} rows cannot be drawn from {rows}")
        self._steps_per_epoch = rows // batch
        self.total_steps = self._steps_per_epoch * len(spec["rates"])
        settings = Settings(spec["loss"], batch, spec["seed"], self.total_steps, spec["momentum"], spec["weight_decay"])
        (planned, _), _ = scope.ask(
            "open_training",
            self._shares,
            architecture=spec["architecture"],
            datasets=list(self._datasets),
            join=spec["join"],
            settings=asdict(settings),
            rate=min(spec["rates"]),
            attempt=attempt,
            run=number,
            folder=folder,
            every=spec["checkpoint_every"],
            resume=resume,
        )
        self.step = resume or 0
        self._model = self._model.remembering(planned["columns"])
        self._shares = ({}, {})  # the parties have them
