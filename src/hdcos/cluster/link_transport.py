"""Two parties of a cluster on this machine, asked over a link to each.

Executions of a model (its rows) or of a function are numbered here. A run that failed may have burnt its executions at
one party, at both or at none; the next run starts behind the later of the two. A local cluster has one client and ends
with it, so this side also remembers what there is: names, versions, data sets and jobs.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock, RLock
from typing import Any

from hdcos.cluster.link_jobs import LinkJob
from hdcos.cluster.transport import OVER, Masks, ModelRecord, Reply, RetryableError, Shares, Status
from hdcos.errors import DataMissing, HdcosError, InputError, MaterialReused, PeerLost, PolicyRefused
from hdcos.link import Link
from hdcos.link.message import request
from hdcos.protocol.catalogue import Call
from hdcos.ring import Array

GRACE_S = 2.0
Answers = list[tuple[dict[str, Any], dict[str, Array]]]


class Scope:
    """Something that both parties have open and that can be run again and again: its executions and their material."""

    def __init__(self, links: LinkTransport, label: str) -> None:
        self._links = links
        self.name = f"{label} {secrets.token_hex(16)}"
        self.next = self.issued = 0
        """The first execution that was not run, and the first whose input mask was not handed out."""
        self._expected = 0
        """Executions that material was ordered for when the parties last said so."""
        self._lock = RLock()

    def ask(self, operation: str, arrays: Shares = ({}, {}), **meta: Any) -> Answers:
        return self._links.ask({"operation": operation, "scope": self.name, **meta}, arrays)

    def prepare(self, executions: int, wait: bool) -> None:
        self.ask("prepare", executions=executions, wait=wait)

    def stock(self) -> int:
        return min(int(meta["available"]) for meta, _ in self.ask("stock"))

    def close(self) -> None:
        self.ask("close")

    def order(self, last: int) -> None:
        """See that material was ordered for all executions before `last`."""
        if last <= self._expected:
            return
        with self._lock:
            self._expected = min(int(meta["expected"]) for meta, _ in self.ask("stock"))
            if last > self._expected:
                self.prepare(last - self._expected, wait=False)
                self._expected = last

    def masks(self, rows: int) -> Masks:
        """Input masks of the rows behind those whose masks were handed out."""
        with self._lock:
            start = max(self.next, self.issued)
            (_, zero), (_, one) = self.ask("masks", start=start, rows=rows)
            self.issued = start + rows
        return Masks(range(start, start + rows), (zero["masks"], one["masks"]))

    def run(self, inputs: Shares, executions: int, start: int | None = None, mode: str = "") -> list[Reply]:
        """Run executions that begin at `start`, or the next ones.

        Rows whose masks were handed out cannot come as shares: they are passed over.
        """
        with self._lock:
            first = max(self.next, self.issued) if start is None else start
            if mode:  # rows of a model: what was not prepared is made on the way
                self.order(first + executions)
            try:
                answers = self.ask("run", inputs, start=first, executions=executions, mode=mode or "shares")
            except HdcosError:
                with suppress(PeerLost):
                    self.next = max(int(said["used"]) for said, _ in self.ask("stock"))
                raise
            self.next = first + executions
        # The online phase starts when both parties hold the input: the party that started last saw all of it.
        self._links.online_s += min(said["seconds"] for said, _ in answers)
        return [Reply(shares["words"], said["scale"], said["bits"]) for said, shares in answers]


@dataclass
class Held:
    """A version of a model that both parties have open."""

    record: ModelRecord
    scope: Scope
    rows: int = 0
    """Rows that were answered."""


class LinkTransport:
    """Carries a caller's requests over links, both parties at once."""

    keeps_checkpoints = False

    def __init__(
        self,
        links: Sequence[Link],
        has_dealer: bool,
        timeout_s: float,
        explain: Callable[[PeerLost], PeerLost],
    ) -> None:
        self.links, self.has_dealer, self.timeout_s, self._explain = links, has_dealer, timeout_s, explain
        self.online_s = 0.0
        self._held: dict[str, Held] = {}
        self._datasets: dict[str, dict[str, Any]] = {}
        self._jobs: dict[str, LinkJob] = {}
        self._lock = Lock()
        self._ended = False
        self._callers = ThreadPoolExecutor(len(links), thread_name_prefix="caller")

    # ---- requests

    def ask(self, meta: Mapping[str, Any], arrays: Shares = ({}, {})) -> Answers:
        """One request to both parties at once. If both fail, the error that explains more is raised."""
        with self._lock:  # replies are told apart by their order alone
            self._require_open()
            return self._ask_both(meta, arrays)

    def _require_open(self) -> None:
        if self._ended:
            raise PeerLost(OVER)

    def _ask_both(self, meta: Mapping[str, Any], arrays: Shares) -> Answers:
        calls = []
        try:
            for link, part in zip(self.links, arrays, strict=True):
                calls.append(self._callers.submit(request, link, meta, part))
            done, _ = wait(calls, return_when=FIRST_EXCEPTION)
            if len(done) < len(calls):
                # One party failed. The other gives up by itself within its timeout, unless it is lost as well.
                done, hanging = wait(calls, self.timeout_s + GRACE_S)
                for call in hanging:
                    self.links[calls.index(call)].cancel()
        except BaseException:
            # Interrupted: the answers still to come would be taken for answers to the next question.
            for link in self.links:
                link.cancel()
            raise
        first = [call for call in calls if call in done] + [call for call in calls if call not in done]
        failures = [error for call in first if (error := call.exception()) is not None]
        if failures:
            worst = min(failures, key=lambda error: isinstance(error, PeerLost))
            raise self._explain(worst) if isinstance(worst, PeerLost) else worst
        return [call.result() for call in calls]

    # ---- models

    def keep_model(self, record: ModelRecord, shares: Shares) -> None:
        scope = Scope(self, f"model {record.name}")
        scope.ask("share_model", shares, architecture=record.architecture, phase_bits=record.phase_bits)
        self._hold(record, scope)

    def scope(self, label: str) -> Scope:
        return Scope(self, label)

    def publish(self, record: ModelRecord, training: Scope) -> None:
        """Make the parameters of a run, as they are now, a model; the run may go on."""
        scope = Scope(self, f"model {record.name}")
        known: dict[str, Any] = {"architecture": record.architecture, "phase_bits": record.phase_bits}
        scope.ask("finish_training", training=training.name, **known)
        self._hold(record, scope)

    def _hold(self, record: ModelRecord, scope: Scope) -> None:
        """Serve a version of a model from now on; an older one of that name is forgotten."""
        older = self._held.get(record.name)
        self._held[record.name] = Held(record, scope)
        if older is not None:
            older.scope.close()

    def model(self, name: str, wanted: Callable[[], str] = str) -> ModelRecord:
        return self._found(name).record

    def _found(self, name: str) -> Held:
        self._require_open()
        if name not in self._held:
            raise DataMissing(f"no model is named {name!r}; there are {sorted(self._held)}")
        return self._held[name]

    def _current(self, record: ModelRecord) -> Held:
        held = self._found(record.name)
        if held.record.version != record.version:
            raise RetryableError(InputError(f"{record.name} has another version now: ask for it again"))
        return held

    def models(self) -> list[dict[str, Any]]:
        """All models. Nobody else asks a cluster on this machine: how many rows it answers is not limited."""
        self._require_open()
        return [
            {
                "name": name,
                "version": held.record.version,
                "ready": True,
                "queries": held.rows,
                "queries_allowed": sys.maxsize,
                "error": "",
            }
            for name, held in sorted(self._held.items())
        ]

    def delete_model(self, name: str) -> None:
        self._found(name).scope.close()
        del self._held[name]

    def order(self, record: ModelRecord, rows: int) -> None:
        scope = self._current(record).scope
        scope.order(scope.next + rows)

    def prepare(self, record: ModelRecord, rows: int, wait: bool) -> None:
        self._current(record).scope.prepare(rows, wait)

    def keep_ahead(self, record: ModelRecord, rows: int) -> None:
        self._current(record).scope.ask("keep_ahead", executions=rows)

    def masks(self, record: ModelRecord, rows: int) -> Masks:
        return self._current(record).scope.masks(rows)

    def infer(self, record: ModelRecord, inputs: Shares, mask_ids: Sequence[Any] | None) -> list[Reply]:
        held, rows = self._current(record), len(inputs[0]["input"])
        if mask_ids is None:
            replies = held.scope.run(inputs, rows, mode="shares")
        else:
            start = int(mask_ids[0])
            if list(mask_ids) != list(range(start, start + rows)):
                raise MaterialReused("masks of rows that do not follow one another: some were passed over")
            replies = held.scope.run(inputs, rows, start, mode="masked")
        held.rows += rows
        return replies

    def stock(self, record: ModelRecord) -> int:
        return self._current(record).scope.stock()

    def reveal(self, record: ModelRecord, number: str, asked_before: bool, wait_s: float) -> Shares:
        return [shares for _, shares in self._current(record).scope.ask("reveal", token=number)]

    # ---- data sets

    def upload(self, name: str, version: str, record: Mapping[str, Any], shares: Shares) -> None:
        self.ask({"operation": "upload", "name": f"{name} {version}", **record}, shares)
        older = self._datasets.get(name)
        size = 8 * record["rows"] * (record["features"] + record["outputs"])
        known = {"columns": None, **record, "complete": True, "bytes": size, "received": size}
        self._datasets[name] = {"name": name, "version": version, **known}
        if older is not None:
            self._forget(older)

    def datasets(self) -> list[dict[str, Any]]:
        self._require_open()
        return list(self._datasets.values())

    def forget_data(self, name: str) -> None:
        if name not in self._datasets:
            raise DataMissing(f"no data set is named {name!r}")
        self._forget(self._datasets.pop(name))

    def _forget(self, known: Mapping[str, Any]) -> None:
        self.ask({"operation": "forget_data", "name": f"{known['name']} {known['version']}"})

    def allow_training(self, name: str, client: str) -> None:
        if name not in self._datasets:
            raise DataMissing(f"no data set is named {name!r}")
        raise PolicyRefused(f"a cluster on this machine has one client: there is no {client!r} who could train")

    # ---- jobs

    def submit(self, spec: dict[str, Any], shares: Shares) -> None:
        if missing := [name for name in spec["datasets"] if name not in self._datasets]:
            raise InputError(f"no data set is called {missing}; there are {sorted(self._datasets)}")
        names = [f"{name} {self._datasets[name]['version']}" for name in spec["datasets"]]
        self._jobs[spec["id"]] = LinkJob(self, spec, names, shares)

    def _job(self, number: str) -> LinkJob:
        if number not in self._jobs:
            raise DataMissing(f"no job has the id {number}")
        return self._jobs[number]

    def job(self, number: str) -> list[Status]:
        return self._job(number).statuses()

    def jobs(self) -> list[Status]:
        return [job.statuses()[0] for job in self._jobs.values()]

    def events(self, number: str) -> Iterator[Status]:
        """Nobody else drives a job here: whoever follows it has its steps taken."""
        return self._job(number).run()

    def looked(self, number: str, epoch: int) -> None:
        """Training goes on when the next event is asked for."""

    def cancel(self, number: str, keep: bool) -> None:
        self._job(number).cancel(keep)

    # ---- the rest

    def function(self, call: Call, shapes: Sequence[tuple[int, ...]], scale: int, ahead: int) -> Scope:
        scope = Scope(self, call.function)
        known: dict[str, Any] = {"function": call.function, "parameters": dict(call.parameters), "shapes": shapes}
        scope.ask("open", **known, scales=[scale] * len(shapes), ahead=ahead)
        return scope

    def counts(self) -> list[dict[str, Any]]:
        sides = [meta for meta, _ in self.ask({"operation": "cost"})]
        return [
            {
                "online": {**side["online"], "seconds": self.online_s},
                "offline": side["offline"],
                "steps": side["steps"],
            }
            for side in sides
        ]

    def round_trip_s(self, rounds: int) -> float:
        return float(max(meta["seconds"] for meta, _ in self.ask({"operation": "ping", "rounds": rounds})))

    def shutdown(self) -> None:
        """Ask both parties to end in good order."""
        self.ask({"operation": "shutdown"})
        self.close()

    def close(self) -> None:
        """Refuse whatever is asked from now on."""
        self._ended = True
