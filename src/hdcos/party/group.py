"""The workers of one party that train one network together: one of each pair, with a link from each to the first.

Shares are additive: the share of a sum is the sum of shares. So the workers of a party add what their parts of a batch
change, in the ring and therefore exactly, and all of them hold the same parameters word for word after each step. Parts
need not be equal: each worker has a plan and material for its own.

Both parties must add the same parts, or shares stop being shares of anything. A worker that is lost at one party may
have contributed at the other. So when one of them cannot add any more, nothing of that training goes on: each worker
keeps its pace with its peer, which knows nothing of the loss yet, until the steps that it was told to take are over;
then it says that the group is `lost`, what it has is thrown away, and all go on from the last checkpoint.

Security  what travels here are a party's own shares between its own workers, over TLS with certificates that this
          party made for them. Neither the other party nor a dealer has one of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from time import monotonic

import numpy as np

from hdcos._version import __version__
from hdcos.errors import FrameError, HdcosError, WorkerLost
from hdcos.link import Kind, Link, split_name
from hdcos.ring import Array

GROUP = hashlib.sha256(f"hdcos {__version__} workers of one party".encode()).digest()
"""What two workers of a party mean by their link."""


WORKER = "worker"
LEAST_S = 0.01
LEAST_PART = 16
"""Rows of a batch that are worth a pair of their own in a service."""


def name_worker(index: int | str) -> str:
    """What the other workers of a party call one."""
    return f"{WORKER}{index}"


def most_pairs(batch: int) -> int:
    """How many pairs a service has take the steps of a job, if it has as many."""
    return max(1, batch // LEAST_PART)


def _nobody() -> Sequence[Link]:
    return ()


@dataclass
class Group:
    """A worker's place among those of its party. One that is alone has nobody to talk to."""

    index: int = 0
    size: int = 1
    connect: Callable[[], Sequence[Link]] = _nobody
    """Makes the links: of the first worker to all others, of another one to the first."""
    lost: str = ""
    """Why nothing can be added any more."""
    missing: tuple[int, ...] = ()
    """The workers that it was lost with, where they are known."""
    _links: Sequence[Link] = field(default=(), repr=False)

    @property
    def leads(self) -> bool:
        """Whether this is the worker that does what one of them does for all."""
        return self.index == 0

    def part(self, batch: int) -> range:
        """The rows of a batch that this worker takes. Each row has one worker, and parts differ by one row at most.

        Of more workers than rows, the first ones take a row each and the others none.
        """
        workers = min(self.size, batch)
        first, last = (batch * min(number, workers) // workers for number in (self.index, self.index + 1))
        return range(first, last)

    def add(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """The sums of all workers' arrays, the same at each; of a group that is lost, what nobody may use."""
        if self.size == 1 or self.lost:
            return dict(arrays)
        arrays = dict(sorted(arrays.items()))  # a worker without a row names them in another order
        try:
            if any(link.worn for link in self._links):  # all of them have carried the same
                self.close()
            self._links = self._links or self.connect()
            total = self._exchange(np.concatenate([array.ravel() for array in arrays.values()]))
        except BaseException as error:
            self._lose(error)
            if not isinstance(error, HdcosError):
                raise
            return dict(arrays)
        ends = np.cumsum([array.size for array in arrays.values()])[:-1]
        parts = zip(arrays.items(), np.split(total, ends), strict=True)
        return {name: part.reshape(array.shape) for (name, array), part in parts}

    @contextmanager
    def telling(self) -> Iterator[None]:
        """If this worker fails in what it does here, the others hear it at once: they would wait for its part."""
        try:
            yield
        except BaseException as error:
            if self.size > 1:  # all trainings of workers that are alone have the same group
                self._lose(error)
            raise

    def _lose(self, error: BaseException) -> None:
        for link in self._links:
            link.abort(error)
        self.lost = f"{type(error).__name__}: {error}"
        if isinstance(error, WorkerLost):
            self.lost, self.missing = str(error), error.workers

    def check_equal(self, arrays: Mapping[str, Array]) -> None:
        """That all workers hold the same arrays, as they must; the first one's hash is compared with each one's own.

        All of them hear which hold others. The group is lost then: nothing that they have is used, and the first one
        names them, so that the job goes on without them for a while.
        """
        if self.size == 1 or self.lost:
            return
        words = np.concatenate([array.ravel() for array in arrays.values()])
        mine = np.frombuffer(hashlib.sha256(words.tobytes()).digest(), np.uint64)
        first = self.add({"hash": mine if self.leads else np.zeros_like(mine)})["hash"]
        different = np.zeros(self.size, np.uint64)
        different[self.index] = not np.array_equal(first, mine)
        places = np.flatnonzero(self.add({"different": different})["different"])
        if not self.lost and len(places):
            names = [self._links[int(place) - 1].peer for place in places] if self.leads else []
            why = f"{len(places)} of {self.size} workers hold other parameters than the first one"
            self._lose(WorkerLost(why, [number for _, number in map(split_name, names) if number]))

    def _exchange(self, words: Array) -> Array:
        if not self.leads:
            (first,) = self._links
            first.send(Kind.REQUEST, words)
            return self._receive(first, len(words), first.timeout_s)
        total, limit = words, monotonic() + (self._links[0].timeout_s or inf)
        for link in self._links:
            try:
                total = total + self._receive(link, len(words), max(LEAST_S, limit - monotonic()))
            except HdcosError as error:
                _, number = split_name(link.peer)
                raise WorkerLost(f"{type(error).__name__}: {error}", [number] if number else []) from error
        for link in self._links:
            link.send(Kind.REQUEST, total)
        return total

    def _receive(self, link: Link, size: int, timeout_s: float | None) -> Array:
        _, payload = link.receive(Kind.REQUEST, limit=8 * size, timeout_s=timeout_s)
        if payload.nbytes != 8 * size:
            raise FrameError(f"{link.peer} has {payload.nbytes} bytes to add, not {8 * size}")
        return payload.view(np.uint64)

    def require(self) -> None:
        """WorkerLost if something could not be added."""
        if self.lost:
            raise WorkerLost(f"a worker of this party that trained with others was lost: {self.lost}", self.missing)

    def close(self) -> None:
        for link in self._links:
            link.close()
        self._links = ()


ALONE = Group()
Gather = Callable[[Sequence[int], str], Group]
"""Makes the group of these workers for a scope of material; none or one of them is alone."""


def gather_nobody(workers: Sequence[int], scope: str) -> Group:
    """What a party with one worker does."""
    return ALONE


def meaning(scope: str) -> bytes:
    """What workers that gather for a scope say to each other: those of another one are not theirs."""
    return hashlib.sha256(scope.encode()).digest()
