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
from threading import Lock, RLock
from typing import Any

from hdcos.api import commands
from hdcos.api.commands import Command, write_command
from hdcos.cluster.link_jobs import LinkJob
from hdcos.cluster.transport import OVER, Masks, ModelRecord, Reply, RetryableError, Shares, Status
from hdcos.errors import DataMissing, HdcosError, InputError, MaterialReused, PeerLost, PolicyRefused
from hdcos.link import Link
from hdcos.link.message import request
from hdcos.protocol.catalogue import Call
from hdcos.ring import Array

GRACE_S = 2.0
NOTHING: Shares = ({}, {})
Answers = list[tuple[dict[str, Any], dict[str, Array]]]


class Scope:
    """A model or a function that both parties have open; its executions are numbered here."""

    def __init__(self, links: LinkTransport, name: str, refills: bool) -> None:
        self._links, self.name = links, name
        self._refills = refills
        """Whether material that was not prepared is made on the way."""
        self.next = self.issued = 0
        """The first execution that was not run, and the first whose input mask was not handed out."""
        self._ordered = self._ahead = 0
        """Executions that material was ordered for in all, and those that it is kept available for."""
        self._lock = RLock()

    def prepare(self, executions: int, wait: bool) -> None:
        with self._lock:
            self._order(self._ordered + executions, wait)

    def order(self, last: int) -> None:
        """See that material was ordered for all executions before `last`."""
        with self._lock:
            if last > self._ordered:
                self._order(last, wait=False)

    def _order(self, ordered: int, wait: bool) -> None:
        self._links.ask(commands.Order(self.name, "shares", ordered, wait))
        self._ordered = ordered

    def keep_ahead(self, executions: int) -> None:
        with self._lock:
            self._ahead, self._refills = executions, True
            self.order(self.next + executions)

    def count(self) -> list[dict[str, Any]]:
        """What each party has used, has available and expects."""
        return [facts for facts, _ in self._links.ask(commands.CountMaterial(self.name))]

    def stock(self) -> int:
        return min(int(facts["available"]) for facts in self.count())

    def close(self) -> None:
        self._links.ask(commands.Unload(self.name))

    def masks(self, rows: int) -> Masks:
        """Input masks of the rows behind those whose masks were handed out."""
        with self._lock:
            start = max(self.next, self.issued)
            (_, zero), (_, one) = self._links.ask(commands.IssueMasks(self.name, start, rows))
            self.issued = start + rows
        return Masks(range(start, start + rows), (zero["masks"], one["masks"]))

    def run(self, inputs: Shares, executions: int, start: int | None = None, mode: str = "shares") -> list[Reply]:
        """Run executions that begin at `start`, or the next ones.

        Rows whose masks were handed out cannot come as shares: they are passed over.
        """
        with self._lock:
            first = max(self.next, self.issued) if start is None else start
            wanted = first + executions + self._ahead if self._refills else 0
            ordered = max(self._ordered, wanted)
            try:
                answers = self._links.ask(commands.Infer(self.name, mode, [str(first)], first, ordered), arrays=inputs)
            except HdcosError:
                with suppress(PeerLost):
                    counts = self.count()
                    self.next = max(int(facts["used"]) for facts in counts)
                    self._ordered = max(int(facts["expected"]) for facts in counts)
                raise
            self.next, self._ordered = first + executions, ordered
        # The online phase starts when both parties hold the input: the party that started last saw all of it.
        self._links.online_s += min(said["seconds"] for said, _ in answers)
        return [Reply(shares["words"], said["scale"], said["bits"]) for said, shares in answers]


class Held(Scope):
    """A version of a model that both parties have open."""

    def __init__(self, links: LinkTransport, name: str, record: ModelRecord) -> None:
        super().__init__(links, name, refills=True)
        self.record, self.rows = record, 0
        """What the caller knows of it, and rows that were answered."""


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

    def ask(self, *asked: Command, arrays: Shares = NOTHING) -> Answers:
        """Commands, one after another, to both parties at once. If both fail, the error that says more is raised."""
        with self._lock:  # replies are told apart by their order alone
            self._require_open()
            return self._ask_both({"commands": [write_command(command) for command in asked]}, arrays)

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
        name = f"{record.name} {record.version}"
        kept = commands.KeepModel(name, record.version, record.architecture, record.phase_bits)
        self.serve(record, name, kept, shares)

    def serve(self, record: ModelRecord, name: str, brought_by: Command, shares: Shares = NOTHING) -> None:
        """Serve a version of a model from now on; an older one of that name is forgotten.

        Parties know versions by different names: rows meant for one never meet another.
        """
        held, older = Held(self, name, record), self._held.get(record.name)
        load = commands.Load(name, record.version, f"model {name} {secrets.token_hex(16)}", {"shares": 0})
        try:
            self.ask(brought_by, load, arrays=shares)
        except HdcosError:
            with suppress(HdcosError):  # one of them may have it
                self._forget_model(held)
            raise
        self._held[record.name] = held
        if older is not None:
            self._forget_model(older)

    def _forget_model(self, held: Held) -> None:
        self.ask(commands.Unload(held.name), commands.Drop(held.name, [held.record.version]))

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
        self._forget_model(self._found(name))
        del self._held[name]

    def order(self, record: ModelRecord, rows: int) -> None:
        held = self._current(record)
        held.order(held.next + rows)

    def prepare(self, record: ModelRecord, rows: int, wait: bool) -> None:
        self._current(record).prepare(rows, wait)

    def keep_ahead(self, record: ModelRecord, rows: int) -> None:
        self._current(record).keep_ahead(rows)

    def masks(self, record: ModelRecord, rows: int) -> Masks:
        return self._current(record).masks(rows)

    def infer(self, record: ModelRecord, inputs: Shares, mask_ids: Sequence[Any] | None) -> list[Reply]:
        held, rows = self._current(record), len(inputs[0]["input"])
        if mask_ids is None:
            replies = held.run(inputs, rows)
        else:
            start = int(mask_ids[0])
            if list(mask_ids) != list(range(start, start + rows)):
                raise MaterialReused("masks of rows that do not follow one another: some were passed over")
            replies = held.run(inputs, rows, start, mode="masked")
        held.rows += rows
        return replies

    def stock(self, record: ModelRecord) -> int:
        return self._current(record).stock()

    def reveal(self, record: ModelRecord, number: str, asked_before: bool, wait_s: float) -> Shares:
        kept = commands.KeepReveal(number, self._current(record).name, record.version)
        return [shares for _, shares in self.ask(kept, commands.Release(number))]

    # ---- data sets

    def upload(self, name: str, version: str, record: Mapping[str, Any], shares: Shares) -> None:
        self.ask(commands.KeepData(name, version, **record), arrays=shares)
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
        self._forget(self._dataset(name))
        del self._datasets[name]

    def _dataset(self, name: str) -> dict[str, Any]:
        if name not in self._datasets:
            raise DataMissing(f"no data set is named {name!r}")
        return self._datasets[name]

    def _forget(self, known: Mapping[str, Any]) -> None:
        self.ask(commands.ForgetData(known["name"], known["version"]))

    def allow_training(self, name: str, client: str) -> None:
        self._dataset(name)
        raise PolicyRefused(f"a cluster on this machine has one client: there is no {client!r} who could train")

    # ---- jobs

    def submit(self, spec: dict[str, Any], shares: Shares) -> None:
        if missing := [name for name in spec["datasets"] if name not in self._datasets]:
            raise InputError(f"no data set is called {missing}; there are {sorted(self._datasets)}")
        versions = [[name, self._datasets[name]["version"]] for name in spec["datasets"]]
        self._jobs[spec["id"]] = LinkJob(self, spec, versions, shares)

    def _job(self, number: str) -> LinkJob:
        if number not in self._jobs:
            raise DataMissing(f"no job has the id {number}")
        return self._jobs[number]

    def job(self, number: str) -> list[Status]:
        return self._job(number).statuses()

    def jobs(self) -> list[Status]:
        return [job.statuses()[0] for job in self._jobs.values()]

    def events(self, number: str) -> Iterator[Status]:
        """Nobody else drives a job here: to follow it is to have its steps taken."""
        return self._job(number).run()

    def looked(self, number: str, epoch: int) -> None:
        """Training goes on when the next event is asked for."""

    def cancel(self, number: str, keep: bool) -> None:
        self._job(number).cancel(keep)

    # ---- the rest

    def function(self, call: Call, shapes: Sequence[tuple[int, ...]], scale: int, ahead: int) -> Scope:
        scope = Scope(self, f"{call.function} {secrets.token_hex(16)}", refills=False)
        known = (call.function, dict(call.parameters), [list(shape) for shape in shapes], [scale] * len(shapes))
        self.ask(commands.OpenFunction(scope.name, scope.name, *known))
        if ahead:
            scope.keep_ahead(ahead)
        return scope

    def counts(self) -> list[dict[str, Any]]:
        return [
            {
                **{key: facts[key] for key in ("offline", "steps")},
                "online": {**facts["online"], "seconds": self.online_s},
            }
            for facts, _ in self.ask(commands.ReadCost())
        ]

    def round_trip_s(self, rounds: int) -> float:
        return float(max(facts["seconds"] for facts, _ in self.ask(commands.Ping(rounds))))

    def shutdown(self) -> None:
        """Ask both parties to end in good order."""
        self.ask(commands.Shutdown())
        self.close()

    def close(self) -> None:
        """Refuse whatever is asked from now on."""
        self._ended = True
