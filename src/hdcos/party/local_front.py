"""A party of a cluster on this machine, which has one caller: shares come with its requests and end with it.

The caller says what is to be done, number by number, and says it to both parties. This front only puts what came into a
store, has the worker execute commands, and answers.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hdcos.api import commands
from hdcos.api.commands import Command, read_command
from hdcos.api.cost import counts_to_json
from hdcos.errors import DataMissing, HdcosError, InputError, PeerLost
from hdcos.link import Kind, Link
from hdcos.link.message import decode_message, encode_message, reply_error
from hdcos.nn import Network
from hdcos.nn.columns import check_names
from hdcos.offline import MaterialPool, Plan
from hdcos.party.allotment import CallerAllotment
from hdcos.party.batcher import Answer, Request
from hdcos.party.checkpoint import Checkpoints
from hdcos.party.dataset_folder import dataset_folder
from hdcos.party.engine import Engine
from hdcos.party.rows import RowSource
from hdcos.party.spool import Spool
from hdcos.party.store import ENDED, StoredDataset, StoredJob, StoredModel, StoredReveal
from hdcos.party.tallies import Agreement, Tallies
from hdcos.party.uploads import CALLER
from hdcos.party.worker import Worker
from hdcos.ring import Array
from hdcos.secure import CompiledNetwork
from hdcos.secure.compile import ARITHMETIC

MAX_POOL_BYTES = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 4
"""What one pool may hold: two parties and a dealer share a machine in a local cluster."""
"""The owner of data sets whose owner need not be told: there is one caller."""
Words = dict[str, Array]
Facts = dict[str, Any]


class MemoryStore:
    """What the caller brought, by name; nothing of it outlives the process."""

    def __init__(self) -> None:
        self._models: dict[tuple[str, str], tuple[StoredModel, Words]] = {}
        self._datasets: dict[tuple[str, str], tuple[StoredDataset, RowSource]] = {}
        self._coming: dict[tuple[str, str], tuple[StoredDataset, Spool]] = {}
        """Data sets of which more rows will come."""
        self._jobs: dict[str, tuple[StoredJob, Words]] = {}
        self._reveals: dict[str, StoredReveal] = {}
        self.released: dict[str, Words] = {}
        """What reveals gave, until it is told."""

    def keep_model(
        self,
        name: str,
        version: str,
        architecture: Any,
        phase_bits: int,
        owner: str,
        words: Words,
        interim: bool = False,
    ) -> None:
        stored = StoredModel(name, version, architecture, phase_bits, owner, time.time(), ARITHMETIC)
        self._models[name, version] = stored, words

    def model(self, name: str, version: str) -> StoredModel:
        return self._model(name, version)[0]

    def model_words(self, name: str, version: str) -> Words:
        return self._model(name, version)[1]

    def _model(self, name: str, version: str) -> tuple[StoredModel, Words]:
        if (name, version) not in self._models:
            raise DataMissing(f"version {version} of {name} is not here")
        return self._models[name, version]

    def forget_model(self, name: str, versions: Sequence[str]) -> None:
        for version in versions:
            self._models.pop((name, version), None)

    def check_owner(self, name: str, owner: str) -> None:
        """Everything belongs to the one caller."""

    def check_versions(self, name: str) -> None:
        """Older ones are dropped at once."""

    def counted_as(self, model: str) -> str:
        return model

    def require(self, size: int, what: str) -> None:
        """Nothing is written."""

    def begin_dataset(self, dataset: StoredDataset) -> None:
        self._coming[dataset.name, dataset.version] = dataset, Spool(dataset.width)

    def find_dataset(self, dataset: StoredDataset, where: Sequence[str]) -> None:
        """A data set that this party has on disk, in one of these folders."""
        known = (dataset.name, dataset.version)
        folders = [dataset_folder(place, Path()) for place in where]
        holding = next((folder for folder in folders if folder.holds(*known)), None)
        if holding is None:
            raise DataMissing(f"{dataset.name} is in no folder that this machine reaches")
        self._datasets[known] = dataset, holding.open(*known, dataset.shape)

    def add_rows(self, name: str, version: str, words: Array | None) -> None:
        dataset, spool = self._come(name, version)
        if words is None or words.dtype != np.uint64 or words.ndim != 2 or words.shape[1] != dataset.width:
            raise InputError(f"rows of {name} have {dataset.width} words each, these have another shape or type")
        spool.add(words)

    def end_dataset(self, name: str, version: str, rows: int) -> None:
        dataset, spool = self._come(name, version)
        if rows != spool.rows or not rows:
            raise InputError(f"{spool.rows} rows of {name} came, not {rows}")
        self._datasets[name, version] = replace(dataset, rows=rows, complete=True), spool.source()
        del self._coming[name, version]

    def _come(self, name: str, version: str) -> tuple[StoredDataset, Spool]:
        if (name, version) not in self._coming:
            raise DataMissing(f"no upload of {name} with this version was begun")
        return self._coming[name, version]

    def forget_version(self, name: str, version: str) -> None:
        self._datasets.pop((name, version), None)
        self._coming.pop((name, version), None)

    def job_data(self, job: StoredJob, versions: Sequence[Sequence[str]]) -> list[StoredDataset]:
        if missing := [name for name, version in versions if (name, version) not in self._datasets]:
            there = sorted({name for name, _ in self._datasets})
            raise DataMissing(f"no data set is called {missing}; there are {there}")
        return [self._datasets[name, version][0] for name, version in versions]

    def dataset_rows(self, dataset: StoredDataset) -> RowSource:
        return self._datasets[dataset.name, dataset.version][1]

    def keep_job(self, job: str, spec: dict[str, Any], words: Words) -> None:
        self._jobs[job] = StoredJob(job, spec, owner=CALLER), words

    def job(self, job: str) -> StoredJob:
        if job not in self._jobs:
            raise DataMissing(f"no job has the id {job}")
        return self._jobs[job][0]

    def job_words(self, job: str) -> Words:
        return self._jobs[job][1]

    def note_job(self, job: str, heard: bool = False, **changes: Any) -> None:
        if changes.get("state") in ENDED:
            self._jobs.pop(job, None)

    def checkpoints(self, job: StoredJob, rank: int, resume: int | None) -> Checkpoints | None:
        folder = job.spec.get("checkpoint")
        return Checkpoints.of(folder, rank) if folder else None

    def keep_reveal(self, reveal: StoredReveal) -> None:
        if reveal.id in self._reveals:
            raise InputError(f"a reveal with the id {reveal.id} was asked for before")
        self._reveals[reveal.id] = reveal

    def reveal(self, reveal: str) -> StoredReveal:
        return self._reveals[reveal]

    def withhold(self, reveal: str) -> None:
        raise AssertionError("the one caller has nobody who could refuse")

    def release(self, reveal: str, words: Words) -> None:
        self.released[reveal] = words

    def forget_scope(self, scope: str) -> None:
        """There is no ledger."""


class OwnMemory:
    """The caller owns the machine: what is made ahead must fit it, and nothing else is limited."""

    def load(self, model: Network, network: CompiledNetwork, rows: int) -> int:
        return 0

    def function(self, command: commands.OpenFunction) -> None:
        """There is nobody else who could ask."""

    def release(self, name: str) -> None:
        """Memory is counted pool by pool."""

    def order(self, pool: MaterialPool, executions: int) -> None:
        held = (pool.expected - pool.used + executions) * pool.plan.packed_bytes(1)
        if held > MAX_POOL_BYTES:
            raise InputError(
                f"material for {executions} more executions makes {held / 2**30:.0f} GiB, more than the "
                f"{MAX_POOL_BYTES / 2**30:.0f} GiB a party keeps: prepare fewer at a time"
            )

    def job(self, model: Network, spec: dict[str, Any], data_words: int, rows: int) -> None:
        """Its rows are here already."""

    def queries(self, network: CompiledNetwork) -> int:
        return sys.maxsize

    def label_rows(self, material: Plan) -> int:
        return sys.maxsize


class LocalFront:
    """Answers one caller, and holds the inputs of the batch that is run next."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self._store = engine, MemoryStore()
        self._worker = Worker(
            *(engine, self._store, self, OwnMemory()),
            allot=lambda pool, ahead: CallerAllotment(pool, engine.material_s),
        )
        self._tallies = Tallies()
        self._inputs: tuple[commands.Infer, Words] | None = None
        self._result: Answer | None = None

    def serve(self, caller: Link) -> None:
        """Answer requests, each of one command or several, until the caller asks to shut down or leaves."""
        while True:
            _, payload = caller.receive(Kind.REQUEST, timeout_s=None)
            try:
                meta, arrays = decode_message(payload)
                facts: Facts = {}
                results: Words = {}
                asked = [read_command(record) for record in meta.get("commands", [])]
                for command in asked:
                    more, words = self._answer(command, arrays)
                    facts |= more
                    results |= words
            except Exception as error:
                if caller.closed:
                    raise
                reply_error(caller, error)
                if not isinstance(error, HdcosError):
                    traceback.print_exc()
            else:
                caller.send(Kind.REPLY, *encode_message(facts, results))
                if any(isinstance(command, commands.Shutdown) for command in asked):
                    return

    def _answer(self, command: Command, arrays: Words) -> tuple[Facts, Words]:
        store, worker = self._store, self._worker
        match command:
            case commands.KeepModel(name, version, architecture, phase_bits):
                store.keep_model(name, version, architecture, phase_bits, CALLER, arrays)
            case commands.KeepData(name, version, features, outputs, columns, preparation, owner, join):
                held = (owner, check_names(columns, features), True, preparation, join)
                store.begin_dataset(StoredDataset(name, version, 0, features, outputs, False, *held))
            case commands.FindData(name, version, rows, features, outputs, columns, where, preparation, owner, join):
                held = (owner, check_names(columns, features), True, preparation, join)
                store.find_dataset(StoredDataset(name, version, rows, features, outputs, True, *held), where)
            case commands.AddRows(name, version):
                store.add_rows(name, version, arrays.get("rows"))
            case commands.EndData(name, version, rows):
                store.end_dataset(name, version, rows)
            case commands.ForgetData(name, version):
                store.forget_version(name, version)
            case commands.KeepJob(job, spec):
                store.keep_job(job, spec, arrays)
            case commands.KeepReveal(reveal, model, version):
                store.keep_reveal(StoredReveal(reveal, model, version, CALLER, "approved"))
            case commands.Infer():
                self._inputs = command, arrays
                facts, result = worker.execute(command), self._result
                assert result is not None
                return {**facts, "scale": result.scale, "bits": result.bits}, {"words": result.words}
            case commands.Release(reveal):
                worker.execute(command)
                return {}, store.released.pop(reveal)
            case commands.AddTally(name, owner, number, agreement, numbers, owners, clients):
                meant = Agreement(agreement, numbers, owners, tuple(clients))
                return {**self._tallies.contribute(name, owner, number, meant, arrays.get("share"))}, {}
            case commands.LookTally(name, owner):
                return {**self._tallies.look(name, owner)}, {}
            case commands.TakeTally(name, owner):
                tally, total = self._tallies.take(name, owner)
                return {**tally}, {"total": total}
            case commands.WithdrawTally(name, owner):
                self._tallies.withdraw(name, owner)
            case commands.IssueMasks(model, start, rows):
                return {}, {"masks": worker.find(model).allotment("masked").issue(start, rows)}
            case commands.CountMaterial(model, mode):
                pool = worker.material(worker.find(model), mode).pool
                return {"used": pool.used, "available": pool.available, "expected": pool.expected}, {}
            case commands.GreetDealer():
                self._engine.greet_dealer()
                if self._engine.shortage is not None:
                    raise PeerLost(f"the dealer: {self._engine.shortage}")
            case commands.FindCheckpoints(folder):
                return _list_checkpoints(Checkpoints.of(folder, self._engine.rank)), {}
            case commands.ReadCost():
                return self._read_cost(), {}
            case commands.Shutdown():
                pass
            case _:
                return worker.execute(command), {}
        return {}, {}

    # ---- what the worker asks for

    def take(self, ids: Sequence[str]) -> list[Request]:
        """What came with the command, if it fits what is open; where it does not, the peer is told."""
        assert self._inputs is not None
        (command, arrays), self._inputs = self._inputs, None
        opened, mode, words = self._worker.find(command.model), command.mode, list(arrays.values())
        if mode not in ("shares", "masked"):
            raise InputError(f"inputs come as shares or masked, not {mode!r}")
        executions = opened.executions(len(words[0])) if words and words[0].ndim else 0
        found = [array.shape for array in words]
        if found != opened.input_shapes(executions) or any(array.dtype != np.uint64 for array in words):
            raise InputError(f"inputs of shapes {opened.input_shapes(executions)} in uint64 expected, got {found}")
        runs = ((command.start, executions),) if mode == "masked" else ()
        known: Facts = {"more": tuple(words[1:]), "own": True, "output": command.output}
        return [Request(ids[0], command.model, "", mode, runs, words[0], **known)]

    def settle(self, answers: Sequence[tuple[Request, Answer]]) -> None:
        ((_, self._result),) = answers

    def drop(self, refusals: Sequence[Sequence[str]]) -> None:
        """Nothing waits here."""

    # ---- what it cost

    def _read_cost(self) -> Facts:
        engine = self._engine
        engine.settle()
        online, offline = engine.meter.snapshot(), engine.dealer.meter.snapshot()
        made = replace(offline.sections["offline"], seconds=engine.offline_s)
        answer = counts_to_json({"online": online.sections["online"], "offline": made})
        # The socket to the peer as this party's meter and as the operating system counted it, from its start.
        total = online.total
        sockets = {
            "metered": [total.wire_bytes_sent, total.wire_bytes_received],
            "counted": engine.peer.os_counters(),
        }
        return {**answer, "steps": counts_to_json(online.steps.get("online", {})), "socket": sockets}


def _list_checkpoints(found: Checkpoints) -> Facts:
    known = [
        {"step": step, "run": record["run"], "attempt": record["attempt"], "seed": record["settings"]["seed"]}
        for step, record in found.records().items()
    ]
    return {"checkpoints": known, "attempt": found.attempt}
