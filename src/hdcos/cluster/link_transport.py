"""Pairs of workers of a cluster on this machine, as one caller sees them.

Every pair serves every model and holds every data set. The rows of a batch are spread over the pairs, and those of a
training step too; one pair is a cluster of three processes, and everything goes to it. A local cluster has one client
and ends with it, so this side also remembers what there is: names, versions, data sets and jobs.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import partial
from threading import Lock
from typing import Any, TypeVar

import numpy as np

from hdcos.api import commands
from hdcos.api.commands import Command
from hdcos.api.cost import add_side_by_side
from hdcos.checks import check_name
from hdcos.cluster.link_jobs import LinkJob
from hdcos.cluster.pair import NOTHING, Answers, Pair, Scope
from hdcos.cluster.transport import OVER, Masks, ModelRecord, Reply, RetryableError, Shares, Status
from hdcos.errors import DataMissing, HdcosError, InputError, MaterialReused, PeerLost, PolicyRefused
from hdcos.protocol.catalogue import Call
from hdcos.ring import Array
from hdcos.secure.compile import CompiledNetwork
from hdcos.secure.labels import LABEL

PIECE_ROWS = 64
"""Rows that go to one pair: fewer would not be worth the rounds of another."""
T = TypeVar("T")


class Held:
    """A version of a model that every pair has open."""

    def __init__(self, pairs: Sequence[Pair], name: str, record: ModelRecord) -> None:
        self.scopes = [Scope(pair, name, refills=True) for pair in pairs]
        self.name, self.record, self.rows = name, record, 0
        """What the parties call it, what the caller knows of it, and rows that were answered."""


class LinkTransport:
    """Carries a caller's requests over links, to all pairs at once or to those that are free."""

    keeps_checkpoints = False

    def __init__(self, pairs: Sequence[Pair], has_dealer: bool, timeout_s: float) -> None:
        self.pairs, self.has_dealer, self.timeout_s = pairs, has_dealer, timeout_s
        self.online_s = 0.0
        """That of jobs, which all pairs work on."""
        self._held: dict[str, Held] = {}
        self._datasets: dict[str, dict[str, Any]] = {}
        self._jobs: dict[str, LinkJob] = {}
        self._busy = [0] * len(pairs)
        """Rows that each pair is working on."""
        self._lock = Lock()
        self._askers = ThreadPoolExecutor(4 * len(pairs), thread_name_prefix="asker")
        # Pairs wait for one another in a training step: what goes to all of them has a thread for each, one at a time.
        self._tellers = ThreadPoolExecutor(len(pairs), thread_name_prefix="teller")
        self._telling = Lock()

    # ---- requests

    def ask(self, *asked: Command, arrays: Shares = NOTHING) -> Answers:
        """Commands, one after another, to all pairs at once: the answers of party 0 and party 1, pair by pair."""
        return [answer for answers in self._each(lambda pair: pair.ask(*asked, arrays=arrays)) for answer in answers]

    def _each(self, work: Callable[[Pair], T]) -> list[T]:
        """Work with every pair that lives; if it fails, the error that says most is raised when all have ended."""
        with self._telling:
            return self._together([partial(work, self.pairs[index]) for index in self.living()], self._tellers)

    def _together(self, works: Sequence[Callable[[], T]], threads: ThreadPoolExecutor | None = None) -> list[T]:
        if len(works) == 1:
            return [works[0]()]
        asked: list[Future[T]] = []
        try:
            asked += [(threads or self._askers).submit(work) for work in works]
            wait(asked)
        except BaseException:  # interrupted: answers still to come would be taken for answers to other questions
            for pair in self.pairs:
                pair.cancel()
            raise
        failures = [error for call in asked if (error := call.exception()) is not None]
        if failures:
            raise min(failures, key=lambda error: isinstance(error, PeerLost))
        return [call.result() for call in asked]

    def _require_open(self) -> None:
        if self.pairs[0].ended:
            raise PeerLost(OVER)

    # ---- models

    def keep_model(self, record: ModelRecord, shares: Shares) -> None:
        name = f"{record.name} {record.version}"
        kept = commands.KeepModel(name, record.version, record.architecture, record.phase_bits)
        self.serve(record, name, kept, shares)

    def serve(self, record: ModelRecord, name: str, brought_by: Command, shares: Shares = NOTHING) -> None:
        """Serve a version of a model from now on; an older one of that name is forgotten.

        Parties know versions by different names: rows meant for one never meet another.
        """
        held, older = Held(self.pairs, name, record), self._held.get(record.name)
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

    def queries_left(self, name: str, chosen: CompiledNetwork) -> int | None:
        return None

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

    def order(self, record: ModelRecord, rows: int, output: str) -> None:
        for scope, part in self._divide(self._current(record), rows):
            scope.order(scope.next + part)
            if output == LABEL:
                scope.order_labels(part)

    def prepare(self, record: ModelRecord, rows: int, wait: bool, output: str) -> None:
        parts = self._divide(self._current(record), rows)
        self._together([partial(scope.prepare, part, wait, output) for scope, part in parts])

    def keep_ahead(self, record: ModelRecord, rows: int, output: str) -> None:
        for scope, part in self._divide(self._current(record), rows):
            scope.keep_ahead(part, output)

    def _divide(self, held: Held, rows: int) -> list[tuple[Scope, int]]:
        """How many of these rows each pair gets, in pieces by turns."""
        living = self.living()
        turns, rest = divmod(rows, PIECE_ROWS * len(living))
        parts = []
        for number, index in enumerate(living):
            more = min(PIECE_ROWS, max(0, rest - number * PIECE_ROWS))
            parts.append((held.scopes[index], turns * PIECE_ROWS + more))
        return [(scope, part) for scope, part in parts if part]

    def living(self) -> list[int]:
        """The pairs that can be asked. Without any there is the first, which says why it cannot be."""
        for pair in self.pairs:
            if pair.lost:  # what is left of it has nobody to work with, and must not keep others from its files
                pair.cancel()
        return [index for index, pair in enumerate(self.pairs) if not pair.lost] or [0]

    def masks(self, record: ModelRecord, rows: int) -> Masks:
        """Masks by turns from all pairs, so that a batch is spread over them. A mask's id names its pair."""
        held = self._current(record)
        got = {scope: scope.masks(part) for scope, part in self._divide(held, rows)}
        ids: list[tuple[int, int]] = []
        shares: tuple[list[Array], list[Array]] = ([], [])
        for start in range(0, max(len(masks.ids) for masks in got.values()), PIECE_ROWS):
            for scope, masks in got.items():
                piece, index = slice(start, start + PIECE_ROWS), held.scopes.index(scope)
                ids += [(index, number) for number in masks.ids[piece]]
                for mine, theirs in zip(shares, masks.shares, strict=True):
                    mine.append(theirs[piece])
        return Masks(ids, (np.concatenate(shares[0]), np.concatenate(shares[1])))

    def drop_masks(self, record: ModelRecord) -> None:
        held = self._held.get(record.name)
        if held is not None and held.record.version == record.version:
            for index in self.living():
                held.scopes[index].drop_masks()

    def infer(self, record: ModelRecord, inputs: Shares, mask_ids: Sequence[Any] | None, output: str) -> list[Reply]:
        """A batch, in parts that run at the same time: masked rows where their masks are, others wherever is room."""
        held, rows = self._current(record), len(inputs[0]["input"])
        living = self.living()
        with self._lock:
            parts = self._spread(rows, living) if mask_ids is None else _by_pair(mask_ids)
            for index, places in parts.items():
                self._busy[index] += len(places)
        try:
            known = (inputs, mask_ids, output)
            works = [partial(_run, held.scopes[index], places, *known) for index, places in parts.items()]
            answered = self._together(works)
        except PeerLost as error:
            lost = [pair.lost for pair in self.pairs]
            if all(lost) or not any(lost):
                raise
            # The others go on. Rows are split again, or masked again: nothing is run twice on the same randomness.
            raise RetryableError(error) if mask_ids is None else MaterialReused(str(error)) from None
        finally:
            with self._lock:
                for index, places in parts.items():
                    self._busy[index] -= len(places)
        held.rows += rows
        return [_joined([replies[rank] for replies in answered], list(parts.values()), rows) for rank in (0, 1)]

    def _spread(self, rows: int, living: Sequence[int]) -> dict[int, Array]:
        """The places of the rows that each pair takes: all that are free, or the one that has least to do.

        Where all have work, smaller batches would only take more rounds.
        """
        first = sorted(living, key=lambda index: self._busy[index])
        free = sum(not self._busy[index] for index in first)
        used = first[: max(1, min(free, rows // PIECE_ROWS))]
        return dict(zip(used, np.array_split(np.arange(rows), len(used)), strict=True))

    def stock(self, record: ModelRecord) -> int:
        held = self._current(record)
        return sum(held.scopes[index].stock() for index in self.living())

    def reveal(self, record: ModelRecord, number: str, asked_before: bool, wait_s: float) -> Shares:
        """All pairs have the same shares of it."""
        kept = commands.KeepReveal(number, self._current(record).name, record.version)
        return [shares for _, shares in self.pairs[0].ask(kept, commands.Release(number))]

    # ---- data sets

    def upload(self, name: str, version: str, record: Mapping[str, Any], pieces: Iterable[Shares]) -> int:
        rows, new = 0, {"name": name, "version": version}
        try:
            prepared, joined = record.get("preparation", ""), record.get("join", "")
            known = (record["features"], record["outputs"], record.get("columns"), prepared, "", joined)
            self.ask(commands.KeepData(name, version, *known))
            for shares in pieces:
                self.ask(commands.AddRows(name, version), arrays=shares)
                rows += len(shares[0]["rows"])
            self.ask(commands.EndData(name, version, rows))
        except BaseException:
            with suppress(HdcosError):  # where that fails too, the cluster has ended
                self._forget(new)
            raise
        older, size = self._datasets.get(name), 8 * rows * (record["features"] + record["outputs"])
        number = 1 if older is None else older["number"] + 1
        ours: dict[str, Any] = {"number": number, "owner": "", "own": True, "allowed": [], "expires": 0.0}
        kept = {**record, **ours, "rows": rows, "complete": True, "bytes": size, "received": size}
        self._datasets[name] = {**new, "columns": None, "join": "", "preparation": "", **kept}
        if older is not None:
            self._forget(older)
        return rows

    # ---- statistics: the caller is every owner, and says which

    def contribute(self, name: str, owner: str | None, record: Mapping[str, Any], shares: Shares) -> list[Status]:
        added = commands.AddTally(name, _owner(owner), **record)
        return [facts for facts, _ in self.pairs[0].ask(added, arrays=shares)]

    def contributions(self, name: str, owner: str | None) -> list[Status]:
        return [facts for facts, _ in self.pairs[0].ask(commands.LookTally(name, _owner(owner)))]

    def totals(self, name: str, owner: str | None) -> list[tuple[Status, Array]]:
        answers = self.pairs[0].ask(commands.TakeTally(name, _owner(owner)))
        return [(facts, arrays["total"]) for facts, arrays in answers]

    def withdraw(self, name: str, owner: str | None) -> None:
        self.pairs[0].ask(commands.WithdrawTally(name, _owner(owner)))

    # ---- what data sets there are

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

    def looked(self, number: str, epoch: int, best: bool = False, stop: bool = False) -> None:
        """Training goes on when the next event is asked for."""
        self._job(number).judge(best, stop)

    def cancel(self, number: str, keep: bool) -> None:
        self._job(number).cancel(keep)

    # ---- the rest

    def function(self, call: Call, shapes: Sequence[tuple[int, ...]], scale: int, ahead: int) -> Scope:
        """A function that the first pair has open."""
        scope = Scope(self.pairs[0], f"{call.function} {secrets.token_hex(16)}", refills=False)
        known = (call.function, dict(call.parameters), [list(shape) for shape in shapes], [scale] * len(shapes))
        scope.pair.ask(commands.OpenFunction(scope.name, scope.name, *known))
        if ahead:
            scope.keep_ahead(ahead)
        return scope

    def counts(self) -> list[dict[str, Any]]:
        """Both parties' counters, over all of their workers."""
        facts = [answer for answer, _ in self.ask(commands.ReadCost())]
        seconds = self.online_s + max(pair.online_s for pair in self.pairs)
        sides = [
            add_side_by_side([{key: counted[key] for key in ("online", "offline", "steps")} for counted in side])
            for side in (facts[0::2], facts[1::2])
        ]
        return [{**side, "online": {**side["online"], "seconds": seconds}} for side in sides]

    def round_trip_s(self, rounds: int) -> float:
        return float(max(facts["seconds"] for facts, _ in self.pairs[0].ask(commands.Ping(rounds))))

    def shutdown(self) -> None:
        """Ask all workers to end in good order."""
        self.ask(commands.Shutdown())
        self.close()

    def close(self) -> None:
        """Refuse whatever is asked from now on."""
        for pair in self.pairs:
            pair.ended = True


def _owner(owner: str | None) -> str:
    if owner is None:
        raise InputError("a cluster on this machine has one client, who is all owners: say which one (owner=...)")
    return check_name(owner, "owner")


def _by_pair(mask_ids: Sequence[tuple[int, int]]) -> dict[int, Array]:
    """The places of the rows whose masks each pair handed out."""
    owners = np.array([index for index, _ in mask_ids])
    return {int(index): np.flatnonzero(owners == index) for index in dict.fromkeys(owners)}


def _run(
    scope: Scope, places: Array, inputs: Shares, mask_ids: Sequence[tuple[int, int]] | None, output: str
) -> list[Reply]:
    """Some rows of a batch, at one pair."""
    whole = len(places) == len(inputs[0]["input"])
    part = inputs if whole else [{name: array[places] for name, array in side.items()} for side in inputs]
    if mask_ids is None:
        return scope.run(part, len(places), output=output)
    numbers = [mask_ids[place][1] for place in places]
    if numbers != list(range(numbers[0], numbers[0] + len(numbers))):
        raise MaterialReused("masks of rows that do not follow one another: some were passed over")
    return scope.run(part, len(places), numbers[0], mode="masked", output=output)


def _joined(replies: Sequence[Reply], places: Sequence[Array], rows: int) -> Reply:
    """One party's share of all rows, in their order."""
    first = replies[0]
    if len(replies) == 1:
        return first
    words = np.empty((rows, *first.words.shape[1:]), first.words.dtype)
    for reply, part in zip(replies, places, strict=True):
        words[part] = reply.words
    return Reply(words, first.scale, first.bits)
