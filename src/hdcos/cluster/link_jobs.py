"""A run of training on a cluster of this machine, driven from here: shares of parameters go out, steps are asked for.

Parties that serve many clients have a scheduler for that (`hdcos.party`), which issues the same commands.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hdcos.api.commands import CloseJob, FindCheckpoints, KeepBest, KeepJob, OpenJob, Publish, Steps
from hdcos.api.cost import add_side_by_side, counts_to_json
from hdcos.cluster.transport import ENDED, ModelRecord, Shares, Status
from hdcos.errors import CheckpointMismatch, HdcosError
from hdcos.link import Count
from hdcos.nn import Network
from hdcos.nn.prepared import read_prepared

if TYPE_CHECKING:
    from hdcos.cluster.link_transport import LinkTransport

SECONDS_AT_ONCE, MOST_AT_ONCE = 1.0, 200
"""Steps are asked for in pieces of about this long, and of this many at most."""
POLL_S = 0.1


@dataclass(frozen=True)
class Kept:
    """What two parties hold in a folder of checkpoints."""

    newest: dict[str, Any] | None
    """The newest checkpoint that both hold: step, run, attempt, seed. Shares of different attempts do not belong."""
    attempt: int


def find_checkpoints(links: LinkTransport, folder: str) -> Kept:
    (zero, _), (one, _) = links.pairs[links.living()[0]].ask(FindCheckpoints(folder))
    common = [record for record in zero["checkpoints"] if record in one["checkpoints"]]
    newest = max(common, key=lambda record: (record["attempt"], record["step"]), default=None)
    return Kept(newest, max(zero["attempt"], one["attempt"]))


class LinkJob:
    """One job. It goes on while somebody iterates over `run`."""

    def __init__(
        self, links: LinkTransport, spec: dict[str, Any], datasets: Sequence[Sequence[str]], shares: Shares
    ) -> None:
        self._links, self._spec, self._datasets, self._shares = links, spec, datasets, shares
        self.id: str = spec["id"]
        self.state, self.step, self.total_steps, self._steps_per_epoch = "waiting", 0, 0, 1
        self._error = self._version = ""
        self._interim: dict[str, Any] = {"epoch": 0, "model": f"job-{self.id}", "version": ""}
        self._available: int | None = None
        self._reports: list[dict[str, Any]]
        self._reports = [{"cost": counts_to_json({"online": Count(), "offline": Count()}), "ended": [], "best": 0}] * 2
        self._cancelled = self._keep = self._preferred = self._enough = False
        self._best = 0
        self._model = Network.outline(spec["architecture"])
        self._last_version = secrets.token_hex(16)
        self._last_name = f"{spec['model']} {self._last_version}"
        """What the parties call the model that the job ends with."""

    def cancel(self, keep: bool) -> None:
        self._cancelled, self._keep = True, keep

    def judge(self, best: bool, stop: bool) -> None:
        """What the caller thinks of the epoch that it has looked at."""
        self._preferred, self._enough = best, stop

    def statuses(self) -> list[Status]:
        known = {
            **{"id": self.id, "model": self._spec["model"], "state": self.state, "error": self._error},
            **{"step": self.step, "total_steps": self.total_steps, "epoch": self.step // self._steps_per_epoch},
            **{"epochs": len(self._spec["rates"]), "version": self._version, "interim": dict(self._interim)},
            "available": self._available,
        }
        return [{**known, "report": report} for report in self._reports]

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
            self._open()
            yield from self._take_steps()
            if self._keep or not self._cancelled:
                self._version = self._publish(interim=False)
            self._close("cancelled" if self._cancelled else "done")
        except HdcosError as error:
            self._error = f"{type(error).__name__}: {error}"
            self._close("failed")
        finally:
            if self.state not in ENDED:
                self._close("cancelled")  # the caller that drove it has left
        yield self.statuses()[0]

    def _close(self, state: str) -> None:
        """Have both parties forget the run; a failure says how it ended already, or is told by whatever comes next."""
        with suppress(HdcosError):
            self._links.ask(CloseJob(self.id, state, self._error))
        self.state = state

    def _take_steps(self) -> Iterator[Status]:
        """All steps that are left, in pieces of about a second."""
        rates, step_s = self._spec["rates"], 0.0
        while self.step < self.total_steps and not self._enough and not (self._cancelled and step_s):
            epoch, done = divmod(self.step, self._steps_per_epoch)
            at_once = max(1, min(MOST_AT_ONCE, int(SECONDS_AT_ONCE / step_s))) if step_s else 2
            steps = min(at_once, self._steps_per_epoch - done)
            step_s = self._train(steps, rates[epoch]) / steps
            ended = done + steps == self._steps_per_epoch
            publish = self._spec["publish"]
            shown = publish == "best" or (publish == "epoch" and self.step < self.total_steps)
            if ended and shown and not self._cancelled:
                yield from self._show(epoch + 1)
            else:
                yield self.statuses()[0]

    def _train(self, steps: int, rate: float) -> float:
        """Take steps; returns the seconds they took."""
        answers = [facts for facts, _ in self._links.ask(Steps(self.id, self.step, steps, float(rate)))]
        self.step += steps
        self._available = min(int(facts["available"]) for facts in answers)
        self._reports = [
            {
                "cost": add_side_by_side([facts["report"]["cost"] for facts in side]),
                "ended": side[0]["report"]["ended"],
                "best": self._best,
            }
            for side in (answers[0::2], answers[1::2])
        ]
        seconds = float(min(facts["seconds"] for facts in answers))
        self._links.online_s += seconds
        return seconds

    def _show(self, epoch: int) -> Iterator[Status]:
        """Let the model of an epoch be looked at while training waits."""
        self._interim |= {"epoch": epoch, "version": self._publish(interim=True)}
        try:
            yield self.statuses()[0]
        finally:
            with suppress(HdcosError):
                self._links.delete_model(self._interim["model"])
        if self._preferred:
            self._links.ask(KeepBest(self.id, epoch))
            self._best, self._preferred = epoch, False
            self._reports = [{**report, "best": epoch} for report in self._reports]

    def _publish(self, interim: bool) -> str:
        """Make the parameters as they are now a model that can predict; training may go on."""
        version = secrets.token_hex(16) if interim else self._last_version
        name = self._interim["model"] if interim else self._spec["model"]
        record = ModelRecord(name, version, self._model.architecture(), self._spec["phase_bits"])
        publish = Publish(self.id, version, f"job {self.id} {version}", interim, together=True)
        self._links.serve(record, name if interim else self._last_name, publish)
        return version

    def _open(self) -> None:
        spec, attempt = self._spec, 1
        folder, resume = spec["checkpoint"], None
        if folder:
            found = find_checkpoints(self._links, folder)
            attempt += found.attempt
            if spec["resume"]:
                if found.newest is None:
                    raise CheckpointMismatch(f"there is no checkpoint of one attempt that both hold in {folder}")
                resume = found.newest["step"]
                spec["seed"] = found.newest["seed"] if spec["seed"] is None else spec["seed"]
        kept = KeepJob(self.id, {**spec, "model": self._last_name})
        scope = f"training {secrets.token_hex(16)}"
        datasets, pairs = [list(item) for item in self._datasets], self._links.living()
        opened = OpenJob(self.id, scope, datasets, attempt, resume, pairs if len(pairs) > 1 else [])
        facts, _ = self._links.ask(kept, opened, arrays=self._shares)[0]
        self.total_steps, self._steps_per_epoch = facts["total_steps"], facts["steps_per_epoch"]
        self.step = resume or 0
        self._model = self._model.remembering(facts["columns"]).with_prepared(read_prepared(facts["prepared"]))
        self._shares = ({}, {})  # the parties have them
