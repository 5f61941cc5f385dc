"""A node's link to one of its further workers: what it is asked, and what it was given for that.

Models and jobs are given to a worker by the node, which has the store; it holds them in memory. Rows of a job are read
where they lie, if the worker reaches that place, or sent.

Security  a worker gets its own party's shares, over TLS with a certificate made for its life. How much it keeps ahead
          is what party 0's node asked for: each party compares it with its own limits before anything is given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from hdcos.api import commands
from hdcos.api.commands import Command, write_command
from hdcos.errors import DataMissing
from hdcos.link import Link
from hdcos.link.message import request
from hdcos.nn import Sequential
from hdcos.party.budget import Budget
from hdcos.party.node import Node
from hdcos.party.patience import WORKER
from hdcos.party.store import Store, StoredDataset
from hdcos.ring import Array
from hdcos.secure import compile_network

Prepared = commands.Load | commands.OpenJob
"""What a worker is given something for, and is told when the worker of the other party has its part as well."""
PIECE_WORDS = 1 << 20
"""Of a data set, in one message to a worker that cannot read its file."""


class SideLink:
    """One life of a worker, as its node sees it."""

    def __init__(self, link: Link, node: Node, store: Store, budget: Budget) -> None:
        self._link, self._node, self._store, self._budget = link, node, store, budget
        self.jobs: dict[str, list[list[str]]] = {}
        """Jobs that it takes part in or did, and the data sets of each, which it keeps until the job has ended."""

    @property
    def closed(self) -> bool:
        return self._link.closed

    def ask(
        self, *asked: Command, arrays: Mapping[str, Array] | None = None
    ) -> tuple[dict[str, Any], dict[str, Array]]:
        meta = {"commands": [write_command(command) for command in asked]}
        return request(self._link, meta, arrays, timeout_s=WORKER * self._node.timeout_s)

    def prepare(self, command: Prepared) -> None:
        """Give it what it needs for a command; an error names what this party lacks or refuses."""
        if isinstance(command, commands.OpenJob):
            self._prepare_job(command)
        else:
            self._prepare_model(command)

    def put_aside(self, command: Prepared) -> None:
        """What was prepared is not carried out. Rows stay for as long as their job does: it may be asked again."""
        if isinstance(command, commands.Load):
            self.ask(commands.Drop(command.model, [command.version]))

    def _prepare_model(self, command: commands.Load) -> None:
        stored = self._store.model(command.model, command.version)
        model = Sequential.outline(stored.architecture)
        network = compile_network(model, stored.phase_bits, self._node.has_dealer)
        self._budget.load(model, network, sum(command.ahead.values()))
        kept = commands.KeepModel(stored.name, stored.version, stored.architecture, stored.phase_bits)
        self.ask(kept, arrays=self._store.model_words(stored.name, stored.version))

    # ---- jobs

    def _prepare_job(self, command: commands.OpenJob) -> None:
        """The first pair has compared the job with this party's limits; a part of its batch takes no more."""
        store = self._store
        before = self.jobs.setdefault(command.job, [])
        items = store.job_data(store.job(command.job), command.datasets)
        for item in items:
            if [item.name, item.version] not in chain(*self.jobs.values()):
                self._give_data(item)
        self.jobs[command.job] = command.datasets
        self._forget_data(before)

    def close_job(self, job: str, command: Command) -> None:
        self.ask(command)
        self._forget_data(self.jobs.pop(job, []))

    def _forget_data(self, datasets: Sequence[list[str]]) -> None:
        """Let go of data sets that no job needs any more."""
        left = [commands.ForgetData(*known) for known in datasets if known not in chain(*self.jobs.values())]
        if left:
            self.ask(*left)

    def _give_data(self, item: StoredDataset) -> None:
        """Let it read a data set where it lies; one on a machine that cannot gets the rows from here."""
        store, names = self._store, None if item.columns is None else list(item.columns)
        known, told = (item.name, item.version), (item.preparation, item.owner, item.join_id)
        try:
            where = store.dataset_places()
            self.ask(commands.FindData(*known, item.rows, item.features, item.outputs, names, where, *told))
        except DataMissing:
            rows = store.dataset_rows(item)
            self.ask(commands.KeepData(*known, item.features, item.outputs, names, *told))
            at_once = max(1, PIECE_WORDS // rows.shape[1])
            for first in range(0, item.rows, at_once):
                taken = rows.take(np.arange(first, min(item.rows, first + at_once)))
                self.ask(commands.AddRows(*known), arrays={"rows": taken})
            self.ask(commands.EndData(*known, item.rows))
