"""How a caller reaches two parties: what a transport carries. What it means is the caller's business.

A transport takes shares that are split already, one mapping for each party, and brings back what each party answered.
It checks nothing that the caller can check, joins nothing and decodes nothing. `link_transport` carries over two links,
`connect` over HTTPS.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np

from hdcos.errors import HdcosError
from hdcos.protocol.catalogue import Call
from hdcos.ring import Array
from hdcos.secure.compile import CompiledNetwork

T = TypeVar("T")
Shares = Sequence[Mapping[str, Array]]
"""Arrays by name for party 0, and for party 1."""
Status = dict[str, Any]
"""A job as a party sees it: id, model, state, step, total_steps, epoch, epochs, error, version, report, interim."""
ENDED = ("done", "failed", "cancelled")
OVER = "this cluster has ended: use it, and what it made, inside its `with` block"
PAUSE_S, LONGEST_PAUSE_S = 0.1, 1.0
TELL_S = 1.0
"""How long somebody who waits for a party need not be told so."""
log = logging.getLogger(__name__)


class RetryableError(HdcosError):
    """A party could not answer now; the same may be asked again, with rows split freshly."""

    def __init__(self, error: HdcosError, silent: str = "") -> None:
        super().__init__(str(error))
        self.error = error
        self.silent = silent
        """Who did not answer at all, if that is why."""


def ask_again(work: Callable[[], T], timeout_s: float) -> T:
    """Repeat work that failed in a way that may pass, until the time is up. Whom it waits for is logged, once."""
    began, pause, told = time.monotonic(), PAUSE_S, False
    while True:
        try:
            return work()
        except RetryableError as error:
            waited_s = time.monotonic() - began
            if waited_s + pause > timeout_s:
                raise error.error from None
            if error.silent and not told and waited_s >= TELL_S:
                log.info("%s does not answer yet, trying for %g s", error.silent, timeout_s)
                told = True
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)


def split_words(words: Mapping[str, Array]) -> list[dict[str, Array]]:
    """What each party is sent: random words for party 0, the rest for party 1. Either share alone is uniform, from the
    operating system's randomness."""
    random = {name: np.frombuffer(os.urandom(8 * array.size), "<u8") for name, array in words.items()}
    zero = {name: random[name].astype(np.uint64, copy=False).reshape(array.shape) for name, array in words.items()}
    return [zero, {name: array - zero[name] for name, array in words.items()}]


@dataclass(frozen=True)
class ModelRecord:
    """A model as both parties know it."""

    name: str
    version: str
    architecture: dict[str, Any]
    phase_bits: int
    most_rows: int = 1 << 24
    """Rows of one request."""
    input_scale: tuple[int, int] | None = None
    """The fraction bits and the bits of its input, where the parties state them."""
    label_rows: int = 1 << 24
    """Rows of one request for labels; none where the parties give no labels."""


@dataclass(frozen=True)
class Masks:
    """Input masks of rows to come, one share from each party. Each is used once."""

    ids: Sequence[Any]
    shares: tuple[Array, Array]
    valid_s: float = float("inf")


@dataclass(frozen=True)
class Reply:
    """One party's share of a result, and its fixed-point scale and bits."""

    words: Array
    scale: int
    bits: int


class OpenFunction(Protocol):
    """A function of the catalogue that both parties have open for given shapes."""

    def prepare(self, executions: int, wait: bool) -> None: ...
    def run(self, inputs: Shares, executions: int) -> list[Reply]: ...
    def stock(self) -> int: ...
    def close(self) -> None: ...


class Transport(Protocol):
    """Carries requests to both parties and their answers back."""

    has_dealer: bool
    timeout_s: float
    keeps_checkpoints: bool
    """Whether the parties keep checkpoints by themselves, and nobody else may name a folder for them."""

    # ---- models
    def keep_model(self, record: ModelRecord, shares: Shares) -> None:
        """Give each party its share of a model, and return when both serve it."""

    def model(self, name: str, wanted: Callable[[], str] = str) -> ModelRecord:
        """A model, once both parties serve the wanted version; an empty string wants any. DataMissing without one."""

    def models(self) -> list[dict[str, Any]]: ...
    def queries_left(self, name: str, chosen: CompiledNetwork) -> int | None:
        """Rows that both parties would still answer for a model of this name and network; None for any number."""

    def delete_model(self, name: str) -> None: ...
    def order(self, record: ModelRecord, rows: int, output: str) -> None:
        """Rows are about to come: material that is missing may be made from now on."""

    def prepare(self, record: ModelRecord, rows: int, wait: bool, output: str) -> None: ...
    def keep_ahead(self, record: ModelRecord, rows: int, output: str) -> None:
        """Have material for this many rows kept available, in whichever mode rows come."""

    def masks(self, record: ModelRecord, rows: int) -> Masks: ...
    def drop_masks(self, record: ModelRecord) -> None:
        """Masks that were fetched will not be used: let parties drop the material of their rows now."""

    def infer(self, record: ModelRecord, inputs: Shares, mask_ids: Sequence[Any] | None, output: str) -> list[Reply]:
        """Each party's share of the logits, or of the labels alone, of rows that come as shares, or masked by the masks
        that are named."""

    def stock(self, record: ModelRecord) -> int:
        """Rows that both parties have material for."""

    def reveal(self, record: ModelRecord, number: str, asked_before: bool, wait_s: float) -> Shares: ...

    # ---- data sets
    def upload(self, name: str, version: str, record: Mapping[str, Any], pieces: Iterable[Shares]) -> int:
        """Have both parties keep rows that come in pieces; returns how many. If that fails they keep none."""

    # ---- statistics over several owners' rows
    def contribute(self, name: str, owner: str | None, record: Mapping[str, Any], shares: Shares) -> list[Status]:
        """Give each party its share of an owner's sums; returns who has contributed, as each of them knows it."""

    def contributions(self, name: str, owner: str | None) -> list[Status]: ...
    def totals(self, name: str, owner: str | None) -> list[tuple[Status, Array]]:
        """Each party's share of the totals, and whose they are."""

    def withdraw(self, name: str, owner: str | None) -> None: ...

    # ---- what data sets there are
    def datasets(self) -> list[dict[str, Any]]: ...
    def forget_data(self, name: str) -> None: ...
    def allow_training(self, name: str, client: str) -> None: ...

    # ---- jobs
    def submit(self, spec: dict[str, Any], shares: Shares) -> None: ...
    def job(self, number: str) -> list[Status]:
        """What each party says of a job."""

    def jobs(self) -> list[Status]: ...
    def events(self, number: str) -> Iterator[Status]:
        """What party 0 says of a job whenever that changes; a stream that breaks off raises RetryableError."""

    def looked(self, number: str, epoch: int, best: bool = False, stop: bool = False) -> None:
        """The model of an epoch was looked at: training need not wait for that any longer. It is the best so far, and
        will be kept, or enough was seen."""

    def cancel(self, number: str, keep: bool) -> None: ...

    # ---- the rest
    def function(self, call: Call, shapes: Sequence[tuple[int, ...]], scale: int, ahead: int) -> OpenFunction: ...
    def counts(self) -> list[dict[str, Any]]:
        """Each party's counters since its start: online, offline, and steps by name where they are metered."""

    def round_trip_s(self, rounds: int) -> float: ...
    def close(self) -> None: ...
