"""Two workers of this machine, one of each party, asked over a link to each; and what both have open.

Executions of a model (its rows) or of a function are numbered here. A run that failed may have burnt its executions at
one party, at both or at none; the next run starts behind the later of the two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import suppress
from threading import Lock, RLock
from typing import Any

from hdcos.api import commands
from hdcos.api.commands import Command, write_command
from hdcos.cluster.transport import OVER, Masks, Reply, Shares
from hdcos.errors import HdcosError, PeerLost
from hdcos.link import Link
from hdcos.link.message import request
from hdcos.ring import Array
from hdcos.secure.labels import LABEL, LOGITS

GRACE_S = 2.0
ORDERED_PART = 8
"""More is ordered when an eighth of what is kept ahead is gone: an order costs dealer and parties as much as some rows
do, so one for each small batch would slow the batches themselves."""
NOTHING: Shares = ({}, {})
Answers = list[tuple[dict[str, Any], dict[str, Array]]]


class Pair:
    """A worker of party 0 and the worker of party 1 that it works with."""

    def __init__(self, links: Sequence[Link], timeout_s: float, explain: Callable[[PeerLost], PeerLost]) -> None:
        self.links, self.timeout_s, self._explain = links, timeout_s, explain
        self.online_s = 0.0
        self.ended = False
        self._lock = Lock()
        self._callers = ThreadPoolExecutor(len(links), thread_name_prefix="caller")

    @property
    def lost(self) -> bool:
        """Whether one of the two cannot be asked any more."""
        return any(link.closed for link in self.links)

    def ask(self, *asked: Command, arrays: Shares = NOTHING) -> Answers:
        """Commands, one after another, to both parties at once. If both fail, the error that says more is raised."""
        with self._lock:  # replies are told apart by their order alone
            if self.ended:
                raise PeerLost(OVER)
            return self._ask_both({"commands": [write_command(command) for command in asked]}, arrays)

    def cancel(self) -> None:
        """End all waiting, from any thread: both are lost then."""
        for link in self.links:
            link.cancel()

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
            self.cancel()  # interrupted: the answers still to come would be taken for answers to the next question
            raise
        first = [call for call in calls if call in done] + [call for call in calls if call not in done]
        failures = [error for call in first if (error := call.exception()) is not None]
        if failures:
            worst = min(failures, key=lambda error: isinstance(error, PeerLost))
            raise self._explain(worst) if isinstance(worst, PeerLost) else worst
        return [call.result() for call in calls]


def least_order(ahead: int) -> int:
    """Executions that are ordered at once, at least, where this many are kept ahead."""
    return max(1, ahead // ORDERED_PART)


def refilled(ordered: int, used: int, ahead: int) -> int:
    """Executions that should be ordered in all once those before `used` are taken: as many as were, unless an order
    is due."""
    wanted = used + ahead
    return wanted if wanted - ordered >= least_order(ahead) else ordered


class Scope:
    """A model or a function that both parties have open; its executions are numbered here."""

    def __init__(self, pair: Pair, name: str, refills: bool) -> None:
        self.pair, self.name = pair, name
        self._refills = refills
        """Whether material that was not prepared is made on the way."""
        self.next = self.issued = 0
        """The first execution that was not run, and the first whose input mask was not handed out."""
        self._ordered = self._ahead = 0
        """Executions that material was ordered for in all, and those that it is kept available for."""
        self.labels = self._labels_ordered = self._labels_ahead = 0
        """Of labels, the first that was not found, those that material was ordered for, and is kept available for."""
        self._lock = RLock()

    def prepare(self, executions: int, wait: bool, output: str = LOGITS) -> None:
        with self._lock:
            if output == LABEL:
                self._order_labels(self._labels_ordered + executions, wait)
            self._order(self._ordered + executions, wait)

    def order(self, last: int) -> None:
        """See that material was ordered for all executions before `last`."""
        with self._lock:
            if last > self._ordered:
                self._order(last, wait=False)

    def order_labels(self, rows: int) -> None:
        """See that material was ordered for the labels of the next rows."""
        with self._lock:
            if self.labels + rows > self._labels_ordered:
                self._order_labels(self.labels + rows, wait=False)

    def _order(self, ordered: int, wait: bool) -> None:
        self.pair.ask(commands.Order(self.name, "shares", ordered, wait))
        self._ordered = ordered

    def _order_labels(self, ordered: int, wait: bool) -> None:
        self.pair.ask(commands.Order(self.name, LABEL, ordered, wait))
        self._labels_ordered = ordered

    def keep_ahead(self, executions: int, output: str = LOGITS) -> None:
        with self._lock:
            if output == LABEL:
                self._labels_ahead = executions
                self.order_labels(executions)
            self._ahead, self._refills = executions, True
            self.order(self.next + executions)

    def count(self, mode: str = "shares") -> list[dict[str, Any]]:
        """What each party has used, has available and expects."""
        return [facts for facts, _ in self.pair.ask(commands.CountMaterial(self.name, mode))]

    def stock(self) -> int:
        return min(int(facts["available"]) for facts in self.count())

    def close(self) -> None:
        self.pair.ask(commands.Unload(self.name))

    def masks(self, rows: int) -> Masks:
        """Input masks of the rows behind those whose masks were handed out."""
        with self._lock:
            start = max(self.next, self.issued)
            (_, zero), (_, one) = self.pair.ask(commands.IssueMasks(self.name, start, rows))
            self.issued = start + rows
        return Masks(range(start, start + rows), (zero["masks"], one["masks"]))

    def drop_masks(self) -> None:
        """Have both parties drop the rows whose masks were handed out and that were not run: nobody will ask."""
        with self._lock:
            self.pair.ask(commands.Burn(self.name, "masked", self.issued))
            self.next = max(self.next, self.issued)

    def run(
        self,
        inputs: Shares,
        executions: int,
        start: int | None = None,
        mode: str = "shares",
        output: str = LOGITS,
    ) -> list[Reply]:
        """Run executions that begin at `start`, or the next ones.

        Rows whose masks were handed out cannot come as shares: they are passed over.
        """
        with self._lock:
            first = max(self.next, self.issued) if start is None else start
            ordered, labels, labels_ordered = self._ordered, self.labels, self._labels_ordered
            if self._refills:
                ordered = refilled(ordered, first + executions, self._ahead)
            if output == LABEL:
                labels += executions
                labels_ordered = refilled(labels_ordered, labels, self._labels_ahead)
            asked = commands.Infer(self.name, mode, [str(first)], first, ordered, output, self.labels, labels_ordered)
            try:
                answers = self.pair.ask(asked, arrays=inputs)
            except HdcosError:
                with suppress(PeerLost):
                    self._recount(output)
                raise
            self.next, self._ordered = max(self.next, first + executions), ordered
            self.labels, self._labels_ordered = labels, labels_ordered
        # The online phase starts when both parties hold the input: the party that started last saw all of it.
        self.pair.online_s += min(said["seconds"] for said, _ in answers)
        return [Reply(shares["words"], said["scale"], said["bits"]) for said, shares in answers]

    def _recount(self, output: str) -> None:
        """What a run that failed left: the next one begins behind the later of the two parties."""
        counts = self.count()
        self.next = max(int(facts["used"]) for facts in counts)
        self._ordered = max(int(facts["expected"]) for facts in counts)
        if output == LABEL:
            counts = self.count(LABEL)
            self.labels = max(int(facts["used"]) for facts in counts)
            self._labels_ordered = max(int(facts["expected"]) for facts in counts)
