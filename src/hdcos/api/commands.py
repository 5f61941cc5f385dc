"""What the worker of a party is told to do, and what the one caller of a local cluster asks besides.

A command names public things only: models and versions, scopes, request ids, step numbers. Each party finds its own
shares by these names. The scheduler of party 0 issues commands for both parties, or the caller of `hdcos.local()` does.
On the wire a command is a JSON object in the header of a message (`link.message`), with its name under "op".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta, Struct

from hdcos.api.bodies import convert
from hdcos.errors import InputError

Whole = Annotated[int, Meta(ge=0, le=(1 << 62))]


def _snake(name: str) -> str:
    return re.sub("(?<!^)(?=[A-Z])", "_", name).lower()


class Command(Struct, frozen=True, forbid_unknown_fields=True, tag_field="op", tag=_snake):
    """Something that both parties do, in the same order."""

    answered: ClassVar[bool] = False
    """Whether both say how it went: it may fail without ending the session."""


# ---- models and functions


class Load(Command, frozen=True):
    """Make a stored version of a model ready; it takes the place of an older one."""

    answered: ClassVar[bool] = True
    model: str
    version: str
    scope: str
    ahead: dict[str, Whole]
    """Rows that material is made for, by the mode in which they come; without "masked" both modes use the same."""


class OpenFunction(Command, frozen=True):
    """Open a function of the catalogue for shapes."""

    answered: ClassVar[bool] = True
    name: str
    scope: str
    function: str
    parameters: dict[str, Any]
    shapes: list[list[Whole]]
    scales: list[Whole]
    ahead: Whole = 0
    """Executions that material is kept for; without, as much as is ordered."""


class Unload(Command, frozen=True):
    """Close a model or a function, and what is left of its material."""

    answered: ClassVar[bool] = True
    model: str


class Drop(Command, frozen=True):
    """Forget stored versions of a model, which both parties have a newer one of."""

    answered: ClassVar[bool] = True
    model: str
    versions: list[str]


class DropData(Command, frozen=True):
    """Forget stored versions of a data set, which both parties have a newer one of and no job uses."""

    answered: ClassVar[bool] = True
    name: str
    versions: list[str]


class Order(Command, frozen=True):
    """Have material made until this many executions were ordered in all."""

    model: str
    mode: str
    """In which rows come, or "label": what finds the label of a row is material of its own."""
    ordered: Whole
    wait: bool = False


class Burn(Command, frozen=True):
    """Drop material whose masks have expired."""

    model: str
    mode: str
    before: Whole


class Infer(Command, frozen=True):
    """Run a batch: the same requests at both parties, each with its own share. What is missing is ordered first."""

    model: str
    mode: str
    ids: list[str]
    start: Whole
    ordered: Whole
    output: str = "logits"
    """What leaves: the logits, or the label alone."""
    label_start: Whole = 0
    label_ordered: Whole = 0
    """The same of the material that labels take."""


# ---- training


class OpenJob(Command, frozen=True):
    """Begin a job, or go on from the checkpoint that both parties hold."""

    answered: ClassVar[bool] = True
    job: str
    scope: str
    datasets: list[list[str]]
    """Name and version of each."""
    attempt: Whole
    resume: Whole | None
    workers: list[Whole] = []
    """The pairs that take its steps together, the first of which leads; none means one pair."""


class Steps(Command, frozen=True):
    """Take steps of a job; the material of the next ones is made meanwhile."""

    job: str
    start: Whole
    steps: Whole
    rate: float


class StepsTogether(Steps, frozen=True):
    """Take steps of a job together with other pairs: one that is lost fails the command, not the session."""

    answered: ClassVar[bool] = True


class PauseJob(Command, frozen=True):
    """Forget what a job has in memory; it goes on from its last checkpoint."""

    answered: ClassVar[bool] = True
    job: str


class Publish(Command, frozen=True):
    """Keep the parameters of a job, as they are now, as a version of its model, or only to be looked at."""

    answered: ClassVar[bool] = True
    job: str
    version: str
    scope: str
    interim: bool = False
    together: bool = False
    """Whether all pairs that took its steps keep it."""


class KeepBest(Command, frozen=True):
    """Remember the parameters of a job as they are now, after an epoch: its model will be made of these."""

    job: str
    epoch: Whole


class CloseJob(Command, frozen=True):
    """End a job in a state, and forget what it has in memory."""

    answered: ClassVar[bool] = True
    job: str
    state: str
    error: str = ""


# ---- the rest


class Release(Command, frozen=True):
    """Both operators agreed: keep this party's refreshed share of a model for the client that asked."""

    answered: ClassVar[bool] = True
    reveal: str


class Withhold(Command, frozen=True):
    """One of the operators refused to release a model: neither party waits for that any more."""

    answered: ClassVar[bool] = True
    reveal: str


class Refuse(Command, frozen=True):
    """Requests that party 0 does not run, each with the reason."""

    refusals: list[list[str]]


class Settle(Command, frozen=True):
    """Party 0 has gone through all models once."""


class Ping(Command, frozen=True):
    """Empty rounds: how long a round trip takes."""

    rounds: Whole = 1


class Idle(Command, frozen=True):
    """Nothing is to be done, and party 0 is still there."""


# ---- what the caller of a local cluster gives and asks: shares travel behind it, as rows do behind `Infer`


class KeepModel(Command, frozen=True):
    """Hold a share of a model."""

    name: str
    version: str
    architecture: Any
    phase_bits: Whole


class KeepData(Command, frozen=True):
    """Begin to hold a share of one owner's rows, which come in pieces."""

    name: str
    version: str
    features: Whole
    outputs: Whole
    columns: list[str] | None = None
    preparation: str = ""
    owner: str = ""
    join: str = ""


class AddRows(Command, frozen=True):
    """The next rows of a data set: words of the features, then those of the targets."""

    name: str
    version: str


class EndData(Command, frozen=True):
    """That was all: a data set has this many rows."""

    name: str
    version: str
    rows: Whole


class FindData(Command, frozen=True):
    """Read a data set where this party keeps it: a worker on a machine that does not reach it says so."""

    name: str
    version: str
    rows: Whole
    features: Whole
    outputs: Whole
    columns: list[str] | None
    where: list[str]
    preparation: str = ""
    owner: str = ""
    join: str = ""


class ForgetData(Command, frozen=True):
    name: str
    version: str


class KeepJob(Command, frozen=True):
    """Hold a share of the first parameters of a job."""

    id: str
    spec: dict[str, Any]


class KeepReveal(Command, frozen=True):
    """Agree to reveal a version of a model: the caller owns it."""

    id: str
    model: str
    version: str


class AddTally(Command, frozen=True):
    """Hold a share of an owner's statistics; the caller says whose."""

    name: str
    owner: str
    id: str
    agreement: str
    numbers: Whole
    owners: Whole
    clients: list[str] = []


class LookTally(Command, frozen=True):
    """Who has contributed."""

    name: str
    owner: str


class TakeTally(Command, frozen=True):
    """A share of the total, when all have contributed."""

    name: str
    owner: str


class WithdrawTally(Command, frozen=True):
    name: str
    owner: str


class IssueMasks(Command, frozen=True):
    """A share of the input masks of rows to come."""

    model: str
    start: Whole
    rows: Whole


class CountMaterial(Command, frozen=True):
    """Executions of a model or function that were used, are available and were ordered."""

    model: str
    mode: str = "shares"


class GreetDealer(Command, frozen=True):
    """Say if the dealer was lost, and see in the background whether it still answers."""


class FindCheckpoints(Command, frozen=True):
    folder: str


class ReadCost(Command, frozen=True):
    """What the meters of a party counted since its start."""


class Shutdown(Command, frozen=True):
    """End in good order."""


def _all(kind: type[Command]) -> Iterator[type[Command]]:
    for each in kind.__subclasses__():
        yield each
        yield from _all(each)


_KINDS: dict[Any, type[Command]] = {kind.__struct_config__.tag: kind for kind in _all(Command)}


def read_command(record: Any) -> Command:
    """A command as it came over the wire; InputError if this version does not know it."""
    name = record.get("op") if isinstance(record, Mapping) else None
    kind = _KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise InputError(f"a party does not know the command {name!r}")
    try:
        return convert(record, kind)
    except msgspec.ValidationError as error:
        raise InputError(f"the command {name!r} cannot be read: {error}") from None


def write_command(command: Command) -> dict[str, Any]:
    """A command as it goes over the wire."""
    record: dict[str, Any] = msgspec.to_builtins(command)
    return record
